"""Arrow and pandas: schemas, batches, slices, casts and what is refused."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import EncodeError, EvolutionError, TypeDeclarationError
from headwater.types import Array, Event, EventType, event_type, f32, f64, i8, i16, model, u8
from tests.effort import examples
from tests.strategies import NAMES, ODD_NAMES, records, records_with_events, same

MODEST = settings(deadline=None, max_examples=examples(120))


@MODEST
@given(records(names=NAMES + ODD_NAMES))
def test_a_schema_brings_its_type_back(record: model.Record) -> None:
    kind = event_type(record)
    assert EventType.from_arrow_schema(kind.schema) == kind
    assert event_type(pa.ipc.read_schema(kind.schema.serialize())) == kind


@MODEST
@given(records_with_events(), st.data())
def test_batches_bring_their_events_back(sample: Any, data: st.DataObject) -> None:
    record, events = sample
    kind = event_type(record)
    encoded = [kind.encode(raw) for raw in events]
    batch = kind.to_arrow(events)
    batch.validate(full=True)
    assert batch.schema.equals(kind.schema, check_metadata=True)
    assert batch.num_rows == len(events)
    assert kind.conform(batch) is batch
    assert same(kind.arrow_to_raw(batch), events)
    assert kind.arrow_to_records(batch) == encoded
    assert [kind.encode(event) for event in kind.from_arrow(batch)] == encoded
    start = data.draw(st.integers(0, len(events)))
    end = data.draw(st.integers(start, len(events)))
    assert kind.arrow_to_records(batch.slice(start, end - start)) == encoded[start:end]
    table = pa.Table.from_batches([batch.slice(start), batch.slice(0, start)])
    assert kind.arrow_to_records(table) == encoded[start:] + encoded[:start]
    assert same(kind.records_to_arrow(encoded).to_pylist(), batch.to_pylist())


@MODEST
@given(records_with_events())
def test_what_pyarrow_makes_of_the_values_conforms(sample: Any) -> None:
    record, events = sample
    kind = event_type(record)
    batch = kind.to_arrow(events)
    widened = pa.RecordBatch.from_arrays(
        [_wider(column) for column in reversed(batch.columns)], names=list(reversed(batch.schema.names))
    )
    assert same(kind.arrow_to_raw(widened), events)


def _wider(column: Any) -> Any:
    kinds = pa.types
    if kinds.is_string(column.type):
        return column.cast(pa.large_string())
    if kinds.is_binary(column.type):
        return column.cast(pa.large_binary())
    if kinds.is_dictionary(column.type):
        return column.cast(pa.utf8())
    if kinds.is_float32(column.type):
        return column.cast(pa.float64())
    if kinds.is_int32(column.type):
        return column.cast(pa.int64())
    return column


@settings(deadline=None, max_examples=examples(100))
@given(records_with_events())
def test_frames_bring_their_events_back(sample: Any) -> None:
    record, events = sample
    kind = event_type(record)
    frame = kind.to_pandas(events)
    assert list(frame.columns) == [field.name for field in record.fields]
    assert len(frame) == len(events)
    assert [kind.to_raw(event) for event in kind.from_pandas(frame)] == [_Same(raw) for raw in events]


class _Same:
    """Equal to what is the same but for a NaN in the cells of objects, which pandas takes for missing."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return same(other, self.raw)


class Mode(enum.Enum):
    ON = 5
    OFF = 2


class Point(Event):
    x: f32
    label: str | None = None


class Reading(Event, name="test.Reading"):
    level: f32
    count: i8 | None
    mode: Mode
    seen: datetime | None
    point: Point | None
    grid: Array[f64, 2, 2] | None
    names: list[str]


def test_the_schema_in_full() -> None:
    schema = event_type(Reading).schema
    assert schema.metadata == {b"headwater.name": b"test.Reading"}
    expected = {
        "level": "float not null",
        "count": "int8",
        "mode": "dictionary<values=string, indices=int32, ordered=0> not null",
        "seen": "timestamp[us, tz=UTC]",
        "point": "struct<x: float not null, label: string>",
        "grid": "fixed_size_list<item: fixed_size_list<item: double not null>[2] not null>[2]",
        "names": "list<item: string not null> not null",
    }
    assert {f.name: f"{f.type}{'' if f.nullable else ' not null'}" for f in schema} == expected


def _plain_batch(**changes: Any) -> Any:
    columns = {
        "extra": [1, 2],
        "names": [["a"], []],
        "grid": [[[1.0, 2.0], [3.0, 4.0]], None],
        "point": [{"label": None, "x": 1.0}, None],
        "seen": pa.array([1_000, 2_000], pa.timestamp("ns")),
        "mode": ["OFF", "ON"],
        "count": [1, None],
        "level": [0.5, 1.0],
    }
    return pa.RecordBatch.from_pydict(columns | changes)


def test_conforming_reorders_casts_and_leaves_out() -> None:
    kind = event_type(Reading)
    batch = kind.conform(_plain_batch())
    assert batch.schema.equals(kind.schema, check_metadata=True)
    first, second = kind.from_arrow(batch)
    assert first == Reading(
        0.5, 1, Mode.OFF, datetime.fromtimestamp(0.000001, UTC), Point(1.0), ((1.0, 2.0), (3.0, 4.0)), ["a"]
    )
    assert (second.count, second.point, second.grid, second.names) == (None, None, None, [])
    mode = batch.column("mode")
    assert mode.dictionary.to_pylist() == ["ON", "OFF"]
    assert mode.indices.to_pylist() == [1, 0]
    without = _plain_batch().drop_columns(["point", "seen"])
    assert kind.from_arrow(without)[0].point is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"level": [0.5, None]}, "level: row 1 is null"),
        ({"level": [0.5, 0.1]}, r"level: row 1: .*0\.1.* is no exact float of 32 bits"),
        ({"count": [1, 200]}, "count: cannot become int8 without loss"),
        ({"count": [1.5, 2.0]}, "count: cannot become int8 without loss"),
        ({"mode": ["ON", "on"]}, r"mode: row 1: expected a member of Mode \(ON, OFF\), found 'on'"),
        ({"mode": ["ON", None]}, "mode: row 1 is null"),
        ({"seen": pa.array([1, None], pa.timestamp("ns"))}, "seen: cannot become"),
        ({"seen": pa.array([1 << 62, None], pa.timestamp("us"))}, "seen: row 0: expected a time"),
        ({"point": [None, {"x": None}]}, r"point\.x: row 1 is null"),
        ({"grid": [None, [[1.0], [2.0]]]}, r"grid\[\]: row 1: expected 2 elements"),
        ({"names": [[], ["a", None]]}, r"names\[\]: row 1 is null"),
    ],
)
def test_values_that_would_be_lost_or_are_missing(change: dict[str, Any], words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        event_type(Reading).conform(_plain_batch(**change))


def test_columns_that_do_not_fit_are_all_listed() -> None:
    batch = _plain_batch(count=["1", "2"], point=[{"x": True}, {"x": False}], names=[1, 2], seen=[1, 2])
    with pytest.raises(EvolutionError) as caught:
        event_type(Reading).conform(batch.drop_columns(["level"]))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "level",
        "count",
        "seen",
        "point.x",
        "names",
    ]
    with pytest.raises(TypeError, match="expected a pyarrow RecordBatch or Table, found list"):
        event_type(Reading).conform([1])


def test_all_the_ways_arrow_stores_one_thing() -> None:
    class Wide(Event):
        label: str | None
        blob: bytes | None
        numbers: list[i16] | None

    kind = event_type(Wide)
    rows = [Wide("a", b"x", [1, 2]), Wide(None, None, None), Wide("é", b"", []), Wide("", b"yz", [3])]
    expected = [kind.encode(row) for row in rows]
    labels, blobs, lists = [r.label for r in rows], [r.blob for r in rows], [r.numbers for r in rows]
    for text in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())):
        for blob in (pa.binary(), pa.large_binary(), pa.binary_view()):
            for sequence in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
                arrays = [pa.array(labels, text), pa.array(blobs, blob), pa.array(lists, sequence(pa.int64()))]
                batch = pa.RecordBatch.from_arrays(arrays, names=["label", "blob", "numbers"])
                assert kind.arrow_to_records(batch) == expected
                assert kind.arrow_to_records(batch.slice(1, 3)) == expected[1:]


def test_types_from_foreign_schemas() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.large_string()),
            pa.field("b", pa.timestamp("ns", "Europe/Dublin"), nullable=False),
            pa.field("c", pa.list_(pa.list_(pa.float32(), 3), 2)),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
            pa.field("e", pa.large_list(pa.struct([("f", pa.binary(4))]))),
            pa.field("g h", pa.uint64(), nullable=False),
        ]
    )
    kind = event_type(schema, name="foreign")
    assert [str(field) for field in kind.record.fields] == [
        "a: text?",
        "b: timestamp",
        "c: f32[2×3]?",
        "d: text?",
        "e: item[]?",
        "g h: u64",
    ]


def test_schemas_that_are_no_event_type() -> None:
    schema = pa.schema(
        [
            pa.field("day", pa.date32()),
            pa.field("fine", pa.int32()),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("inner", pa.struct([("half", pa.float16()), ("map", pa.map_(pa.string(), pa.int32()))])),
            pa.field("many", pa.list_(pa.duration("s"))),
            pa.field("none", pa.null()),
            pa.field("empty", pa.struct([])),
            pa.field("zero", pa.list_(pa.int8(), 0)),
        ]
    )
    with pytest.raises(TypeDeclarationError) as caught:
        event_type(schema, name="foreign")
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip(" -") for line in lines] == [
        "day",
        "price",
        "inner.half",
        "inner.map",
        "many[]",
        "none",
        "empty",
        "zero",
    ]
    assert "cast it to timestamp('us', tz='UTC')" in lines[0]
    with pytest.raises(TypeDeclarationError, match="give name="):
        event_type(pa.schema([("a", pa.int8())]))
    with pytest.raises(TypeDeclarationError, match="at least one field"):
        event_type(pa.schema([]), name="x")
    faulty = pa.field("e", pa.dictionary(pa.int32(), pa.utf8()), metadata={"headwater.enum": "{"})
    with pytest.raises(TypeDeclarationError, match=r"headwater\.enum is faulty"):
        event_type(pa.schema([faulty]), name="x")


def test_frames_keep_large_integers_and_tell_missing_from_nan() -> None:
    class Odd(Event):
        big: int | None
        level: float | None
        flag: bool | None
        plain: float

    kind = event_type(Odd)
    events = [Odd(2**62 + 1, None, True, 1.0), Odd(None, float("nan"), None, float("nan"))]
    frame = kind.to_pandas(events)
    assert str(frame["big"].dtype) == "Int64"
    first, second = kind.from_pandas(frame)
    assert first == events[0]
    assert second.big is None
    assert np.isnan(second.level)
    assert np.isnan(second.plain)
    frame = pd.DataFrame({"big": [1, 2], "plain": [1, 2]}, index=[7, 8])
    assert kind.from_pandas(frame) == [Odd(1, None, None, 1.0), Odd(2, None, None, 2.0)]


def test_a_slice_of_missing_grids() -> None:
    """Arrow's own filter reads such a slice at a wrong place."""

    class Grid(Event):
        cells: Array[i8, 2, 3] | None

    kind = event_type(Grid)
    events = [Grid(None), Grid(None), Grid(((1, 2, 3), (4, 5, 6)))]
    batch = kind.to_arrow(events)
    assert kind.from_arrow(batch.slice(1)) == events[1:]
    wide = pa.RecordBatch.from_arrays([batch.column(0).cast(pa.list_(pa.list_(pa.int64(), 3), 2))], names=["cells"])
    assert kind.from_arrow(wide.slice(1)) == events[1:]


def test_numeric_arrays_are_read_in_place() -> None:
    class Wind(Event):
        grid: Array[f64, 253, 37]
        bytes_: list[u8]

    kind = event_type(Wind)
    grid = np.random.default_rng(1).random((253, 37))
    data = kind.encode(grid=grid, bytes_=np.arange(5, dtype=np.uint8))
    view = kind.view(data)
    assert (view.grid == grid).all()
    assert view.grid.shape == (253, 37)
    assert np.shares_memory(view.grid, np.frombuffer(data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        view.grid[0, 0] = 1
    assert view.bytes_.tolist() == [0, 1, 2, 3, 4]
    batch = kind.to_arrow([{"grid": grid, "bytes_": b""}])
    assert (np.array(batch.column("grid").to_pylist()[0]) == grid).all()
