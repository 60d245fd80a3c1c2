"""What holds under every dispatch strategy: order, each event once, handlers that act on the service, and that fail."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from headwater import Channel, Config, Node, Queue, Source, Subscription
from headwater.errors import ClosedError
from tests.channel.concurrency import (
    GUARD,
    POLICIES,
    STRATEGIES,
    THREADED,
    Flag,
    Log,
    Number,
    Threads,
    World,
    conserved,
    world,
)
from tests.effort import EFFORT

EVENTS = 40
TRIGGER = 7  # the event upon which a handler acts

every = pytest.mark.parametrize("strategy", STRATEGIES)


# ── handlers that act on the service ──


@dataclass
class Scene:
    """A channel with a sink that acts when it gets event TRIGGER, and perhaps another that looks on."""

    world: World
    channel: Channel
    source: Source
    queue: Queue
    log: Log = field(default_factory=Log)
    looker: Log = field(default_factory=Log)
    sink: Subscription = field(init=False)
    onlooker: Subscription | None = None
    published: dict[int, int] = field(default_factory=dict)  # by sequence number
    acted: Flag = field(default_factory=Flag)
    kept: Any = None  # by the act, for the check

    def subscribe(self, channel: Channel, log: Log) -> Subscription:
        return self.world.subscribe(channel, log, queue=self.queue)

    def publish(self, number: int, source: Source | None = None) -> None:
        self.published[(source or self.source).publish(Number(number))] = number

    def all_in_order(self, log: Log) -> bool:
        return log.numbers == [number for _, number in sorted(self.published.items())]


def _publish_to_own_source(scene: Scene) -> None:
    scene.publish(1000)


def _check_publish_to_own_source(scene: Scene) -> None:
    scene.log.wait(EVENTS + 1)
    assert scene.all_in_order(scene.log)
    if scene.onlooker is not None:
        scene.looker.wait(EVENTS + 1)
        assert scene.all_in_order(scene.looker)


def _publish_elsewhere(scene: Scene) -> None:
    other = scene.world.channel("others")
    scene.kept = Log()
    scene.subscribe(other, scene.kept)
    source = other.source()
    for number in range(20):
        source.publish(Number(number))


def _check_publish_elsewhere(scene: Scene) -> None:
    scene.kept.wait(20)
    scene.log.wait(EVENTS)
    assert scene.kept.numbers == list(range(20))
    assert scene.all_in_order(scene.log)


def _subscribe(scene: Scene) -> None:
    log = Log()
    scene.kept = log, scene.subscribe(scene.channel, log)


def _check_subscribe(scene: Scene) -> None:
    log, made = scene.kept
    scene.log.wait(EVENTS)
    first = made.points[scene.source.id]
    log.wait(EVENTS - first)
    assert log.numbers == list(range(first, EVENTS))
    assert scene.all_in_order(scene.log)


def _cancel_itself(scene: Scene) -> None:
    scene.sink.cancel()


def _check_cancel_itself(scene: Scene) -> None:
    assert scene.log.numbers == list(range(TRIGGER + 1))
    assert scene.sink.state == "closed"


def _cancel_another(scene: Scene) -> None:
    if scene.onlooker is not None:
        scene.onlooker.cancel()


def _check_cancel_another(scene: Scene) -> None:
    scene.log.wait(EVENTS)
    assert scene.all_in_order(scene.log)
    assert scene.looker.numbers == list(range(len(scene.looker.numbers)))


def _change_itself(scene: Scene) -> None:
    scene.kept = scene.sink.change(where="n % 2 == 0")


def _check_change_itself(scene: Scene) -> None:
    last = scene.kept[scene.source.id]
    expected = list(range(last)) + [n for n in range(last, EVENTS) if n % 2 == 0]
    scene.log.wait(len(expected))
    assert scene.log.numbers == expected


def _pause_itself(scene: Scene) -> None:
    scene.sink.pause()


def _check_pause_itself(scene: Scene) -> None:
    assert scene.log.numbers == list(range(TRIGGER + 1))
    assert scene.sink.state == "paused"
    scene.sink.resume()
    scene.log.wait(EVENTS)
    assert scene.all_in_order(scene.log)


def _close_source(scene: Scene) -> None:
    scene.source.close()


def _check_closed_source(scene: Scene) -> None:
    last = scene.source.seq
    scene.log.wait(last)
    assert scene.log.numbers == list(range(last))
    if scene.onlooker is not None:
        scene.looker.wait(last)
        assert scene.looker.numbers == list(range(last))
    with pytest.raises(ClosedError):
        scene.source.publish(Number(0))


def _close_channel(scene: Scene) -> None:
    scene.channel.close()


def _close_node(scene: Scene) -> None:
    scene.kept = scene.world.node.close(timeout=GUARD)


def _check_close_node(scene: Scene) -> None:
    closing = scene.kept
    for log in (scene.log, scene.looker):
        assert log.numbers == list(range(len(log.numbers)))
    assert len(scene.log.numbers) + closing.dropped.get(scene.sink.name, 0) == scene.source.seq
    if scene.onlooker is not None and not scene.world.on_a_loop:  # whose thread this handler did not let go on
        assert scene.looker.numbers == list(range(scene.source.seq))
        assert scene.onlooker.name not in closing.dropped
    with pytest.raises(ClosedError):
        scene.source.publish(Number(0))


ACTS: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], None]]] = {
    "publishes to its own source": (_publish_to_own_source, _check_publish_to_own_source),
    "publishes elsewhere": (_publish_elsewhere, _check_publish_elsewhere),
    "subscribes": (_subscribe, _check_subscribe),
    "cancels itself": (_cancel_itself, _check_cancel_itself),
    "cancels another": (_cancel_another, _check_cancel_another),
    "changes itself": (_change_itself, _check_change_itself),
    "pauses itself": (_pause_itself, _check_pause_itself),
    "closes the source": (_close_source, _check_closed_source),
    "closes the channel": (_close_channel, _check_closed_source),
    "closes the node": (_close_node, _check_close_node),
}


@every
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with another"])
def test_a_handler_acts_on_the_service(strategy: str, policy: Any, act: str, alone: bool) -> None:
    do, check = ACTS[act]
    with world(strategy) as here:
        channel = here.channel()
        scene = Scene(here, channel, channel.source("s"), Queue(limit=256, policy=policy))

        def acting(event: Number) -> None:
            if event.n == TRIGGER:
                do(scene)
                scene.acted.set()

        scene.log.then = acting
        scene.sink = scene.subscribe(channel, scene.log)
        if not alone:
            scene.onlooker = scene.subscribe(channel, scene.looker)
        for number in range(EVENTS):
            try:
                scene.publish(number)
            except ClosedError:
                assert scene.source.closed
                break
        scene.acted.wait()
        check(scene)
        here.node.close(timeout=GUARD)
        for subscription in (scene.sink, scene.onlooker):
            if subscription is not None:
                assert conserved(subscription)
                assert subscription.counts.failed == 0


@every
def test_a_chain_of_handlers_through_many_channels(strategy: str) -> None:
    """Handlers publish into the next channel, far deeper than the stack is; each gets everything in order."""
    length, events = 250 if EFFORT == 1 else 400, 3
    with world(strategy) as here:
        channels = [here.channel(f"c{number}") for number in range(length)]
        sources = [channel.source() for channel in channels]
        logs = [Log(source.publish) for source in sources[1:]]
        logs.append(Log())
        for channel, log in zip(channels, logs, strict=True):
            here.subscribe(channel, log)
        for number in range(events):
            sources[0].publish(Number(number))
        logs[-1].wait(events)
        assert all(log.numbers == list(range(events)) for log in logs)


@every
def test_a_handler_that_feeds_itself_does_not_keep_others_out(strategy: str) -> None:
    """One event is published again and again by its own handler; meanwhile changes take effect and others publish."""
    with world(strategy) as here:
        channel, stop = here.channel(), threading.Event()
        again = channel.source("again")

        def feed(event: Number) -> None:
            if event.maker == 1 and not stop.is_set():
                again.publish(event)

        log = Log(feed)
        here.subscribe(channel, log)
        feeding = Threads(lambda: again.publish(Number(0, 1)))
        log.wait(100)
        other, others = Log(), channel.source("other")
        second = channel.subscribe(other, "maker == 2")
        others.publish(Number(5, 2))
        other.wait(1)
        second.change(where="maker == 3")
        others.publish(Number(6, 2))
        others.publish(Number(7, 3))
        other.wait(2)
        assert other.numbers == [5, 7]
        stop.set()
        feeding.join()


@every
@pytest.mark.parametrize("publishers", [1, 3])
def test_changes_take_effect_while_publishers_flood(strategy: str, publishers: int) -> None:
    """A stream of events without end on the very source does not put off subscribing, changing and cancelling."""
    with world(strategy) as here:
        channel, stop, started = here.channel(), threading.Event(), Log()
        source = channel.source()
        crowd = [here.subscribe(channel, lambda event: None, f"n % 50 == {number}") for number in range(12)]
        here.subscribe(channel, lambda event: started(event) if event.n < 100 else None)

        def flood() -> None:
            number = 0
            while not stop.is_set():
                source.publish(Number(number))
                number += 1

        flooding = Threads(*[flood] * publishers)
        try:
            started.wait(50)
            for number in range(4 if EFFORT == 1 else 12):
                log = Log()
                made = here.subscribe(channel, log, "n % 2 == 0")
                log.wait(1)
                crowd[number].change(where=f"n % 3 == {number % 3}")
                assert made.counts.evaluated > 0
                made.cancel()
                crowd[number].cancel()
        finally:
            stop.set()
            flooding.join()


@every
def test_the_handler_of_a_subscription_never_runs_twice_at_once(strategy: str) -> None:
    with world(strategy) as here:
        channel = here.channel()
        inside, overlaps = [0], [0]

        def careful(event: Number) -> None:
            inside[0] += 1
            overlaps[0] += inside[0] != 1
            here.node.channels()  # a little something to do
            inside[0] -= 1

        log = Log(careful)
        here.subscribe(channel, log)
        sources = [channel.source() for _ in range(3)]

        def publish(maker: int) -> None:
            for number in range(150):
                sources[maker].publish(Number(number, maker))

        Threads(*(lambda maker=maker: publish(maker) for maker in range(3))).join()
        log.wait(450)
        assert overlaps == [0]
        assert all(log.of(maker) == list(range(150)) for maker in range(3))


# ── handlers that fail ──


class Failures:
    """An error hook that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def __call__(self, subscription: Subscription, error: BaseException, event: Any) -> None:
        with self._changed:
            self.told.append((subscription.name, str(error)))
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= count, GUARD)


@contextmanager
def _told(text: str, flag: Flag) -> Iterator[None]:
    """Set the flag when something with this text is logged."""
    handler, logger = logging.Handler(logging.ERROR), logging.getLogger("headwater")
    handler.emit = lambda record: flag.set() if text in record.getMessage() else None  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _fail_on(numbers: set[int]) -> Callable[[Number], None]:
    def fail(event: Number) -> None:
        if event.n in numbers:
            raise ValueError(f"no {event.n}, please")

    return fail


@every
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with another"])
def test_failures_are_reported_and_counted_and_disturb_nobody(
    strategy: str, alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures()
    with caplog.at_level(logging.ERROR), world(strategy, on_error=failures) as here:
        channel = here.channel()
        log, other = Log(_fail_on({2, 3, 5})), Log()
        bad = here.subscribe(channel, log, name="shaky")
        if not alone:
            here.subscribe(channel, other)
        source = channel.source()
        for number in range(20):
            source.publish(Number(number))
        log.wait(20)
        failures.wait(3)
        here.node.close(timeout=GUARD)
        assert log.numbers == list(range(20))
        assert other.numbers == ([] if alone else list(range(20)))
        assert failures.told == [("shaky", f"no {n}, please") for n in (2, 3, 5)]
        assert bad.counts.failed == 3
        assert bad.counts.delivered == 20
        assert conserved(bad)
        assert "ValueError: no 5, please" in str(bad.report().trouble)
        lines = [record.getMessage() for record in caplog.records if "shaky" in record.getMessage()]
        assert len(lines) == 3
        assert all("'shaky'" in line and "ValueError" in line for line in lines)


@every
def test_after_some_failures_in_a_row_it_is_paused_and_nothing_is_lost(strategy: str) -> None:
    healthy, paused = threading.Event(), Flag()

    def fail(event: Number) -> None:
        if event.n >= 4 and not healthy.is_set():
            raise ValueError("not yet")

    with _told("'shaky' is paused", paused), world(strategy, config=Config(failures=3)) as here:
        channel = here.channel()
        log, other = Log(fail), Log()
        bad = here.subscribe(channel, log, name="shaky", queue=Queue(limit=64, policy="block"))
        here.subscribe(channel, other)
        source = channel.source()
        for number in range(30):
            source.publish(Number(number))
        paused.wait()
        other.wait(30)
        assert log.numbers == list(range(7))
        assert bad.state == "paused"
        assert "3 times in a row" in str(bad.paused)
        assert [each.name for each in here.node.report().slow] == ["shaky"]
        healthy.set()
        bad.resume()
        log.wait(30)
        assert log.numbers == list(range(30))
        assert bad.state == "open"
        assert bad.counts.failed == 3
        assert conserved(bad)


@every
def test_failures_that_are_not_in_a_row_pause_nothing(strategy: str) -> None:
    with world(strategy, config=Config(failures=2)) as here:
        channel, log = here.channel(), Log(_fail_on(set(range(0, 40, 2))))
        bad = here.subscribe(channel, log)
        source = channel.source()
        for number in range(40):
            source.publish(Number(number))
        log.wait(40)
        here.node.close(timeout=GUARD)
        assert bad.paused is None
        assert bad.counts.failed == 20


@every
def test_it_pauses_never_if_told_so(strategy: str) -> None:
    with world(strategy) as here:
        channel, log = here.channel(), Log(_fail_on(set(range(40))))
        bad = here.subscribe(channel, log, failures=0)
        source = channel.source()
        for number in range(40):
            source.publish(Number(number))
        log.wait(40)
        here.node.close(timeout=GUARD)
        assert (bad.paused, bad.counts.failed) == (None, 40)


@every
def test_an_error_hook_that_fails(strategy: str, caplog: pytest.LogCaptureFixture) -> None:
    def hook(*told: object) -> None:
        raise LookupError("the hook is broken")

    with caplog.at_level(logging.ERROR), world(strategy, on_error=hook) as here:
        channel, log = here.channel(), Log(_fail_on({1}))
        here.subscribe(channel, log)
        source = channel.source()
        for number in range(5):
            source.publish(Number(number))
        log.wait(5)
        assert log.numbers == list(range(5))
        here.node.close(timeout=GUARD)
        assert any("LookupError: the hook is broken" in record.getMessage() for record in caplog.records)


@every
def test_a_hook_may_act_on_the_service(strategy: str) -> None:
    def hook(subscription: Subscription, error: Exception, event: Any) -> None:
        subscription.cancel()
        alarm.publish(Number(77))

    with world(strategy, on_error=hook) as here:
        channel, heard = here.channel(), Log()
        alarm = here.channel("alarm").source()
        here.channel("alarm").subscribe(heard)
        log = Log(_fail_on({3}))
        here.subscribe(channel, log)
        source = channel.source()
        for number in range(10):
            source.publish(Number(number))
        heard.wait(1)
        here.node.close(timeout=GUARD)
        assert log.numbers == list(range(4))
        assert heard.numbers == [77]


@pytest.mark.parametrize("strategy", THREADED)
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_a_handler_in_a_thread_may_raise_anything(strategy: str, error: type[BaseException]) -> None:
    """What would end a program is a failure like any other where no program is to be ended."""
    failures = Failures()

    def fail(event: Number) -> None:
        if event.n == 1:
            raise error("enough")

    with world(strategy, on_error=failures) as here:
        channel, log = here.channel(), Log(fail)
        sink = here.subscribe(channel, log)
        source = channel.source()
        for number in range(5):
            source.publish(Number(number))
        log.wait(5)
        assert here.node.close(timeout=GUARD).drained
        assert log.numbers == list(range(5))
        assert failures.told == [(sink.name, "enough")]
        assert sink.counts.failed == 1


def test_a_coroutine_whose_own_work_is_cancelled() -> None:
    """It is the work that was cancelled, not the handler: a failure, after which the next event comes."""
    got: list[int] = []
    failures = Failures()

    async def main() -> None:
        async def handler(event: Number) -> None:
            got.append(event.n)
            if event.n == 1:
                work = asyncio.ensure_future(asyncio.sleep(GUARD))
                work.cancel()
                await work
            if event.n == 4:
                done.set()

        done = asyncio.Event()
        async with Node(on_error=failures) as node:
            channel = node.channel("c", Number)
            channel.subscribe(handler, name="worker")
            source = channel.source()
            for number in range(5):
                source.publish(Number(number))
            await asyncio.wait_for(done.wait(), GUARD)

    asyncio.run(main())
    assert got == list(range(5))
    assert [name for name, _ in failures.told] == ["worker"]
