"""Event types in Spark and back, without loss."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from headwater.errors import EncodeError, ExecutionError
from headwater.spark.schema import from_dataframe, from_spark_arrow, spark_schema, to_dataframe, to_spark_arrow
from headwater.types import event_type
from headwater.types import model as m
from tests.spark.support import COLOUR, RICH, sample
from tests.strategies import raw_events, records_with_events, same

EXTREMES = m.Record(
    "Extremes",
    (
        m.Field("u8", m.U8),
        m.Field("u16", m.U16),
        m.Field("u32", m.U32),
        m.Field("u64", m.U64),
        m.Field("i8", m.I8),
        m.Field("i64", m.I64),
        m.Field("f32", m.F32),
        m.Field("f64", m.F64),
        m.Field("t", m.TIMESTAMP),
        m.Field("c", COLOUR, True),
        m.Field("us", m.List(m.U64), True),
        m.Field("grid", m.Array(m.F32, (2, 2))),
    ),
)
ROWS: list[dict[str, Any]] = [
    {"u8": 255, "u16": 65535, "u32": 2**32 - 1, "u64": 2**64 - 1, "i8": -128, "i64": -(2**63), "f32": -0.0,
     "f64": math.nan, "t": m.TIMESTAMP_MIN, "c": -7, "us": (2**64 - 1, 0), "grid": ((0.5, -0.0), (math.nan, math.inf))},
    {"u8": 0, "u16": 0, "u32": 0, "u64": 2**63, "i8": 127, "i64": 2**63 - 1, "f32": math.inf,
     "f64": -0.0, "t": m.TIMESTAMP_MAX, "c": None, "us": None, "grid": ((1.0, 2.0), (3.0, 4.0))},
    {"u8": 1, "u16": 1, "u32": 1, "u64": 1, "i8": 0, "i64": 0, "f32": math.nan,
     "f64": 5e-324, "t": 1_762_066_800_000_001, "c": 2**31 - 1, "us": (), "grid": ((0.0, 0.0), (0.0, 0.0))},
]  # fmt: skip


def test_the_spark_schema_has_room_for_every_type() -> None:
    expected = (
        "struct<u8:smallint,u16:int,u32:bigint,u64:decimal(20,0),i8:tinyint,i64:bigint,f32:float,f64:double,"
        "t:timestamp,c:string,us:array<decimal(20,0)>,grid:array<array<float>>>"
    )
    schema = spark_schema(EXTREMES)
    assert schema.simpleString() == expected
    assert [f.nullable for f in schema.fields] == [f.optional for f in EXTREMES.fields]
    assert not schema["us"].dataType.containsNull


def test_extremes_survive_whatever_the_zone(spark: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    frame = to_dataframe(spark, EXTREMES, ROWS)
    assert frame.schema == spark_schema(EXTREMES)
    assert same(event_type(EXTREMES).arrow_to_raw(from_dataframe(frame, EXTREMES)), ROWS)


def test_extremes_survive_parquet(spark: Any, tmp_path: Any) -> None:
    to_dataframe(spark, EXTREMES, ROWS).coalesce(1).write.parquet(str(tmp_path / "events"))
    back = spark.read.parquet(str(tmp_path / "events"))
    assert same(event_type(EXTREMES).arrow_to_raw(from_dataframe(back, EXTREMES)), ROWS)


def test_parquet_that_arrow_writes_is_read_as_the_same_types(spark: Any, tmp_path: Any) -> None:
    pq.write_table(pa.Table.from_batches([event_type(EXTREMES).to_arrow(ROWS)]), tmp_path / "events.parquet")
    frame = spark.read.parquet(str(tmp_path / "events.parquet"))
    assert frame.schema.simpleString() == spark_schema(EXTREMES).simpleString()
    assert same(event_type(EXTREMES).arrow_to_raw(from_dataframe(frame, EXTREMES)), ROWS)


def test_arrow_slices_and_tables_convert_and_come_back() -> None:
    events = sample(raw_events(RICH), 40)
    batch = event_type(RICH).to_arrow(events)
    for rows, expected in ((batch, events), (batch.slice(7, 20), events[7:27]), (batch.slice(0, 0), [])):
        for data in (rows, pa.Table.from_batches([rows])):
            back = from_spark_arrow(to_spark_arrow(data, RICH), RICH)
            assert back.schema.equals(event_type(RICH).schema)
            assert same(event_type(RICH).arrow_to_raw(back), expected)


def test_random_types_convert_and_come_back() -> None:
    for record, events in sample(st.deferred(records_with_events), 60):
        spark_batch = to_spark_arrow(event_type(record).to_arrow(events), record)
        sliced = spark_batch.slice(1) if len(events) > 1 else spark_batch
        expected = events[1:] if len(events) > 1 else events
        assert same(event_type(record).arrow_to_raw(from_spark_arrow(sliced, record)), expected)


def test_random_events_survive_spark(spark: Any) -> None:
    events = sample(raw_events(RICH), 50)
    frame = to_dataframe(spark, RICH, events)
    assert same(event_type(RICH).arrow_to_raw(from_dataframe(frame, RICH)), events)


def test_what_is_no_event_is_refused(spark: Any) -> None:
    frame = to_dataframe(spark, EXTREMES, ROWS)
    with pytest.raises(ExecutionError, match="no column 'u64'"):
        from_dataframe(frame.drop("u64"), EXTREMES)
    with pytest.raises(EncodeError, match="Colour"):
        from_dataframe(frame.selectExpr("* EXCEPT (c)", "'PURPLE' AS c"), EXTREMES)
