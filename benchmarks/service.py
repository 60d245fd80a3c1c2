"""`make bench-service`: what publishing, matching and delivering cost in one process, beside references.

`python benchmarks/service.py NAME …` runs some parts only: handler unwanted consumers batches strategies gate
matching.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

import matching
from headwater import Event, Node, Queue, f32, f64, timestamp, u32
from headwater.channel.concurrency.gate import Gate
from headwater.dispatch import AsyncLoop, Pool
from headwater_studies.harness.benchmark import Report, times, versus

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


class Small(Event):
    badge: u32
    network: str
    level: f64


class Sighting(Event):
    badge: u32
    network: str
    level: f32
    zone: u32
    seen: timestamp


def ignore(event: Any) -> None:
    """A handler that does nothing."""


def small() -> Small:
    return Small(badge=7, network="ORL-Net#1", level=0.7)


def sighting() -> Sighting:
    return Sighting(badge=7, network="ORL-Net#1", level=0.5, zone=3, seen=NOW)


def handler(report: Report) -> None:
    """publish → handler in the same thread, beside a loop that builds the event and calls the function."""
    for build, name in ((small, "3 fields"), (sighting, "5 fields, one rounded to f32")):
        ours, bare = _to_a_handler(build, None)
        case = f"publish → handler, same thread, {name}"
        report.add(case, ours, bare, reach="at most 3× the loop", ok=ours <= 3 * bare)
    report.add("the same with a filter that passes, 3 fields", *_to_a_handler(small, "level > 0.5"))


def _to_a_handler(build: Callable[[], Any], where: str | None) -> tuple[float, float]:
    with Node() as node:
        channel = node.channel("bench.events", type(build()))
        channel.subscribe(ignore, where)
        publish = channel.source().publish
        ours, bare = versus(lambda: publish(build()), lambda: ignore(build()), repeat=15, number=20_000)
    return ours, bare


def _publishing(publish: Callable[[Any], int], event: Any) -> Callable[[], object]:
    return lambda: publish(event)


def unwanted(report: Report) -> None:
    """An event that no subscription wants, however many there are."""
    found = {}
    event = small()
    for count in (1, 100, 10_000):
        with Node() as node:
            channel = node.channel("bench.events", Small)
            start = time.perf_counter()
            for number in range(count):
                channel.subscribe(ignore, f"network == 'net-{number}'")
            each = (time.perf_counter() - start) / count
            publish = _publishing(channel.source().publish, event)
            found[count], built = versus(publish, small, repeat=11, number=5_000)
        report.add(
            f"publish what none of {count:,} equality subscriptions wants",
            found[count],
            built,
            reach="at most 2 µs",
            ok=found[count] <= 2e-6,
            note=f"reference: building the event; subscribing took {each * 1e3:.2f} ms each",
        )
    flat = max(found.values()) / min(found.values())
    report.add("slowest of these / quickest", flat, reach="flat: at most 1.5", ok=flat <= 1.5, unit="×")


def batches(report: Report) -> None:
    """Batches of 1,000 events, 100 subscriptions of one percent each, on one core."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    try:
        rng = np.random.default_rng(7)
        with Node() as node:
            channel = node.channel("bench.events", Small)
            assert channel.type is not None
            columns = [
                pa.array(rng.integers(0, 100, 1_000), pa.uint32()),
                pa.array([f"net-{n}" for n in rng.integers(0, 5, 1_000)]),
                pa.array(rng.random(1_000)),
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=channel.type.schema)
            sinks = [channel.subscribe(None, f"badge == {number}", queue=Queue(limit=1 << 30)) for number in range(100)]
            publish = _publishing(channel.source().publish_many, batch)

            def by_hand() -> None:
                badge = batch.column(0)
                for number in range(100):
                    pa.compute.filter(batch, pa.compute.equal(badge, number))

            samples = []
            for _ in range(15):
                samples += times(publish, repeat=1, number=20)
                for sink in sinks:
                    while sink.get_batch() is not None:
                        pass
            ours, hand = statistics.median(samples), statistics.median(times(by_hand, repeat=5))
            report.add(
                "1,000 events, 100 subscriptions of 1%: evaluated",
                1_000 / ours / 1e6,
                1_000 / hand / 1e6,
                reach="at least 5 M events/s",
                ok=1_000 / ours >= 5e6,
                unit="M/s",
                note="reference: pyarrow, a filter each",
            )
        for name, options in (("batch handlers", {"batch": True}), ("handlers of single events", {})):
            with Node() as node:
                channel = node.channel("bench.events", Small)
                for number in range(100):
                    channel.subscribe(ignore, f"badge == {number}", **options)
                publish = _publishing(channel.source().publish_many, batch)
                ours = statistics.median(times(publish, repeat=11))
            report.add(f"the same, delivered to {name}", 1_000 / ours / 1e6, 1_000 / hand / 1e6, unit="M/s")
    finally:
        if cores:
            os.sched_setaffinity(0, cores)


def _calling(functions: list[Callable[[Any], None]], event: Any) -> Callable[[], object]:
    return lambda: [function(event) for function in functions]


def consumers(report: Report) -> None:
    """What one more consumer costs, all interested: the slope over 5 to 100 of them."""
    event = small()
    for where, name in ((None, "everything"), ("level > 0.5", "an equal interest each")):
        counts, seconds = (5, 10, 20, 40, 60, 80, 100), []
        for count in counts:
            with Node() as node:
                channel = node.channel("bench.events", Small)
                for _ in range(count):
                    channel.subscribe(ignore, where)
                publish = _publishing(channel.source().publish, event)
                seconds.append(statistics.median(times(publish, repeat=7, number=500)))
        slope, start = statistics.linear_regression(counts, seconds)
        bare = statistics.median(times(_calling([ignore] * 100, event), repeat=7)) / 100
        report.add(
            f"one more consumer of {name}",
            slope,
            bare,
            reach="at most 1.5 µs",
            ok=slope <= 1.5e-6,
            note=f"reference: calling it; {start * 1e6:.1f} µs for none",
        )


def strategies(report: Report) -> None:
    """publish → handler through the other dispatch strategies, one event at a time, for information."""
    done = threading.Semaphore(0)
    event = small()
    with Node(config={"dispatch": "pool"}) as node:
        channel = node.channel("bench.events", Small)
        channel.subscribe(lambda event: done.release(), dispatch=Pool())
        publish = channel.source().publish

        def there() -> None:
            publish(event)
            done.acquire()

        report.add("publish → handler in a pool's thread, and back", statistics.median(times(there, number=2_000)))

    async def on_a_loop() -> float:
        async with Node(config={"dispatch": "asyncio"}) as node:
            channel = node.channel("bench.events", Small)
            sink = channel.subscribe(None, dispatch=AsyncLoop())
            source = channel.source()
            start = time.perf_counter()
            for _ in range(2_000):
                source.publish(event)
                await sink.receive()
            return (time.perf_counter() - start) / 2_000

    report.add("publish → await receive(), on an asyncio loop", asyncio.run(on_a_loop()))


def gate(report: Report) -> None:
    """Taking a free gate as publishers do, beside `threading.Lock`: by `with`, which Ctrl-C cannot interrupt, too."""
    ours, lock = Gate(), threading.Lock()
    enter, leave = ours.token.pop, ours.token.append

    def in_place() -> None:
        try:
            enter()
        except IndexError:
            ours.queue()
        except BaseException:
            leave(None)
            raise
        try:
            pass
        finally:
            leave(None)
            if ours.waiters:
                ours.wake()

    def by_with() -> None:
        with lock:
            pass

    def nothing() -> None:
        pass

    mine, theirs, none = versus(in_place, by_with, nothing, repeat=15, number=50_000)
    report.add("take a gate and lay it down, beside `with threading.Lock()`", mine - none, theirs - none)


PARTS: dict[str, Callable[[Report], None]] = {
    "handler": handler,
    "unwanted": unwanted,
    "consumers": consumers,
    "batches": batches,
    "strategies": strategies,
    "gate": gate,
    "matching": matching.grid,
}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        sys.exit(f"expected some of {', '.join(PARTS)}, found {', '.join(unknown)}")
    report = Report("service", "The event service in one process")
    for name in chosen:
        PARTS[name](report)
    report.finish()


if __name__ == "__main__":
    main()
