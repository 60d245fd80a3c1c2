"""Backends of the IR: each executes what its table does not have, and refuses what it has, for the reason it gives.

That what they execute means the same everywhere is for the fixtures (`tests/semantics`), which all of them run, and for
random programs (`test_agreement.py`). Nothing here needs a Spark session: Columns are text until they are used.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from headwater.ir.backend import INTERPRETER, Backend, Unsupported, operation, operations
from headwater.ir.build import Builder
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.interp import Outcome
from headwater.ir.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Meta,
    Missing,
    Path,
    Program,
    Reduce,
    Return,
    Unary,
)
from headwater.ir.verify import verify
from headwater.native.program import BACKEND as NATIVE
from headwater.native.program import Native
from headwater.spark.column import BACKEND as COLUMN
from headwater.spark.sql_text import Sql
from headwater.spark.unsupported import UNSUPPORTED
from headwater.types import event_type
from headwater.types import model as m
from tests.semantics.fixtures import Case, cases
from tests.spark.support import COLOUR, RICH, VERDICT, chunks

BACKENDS: tuple[Backend, ...] = (INTERPRETER, NATIVE, COLUMN)
ALL = cases()
WIDE = (m.BOOL, m.I64, m.U64, m.F64, m.TEXT, m.BYTES, m.TIMESTAMP)
ARITHMETIC = ("add", "sub", "mul", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr")


def load(type: m.Type, name: str | None = None) -> Load:
    """A field that may be missing, so that nothing is folded."""
    return Load(Path((name or f"o_{type}",)), type, type)


def argument(letter: str, fn: str, at: int) -> Expr:
    if fn == "like" and at == 1:
        return Const("a%", m.TEXT)
    return {
        "n": load(m.I64), "f": load(m.F64), "i": load(m.I64), "t": load(m.TEXT), "b": load(m.TEXT),
        "T": load(m.TIMESTAMP), "e": load(COLOUR, "o_colour"), "a": load(m.I64),
    }[letter]  # fmt: skip


def call(fn: str) -> Call:
    function = FUNCTIONS[fn]
    letters = function.params.rstrip("*")
    args = tuple(argument(letter, fn, at) for at, letter in enumerate(letters))
    return Call(fn, args, args[0].type if function.result == "same" else m.SCALARS[function.result])


def every_expression() -> list[Expr]:
    """One for each operation that there is, with each type that it takes."""
    found: list[Expr] = [Const(1, m.I64), Missing(m.I64), IsMissing(load(m.I64)), Meta("seq", m.I64)]
    found += [load(type) for type in WIDE]
    found += [Unary("neg", load(type), type) for type in (m.I64, m.F64)]
    found += [Unary("bitnot", load(type), type) for type in (m.I64, m.U64)]
    found += [Unary("not", load(m.BOOL), m.BOOL)]
    found += [Binary(op, load(t), load(t), t) for op, t in product(ARITHMETIC, (m.I64, m.U64))]  # type: ignore[arg-type]
    found += [Binary(op, load(m.F64), load(m.F64), m.F64) for op in ("add", "sub", "mul", "div")]
    found += [Binary("add", load(m.TIMESTAMP), load(m.I64), m.TIMESTAMP)]
    found += [Binary("sub", load(m.TIMESTAMP), load(m.TIMESTAMP), m.I64)]
    found += [Compare(op, load(t), load(t)) for op, t in product(("eq", "ne"), WIDE)]  # type: ignore[arg-type]
    ordered = [type for type in WIDE if type != m.BOOL]
    found += [Compare(op, load(t), load(t)) for op, t in product(("lt", "le", "gt", "ge"), ordered)]  # type: ignore[arg-type]
    found += [Compare("eq", load(COLOUR, "o_colour"), load(COLOUR, "o_colour"))]
    found += [Logic(op, (load(m.BOOL), load(m.BOOL))) for op in ("and", "or")]  # type: ignore[arg-type]
    found += [Cond(load(m.BOOL), load(m.I64), Const(1, m.I64), Missing(m.I64), m.I64)]
    numbers = (m.I64, m.U64, m.F64)
    stored = [type for type in m.SCALARS.values() if type not in (m.TEXT, m.BYTES, m.TIMESTAMP)]
    found += [Cast(load(a), to, m.promote(to)) for a, to in product((m.BOOL, *numbers), stored) if a != to]
    found += [Cast(load(m.I64), m.TIMESTAMP, m.TIMESTAMP), Cast(load(m.TIMESTAMP), m.I64, m.I64)]
    found += [call(fn) for fn in FUNCTIONS]
    found += [InSet(load(m.I64), (Const(1, m.I64), Const(2, m.I64)))]
    for op, field in product(REDUCTIONS, ("grid", "shorts", "singles", "longs", "huge")):
        array: Any = RICH.by_name[field].type
        element = m.promote(array.element)
        type = m.I64 if op == "len" else m.F64 if op == "mean" else element
        found.append(Reduce(op, Path((field,)), array, type))  # type: ignore[arg-type]
    return found


def decided(expr: Expr) -> Program:
    """Whether it has a value."""
    return Builder(RICH).finish([Return(Unary("not", IsMissing(expr), m.BOOL))])


EXPRESSIONS = every_expression()


def test_all_of_them_are_programs() -> None:
    for expr in EXPRESSIONS:
        verify(decided(expr))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_an_operation_is_refused_exactly_if_the_table_has_it(backend: Backend) -> None:
    seen = set()
    for expr in EXPRESSIONS:
        name = operation(expr)
        seen.add(name)
        made = backend.lower(decided(expr), {})
        if name in backend.unsupported:
            assert isinstance(made, Unsupported), f"{name} is in the table of {backend.name}, and it can do it"
            assert made.reason == backend.unsupported[name]
        else:
            assert not isinstance(made, Unsupported), f"{name}: {made.reason}, which {backend.name} does not declare"
    statements = {"state", "loop", "array variable", "output element"}
    assert set(backend.unsupported) <= seen | statements


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_fixtures_are_refused_exactly_by_the_table(backend: Backend) -> None:
    used = set()
    for case in ALL:
        interest = case.interest()
        gaps = {name for name, _ in operations(interest.program)} & set(backend.unsupported)
        made = backend.lower(interest.program, interest.params)
        if gaps:
            assert isinstance(made, Unsupported) and made.reason in {backend.unsupported[gap] for gap in gaps}, case.id
            used |= gaps
        else:
            assert not isinstance(made, Unsupported), (case.id, made)
    # Every gap of a statement is one that a fixture shows.
    assert {"state", "loop", "array variable", "output element"} & set(backend.unsupported) <= used


def test_what_is_lowered_is_what_is_executed() -> None:
    case: Case = next(each for each in ALL if not each.interest().program.stateful and each.output is None)
    interest = case.interest()
    judged, native, column = (each.lower(interest.program, interest.params) for each in BACKENDS)
    raw = interest.type.to_raw(case.events[0].value)
    assert isinstance(judged(raw), Outcome) and judged(raw).status == case.events[0].status
    assert isinstance(native, Native)
    assert native.run(interest.type.encode(case.events[0].value)).status == case.events[0].status
    assert isinstance(column, Sql)


def test_every_operation_runs_by_record_and_by_batch_as_in_the_interpreter() -> None:
    """Of what has no gap anywhere, on an event of which nothing is there, and on one of which everything is."""
    type = event_type(RICH)
    blank: dict[str, Any] = {field.name: None for field in RICH.fields if field.optional}
    full = {"o_bool": True, "o_text": "a", "o_bytes": b"b", "o_timestamp": 1_000_000, "o_colour": 3}
    full |= {f"o_{t.name}": 2 for t in m.SCALARS.values() if f"o_{t.name}" not in full}
    base = _least(RICH)
    events = [base | blank, base | full]
    batch = type.to_arrow(events)
    records = type.arrow_to_records(batch)
    present = [Unary("not", IsMissing(expr), m.BOOL) for expr in EXPRESSIONS]
    for op, part in product(("and", "or"), chunks(present, 12)):  # many at once: compiling is what takes time
        program = Builder(RICH).finish([Return(Logic(op, tuple(part)))])  # type: ignore[arg-type]
        judge, native = INTERPRETER.lower(program, {}), NATIVE.lower(program, {})
        expected = [judge(event).status for event in events]
        assert [native.run(record).status for record in records] == expected
        assert native.batch(batch).selection.to_pylist() == [VERDICT[status] for status in expected]


def _least(type: m.Type) -> Any:
    match type:
        case m.Record(fields=fields):
            return {field.name: None if field.optional else _least(field.type) for field in fields}
        case m.Enum(members=members):
            return members[0][1]
        case m.List():
            return []
        case m.Array(element=element, shape=(first, *rest)):
            inner = m.Array(element, tuple(rest)) if rest else element
            return [_least(inner) for _ in range(first)]
        case m.Scalar(name="text"):
            return ""
        case m.Scalar(name="bytes"):
            return b""
        case m.Scalar(name="bool"):
            return False
        case _:
            return 0.0 if getattr(type, "is_float", False) else 0


def test_the_table_of_spark_says_what_was_said_before() -> None:
    assert UNSUPPORTED["pow()"] == "Spark's pow() differs from the C library's in the last bit"
    assert UNSUPPORTED["shl u64"] == "Spark has no exact bit operators of unsigned 64-bit integers"
    assert "shl i64" not in UNSUPPORTED and "fdiv i64" not in UNSUPPORTED
