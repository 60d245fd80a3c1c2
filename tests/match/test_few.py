"""A handful of interests in numbers, on batches: the same answers as for the records one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest import Interest
from headwater.ir.nodes import Program, Return
from headwater.match import Matcher
from headwater.types import EventType, event_type
from headwater.types import model as m
from tests.effort import examples
from tests.match.support import Beside, conditions, interest_of
from tests.strategies import floats, raw_values

NUMBERS = (m.I8, m.I16, m.I32, m.I64, m.U8, m.U16, m.U32, m.U64, m.F32, m.F64, m.TIMESTAMP)
EVERY = event_type(m.Record("Every", tuple(m.Field(f"f{at}", type, False) for at, type in enumerate(NUMBERS))))
MAYBE = event_type(
    m.Record("Maybe", (m.Field("x", m.F64, True), m.Field("n", m.I32, False), m.Field("name", m.TEXT, True)))
)
PLAIN = event_type(m.Record("Plain", (m.Field("x", m.F64, False), m.Field("n", m.I32, False))))


def found(matcher: Matcher, batch: Any) -> list[set[Any]]:
    """The payloads of each row, which come in order and once each."""
    rows: list[set[Any]] = [set() for _ in range(batch.num_rows)]
    for payload, its in matcher.snapshot().batch(batch):
        assert its.tolist() == sorted(set(its.tolist()))
        for row in its.tolist():
            rows[row].add(payload)
    return rows


def one_by_one(matcher: Matcher, type: EventType, batch: Any) -> list[set[Any]]:
    matching = matcher.snapshot()
    return [set(matching.probe(record)) for record in type.arrow_to_records(batch)]


def matcher_of(type: EventType, *wheres: str) -> Matcher:
    made = Matcher(type)
    for where in wheres:
        made.add(where, Interest(where, on=type))
    return made


def plain(values: list[float]) -> Any:
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.float64()), pa.array(range(len(values)), pa.int32())], schema=PLAIN.schema
    )


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_comparisons_of_all_numbers_give_what_the_interpreter_gives(data: st.DataObject) -> None:
    event = st.fixed_dictionaries({field.name: raw_values(field.type) for field in EVERY.record.fields})
    events = data.draw(st.lists(event, min_size=8, max_size=40))
    beside = Beside(EVERY)
    for _ in range(data.draw(st.integers(1, 6))):
        condition = data.draw(conditions(EVERY.record, events))
        beside.add(interest_of(Program(EVERY.record, None, (), (), (Return(condition),))))
    beside.check(events)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(floats(), min_size=1, max_size=70), st.integers(0, 20), st.integers(0, 70))
def test_slices_and_odd_floats(values: list[float], start: int, length: int) -> None:
    values = [*values, math.nan, -0.0, 0.0, math.inf, -math.inf]
    limit = repr(next((v for v in values if math.isfinite(v)), 0.0))
    matcher = matcher_of(
        PLAIN, f"x < {limit}", f"x >= {limit}", f"x == {limit}", f"not (x > {limit})", "x != 0", "n > 3"
    )
    batch = plain(values).slice(min(start, len(values)), length)
    assert found(matcher, batch) == one_by_one(matcher, PLAIN, batch)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 1200])
def test_none_some_and_all_of_any_number_of_rows(rows: int) -> None:
    batch = plain([float(at % 10) for at in range(rows)])
    matcher = matcher_of(PLAIN, "x > 100", "x < 100", "x == 3", "x == 3 and n > 12", "n == 0")
    assert found(matcher, batch) == one_by_one(matcher, PLAIN, batch)
    alone = matcher_of(PLAIN, "x < 100")
    assert found(alone, batch) == [{"x < 100"}] * rows
    assert found(matcher_of(PLAIN, "x > 100"), batch) == [set()] * rows


@pytest.mark.parametrize("entries", [1, 31, 32, 33, 200])
def test_few_and_many_entries(entries: int) -> None:
    batch = plain([float(at % 50) for at in range(300)])
    matcher = matcher_of(PLAIN, *(f"x == {at}" for at in range(entries)))
    assert found(matcher, batch) == one_by_one(matcher, PLAIN, batch)


def test_an_entry_that_was_removed_gets_nothing() -> None:
    matcher, batch = Matcher(PLAIN), plain([float(at) for at in range(100)])
    keys = [matcher.add(at, Interest(f"x >= {at}", on=PLAIN)) for at in range(10)]
    assert len(matcher.snapshot().batch(batch)) == 10
    for key in keys[::2]:
        matcher.remove(key)
    assert found(matcher, batch) == one_by_one(matcher, PLAIN, batch)
    for key in keys[1::2]:
        matcher.remove(key)
    assert matcher.snapshot().batch(batch) == []


@pytest.mark.parametrize("where", ["x > 5", "n > 5", "x > 5 and n < 50", "x is null", "name == 'a'"])
@pytest.mark.parametrize("missing", [0, 3])
def test_what_is_missing_is_undecided(where: str, missing: int) -> None:
    events = [
        {"x": None if missing and at % missing == 0 else float(at), "n": at, "name": "ab"[at % 2]} for at in range(90)
    ]
    beside = Beside(MAYBE)
    beside.add(Interest(where, on=MAYBE))
    beside.check(events)


def test_the_same_matching_on_batches_of_all_sizes_and_from_several_buffers() -> None:
    matcher = matcher_of(PLAIN, "x > 3", "n < 5")
    for rows in (5000, 3, 16, 40_000, 8):
        batch = plain([float(at % 7) for at in range(rows)])
        wanted = np.flatnonzero(np.arange(rows) % 7 > 3).tolist()
        rows_of = {payload: its.tolist() for payload, its in matcher.snapshot().batch(batch)}
        assert rows_of.get("x > 3", []) == wanted
        assert rows_of["n < 5"] == list(range(min(5, rows)))
