"""Patterns over Arrow batches in one process, beside Flink; growth with the window; memory of partial matches."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import MissingExtra
from headwater.patterns.model import Limits
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.result_batches import ResultBatches
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from headwater_studies.flink import timing
from headwater_studies.flink.engine import Flink
from headwater_studies.harness.benchmark import Report, quantity

ROWS = 65_536  # of a batch
ROUNDS = 3
Part = tuple[pa.RecordBatch, Mapping[str, Any]]  # events and what the service knows of them


# ── beside Flink ──


def sequence(report: Report, quick: bool) -> None:
    """`A X*? B` within a minute, a thousand partitions, one event in a hundred begins one."""
    _beside_flink(report, quick, "A X*? B", timing.SEQUENCE, ("a", "b"), flink_times=10, rate=1e6)


def repetition(report: Report, quick: bool) -> None:
    """`A B+ C` with a sum over the repetition."""
    _beside_flink(report, quick, "A B+ C, SUM(B.v) < 1000", timing.REPETITION, ("a", "n", "total", "c"), flink_times=5)


def _beside_flink(
    report: Report,
    quick: bool,
    name: str,
    query: str,
    measures: tuple[str, ...],
    *,
    flink_times: float,
    rate: float = 0,
) -> None:
    """Ours and Flink's events per second over the same events, and whether they find the same."""
    count = 20_000 if quick else 1_000_000
    pattern = Pattern(query, {timing.CHANNEL: timing.EVENT})
    parts = list(_recorded(count))
    seconds, found = _best(lambda: _run(pattern, timing.CHANNEL, parts, results=True))
    ours = count / seconds
    case = f"{name}, per partition, within, {count:,} events"
    if rate:
        report.add(case, ours / 1e6, reach=f"{rate / 1e6:g} M events/s", ok=ours >= rate, unit="M events/s")
    reach = f"{flink_times:g}× Flink on one core"
    try:
        with Flink() as flink:
            table = timing.write(flink.folder / "events.csv", count)
            timed = timing.time_query(flink, table, query, count)
            columns, rows = flink.matches(table, query)
    except MissingExtra as error:
        report.add(
            f"{case}, beside Flink", ours / 1e6, reach=reach, unit="M events/s", note=" ".join(str(error).split())
        )
        return
    places = [columns.index(column) for column in measures]
    theirs = sorted(tuple(row[at] for at in places) for row in rows)
    mine = sorted(tuple(row[column] for column in measures) for row in found)
    same = (
        f"{len(mine):,} matches, the same" if mine == theirs else f"MATCHES DIFFER: {len(mine):,} and {len(theirs):,}"
    )
    without, with_it = timed.events_per_second, count / timed.seconds
    report.add(
        f"{case}, Flink without reading its file",
        ours / 1e6,
        without / 1e6,
        reach=reach,
        ok=ours >= flink_times * without and mine == theirs,
        unit="M events/s",
        note=f"{same}; with reading Flink has {quantity(with_it / 1e6, 'M events/s')}",
    )


def _recorded(count: int) -> Iterator[Part]:
    """The same events that Flink reads, as batches."""
    columns = [np.array(column) for column in zip(*timing.rows(count), strict=True)]
    for start in range(0, count, ROWS):
        ids, keys, kinds, values, times = (column[start : start + ROWS] for column in columns)
        stamps = pa.array(times * 1_000, pa.timestamp("us", "UTC"))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(ids), pa.array(keys), pa.array(kinds), pa.array(values), stamps], ["id", "k", "kind", "v", "ts"]
        )
        yield batch, {"source": "s", "seq": pa.array(ids + 1), "time": stamps}


def _run(pattern: Pattern, channel: str, parts: list[Part], *, results: bool) -> list[dict[str, Any]]:
    """All matches, as results if these are wanted."""
    runner = Runner(pattern.model)
    batches = ResultBatches(Results(pattern.model), runner.channels)
    made: list[dict[str, Any]] = []
    matches = 0
    for batch, meta in parts:
        runner.batch(channel, batch, meta)
        found = runner.matches()
        matches += len(found)
        if results:
            made += _results(pattern, batches, found)
    runner.finish()
    found = runner.matches()
    return made + _results(pattern, batches, found) if results else [{"matches": matches + len(found)}]


def _results(pattern: Pattern, batches: ResultBatches, found: list[Any]) -> list[dict[str, Any]]:
    return [raw for batch in batches.of(found) for raw in pattern.model.output.arrow_to_raw(batch)]


def _best(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the best of some rounds, and what the last one gave."""
    best, result = float("inf"), None
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


# ── growth with the window ──

WINDOWS = (100, 1_000, 10_000, 100_000, 1_000_000)
EVENT = "kind: i64, v: i64"
GROWING = "a: r{kind = 1}; b: r{kind = 2}; c: r{kind = 3} within :w"


def window(report: Report, quick: bool) -> None:
    """Three events by selection *any*: one in ten begins, one in ten goes on, and what ends it is only at first."""
    count = 20_000 if quick else 2_000_000
    windows = [size for size in WINDOWS if size <= count]
    parts = list(_uniform(count))
    patterns = [Pattern(GROWING, {"r": EVENT}, params={"w": size * 1e-6}) for size in windows]
    best = dict.fromkeys(windows, float("inf"))
    matches = {}
    for _ in range(ROUNDS):  # all in turn, so that noise hits them alike
        for size, pattern in zip(windows, patterns, strict=True):
            start = time.perf_counter()
            matches[size] = _run(pattern, "r", parts, results=False)[0]["matches"]
            best[size] = min(best[size], time.perf_counter() - start)
    first = best[windows[0]]
    for size in windows:
        note = f"{matches[size]:,} matches"
        report.add(f"a; b; c by any, {size:,} events in the window", best[size] / count, first / count, note=note)
    grows = max(best.values()) / first
    case = f"growth with the window, {windows[0]:,} to {windows[-1]:,} events"
    report.add(case, grows, reach="at most 2", ok=grows <= 2, unit="×")


def _uniform(count: int) -> Iterator[Part]:
    """An event each microsecond."""
    chance = np.random.default_rng(15)
    kinds = np.where((draw := chance.random(count)) < 0.1, 1, np.where(draw < 0.2, 2, 0))
    kinds[:100:10] = 3
    values = chance.integers(0, 100, count)
    for start in range(0, count, ROWS):
        some = slice(start, min(start + ROWS, count))
        numbers = np.arange(some.start, some.stop)
        batch = pa.RecordBatch.from_arrays([pa.array(kinds[some]), pa.array(values[some])], ["kind", "v"])
        yield batch, {"source": "s", "seq": pa.array(numbers + 1), "time": pa.array(numbers, pa.timestamp("us", "UTC"))}


# ── memory ──

HELD = {
    "shared": "a: r{kind = 1}; b: r{kind = 2} within 1 hour",
    "separate": "a: r{kind = 1}; b: r{kind = 2 and v > a.v + 1 and v < a.v + 3} within 1 hour",
    "shared, a partition each": "a: r{kind = 1}; b: r{kind = 2} within 1 hour partition by v",
}


def memory(report: Report, quick: bool) -> None:
    """Bytes for each partial match that is open: of the engine, and of everything with the events that are held."""
    count = 10_000 if quick else 200_000
    limits = Limits(partitions=count, runs_per_partition=count, runs=count, memory=4 << 30)
    kinds, values = pa.array(np.ones(count, np.int64)), pa.array(np.arange(count))
    batch = pa.RecordBatch.from_arrays([kinds, values], ["kind", "v"])
    for name, text in HELD.items():
        pattern = Pattern(text, {"r": EVENT}, limits=limits)
        stamps = pa.array(np.arange(count), pa.timestamp("us", "UTC"))
        runner = Runner(pattern.model)
        before = runner.engine.memory.size
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        runner.batch("r", batch, {"source": "s", "seq": pa.array(np.arange(1, count + 1)), "time": stamps})
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        everything = held + pa.total_allocated_bytes() - arrow + batch.nbytes
        note = f"{quantity(everything / count, 'bytes')} with the events; {runner.counts.given_up} given up"
        engine = (runner.engine.memory.size - before) / count
        report.add(f"memory per open partial match, {name}, {count:,} open", engine, unit="bytes", note=note)


__all__ = ["memory", "repetition", "sequence", "window"]
