"""Tables of a study of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.spark.backtest import Backtest, Traffic
from headwater.study.own import Compared, OwnResult
from headwater.study.report.data import Run
from headwater.study.report.plain import cut
from headwater.study.report.table import Column, Row, Table, Value

WAYS = ("unfiltered", "filtered", "merged", "multicast")
CODE, VALUES = 400, 200  # characters of an interest and its parameters in a table
OPEN = 60  # rows up to which a table is not folded


def nodes(result: OwnResult) -> Table:
    """Nodes with sources."""
    found = result.judged
    rows = []
    for each in found.sources:
        values: tuple[Value, ...] = (
            each.source or "not known",
            result.sources.get(each.source or ""),
            each.published.events,
            each.published.bytes,
            _part(each.published.events, found.events),
        )
        rows.append(Row(values))
    columns = (
        Column("node", "text"),
        Column("sources"),
        Column("events"),
        Column("bytes", "bytes"),
        Column("of all", "percent"),
    )
    note = "Bytes are those of the events as records."
    return Table(
        name="nodes", title="Nodes with sources", columns=columns, rows=tuple(rows), note=note, folded=len(rows) > OPEN
    )


def subscriptions(result: OwnResult, ranked: Sequence[Compared], *, code: bool = True) -> Table:
    """Who gets what; with `code`, also the interests."""
    found = result.judged
    lived, params = result.run is not None, code and any(each.params for each in ranked)
    columns = [Column("name", "text"), Column("at", "text")]
    columns.append(Column("on Spark", group="events" if lived else ""))
    if lived:
        columns += [Column("live", group="events"), Column("difference", "diff", group="events")]
    columns += [Column("of all", "percent"), Column("bytes", "bytes"), Column("undecided"), Column("faults", "text")]
    if code:
        columns += [Column("kind", "text"), Column("interest", "code")]
    if params:
        columns.append(Column("with", "text"))
    known = {row.name: row for row in found.subscriptions}
    rows = []
    for each in ranked:
        its = known[each.name]
        values: list[Value] = [each.name, each.at, each.spark]
        remarks = {}
        if lived:
            values += [each.live, each.difference]
            if each.again:
                remarks[len(values) - 2] = f"compared with {each.expected:,}, which Spark finds in the live run's log"
        faults = ", ".join(f"{count:,} {name}" for name, count in its.faults.items())
        values += [_part(each.spark, found.events), its.bytes, its.undecided, faults]
        if code:
            values += [each.kind, cut(each.text, CODE)]
        if params:
            values.append(cut(each.params, VALUES))
        rows.append(Row(tuple(values), remarks))
    again = any(each.again for each in ranked)
    return Table(
        name="subscriptions",
        title="Subscriptions",
        columns=tuple(columns),
        rows=tuple(rows),
        note="Undecided events lack what the interest asks for; faults are divisions by zero and the like. Neither is "
        "received." + (" † See [the notes](#notes): compared with the log of the live run." if again else ""),
        folded=len(rows) > OPEN,
    )


def ways(result: OwnResult) -> Table:
    """What crosses, by the ways it could."""
    found = result.judged
    rows = []
    for name in WAYS:
        traffic: Traffic = getattr(found, name)
        rows.append(Row((name, traffic.events, traffic.bytes, _saved(traffic, found.unfiltered))))
    if result.run is not None:
        sent = Traffic(result.run.crossed, result.run.bytes)
        rows.append(Row(("live, measured", sent.events, sent.bytes, _saved(sent, found.unfiltered))))
    return Table(
        name="ways",
        title="What crosses between nodes",
        columns=(Column("", "text"), Column("events"), Column("bytes", "bytes"), Column("fewer bytes", "percent")),
        rows=tuple(rows),
        note=f"By a model: {found.model.removeprefix('bytes: ')}."
        + (" Live, bytes are those of all frames, both ways." if result.run is not None else ""),
    )


def sinks(found: Backtest) -> Table:
    """Nodes with sinks."""
    rows = [
        Row((each.sink, each.subscriptions, *_numbers(each.unfiltered, each.filtered, each.merged)))
        for each in found.sinks
    ]
    columns = (Column("node", "text"), Column("subscriptions"), *_three())
    return Table(name="sinks", title="Nodes with sinks", columns=columns, rows=tuple(rows), folded=len(rows) > OPEN)


def links(found: Backtest) -> Table:
    """From each node with sources to each with sinks."""
    ranked = sorted(found.links, key=lambda each: -each.merged.bytes)
    rows = [
        Row((each.source or "not known", each.sink, *_numbers(each.unfiltered, each.filtered, each.merged)))
        for each in ranked
    ]
    columns = (Column("from", "text"), Column("to", "text"), *_three())
    return Table(name="links", title="Every link", columns=columns, rows=tuple(rows), folded=len(rows) > OPEN // 3)


def live(result: OwnResult, run: Run) -> Table:
    """Every link of the live run, as the nodes measured it."""
    merged = {each.source: each.merged.events for each in result.judged.sources}
    rows = []
    for link in run.links:
        values: tuple[Value, ...] = (
            link.node,
            link.sources,
            link.published,
            link.crossed,
            merged.get(link.node),
            link.frames,
            link.bytes,
            link.back_frames,
            link.back_bytes,
        )
        rows.append(Row(values))
    return Table(
        name="live",
        title="Between each node and the sinks, measured",
        columns=(
            Column("node", "text"),
            Column("sources"),
            Column("published", group="events"),
            Column("crossed", group="events"),
            Column("merged, on Spark", group="events"),
            Column("frames", group="to the sinks"),
            Column("bytes", "bytes", group="to the sinks"),
            Column("frames", group="back"),
            Column("bytes", "bytes", group="back"),
        ),
        rows=tuple(rows),
        folded=len(rows) > OPEN,
    )


def code(result: OwnResult) -> Table:
    """Programs."""
    rows = []
    for each in result.code:
        values: tuple[Value, ...] = (
            each.name,
            each.shared_by,
            each.notation,
            each.serial_bytes,
            each.param_bytes,
            each.object_bytes,
            each.check_seconds,
            each.compile_seconds,
            each.cost,
            cut(" ".join(each.text.split()), CODE),
        )
        rows.append(Row(values))
    more = result.programs - len(result.code)
    return Table(
        name="code",
        title=f"{some(result.programs, 'program')}" + (f", the first {len(rows)}" if more else ""),
        columns=(
            Column("of", "text"),
            Column("shared by"),
            Column("notation", "text"),
            Column("serial", "bytes"),
            Column("parameters", "bytes"),
            Column("machine code", "bytes"),
            Column("to check", "seconds"),
            Column("to compile", "seconds"),
            Column("operations"),
            Column("interest", "code"),
        ),
        rows=tuple(rows),
        note="Operations are those estimated for an event.",
    )


def _saved(traffic: Traffic, before: Traffic) -> float | None:
    saved = traffic.saved(before)
    return None if saved is None else round(100 * saved, 1)


def _three() -> list[Column]:
    names = WAYS[:3]
    return [
        Column(each, "bytes" if each == "bytes" else "int", group=of) for of in names for each in ("events", "bytes")
    ]


def _numbers(*traffic: Traffic) -> Iterable[int]:
    return [number for each in traffic for number in (each.events, each.bytes)]


def _part(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def some(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'s' * (count != 1)}"
