"""The same interest for another event type: as if each event had been converted first."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir import interp
from headwater.ir.rebind import rebind
from headwater.ir.rewrite import normalise
from headwater.ir.verify import verify
from headwater.types import model as m
from tests import programs
from tests import strategies as s
from tests.effort import examples

WIDER = {m.I8: m.I16, m.I16: m.I32, m.I32: m.I64, m.U8: m.U32, m.U16: m.I64, m.F32: m.F64}


@st.composite
def other_type(draw: st.DrawFn, record: m.Record) -> m.Record:
    """Fields dropped, widened, made optional, put in another order, and a new one."""
    fields = [field for field in record.fields if draw(st.integers(0, 3))]
    changed = []
    for field in fields:
        type, optional = field.type, field.optional or draw(st.booleans())
        if isinstance(type, m.Scalar) and draw(st.booleans()):
            type = WIDER.get(type, type)
        if isinstance(type, m.Record):
            type = draw(other_type(type))
        changed.append(m.Field(field.name, type, optional))
    changed.append(m.Field("a new one", m.I64))
    return m.Record("Other", tuple(draw(st.permutations(changed))))


def seen(value: Any, type: m.Type, expected: m.Type) -> Any:
    """The value as a program sees it that was written for another type; None where it cannot."""
    if value is None or type.__class__ is not expected.__class__:
        return None
    if isinstance(type, m.Record) and isinstance(expected, m.Record):
        names = [f for f in expected.fields if f.name in type.by_name]
        return {f.name: seen(value[f.name], type.by_name[f.name].type, f.type) for f in names}
    return value


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_fields_go_by_name(data: st.DataObject) -> None:
    kinds = st.one_of(s.scalars(), s.enums(), s.records(0, max_fields=3))
    record = data.draw(s.records(field_types=kinds))
    other = data.draw(other_type(record))
    case = data.draw(programs.filters(record, loops=False, reductions=False))
    moved = rebind(case.program, other)
    verify(moved)
    verify(rebind(normalise(case.program), other))
    state, again = interp.initial_state(case.program), interp.initial_state(moved)
    for event in data.draw(st.lists(s.raw_events(other), max_size=4)):
        meta = data.draw(programs.meta())
        converted = seen(event, other, record)
        expected = interp.run(case.program, converted, meta=meta, params=case.params, state=state)
        assert interp.run(moved, event, meta=meta, params=case.params, state=again) == expected


def moved_result(field: m.Type, other: m.Type, value: Any, constant: Any) -> interp.Outcome:
    from headwater.ir.build import Builder
    from headwater.ir.nodes import NOWHERE

    b = Builder(m.Record("R", (m.Field("x", field),)))
    test = b.compare("ge", b.field("x", NOWHERE), b.const(constant), NOWHERE)
    program = rebind(b.finish(b.return_(test, NOWHERE)), m.Record("O", (m.Field("x", other),)))
    verify(program)
    return interp.run(program, {"x": value})


def test_numbers_of_another_width() -> None:
    assert moved_result(m.I32, m.I16, 5, 5).passed
    assert moved_result(m.F64, m.F32, 0.5, 0.5).passed
    assert moved_result(m.U64, m.I32, 5, 5).passed
    assert moved_result(m.U64, m.I64, -5, 5).faults == interp.Fault.OVERFLOW
    assert moved_result(m.F64, m.I32, 5, 5.0).passed
    assert moved_result(m.F64, m.I64, 5, 5.0).status is interp.Status.UNDECIDED
    assert moved_result(m.I64, m.F64, 5.0, 5).status is interp.Status.UNDECIDED
    assert moved_result(m.I64, m.TEXT, "5", 5).status is interp.Status.UNDECIDED


def test_the_same_type_is_the_same_program() -> None:
    record = m.Record("R", (m.Field("x", m.I64),))
    program = programs.Program(record, None, (), (), ())
    assert rebind(program, record) is program
