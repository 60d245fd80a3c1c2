"""Much at once: several publishers, sinks of all strategies, changes all the time, for a bounded number of events."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import About, Channel, Node, Queue, Source, Subscription, event_type
from headwater.channel.options.config import Dispatch
from headwater.dispatch import AsyncLoop
from tests.channel.concurrency import (
    GUARD,
    POLICIES,
    STRATEGIES,
    Log,
    Number,
    Threads,
    conserved,
    loop_in_a_thread,
    no_threads_left,
)
from tests.effort import EFFORT, examples

TYPE = event_type(Number)
EVENTS = examples(400)  # of each source
SOURCES = 3
WISHES: dict[str | None, Callable[[int], bool]] = {
    None: lambda n: True,
    "n % 2 == 0": lambda n: n % 2 == 0,
    "n % 3 == 1": lambda n: n % 3 == 1,
    "n >= 0": lambda n: True,
    "n < 0": lambda n: False,
    "n % 100 > 50": lambda n: n % 100 > 50,
}


class Sink:
    """A subscription that remembers what it was given, and from where each of its interests held."""

    def __init__(self, channel: Channel, where: str | None, dispatch: Dispatch, coroutine: bool, queue: Queue) -> None:
        self.got: list[tuple[str, int, int, int]] = []  # source, seq, epoch, number
        self.wishes: list[str | None] = [where]

        def handler(event: Number, about: About) -> None:
            self.got.append((f"{about.channel}/{about.source}", about.seq, about.epoch, event.n))

        async def acting(event: Number, about: About) -> None:
            handler(event, about)

        self.subscription: Subscription = channel.subscribe(
            acting if coroutine else handler, where, dispatch=dispatch, queue=queue
        )
        self.points: list[dict[str, int]] = [self.subscription.points]

    def change(self, where: str | None) -> None:
        self.wishes.append(where)
        self.points.append(self.subscription.change(where=where))

    def check(self, sources: dict[str, int], *, complete: bool) -> None:
        """That it got exactly what it asked for, each event judged by the interest that held at that point."""
        for source, last in sources.items():
            expected = []
            for index, where in enumerate(self.wishes):
                start = self.points[index].get(source, 0)
                end = self.points[index + 1].get(source, 0) if index + 1 < len(self.points) else last
                expected += [
                    (source, seq, index + 1, seq - 1) for seq in range(start + 1, end + 1) if WISHES[where](seq - 1)
                ]
            got = [each for each in self.got if each[0] == source]
            if complete:
                assert got == expected
            else:  # it was cancelled at some point after the last change
                assert got == expected[: len(got)]
        assert conserved(self.subscription)
        assert self.subscription.counts.failed == 0


@contextmanager
def switching(interval: float | None) -> Iterator[None]:
    """Threads take turns this often."""
    before = sys.getswitchinterval()
    if interval is not None:
        sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def publish(source: Source, events: int, seed: int) -> None:
    """Numbers from 0, one by one, in lists and in batches."""
    chance, number = random.Random(seed), 0
    while number < events:
        size = min(events - number, chance.choice([1, 1, 1, 1, 1, 1, 7, 30]))
        if size == 1:
            source.publish(Number(number, seed))
        else:
            some = [Number(n, seed) for n in range(number, number + size)]
            source.publish_many(TYPE.to_arrow(some) if chance.random() < 0.5 else some)
        number += size


@pytest.mark.parametrize("interval", [None, 1e-6], ids=["as usual", "switching all the time"])
@pytest.mark.parametrize("seed", range(2))
def test_everything_at_once(interval: float | None, seed: int) -> None:
    chance = random.Random(seed)
    with switching(interval), no_threads_left(), loop_in_a_thread() as loop, Node() as node:
        channel = node.channel("c", Number)
        derived = channel.derive("d", "n % 2 == 0")
        sources = [channel.source(f"s{number}") for number in range(SOURCES)]
        strategies = [
            (AsyncLoop(loop=loop) if isinstance(value, AsyncLoop) else value, name == "coroutines")
            for name, value in STRATEGIES.items()
        ]
        roomy = Queue(limit=64, policy="block", wait=GUARD)

        def made(where: str | None) -> Sink:
            dispatch, coroutine = chance.choice(strategies)
            return Sink(channel, where, dispatch, coroutine, roomy)

        steady = [Sink(channel, where, *each, roomy) for each in strategies for where in (None, "n % 3 == 1")]
        plain = Log()
        derived.subscribe(plain, queue=roomy)
        changing = [Sink(channel, None, *each, roomy) for each in strategies]
        passing: list[Sink] = []
        over = threading.Event()

        def change() -> None:
            rounds = 0
            while not over.is_set() and rounds < EVENTS:
                rounds += 1
                chance.choice(changing).change(chance.choice(list(WISHES)))
                if rounds % 5 == 0:
                    passing.append(made(chance.choice(list(WISHES))))
                if rounds % 5 == 4 and len(passing) > 10:
                    passing[-10].subscription.cancel(drain=chance.random() < 0.5)
                if rounds % 11 == 0:
                    node.report()

        changer = Threads(change)
        try:
            Threads(*(lambda it=it, n=n: publish(it, EVENTS, n) for n, it in enumerate(sources))).join()
        finally:
            over.set()
            changer.join()
        assert node.close(timeout=GUARD).drained
        ends = {source.id: source.seq for source in sources}
        assert set(ends.values()) == {EVENTS}
        for sink in steady + changing:
            sink.check(ends, complete=True)
        for sink in passing:
            sink.check(ends, complete=sink.subscription.state == "open")
        for number in range(SOURCES):
            assert plain.of(number) == list(range(0, EVENTS, 2))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_threads_at_one_source(strategy: str) -> None:
    """The order of its events is the order of the calls, as their numbers tell."""
    with no_threads_left(), loop_in_a_thread() as loop, Node() as node:
        value = STRATEGIES[strategy]
        dispatch = AsyncLoop(loop=loop) if isinstance(value, AsyncLoop) else value
        channel, seqs = node.channel("c", Number), [dict[int, int]() for _ in range(4)]
        source = channel.source()
        sink = Sink(channel, None, dispatch, strategy == "coroutines", Queue(limit=32, wait=GUARD))
        lone = node.channel("lone", Number)
        only, alone = Log(), lone.source()
        lone.subscribe(only)

        def work(maker: int) -> None:
            for number in range(EVENTS // 2):
                seqs[maker][source.publish(Number(number, maker))] = number
                alone.publish(Number(number, maker))

        Threads(*(lambda maker=maker: work(maker) for maker in range(4))).join()
        assert node.close(timeout=GUARD).drained
        total = 4 * (EVENTS // 2)
        assert [seq for _, seq, _, _ in sink.got] == list(range(1, total + 1))
        told = {seq: number for each in seqs for seq, number in each.items()}
        assert [number for _, _, _, number in sink.got] == [told[seq] for seq in range(1, total + 1)]
        for maker in range(4):
            assert only.of(maker) == list(range(EVENTS // 2))


def test_pausing_and_resuming_all_the_time_loses_nothing() -> None:
    with no_threads_left(), loop_in_a_thread() as loop, Node() as node:
        channel, over = node.channel("c", Number), threading.Event()
        source = channel.source("s")
        sinks = []
        for name, value in STRATEGIES.items():
            dispatch = AsyncLoop(loop=loop) if isinstance(value, AsyncLoop) else value
            sinks.append(Sink(channel, None, dispatch, name == "coroutines", Queue(limit=100_000)))

        def pester(sink: Sink) -> None:
            while not over.is_set():
                sink.subscription.pause()
                sink.subscription.resume()

        pestering = Threads(*(lambda sink=sink: pester(sink) for sink in sinks[::2]))
        publish(source, EVENTS, 0)
        over.set()
        pestering.join()
        assert node.close(timeout=GUARD).drained
        for sink in sinks:
            sink.check({source.id: EVENTS}, complete=True)


def test_sources_and_channels_come_and_go() -> None:
    """While a sink listens to a whole subtree, present and future."""
    with no_threads_left(), Node() as node:
        log, made = Log(), [0] * 3
        everything = node.subscribe("a.**", log, queue=Queue(limit=100_000))
        other = node.subscribe("a.*.x", lambda event: None, "n % 2 == 0", dispatch="pool")

        def work(maker: int) -> None:
            for _ in range(EVENTS // 10):
                channel = node.channel(f"a.b{maker}.x", Number)
                derived = channel.derive(f"a.b{maker}.y", "n % 2 == 0")
                with channel.source() as source, derived.source() as own:
                    for _ in range(3):
                        source.publish(Number(made[maker], maker))
                        made[maker] += 1
                        own.publish(Number(-1, maker))
                    assert all(point >= 0 for point in everything.points.values())
                channel.close()

        Threads(*(lambda maker=maker: work(maker) for maker in range(3))).join()
        assert node.close(timeout=GUARD).drained
        for maker in range(3):
            own = [number for number in log.of(maker) if number >= 0]
            even = list(range(0, made[maker], 2))
            assert sorted(own) == sorted([*range(made[maker]), *even])  # each as it is, and the even ones derived
            assert log.of(maker).count(-1) == made[maker]
        assert conserved(everything)
        assert conserved(other)
        assert not node.channels()


# ── memory ──


def _endless(node: Node, loop: asyncio.AbstractEventLoop) -> tuple[Callable[[int], None], list[Subscription]]:
    """Everything that might grow: sinks that are slow, paused, pulled from never, or fail."""
    channel = node.channel("c", Number)
    derived = channel.derive("d", "n % 2 == 0")
    stopped = threading.Event()

    def stand(event: Number) -> None:
        stopped.wait(0)

    def fail(event: Number) -> None:
        raise ValueError("always")

    sinks = []
    for policy in POLICIES:
        paused = channel.subscribe(stand, queue=Queue(limit=16, policy=policy))
        paused.pause()
        sinks.append(paused)
    for policy in ("drop_oldest", "drop_newest"):
        queue: Any = Queue(limit=16, policy=policy)
        sinks += [channel.subscribe(queue=queue), derived.subscribe(queue=queue)]
        sinks.append(channel.subscribe(stand, dispatch="pool", queue=queue))
        sinks.append(channel.subscribe(stand, dispatch=AsyncLoop(loop=loop), queue=queue))
    sinks.append(channel.subscribe(stand, dispatch="priority", queue=Queue(limit=16, wait=GUARD), lifetime=60.0))
    sinks.append(channel.subscribe(fail, "n < 0"))
    sinks.append(channel.subscribe(stand, "n % 7 == 3", batch=True, dispatch="pool", queue=Queue(limit=64)))
    source = channel.source()
    some = TYPE.to_arrow([Number(n) for n in range(40)])

    def go(events: int) -> None:
        for number in range(events):
            source.publish(Number(number))
            if number % 50 == 0:
                source.publish_many(some)
                sinks[-1].change(where=f"n % 7 == {number % 7}")
                channel.subscribe(stand, f"n > {number}").cancel()

    return go, sinks


def test_memory_is_bounded_under_endless_publishing() -> None:
    with no_threads_left(), loop_in_a_thread() as loop, Node() as node:
        go, sinks = _endless(node, loop)
        go(500)
        tracemalloc.start()
        try:
            go(500)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            go(examples(2500))
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 400_000
        for sink in sinks:
            assert sink.counts.queued <= 64 + 40
        node.close(drain=False, timeout=GUARD)
        assert all(conserved(sink) for sink in sinks)


def test_nothing_is_left_of_what_was_cancelled_and_closed() -> None:
    """Subscriptions, sources and derived channels that came and went leave nothing behind in a node that goes on."""
    with no_threads_left(), Node() as node:
        channel, log = node.channel("c", Number), Log()

        def turn() -> None:
            source = channel.source()
            derived = channel.derive("d", "n > 3")
            sinks = [channel.subscribe(log, "n > 1"), derived.subscribe(log), derived.subscribe()]
            source.publish(Number(2))
            source.publish(Number(5))
            for sink in sinks[:2]:
                sink.change(where="n == 5")
            derived.close()
            sinks[0].cancel()
            source.close()
            log.events.clear()

        for _ in range(50):
            turn()
        turns = 40 if EFFORT == 1 else 100
        tracemalloc.start()
        try:
            for _ in range(turns // 2):
                turn()
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(turns):
                turn()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 1_500 * turns
        assert not node.subscriptions
