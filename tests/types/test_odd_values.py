"""Values that are almost what they should be, frames, and Arrow data that is not what it says."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headwater.errors import EncodeError, EvolutionError
from headwater.types import Event, event_type, f32, i32, model
from headwater.types.declaration import parse_record


class Named(str, enum.Enum):  # noqa: UP042 - its str() is the point
    A = "a"


class Reading(Event):
    name: str
    n: i32 = 0
    x: f32 | None = None


READING = event_type(Reading)


def test_a_member_of_a_text_enumeration_is_its_value() -> None:
    assert READING.decode(READING.encode(name=Named.A)).name == "a"
    assert READING.decode(READING.encode(name=np.str_("b"))).name == "b"


@pytest.mark.parametrize("value", [10**5000, -(10**5000), [10**5000]], ids=["great", "small", "within"])
def test_an_integer_too_long_to_print_is_an_encode_error(value: Any) -> None:
    for field in ("n", "x"):
        with pytest.raises(EncodeError, match=rf"^{field}: .*(bits|list)"):
            READING.encode({"name": "a", field: value})


def test_a_value_that_cannot_be_shown_is_an_encode_error() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("never")

    with pytest.raises(EncodeError, match=r"found Mute$"):
        READING.encode(name="a", n=Mute())


def test_beyond_the_range_is_no_infinity() -> None:
    for value in (1e39, np.float64(1e300), np.longdouble("1e400"), 1 << 200):
        with pytest.raises(EncodeError, match="beyond the range"):
            READING.encode(name="a", x=value)
    assert READING.decode(READING.encode(name="a", x=float("inf"))).x == float("inf")
    assert READING.decode(READING.encode(name="a", x=np.longdouble("inf"))).x == float("inf")


def test_pandas_missing_time_is_named() -> None:
    kind = event_type(parse_record("t: timestamp"))
    with pytest.raises(EncodeError, match=r"t: .*NaT; use None"):
        kind.encode(t=pd.NaT)


@pytest.mark.parametrize("wrong", [5, None, "text", [1, 2]])
def test_what_is_no_record_is_a_type_error(wrong: Any) -> None:
    for read in (READING.decode, READING.decode_raw, READING.validate, READING.decode_many, READING.view):
        with pytest.raises(TypeError, match=r"record|bytes-like"):
            read(wrong)


# ── frames and Arrow ──


def test_frames_conform() -> None:
    rows = [{"name": "a", "n": 1, "x": 0.5}, {"name": "b", "n": 2, "x": None}]
    expected = READING.to_arrow(rows)
    for given in (pl.DataFrame(rows), pd.DataFrame(rows), pa.Table.from_pylist(rows).to_reader()):
        assert READING.conform(given).equals(expected)
        assert READING.batch_of(rows).equals(expected)
    assert READING.conform(pl.DataFrame(rows).with_columns(pl.col("name").cast(pl.Categorical))).equals(expected)


def test_columns_without_rows_have_any_type() -> None:
    kind = event_type(parse_record("xs: i32[], b: bytes, q: bool?, a: f64[2]"))
    names = [field.name for field in kind.record.fields]
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0)] * len(names), names=names)
    assert kind.conform(nothing).schema.equals(kind.schema)
    assert kind.from_pandas(pd.DataFrame({name: [] for name in names})) == []
    assert kind.conform(pa.Table.from_batches([], schema=kind.schema)).num_rows == 0


def test_frames_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(EvolutionError, match="name: the column appears twice"):
        READING.from_pandas(pd.DataFrame([["a", "b", 1]], columns=["name", "name", "n"]))
    with pytest.raises(EncodeError, match="n: expected a column for i32"):
        READING.from_pandas(pd.DataFrame({"name": ["a", "b"], "n": [1, "x"]}))


def astray(kind: Any, dtype: Any, valid: Any = None) -> Any:
    offsets = pa.py_buffer(np.array([0, 2_000_000_000, 3], dtype))
    return pa.Array.from_buffers(kind, 2, [valid, offsets, pa.py_buffer(b"abc")])


def test_offsets_that_lead_astray_are_an_encode_error() -> None:
    kind = event_type(parse_record("name: text?"))
    same, nulls = astray(pa.utf8(), np.int32), astray(pa.utf8(), np.int32, pa.py_buffer(b"\x01"))
    batch = pa.RecordBatch.from_arrays([same], schema=kind.schema)
    for read in (kind.from_arrow, kind.arrow_to_raw, kind.arrow_to_records, kind.to_pandas):
        with pytest.raises(EncodeError, match="expected valid Arrow data"):
            read(batch)
    with pytest.raises(EncodeError, match="expected valid Arrow data"):
        kind.conform(batch, check=True)
    for column in (nulls, astray(pa.large_utf8(), np.int64)):
        with pytest.raises(EncodeError, match="name: expected valid Arrow data"):
            kind.conform(pa.RecordBatch.from_arrays([column], names=["name"]))


def test_a_view_has_its_fields_whatever_they_are_called() -> None:
    inner = model.Record("I", (model.Field("_base", model.TEXT), model.Field("class", model.I8, True)))
    names = ("_data", "_fields", "x y", "repr")
    record = model.Record("R", (*(model.Field(n, model.I32) for n in names), model.Field("i", inner)))
    kind = event_type(record)
    for held in (bytes, bytearray, memoryview):
        view = kind.view(held(kind.encode({n: i for i, n in enumerate(names)} | {"i": {"_base": "b", "class": 7}})))
        assert [view[n] for n in names] == [0, 1, 2, 3]
        assert (view.x_y, view.repr, view.i["_base"], view.i.class_) == (2, 3, "b", 7)
