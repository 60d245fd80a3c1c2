"""Trying triggers on recorded changes: `backtest_triggers(spark, log, triggers)`.

The code that judges triggers in a node's turns judges them here, over the changes in the order of their turns. On Spark
a task has all of a node, which is one serial world; where triggers look at nothing but the object that an event is of,
a task has some of its objects.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.late import pa, pc
from headwater.objects.object_types import packed
from headwater.objects.triggers import definition, events
from headwater.objects.triggers.definition import Trigger
from headwater.objects.triggers.installed import Installed
from headwater.spark.backtest.backtest import bucket_width
from headwater.spark.backtest.patterns.run import stretch
from headwater.spark.backtest.report import moment
from headwater.spark.backtest.triggers import frames, local
from headwater.spark.backtest.triggers.asked import AskedTrigger, placed
from headwater.spark.backtest.triggers.recording import (
    HELD,
    KnownTypes,
    OfNode,
    Package,
    Table,
    checked,
    objects_of,
    separable,
    tables_of,
    unnamed_types,
)
from headwater.spark.backtest.triggers.replaying import Counted, Replaying, Row, Tally, load_tally
from headwater.spark.backtest.triggers.report import TriggerBacktest, trigger_row
from headwater.spark.backtest.triggers.sources import FrameSource, LogSource, Span
from headwater.types import EventType

Asked = AskedTrigger | Trigger


def backtest_triggers(
    spark: Any,
    log: str | os.PathLike[str] | Mapping[str, Any],
    triggers: Iterable[Asked],
    *,
    initial: Mapping[str, Any] | None = None,
    types: Mapping[str, Any] | None = None,
    bucket: str = "auto",
) -> TriggerBacktest:
    """When these triggers would have fired over recorded changes of objects, with which values, and what they would
    have sent. They are as if installed before the first change.

    `spark` is the session that does the work; with None this process does it. `log` is the folder of a log, or, on
    Spark, DataFrames with the columns of one, by the names of the objects' types (and of channels), whose `types` say
    what the objects are. `initial` says which objects there were before: tables of `objects.to_arrow(type)`, by type;
    what was recorded up to their last turn is then passed over."""
    started = monotonic()
    width = bucket_width(bucket)
    source = source_of(spark, log, types)
    asked = placed(list(triggers), source.nodes)
    held = _Held(initial or {}, source.objects)
    known = _known(spark, source, asked, held)
    installed = checked(asked, known)
    tables = tables_of(installed, source.objects, source.channels)
    spans = _spans(source, tables, list(asked))
    whole = _whole(spans.values())
    if width == 0:
        width = None if whole is None else stretch(whole.first, whole.last)
    package = Package(
        {node: _plan(spans[node], asked[node], known[node], held, node) for node in asked if node in spans},
        {name: packed(type) for name, type in source.objects.items()},
        tables,
        width,
    )
    apart = separable(installed)
    tally, rows = _run(spark, source, package, held.changes(tables), installed, apart)
    by_name = {each.name: each for each in installed}
    made = [trigger_row(name, tally.triggers.get(name, Counted()), width, each) for name, each in by_name.items()]
    return TriggerBacktest(
        nodes=tuple(package.nodes),
        changes=tally.changes,
        events=tally.events,
        first=None if whole is None else moment(whole.first),
        last=None if whole is None else moment(whole.last),
        width=None if width is None else timedelta(microseconds=width),
        triggers=tuple(made),
        how="each object by itself" if apart else "each node as a whole, since triggers look at several objects",
        seconds=monotonic() - started,
        engine="local" if spark is None else "spark",
        notes=tuple(_notes(tally, installed, tables)),
        rows=rows,
    )


# ── what there is ──


def source_of(spark: Any, log: Any, types: Mapping[str, Any] | None) -> LogSource | FrameSource:
    """Where changes are."""
    if not isinstance(log, Mapping):
        if types:
            raise _problem("types", "the log itself to say them", "some beside it", "leave them out")
        return LogSource(log)
    if spark is None:
        raise _problem("log", "the folder of a log, in this process", "DataFrames", "give the session that has them")
    return FrameSource(log, types or {})


def length_of(name: str, text: str) -> int:
    """A length of time that was given, in microseconds."""
    try:
        length, rest = events.duration(text)
    except (TypeError, ValueError) as error:
        raise _problem(name, "a length of time, such as 20 ms", str(error)) from None
    if rest:
        raise _problem(name, "a length of time, such as 20 ms", repr(text))
    return length


def _problem(place: str, expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError([ConfigProblem(f"backtest: {place}", expected, found, hint)])


class _Held:
    """The objects that there were before, as tables of `objects.to_arrow`, by type."""

    def __init__(self, initial: Mapping[str, Any], types: Mapping[str, EventType]) -> None:
        problems = [
            ConfigProblem(
                f"backtest: initial: {name}", f"one of {', '.join(types) or 'none'}", "no such type of objects"
            )
            for name in initial
            if name not in types
        ]
        problems += [
            ConfigProblem(f"backtest: initial: {name}", "what objects.to_arrow(type) gives", type(table).__name__)
            for name, table in initial.items()
            if not isinstance(table, pa.Table) or not {"object", "turn", "at"} <= set(table.column_names)
        ]
        if problems:
            raise ConfigError(problems)
        self._tables, self._types = dict(initial), types
        self.named: dict[str, dict[str, str]] = {}  # by node, paths and names of types
        self.last: dict[str, tuple[int, int]] = {}  # by node, the last turn and its time
        for name, table in initial.items():
            columns = (table.column("object"), table.column("turn"), table.column("at").cast(pa.int64()))
            for object, turn, at in zip(*(column.to_pylist() for column in columns), strict=True):
                node, _, path = object[2:].partition("/")
                self.named.setdefault(node, {})[path] = name
                self.last[node] = max((turn, at), self.last.get(node, (HELD, 0)))

    def changes(self, tables: Sequence[Table]) -> dict[int, Any]:
        """Rows of changes that say so, by the number of their table."""
        made = {}
        for number, table in enumerate(tables):
            given = self._tables.get(table.objects)
            if given is None or not given.num_rows:
                continue
            value = table.type.conform(given)
            value = value.combine_chunks().to_batches()[0] if isinstance(value, pa.Table) else value
            count = given.num_rows
            rows = table.rows
            columns = {
                "object": given.column("object").combine_chunks(),
                "op": pa.array(["created"] * count).cast(pa.string()),
                "new": value.to_struct_array(),
                "turn": pa.array([HELD] * count, pa.uint64()),
                "at": given.column("at").combine_chunks(),
            }
            made[number] = rows.conform(pa.table(columns))
        return made


def _known(
    spark: Any, source: LogSource | FrameSource, asked: Mapping[str, Sequence[Trigger]], held: _Held
) -> dict[str, KnownTypes]:
    """The types that triggers of each node are checked against; of objects that are named, they are looked for."""
    named: dict[str, dict[str, str]] = {node: dict(held.named.get(node, {})) for node in asked}
    wanted = {
        name
        for name in unnamed_types(asked)
        if name[2:].partition("/")[2] not in named.get(name[2:].partition("/")[0], {})
    }
    if len(source.objects) == 1:
        found = {name: set(source.objects) for name in wanted}
    else:
        found = source.find(spark, wanted) if wanted else {}
    several = [
        ConfigProblem(f"backtest: {name}", "an object of one type", f"one of {', '.join(sorted(types))}",
                      "say which: type=, or (name, type) of an input")
        for name, types in found.items()
        if len(types) > 1
    ]  # fmt: skip
    if several:
        raise ConfigError(several)
    for name, of in found.items():
        node, _, path = name[2:].partition("/")
        if of and node in named:
            named[node][path] = next(iter(of))
    return {node: KnownTypes(source.objects, source.channels, named[node]) for node in asked}


def _spans(source: LogSource | FrameSource, tables: Sequence[Table], nodes: Sequence[str]) -> dict[str, Span]:
    """When the recording of each node begins and ends; of channels, whoever publishes them."""
    made: dict[str, Span] = {}
    heard = [span for table in tables if not table.objects and (span := source.span(table.channel, None)) is not None]
    for node in nodes:
        parts = [span for table in tables if table.objects and (span := source.span(table.channel, node)) is not None]
        if (found := _whole([*parts, *heard])) is not None:
            made[node] = found
    return made


def _whole(spans: Iterable[Span]) -> Span | None:
    made: Span | None = None
    for each in spans:
        made = each.joined(made)
    return made


def _plan(span: Span, triggers: Sequence[Trigger], known: KnownTypes, held: _Held, node: str) -> OfNode:
    turn, at = held.last.get(node, (HELD, span.first))
    bodies = [definition.pack(each) for each in triggers]
    return OfNode(at, max(at, span.last), turn, bodies, dict(known.named))


# ── running it ──


def _run(
    spark: Any,
    source: LogSource | FrameSource,
    package: Package,
    held: Mapping[int, Any],
    installed: Sequence[Installed],
    apart: bool,
) -> tuple[Tally, Any]:
    """What was counted, and all firings."""
    tally, objects = Tally(), objects_of(installed)
    if spark is None:
        assert isinstance(source, LogSource)
        replaying = Replaying(package)
        batches = list(_batches(replaying.run(local.entries(source.files, package, held, objects))))
        return replaying.tally, _ordered(batches)
    if not package.tables or not package.nodes:
        raise _problem("triggers", "some that listen to objects or channels", "none, or nothing recorded of them")
    read = {table.channel: source.frame(spark, table.channel) for table in package.tables}
    placed_rows = frames.sorted_rows(spark, package, read, held, objects, apart=apart)
    rows = frames.replayed(placed_rows, package).cache()
    for row in rows.where("tally IS NOT NULL").select("tally").collect():
        tally.absorb(load_tally(bytes(row[0])))
    return tally, rows.where("tally IS NULL").drop("tally")


def _batches(rows: Iterator[Row]) -> Iterator[Any]:
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == frames.ROWS:
            yield frames.firings(waiting)
            waiting = []
    yield frames.firings(waiting)


def _ordered(batches: list[Any]) -> Any:
    """By time and place, over all nodes."""
    table = pa.Table.from_batches(batches)
    place = table.column("place").combine_chunks()
    keys = pa.table(
        {"time": table.column("time"), "node": table.column("node"),
         **{f"p{n}": pc.struct_field(place, n) for n in range(place.type.num_fields)}}
    )  # fmt: skip
    order = [
        ("time", "ascending"),
        *((f"p{n}", "ascending") for n in range(place.type.num_fields)),
        ("node", "ascending"),
    ]
    return table.take(pc.sort_indices(keys, sort_keys=order))


def _notes(tally: Tally, installed: Sequence[Installed], tables: Sequence[Table]) -> Iterator[str]:
    """What the recording does not say, and what a reader might take for more than it is."""
    if tally.silent:
        yield (
            f"{tally.silent:,} changes show that their object was changed without an event before: histories and "
            "inputs did not see that"
        )
    if tally.unseen and any(each.trigger.inputs for each in installed):
        yield (
            f"{tally.unseen:,} objects are first seen in a change: as inputs they are missing until then; give initial="
        )
    if tally.apart:
        yield f"{tally.apart:,} changes do not say of which transaction they are: each turn is taken for one"
    if tally.backwards:
        yield (
            f"{tally.backwards:,} turns are older than the one before: the clock was set back, or the state was begun "
            "anew"
        )
    if any(each.trigger.do for each in installed):
        yield "actions are not carried out: what they would have changed shows only where it was recorded"
    if any(not table.objects for table in tables):
        yield "events of channels are judged at the time of their publication; a node judges them when they arrive"
    for name, counted in tally.triggers.items():
        if counted.failed:
            yield f"{name}: failed {counted.failed:,} times: {counted.failure}"


__all__ = ["backtest_triggers", "length_of", "source_of"]
