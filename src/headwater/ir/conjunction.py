"""Conjunctions: programs that say no more than that some tests of an event's values all hold.

    terms_of(program)        what must all hold; None where the program is anything more
    test_of(term)            the test that a term is, None where it is no such test
    place_of(record, path)   where in a record a value lies

What of that a table can hold is for its owner to say: `native/table.py` for one interest, `match/lower.py` for many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.ir.nodes import (
    Call,
    Compare,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Param,
    Path,
    Program,
    Return,
    Unary,
)
from headwater.types.layout import HEADER_SIZE, record_layout, stride
from headwater.types.model import BOOL, Array, Enum, Record, Type

_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Test(NamedTuple):
    """`op` of `a`: "truth" and "present" alone; "eq", "ne", "lt", "le", "gt", "ge" and "prefix" with the constant or
    parameter `other`; "in" is an InSet whole. `negated` comparisons also hold where there is no order, as with NaN."""

    op: str
    a: Expr
    other: Const | Param | None = None
    negated: bool = False


def terms_of(program: Program) -> tuple[Expr, ...] | None:
    """The expressions of which all must be true; none where that is so of every event."""
    body = program.body
    if program.variables or program.output is not None or len(body) != 1 or not isinstance(body[0], Return):
        return None
    value = body[0].value
    if value == Const(True, BOOL):
        return ()
    return value.args if isinstance(value, Logic) and value.op == "and" else (value,)


def test_of(term: Expr) -> Test | None:
    """The test that a term is; a constant or parameter stands on its right, wherever it was written."""
    match term:
        case Load(type=type) if type == BOOL:
            return Test("truth", term)
        case IsMissing(a=Load() as load):
            return Test("present", load, negated=True)
        case Compare(op=op, a=Const() | Param() as other, b=b):
            return Test(_MIRRORED[op], b, other)
        case Compare(op=op, a=a, b=Const() | Param() as other):
            return Test(op, a, other)
        case Call(fn="starts_with", args=(a, (Const() | Param()) as other)):
            return Test("prefix", a, other)
        case InSet():
            return Test("in", term)
        case Unary(op="not", a=inner) if (test := test_of(inner)) is not None and test.op != "prefix":
            return test._replace(negated=not test.negated)
        case _:
            return None


def value_of(other: Const | Param, params: Mapping[str, Any]) -> Any:
    """What is compared with: a constant, or the value of a parameter."""
    return other.value if isinstance(other, Const) else params[other.name]


class Place(NamedTuple):
    """Where a value lies in a record: byte and mask of two presence bits (zeros for none), and its offset."""

    checks: tuple[int, int, int, int]
    offset: int


def place_of(record: Record, path: Path) -> Place | None:
    """None for what moves, or needs more than two presence bits."""
    here: Type = record
    offset, checks = HEADER_SIZE, list[int]()
    for step in path.steps:
        if isinstance(step, str) and isinstance(here, Record):
            slot = record_layout(here).slots[step]
            if slot.bit is not None:
                checks += (offset + slot.bit // 8, 1 << slot.bit % 8)
            offset, here = offset + slot.offset, slot.type
        elif isinstance(here, Array) and isinstance(step, Const) and 0 <= int(step.value) < here.shape[0]:
            inner = Array(here.element, here.shape[1:]) if len(here.shape) > 1 else None
            offset += int(step.value) * stride(here.element) * (inner.count if inner else 1)
            here = inner or here.element
        else:
            return None
    if len(checks) > 4:
        return None
    checks += [0] * (4 - len(checks))
    return Place((checks[0], checks[1], checks[2], checks[3]), offset)


def slot_kind(stored: Type) -> str:
    """As what a slot is read: the name of a number's type, for enums and timestamps of those that they are kept as."""
    return "i32" if isinstance(stored, Enum) else "i64" if str(stored) == "timestamp" else str(stored)
