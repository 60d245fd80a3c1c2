"""A rich event type, events of it, and a way to compare a Column with the interpreter."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.ir import interp
from headwater.ir.build import Builder
from headwater.ir.interp import EventContext, Status
from headwater.ir.nodes import META_TYPES, Expr, Return
from headwater.spark.schema import spark_arrow_schema, spark_schema, to_spark_arrow
from headwater.types import event_type
from headwater.types import model as m

COLOUR = m.Enum("Colour", (("RED", 3), ("GREEN", -7), ("naïve", 2**31 - 1)))
INNER = m.Record("Inner", (m.Field("k", m.I16), m.Field("s", m.TEXT, True), m.Field("v", m.List(m.F64), True)))
RICH = m.Record(
    "Rich",
    (
        *(m.Field(t.name, t) for t in m.SCALARS.values()),
        *(m.Field(f"o_{t.name}", t, True) for t in m.SCALARS.values()),
        m.Field("colour", COLOUR),
        m.Field("o_colour", COLOUR, True),
        m.Field("grid", m.Array(m.F64, (2, 3))),
        m.Field("shorts", m.Array(m.I16, (3,)), True),
        m.Field("singles", m.List(m.F32)),
        m.Field("longs", m.List(m.I64), True),
        m.Field("huge", m.List(m.U64)),
        m.Field("inner", INNER),
        m.Field("o_inner", INNER, True),
        m.Field("inners", m.List(INNER)),
    ),
)
META = {name: f"_{name}" for name in META_TYPES}
META_RECORD = m.Record("Meta", tuple(m.Field(f"_{name}", type, True) for name, type in META_TYPES.items()))
VERDICT = {Status.PASSED: True, Status.REJECTED: False, Status.UNDECIDED: None}


def sample(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Many random values at once: one Spark job is dear, so it is shared by all of them."""
    found: list[Any] = []

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found[:count]


def frame(spark: Any, record: m.Record, events: list[dict[str, Any]], metas: list[EventContext] | None = None) -> Any:
    """A DataFrame of raw events, with their meta in the columns that `META` names."""
    table = to_spark_arrow(pa.Table.from_batches([event_type(record).to_arrow(events)]), record)
    schema = spark_schema(record)
    if metas is not None:
        raw = [{f"_{name}": getattr(meta, name) for name in META_TYPES} for meta in metas]
        more = to_spark_arrow(event_type(META_RECORD).to_arrow(raw), META_RECORD)
        for name, column in zip(spark_arrow_schema(META_RECORD).names, more.columns, strict=True):
            table = table.append_column(pa.field(name, column.type), column)
        for field in spark_schema(META_RECORD).fields:
            schema = schema.add(field)
    return spark.createDataFrame(table, schema=schema)


def chunks(items: list[Any], size: int = 25) -> list[list[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def select(rows: Any, texts: list[str]) -> pa.Table:
    return rows.selectExpr(*[f"{text} AS c{i}" for i, text in enumerate(texts)]).toArrow()


def evaluate(
    expr: Expr,
    events: Iterable[tuple[dict[str, Any], EventContext]],
    params: dict[str, Any],
    record: m.Record = RICH,
) -> list[Any]:
    """The interpreter's own value of an expression, of each event."""
    program = Builder(record).finish([Return(expr)])
    return [interp._Run(program, event, meta, params, {}, 0).eval(expr) for event, meta in events]


def raw_column(column: Any, type: m.Type) -> list[Any]:
    """What Spark computed, in the raw form."""
    if type == m.TIMESTAMP:
        return column.cast(pa.int64()).to_pylist()
    values = column.to_pylist()
    if type == m.U64:
        return [None if v is None else int(v) for v in values]
    if isinstance(type, m.Enum):
        return [None if v is None else type.code_of(v) for v in values]
    return values


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    return a.__class__ is b.__class__ and bool(a == b)
