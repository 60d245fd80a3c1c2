"""Native code on a batch gives what the interpreter gives on each of its rows, whole or sliced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import ExecutionError
from headwater.ir.build import Builder
from headwater.ir.interp import EventContext, Fault, Status
from headwater.ir.nodes import NOWHERE
from headwater.native import batch as batch_module
from headwater.native.batch import FAULTS, BatchResult, compile_batch
from headwater.native.record import compile_record
from headwater.native.rowwise import rows_of, run_rows
from headwater.types import EventType
from headwater.types import model as m
from tests.effort import examples
from tests.native.support import Events, analysis_of, interpret
from tests.programs import FUEL, Case, cases
from tests.strategies import same

SETTINGS = settings(deadline=None, max_examples=examples(100), suppress_health_check=list(HealthCheck))


def meta_columns(metas: list[EventContext]) -> dict[str, Any]:
    kinds = {"source": pa.utf8(), "node": pa.utf8(), "seq": pa.int64(), "time": pa.int64()}
    made = {name: pa.array([getattr(m, name) for m in metas], kind) for name, kind in kinds.items()}
    return made | {"time": made["time"].cast(pa.timestamp("us", tz="UTC"))}


def check(case: Case, events: Events, skip: int) -> None:
    """`skip` rows go before the slice that is evaluated, and as many after it."""
    analysis = analysis_of(case)
    if analysis is None:
        return
    expected, state = interpret(analysis, case, events)
    program = compile_batch(analysis, params=case.params, fuel=FUEL)
    source = EventType(case.program.input)
    around = [events[i % len(events)][0] for i in range(skip)]
    batch = source.records_to_arrow([source.encode(e) for e in (*around, *(e for e, _ in events), *around)])
    result = program.run(batch.slice(skip, len(events)), meta=meta_columns([m for _, m in events]))
    compare(result, expected, case, events)
    if program.state is not None:
        left = program.state.get()
        assert all(same(left[slot], state[slot]) for slot in state), (left, state, case)
    one = compile_record(analysis, params=case.params, fuel=FUEL)
    rows = rows_of(one, batch.slice(skip, len(events)))
    assert rows is not None
    compare(run_rows(one, rows, meta_columns([m for _, m in events])), expected, case, events)


def compare(result: BatchResult, expected: list[Any], case: Case, events: Events) -> None:
    result.selection.validate(full=True)
    verdicts = {Status.PASSED: True, Status.REJECTED: False, Status.UNDECIDED: None}
    assert result.selection.to_pylist() == [verdicts[status] for status, _, _ in expected], (expected, events, case)
    counts = result.counts
    assert counts.evaluated == len(expected)
    for kind in FAULTS:
        raised = sum(1 for _, faults, _ in expected if Fault(faults) & kind)
        assert counts.faults.get(kind, 0) == raised, (kind, raised, counts, events, case)
    if case.program.output is not None:
        output = EventType(case.program.output)
        result.output.validate(full=True)
        assert result.output.schema.equals(output.schema, check_metadata=True)
        wanted = [output.decode_raw(output.encode(out)) for status, _, out in expected if status is Status.PASSED]
        found = output.arrow_to_raw(result.output)
        assert len(found) == len(wanted)
        assert all(map(same, found, wanted)), (found, wanted, case)


@SETTINGS
@given(cases(events=12), st.integers(0, 11))
def test_filters_agree_with_the_interpreter(case: tuple[Case, Events], skip: int) -> None:
    check(*case, skip)


@SETTINGS
@given(cases(events=8, transforming=True), st.integers(0, 11))
def test_transformations_agree_with_the_interpreter(case: tuple[Case, Events], skip: int) -> None:
    check(*case, skip)


# ── many rows ──

N = NOWHERE
READING = m.Record(
    "Reading",
    (
        m.Field("level", m.F64),
        m.Field("n", m.I32),
        m.Field("spare", m.I32, True),
        m.Field("on", m.BOOL, True),
        m.Field("mode", m.Enum("Mode", (("OFF", 10), ("LOW", -3), ("HIGH", 7))), True),
        m.Field("net", m.TEXT),
    ),
)


def readings(rows: int) -> tuple[Any, dict[str, Any]]:
    """A batch and the numpy arrays it was made from; masks are true where null."""
    rng = np.random.default_rng(rows)
    made = {
        "level": rng.random(rows),
        "n": rng.integers(-5, 5, rows).astype(np.int32),
        "spare": rng.integers(0, 10, rows).astype(np.int32),
        "spare null": rng.random(rows) < 0.3,
        "on": rng.random(rows) < 0.5,
        "on null": rng.random(rows) < 0.1,
        "mode": rng.integers(0, 3, rows).astype(np.int32),
        "net": rng.integers(0, 3, rows),
    }
    names = pa.array(["OFF", "LOW", "HIGH"])
    nets = np.array(["ORL-Net#1", "ORL-Net#2", "é"], object)[made["net"]]
    columns = [
        pa.array(made["level"]),
        pa.array(made["n"]),
        pa.array(made["spare"], mask=made["spare null"]),
        pa.array(made["on"], mask=made["on null"]),
        pa.DictionaryArray.from_arrays(pa.array(made["mode"]), names),
        pa.array(nets, pa.utf8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EventType(READING).schema), made


def filter_of(make: Any) -> Any:
    b = Builder(READING)
    return compile_batch(b.finish(b.return_(make(b), N)))


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1023, 1024, 1025, 5000, 600_001])
@pytest.mark.parametrize("skip", [0, 1, 13])
def test_blocks_slices_and_threads(rows: int, skip: int) -> None:
    batch, made = readings(rows + 2 * skip)
    program = filter_of(
        lambda b: b.logic(
            "and",
            [
                b.compare("gt", b.field("level", N), b.const(0.5), N),
                b.compare("lt", b.field("spare", N), b.const(5), N),
                b.field("on", N),
            ],
            N,
        )
    )
    result = program.run(batch.slice(skip, rows))
    made = {name: values[skip : skip + rows] for name, values in made.items()}
    terms = [
        (made["level"] > 0.5, np.zeros(rows, bool)),
        (made["spare"] < 5, made["spare null"]),
        (made["on"], made["on null"]),
    ]
    rejected = np.logical_or.reduce([~value & ~null for value, null in terms])
    undecided = ~rejected & np.logical_or.reduce([null for _, null in terms])
    assert result.selection.equals(pa.array(~rejected, mask=undecided))
    counts = result.counts
    assert (counts.evaluated, counts.rejected, counts.undecided) == (rows, rejected.sum(), undecided.sum())


def test_faults_are_counted_by_kind() -> None:
    batch, made = readings(3000)
    program = filter_of(
        lambda b: b.compare("gt", b.binary("tdiv", b.const(6), b.field("n", N), N), b.field("spare", N), N)
    )
    counts = program.run(batch).counts
    assert counts.faults == {Fault.DIVISION: int((made["n"] == 0).sum())}


def test_an_enumeration_comes_in_any_order_of_names() -> None:
    batch, made = readings(500)
    mode = batch.column("mode")
    names = pa.array(["HIGH", "spare name", "OFF", "LOW"])
    order = np.array([2, 3, 0], np.int32)
    other = pa.DictionaryArray.from_arrays(pa.array(order[mode.indices.to_numpy()]), names)
    at = batch.schema.get_field_index("mode")
    program = filter_of(lambda b: b.compare("eq", b.field("mode", N), b.const("LOW"), N))
    expected = pa.array(made["mode"] == 1)
    assert program.run(batch).selection.equals(expected)
    changed = batch.set_column(at, batch.schema.field(at), other)
    with pytest.raises(ExecutionError, match="spare name"):
        program.run(changed)
    nameless = pa.DictionaryArray.from_arrays(
        pa.array(order[mode.indices.to_numpy()]), pa.array(["HIGH", None, "OFF", "LOW"])
    )
    with pytest.raises(ExecutionError, match="found None"):
        program.run(batch.set_column(at, batch.schema.field(at), nameless))
    names = pa.array(["HIGH", "OFF", "LOW"])
    other = pa.DictionaryArray.from_arrays(pa.array(np.array([1, 2, 0], np.int32)[mode.indices.to_numpy()]), names)
    assert program.run(batch.set_column(at, batch.schema.field(at), other)).selection.equals(expected)


def test_columns_without_values() -> None:
    batch, _ = readings(10)
    at = batch.schema.get_field_index("spare")
    nothing = batch.set_column(at, batch.schema.field(at), pa.nulls(10, pa.int32()))
    program = filter_of(lambda b: b.compare("lt", b.field("spare", N), b.const(5), N))
    assert program.run(nothing).selection.null_count == 10


def test_other_columns_are_brought_to_the_schema() -> None:
    batch, made = readings(100)
    table = pa.table(
        {"level": batch["level"].cast(pa.float32()), "n": batch["n"].cast(pa.int16()), "net": batch["net"]}
    )
    program = filter_of(lambda b: b.compare("gt", b.field("n", N), b.const(1), N))
    result = program.run(table.to_batches()[0])
    assert result.selection.equals(pa.array(made["n"] > 1))


def test_output_is_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    out = m.Record("Out", (m.Field("double", m.F64), m.Field("net", m.TEXT), m.Field("spare", m.I32, True)))
    b = Builder(READING, output=out)
    body = [
        *b.set_out(("double",), b.binary("mul", b.field("level", N), b.const(2.0), N), N),
        *b.set_out(("net",), b.call("upper", [b.field("net", N)], N), N),
        *b.set_out(("spare",), b.field("spare", N), N),
        *b.return_(b.compare("gt", b.field("n", N), b.const(0), N), N),
    ]
    program = compile_batch(b.finish(body))
    batch, made = readings(3000)
    whole = program.run(batch)
    monkeypatch.setattr(batch_module, "STAGE_BYTES", 1 << 12)
    assert program.run(batch).output.equals(whole.output)
    passed = made["n"] > 0
    assert whole.output.num_rows == whole.counts.passed == passed.sum()
    assert np.array_equal(whole.output["double"].to_numpy(), made["level"][passed] * 2.0)
    assert set(whole.output["net"].to_pylist()) == {"ORL-NET#1", "ORL-NET#2", "é"}
    assert whole.output["spare"].equals(batch["spare"].filter(pa.array(passed)))
    assert program.run(batch.slice(0, 0)).output.num_rows == 0


def test_few_rows_of_many_pieces_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "STAGE_BYTES", 1)
    out = m.Record("Out", (m.Field("level", m.F64),))
    b = Builder(READING, output=out)
    body = [
        *b.set_out(("level",), b.field("level", N), N),
        *b.return_(b.compare("gt", b.field("level", N), b.const(0.99), N), N),
    ]
    batch, made = readings(5000)
    result = compile_batch(b.finish(body)).run(batch)
    assert np.array_equal(result.output["level"].to_numpy(), made["level"][made["level"] > 0.99])


def test_transformations_of_many_rows_keep_their_order() -> None:
    out = m.Record("Out", (m.Field("n", m.I32), m.Field("net", m.TEXT, True)))
    b = Builder(READING, output=out)
    body = [
        *b.set_out(("n",), b.field("n", N), N),
        *b.set_out(("net",), b.field("net", N), N),
        *b.return_(b.compare("ne", b.field("n", N), b.const(0), N), N),
    ]
    batch, made = readings(600_000)
    result = compile_batch(b.finish(body)).run(batch)
    assert np.array_equal(result.output["n"].to_numpy(), made["n"][made["n"] != 0])
    assert result.output["net"].equals(batch["net"].filter(pa.array(made["n"] != 0)))


def test_meta_may_be_scalars() -> None:
    batch, _ = readings(5)
    program = filter_of(lambda b: b.compare("eq", b.meta("source", N), b.const("roof"), N))
    assert program.run(batch, meta={"source": "roof"}).counts.passed == 5
    assert program.run(batch).counts.undecided == 5
    with pytest.raises(ExecutionError, match="found 2"):
        program.run(batch, meta={"source": pa.array(["a", "b"])})
    with pytest.raises(ExecutionError, match="'sauce'"):
        program.run(batch, meta={"sauce": "x"})
