"""Matching many interests: one look at an event, whatever their number.

The grid is that of the matching literature: conjunctions of 5 predicates over 100 attributes of which an event has 30.
How it is made here: a share of the attributes (the equality ratio) are categories, compared for equality, with one
common value each; the others are measures, compared with ranges. At a match probability of 0.001 both the predicates'
and the events' attributes are drawn from all 100; at 0.1 and 0.5 all events have the same 30 attributes and predicates
use only those. The width of ranges and the commonness of values make up the rest; the measured rate is printed.
An event that lacks an attribute does not satisfy a predicate on it, and nothing more is counted (`exact_undecided=0`).
Entries come as arrays (`Matcher.add_ranges`), as a million texts would mostly measure the parser.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from functools import partial
from typing import Any

import numpy as np

from headwater import Interest
from headwater.interest import as_event_type
from headwater.match import Matcher
from headwater.types import EventType, event_type
from headwater.types import model as m
from headwater_studies.harness.benchmark import Report, times, versus

READING = "level: f64, network: text, station: i32"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
DIMENSIONS, PRESENT, PREDICATES = 100, 30, 5


# ── nobody wants it ──


def unwanted(report: Report) -> None:
    """A record that no entry wants, with 1, 100 and 10,000 equalities."""
    type = as_event_type(READING)
    record = type.encode(level=0.3, network="none of these", station=-7)
    counts = (1, 100, 10_000)
    for field, text in (("text", "network = 'net{}'"), ("integer", "station = {}")):
        functions = []
        for count in counts:
            matcher = Matcher(type)
            matcher.add_many((n, Interest(text.format(n), type)) for n in range(count))
            match = matcher.snapshot().match
            assert match(record) == ()
            functions.append(partial(match, record))
        found = versus(*functions)
        for count, took in zip(counts, found, strict=True):
            case = f"match, none wanted, {count:,} {field} equalities"
            report.add(case, took, reach="at most 0.4 µs", ok=took <= 0.4e-6)
        flat = max(found) / min(found)
        report.add(
            f"the slowest of these by the fastest, {field}", flat, reach="flat: at most 2", ok=flat <= 2, unit="×"
        )


# ── batches ──


def batches(report: Report) -> None:
    """1,000 rows, 100 entries that want one in a hundred each."""
    type, rng = as_event_type(READING), random.Random(1)
    rows = [{"level": rng.random(), "network": f"net{rng.randrange(100)}", "station": rng.randrange(100)}
            for _ in range(1000)]  # fmt: skip
    batch = type.to_arrow(rows)
    for name, text in (
        ("text equality", "network = 'net{0}'"),
        ("integer equality", "station = {0}"),
        ("range", "level >= {0}e-2 and level < {1}e-2"),
    ):
        matcher = Matcher(type)
        matcher.add_many((n, Interest(text.format(n, n + 1), type)) for n in range(100))
        matching = matcher.snapshot()
        hits = sum(len(found) for _, found in matching.batch(batch))
        assert hits == 1000, hits
        rate = 1000 / statistics.median(times(lambda matching=matching: matching.batch(batch)))  # type: ignore[misc]
        case = f"batches of 1,000, 100 one-percent entries, {name}"
        report.add(case, rate / 1e6, reach="5 M events/s", ok=rate >= 5e6, unit="M events/s")


# ── the grid ──


def grid_type(ratio: float) -> EventType:
    """100 optional numbers; the first of them are categories."""
    kinds = [m.I32 if i < round(ratio * DIMENSIONS) else m.F64 for i in range(DIMENSIONS)]
    return event_type(m.Record("Grid", tuple(m.Field(f"d{i}", kind, optional=True) for i, kind in enumerate(kinds))))


class Grid:
    """One cell: entries as arrays and events as records."""

    def __init__(self, count: int, probability: float, ratio: float, *, events: int, seed: int = 7) -> None:
        self.rng = np.random.default_rng(seed)
        self.count, self.ratio = count, ratio
        self.type = grid_type(ratio)
        self.categories = round(ratio * DIMENSIONS)
        spread = probability < 0.01
        stay = np.prod([(PRESENT - i) / (DIMENSIONS - i) for i in range(PREDICATES)]) if spread else 1.0
        self.each = float((probability / stay) ** (1 / PREDICATES))  # of a predicate whose attribute is there
        self.common = self.each**0.5
        # At random, but with as many categories among the 30 as among the 100.
        every = self.rng.permutation(DIMENSIONS)
        chosen = [d for d in every if d < self.categories][: round(ratio * PRESENT)]
        chosen += [d for d in every if d >= self.categories][: PRESENT - len(chosen)]
        self.pool = np.arange(DIMENSIONS) if spread else np.array(chosen)
        self.records = [self.record() for _ in range(events)]

    def category(self, count: int) -> Any:
        usual = self.rng.random(count) < self.common
        return np.where(usual, 0, self.rng.integers(1, 100, count))

    def record(self) -> bytes:
        present = self.rng.choice(self.pool, PRESENT, replace=False)
        values = {f"d{d}": None for d in range(DIMENSIONS)} | {
            f"d{d}": int(self.category(1)[0]) if d < self.categories else float(self.rng.random()) for d in present
        }
        return self.type.encode(values)

    def rows(self) -> dict[str, Any]:
        """The arguments of `add_ranges`."""
        order = np.argsort(self.rng.random((self.count, len(self.pool)), np.float32), axis=1)[:, :PREDICATES]
        which = self.pool[order].reshape(-1)
        category = which < self.categories
        low = self.rng.random(len(which)) * (1 - self.each)
        high = low + self.each
        low[category] = high[category] = self.category(int(category.sum()))
        owners = np.repeat(np.arange(self.count), PREDICATES)
        names = [f"d{d}" for d in range(DIMENSIONS)]
        return {
            "payloads": range(self.count), "fields": names, "owners": owners, "which": which, "low": low, "high": high,
        }  # fmt: skip


def per_event(functions: list[Any], records: list[bytes], *, limit: float) -> list[float]:
    """Median seconds per record of each function, one after the other on each record so that noise hits all alike; as
    many records as fit the time."""
    samples: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + limit
    while time.perf_counter() < end or len(samples[0]) < 6:
        for record in records:
            for function, sample in zip(functions, samples, strict=True):
                start = time.perf_counter()
                function(record)
                sample.append(time.perf_counter() - start)
            if time.perf_counter() > end and len(samples[0]) >= 6:
                break
    return [statistics.median(sample) for sample in samples]


def cell(count: int, probability: float, ratio: float) -> dict[str, float]:
    """Seconds per event as planned and by scan, bytes and build time of an entry, and the match rate."""
    grid = Grid(count, probability, ratio, events=60)
    matcher, rows = Matcher(grid.type, exact_undecided=0), grid.rows()
    start = time.perf_counter()
    matcher.add_ranges(**rows)
    matching = matcher.snapshot()
    build = time.perf_counter() - start
    hits = [len(matching.match(record)) for record in grid.records]
    for record in grid.records * 5:  # what the planner goes by
        if matcher.plan[0].events >= 300:
            break
        matching.match(record)
    matching = matcher.snapshot()
    matcher.forced = "scan"
    functions = [matching.match, matcher.snapshot().match]
    ours, scan = per_event(functions, grid.records, limit=0.6 if count < 1_000_000 else 1.2)
    return {"ours": ours, "scan": scan, "bytes": matcher.nbytes / count, "build": build / count,
            "rate": statistics.mean(hits) / count}  # fmt: skip


def grid(report: Report, sizes: tuple[int, ...] = SIZES) -> None:
    for probability in (0.001, 0.1, 0.5):
        for ratio in (0.0, 0.2, 1.0):
            found = []
            for count in sizes:
                it = cell(count, probability, ratio)
                found.append(it["ours"])
                note = (f"rate {it['rate']:.4f}, {it['bytes']:.0f} bytes and {it['build'] * 1e6:.1f} µs to build "
                        "for each entry")  # fmt: skip
                case = f"match p={probability} equality={ratio}: {count:,} entries"
                slower = it["ours"] > it["scan"] * 1.1
                report.add(case, it["ours"], it["scan"], reach="no slower than scan", ok=not slower, note=note)
            if probability == 0.001 and len(found) > 1:
                growth, linear = found[-1] / found[0], sizes[-1] / sizes[0]
                report.add(f"growth p={probability} equality={ratio}, {sizes[0]:,} to {sizes[-1]:,} entries", growth,
                           linear, reach="below linear", ok=growth < linear, unit="×")  # fmt: skip


def main() -> None:
    report = Report("matching", "Matching many interests; the reference on the grid is the scan of all entries")
    unwanted(report)
    batches(report)
    grid(report, SIZES[:-1] if "--quick" in sys.argv else SIZES)
    report.finish()


if __name__ == "__main__":
    main()
