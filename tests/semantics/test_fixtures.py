"""The fixtures beside this file: each case in every notation that can say it, in every execution.

A case gives a type, the interest in one or more notations, and events with the outcome each must have.
Events of a case run in order, so that state carries on. `tests/spark/test_semantics.py` runs the same cases in Spark.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from headwater import Interest
from headwater.ir import interp
from headwater.ir.serial import fingerprint_of_normal
from tests.semantics.fixtures import Case, cases, equal

ALL = cases()
_RAN: set[tuple[str, bytes, int]] = set()


def first(execution: str, case: Case) -> bool:
    """Whether the program of a case was not run by an execution yet, on these very events: notations that make the same
    program of what they say need not show the same again."""
    key = execution, fingerprint_of_normal(case.interest().program), id(case.events)
    found = key not in _RAN
    _RAN.add(key)
    return found


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_interpreter(case: Case) -> None:
    interest = case.interest()
    if not first("interpreter", case):
        return
    state = interp.initial_state(interest.program)
    for event in case.events:
        outcome = interest.interpret(event.value, meta=event.meta, state=state)
        assert (outcome.status, outcome.faults) == (event.status, event.faults), event
        if event.output is not None:
            assert interest.output is not None and outcome.output is not None
            assert equal(outcome.output, interest.output.to_raw(event.output))


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_native_on_one_record(case: Case) -> None:
    interest = case.interest()
    if not first("record", case):
        return
    native = interest.native()
    native.wait()
    assert native.tier == "native"
    _check_records(interest, native, case)


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_first_answer_without_compiler(case: Case) -> None:
    """Whatever answers before the compiler is done must say the same."""
    interest = case.interest()
    if first("without compiler", case):
        _check_records(interest, interest.native(), case)


def _check_records(interest: Interest, native: Any, case: Case) -> None:
    for event in case.events:
        outcome = native.run(interest.type.encode(event.value), meta=event.meta)
        assert (outcome.status, outcome.faults) == (event.status, event.faults), event
        if event.output is not None:
            assert interest.output is not None
            assert equal(interest.output.decode_raw(outcome.output), interest.output.to_raw(event.output))
    counts = native.counts
    assert counts.evaluated == len(case.events) == counts.passed + counts.rejected + counts.undecided


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_native_on_a_batch(case: Case) -> None:
    interest = case.interest()
    if not first("batch", case):
        return
    batch = interest.type.to_arrow([event.value for event in case.events])
    # A slice that starts in the middle of a byte reads validity and booleans at an odd bit.
    padded = pa.Table.from_batches([batch.slice(0, 1)] * 3 + [batch]).combine_chunks().to_batches()[0]
    for rows in (batch, padded.slice(3)):
        native = interest.native()
        result = native.batch(rows, meta=case.meta_columns() or None)
        expected = [{interp.Status.PASSED: True, interp.Status.REJECTED: False}.get(e.status) for e in case.events]
        assert result.selection.to_pylist() == expected
        for fault in interp.Fault:
            if fault is not interp.Fault.NONE:
                assert result.counts.faults.get(fault, 0) == sum(fault in e.faults for e in case.events), fault
        outputs = [event.output for event in case.events if event.output is not None]
        if interest.output is not None:
            got = [interest.output.to_raw(event) for event in interest.output.from_arrow(result.output)]
            want = [interest.output.to_raw(output) for output in outputs]
            assert len(got) == len(want) and all(equal(a, b) for a, b in zip(got, want, strict=True))


def test_there_are_fixtures_for_every_notation() -> None:
    by_notation = {n: sum(case.notation == n for case in ALL) for n in ("predicate", "ecode", "python")}
    assert min(by_notation.values()) >= 60, by_notation


def test_nan_helper() -> None:
    assert equal({"x": [math.nan]}, {"x": (math.nan,)}) and not equal(0.0, -0.0)
