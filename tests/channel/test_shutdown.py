"""The end of a node: it drains or aborts, by choice, never hangs, and leaves no thread behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from headwater import Node, Queue, Source, event_type
from headwater.channel import Closing
from headwater.channel.concurrency import gate
from headwater.dispatch import WAIT, AsyncLoop, Inline, Pool
from headwater.errors import ClosedError
from headwater.testing import ManualClock
from headwater.timers import Timeout
from tests.channel.concurrency import (
    GUARD,
    STRATEGIES,
    THREADED,
    Flag,
    Log,
    Number,
    Threads,
    conserved,
    loop_in_a_thread,
    no_threads_left,
    world,
)

TYPE = event_type(Number)
every = pytest.mark.parametrize("strategy", STRATEGIES)
apart = pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "inline"])


def batch(*numbers: int) -> Any:
    return TYPE.to_arrow([Number(n) for n in numbers])


def until_closed(source: Source) -> None:
    """Return when the node has begun to close: publish, where nobody listens, as long as that is possible."""
    end = monotonic() + GUARD
    with pytest.raises(ClosedError):
        while monotonic() < end:
            source.publish(Number(0))


# ── drain and abort ──


@every
def test_draining_delivers_all_that_waits(strategy: str) -> None:
    with world(strategy) as here:
        channel, log = here.channel(), Log()
        sink = here.subscribe(channel, log)
        source = channel.source()
        sink.pause()
        source.publish_many(batch(*range(100)))
        for number in range(100, 200):
            source.publish(Number(number))
        sink.resume()
        assert here.node.close(timeout=GUARD) == Closing(True, {})
        assert log.numbers == list(range(200))
        assert conserved(sink)
        with pytest.raises(ClosedError, match="its node is closed"):
            source.publish(Number(0))


@apart
def test_aborting_drops_what_waits_and_waits_for_what_runs(strategy: str) -> None:
    with world(strategy) as here:
        channel, standing, go = here.channel(), Flag(), Flag()

        def stand(event: Number) -> None:
            standing.set()
            go.wait()
            left.set()

        left = Flag()
        log = Log(stand)
        sink = here.subscribe(channel, log, name="slow")
        source = channel.source()
        for number in range(10):
            source.publish(Number(number))
        standing.wait()
        ends: list[Closing] = []
        probe = here.channel("probe").source()
        closing = Threads(lambda: ends.append(here.node.close(drain=False, timeout=GUARD)))
        until_closed(probe)
        assert not ends
        go.set()
        closing.join()
        assert left.is_set
        assert ends == [Closing(False, {"slow": 9})]
        assert log.numbers == [0]
        assert sink.counts.dropped == 9
        assert conserved(sink)


def test_aborting_waits_for_a_handler_in_a_publishers_thread() -> None:
    with world("inline") as here:
        channel, standing, go, left = here.channel(), Flag(), Flag(), Flag()

        def stand(event: Number) -> None:
            standing.set()
            go.wait()
            left.set()

        here.subscribe(channel, stand)
        publishing = Threads(lambda: channel.source().publish(Number(0)))
        standing.wait()
        closed = Flag()

        def close() -> None:
            here.node.close(drain=False, timeout=GUARD)
            assert left.is_set
            closed.set()

        closing = Threads(close)
        go.set()
        closing.join()
        publishing.join()
        assert closed.is_set


@every
@pytest.mark.parametrize("drain", [True, False])
def test_a_handler_that_does_not_end_does_not_keep_the_node(strategy: str, drain: bool) -> None:
    with world(strategy) as here:
        channel, standing, go = here.channel(), Flag(), Flag()

        def stand(event: Number) -> None:
            standing.set()
            go.wait()

        log = Log(stand)
        sink = here.subscribe(channel, log, name="endless")
        source = channel.source()
        publishing = Threads(lambda: source.publish(Number(0)))
        standing.wait()
        for number in range(1, 5):
            source.publish(Number(number))
        ending = here.node.close(drain=drain, timeout=0.01)
        assert ending == Closing(False, {"endless": 4})
        assert log.numbers == [0]
        go.set()
        publishing.join()
        assert here.node.close(timeout=GUARD) == ending  # and now everything has ended
        assert conserved(sink)


@every
def test_paused_sinks_do_not_hold_up_the_end(strategy: str) -> None:
    with world(strategy) as here:
        channel, log = here.channel(), Log()
        sink = here.subscribe(channel, log, name="paused")
        sink.pause()
        source = channel.source()
        source.publish_many(batch(1, 2, 3))
        source.publish(Number(4))
        assert here.node.close(timeout=GUARD) == Closing(False, {"paused": 4})
        assert log.numbers == []
        assert conserved(sink)


@every
def test_a_constraint_that_waits_does_not_hold_up_the_end(strategy: str) -> None:
    with world(strategy, clock=ManualClock()) as here:
        channel, asked = here.channel(), Flag()

        def before(event: Number) -> Any:
            asked.set()
            return WAIT

        log = Log()
        sink = here.subscribe(channel, log, before=before, name="waiting")
        source = channel.source()
        source.publish(Number(0))
        source.publish(Number(1))
        asked.wait()
        ending = here.node.close(timeout=GUARD)
        assert ending == Closing(False, {"waiting": 2})
        assert sink.counts.failed == 0
        assert conserved(sink)


@every
def test_handlers_publish_while_draining(strategy: str) -> None:
    """What the last events lead to is delivered as well, through several channels and back."""
    with world(strategy) as here:
        first, second = here.channel("first"), here.channel("second")
        sources = first.source(), second.source()
        resume = Flag()

        def forward(event: Number) -> None:
            resume.wait()
            if event.n > 0:
                sources[1].publish(Number(event.n))

        def back(event: Number) -> None:
            sources[0].publish(Number(event.n - 1))

        logs = Log(forward), Log(back)
        sink = here.subscribe(first, logs[0])
        here.subscribe(second, logs[1])
        publishing = Threads(lambda: sources[0].publish(Number(20)))
        logs[0].wait(1)
        ends: list[Closing] = []
        probe = here.channel("probe").source()
        closing = Threads(lambda: ends.append(here.node.close(timeout=GUARD)))
        until_closed(probe)
        with pytest.raises(ClosedError):
            sources[0].publish(Number(99))
        resume.set()
        closing.join()
        publishing.join()
        assert ends == [Closing(True, {})]
        assert logs[0].numbers == list(range(20, -1, -1))
        assert logs[1].numbers == list(range(20, 0, -1))
        assert conserved(sink)


@every
def test_a_handler_that_feeds_itself_for_ever_does_not_keep_the_node(strategy: str) -> None:
    with world(strategy) as here:
        channel = here.channel()
        source = channel.source()
        counted = Log()

        def feed(event: Number) -> None:
            if len(counted.events) < 50:
                counted(event)
            source.publish(Number(event.n + 1))

        sink = here.subscribe(channel, feed, failures=0)

        def start() -> None:
            source.publish(Number(0))

        feeding = Threads(start)
        counted.wait(50)
        ending = here.node.close(timeout=0.05)
        feeding.join()
        assert not ending.drained
        here.node.close(timeout=GUARD)  # and now everything has ended
        assert conserved(sink)


@pytest.mark.parametrize("strategies", [("pool", "priority"), ("asyncio", "pool"), ("deadline", "inline")])
def test_draining_across_strategies(strategies: tuple[str, str]) -> None:
    """Events go to and fro between sinks of different dispatchers while the node drains."""
    with world(strategies[0]) as here:
        channels = [here.channel(f"c{number}") for number in range(4)]
        sources = [channel.source() for channel in channels]
        logs = []
        for number, channel in enumerate(channels):

            def forward(event: Number, number: int = number) -> None:
                if event.n < 100:
                    sources[(number + 1) % 4].publish(Number(event.n + 1))

            logs.append(Log(forward))
            chosen = here.dispatch if number % 2 else STRATEGIES[strategies[1]]
            channel.subscribe(logs[number], dispatch=chosen)
        for start in range(5):
            sources[0].publish(Number(start * 4))
        assert here.node.close(timeout=GUARD) == Closing(True, {})
        assert sum(len(log.events) for log in logs) == sum(101 - start * 4 for start in range(5))


# ── closing from handlers, and again ──


@every
@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("sinks", [1, 3])
def test_a_handler_closes_the_node_with_much_waiting(strategy: str, drain: bool, sinks: int) -> None:
    """It does not wait for itself; what other sinks have waiting is delivered, where it can be, even by one thread."""
    with world(strategy) as here:
        channel, ends, closed = here.channel(), [], Flag()

        def close(event: Number) -> None:
            if event.n == 0:
                ends.append(here.node.close(drain=drain, timeout=GUARD))
                closed.set()

        acting, others = Log(close), [Log() for _ in range(sinks - 1)]
        subscriptions = [here.subscribe(channel, acting)] + [here.subscribe(channel, other) for other in others]
        source = channel.source()
        for subscription in subscriptions:
            subscription.pause()
        source.publish_many(batch(*range(50)))
        for subscription in reversed(subscriptions):
            with suppress(ClosedError):
                subscription.resume()
        closed.wait()
        here.node.close(timeout=GUARD)
        assert acting.numbers == [0]
        for other in others:
            assert other.numbers == list(range(len(other.numbers)))
            if drain and not here.on_a_loop:
                assert len(other.numbers) == 50
        assert ends[0].dropped[subscriptions[0].name] == 49
        assert all(conserved(each) for each in subscriptions)


def test_an_inline_handler_closes_before_the_others_had_the_event() -> None:
    with world("inline") as here:
        channel = here.channel()
        first, second = Log(lambda event: here.node.close(timeout=GUARD)), Log()
        channel.subscribe(first)
        channel.subscribe(second)
        channel.source().publish(Number(1))
        assert first.numbers == second.numbers == [1]


def test_the_end_comes_deep_in_a_chain_of_handlers() -> None:
    """So deep that handlers are put off until the thread is out of the others again."""
    with world("inline") as here:
        length = 200
        channels = [here.channel(f"c{number}") for number in range(length)]
        sources = [channel.source() for channel in channels]
        ends: list[Closing] = []

        def step(event: Number) -> None:
            if event.n + 1 < length:
                sources[event.n + 1].publish(Number(event.n + 1))
            if event.n == 60:
                ends.append(here.node.close(timeout=GUARD))

        for channel in channels:
            channel.subscribe(step)
        sources[0].publish(Number(0))
        assert len(ends) == 1


@every
def test_two_handlers_close_at_once(strategy: str) -> None:
    with world(strategy) as here:
        channel, both = here.channel(), threading.Barrier(2 if strategy in ("pool", "priority", "deadline") else 1)
        closed: list[Closing] = []

        def close(event: Number) -> None:
            both.wait(GUARD)
            closed.append(here.node.close(timeout=GUARD))

        logs = [Log(close), Log(close)]
        for log in logs:
            here.subscribe(channel, log)
        channel.source().publish(Number(0))
        for log in logs if not here.on_a_loop else logs[:1]:
            log.wait(1)
        here.node.close(timeout=GUARD)
        assert closed


@every
def test_closing_twice(strategy: str) -> None:
    with world(strategy) as here:
        channel, log = here.channel(), Log()
        sink = here.subscribe(channel, log, name="paused")
        channel.source().publish(Number(0))
        log.wait(1)
        sink.pause()
        channel.source().publish(Number(1))
        first = here.node.close(timeout=GUARD)
        assert first == Closing(False, {"paused": 1})
        assert here.node.close(timeout=GUARD) == first
        assert here.node.close(drain=False) == first
        with pytest.raises(ClosedError):
            here.node.channel("new", Number)
        with pytest.raises(ClosedError):
            channel.subscribe(log)
        with pytest.raises(ClosedError):
            channel.source()


@every
def test_closing_from_many_threads(strategy: str) -> None:
    with world(strategy) as here:
        channel, log, start = here.channel(), Log(), threading.Barrier(5)
        here.subscribe(channel, log)
        source = channel.source()
        ends: list[Closing] = []

        def close() -> None:
            start.wait(GUARD)
            ends.append(here.node.close(timeout=GUARD))

        def publish() -> None:
            start.wait(GUARD)
            with suppress(ClosedError):
                for number in range(10_000_000):
                    source.publish(Number(number))

        Threads(close, close, close, publish, publish).join()
        assert ends == [Closing(True, {})] * 3
        assert len(log.events) == source.seq


def test_a_context_that_fails_aborts() -> None:
    log = Log()
    with no_threads_left(), pytest.raises(LookupError), Node() as node:
        channel = node.channel("c", Number)
        sink = channel.subscribe(log)
        sink.pause()
        channel.source().publish(Number(0))
        raise LookupError("something")
    assert node.closed
    assert log.numbers == []
    assert sink.counts.dropped == 1


# ── in coroutines ──


def test_aclose_drains_without_stopping_the_loop() -> None:
    got: list[int] = []
    ticks: list[int] = []
    log = Log()

    async def main() -> Closing:
        async def slow(event: Number) -> None:
            await asyncio.sleep(0)
            got.append(event.n)

        async def tick() -> None:
            while not over:
                ticks.append(len(got))
                await asyncio.sleep(0)

        over = False
        node = Node()
        channel = node.channel("c", Number)
        channel.subscribe(slow)
        channel.subscribe(log, dispatch=Pool())
        channel.source().publish_many([Number(n) for n in range(200)])
        ticking = asyncio.ensure_future(tick())
        ending = await node.aclose(timeout=GUARD)
        over = True
        await ticking
        return ending

    with no_threads_left():
        assert asyncio.run(main()) == Closing(True, {})
    assert got == log.numbers == list(range(200))
    assert len(set(ticks)) > 3


@pytest.mark.parametrize("drain", [True, False])
def test_a_coroutine_handler_closes_with_aclose(drain: bool) -> None:
    got: list[int] = []
    ends: list[Closing] = []

    async def main() -> None:
        node, done = Node(), asyncio.Event()
        channel = node.channel("c", Number)

        async def close(event: Number) -> None:
            ends.append(await node.aclose(drain=drain, timeout=GUARD))
            done.set()

        async def other(event: Number) -> None:
            await asyncio.sleep(0)
            got.append(event.n)

        channel.subscribe(close, name="closes")
        channel.subscribe(other)
        channel.source().publish_many([Number(n) for n in range(20)])
        await asyncio.wait_for(done.wait(), GUARD)
        assert await node.aclose(timeout=GUARD) == ends[0]

    with no_threads_left():
        asyncio.run(main())
    assert got == (list(range(20)) if drain else got)
    assert ends[0].dropped["closes"] == 19


def test_aclose_gives_up_in_time() -> None:
    async def main() -> Closing:
        async def endless(event: Number) -> None:
            standing.set()
            await asyncio.get_running_loop().create_future()

        standing = asyncio.Event()
        node = Node()
        channel = node.channel("c", Number)
        channel.subscribe(endless, name="endless")
        channel.source().publish_many([Number(0), Number(1)])
        await standing.wait()
        return await node.aclose(timeout=0.01)

    with no_threads_left():
        assert asyncio.run(main()) == Closing(False, {"endless": 1})


def test_close_in_the_loops_thread_does_not_wait_for_the_loop() -> None:
    async def main() -> Closing:
        async def handler(event: Number) -> None:
            raise AssertionError("it was given up")

        node = Node()
        channel = node.channel("c", Number)
        channel.subscribe(handler, name="late")
        channel.source().publish(Number(0))
        ending = node.close(timeout=GUARD)
        await asyncio.sleep(0)
        return ending

    with no_threads_left():
        assert asyncio.run(main()) == Closing(False, {"late": 1})


def test_the_loop_is_gone_before_the_node() -> None:
    with no_threads_left():
        node = Node()
        channel = node.channel("c", Number)
        log = Log()
        with loop_in_a_thread() as loop:
            channel.subscribe(log, dispatch=AsyncLoop(loop=loop), name="orphan")
            source = channel.source()
            source.publish(Number(0))
            log.wait(1)
        source.publish(Number(1))
        ending = node.close(timeout=GUARD)
        assert ending == Closing(False, {"orphan": 1})


# ── sinks that pull ──


def test_what_waits_for_a_sink_that_pulls_can_be_taken_after_the_end() -> None:
    with no_threads_left():
        node = Node()
        channel = node.channel("c", Number)
        sinks = [channel.subscribe() for _ in range(5)]
        channel.source().publish_many([Number(0), Number(1), Number(2)])
        assert node.close(timeout=GUARD) == Closing(True, {})
        assert [event.n for event in sinks[0]] == [0, 1, 2]
        assert [sinks[1].get(GUARD).n for _ in range(3)] == [0, 1, 2]
        assert [sinks[2].poll().n for _ in range(3)] == [0, 1, 2]
        assert sinks[3].get_batch().column("n").to_pylist() == [0, 1, 2]

        async def take() -> list[int]:
            return [event.n async for event in sinks[4]]

        assert asyncio.run(take()) == [0, 1, 2]
        for sink in sinks:
            with pytest.raises(ClosedError, match="has ended"):
                sink.get(GUARD)
            with pytest.raises(ClosedError, match="has ended"):
                sink.poll()
            with pytest.raises(ClosedError, match="has ended"):
                sink.get_batch()
            assert conserved(sink)


@pytest.mark.parametrize("how", ["cancel", "close channel", "close node"])
def test_those_who_wait_for_an_event_hear_of_the_end(how: str) -> None:
    with no_threads_left():
        node = Node()
        channel = node.channel("c", Number)
        sink, waiting = channel.subscribe(), [Flag(), Flag()]

        def wait() -> None:
            waiting[0].set()
            with pytest.raises(ClosedError):
                sink.get()

        async def receive() -> None:
            waiting[1].set()
            with pytest.raises(ClosedError):
                await sink.receive()

        threads = Threads(wait, lambda: asyncio.run(receive()))
        for flag in waiting:
            flag.wait()
        match how:
            case "cancel":
                sink.cancel()
            case "close channel":
                channel.close()
            case _:
                node.close()
        threads.join()
        node.close()


# ── interrupted ──


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("alone", [True, False])
def test_an_interrupt_in_an_inline_handler_leaves_the_node_usable(interrupt: type[BaseException], alone: bool) -> None:
    """It comes out of `publish`; sinks of other strategies still get the event, and what waits is not lost."""

    def raise_it(event: Number) -> None:
        if event.n in (3, 5):
            raise interrupt

    with world("inline") as here:
        channel, log = here.channel(), Log(raise_it)
        sink = channel.subscribe(log)
        others = [] if alone else [Log() for _ in range(len(STRATEGIES))]
        for other in others[:1]:
            channel.subscribe(other)
        for other, name in zip(others[1:], THREADED, strict=False):
            channel.subscribe(other, dispatch=STRATEGIES[name])
        source = channel.source()
        for number in range(10):
            if number in (3, 5):
                with pytest.raises(interrupt):
                    source.publish(Number(number))
            else:
                source.publish(Number(number))
        assert log.numbers == list(range(10))
        assert here.node.close(timeout=GUARD) == Closing(True, {})
        for other in others[: 1 + len(THREADED)]:
            assert other.numbers == list(range(10))
        assert conserved(sink)


@pytest.mark.parametrize("drain", [True, False])
def test_an_interrupt_in_the_middle_of_a_batch(drain: bool) -> None:
    def raise_it(event: Number) -> None:
        if event.n == 3:
            raise KeyboardInterrupt

    with world("inline") as here:
        channel, log, other = here.channel(), Log(raise_it), Log()
        sink = channel.subscribe(log, name="first")
        channel.subscribe(other, name="second")
        with pytest.raises(KeyboardInterrupt):
            channel.source().publish_many(batch(*range(8)))
        assert log.numbers == [0, 1, 2, 3]
        ending = here.node.close(drain=drain, timeout=GUARD)
        if drain:
            assert ending == Closing(True, {})
            assert log.numbers == other.numbers == list(range(8))
        else:
            assert ending == Closing(False, {"first": 4, "second": 8})
        assert conserved(sink)


def test_an_interrupt_does_not_leave_those_who_wait_for_the_sink_waiting() -> None:
    """A full queue, whose only runner was interrupted: the next publisher goes on with it."""

    def raise_it(event: Number) -> None:
        if event.n == 0:
            raise KeyboardInterrupt

    with world("inline") as here:
        channel, log = here.channel(), Log(raise_it)
        channel.subscribe(log, queue=Queue(limit=2, policy="block", wait=GUARD))
        source = channel.source()
        with pytest.raises(KeyboardInterrupt):
            source.publish_many(batch(*range(5)))
        source.publish(Number(5))
        assert log.numbers == list(range(6))


# ── with timers, and cancelled sinks ──


@every
def test_cancelling_with_drain_is_part_of_the_end(strategy: str) -> None:
    with world(strategy) as here:
        channel, standing, go = here.channel(), Flag(), Flag()

        def stand(event: Number) -> None:
            standing.set()
            go.wait()

        log = Log(stand)
        sink = here.subscribe(channel, log, name="parting")
        source = channel.source()
        publishing = Threads(lambda: source.publish(Number(0)))
        standing.wait()
        for number in range(1, 5):
            source.publish(Number(number))
        sink.cancel(drain=True)
        assert here.node.close(timeout=0.01) == Closing(False, {"parting": 4})
        go.set()
        publishing.join()
        here.node.close(timeout=GUARD)
        assert log.numbers == [0]
        assert conserved(sink)


@every
@pytest.mark.parametrize("drain", [True, False])
def test_cancelling_a_paused_sink(strategy: str, drain: bool) -> None:
    with world(strategy) as here:
        channel, log = here.channel(), Log()
        sink = here.subscribe(channel, log)
        sink.pause()
        channel.source().publish_many(batch(1, 2, 3))
        sink.cancel(drain=drain)
        assert here.node.close(timeout=GUARD) == Closing(True, {})
        assert log.numbers == []
        assert sink.counts.dropped == 3
        assert conserved(sink)


@every
def test_the_end_comes_while_timers_fire(strategy: str) -> None:
    with world(strategy) as here:
        log = Log()
        ticks = here.node.channel("ticks", Timeout)
        here.subscribe(ticks, log)
        here.node.every(ticks, 0.001)
        log.wait(5)
        here.node.close(timeout=GUARD)
        seen = len(log.events)
        assert [event.number for event in log.events] == list(range(1, seen + 1))


def test_a_timers_handler_closes_the_node() -> None:
    with world("inline") as here:
        ticks, closed = here.node.channel("ticks", Timeout), Flag()

        def close(event: Timeout) -> None:
            here.node.close(timeout=GUARD)
            closed.set()

        ticks.subscribe(close)
        here.node.after(ticks, 0.0)
        closed.wait()
        here.node.close(timeout=GUARD)


def test_a_publisher_that_waits_for_room_does_not_hold_up_an_abort() -> None:
    """In a handler of a pool, for a sink that no thread of the pool is left for."""
    with no_threads_left():
        node, waiting, go = Node(), Flag(), Flag()
        first, second = node.channel("first", Number), node.channel("second", Number)

        def stand(event: Number) -> None:
            waiting.set()
            go.wait()

        second.subscribe(stand, dispatch=Pool(maximum=1), queue=Queue(limit=1, wait=GUARD))
        target = second.source()
        target.publish(Number(0))
        waiting.wait()
        target.publish(Number(1))
        failed, entered = Flag(), Flag()

        def publish(event: Number) -> None:
            entered.set()
            try:
                target.publish(event)
            except ClosedError:
                failed.set()

        first.subscribe(publish, dispatch=Pool(maximum=2))
        first.source().publish(Number(2))
        entered.wait()
        closing = Threads(lambda: node.close(drain=False, timeout=GUARD))
        failed.wait()
        go.set()
        closing.join()


@every
def test_nothing_is_left_of_a_node_that_was_never_used(strategy: str) -> None:
    with world(strategy) as here:
        here.subscribe(here.channel(), Log())
        assert here.node.close(timeout=0) == Closing(True, {})


def test_inline_is_what_a_node_does_unless_told_otherwise() -> None:
    with Node() as node:
        assert node.config.dispatch == Inline()


def test_a_lock_that_was_lost_to_an_interrupt_is_found_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gate, "RECHECK_SECONDS", 0.01)
    with Node() as node:
        numbers = node.channel("numbers", "n: i64")
        sink, source = numbers.subscribe(), numbers.source()
        source.lock.__enter__()  # and Ctrl-C comes in the moment in which it is left
        assert source.publish(n=1) == 1 and source.publish(n=2) == 2
        assert [event.n for event in iter(sink.poll, None)] == [1, 2]
        assert len(source.lock.token) == 1
    assert "a lock was lost" in caplog.text
