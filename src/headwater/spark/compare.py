"""Comparisons and membership as Spark SQL: exact in three-valued logic, and plain enough for Parquet to prune by.

Spark orders NaN above everything and equal to itself; ours compares as IEEE 754 does. So `x < c` needs no guard, and
`x > c` only asks besides that x is not NaN. A column narrower than 64 bits is compared as it is stored, with a
literal of its own type: casting the column would hide it from the file's statistics.

Statistics may leave NaN out, so what is true of NaN (`x <> c`, `NOT x < c`) must not be pruned by: there we add
`OR isnan(x)`, which changes nothing in Spark's eyes but keeps the condition out of the file scan.

With `truth` only *true* matters, as in a filter: null and false may be exchanged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

from headwater.ir.library import round_f32
from headwater.late import np
from headwater.spark.sql_text import (
    DECIMAL,
    Sql,
    decimal,
    integer,
    integer_range,
    literal,
    single,
    type_name,
)
from headwater.types.model import F32, F64, U64, Scalar, Type

_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {op: getattr(operator, op) for op in _SIGNS}


def known(value: bool, a: Sql, *, truth: bool = False) -> Sql:
    """`value` wherever `a` has one, else missing."""
    text = "TRUE" if value else "FALSE"
    if not a.nullable:
        return Sql(text, nullable=False, const=value)
    if truth:
        return Sql(f"({a} IS NOT NULL)" if value else "FALSE", nullable=False)
    return Sql(f"CASE WHEN {a} IS NOT NULL THEN {text} END")


def negated(op: str, a: Sql, b: Sql, types: tuple[Type, Type], *, truth: bool = False) -> Sql:
    """`NOT a op b`."""
    if op in ("eq", "ne"):
        return compare("ne" if op == "eq" else "eq", a, b, types, truth=truth)
    result = compare(op, a, b, types)
    text = f"(NOT {result})"
    if F64 in types and (a.is_const or b.is_const):
        x = b if a.is_const else a
        text = f"({text} OR isnan({x.raw or x.text}))" if x.nan else text
    return Sql(text, nullable=result.nullable)


def compare(op: str, a: Sql, b: Sql, types: tuple[Type, Type], *, truth: bool = False) -> Sql:
    """`a op b`; `types` are the operands' own, which differ only for i64 beside u64."""
    if a.is_const and not b.is_const:
        op, a, b, types = _FLIPPED[op], b, a, (types[1], types[0])
    if F64 in types:
        return _floats(op, a, b, truth)
    if U64 in types:
        return _with_unsigned(op, a, b, types, truth)
    if isinstance(types[0], Scalar) and types[0].is_integer:
        return _integers(op, a, b, truth)
    return _plain(op, a, b)


def _plain(op: str, a: Sql, b: Sql, *, left: str = "", right: str = "") -> Sql:
    return Sql(f"({left or a} {_SIGNS[op]} {right or b})", nullable=a.nullable or b.nullable)


def _integers(op: str, a: Sql, b: Sql, truth: bool) -> Sql:
    if a.raw is None or not b.is_const:
        return _plain(op, a, b, left=a.raw or "", right=b.raw or "")
    spark_type = type_name(a.stored or Scalar("i64"))
    least, greatest = integer_range(spark_type)
    if least <= b.const <= greatest:
        return _plain(op, a, b, left=a.raw, right=integer(b.const, spark_type))
    inside = least if b.const < least else greatest  # compares like every value of the column
    return known(bool(_PYTHON[op](inside, b.const)), a, truth=truth)


def _with_unsigned(op: str, a: Sql, b: Sql, types: tuple[Type, Type], truth: bool) -> Sql:
    if b.is_const and types[0] == U64:
        if b.const < 0:
            return known(op in ("ne", "gt", "ge"), a, truth=truth)
        return _plain(op, a, b, right=decimal(b.const))
    left, right = (str(x) if t == U64 else f"CAST({x} AS {DECIMAL})" for x, t in zip((a, b), types, strict=True))
    return _plain(op, a, b, left=left, right=right)


def _floats(op: str, a: Sql, b: Sql, truth: bool) -> Sql:
    if a.is_const and b.is_const:
        return known(bool(_PYTHON[op](a.const, b.const)), a)
    if not b.is_const:
        return _float_pair(op, a, b, truth)
    if math.isnan(b.const):
        return known(op == "ne", a, truth=truth)
    if a.raw is not None and a.stored == F32:
        return _single(op, a, a.raw, b.const, truth)
    return _not_nan(op, _plain(op, a, b), a, a.text)


def _not_nan(op: str, result: Sql, a: Sql, text: str) -> Sql:
    """Beside a constant: NaN is above it in Spark, and nowhere for us."""
    if op in ("gt", "ge") and a.nan:
        return Sql(f"({result} AND NOT isnan({text}))", nullable=result.nullable)
    if op == "ne" and a.nan:
        return Sql(f"({result} OR isnan({text}))", nullable=result.nullable)
    return result


def _single(op: str, a: Sql, raw: str, c: float, truth: bool) -> Sql:
    """A float32 column beside a double: the nearest float32 on the right side of it gives the same answer."""
    near = round_f32(c)
    if near != c:
        if op in ("eq", "ne"):
            return known(op == "ne", a, truth=truth)
        upward = op in ("gt", "ge")
        if (near < c) == upward:
            near = _next_single(near, math.inf if upward else -math.inf)
        op = "ge" if upward else "le"
    return _not_nan(op, Sql(f"({raw} {_SIGNS[op]} {single(near)})", nullable=a.nullable), a, raw)


def _next_single(value: float, toward: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.nextafter(np.float32(value), np.float32(toward)))


def _float_pair(op: str, a: Sql, b: Sql, truth: bool) -> Sql:
    left, right = (a.raw, b.raw) if a.raw and b.raw else (a.text, b.text)
    result = _plain(op, a, b, left=left, right=right)
    guarded, other = ((b, right), a) if op in ("lt", "le") else ((a, left), b)
    if op in ("eq", "ne") and not b.nan:
        return result
    if not guarded[0].nan:
        return result
    is_nan = f"isnan({guarded[1]})"
    if op == "ne":
        also = f"({is_nan} AND {other} IS NOT NULL)" if other.nullable else is_nan
        return Sql(f"({result} OR {also})", nullable=result.nullable)
    unless = f" OR {other} IS NULL" if other.nullable and not truth else ""
    return Sql(f"({result} AND (NOT {is_nan}{unless}))", nullable=result.nullable)


def member(a: Sql, values: Iterable[Any], type: Type, *, truth: bool = False) -> Sql:
    """Whether `a` is among raw values; missing only if `a` is."""
    values = [v for v in values if v == v]
    left = a.text
    if type == F64:
        # -0.0 becomes 0.0 on both sides, whether Spark looks up values or bits; and NOT IN, which is true of NaN, stays
        # out of the file scan.
        values = sorted({v + 0.0 for v in values})
        left = f"({a} + 0.0D)"
    if a.raw is not None and isinstance(a.stored, Scalar) and a.stored.is_integer:
        spark_type = type_name(a.stored)
        least, greatest = integer_range(spark_type)
        left, literals = a.raw, [integer(v, spark_type) for v in values if least <= v <= greatest]
    else:
        literals = [literal(v, type).text for v in values]
    if not literals:
        return known(False, a, truth=truth)
    return Sql(f"({left} IN ({', '.join(dict.fromkeys(literals))}))", nullable=a.nullable)
