"""Trying triggers over several nodes on recorded changes: `backtest_distributed(spark, log, triggers)`.

What their owners and their home would have said to each other, with safe zones and without, and when they would have
fired, by the rules that nodes go by, in simulated time. The changes of the few objects that a trigger reads are looked
for by Spark, or by this process, which then does the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from headwater.errors import ConfigError, ConfigProblem, HeadwaterError, ObjectError
from headwater.objects.names import object_name
from headwater.objects.object_types import packed
from headwater.objects.zones.distribution import Spread, spread
from headwater.objects.zones.rehearsal import Changed, Rehearsal, Step, merged
from headwater.spark.backtest.report import ENGINES, moment, plain, write_tables
from headwater.spark.backtest.triggers import frames, local
from headwater.spark.backtest.triggers.asked import AskedTrigger
from headwater.spark.backtest.triggers.recording import Entry, Objects, OfNode, Package, Table
from headwater.spark.backtest.triggers.run import length_of, source_of
from headwater.spark.backtest.triggers.sources import FrameSource, LogSource
from headwater.text_tables import aligned
from headwater.types import EventType

HOME = "home"  # the node of a trigger that is tried: what its names without an owner are of
SHOWN = 5  # firings of each that are printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Messages in both directions, and their bytes without frames; zones and questions are among them."""

    messages: int
    bytes: int
    zones: int
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedRow:
    """One trigger. `changes` of the objects that each owner has of it; `zones` and `simple` are what crosses by either
    scheme (`zones` is None where no box says anything of it). `firings` have `time`, by the owners' clocks, `known`,
    when the home knew of it, and the `values` of inputs that are known then."""

    name: str
    changes: Mapping[str, int]
    zones: Cost | None
    simple: Cost
    firings: tuple[Mapping[str, Any], ...]
    decides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what each owner measures
    warnings: tuple[str, ...] = ()

    @property
    def saved(self) -> float | None:
        """The share of messages that zones save; None where there are none."""
        if self.zones is None or not self.simple.messages:
            return None
        return 1 - self.zones.messages / self.simple.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedBacktest:
    """The whole report."""

    delay: float  # seconds, one way
    triggers: tuple[DistributedRow, ...]
    seconds: float
    engine: str
    notes: tuple[str, ...] = ()

    def trigger(self, name: str) -> DistributedRow:
        """The row of one; KeyError if there is none."""
        for row in self.triggers:
            if row.name == name:
                return row
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    def to_json(self, *, indent: int | None = 1) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, default=str)

    def write_csv(self, folder: str | os.PathLike[str]) -> list[Path]:
        """distributed.csv, with a row for each trigger."""
        head = ["name", "changes", "fired", "zones", "zones bytes", "simple", "simple bytes"]
        rows: list[list[Any]] = []
        for row in self.triggers:
            zones = ("", "") if row.zones is None else (row.zones.messages, row.zones.bytes)
            rows.append([row.name, sum(row.changes.values()), len(row.firings), *zones, row.simple.messages,
                         row.simple.bytes])  # fmt: skip
        return write_tables(folder, {"distributed": (head, rows)})

    def __str__(self) -> str:
        lines = [f"{len(self.triggers):,} triggers over several nodes, {1000 * self.delay:g} ms from one to another"]
        head = ["name", "changes", "fired", "zones", "bytes", "simple", "bytes", "fewer"]
        rows = []
        for row in self.triggers:
            zones = ["–", "–"] if row.zones is None else [f"{row.zones.messages:,}", f"{row.zones.bytes:,}"]
            fewer = "–" if row.saved is None else f"{100 * row.saved:.1f} %"
            rows.append([row.name, f"{sum(row.changes.values()):,}", f"{len(row.firings):,}", *zones,
                         f"{row.simple.messages:,}", f"{row.simple.bytes:,}", fewer])  # fmt: skip
        lines += ["", "Messages, in both directions:", *aligned(head, rows, [False, *[True] * 7])]
        for row in self.triggers:
            if row.firings:
                lines += ["", f"The last firings of {row.name}:"]
                lines += [f"  {_time(each['time'])}  {json.dumps(each['values'])}" for each in row.firings[-SHOWN:]]
        lines += ["", "bytes: of the messages, without frames; heartbeats of the links are not counted",
                  f"run {ENGINES.get(self.engine, self.engine)}"]  # fmt: skip
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def _time(when: datetime) -> str:
    return when.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "")


def backtest_distributed(
    spark: Any,
    log: Any,
    triggers: Iterable[AskedTrigger],
    *,
    delay: str = "20 ms",
    beat: str = "1 s",
    types: Mapping[str, Any] | None = None,
) -> DistributedBacktest:
    """When triggers over objects of several nodes would have fired, and how many messages that would have taken, by
    safe zones and by the simple scheme. Inputs have whole names: `inputs={"a": "//north/car", "b": "//south/car"}`.

    `delay` is how long a message takes, and `beat` how often links have a heartbeat; nothing is lost. `spark` and `log`
    are as in `backtest_triggers`. They are as if installed before the first change."""
    started = monotonic()
    lengths = {"delay": length_of("delay", delay), "beat": length_of("beat", beat)}
    source = source_of(spark, log, types)
    wanted = _spread(spark, source, list(triggers))
    rows = [_row(spark, source, each, **lengths) for each in wanted]
    notes = ["updates without an event are in no log: of them only the next change is known"]
    notes += [f"{row.name}: {warning}" for row in rows for warning in row.warnings]
    return DistributedBacktest(
        delay=lengths["delay"] / 1e6,
        triggers=tuple(rows),
        seconds=monotonic() - started,
        engine="local" if spark is None else "spark",
        notes=tuple(notes),
    )


# ── what is tried ──


def _spread(spark: Any, source: LogSource | FrameSource, asked: Sequence[AskedTrigger]) -> list[Spread]:
    """All of them, checked; a ConfigError has everything that is wrong."""
    names = {name for each in asked for name in map(_object, each.inputs.values()) if name is not None}
    found = source.find(spark, names) if names else {}

    def type_of(node: str, object: str, named: str) -> tuple[str, EventType]:
        several = {named} & source.objects.keys() if named else found.get(f"//{node}/{object}", set())
        if len(several) != 1:
            there = f"one of {', '.join(sorted(several))}" if several else "none"
            raise ObjectError(
                f"inputs: //{node}/{object}: expected changes of it of one type, or (name, type), found {there}; the "
                f"recording has {', '.join(source.objects) or 'no objects'} of {', '.join(source.nodes) or 'no node'}"
            )
        name = next(iter(several))
        return name, source.objects[name]

    made: list[Spread] = []
    problems: list[ConfigProblem] = []
    for number, each in enumerate(asked, 1):
        try:
            made.append(
                spread(each.name, node=HOME, type_of=type_of, on=each.on, when=each.when, where=each.where,
                       inputs=each.inputs, params=each.params, scheme="zones", history=each.history, veto=each.veto,
                       coupling=each.coupling, notify=each.notify or True)
            )  # fmt: skip
        except (HeadwaterError, TypeError, ValueError) as error:
            told = "\n    ".join(str(error).splitlines())
            place = each.place or f"trigger {number}"
            problems.append(ConfigProblem(f"{place} {each.name!r}", "a trigger over objects of several nodes", told))
    if not asked:
        problems.append(ConfigProblem("triggers", "at least one", "none"))
    if problems:
        raise ConfigError(problems)
    return made


def _object(given: Any) -> str | None:
    """The whole name of an input's object; None where it has none, or says its type."""
    if not isinstance(given, str):
        return None
    try:
        return str(object_name(given, HOME).whole)
    except ObjectError:
        return None  # it is told when it is spread


# ── running it ──


def _row(spark: Any, source: LogSource | FrameSource, wanted: Spread, *, delay: int, beat: int) -> DistributedRow:
    """One trigger, by both schemes."""
    trigger = wanted.trigger
    whole = {str(object_name(each.name).whole) for each in trigger.inputs.values()}
    kinds = {each.type for each in trigger.inputs.values()}
    owners = sorted({object_name(name).node for name in whole})
    tables = [Table(f"objects.{name}", packed(source.objects[name])) for name in sorted(kinds)]
    steps = list(merged(_steps(spark, source, tables, owners, Objects(frozenset(whole), frozenset()))))
    costs: dict[bool, Cost] = {}
    for zones in (False, True):
        tried = Rehearsal(trigger, source.objects.get, begin=steps[0].at if steps else 1, delay=delay, beat=beat,
                          zones=zones)  # fmt: skip
        if zones and not tried.gives_zones:
            continue
        rehearsal = tried
        rehearsal.run(steps)
        counts = rehearsal.counts
        costs[zones] = Cost(messages=counts.messages, bytes=rehearsal.bytes, zones=counts.zones,
                            questions=counts.questions)  # fmt: skip
    told = wanted.condition.told
    return DistributedRow(
        name=trigger.name,
        changes=rehearsal.changes,
        zones=costs.get(True),
        simple=costs[False],
        firings=tuple(
            {
                "time": moment(each.time),
                "earliest": moment(each.earliest),
                "known": moment(each.known),
                "values": {} if told is None else msgspec.to_builtins(each.values),
            }
            for each in rehearsal.told
        ),
        decides={owner: part.names for owner, part in wanted.condition.parts.items()},
        warnings=wanted.warnings,
    )


def _steps(
    spark: Any, source: LogSource | FrameSource, tables: Sequence[Table], owners: Sequence[str], objects: Objects
) -> list[Iterator[Step]]:
    """The transactions of each owner that concern these objects, in their order."""
    package = Package(
        {node: OfNode(0, 0, 0, [], {}) for node in owners},
        {table.objects: table.form for table in tables},
        list(tables),
        None,
    )
    types = [table.type for table in tables]
    if spark is None:
        assert isinstance(source, LogSource)
        files = source.files
        return [_transactions(local.entries_of(files, package, node, objects), types) for node in owners]
    read = {table.channel: source.frame(spark, table.channel) for table in tables}
    rows = frames.sorted_rows(spark, package, read, {}, objects, apart=False).toArrow()
    by_node: dict[str, list[Entry]] = {node: [] for node in owners}
    for entry in frames.entries(package, rows.combine_chunks().to_batches()):
        by_node[entry.node].append(entry)
    return [_transactions(iter(many), types) for many in by_node.values()]


def _transactions(entries: Iterator[Entry], types: Sequence[EventType]) -> Iterator[Step]:
    """Rows of one node, by transaction."""
    gathered: list[Changed] = []
    step: tuple[str, int, int, int] | None = None
    for entry in entries:
        raw = entry.raw
        here = entry.node, raw["at"], raw["turn"], raw["step"] or 0
        if step is not None and here != step:
            yield Step(step[0], step[1], gathered)
            gathered = []
        step = here
        gathered.append(Changed(raw["object"][2:].partition("/")[2], types[entry.table], raw["new"]))
    if step is not None:
        yield Step(step[0], step[1], gathered)


__all__ = ["Cost", "DistributedBacktest", "DistributedRow", "backtest_distributed"]
