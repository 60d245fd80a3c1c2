"""Native code on one record gives what the interpreter gives: status, faults, output bytes and state."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from headwater.ir.build import Builder
from headwater.ir.interp import EventContext, Fault, Status
from headwater.ir.nodes import NOWHERE as N
from headwater.native.record import compile_record
from headwater.types import EventType
from headwater.types import model as m
from tests.effort import examples
from tests.native.support import Events, agree, analysis_of, interpret
from tests.programs import FUEL, Case, cases
from tests.strategies import same

SETTINGS = settings(deadline=None, max_examples=examples(120), suppress_health_check=list(HealthCheck))


def check(case: Case, events: Events) -> None:
    analysis = analysis_of(case)
    if analysis is None:
        return
    expected, state = interpret(analysis, case, events)
    program = compile_record(analysis, params=case.params, fuel=FUEL)
    source = EventType(case.program.input)
    output = EventType(case.program.output) if case.program.output is not None else None
    for (event, meta), wanted in zip(events, expected, strict=True):
        record = source.encode(event)
        got = program.run(record, meta)
        found: Any = (got.status, got.faults, got.output)
        assert agree(found, wanted, output), (found, wanted, event, meta, case)
    if program.state is not None:
        left = program.state.get()
        assert all(same(left[slot], state[slot]) for slot in state), (left, state, case)


@SETTINGS
@given(cases())
def test_filters_agree_with_the_interpreter(case: tuple[Case, Events]) -> None:
    check(*case)


@SETTINGS
@given(cases(transforming=True))
def test_transformations_agree_with_the_interpreter(case: tuple[Case, Events]) -> None:
    check(*case)


def test_large_elements_of_a_list() -> None:
    part = m.Record("Part", (m.Field("values", m.Array(m.F64, (1000,))), m.Field("name", m.TEXT)))
    record = m.Record("R", (m.Field("parts", m.List(part)), m.Field("at", m.I64)))
    b = Builder(record)
    chosen = b.attribute(b.index(b.field("parts", N), b.field("at", N), N), "values", N)
    program = compile_record(b.finish(b.return_(b.compare("eq", b.index(chosen, b.const(999), N), b.const(1.0), N), N)))
    encode = EventType(record).encode
    parts = [{"values": [0.0] * 999 + [float(i)], "name": "x"} for i in range(3)]
    assert program(encode({"parts": parts, "at": 1})) == Status.PASSED
    assert program(encode({"parts": parts, "at": 2})) == Status.REJECTED
    for at in (-1, 3):
        assert program(encode({"parts": parts, "at": at})) == Status.UNDECIDED | Fault.INDEX << 8
    assert program(encode({"parts": [], "at": 0})) == Status.UNDECIDED | Fault.INDEX << 8


def test_output_larger_than_the_buffer_does_not_run_twice() -> None:
    record = m.Record("R", (m.Field("t", m.TEXT), m.Field("xs", m.List(m.TEXT))))
    b = Builder(record, output=record)
    seen = b.declare("seen", m.I64, N, state=True)
    assert seen is not None
    body = [
        *b.assign(seen, b.binary("add", b.var(seen, N), b.const(1), N), N),
        *b.set_out(("t",), b.call("upper", [b.field("t", N)], N), N),
        *b.set_out(("xs",), b.field("xs", N), N),
        *b.return_(b.const(True), N),
    ]
    program = compile_record(b.finish(body))
    source = EventType(record)
    for size in (1, 10_000, 5, 100_000):
        event = {"t": "a" * size, "xs": ["é" * size, "", "b"]}
        result = program.run(source.encode(event))
        assert result.output == source.encode({"t": "A" * size, "xs": ["é" * size, "", "b"]})
    assert program.state is not None and program.state.get() == {0: 4}


def test_deep_programs_compile() -> None:
    record = m.Record("R", (m.Field("n", m.I64, True), m.Field("d", m.F64)))
    b = Builder(record)
    value = b.field("n", N)
    for i in range(46):
        test = b.compare("gt", b.binary("tdiv", b.const(i), b.field("n", N), N), b.const(3), N)
        value = b.cond(test, b.field("n", N), b.binary("add", value, b.const(1), N), N)
    body = b.return_(b.compare("ge", value, b.const(0), N), N)
    for _ in range(40):
        body = b.if_(b.compare("ge", b.field("d", N), b.const(0.0), N), body, [], N)
    case = Case(b.finish(body), {})
    check(case, [({"n": n, "d": 0.0}, EventContext()) for n in (None, 0, 1, -3)])
