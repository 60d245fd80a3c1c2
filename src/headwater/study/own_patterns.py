"""Patterns in the report of a study of one's own: how often each would have fired, when, what would have crossed for
it, its automaton and its last matches."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from html import escape

from headwater.spark.backtest import PatternBacktest, PatternRow, Traffic
from headwater.spark.backtest.patterns.report import shown
from headwater.study.own_times import legend, lines, said, timeline
from headwater.study.report.bars import Bar, bars, columns
from headwater.study.report.html import Block, Figure, Heading, Text, Tile
from headwater.study.report.plain import cut
from headwater.study.report.table import Column, Row, Table, Value, size

LINES = 8  # patterns in the plot over time
LATEST = 10  # matches of each in a table
CELL = 120  # characters of a value in it
FIELDS = 8  # of a result that are shown
DAYS = timedelta(days=2)  # from which on hours of the day say more than the plot over time
WAYS = {
    "everything": "all events of its channels",
    "atoms": "those that fit an element",
    "marks": "rows that fit none, as marks",
    "bound": "of these, with values that are bound",
    "bound_marks": "and of the marks",
    "results": "its matches only",
}


def blocks(fired: PatternBacktest, here: PatternBacktest | None = None) -> list[Block]:
    """The section: all in a table and over time, then each with its picture, its hours, what crosses and its last
    matches. `here` is what this process found in the same log: it counts what crosses in more ways."""
    told = here or fired
    found: list[Block] = [_compared(fired, here), matches(fired, here)]
    if (over := _over_time(fired)) is not None:
        found.append(over)
    found += [
        Text(
            "To the node that wants the matches would cross, at a centre, **everything**. By **atoms**, an event "
            "crosses if it fits an element by itself: that is asked at the sources. With **bound** values, later "
            "events cross only where an earlier one has bound their values. Where all its events come from one other "
            "node, a pattern runs there, and only **matches** cross."
        ),
        crossing(told),
    ]
    days = told.first is not None and told.last is not None and told.last - told.first > DAYS
    for number, row in enumerate(told.patterns, 1):
        found += _of_one(number, row, days)
    return found


def tiles(fired: PatternBacktest, here: PatternBacktest | None) -> list[Tile]:
    """The sums of all patterns."""
    told = here or fired
    count = sum(row.matches for row in told.patterns)
    names = "a pattern" if len(told.patterns) == 1 else f"{len(told.patterns)} patterns"
    made = [Tile(f"{count:,}", "match" if count == 1 else "matches", f"of {names}, in {told.events:,} events")]
    everything = sum((row.everything for row in told.patterns), Traffic())
    asked = sum((row.asked for row in told.patterns), Traffic())
    if (saved := asked.saved(everything)) is not None and saved > 0:
        more = f"{size(asked.bytes)} cross for patterns, for {size(everything.bytes)} to a centre"
        made.append(Tile(f"{100 * saved:.1f} %", "fewer bytes than at a centre", more))
    return made


def notes(fired: PatternBacktest, here: PatternBacktest | None) -> list[str]:
    """What a reader has to know of them."""
    told = here or fired
    found = [
        "**Patterns** go by the times of the recording, so they are not played live: replayed events have new times. "
        + (
            "They were run on Spark and, by runners that read the log in its order, in this process: both must agree."
            if here is not None
            else "The log is too large to run them in this process as well."
        ),
        f"**Bytes for patterns:** {told.model.removeprefix('bytes: ')}.",
    ]
    return [*found, *(f"**Note:** {note}." for note in told.notes)]


# ── all of them ──


def _compared(fired: PatternBacktest, here: PatternBacktest | None) -> Text:
    if here is None:
        return Text(f"{_some(len(fired.patterns), 'pattern')}, run on Spark over {fired.events:,} events.")
    pairs = zip(fired.patterns, here.patterns, strict=True)
    other = [one.name for one, two in pairs if (one.matches, one.times) != (two.matches, two.times)]
    if not other:
        return Text(
            f"{_some(len(fired.patterns), 'pattern')} over {fired.events:,} events; Spark and this process find the "
            "same matches."
        )
    return Text(f"**Spark and this process find different matches**: {', '.join(other)}.")


def matches(fired: PatternBacktest, here: PatternBacktest | None = None) -> Table:
    """How often each would have fired."""
    columns = [Column("pattern", "text"), Column("at", "text")]
    both = here is not None
    columns.append(Column("on Spark", group="matches") if both else Column("matches"))
    if both:
        columns += [Column("in this process", group="matches"), Column("difference", "diff", group="matches")]
    columns += [Column("first", "text"), Column("last", "text")]
    rows = []
    for at, row in enumerate(fired.patterns):
        values: list[Value] = [row.name, row.at, row.matches]
        if here is not None:
            values += [here.patterns[at].matches, here.patterns[at].matches - row.matches]
        rows.append(Row((*values, _time(row.first), _time(row.last))))
    return Table(name="patterns", title="How often each would have fired", columns=tuple(columns), rows=tuple(rows),
                 note="Times are UTC: of the first match and of the last.")  # fmt: skip


def _over_time(fired: PatternBacktest) -> Figure | None:
    """When they fired: those with the most matches."""
    ranked = sorted((row for row in fired.patterns if row.matches), key=lambda row: -row.matches)[:LINES]
    ends = [when for when in (fired.last, *(row.last for row in ranked)) if when is not None]  # or until a deadline
    over = timeline({row.name: row.times.items() for row in ranked}, fired.width, fired.first, max(ends, default=None))
    if over is None or not ranked:
        return None
    title = "Matches over time" + (
        f": the {len(ranked)} patterns with the most" if len(ranked) < len(fired.patterns) else ""
    )
    label = "Line chart: matches over time by pattern"
    return Figure(title, partial(lines, over, label, what="matches"), legend(over.series), said(over))


def crossing(told: PatternBacktest, *, brief: bool = False) -> Table:
    """What would cross to the node that wants the matches, by the ways it could; in `brief`, bytes only."""
    columns = [Column("pattern", "text")]
    marked = any(row.marks is not None for row in told.patterns)
    for way in ("everything", "atoms", "bound", *["marks"] * marked, "matches"):
        columns += [] if brief else [Column("events", group=way)]
        columns.append(Column(way, "bytes") if brief else Column("bytes", "bytes", group=way))
    columns.append(Column("fewer bytes", "percent"))
    rows = []
    for row in told.patterns:
        values: list[Value] = [row.name]
        for traffic in (row.everything, row.atoms, row.bound, *[row.asked_marks] * marked, row.results):
            values += [] if brief else [None if traffic is None else traffic.events]
            values.append(None if traffic is None else traffic.bytes)
        saved = row.asked.saved(row.everything)
        rows.append(Row((*values, None if saved is None else round(100 * saved, 1))))
    unbound = any(row.bound is None for row in told.patterns)
    return Table(
        name="patterns_crossing",
        title="What would cross for each",
        columns=tuple(columns),
        rows=tuple(rows),
        note="Fewer bytes: what is asked at the sources, atoms or, where there are, bound values, against everything."
        + " –: the pattern binds nothing, or it was not counted." * unbound
        + " Marks: what fits no element but counts as a row crosses as its time and partition." * marked,
    )


# ── each by itself ──


def _of_one(number: int, row: PatternRow, days: bool) -> list[Block]:
    """`days`: it was recorded for some of them, so that hours of the day say something."""
    plan = row.explained.plan
    found: list[Block] = [
        Heading(row.name),
        Text(f"`{cut(row.text, 1_000)}`"),
        Figure("What it waits for", partial(_picture, row), (), f"Engine `{plan.engine}`: {plan.why}."),
    ]
    if row.matches and days:
        label = f"Bar chart: matches of {row.name} by hour"
        found.append(Figure("Matches by the hour of the day", partial(_hours, row, label), (), "Hours are UTC."))
    if row.everything.bytes:
        label = f"Bar chart: bytes that cross for {row.name}"
        found.append(Figure("Bytes that would cross", partial(_bytes, row, label)))
    if row.latest:
        found.append(_latest(number, row))
    return found


def _picture(row: PatternRow, width: int) -> str:
    drawn = row.explained.svg(width - 40)
    return f"<pre>{escape(row.explained.picture)}</pre>" if drawn is None else drawn


def _hours(row: PatternRow, label: str, width: int) -> str:
    items = [Bar(f"{hour}", count, title=f"{hour}:00 to {hour + 1}:00") for hour, count in enumerate(row.hours)]
    return columns(items, width=width, label=label, unit="matches", every=3 if width > 600 else 6)


def _bytes(row: PatternRow, label: str, width: int) -> str:
    items = []
    for colour, (way, named) in enumerate(WAYS.items()):
        traffic: Traffic | None = getattr(row, way)
        if traffic is not None:
            text = f"{size(traffic.bytes)}, {_some(traffic.events, 'event')}"
            items.append(Bar(named, traffic.bytes, colour=colour, text=text))
    return bars(items, width=width, label=label, unit="bytes")


def _latest(number: int, row: PatternRow) -> Table:
    """The last matches, the latest first."""
    last = list(reversed(row.latest[-LATEST:]))
    names = [name for name in last[0]["result"] if name != "match"][:FIELDS]
    rows = [
        Row((
            _time(each["time"], "milliseconds"),
            *(cut(shown(each["result"].get(name)), CELL) for name in names),
        ))
        for each in last
    ]  # fmt: skip
    count = f"The last {len(last)} of {row.matches:,} matches" if row.matches > len(last) else "Its matches"
    return Table(
        name=f"matches_of_pattern_{number}",
        title=f"{count} of {row.name}",
        columns=(Column("time", "text"), *(Column(name, "text") for name in names)),
        rows=tuple(rows),
        folded=True,
    )


def _time(when: datetime | None, unit: str = "seconds") -> str | None:
    return None if when is None else when.isoformat(sep=" ", timespec=unit).replace("+00:00", "")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


__all__ = ["blocks", "crossing", "matches", "notes", "tiles"]
