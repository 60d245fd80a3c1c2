"""Trying patterns on recorded events: `backtest_patterns(spark, log, patterns)`.

What crosses by atoms alone is what the interests of a subscription let through: the backtest of interests counts it.
Matches are found by Spark, or, without it, by runners in this process over the log in its order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from math import gcd
from time import monotonic
from typing import Any

from headwater.interest import Interest
from headwater.late import np
from headwater.patterns import model
from headwater.patterns.crossing.atoms import source_interest
from headwater.patterns.crossing.bindings import bindings
from headwater.patterns.crossing.marks import marking
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.letters import Letters
from headwater.patterns.run.result_batches import ResultBatches
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from headwater.spark.backtest.backtest import backtest, bucket_width
from headwater.spark.backtest.patterns.asked import AskedPattern, WantedPattern, resolve_patterns
from headwater.spark.backtest.patterns.bound import Bound
from headwater.spark.backtest.patterns.history import Part, at_once, by_publication
from headwater.spark.backtest.patterns.report import HOURS, PatternBacktest, PatternRow, moment
from headwater.spark.backtest.report import FRAME, MARK, Backtest, Traffic
from headwater.spark.backtest.sizes import record_sizes
from headwater.spark.backtest.subscriptions import SINK, Subscription
from headwater.store.log.progress_bar import Progress
from headwater.store.log.reader import ChannelReader, channel_types
from headwater.types import EventType

HOUR, DAY = 3_600_000_000, 86_400_000_000  # microseconds
KEPT = 1_000  # last matches that a report has
MOST_STEPS = 96
STEPS = (*(s * 1_000_000 for s in (1, 5, 15, 60, 300, 900)), HOUR, 3 * HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY)


@dataclass(slots=True)
class _Found:
    """The matches of one pattern, counted."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    by_place: dict[int, int] = field(default_factory=dict)  # by stretch of time
    hours: list[int] = field(default_factory=lambda: [0] * HOURS)
    latest: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0  # bytes of the results
    bound: Traffic | None = None
    bound_marks: Traffic | None = None
    late: int = 0
    given_up: int = 0
    end: int | None = None  # the time of the last recorded event
    beyond: int = 0  # matches after it
    how: str = ""

    def leave_out(self, late: int) -> None:
        """So many events that came too late."""
        self.late += late

    def add(self, time: int, count: int, width: int | None) -> None:
        """So many at a time."""
        self.count += count
        self.first = time if self.first is None else min(self.first, time)
        self.last = time if self.last is None else max(self.last, time)
        if self.end is not None and time > self.end:
            self.beyond += count
        self.hours[time % DAY // HOUR] += count
        if width is not None:
            self.by_place[time // width] = self.by_place.get(time // width, 0) + count


def backtest_patterns(
    spark: Any,
    log: str | os.PathLike[str],
    patterns: Iterable[AskedPattern],
    *,
    bucket: str = "auto",
    progress: bool = False,
) -> PatternBacktest:
    """When these patterns would have fired over a log, how often, and what would have crossed for them.

    `spark` is the session that does the work; with None this process does it. What bound values would have kept from
    crossing is counted by this process only."""
    started = monotonic()
    width = bucket_width(bucket)
    types = channel_types(log)
    wanted = resolve_patterns(tuple(patterns), types, SINK)
    readers = {name: ChannelReader(log, name) for each in wanted for name in each.pattern.channels}
    ends = [
        span for reader in readers.values() for file in reader.files() for span in (file.first_time, file.last_time)
    ]
    known = [each for each in ends if each is not None]
    if width == 0:
        width = stretch(min(known), max(known)) if known else None
    events = sum(reader.count() for reader in readers.values())
    rows = []
    for each in wanted:
        crossing = _crossing(spark, readers, each)
        if spark is None:
            found = _local(log, readers, each, width, _end(each, known), progress)
        else:
            found = _on_spark(spark, log, each, width, _end(each, known))
        rows.append(_row(each, found, crossing, width))
    return PatternBacktest(
        events=events,
        first=moment(min(known)) if known else None,
        last=moment(max(known)) if known else None,
        width=None if width is None else timedelta(microseconds=width),
        patterns=tuple(rows),
        seconds=monotonic() - started,
        engine="local" if spark is None else "spark",
        notes=tuple(_notes(rows, spark)),
    )


def _end(each: WantedPattern, times: list[int]) -> int | None:
    """When the recording ends, where that matters: what is absent is so until a deadline, which may lie after it."""
    model = each.pattern.model
    by_publication = all(channel.time is None for channel in model.channels)
    return max(times) if times and model.absent and by_publication else None


def stretch(first: int, last: int) -> int:
    """The shortest round length of which no more than so many cover it."""
    return next((step for step in STEPS if last // step - first // step < MOST_STEPS), STEPS[-1])


def _notes(rows: list[PatternRow], spark: Any) -> list[str]:
    """What is hardly meant, what was left out, and what a reader might take for more than it is."""
    notes = [
        f"{row.name}: line {each.line}, column {each.column}: {each.message}"
        for row in rows
        for each in row.explained.pattern.warnings
    ]
    notes += [f"{row.name}: {row.late:,} late events were left out" for row in rows if row.late]
    notes += [
        f"{row.name}: {row.beyond:,} of its matches are after the last recorded event: what was to be absent until "
        "then is taken not to have come"
        for row in rows
        if row.beyond
    ]
    notes += [
        f"{row.name}: {row.given_up:,} partial matches were given up by its limits" for row in rows if row.given_up
    ]
    if spark is not None:
        notes.append("what bound values keep from crossing is counted without Spark only (--engine local)")
        if any(row.matches > KEPT for row in rows):
            notes.append(f"bytes of matches are those of the last {KEPT:,}, on average")
    return notes


def _row(each: WantedPattern, found: _Found, crossing: _Crossing, width: int | None) -> PatternRow:
    """What the report says of one."""
    places = sorted(found.by_place.items())
    return PatternRow(
        name=each.name,
        at=each.at,
        text=" ".join(str(each.pattern).split()),
        channels=each.pattern.channels,
        matches=found.count,
        first=None if found.first is None else moment(found.first),
        last=None if found.last is None else moment(found.last),
        times={start: n for at, n in places if (start := moment(at * (width or 1))) is not None},
        hours=tuple(found.hours),
        latest=tuple(found.latest),
        everything=crossing.everything,
        atoms=crossing.atoms,
        marks=crossing.marks,
        bound=found.bound,
        bound_marks=found.bound_marks,
        results=Traffic(found.count, found.size + FRAME * found.count),
        how=found.how,
        explained=each.pattern.explain(),
        late=found.late,
        given_up=found.given_up,
        beyond=found.beyond,
    )


# ── what crosses ──


@dataclass(frozen=True, slots=True)
class _Crossing:
    """What would cross for one pattern: everything; or what its atoms let through, as events and as marks."""

    everything: Traffic
    atoms: Traffic
    marks: Traffic | None


def _crossing(spark: Any, readers: dict[str, ChannelReader], each: WantedPattern) -> _Crossing:
    everything, atoms, marks = Traffic(), Traffic(), None
    for name in each.pattern.channels:

        def crossing(where: Interest | None, name: str = name) -> Backtest:
            return backtest(
                spark, readers[name], [Subscription(name=each.name, where=where, at=each.at)], bucket="none"
            )

        parts = _apart(each.pattern.model, name)
        found = crossing(source_interest(each.pattern.model, name) if parts is None else parts[0])
        everything, atoms = everything + found.unfiltered, atoms + found.merged
        if parts is not None:
            marks = (marks or Traffic()) + crossing(parts[1]).merged
    return _Crossing(everything, atoms, marks)


def _apart(pattern: model.Pattern, channel: str) -> tuple[Interest, Interest] | None:
    """What of a channel crosses as events, and what as marks; None where there are none."""
    found = marking(pattern, channel)
    return None if found is None else found.apart(pattern)


# ── in this process ──


def _local(
    log: Any, readers: dict[str, ChannelReader], each: WantedPattern, width: int | None, end: int | None, show: bool
) -> _Found:
    """By a runner that takes the log in its order."""
    pattern = each.pattern.model
    runner = Runner(pattern)
    results = ResultBatches(Results(pattern), runner.channels)
    found = _Found(end=end, how=f"{type(runner.engine).__name__.removesuffix('Engine').lower()} runs, in this process")
    asked = bindings(pattern)
    bound = None if asked is None else Bound(asked)
    crossed, marked = Traffic(), Traffic()
    parts_of = {name: _apart(pattern, name) for name in each.pattern.channels}
    total = sum(readers[name].count() for name in each.pattern.channels)
    with Progress(total, f"  {each.name}") if show else nullcontext() as bar:
        for parts in _history(log, pattern, found, (lambda _: None) if bar is None else bar.add):
            runner.ordered(parts)
            if bound is not None:
                whole, marks = _bytes(each, parts, bound.crossing(parts), parts_of)
                crossed, marked = crossed + whole, marked + marks
            _collect(found, each.pattern, results, runner, width)
    runner.finish()
    _collect(found, each.pattern, results, runner, width)
    found.bound = None if bound is None else crossed
    found.bound_marks = None if bound is None or not any(parts_of.values()) else marked
    found.given_up = runner.counts.given_up
    return found


def _history(log: Any, pattern: model.Pattern, found: _Found, progress: Any) -> Any:
    """What the runner is given: in the order of publication, or, all at once, in that of the events' own times."""
    if all(channel.time is None for channel in pattern.channels):
        return by_publication(log, pattern.channels, progress)
    judges = {channel.name: Letters(pattern, channel, 0) for channel in pattern.channels}
    return at_once(
        log,
        pattern.channels,
        lambda channel, events, meta: judges[channel.name]._times(events, meta),
        pattern.lateness,
        found.leave_out,
        progress,
    )


def _collect(found: _Found, pattern: Pattern, results: ResultBatches, runner: Runner, width: int | None) -> None:
    matches = runner.matches()
    made = (raw for batch in results.of(matches) for raw in pattern.output.arrow_to_raw(batch))
    for match, raw in zip(matches, made, strict=True):
        found.add(match.time, 1, width)
        found.size += len(pattern.output.encode(raw))
        found.latest.append({"time": moment(match.time), "result": _shown(raw)})
    # What is decided at one moment comes by partition.
    found.latest.sort(key=lambda each: each["time"])
    del found.latest[:-KEPT]


def _shown(raw: dict[str, Any]) -> dict[str, Any]:
    """Plain values: for people and for JSON."""
    return {name: _plain(value) for name, value in raw.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return _shown(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


Apart = Mapping[str, tuple[Interest, Interest] | None]  # by channel, what crosses as events, and as marks


def _bytes(each: WantedPattern, parts: list[Part], masks: list[Any], apart: Apart) -> tuple[Traffic, Traffic]:
    """What crosses of a piece as events and as marks, but what is published where the matches are wanted."""
    types = {channel.name: channel.type for channel in each.pattern.model.channels}
    whole, marks = Traffic(), Traffic()
    for (name, batch, meta, _), mask in zip(parts, masks, strict=True):
        away = mask & (np.array(meta["node"].to_pylist(), object) != each.at)
        if (asked := apart[name]) is not None:
            found = asked[1].native().batch(batch, meta=meta)
            made = np.zeros(batch.num_rows, bool)
            made[found.rows] = True
            assert asked[1].output is not None
            marks += _traffic(asked[1].output, found.output, away[found.rows], MARK)
            away &= ~made
        whole += _traffic(types[name], batch, away)
    return whole, marks


def _traffic(type: EventType, batch: Any, away: Any, more: int = 0) -> Traffic:
    """Of those rows of a batch that cross, each with its frame and so many bytes more."""
    columns = {field: batch.column(field) for field in batch.schema.names}
    sizes, count = record_sizes(type.layout, columns, batch.num_rows), int(away.sum())
    size = sizes * count if isinstance(sizes, int) else int(sizes[away].sum())
    return Traffic(count, (FRAME + more) * count + size)


# ── on Spark ──


def _on_spark(spark: Any, log: Any, each: WantedPattern, width: int | None, end: int | None) -> _Found:
    """Counted there: only sums and the last matches come back."""
    from headwater.spark.log import events
    from headwater.spark.patterns.matching import match, pattern_choice
    from headwater.spark.schema import from_dataframe

    found = _Found(how=str(pattern_choice(each.pattern)))
    frames = {name: events(spark, log, name, tail=True) for name in each.pattern.channels}
    rows = match(frames, each.pattern)
    rows = rows.selectExpr("*", "unix_micros(match.time) AS _us").cache()
    output, sizes = each.pattern.output, list[int]()
    try:
        places = rows.selectExpr(f"_us - pmod(_us, {gcd(width or HOUR, HOUR)}) AS _at").groupBy("_at").count()
        for row in places.collect():
            found.add(int(row[0]), int(row[1]), width)
        later = "0L" if end is None else f"count(CASE WHEN _us > {end} THEN 1 END)"
        edges = rows.selectExpr("min(_us)", "max(_us)", later).collect()[0]
        found.first, found.last, found.beyond = edges[0], edges[1], int(edges[2])
        latest = rows.orderBy("_us", ascending=False).limit(KEPT).select(*output.record.by_name)
        for raw in reversed(output.arrow_to_raw(from_dataframe(latest, output))):
            sizes.append(len(output.encode(raw)))
            found.latest.append({"time": moment(raw["match"]["time"]), "result": _shown(raw)})
        found.size = round(sum(sizes) / len(sizes) * found.count) if sizes else 0
    finally:
        rows.unpersist()
    return found


__all__ = ["backtest_patterns", "stretch"]
