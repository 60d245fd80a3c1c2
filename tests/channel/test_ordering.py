"""Timestamp order: events of several sources in order of publication, released when nothing older can come."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Channel, Node, Queue
from headwater.channel.queues.forms import Intake
from headwater.channel.source import Source
from headwater.channel.subscription import Subscription
from headwater.correlation import all_of, on
from headwater.dispatch import Inline
from headwater.errors import ClosedError, QueueFull, SubscriptionError
from headwater.testing import ManualClock
from headwater.timers import SystemClock
from tests.channel.concurrency import GUARD, STRATEGIES, Flag, Log, Number, Threads, conserved, world
from tests.effort import examples

SOON = 1.0  # seconds, more than any event of local sources waits


def numbers(events: list[Any]) -> list[int]:
    return [event.n for event in events]


def drained(subscription: Subscription) -> list[int]:
    found = []
    while (event := subscription.poll()) is not None:
        found.append(event.n)
    return found


class RemoteSource(Source):
    """A source of another node as this one sees it: its events come with the time at which they were published."""

    local = False

    def say(self, n: int, at: int) -> None:
        self._stamp = lambda: at
        self._send(*self._encode(Number(n=n), None))

    def many(self, numbers: list[int], at: int) -> None:
        self._stamp = lambda: at
        assert self.channel.type is not None
        self.publish_many(self.channel.type.to_arrow([Number(n=n) for n in numbers]))

    def promises(self, until: int) -> None:
        self.promise = until
        self.channel.node._release()


def remote_source(channel: Channel, name: str, **options: Any) -> RemoteSource:
    assert channel.type is not None
    made = RemoteSource(channel, name, Intake(channel.type, channel.type), facts=None, priority=0, ask=None, **options)
    channel.node._wiring.advertise(made)
    return made


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# ── local sources ──


class Seen:
    """A handler that remembers when and whence each event came."""

    def __init__(self) -> None:
        self.places: list[tuple[datetime, str, int]] = []
        self.numbers: list[int] = []

    def __call__(self, event: Any, about: Any) -> None:
        self.places.append((about.time, f"{about.channel}/{about.source}", about.seq))
        self.numbers.append(event.n)


STEPS = st.lists(
    st.one_of(
        st.integers(0, 3).map(lambda source: ("publish", source)),
        st.integers(0, 3).map(lambda source: ("batch", source)),
        st.integers(0, 2).map(lambda micros: ("pass", micros)),
        st.sampled_from([("tick", 0), ("close", 0), ("close", 3), ("make", 0), ("pause", 0)]),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(60))
@given(steps=STEPS, end=st.sampled_from(["cancel", "close", "time"]), pull=st.booleans())
def test_whatever_happens_events_come_in_order_and_all_of_them(
    steps: list[tuple[str, int]], end: str, pull: bool
) -> None:
    clock = ManualClock()
    seen = Seen()
    with Node(clock=clock) as node:
        channel = node.channel("a", Number)
        sources = {number: channel.source(f"s{number}") for number in (2, 0, 3, 1)}
        subscription = channel.subscribe(None if pull else seen, order="timestamp", about=True)
        expected = []

        def pulled() -> None:
            while pull and (found := subscription.poll()) is not None:
                seen(*found)

        def published(source: Source, count: int) -> None:
            for seq in range(source.seq - count + 1, source.seq + 1):
                expected.append((clock.time(), source.id, seq))

        for count, (what, which) in enumerate(steps, 1):
            match what:
                case "publish" if which in sources:
                    sources[which].publish(n=count)
                    published(sources[which], 1)
                case "batch" if which in sources:
                    assert channel.type is not None
                    sources[which].publish_many(channel.type.to_arrow([Number(n=count)] * 3))
                    published(sources[which], 3)
                case "pass":
                    clock.advance(which * 1e-6)
                case "tick":
                    clock.advance(SOON)
                case "close" if which in sources:
                    sources.pop(which).close()
                case "make" if len(sources) < 6:
                    sources[count] = channel.source(f"z{count:02}")  # comes last among those of its moment
                case "pause":
                    subscription.pause()
                    subscription.resume()
            pulled()
            assert seen.places == sorted(seen.places)
        if end == "time":
            clock.advance(SOON)
        elif end == "cancel":
            subscription.cancel(drain=True)
        else:
            node.close()
        with suppress(ClosedError):
            pulled()
        start = datetime(1970, 1, 1, tzinfo=UTC)
        found = [(round((time - start).total_seconds() * 1e6), id, seq) for time, id, seq in seen.places]
        assert found == sorted(expected)
        counts = subscription.counts
        assert counts.delivered == counts.passed == len(expected) and counts.late == counts.queued == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sources_in_several_threads(strategy: str) -> None:
    """Times to the microsecond, so that many are the same."""
    each, threads = 500, 4
    with world(strategy, clock=SystemClock()) as it, switching_often():
        channels = [it.channel("a.one"), it.channel("a.two")]
        places: list[tuple[datetime, str, int]] = []
        log = Log()

        def handle(event: Any, about: Any) -> None:
            places.append((about.time, f"{about.channel}/{about.source}", about.seq))
            log(event)

        async def ahandle(event: Any, about: Any) -> None:
            handle(event, about)

        subscription = it.node.subscribe(
            "a.*", ahandle if strategy == "coroutines" else handle, dispatch=it.dispatch, order="timestamp"
        )

        def publish(number: int) -> Callable[[], None]:
            source = channels[number % 2].source(f"s{number}")

            def run() -> None:
                for n in range(each):
                    source.publish(n=n, maker=number)

            return run

        Threads(*(publish(number) for number in range(threads))).join()
        log.wait(each * threads)
        assert places == sorted(places) and len(places) == each * threads
        for number in range(threads):
            assert log.of(number) == list(range(each))
        assert subscription.counts.late == 0 and conserved(subscription)


def test_an_event_in_the_making_holds_back_later_ones() -> None:
    """A publisher has read the time and not yet handed its event over; another is quicker, with a later time."""
    read, go = Flag(), Flag()

    class Slow(SystemClock):
        def time(self) -> int:
            now = super().time()
            if threading.current_thread().name == "slow":
                read.set()
                go.wait()
            return now

    with Node(clock=Slow()) as node:
        channel = node.channel("a", Number)
        slow, quick = channel.source("slow"), channel.source("quick")
        log = Log()
        channel.subscribe(log, order="timestamp")
        first = threading.Thread(target=lambda: slow.publish(n=1), name="slow")
        first.start()
        read.wait()
        second = threading.Thread(target=lambda: quick.publish(n=2))
        second.start()
        while not slow.lock.waiters:
            assert log.events == []
        go.set()
        first.join(GUARD)
        second.join(GUARD)
        log.wait(2)
        assert log.numbers == [1, 2]


def test_events_of_one_moment_wait_for_its_end_and_those_of_the_first_source_do_not() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Number)
        first, second = channel.source("first"), channel.source("second")
        got: list[Any] = []
        subscription = channel.subscribe(got.append, order="timestamp")
        second.publish(n=2)
        assert got == [] and subscription.counts.queued == 1
        first.publish(n=1)
        assert numbers(got) == [1]
        clock.advance(SOON)
        assert numbers(got) == [1, 2]


def test_the_time_of_the_machine_needs_no_waiting() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        sources = [channel.source(name) for name in "cab"]
        log = Log()
        channel.subscribe(log, "n >= 0", order="timestamp")
        for n in range(100):
            sources[n % 3].publish(n=n)
        log.wait(100)
        assert log.numbers == list(range(100))


class Settable(SystemClock):
    """A wall clock that someone sets."""

    wall = 1_000_000

    def time(self) -> int:
        return self.wall


def test_a_clock_that_is_set_back_neither_reorders_nor_delays() -> None:
    clock = Settable()
    with Node(clock=clock) as node:
        channel = node.channel("a", Number)
        sources = [channel.source(name) for name in "ab"]
        log = Log()
        subscription = channel.subscribe(log, order="timestamp")
        sources[0].publish(n=0)
        clock.wall = 10  # an hour ago
        for n in range(1, 6):
            sources[n % 2].publish(n=n)
        log.wait(6)
        assert log.numbers == [0, 1, 2, 3, 4, 5] and subscription.counts.late == 0


def test_a_clock_that_is_set_back_while_events_wait_reorders_no_source() -> None:
    clock = Settable()
    with Node(clock=clock) as node:
        channel = node.channel("a", Number)
        source, silent = channel.source(), remote_source(channel, "silent")
        log = Log()
        subscription = channel.subscribe(log, order="timestamp")
        for n in range(4):
            clock.wall -= 100
            source.publish(n=n)
        assert log.events == []
        silent.promises(2**62)
        log.wait(4)
        assert log.numbers == [0, 1, 2, 3] and subscription.counts.late == 0


# ── handing over ──


def test_batches_and_single_events_together() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        one, two = remote_source(channel, "one"), remote_source(channel, "two")
        rows: list[list[int]] = []
        channel.subscribe(lambda batch: rows.append(batch["n"].to_pylist()), batch=4, order="timestamp")
        single = channel.subscribe(None, "n % 2 == 1", order="timestamp")
        whole = channel.subscribe(order="timestamp")
        one.many([5, 6, 7, 8, 9], at=20)
        two.say(1, at=10)
        two.many([2, 3], at=15)
        one.promises(20)
        assert rows == [] and single.poll() is None and whole.get_batch() is None
        two.promises(21)
        assert [n for row in rows for n in row] == [1, 2, 3, 5, 6, 7, 8, 9] and max(map(len, rows)) <= 4
        assert drained(single) == [1, 3, 5, 7, 9]
        assert whole.get_batch()["n"].to_pylist() == [1, 2, 3, 5, 6, 7, 8, 9]


def test_who_pulls_and_waits_is_told() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        source, other = channel.source(), remote_source(channel, "other")
        subscription = channel.subscribe(order="timestamp")
        got: list[int] = []
        puller = threading.Thread(target=lambda: got.append(subscription.get(GUARD).n))
        puller.start()
        source.publish(n=1)
        other.promises(2**62)
        puller.join(GUARD)
        assert got == [1]

        async def receive() -> list[int]:
            waiting = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            source.publish(n=2)
            first = await asyncio.wait_for(waiting, GUARD)
            source.publish(n=3)
            async for event in subscription:
                return [first.n, event.n]
            return []

        assert asyncio.run(receive()) == [2, 3]


def test_priorities_say_whose_turn_it_is_and_do_not_reorder() -> None:
    for strategy in ("priority", "deadline"):
        with world(strategy) as it:
            channel = it.channel()
            log = Log()
            it.subscribe(channel, log, priority="n", lifetime="1000.0 - n", order="timestamp")
            source = channel.source()
            for n in range(50):
                source.publish(n=n)
            log.wait(50)
            assert log.numbers == list(range(50))


def test_a_pause_keeps_what_waits() -> None:
    for strategy in ("inline", "pool"):
        with world(strategy) as it:
            channel = it.channel()
            one, two = remote_source(channel, "one"), remote_source(channel, "two")
            log = Log()
            subscription = it.subscribe(channel, log, order="timestamp")
            subscription.pause()
            one.say(2, at=2)
            two.say(1, at=1)
            one.promises(5)
            two.promises(5)
            assert log.events == [] and subscription.counts.queued == 2
            subscription.resume()
            log.wait(2)
            one.say(3, at=9)
            subscription.pause()
            subscription.resume()
            one.promises(10)
            two.promises(10)
            log.wait(3)
            assert log.numbers == [1, 2, 3]


# ── promises ──


def test_released_up_to_the_least_promise_of_all() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        one, two = remote_source(channel, "one"), remote_source(channel, "two")
        channel.source("local")  # it promises the present, which is much later
        got: list[Any] = []
        subscription = channel.subscribe(got.append, order="timestamp")
        one.say(4, at=40)
        one.say(6, at=60)
        one.promises(60)
        assert got == []  # nothing is known of the other
        two.say(3, at=30)
        two.promises(30)
        assert numbers(got) == [3]
        two.promises(40)  # its next may be of the same time, but comes after those of `one`
        assert numbers(got) == [3, 4]
        two.say(5, at=50)
        two.promises(100)
        assert numbers(got) == [3, 4, 5, 6]
        two.say(7, at=70)
        assert subscription.counts.queued == 1
        one.promises(70)
        assert numbers(got) == [3, 4, 5, 6]  # `one` goes before `two`
        one.promises(71)
        assert numbers(got) == [3, 4, 5, 6, 7] and subscription.counts.late == 0


def test_late_events_are_delivered_at_once_and_counted() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        one, two = remote_source(channel, "one"), remote_source(channel, "two")
        got: list[Any] = []
        subscription = channel.subscribe(got.append, "n > 0", name="sink", order="timestamp")
        one.say(1, at=100)
        one.promises(1000)
        two.promises(1000)
        two.say(2, at=50)  # against its promise
        assert numbers(got) == [1, 2]
        two.many([0, 3, 4], at=60)
        assert numbers(got) == [1, 2, 3, 4]
        assert subscription.counts.late == 3 and conserved(subscription)
        assert "3 late" in str(subscription.report()) and subscription.report().order == "timestamp"
        assert subscription.report().to_dict()["counts"]["late"] == 3
        assert " late " in str(node.report())
        assert node.report().to_dict()["subscriptions"][0]["counts"]["delivered"] == 4


def test_a_source_that_is_gone_holds_nothing_back() -> None:
    with Node() as node:
        channel, other = node.channel("a", Number), node.channel("b", Number)
        got: list[Any] = []
        node.subscribe("*", got.append, order="timestamp")
        source = channel.source()
        silent = [remote_source(channel, "one"), remote_source(other, "two")]
        source.publish(n=1)
        assert got == []
        silent[0].close()
        assert got == []
        other.close()
        assert numbers(got) == [1]


def test_sources_in_other_zones_hold_nothing_back() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        got: list[Any] = []
        channel.subscribe(got.append, order="timestamp", zones="east")
        silent = remote_source(channel, "silent", zones=frozenset({"west"}))
        source = channel.source(zones="east")
        source.publish(n=1)
        clocked = remote_source(channel, "clocked", zones=frozenset({"east"}))
        clocked.promises(2**62)
        assert numbers(got) == [1]
        silent.move("east")
        source.publish(n=2)
        assert numbers(got) == [1]
        silent.move("west")
        assert numbers(got) == [1, 2]


def test_sources_and_channels_that_come_while_events_wait() -> None:
    with Node() as node:
        channel = node.channel("a.one", Number)
        loud = channel.derive("a.loud", "n > 1")
        one = remote_source(channel, "one")
        got: list[Any] = []
        subscription = node.subscribe("a.*", got.append, order="timestamp")
        one.say(1, at=10)
        one.say(2, at=20)
        two = remote_source(node.channel("a.two", Number), "two")
        one.promises(30)
        assert got == []
        two.say(3, at=15)
        two.promises(30)
        assert numbers(got) == [1, 3, 2, 2]  # the last passes both channels
        one.say(4, at=40)
        subscription.change(where="n > 5")  # what waits was judged before
        one.say(5, at=41)
        one.say(6, at=42)
        two.promises(50)
        one.promises(50)
        assert numbers(got) == [1, 3, 2, 2, 4, 4, 6, 6]
        assert loud.report().counts.delivered == 3 and subscription.counts.late == 0


# ── bounds and the end ──


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("pull", [True, False])
def test_what_waits_counts_against_the_queue_limit(policy: Any, pull: bool) -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        one, two = remote_source(channel, "one"), remote_source(channel, "two")
        got: list[Any] = []
        queue = Queue(limit=5, policy=policy)
        subscription = channel.subscribe(None if pull else got.append, queue=queue, order="timestamp")
        for n in range(3):
            one.say(n, at=n)
        one.many([3, 4, 5, 6], at=9)
        one.say(7, at=10)
        assert subscription.counts.queued == 5 and subscription.counts.dropped == 3
        assert channel.report().counts.queued == 5 and channel.report().counts.dropped == 3
        one.promises(2**62)
        two.promises(2**62)
        found = drained(subscription) if pull else numbers(got)
        assert found == ([3, 4, 5, 6, 7] if policy == "drop_oldest" else [0, 1, 2, 3, 4])
        assert conserved(subscription)


def test_publishers_wait_or_are_told_while_too_much_waits() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        source, silent = channel.source(), remote_source(channel, "silent")
        log = Log()
        fails = channel.subscribe(log, queue=Queue(limit=2, policy="fail"), order="timestamp")
        source.publish(n=1)
        source.publish(n=2)
        with pytest.raises(QueueFull):
            source.publish(n=3)
        fails.cancel(drain=True)
        assert log.numbers == [1, 2]
        log = Log()
        waits = channel.subscribe(log, queue=Queue(limit=2, policy="block"), order="timestamp")
        publisher = threading.Thread(target=lambda: [source.publish(n=n) for n in (3, 4, 5)])
        publisher.start()
        while not waits._mailbox.is_full:
            assert publisher.is_alive()
        silent.promises(2**62)
        publisher.join(GUARD)
        log.wait(3)
        assert log.numbers == [3, 4, 5] and conserved(waits)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("end", ["cancel", "channel", "node"])
def test_the_end_releases_everything_in_order(strategy: str, end: str) -> None:
    with world(strategy) as it:
        channel = it.channel()
        one, two = remote_source(channel, "one"), remote_source(channel, "two")
        log = Log()
        subscription = it.subscribe(channel, log, order="timestamp")
        one.many([1, 4], at=1)
        one.say(5, at=7)
        two.say(2, at=2)
        two.say(6, at=9)
        assert log.events == []
        if end == "cancel":
            subscription.cancel(drain=True)
        elif end == "channel":
            channel.close()
        else:
            assert it.node.close(timeout=GUARD).drained
        log.wait(5)
        assert log.numbers == [1, 4, 2, 5, 6]
        assert conserved(subscription)


@pytest.mark.parametrize("end", ["cancel", "node"])
def test_without_draining_what_waits_is_dropped_and_counted(end: str) -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        one = remote_source(channel, "one")
        got: list[Any] = []
        subscription = channel.subscribe(got.append, name="sink", order="timestamp")
        pulled = channel.subscribe(order="timestamp")
        one.say(2, at=2)
        one.many([3, 4], at=3)
        if end == "cancel":
            subscription.cancel()
            pulled.cancel()
        else:
            assert node.close(drain=False).dropped == {"sink": 3}
        assert got == [] and subscription.counts.dropped == 3
        assert [event.n for event in pulled] == [2, 3, 4]


def test_handlers_may_publish_while_the_node_drains() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        source, silent = channel.source(), remote_source(channel, "silent")
        got: list[int] = []

        def handle(event: Any) -> None:
            got.append(event.n)
            if event.n < 5:
                source.publish(n=event.n + 1)

        channel.subscribe(handle, order="timestamp", dispatch=Inline())
        source.publish(n=1)
        assert got == [] and silent.promise is None
        assert node.close(timeout=GUARD).drained
        assert got == [1, 2, 3, 4, 5]


def test_a_handler_that_publishes_gets_its_own_event_next() -> None:
    with Node() as node:
        channel = node.channel("a", Number)
        source, other = channel.source(), channel.source()
        log = Log(lambda event: other.publish(n=event.n + 1) if event.n < 20 else None)
        channel.subscribe(log, order="timestamp")
        source.publish(n=1)
        log.wait(20)
        assert log.numbers == list(range(1, 21))


def test_filter_trees_have_no_order_in_time() -> None:
    with Node() as node:
        node.channel("a", Number)
        with pytest.raises(SubscriptionError, match="order"):
            node.correlate(all_of(on("a"), on("a", "n > 1")), print, order="timestamp")
        node.correlate(all_of(on("a"), on("a", "n > 1")), print, order="receive")
