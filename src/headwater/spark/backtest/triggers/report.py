"""What a backtest of triggers found: when each would have fired and with which values, how often, and what it would
have sent; what the recording does not say is noted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headwater.late import pa
from headwater.objects.object_types import packed, unpacked
from headwater.objects.triggers.installed import Installed
from headwater.spark.backtest.report import ENGINES, FRAME, SHOWN, Traffic, moment, plain, width_name, write_tables
from headwater.spark.backtest.triggers.replaying import Counted, Kept
from headwater.spark.schema import spark_schema, to_spark_arrow
from headwater.text_tables import aligned
from headwater.types import EventType

LATEST = 5  # firings of each trigger that are printed
MODEL = (
    f"bytes: the record of each notification and {FRAME} bytes more, once for each node that listens; actions are not "
    "carried out, and a veto keeps nothing from happening: what follows is what was recorded"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """One trigger, over all nodes. `evaluated` is what a node would count; `messages` are its notifications. `times`
    has its firings by stretch of time, `latest` the last of them: node, object, op, time, turn, vetoed and values."""

    name: str
    evaluated: int
    fired: int
    vetoed: int
    failed: int
    failure: str
    messages: Traffic
    first: datetime | None
    last: datetime | None
    times: Mapping[datetime, int]
    latest: tuple[Mapping[str, Any], ...]
    type: EventType | None = field(compare=False, default=None)  # of its notifications


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerBacktest:
    """The whole report. `firings` are all of them: on Spark a DataFrame, else an Arrow table, with `node`, `trigger`,
    `object`, `op`, `time`, `turn` (missing for what time or a channel brought), `vetoed` and `values`, as JSON text."""

    nodes: tuple[str, ...]
    changes: int
    events: int
    first: datetime | None
    last: datetime | None
    width: timedelta | None
    triggers: tuple[TriggerRow, ...]
    how: str
    seconds: float
    engine: str
    notes: tuple[str, ...] = ()
    model: str = MODEL
    rows: Any = field(compare=False, repr=False, default=None)  # firings, with records and places

    def trigger(self, name: str) -> TriggerRow:
        """The row of one; KeyError if there is none."""
        for row in self.triggers:
            if row.name == name:
                return row
        raise KeyError(name)

    # ── for programs ──

    @property
    def firings(self) -> Any:
        """All firings in their order: a DataFrame, or an Arrow table."""
        shown = ["node", "trigger", "object", "op", "time", "turn", "vetoed", "values"]
        if self.engine == "spark":
            return self.rows.orderBy("time", "place", "node").select(*shown)
        return self.rows.select(shown)

    def notifications(self, name: str) -> Any:
        """The notifications of one trigger, as its subscribers would have had them: a DataFrame, or an Arrow table."""
        type = self.trigger(name).type
        if type is None:
            raise KeyError(f"trigger {name!r} notifies nobody; try it with notify=")
        if self.engine != "spark":
            rows = self.rows.to_pylist()
            told = [row["message"] for row in rows if row["trigger"] == name and row["message"] is not None]
            return pa.Table.from_batches([type.records_to_arrow(told)])
        mine = self.rows.where(self.rows.trigger == name).where("message IS NOT NULL")

        form = packed(type)

        def headwater_notifications(batches: Iterator[Any]) -> Iterator[Any]:
            return _decoded(form, batches)

        return mine.select("message").mapInArrow(headwater_notifications, spark_schema(type.record))

    def counts(self) -> dict[str, dict[str, int]]:
        """By trigger: evaluated, fired, vetoed, failed, messages and their bytes."""
        return {
            row.name: {
                "evaluated": row.evaluated, "fired": row.fired, "vetoed": row.vetoed, "failed": row.failed,
                "messages": row.messages.events, "bytes": row.messages.bytes,
            }
            for row in self.triggers
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        rows = tuple(replace(row, type=None) for row in self.triggers)
        made: dict[str, Any] = plain(replace(self, rows=None, triggers=rows))
        del made["rows"]
        for row in made["triggers"]:
            del row["type"]
            row["times"] = [{"start": start, "fired": count} for start, count in row["times"].items()]
        return made

    def to_json(self, *, indent: int | None = 1) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def write_csv(self, folder: str | os.PathLike[str]) -> list[Path]:
        """triggers.csv, with a row for each, and trigger_times.csv, with their firings over time."""
        counts = self.counts()
        head = ["name", *next(iter(counts.values()), {}), "first", "last"]
        body: list[list[Any]] = [
            [row.name, *counts[row.name].values(), plain(row.first), plain(row.last)] for row in self.triggers
        ]
        over_time = [[plain(start), *found] for start, found in self.over_time()]
        tables = {
            "triggers": (head, body),
            "trigger_times": (["start", *(row.name for row in self.triggers)], over_time),
        }
        return write_tables(folder, tables)

    def over_time(self) -> list[tuple[datetime, list[int]]]:
        """Stretches of time in which something fired, with how often each did."""
        starts = sorted({start for row in self.triggers for start in row.times})
        return [(start, [row.times.get(start, 0) for row in self.triggers]) for start in starts]

    # ── for people ──

    def show(self) -> None:
        """Print it."""
        print(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        """The report as text: how often, when, what would have been sent, and the last firings."""
        heard = f" and {self.events:,} events of channels" if self.events else ""
        of = f"of {', '.join(self.nodes)}" if len(self.nodes) <= 5 else f"of {len(self.nodes):,} nodes"
        lines = [f"{self.changes:,} changes{heard} {of}, {len(self.triggers):,} triggers, in {self.seconds:,.1f} s"]
        if self.first is not None and self.last is not None:
            steps = f", in steps of {width_name(self.width)}" if self.width is not None else ""
            lines.append(f"from {_time(self.first)} to {_time(self.last)}{steps}")
        lines += ["", "How often each would have fired:"]
        head = ["name", "evaluated", "fired", "vetoed", "failed", "messages", "bytes", "first", "last"]
        counts = self.counts()
        rows = [
            [row.name, *(f"{value:,}" for value in counts[row.name].values()), _time(row.first), _time(row.last)]
            for row in self.triggers
        ]
        lines += aligned(head, rows, [False, *[True] * 6, False, False])
        if found := self.over_time():
            lines += ["", "When:"]
            body = [[_time(start), *(f"{count:,}" for count in counted)] for start, counted in found[:SHOWN]]
            lines += aligned(["from", *(row.name for row in self.triggers)], body,
                             [False] + [True] * len(self.triggers))  # fmt: skip
            if len(found) > SHOWN:
                lines.append(f"… and {len(found) - SHOWN:,} more; --json has them all")
        for row in self.triggers:
            if row.latest:
                lines += ["", f"The last firings of {row.name}:"]
                lines += [_told(each) for each in row.latest[-LATEST:]]
        lines += ["", self.model, f"run {ENGINES.get(self.engine, self.engine)}: {self.how}"]
        return lines + [f"note: {note}" for note in self.notes]


def _decoded(form: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """Records of notifications, in a worker."""
    type = unpacked(form)
    for batch in batches:
        yield to_spark_arrow(type.records_to_arrow(batch.column("message").to_pylist()), type.record)


def trigger_row(name: str, counted: Counted, width: int | None, installed: Installed) -> TriggerRow:
    """What the report says of one."""
    counted.trim()
    return TriggerRow(
        name=name,
        evaluated=counted.evaluated,
        fired=counted.fired,
        vetoed=counted.vetoed,
        failed=counted.failed,
        failure=counted.failure,
        messages=Traffic(counted.messages, counted.record_bytes + FRAME * counted.messages),
        first=None if counted.first is None else moment(counted.first),
        last=None if counted.last is None else moment(counted.last),
        times={
            start: count
            for at, count in sorted(counted.times.items())
            if (start := moment(at * (width or 1))) is not None
        },
        latest=tuple(map(_shown, counted.latest)),
        type=None if installed.notification is None else installed.notification.type,
    )


def _shown(kept: Kept) -> dict[str, Any]:
    return {
        "node": kept.node, "object": kept.object, "op": kept.op, "time": moment(kept.time), "turn": kept.turn,
        "vetoed": kept.vetoed, "values": None if kept.values is None else json.loads(kept.values),
    }  # fmt: skip


def _told(each: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {json.dumps(value)}" for name, value in (each["values"] or {}).items())
    turn = "" if each["turn"] is None else f", turn {each['turn']:,}"
    said = f"  {_time(each['time'])}  {each['object']} {each['op']}{turn}{' vetoed' if each['vetoed'] else ''}"
    said += f": {values}" if values else ""
    return said if len(said) <= 160 else f"{said[:159]}…"


def _time(when: datetime | None) -> str:
    return "–" if when is None else when.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "")


__all__ = ["TriggerBacktest", "TriggerRow", "trigger_row"]
