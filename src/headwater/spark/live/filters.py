"""Spark's own filters as conditions of ours, with Spark's meaning.

Spark orders NaN above everything and has it equal to itself; ours follows IEEE 754. Everything that would differ is
said in other words or not said at all: what is not pushed, Spark does alone, and it evaluates all filters again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from headwater.interest import Interest
from headwater.ir.nodes import (
    META_TYPES,
    Call,
    Compare,
    CompareOp,
    Const,
    Expr,
    IsMissing,
    Load,
    Logic,
    Meta,
    Missing,
    Path,
    Program,
    Return,
    Stmt,
    Unary,
)
from headwater.ir.operators import micros_of
from headwater.ir.walk import map_stmt
from headwater.spark.live.packing import loose
from headwater.spark.live.row_shape import LOG_META
from headwater.types.model import (
    BOOL,
    BYTES,
    F64,
    I64,
    TEXT,
    TIMESTAMP,
    U64,
    Array,
    Enum,
    List,
    Record,
    Scalar,
    Type,
    promote,
)

_ORDER: dict[str, CompareOp] = {
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "ge",
    "LessThan": "lt",
    "LessThanOrEqual": "le",
}
_TEXT = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
_META = {column: name for name, column in LOG_META.items()}
MOST_MEMBERS = 1_000  # of an IN list that is pushed


def translate(filter: Any, record: Record) -> Expr | None:
    """The condition that a Spark filter is on events of this type, or None where it cannot be said."""
    kind = filter.__class__.__name__
    if kind == "Not":
        inner = translate(filter.child, record)
        return None if inner is None else Unary("not", inner, BOOL)
    found = _column(filter.attribute, record)
    if found is None:
        return None
    column, stored = found
    if kind == "IsNull":
        return IsMissing(column)
    if kind == "IsNotNull":
        return Unary("not", IsMissing(column), BOOL)
    if isinstance(stored, Array | List | Record):
        return None
    if kind in _TEXT:
        wanted = _const(filter.value, stored)
        return Call(_TEXT[kind], (column, wanted), BOOL) if stored == TEXT and wanted is not None else None
    if kind in _ORDER:
        return _ordered(_ORDER[kind], column, stored, filter.value)
    if kind == "EqualTo":
        return Missing(BOOL) if filter.value is None else _equal(column, stored, filter.value)
    if kind == "EqualNullSafe":
        if filter.value is None:
            return IsMissing(column)
        same = _equal(column, stored, filter.value)
        return None if same is None else Logic("and", (Unary("not", IsMissing(column), BOOL), same))
    if kind == "In":
        return _member(column, stored, filter.value)
    return None


def _column(path: tuple[str, ...], record: Record) -> tuple[Expr, Type] | None:
    """What a column of Spark's is here, and its stored type."""
    if len(path) == 1 and path[0] in _META:
        name = _META[path[0]]
        return Meta(cast(Any, name), META_TYPES[name]), META_TYPES[name]
    here: Type = record
    for step in path:
        field = here.by_name.get(step) if isinstance(here, Record) else None
        if field is None:
            return None
        here = field.type
    return Load(Path(path), here, promote(here)), here


def _const(value: Any, stored: Type) -> Const | None:
    """A literal of Spark's as a constant that compares with a column of this type; None where it is of another."""
    if isinstance(stored, Enum):
        code = stored.code_of(value) if isinstance(value, str) else None
        return None if code is None else Const(code, stored)
    type = promote(stored)
    match value:
        case bool():
            return Const(value, BOOL) if type == BOOL else None
        case int() if type in (I64, U64):
            return _integer(value, type)
        case Decimal() if type == U64 and value.is_finite() and value == int(value):
            return _integer(int(value), U64)
        case float() if type == F64:
            return Const(value, F64)
        case str() if type == TEXT:
            return Const(value, TEXT) if value.isascii() or _is_utf8(value) else None
        case bytes() | bytearray() if type == BYTES:
            return Const(bytes(value), BYTES)
        case datetime() if type == TIMESTAMP and value.tzinfo is not None:
            micros = micros_of(value)
            return Const(micros, TIMESTAMP) if TIMESTAMP.range[0] <= micros <= TIMESTAMP.range[1] else None
    return None


def _integer(value: int, type: Type) -> Const | None:
    assert isinstance(type, Scalar)
    least, most = type.range
    return Const(value, type) if least <= value <= most else None


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _nan(column: Expr) -> Expr:
    return Call("is_nan", (column,), BOOL)


def _always(column: Expr, answer: bool) -> Expr:
    """The answer where there is a value, and missing where there is none."""
    known: Expr = IsMissing(column) if not answer else Unary("not", IsMissing(column), BOOL)
    return Logic("and" if not answer else "or", (known, Missing(BOOL)))


def _equal(column: Expr, stored: Type, value: Any) -> Expr | None:
    if isinstance(stored, Enum) and isinstance(value, str) and stored.code_of(value) is None:
        return _always(column, False)  # no member has this name
    const = _const(value, stored)
    if const is None:
        return None
    return _nan(column) if _is_nan(value) else Compare("eq", column, const)


def _ordered(op: CompareOp, column: Expr, stored: Type, value: Any) -> Expr | None:
    if value is None:
        return Missing(BOOL)
    const = _const(value, stored)
    if const is None or isinstance(stored, Enum) or stored == BOOL:
        return None  # members are ordered by code here and by name there
    if promote(stored) != F64:
        return Compare(op, column, const)
    if _is_nan(value):  # nothing is greater, and only NaN is as great
        if op in ("gt", "le"):
            return _always(column, op == "le")
        return _nan(column) if op == "ge" else Unary("not", _nan(column), BOOL)
    plain = Compare(op, column, const)
    return Logic("or", (plain, _nan(column))) if op in ("gt", "ge") else plain


def _member(column: Expr, stored: Type, values: Iterable[Any]) -> Expr | None:
    values = tuple(values)
    if not values or len(values) > MOST_MEMBERS:
        return None
    made = [Missing(BOOL) if value is None else _equal(column, stored, value) for value in values]
    if any(part is None for part in made):
        return None
    parts = tuple(part for part in made if part is not None)
    return parts[0] if len(parts) == 1 else Logic("or", parts)


def narrowed(interest: Interest | None, conditions: list[Expr], record: Record) -> Interest | None:
    """The interest and the conditions in one: passes what passes both. Only for filters without state."""
    if not conditions:
        return interest
    every = conditions[0] if len(conditions) == 1 else Logic("and", tuple(conditions))
    if interest is None:
        return Interest.from_program(Program(loose(record), None, (), (), (Return(every),)))
    assert interest.output is None and not interest.stateful
    program = replace(interest.program, body=tuple(_both(stmt, every) for stmt in interest.program.body))
    return Interest.from_program(program, interest.params, limits=interest.limits)


def _both(stmt: Stmt, every: Expr) -> Stmt:
    """A filter passes only where it returns true: there the conditions have their say too."""
    if isinstance(stmt, Return):
        return replace(stmt, value=Logic("and", (stmt.value, every)))
    return map_stmt(stmt, lambda expr: expr, lambda block: tuple(_both(inner, every) for inner in block))


def only(filters: Iterable[Any], column: str) -> set[str] | None:
    """The texts that a column is restricted to by the filters, None if it is not."""
    found: set[str] | None = None
    for filter in filters:
        if getattr(filter, "attribute", None) != (column,):
            continue
        kind = filter.__class__.__name__
        if kind in ("EqualTo", "EqualNullSafe") and isinstance(filter.value, str):
            these = {filter.value}
        elif kind == "In":
            these = {value for value in filter.value if isinstance(value, str)}
        else:
            continue
        found = these if found is None else found & these
    return found
