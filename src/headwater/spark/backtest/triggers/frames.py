"""The rows on Spark: those of a node, or of an object where objects do not concern each other, come to one task, in
their order, and are replayed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any

from headwater.late import np, pa
from headwater.spark.backtest.triggers.recording import Entry, Objects, Package, Table, loads
from headwater.spark.backtest.triggers.replaying import Replaying, Row
from headwater.spark.columns import bind_columns, bind_meta
from headwater.spark.log_columns import LOG_META
from headwater.spark.schema import from_spark_arrow, to_dataframe
from headwater.spark.sql_text import sql_type, text_literal

NODE, TABLE, AT, EVENT = "_n", "_c", "_at", "_e"
RESULT = (
    "node STRING, trigger STRING, object STRING, op STRING, time TIMESTAMP, turn BIGINT, vetoed BOOLEAN, "
    "`values` STRING, message BINARY, "
    "place STRUCT<turn: BIGINT, step: BIGINT, after: BOOLEAN, position: BIGINT, rank: BIGINT>, tally BINARY"
)
ROWS = 4_096  # of a batch of firings
_PLACE = (("turn", "int64"), ("step", "int64"), ("after", "bool"), ("position", "int64"), ("rank", "int64"))


def replayed(rows: Any, package: Package) -> Any:
    """The DataFrame of what fires by sorted rows; rows with a `tally` say what a task has counted."""
    made = package.dumps()

    def headwater_triggers(batches: Iterator[Any]) -> Iterator[Any]:
        return results(made, batches)

    return rows.mapInArrow(headwater_triggers, RESULT)


def sorted_rows(
    spark: Any,
    package: Package,
    frames: Mapping[str, Any],
    held: Mapping[int, Any],
    objects: Objects | None,
    *,
    apart: bool,
) -> Any:
    """The rows of all tables: those of a node in one task, or, with `apart`, those of an object; each task in order."""
    tables = package.tables
    parts = [
        _changes(package, number, frames[table.channel], objects)
        if table.objects
        else _events(package, number, frames[table.channel])
        for number, table in enumerate(tables)
    ]
    parts += [_held(package, number, to_dataframe(spark, tables[number].rows, batch)) for number, batch in held.items()]
    rows = reduce(lambda one, other: one.unionAll(other), parts)
    rows = rows.repartition(NODE, "_o") if apart else rows.repartition(NODE)
    heard = any(not table.objects for table in tables)
    order = ("_first", AT, "_rank") if heard else ("_first",)
    placed = rows.sortWithinPartitions(NODE, *order, "_turn", "_step", "_p", TABLE, "_seq")
    return placed.select(NODE, TABLE, AT, *(f"{EVENT}{number}" for number in range(len(tables))))


def _listed(package: Package, number: int, columns: Mapping[str, str], more: Mapping[str, str]) -> list[str]:
    """What a row of a table has, as SQL."""
    listed = [f"{sql} AS {name}" for name, sql in more.items()]
    listed.append(f"{number} AS {TABLE}")
    for other, table in enumerate(package.tables):
        made = f"CAST(NULL AS {sql_type(table.rows.record)})"
        if other == number:
            made = f"named_struct({', '.join(f'{text_literal(name)}, {sql}' for name, sql in columns.items())})"
        listed.append(f"{made} AS {EVENT}{other}")
    return listed


def _of(table: Table, frame: Any) -> dict[str, str]:
    return bind_columns(frame, table.rows.record, [field.name for field in table.rows.record.fields])


def _changes(package: Package, number: int, frame: Any, objects: Objects | None) -> Any:
    """The changes of objects of a type that matter, of nodes at which something is tried."""
    columns = _of(package.tables[number], frame)
    meta = bind_meta(frame, {which: LOG_META[which] for which in ("node", "seq")})
    afters = " OR ".join(
        f"({meta['node']} = {text_literal(node)} AND {columns['turn']} > {plan.after})"
        for node, plan in package.nodes.items()
    )
    rows = frame.where(afters)
    if objects is not None:
        tests = [f"{columns['object']} = {text_literal(name)}" for name in sorted(objects.names)]
        tests += [f"startswith({columns['object']}, {text_literal(each)})" for each in sorted(objects.prefixes)]
        rows = rows.where(" OR ".join(tests) or "FALSE")
    return rows.selectExpr(*_listed(package, number, columns, _placing(columns, meta["node"], meta["seq"], 1)))


def _held(package: Package, number: int, frame: Any) -> Any:
    """Objects that were there before."""
    columns = _of(package.tables[number], frame)
    node = f"split({columns['object']}, '/')[2]"
    nodes = ", ".join(map(text_literal, package.nodes))
    rows = frame.where(f"{node} IN ({nodes})")
    return rows.selectExpr(*_listed(package, number, columns, _placing(columns, node, "0", 0)))


def _placing(columns: Mapping[str, str], node: str, seq: str, first: int) -> dict[str, str]:
    """The columns by which changes are placed and sorted."""
    return {
        NODE: node,
        "_o": columns["object"],
        "_first": str(first),
        AT: f"unix_micros({columns['at']})",
        "_rank": "1",
        "_turn": f"CAST({columns['turn']} AS BIGINT)",
        "_step": f"coalesce({columns['step']}, 0)",
        "_p": f"coalesce({columns['position']}, 0)",
        "_seq": f"CAST({seq} AS BIGINT)",
    }


def _events(package: Package, number: int, frame: Any) -> Any:
    """The events of a channel, which come to every node that has a trigger."""
    columns = _of(package.tables[number], frame)
    meta = bind_meta(frame, {which: LOG_META[which] for which in ("seq", "time")})
    nodes = ", ".join(
        f"named_struct('n', {text_literal(node)}, 'b', CAST({plan.begin if plan.after else -(1 << 62)} AS BIGINT))"
        for node, plan in package.nodes.items()
    )
    placing = {
        NODE: "_to.n",
        "_o": "''",
        "_first": "1",
        AT: f"unix_micros({meta['time']})",
        "_rank": "0",
        "_turn": "0L",
        "_step": "0L",
        "_p": "0L",
        "_seq": f"CAST({meta['seq']} AS BIGINT)",
    }
    rows = frame.selectExpr("*", f"explode(array({nodes})) AS _to").where(f"unix_micros({meta['time']}) > _to.b")
    return rows.selectExpr(*_listed(package, number, columns, placing))


# ── in the workers ──


def results(package: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """What fires by the rows of a task, and last what was counted."""
    replaying = Replaying(loads(package))
    waiting: list[Row] = []
    for row in replaying.run(entries(replaying.package, batches)):
        waiting.append(row)
        if len(waiting) == ROWS:
            yield firings(waiting, tallied=True)
            waiting = []
    yield firings(waiting, replaying.tally.dumps(), tallied=True)


def entries(package: Package, batches: Iterable[Any]) -> Iterator[Entry]:
    """Sorted rows, as they are taken."""
    types = [table.rows for table in package.tables]
    for batch in batches:
        numbers = batch.column(TABLE).to_numpy(zero_copy_only=False)
        raws: dict[int, Iterator[Any]] = {}
        for number in np.unique(numbers).tolist():
            mine = batch.column(f"{EVENT}{number}").filter(pa.array(numbers == number))
            events = from_spark_arrow(pa.RecordBatch.from_struct_array(mine), types[number].record)
            raws[number] = iter(types[number].arrow_to_raw(events))
        nodes, times = batch.column(NODE).to_pylist(), batch.column(AT).to_pylist()
        for node, number, time in zip(nodes, numbers.tolist(), times, strict=True):
            yield Entry(node, number, next(raws[number]), time)


def firings(rows: list[Row], tally: bytes | None = None, *, tallied: bool = False) -> Any:
    """Firings as a batch; with a tally, that as a row of its own."""
    fires = [row.fire for row in rows]
    last = [None] if tally is not None else []
    columns: dict[str, Any] = {
        "node": pa.array([row.node for row in rows] + last, pa.string()),
        "trigger": pa.array([fire.trigger for fire in fires] + last, pa.string()),
        "object": pa.array([fire.object for fire in fires] + last, pa.string()),
        "op": pa.array([fire.op for fire in fires] + last, pa.string()),
        "time": pa.array([fire.time for fire in fires] + last, pa.timestamp("us", tz="UTC")),
        "turn": pa.array([fire.turn for fire in fires] + last, pa.int64()),
        "vetoed": pa.array([fire.vetoed for fire in fires] + last, pa.bool_()),
        "values": pa.array([row.values for row in rows] + last, pa.string()),
        "message": pa.array([fire.message for fire in fires] + last, pa.binary()),
        "place": pa.array(
            [fire.place._asdict() for fire in fires] + last,
            pa.struct([pa.field(name, pa.type_for_alias(alias)) for name, alias in _PLACE]),
        ),
    }
    if tallied:
        columns["tally"] = pa.array([None] * len(rows) + ([tally] if tally is not None else []), pa.binary())
    return pa.RecordBatch.from_pydict(columns)


__all__ = ["entries", "firings", "replayed", "results", "sorted_rows"]
