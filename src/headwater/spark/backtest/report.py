"""What a backtest found: tables for people (`str`), for programs (`to_dict`, `to_json`) and for sheets (`write_csv`).

Bytes are what would go over the wire, by this model: each event that crosses is its record, as the event type lays it
out, and `FRAME` bytes more, as an event that is sent alone has: those of the frame, less the record's header, that
does not travel. To a node with interests that run by themselves events, and what those have made of events, go marked,
which takes `MARK` bytes more. A multicast datagram has `DATAGRAM` bytes more.
Under load events share frames and take less; acknowledgements, and the headers of TCP, UDP and IP, are not counted.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headwater.federation.multicast.datagram import OVERHEAD as DATAGRAM
from headwater.federation.wire.events import EVENT_AT, encode_events
from headwater.federation.wire.kinds import PREFIX
from headwater.text_tables import aligned
from headwater.types.layout import HEADER_SIZE

# Length, kind, source, number, sequence number and stamp, without the record's header.
FRAME = PREFIX.size + EVENT_AT - HEADER_SIZE
# What an event takes more that is marked with the interest that passed it.
MARK = len(encode_events(0, 0, [1], [0], [b""], [(1,)])) - HEADER_SIZE - FRAME
MODEL = (
    f"bytes: the record and {FRAME} bytes more for each event that crosses, {MARK} more to a node some of whose "
    f"interests run by themselves, {DATAGRAM} more for a multicast datagram; without acknowledgements and the headers "
    "of TCP, UDP and IP"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ENGINES = {"spark": "on Spark", "local": "in this process, without Spark"}
SHOWN = 40  # rows of a table that are printed; files have them all


@dataclass(frozen=True, slots=True)
class Traffic:
    """Events that cross, and the bytes they take."""

    events: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.events + other.events, self.bytes + other.bytes)

    def saved(self, before: Traffic) -> float | None:
        """The share of bytes that is saved against `before`; None where there were none."""
        return 1 - self.bytes / before.bytes if before.bytes else None


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """One subscription: what it would have received, and what the service would count.

    `evaluated == passed + rejected + undecided`; `events` is what passed. `bytes` are with frames, `record_bytes`
    without: the outputs' for a transformation."""

    name: str
    at: str
    events: int
    bytes: int
    record_bytes: int
    evaluated: int
    passed: int
    rejected: int
    undecided: int
    faults: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LinkRow:
    """From a source's node to a sink's node; None is a source whose node is not known.

    `unfiltered`: all events, once. `filtered`: what each subscription wants, each on its own. `merged`: what any
    filter of them wants, once, and the results of those that run by themselves: this is what Headwater sends."""

    source: str | None
    sink: str
    unfiltered: Traffic
    filtered: Traffic
    merged: Traffic


@dataclass(frozen=True, slots=True)
class SinkRow:
    """All links to one node."""

    sink: str
    subscriptions: int
    unfiltered: Traffic
    filtered: Traffic
    merged: Traffic


@dataclass(frozen=True, slots=True)
class SourceRow:
    """All links from one node. `published` are its events and their records; `multicast` is what it would send if
    one datagram served all nodes that want an event."""

    source: str | None
    published: Traffic
    unfiltered: Traffic
    filtered: Traffic
    merged: Traffic
    multicast: Traffic


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A stretch of time, from `start` (None: events without a time). `received` has the events of each subscription,
    `sources` those that each source's node published, in the order of their tables."""

    start: datetime | None
    events: int
    unfiltered: Traffic
    filtered: Traffic
    merged: Traffic
    multicast: Traffic
    received: tuple[int, ...]
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Backtest:
    """The whole report."""

    channel: str | None
    type: str
    events: int
    first: datetime | None  # time of the earliest event; None where times are not known
    last: datetime | None  # of the latest
    width: timedelta | None
    unfiltered: Traffic
    filtered: Traffic
    merged: Traffic
    multicast: Traffic
    local: int  # events for sinks of the source's own node, which do not cross
    subscriptions: tuple[SubscriptionRow, ...]
    links: tuple[LinkRow, ...]
    sinks: tuple[SinkRow, ...]
    sources: tuple[SourceRow, ...]
    times: tuple[TimeRow, ...]
    seconds: float
    how: str
    engine: str = "spark"  # what judged the events: "spark", or "local", which is the process that asked
    notes: tuple[str, ...] = ()
    model: str = MODEL

    def subscription(self, name: str) -> SubscriptionRow:
        """The row of one subscription; KeyError if there is none."""
        for row in self.subscriptions:
            if row.name == name:
                return row
        raise KeyError(name)

    # ── for programs ──

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = plain(self)
        return made

    def to_json(self, *, indent: int | None = 1) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def write_csv(self, folder: str | os.PathLike[str]) -> list[Path]:
        """One file for each table in a folder, which is made where there is none; their paths."""
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        names = [row.name for row in self.subscriptions]
        made = []
        tables: dict[str, Sequence[Any]] = {
            "subscriptions": self.subscriptions,
            "links": self.links,
            "sinks": self.sinks,
            "sources": self.sources,
            "times": self.times,
        }
        for name, rows in tables.items():
            path = where / f"{name}.csv"
            flat = [_flat(plain(row)) for row in rows]
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(flat[0]) if flat else ["nothing"])
                writer.writeheader()
                writer.writerows(flat)
            made.append(path)
        path = where / "received.csv"  # subscriptions by time
        with path.open("w", encoding="utf-8", newline="") as file:
            writing = csv.writer(file)
            writing.writerow(["start", *names])
            writing.writerows([plain(row.start), *row.received] for row in self.times)
        return [*made, path]

    # ── for people ──

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        """The report as text: traffic first, then subscriptions, what was undecided, and notes."""
        channel = f" of {self.channel}" if self.channel else ""
        lines = [
            f"{self.events:,} events{channel} ({self.type}), {len(self.subscriptions):,} subscriptions at "
            f"{len(self.sinks):,} node{'s' * (len(self.sinks) != 1)}, in {self.seconds:,.1f} s"
        ]
        if self.first is not None and self.last is not None and self.width is not None:
            lines.append(f"from {_time(self.first)} to {_time(self.last)}, in steps of {width_name(self.width)}")
        lines += ["", "What would cross between nodes:"]
        rows = [
            ["unfiltered: everything, once to each node", *_traffic(self.unfiltered), ""],
            ["filtered: each subscription on its own", *_traffic(self.filtered), _percent(self.filtered, self)],
            ["merged: an event once to a node's filters", *_traffic(self.merged), _percent(self.merged, self)],
            ["multicast: each event once", *_traffic(self.multicast), _percent(self.multicast, self)],
        ]
        lines += _table(["", "events", "bytes", "of unfiltered"], rows)
        lines.append(f"merging {_saves(self.merged.saved(self.filtered))} filtered subscriptions one by one, "
                     f"multicast {_saves(self.multicast.saved(self.merged))} that")  # fmt: skip
        if self.local:
            lines.append(f"{self.local:,} events were for sinks of their own node and do not cross")
        lines += ["", "Subscriptions, the largest first:"]
        ranked = sorted(self.subscriptions, key=lambda row: -row.events)
        body = [
            [
                row.name,
                row.at,
                f"{row.events:,}",
                f"{row.bytes:,}",
                _part(row.events, self.events),
                f"{row.undecided:,}",
                _faults(row.faults),
            ]
            for row in ranked[:SHOWN]
        ]
        lines += _table(["name", "at", "events", "bytes", "of all", "undecided", "faults"], body)
        lines += _more(ranked)
        lines += ["", "Links:"]
        links = sorted(self.links, key=lambda row: -row.merged.bytes)
        body = [
            [row.source or "?", row.sink, *_traffic(row.unfiltered), *_traffic(row.filtered), *_traffic(row.merged)]
            for row in links[:SHOWN]
        ]
        columns = [f"{what} {of}" for what in ("unfiltered", "filtered", "merged") for of in ("events", "bytes")]
        lines += _table(["from", "to", *columns], body)
        lines += _more(links)
        lines += ["", self.model, f"judged by {self.how}, {ENGINES.get(self.engine, self.engine)}"]
        lines += [f"note: {note}" for note in self.notes]
        return lines


def width_name(width: timedelta) -> str:
    """As on the command line: 15m, 1h, 7d."""
    seconds = int(width.total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(micros: int) -> datetime | None:
    """A time from microseconds; None where it is beyond what a datetime can say."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def write_tables(
    folder: str | os.PathLike[str], tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]
) -> list[Path]:
    """Tables by name, each with its head and rows, as CSV files of a folder."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    made = []
    for name, (head, rows) in tables.items():
        path = where / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(rows)
        made.append(path)
    return made


def plain(value: Any) -> Any:
    """As JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {key: plain(of) for key, of in value.items()}
        case tuple() | list():
            return [plain(each) for each in value]
    return value


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and "events" in value:
            made |= {f"{key} {of}": number for of, number in value.items()}
        elif isinstance(value, Mapping):
            made[key] = " ".join(f"{name}={number}" for name, number in value.items())
        elif not isinstance(value, list):
            made[key] = value
    return made


def _traffic(traffic: Traffic) -> list[str]:
    return [f"{traffic.events:,}", f"{traffic.bytes:,}"]


def _percent(traffic: Traffic, report: Backtest) -> str:
    return _part(traffic.bytes, report.unfiltered.bytes)


def _part(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "–"


def _saves(share: float | None) -> str:
    if share is None:
        return "takes as much as"
    return f"takes {100 * abs(share):.1f}% {'less' if share >= 0 else 'more'} than"


def _faults(faults: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in faults.items()) or "–"


def _more(rows: Sequence[Any]) -> list[str]:
    return [f"… and {len(rows) - SHOWN:,} more; --json has them all"] if len(rows) > SHOWN else []


def _time(when: datetime) -> str:
    return when.isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Text on the left, numbers on the right."""
    right = [all(not row[at] or row[at][0].isdigit() or row[at] == "–" for row in rows) for at in range(len(head))]
    return aligned(head, rows, right) if rows else ["  none"]


__all__ = [
    "DATAGRAM",
    "FRAME",
    "MARK",
    "MODEL",
    "Backtest",
    "LinkRow",
    "SinkRow",
    "SourceRow",
    "SubscriptionRow",
    "TimeRow",
    "Traffic",
    "moment",
    "plain",
    "width_name",
]
