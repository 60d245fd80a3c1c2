"""Sizes from columns are the sizes of records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.interest import as_event_type
from headwater.spark.backtest.sizes import heap_fields, record_sizes
from headwater.types import event_type
from headwater.types import model as m
from tests import strategies
from tests.effort import examples

ALIGNED = m.Record("A", (m.Field("t", m.TEXT), m.Field("n", m.List(m.F64), True), m.Field("u", m.TEXT, True)))
NESTED = m.Record("N", (m.Field("x", m.I8), m.Field("l", m.List(m.List(m.I64))), m.Field("t", m.TEXT)))


def sizes(record: m.Record, events: list[dict[str, Any]]) -> list[int]:
    type = event_type(record)
    batch = type.to_arrow(events)
    columns = {name: batch.column(name) for name in heap_fields(record)}
    found = record_sizes(type.layout, columns, len(events))
    return [found] * len(events) if isinstance(found, int) else found.tolist()


@settings(max_examples=examples(150), deadline=None)
@given(strategies.records_with_events(max_events=6))
@example((ALIGNED, [{"t": "abc", "n": (1.0,), "u": None}, {"t": "", "n": None, "u": "é"}]))
@example((NESTED, [{"x": 1, "l": ((1, 2), (), (3,)), "t": "abc"}, {"x": 1, "l": (), "t": ""}]))
def test_sizes_are_those_of_records(case: tuple[m.Record, list[dict[str, Any]]]) -> None:
    record, events = case
    type = event_type(record)
    assert sizes(record, events) == [len(type.encode(event)) for event in events]


@given(st.lists(st.none() | strategies.texts(), max_size=20))
def test_dictionaries_are_looked_up(values: list[str | None]) -> None:
    type = as_event_type("t: text?, n: i32")
    column = pa.array(values, pa.utf8()).dictionary_encode()
    found = record_sizes(type.layout, {"t": column}, len(values))
    assert found.tolist() == [len(type.encode({"t": value, "n": 1})) for value in values]


def test_one_size_for_types_without_a_heap() -> None:
    type = as_event_type("a: i32, b: f64?")
    assert record_sizes(type.layout, {}, 10) == len(type.encode({"a": 1, "b": None}))


def test_absent_columns_are_missing() -> None:
    type = as_event_type("t: text?, u: text")
    found = record_sizes(type.layout, {"u": pa.array(["abc", ""])}, 2)
    assert found.tolist() == [len(type.encode({"t": None, "u": text})) for text in ("abc", "")]
