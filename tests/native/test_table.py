"""The table-driven kernel gives what the interpreter gives on conjunctions of comparisons."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.ir.build import Builder
from headwater.ir.interp import run
from headwater.ir.nodes import NOWHERE, Const, Expr, ParamDecl, Program
from headwater.native import compile_record, table_for
from headwater.types import EventType
from headwater.types import model as m
from tests import strategies as s
from tests.effort import examples

SETTINGS = settings(deadline=None, max_examples=examples(200), suppress_health_check=list(HealthCheck))


def leaves(record: m.Record, steps: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], m.Type]]:
    found: list[tuple[tuple[Any, ...], m.Type]] = []

    def visit(steps: tuple[Any, ...], type: m.Type) -> None:
        match type:
            case m.Record(fields=fields):
                for f in fields:
                    visit((*steps, f.name), f.type)
            case m.Array(element=element, shape=shape):
                visit((*steps, shape[0] - 1), m.Array(element, shape[1:]) if len(shape) > 1 else element)
            case m.List():
                pass
            case _:
                found.append((steps, type))

    visit(steps, record)
    return found


@st.composite
def conjunctions(draw: st.DrawFn) -> tuple[Program, dict[str, Any], list[dict[str, Any]]]:
    record = draw(s.records())
    paths = leaves(record)
    decls, params = [], {}
    terms = []
    builder = Builder(record)
    for i in range(draw(st.integers(1, 4)) if paths else 0):
        steps, stored = draw(st.sampled_from(paths))
        load: Expr = builder.field(steps[0], NOWHERE)
        for step in steps[1:]:
            at = Const(step, m.I64) if isinstance(step, int) else step
            load = builder.attribute(load, at, NOWHERE) if isinstance(at, str) else builder.index(load, at, NOWHERE)
        type = m.promote(stored)
        value = draw(s.raw_values(stored))
        other: Expr = Const(value, type)
        if draw(st.booleans()) and not isinstance(type, m.Enum):
            decls.append(ParamDecl(f"p{i}", "scalar", type))
            builder.params[f"p{i}"] = decls[-1]
            params[f"p{i}"] = value
            other = builder.param(f"p{i}", NOWHERE)
        ordered = type not in (m.BOOL,) and not isinstance(type, m.Enum)
        op: Any = draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge") if ordered else ("eq", "ne")))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            term = builder.is_missing(load, NOWHERE)
            terms.append(builder.unary("not", term, NOWHERE) if draw(st.booleans()) else term)
        elif kind == 1 and type == m.BOOL:
            terms.append(builder.unary("not", load, NOWHERE) if draw(st.booleans()) else load)
        elif kind == 1 and type == m.TEXT:
            terms.append(builder.call("starts_with", [load, other], NOWHERE))
        elif kind == 2:
            terms.append(builder.compare(op, other, load, NOWHERE))
        else:
            terms.append(builder.compare(op, load, other, NOWHERE))
    body = builder.return_(builder.logic("and", terms, NOWHERE) if terms else Const(True, m.BOOL), NOWHERE)
    return builder.finish(body), params, draw(st.lists(s.raw_events(record), min_size=1, max_size=6))


@SETTINGS
@given(conjunctions())
def test_agrees_with_the_interpreter(case: tuple[Program, dict[str, Any], list[dict[str, Any]]]) -> None:
    program, params, events = case
    table = table_for(program, params=params)
    if table is None:
        return
    source = EventType(program.input)
    for event in events:
        outcome = run(program, event, params=params)
        found = table.run(source.encode(event))
        assert (found.status, found.faults) == (outcome.status, outcome.faults), (event, program, params)


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(conjunctions(), st.data())
def test_agrees_with_compiled_code_on_mutated_bytes(case: Any, data: st.DataObject) -> None:
    program, params, events = case
    table = table_for(program, params=params)
    if table is None:
        return
    native = compile_record(program, params=params)
    record = bytearray(EventType(program.input).encode(events[0]))
    for at in data.draw(st.lists(st.integers(16, max(16, len(record) - 1)), max_size=6)):
        if at < len(record):
            record[at] = data.draw(st.integers(0, 255))
    assert table(bytes(record)) == native(bytes(record))


def test_takes_conjunctions_only() -> None:
    record = m.Record("R", (m.Field("a", m.I64), m.Field("b", m.I64), m.Field("t", m.TEXT)))
    b = Builder(record)
    a, other, text = (b.field(name, NOWHERE) for name in ("a", "b", "t"))
    one = b.const(1)

    def program(value: Expr) -> Program:
        return b.finish(b.return_(value, NOWHERE))

    compare = b.compare("gt", a, one, NOWHERE)
    assert table_for(program(b.logic("and", [compare, b.compare("eq", text, b.const("x"), NOWHERE)], NOWHERE)))
    assert table_for(program(b.logic("or", [compare, b.compare("eq", other, one, NOWHERE)], NOWHERE))) is None
    assert table_for(program(b.compare("gt", a, other, NOWHERE))) is None
    assert table_for(program(b.compare("gt", b.binary("add", a, one, NOWHERE), one, NOWHERE))) is None
