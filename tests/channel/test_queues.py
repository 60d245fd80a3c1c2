"""Sinks that cannot keep up: bounded queues with a policy, and nobody else slows down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import Channel, Node, Queue, Subscription, event_type
from headwater.dispatch import WAIT, AsyncLoop, Inline, Pool
from headwater.errors import ClosedError, QueueFull
from headwater.testing import ManualClock
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
    loop_in_a_thread,
    no_threads_left,
    world,
)

TYPE = event_type(Number)
TOGETHER = [name for name in STRATEGIES if name != "inline"]  # where a sink can be slow while its publisher goes on

every = pytest.mark.parametrize("strategy", STRATEGIES)
apart = pytest.mark.parametrize("strategy", TOGETHER)


def batch(*numbers: int) -> Any:
    return TYPE.to_arrow([Number(n) for n in numbers])


class Slow(Log):
    """A handler that stands still at its first event until it is let go."""

    def __init__(self) -> None:
        super().__init__(self._stand)
        self.standing, self.go = Flag(), Flag()

    def _stand(self, event: Number) -> None:
        self.standing.set()
        self.go.wait()


@contextmanager
def blocked(here: World, channel: Channel, queue: Queue, **options: Any) -> Iterator[tuple[Slow, Subscription]]:
    """A sink that stands in its handler with event -1, its queue empty."""
    slow = Slow()
    sink = here.subscribe(channel, slow, queue=queue, name="slow", **options)
    first = channel.source("first")
    if here.strategy == "inline":
        running = Threads(lambda: first.publish(Number(-1)))
    else:
        running = Threads()
        first.publish(Number(-1))
    slow.standing.wait()
    try:
        yield slow, sink
    finally:
        slow.go.set()
        running.join()


# ── block ──


@every
def test_block_makes_the_publisher_wait_and_go_on(strategy: str) -> None:
    with world(strategy) as here:
        channel = here.channel()
        with blocked(here, channel, Queue(limit=3, policy="block")) as (slow, sink):
            source, done = channel.source(), threading.Event()
            for number in range(3):
                source.publish(Number(number))
            started = Flag()

            def publish() -> None:
                started.set()
                source.publish(Number(3))
                done.set()

            waiting = Threads(publish)
            started.wait()
            assert source.seq == 3
            assert not done.is_set()
            assert sink.report().slow == "its queue is full: publishers wait"
            assert [each.name for each in here.node.report().slow] == ["slow"]
            slow.go.set()
            waiting.join()
            slow.wait(5)
        assert slow.numbers == [-1, 0, 1, 2, 3]
        assert conserved(sink)
        assert sink.report().slow is None


@every
def test_block_gives_up_in_time_with_nothing_done(strategy: str) -> None:
    with world(strategy) as here:
        channel, other = here.channel(), Log()
        with blocked(here, channel, Queue(limit=2, policy="block", wait=0.01)) as (slow, sink):
            channel.subscribe(other, dispatch=Inline())
            source = channel.source()
            source.publish(Number(0))
            source.publish(Number(1))
            with pytest.raises(QueueFull, match=r"'slow' is full with 2 events and stayed so for 0.01 s") as caught:
                source.publish(Number(2))
            assert caught.value.subscription == "slow"
            with pytest.raises(QueueFull, match="slow"):
                source.publish_many(batch(3, 4))
            with pytest.raises(QueueFull, match="slow"):
                source.publish_many([Number(5)])
            assert source.seq == 2
            slow.go.set()
            slow.wait(3)
            source.publish(Number(6))
            slow.wait(4)
        assert slow.numbers == [-1, 0, 1, 6]
        assert other.numbers == [0, 1, 6]
        assert conserved(sink)


@every
def test_a_publisher_waits_only_for_sinks_that_want_its_event(strategy: str) -> None:
    with world(strategy) as here:
        channel = here.channel()
        with blocked(here, channel, Queue(limit=1, policy="block", wait=0.01), where="n < 10") as (slow, _):
            quick, source = Log(), channel.source()
            channel.subscribe(quick, "n >= 10")
            source.publish(Number(0))
            for number in range(10, 200):
                source.publish(Number(number))
            quick.wait(190)
            with pytest.raises(QueueFull):
                source.publish(Number(1))
        assert quick.numbers == list(range(10, 200))
        slow.wait(2)


@every
def test_only_this_thread_could_empty_it(strategy: str) -> None:
    """A handler that fills its own queue is told so at once, and does not wait for itself."""
    with world(strategy) as here:
        channel, told = here.channel(), []
        source = channel.source()

        def fill(event: Number) -> None:
            if event.n == 0:
                try:
                    for number in range(1, 10):
                        source.publish(Number(number))
                except QueueFull as error:
                    told.append(str(error))

        log = Log(fill)
        sink = here.subscribe(channel, log, queue=Queue(limit=4, policy="block", wait=GUARD))
        source.publish(Number(0))
        log.wait(5)
        here.node.close(timeout=GUARD)
        assert log.numbers == [0, 1, 2, 3, 4]
        assert len(told) == 1
        assert "only this thread could empty it" in told[0]
        assert conserved(sink)


def test_the_publisher_is_in_another_handler_of_the_same_event() -> None:
    """The first sink's handler publishes; the second one's queue is full of what this thread has not come to yet."""
    with world("inline") as here:
        channel, source = here.channel(), here.channel().source()

        def again(event: Number) -> None:
            if event.n < 5:
                source.publish(Number(event.n + 1))

        first, second = Log(again), Log()
        channel.subscribe(first, queue=Queue(limit=8, wait=GUARD))
        channel.subscribe(second, queue=Queue(limit=1, wait=GUARD))
        source.publish(Number(0))
        assert first.numbers == list(range(6))
        assert second.numbers == list(range(6))


@pytest.mark.parametrize("strategy", THREADED)
@pytest.mark.parametrize("publishers", [1, 2, 3])
def test_all_threads_of_a_pool_wait_for_a_sink_of_the_pool(strategy: str, publishers: int) -> None:
    """The last of them is told that nobody would be left, instead of waiting; then all comes to an end."""
    with world(strategy) as here:
        target, log, told = here.channel("target"), Log(), []
        sink = here.subscribe(target, log, queue=Queue(limit=1, policy="block", wait=GUARD))
        together = threading.Barrier(publishers if strategy != "pool of one" else 1)
        ends = [Flag() for _ in range(publishers)]

        def publish(number: int) -> None:
            together.wait(GUARD)
            source = target.source()
            try:
                for each in range(20):
                    source.publish(Number(each, number))
            except QueueFull as error:
                told.append(str(error))
            ends[number].set()

        for number in range(publishers):
            channel = here.channel(f"c{number}")
            here.subscribe(channel, lambda event, number=number: publish(number))
            channel.source().publish(Number(0))
        for end in ends:
            end.wait()
        assert here.node.close(timeout=GUARD).drained
        for number in range(publishers):
            assert log.of(number) == list(range(len(log.of(number))))
        assert len(log.events) == sink.counts.delivered == sink.counts.passed
        assert len(told) <= publishers


def test_send_waits_without_stopping_the_loop() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("c", Number)
            sink, source = channel.subscribe(queue=Queue(limit=2, wait=GUARD)), channel.source()
            await source.send(Number(0))
            await source.send(n=1)
            sending = asyncio.ensure_future(source.send(Number(2)))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not sending.done()
            assert (await sink.receive()).n == 0
            assert await asyncio.wait_for(sending, GUARD) == 3
            assert [(await sink.receive()).n for _ in range(2)] == [1, 2]

    asyncio.run(main())


def test_send_gives_up_in_time_and_when_it_fails() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("c", Number)
            channel.subscribe(queue=Queue(limit=1, wait=0.01), name="slow")
            source = channel.source()
            await source.send(Number(0))
            with pytest.raises(QueueFull, match=r"'slow' is full with 1 events and stayed so for 0.01 s"):
                await source.send(Number(1))
            failing = node.channel("d", Number)
            failing.subscribe(queue=Queue(limit=1, policy="fail"), name="strict")
            other = failing.source()
            await other.send(Number(0))
            with pytest.raises(QueueFull, match="strict"):
                await other.send(Number(1))

    asyncio.run(main())


def test_send_to_oneself_is_told_so_at_once() -> None:
    told: list[str] = []

    async def main() -> None:
        async with Node() as node:
            channel, done = node.channel("c", Number), asyncio.Event()
            source = channel.source()

            async def handler(event: Number) -> None:
                if event.n == 0:
                    try:
                        for number in range(1, 5):
                            await source.send(Number(number))
                    except QueueFull as error:
                        told.append(str(error))
                    done.set()

            channel.subscribe(handler, queue=Queue(limit=2, wait=GUARD))
            source.publish(Number(0))
            await asyncio.wait_for(done.wait(), GUARD)

    asyncio.run(main())
    assert len(told) == 1
    assert "only this thread could empty it" in told[0]


def test_a_coroutine_sends_to_a_slower_one() -> None:
    got: list[int] = []

    async def main() -> None:
        async with Node() as node:
            fast, slow = node.channel("fast", Number), node.channel("slow", Number)
            target = slow.source()

            async def forward(event: Number) -> None:
                await target.send(event)

            async def take(event: Number) -> None:
                await asyncio.sleep(0)
                got.append(event.n)

            slow.subscribe(take, queue=Queue(limit=1, wait=GUARD))
            fast.subscribe(forward)
            fast.source().publish_many([Number(n) for n in range(100)])

    asyncio.run(main())
    assert got == list(range(100))


def test_waiting_again_and_again_leaves_nothing_behind() -> None:
    """A coroutine that waits for a moment, ever again, for a sink that does not change."""

    async def main() -> None:
        async with Node() as node:
            channel = node.channel("c", Number)
            sink = channel.subscribe()
            for _ in range(50):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(sink.receive(), 0)
                receiving = asyncio.ensure_future(sink.receive())
                await asyncio.sleep(0)
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
            assert len(sink._mailbox.waiters.futures) <= 2
            channel.source().publish(Number(1))
            assert (await sink.receive()).n == 1

    asyncio.run(main())


def test_a_coroutine_waits_for_an_event_as_long_as_it_says() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("c", Number)
            sink, asked = channel.subscribe(), []
            assert await sink.receive(0) is None is await sink.receive(timeout=0.01)
            with channel.source() as source:
                source.publish(Number(1))
                assert (await sink.receive(0)).n == 1  # what waits is given in any case
                soon = asyncio.ensure_future(sink.receive(GUARD))
                await asyncio.sleep(0)
                source.publish(Number(2))
                assert (await soon).n == 2
            with channel.source(ask=lambda: asked.append(1)):  # one that is asked has none, and is asked again
                assert await sink.receive(0.05) is None and len(asked) > 1
            sink.cancel()
            with pytest.raises(ClosedError):
                await sink.receive(GUARD)

    asyncio.run(main())


# ── dropping and failing ──


@every
@pytest.mark.parametrize(("policy", "kept"), [("drop_oldest", [7, 8, 9]), ("drop_newest", [0, 1, 2])])
def test_dropping(strategy: str, policy: Any, kept: list[int]) -> None:
    with world(strategy) as here:
        channel, other = here.channel(), Log()
        with blocked(here, channel, Queue(limit=3, policy=policy)) as (slow, sink):
            channel.subscribe(other, dispatch=Inline())
            source = channel.source()
            for number in range(10):
                source.publish(Number(number))
            assert sink.counts.queued == 3
            assert sink.counts.dropped == 7
            assert "7 dropped" in str(here.node.report())
            assert [each.name for each in here.node.report().slow] == ["slow"]
            slow.go.set()
            slow.wait(4)
        assert slow.numbers == [-1, *kept]
        assert other.numbers == list(range(10))
        assert conserved(sink)


@every
def test_fail_is_all_or_nothing(strategy: str) -> None:
    with world(strategy) as here:
        channel, other = here.channel(), Log()
        with blocked(here, channel, Queue(limit=2, policy="fail")) as (slow, sink):
            channel.subscribe(other, dispatch=Inline())
            derived = channel.derive("derived", "n >= 0")
            third, source = Log(), channel.source()
            derived.subscribe(third, dispatch=Inline())
            source.publish(Number(0))
            source.publish(Number(1))
            for publish in (
                lambda: source.publish(Number(2)),
                lambda: source.publish_many([Number(3), Number(4)]),
                lambda: source.publish_many(batch(5, 6)),
            ):
                with pytest.raises(QueueFull, match="its policy is to fail") as caught:
                    publish()
                assert caught.value.subscription == "slow"
            assert source.seq == 2
            assert sink.report().slow == "its queue is full: publishers fail"
            slow.go.set()
            slow.wait(3)
            source.publish(Number(7))
            slow.wait(4)
        assert slow.numbers == [-1, 0, 1, 7]
        assert other.numbers == third.numbers == [0, 1, 7]
        assert sink.counts.dropped == 0
        assert conserved(sink)


def test_a_list_that_does_not_fit_says_how_far_it_came() -> None:
    with world("inline") as here:
        channel = here.channel()
        sink, source = channel.subscribe(queue=Queue(limit=3, policy="fail")), channel.source()
        with pytest.raises(QueueFull) as caught:
            source.publish_many([Number(n) for n in range(5)])
        assert "event 3" in "".join(caught.value.__notes__)
        assert source.seq == 3
        assert [sink.poll().n for _ in range(3)] == [0, 1, 2]


@apart
@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_else_slows_down(strategy: str, policy: Any) -> None:
    """Beside a sink that stands still and does not make publishers wait, others of the channel get everything."""
    with world(strategy) as here:
        channel = here.channel()
        wanted = "n < 50" if policy in ("block", "fail") else "n < 1000"
        with blocked(here, channel, Queue(limit=64, policy=policy), where=wanted) as (slow, sink):
            logs = [Log() for _ in range(3)]
            if strategy not in ("pool of one", "asyncio", "coroutines"):  # there the one that stands is in the way
                here.subscribe(channel, logs[0])
            else:
                channel.subscribe(logs[0], dispatch=Pool(minimum=2, maximum=2))
            channel.subscribe(logs[1], dispatch=Inline())
            channel.subscribe(logs[2], "n >= 0", dispatch=Pool(maximum=2), queue=Queue(limit=8, policy="block"))
            source = channel.source()
            for number in range(300):
                source.publish(Number(number))
            for log in logs:
                log.wait(300)
                assert log.numbers == list(range(300))
        slow.wait(51)
        here.node.close(timeout=GUARD)
        assert conserved(sink)


# ── batches ──


@every
@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("block", list(range(20))),
        ("fail", list(range(20))),
        ("drop_oldest", list(range(15, 20))),
        ("drop_newest", list(range(5))),
    ],
)
def test_a_batch_bigger_than_the_queue(strategy: str, policy: Any, kept: list[int]) -> None:
    with world(strategy) as here:
        channel, other = here.channel(), Log()
        with blocked(here, channel, Queue(limit=5, policy=policy)) as (slow, sink):
            channel.subscribe(other, dispatch=Inline(), queue=1)
            source = channel.source()
            source.publish_many(batch(*range(20)))
            assert sink.counts.queued == len(kept)
            slow.go.set()
            slow.wait(1 + len(kept))
        assert slow.numbers == [-1, *kept]
        assert other.numbers == list(range(20))
        assert conserved(sink)


@every
@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_batches_and_single_events_in_a_queue_that_drops(strategy: str, policy: Any) -> None:
    with world(strategy) as here:
        channel = here.channel()
        with blocked(here, channel, Queue(limit=6, policy=policy)) as (slow, sink):
            source = channel.source()
            source.publish(Number(0))
            source.publish_many(batch(1, 2, 3, 4))
            source.publish(Number(5))
            source.publish(Number(6))
            source.publish_many(batch(7, 8, 9))
            assert sink.counts.queued == 6
            slow.go.set()
            slow.wait(7)
        assert slow.numbers == [-1, *(range(4, 10) if policy == "drop_oldest" else range(6))]
        assert sink.counts.dropped == 4
        assert conserved(sink)


@pytest.mark.parametrize("policy", POLICIES)
def test_pulling_from_a_batch_bigger_than_the_queue(policy: Any) -> None:
    with world("inline") as here:
        channel = here.channel()
        sink, source = channel.subscribe(queue=Queue(limit=4, policy=policy, **WAITS[policy])), channel.source()
        source.publish_many(batch(*range(10)))
        got = [sink.get(GUARD).n]
        if policy in ("block", "fail"):
            with pytest.raises(QueueFull):
                source.publish(Number(99))
            assert sink.counts.queued == 9
            while len(got) < 10:
                got.append(sink.get(GUARD).n)
            assert got == list(range(10))
        source.publish(Number(10))
        got += [event.n for event in iter(sink.poll, None)]
        assert got[-1] == 10
        assert conserved(sink)


WAITS: dict[str, dict[str, float]] = {"block": {"wait": 0.01}, "fail": {}, "drop_oldest": {}, "drop_newest": {}}


def test_a_publisher_waits_for_two_sinks_that_pull_from_batches() -> None:
    """Each time one of them makes room, the publisher must hear of it."""
    with no_threads_left(), Node() as node:
        channel = node.channel("c", Number)
        sinks = [channel.subscribe(queue=Queue(limit=4, policy="block", wait=GUARD)) for _ in range(2)]
        source = channel.source()
        source.publish_many(batch(*range(12)))
        firsts = [sink.get(GUARD).n for sink in sinks]  # the batch is in pieces now, and each queue still full
        seen: list[list[int]] = []
        publishing = Threads(lambda: [source.publish(Number(n)) for n in range(12, 40)])
        taking = Threads(*(lambda sink=sink: seen.append([sink.get(GUARD).n for _ in range(39)]) for sink in sinks))
        publishing.join()
        taking.join()
        assert firsts == [0, 0]
        assert seen == [list(range(1, 40))] * 2


def test_several_threads_pull_from_one_sink() -> None:
    """Each event reaches one of them, once, also when one takes a batch to pieces while others wait."""
    with no_threads_left(), Node() as node:
        channel = node.channel("c", Number)
        sink, source = channel.subscribe(queue=Queue(limit=64, wait=GUARD)), channel.source()
        got: list[int] = []

        def take() -> None:
            for event in sink:
                got.append(event.n)

        taking = Threads(take, take, take)
        for start in range(0, 600, 20):
            source.publish_many(batch(*range(start, start + 20)))
        sink.cancel()
        taking.join()
        assert sorted(got) == list(range(600))
        assert sink.counts.delivered == 600
        assert conserved(sink)


# ── paused sinks ──


@every
@pytest.mark.parametrize("policy", POLICIES)
def test_a_paused_sink_never_blocks(strategy: str, policy: Any) -> None:
    with world(strategy) as here:
        channel, log, other = here.channel(), Log(), Log()
        sink = here.subscribe(channel, log, queue=Queue(limit=5, policy=policy))
        channel.subscribe(other)
        source = channel.source()
        sink.pause()
        for number in range(20):
            source.publish(Number(number))
        source.publish_many(batch(*range(20, 30)))
        assert other.numbers == list(range(30))
        assert sink.counts.queued == 5
        assert sink.counts.dropped == 25
        assert log.numbers == []
        assert "paused" in str(sink.report().slow)
        sink.resume()
        log.wait(5)
        assert log.numbers == (list(range(25, 30)) if policy == "drop_oldest" else list(range(5)))
        source.publish(Number(100))
        log.wait(6)
        assert log.numbers[-1] == 100
        assert conserved(sink)


@every
def test_pausing_lets_a_publisher_that_waits_go_on(strategy: str) -> None:
    with world(strategy) as here:
        channel = here.channel()
        with blocked(here, channel, Queue(limit=1, policy="block", wait=GUARD)) as (slow, sink):
            source, started = channel.source(), Flag()
            source.publish(Number(0))

            def publish() -> None:
                started.set()
                source.publish(Number(1))

            waiting = Threads(publish)
            started.wait()
            sink.pause()
            waiting.join()
            assert sink.counts.dropped == 1
            sink.resume()
        slow.wait(2)
        assert slow.numbers == [-1, 0]


@every
@pytest.mark.parametrize("drain", [True, False])
def test_cancelling_lets_a_publisher_that_waits_go_on(strategy: str, drain: bool) -> None:
    with world(strategy) as here:
        channel = here.channel()
        with blocked(here, channel, Queue(limit=1, policy="block", wait=GUARD)) as (slow, sink):
            source, started = channel.source(), Flag()
            source.publish(Number(0))

            def publish() -> None:
                started.set()
                source.publish(Number(1))

            waiting = Threads(publish)
            started.wait()
            sink.cancel(drain=drain)
            waiting.join()
        here.node.close(timeout=GUARD)
        assert slow.numbers == ([-1, 0] if drain else [-1])
        assert conserved(sink)


# ── constraints and lifetimes ──


@every
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_constraint_that_waits_keeps_order_and_loses_nothing(strategy: str, size: int) -> None:
    """Also with batches, of which more may have been taken out of the queue, or less than a batch that came."""
    opened, asked = threading.Event(), Flag()
    got: list[int] = []
    done = Flag()

    def before(rows: Any) -> Any:
        asked.set()
        return True if opened.is_set() else WAIT

    def handler(rows: Any) -> None:
        got.extend(rows.column("n").to_pylist())
        if len(got) == 30:
            done.set()

    with world(strategy) as here:
        channel = here.channel()
        sink = here.subscribe(channel, handler, before=before, batch=size)
        source = channel.source()
        for number in range(10):
            source.publish(Number(number))
        source.publish_many(batch(*range(10, 25)))
        for number in range(25, 30):
            source.publish(Number(number))
        asked.wait()
        opened.set()
        sink.wake()
        done.wait()
        here.node.close(timeout=GUARD)
        assert got == list(range(30))
        assert sink.counts.failed == 0
        assert conserved(sink)


@every
def test_a_constraint_that_fails_skips_its_events(strategy: str) -> None:
    got: list[int] = []

    def before(rows: Any) -> bool:
        if rows.column("n")[0].as_py() < 8:
            raise ValueError("not these")
        return True

    def handler(rows: Any) -> None:
        got.extend(rows.column("n").to_pylist())

    with world(strategy) as here:
        channel = here.channel()
        sink = here.subscribe(channel, handler, before=before, batch=4)
        channel.source().publish_many(batch(*range(16)))
        here.node.close(timeout=GUARD)
        assert got == list(range(8, 16))
        assert sink.counts.skipped == 8
        assert sink.counts.failed == 2
        assert conserved(sink)


@every
@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_expired_is_dropped_and_counted(strategy: str, policy: Any) -> None:
    clock = ManualClock()
    with world(strategy, clock=clock) as here:
        channel, log = here.channel(), Log()
        sink = here.subscribe(channel, log, lifetime=10.0, queue=Queue(limit=64, policy=policy))
        source = channel.source()
        sink.pause()
        source.publish_many(batch(0, 1, 2))
        source.publish(Number(3))
        clock.advance(6.0)
        source.publish(Number(4))
        source.publish_many(batch(5, 6))
        clock.advance(6.0)
        sink.resume()
        log.wait(3)
        assert here.node.close(timeout=GUARD).drained
        assert log.numbers == [4, 5, 6]
        assert sink.counts.expired == 4
        assert conserved(sink)


def test_one_loop_serves_many_nodes() -> None:
    with no_threads_left(), loop_in_a_thread() as loop:
        logs = [Log() for _ in range(3)]
        nodes = [Node() for _ in logs]
        for node, log in zip(nodes, logs, strict=True):
            channel = node.channel("c", Number)
            channel.subscribe(log, dispatch=AsyncLoop(loop=loop), queue=Queue(limit=2, policy="block"))
            source = channel.source()
            for number in range(50):
                source.publish(Number(number))
        for node, log in zip(nodes, logs, strict=True):
            assert node.close(timeout=GUARD).drained
            assert log.numbers == list(range(50))
