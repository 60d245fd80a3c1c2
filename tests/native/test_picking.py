"""Rows picked from a batch: the same bytes as taking them with Arrow and encoding what that gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.native.python.row_picker import ROWS, picker
from headwater.types import event_type
from headwater.types import model as m
from tests.effort import examples
from tests.strategies import raw_values

KINDS = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "timestamp")
SCALARS = {name: m.Scalar(name) for name in KINDS}


@st.composite
def batches(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> tuple[Any, Any, Any]:
    """A type, a batch of it without nulls, sliced, and some of its rows."""
    chosen = draw(st.lists(st.tuples(st.sampled_from(kinds), st.booleans()), min_size=1, max_size=10))
    fields = tuple(m.Field(f"f{at}", SCALARS[kind], optional) for at, (kind, optional) in enumerate(chosen))
    type = event_type(m.Record("Picked", fields))
    event = st.fixed_dictionaries({field.name: raw_values(field.type) for field in fields})
    batch = type.to_arrow(draw(st.lists(event, min_size=1, max_size=20)))
    start = draw(st.integers(0, batch.num_rows - 1))
    batch = batch.slice(start, draw(st.integers(1, batch.num_rows - start)))
    rows = sorted(draw(st.sets(st.integers(0, batch.num_rows - 1), min_size=1)))
    return type, batch, np.array(rows, np.int64)


@settings(max_examples=examples(80), deadline=None)
@given(batches())
def test_records(given: tuple[Any, Any, Any]) -> None:
    type, batch, rows = given
    made = picker(type.record)
    assert made is not None and made.fits(batch)
    assert made.records(batch, rows) == type.arrow_to_records(batch.take(rows))
    assert made.records(batch, rows[:0]) == []


@settings(max_examples=examples(80), deadline=None)
@given(batches(KINDS[1:]))
def test_messages(given: tuple[Any, Any, Any]) -> None:
    type, batch, rows = given
    made = picker(type.record)
    assert made is not None
    message = made.message(batch, rows)
    assert message == batch.take(rows).serialize().to_pybytes()
    assert pa.ipc.read_record_batch(message, type.schema).serialize() == message


NUMBERS = event_type(m.Record("Numbers", (m.Field("x", m.F64, False), m.Field("n", m.I32, True))))


def numbers(rows: int) -> Any:
    columns = [pa.array(np.arange(rows) / 8), pa.array(np.arange(rows), pa.int32())]
    return pa.RecordBatch.from_arrays(columns, schema=NUMBERS.schema)


@pytest.mark.parametrize("rows", [1, 2, 3, 600, ROWS])
def test_all_rows_of_a_batch(rows: int) -> None:
    made, batch, places = picker(NUMBERS.record), numbers(rows), np.arange(rows)
    assert made is not None
    assert made.message(batch, places) == batch.serialize().to_pybytes()
    assert made.records(batch, places) == NUMBERS.arrow_to_records(batch)
    assert made.records(batch, places[::2]) == NUMBERS.arrow_to_records(batch.take(places[::2]))  # not in a row


def test_a_batch_with_nulls_is_not_for_it() -> None:
    made, rows = picker(NUMBERS.record), np.array([0, 1])
    batch = NUMBERS.to_arrow([{"x": 1.0, "n": None}, {"x": 2.0, "n": 3}, {"x": 4.0, "n": 5}])
    assert made is not None
    assert not made.fits(batch) and made.records(batch, rows) is None and made.message(batch, rows) is None
    # Of a part without them Arrow does not know it: it may be refused or not, but never wrongly.
    part = batch.slice(1)
    assert made.records(part, rows) in (None, NUMBERS.arrow_to_records(part))


def test_batches_of_other_schemas_are_not_for_it() -> None:
    made, rows = picker(NUMBERS.record), np.array([0])
    assert made is not None
    other = pa.record_batch({"x": [1.0], "n": pa.array([1], pa.int64())})
    bare = numbers(3).replace_schema_metadata(None)
    assert made.records(other, rows) is None and made.message(other, rows) is None and not made.fits(other)
    assert not made.fits(bare)  # it lacks the name of the type
    assert not made.fits(pa.Table.from_batches([numbers(3)])) and not made.fits([1, 2]) and not made.fits(None)


@pytest.mark.parametrize(
    "type",
    [
        m.TEXT,
        m.BYTES,
        m.Array(m.F64, (2,)),
        m.List(m.I8),
        m.Enum("E", (("A", 1),)),
        m.Record("R", (m.Field("x", m.F64, False),)),
    ],
)
def test_other_types_have_none(type: m.Type) -> None:
    assert picker(m.Record("Other", (m.Field("x", m.F64, False), m.Field("y", type, False)))) is None


def test_bools_have_no_message() -> None:
    type = event_type(m.Record("Flags", (m.Field("on", m.BOOL, False), m.Field("x", m.F64, False))))
    batch = type.to_arrow([{"on": at % 3 == 0, "x": float(at)} for at in range(20)])
    made, rows = picker(type.record), np.arange(1, 20, 2)
    assert made is not None and made.message(batch, rows) is None
    assert made.records(batch, rows) == type.arrow_to_records(batch.take(rows))
