"""What a backtest of patterns found: how often each would have fired and when, and what would have crossed for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headwater.patterns.explanation import Explanation
from headwater.spark.backtest.report import ENGINES, FRAME, SHOWN, Traffic, moment, plain, width_name, write_tables
from headwater.text_tables import aligned

HOURS = 24
BARS = "▁▂▃▄▅▆▇█"
LATEST = 5  # matches of each pattern that are printed
MODEL = (
    f"bytes: the record and {FRAME} bytes more for each event that crosses to the node that wants the matches; what is "
    "published there does not cross. A pattern whose events all come from one other node runs there: then matches cross"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRow:
    """One pattern. `times` has its matches by stretch of time, `hours` by the hour of the day (UTC).

    `everything`: all events of its channels. `atoms`: those that fit an element by themselves. `marks`: those that do
    not, but count as rows or tell the time, and cross as marks; None where there can be none. `bound`, `bound_marks`:
    of both, later ones only where an earlier one has bound their values; None where that says nothing more, or was not
    counted. `results`: its matches."""

    name: str
    at: str
    text: str
    channels: tuple[str, ...]
    matches: int
    first: datetime | None
    last: datetime | None
    times: Mapping[datetime, int]
    hours: tuple[int, ...]
    latest: tuple[Mapping[str, Any], ...]  # the last matches: `time` and `result`
    everything: Traffic
    atoms: Traffic
    marks: Traffic | None
    bound: Traffic | None
    bound_marks: Traffic | None
    results: Traffic
    how: str  # what ran it
    explained: Explanation = field(compare=False, repr=False)  # with the picture
    late: int = 0
    given_up: int = 0
    beyond: int = 0  # matches after the last recorded event: of what is absent

    @property
    def asked_marks(self) -> Traffic | None:
        """The marks among what is asked at the sources."""
        return self.marks if self.bound is None else self.bound_marks

    @property
    def asked(self) -> Traffic:
        """What is asked at the sources, events and marks: with bound values, where there are such."""
        return (self.atoms if self.bound is None else self.bound) + (self.asked_marks or Traffic())


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternBacktest:
    """The whole report."""

    events: int
    first: datetime | None
    last: datetime | None
    width: timedelta | None
    patterns: tuple[PatternRow, ...]
    seconds: float
    engine: str
    notes: tuple[str, ...] = ()
    model: str = MODEL

    def pattern(self, name: str) -> PatternRow:
        """The row of one; KeyError if there is none."""
        for row in self.patterns:
            if row.name == name:
                return row
        raise KeyError(name)

    # ── for programs ──

    def to_dict(self) -> dict[str, Any]:
        rows = tuple(replace(row, explained=None) for row in self.patterns)  # type: ignore[arg-type]
        made: dict[str, Any] = plain(replace(self, patterns=rows))
        for row in made["patterns"]:
            del row["explained"]
            row["times"] = [{"start": start, "matches": count} for start, count in row["times"].items()]
        return made

    def to_json(self, *, indent: int | None = 1) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def write_csv(self, folder: str | os.PathLike[str]) -> list[Path]:
        """patterns.csv, with a row for each, fired.csv, with their matches over time, and fired_by_hour.csv."""
        names = [row.name for row in self.patterns]
        crossed = [f"{said} {what}" for said in WAYS.values() for what in ("events", "bytes")]
        tables: dict[str, tuple[list[str], list[list[Any]]]] = {
            "patterns": (
                ["name", "at", "matches", "first", "last", *crossed],
                [
                    [row.name, row.at, row.matches, plain(row.first), plain(row.last), *_numbers(row)]
                    for row in self.patterns
                ],
            ),
            "fired": (["start", *names], [[plain(start), *counts] for start, counts in self.over_time()]),
            "fired_by_hour": (
                ["hour", *names],
                [[hour, *(row.hours[hour] for row in self.patterns)] for hour in range(HOURS)],
            ),
        }
        return write_tables(folder, tables)

    def over_time(self) -> list[tuple[datetime, list[int]]]:
        """Stretches of time in which something fired, with the matches of each pattern."""
        starts = sorted({start for row in self.patterns for start in row.times})
        return [(start, [row.times.get(start, 0) for row in self.patterns]) for start in starts]

    # ── for people ──

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        """The report as text: how often, when, what would cross, and the last matches."""
        lines = [f"{self.events:,} events, {_some(len(self.patterns), 'pattern')}, in {self.seconds:,.1f} s"]
        if self.first is not None and self.last is not None:
            steps = f", in steps of {width_name(self.width)}" if self.width is not None else ""
            lines.append(f"from {_time(self.first)} to {_time(self.last)}{steps}")
        lines += ["", "How often each would have fired:"]
        head = ["name", "at", "matches", "first", "last", "by hour of the day (0 to 23 UTC)"]
        rows = [
            [row.name, row.at, f"{row.matches:,}", _time(row.first), _time(row.last), sparkline(row.hours)]
            for row in self.patterns
        ]
        lines += aligned(head, rows, [False, False, True, False, False, False])
        if found := self.over_time():
            lines += ["", "When:"]
            body = [[_time(start), *(f"{count:,}" for count in counts)] for start, counts in found[:SHOWN]]
            head = ["from", *(row.name for row in self.patterns)]
            lines += aligned(head, body, [False] + [True] * len(self.patterns))
            if len(found) > SHOWN:
                lines.append(f"… and {len(found) - SHOWN:,} more; --json has them all")
        lines += ["", "What would cross to the node that wants the matches:"]
        rows = [each for row in self.patterns for each in _crossing(row)]
        lines += aligned(["name", "", "events", "bytes", "fewer"], rows, [False, False, True, True, True])
        for row in self.patterns:
            if row.latest:
                lines += ["", f"The last matches of {row.name}:"]
                lines += [f"  {_time(each['time'])}  {_told(each)}" for each in row.latest[-LATEST:]]
        lines += ["", self.model, f"run {ENGINES.get(self.engine, self.engine)}"]
        lines += [f"{row.name}: {row.how}" for row in self.patterns]
        return lines + [f"note: {note}" for note in self.notes]


WAYS = {  # as tables call them
    "everything": "all",
    "atoms": "atoms",
    "marks": "marks",
    "bound": "bound",
    "bound_marks": "bound marks",
    "results": "matches",
}


def sparkline(counts: Sequence[int]) -> str:
    """Counts as bars of letters; nothing where there is none."""
    top = max(counts, default=0)
    return "".join(BARS[(count * len(BARS) - 1) // top] if count else "·" for count in counts)


def _numbers(row: PatternRow) -> list[int | None]:
    found: list[int | None] = []
    for way in WAYS:
        traffic: Traffic | None = getattr(row, way)
        found += [None, None] if traffic is None else [traffic.events, traffic.bytes]
    return found


def _crossing(row: PatternRow) -> Iterator[list[str]]:
    """A line for each way that something could cross; what is not counted has none. Marks are beside the events: what
    is saved says the line of these."""
    beside = {"atoms": row.marks, "bound": row.bound_marks}
    for at, (way, said) in enumerate(WAYS.items()):
        traffic: Traffic | None = getattr(row, way)
        if traffic is not None:
            all_of_it = traffic + (beside.get(way) or Traffic())
            saved = all_of_it.saved(row.everything) if at and not way.endswith("marks") else None
            fewer = "" if saved is None else f"{100 * saved:.1f} %"
            yield [row.name if not at else "", said, f"{traffic.events:,}", f"{traffic.bytes:,}", fewer]


def _told(match: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {shown(value)}" for name, value in match["result"].items() if name != "match")
    return said if len(said) <= 160 else f"{said[:159]}…"


def shown(value: object) -> str:
    """A value of a result on a line: events and lists of them in brackets."""
    match value:
        case None:
            return "–"
        case dict():
            return f"({', '.join(f'{name} {shown(each)}' for name, each in value.items())})"
        case list():
            return f"[{', '.join(map(shown, value))}]"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
    return str(value)


def _time(when: datetime | None) -> str:
    return "–" if when is None else when.isoformat(sep=" ", timespec="seconds").replace("+00:00", "")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


__all__ = ["PatternBacktest", "PatternRow", "moment", "shown", "sparkline"]
