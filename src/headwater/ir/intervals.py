"""Abstract values: may it be missing, and between which numbers does it lie.

`Value(miss, lo, hi)` stands for integers, timestamps, booleans (0 and 1), enumerations (codes) and, where something is
known, floats (then not NaN). `lo is None` says nothing about the number. An interval with lo > hi is empty: such a
value is always missing.

This file knows arithmetic and nothing of programs; `analyse.py` walks them.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

from headwater.ir.functions import MICROS
from headwater.types.model import BOOL, F64, I64, TIMESTAMP, U64, Array, Enum, List, Scalar, Type

LENGTH_MAX = 1 << 48  # no list or text is longer, in any memory


class Value(NamedTuple):
    """What is known of a value: whether it may be missing, and, of a number, from where to where it is; no bounds:
    anything."""

    miss: bool
    lo: int | float | None = None
    hi: int | float | None = None

    @property
    def empty(self) -> bool:
        return self.lo is not None and self.hi is not None and self.lo > self.hi


NOTHING = Value(True, 1, 0)


def type_range(type: Type) -> tuple[int, int] | None:
    """Least and greatest value of a type that is counted in integers."""
    if isinstance(type, Enum):
        codes = [code for _, code in type.members]
        return min(codes), max(codes)
    if isinstance(type, Scalar):
        if type == BOOL:
            return 0, 1
        if type.is_integer or type == TIMESTAMP:
            return type.range
    return None


def top(type: Type, miss: bool) -> Value:
    """Anything of a type."""
    bounds = type_range(type)
    return Value(miss, *bounds) if bounds else Value(miss)


def constant(value: bool | int | float | str | bytes) -> Value:
    """What is known of a constant: everything, if it is a finite number."""
    if isinstance(value, int):
        return Value(False, int(value), int(value))
    if isinstance(value, float) and math.isfinite(value):
        return Value(False, value, value)
    return Value(False)


def join(a: Value, b: Value) -> Value:
    """What is either."""
    if a == b:
        return a
    miss = a.miss or b.miss
    if a.empty or b.empty:
        return Value(miss, b.lo, b.hi) if a.empty else Value(miss, a.lo, a.hi)
    if a.lo is None or b.lo is None or a.hi is None or b.hi is None:
        return Value(miss)
    return Value(miss, min(a.lo, b.lo), max(a.hi, b.hi))


def within(a: Value, b: Value) -> bool:
    """Whether everything that a may be, b may be too."""
    return join(a, b) == b


def widen(old: Value, new: Value, type: Type) -> Value:
    """Jump to the type's range where a bound still moves, so that loops settle. `new` includes `old`."""
    if old.empty or old.lo is None or old.hi is None or new.lo is None or new.hi is None:
        return new
    if old.lo == new.lo and old.hi == new.hi:
        return new
    bounds = type_range(type)
    if bounds is None:
        return Value(new.miss)
    return Value(new.miss, old.lo if old.lo == new.lo else bounds[0], old.hi if old.hi == new.hi else bounds[1])


def clamp(miss: bool, lo: int, hi: int, type: Type) -> tuple[Value, bool]:
    """A checked result that lies between lo and hi if it fits the type; and whether it may not fit."""
    least, greatest = type_range(type) or (lo, hi)
    if lo > greatest or hi < least:
        return NOTHING, True
    fault = lo < least or hi > greatest
    return Value(miss or fault, max(lo, least), min(hi, greatest)), fault


def binary(op: str, a: Value, b: Value, type: Type) -> tuple[Value, bool]:
    """An arithmetic operation, and whether it may fault."""
    if a.empty or b.empty:
        return NOTHING, False
    miss = a.miss or b.miss
    if type == F64:
        if op != "div":
            return Value(miss), False
        fault = b.lo is None or b.hi is None or b.lo <= 0 <= b.hi
        return Value(miss or fault), fault
    assert a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None
    (alo, ahi), (blo, bhi) = (int(a.lo), int(a.hi)), (int(b.lo), int(b.hi))
    match op:
        case "add":
            return clamp(miss, alo + blo, ahi + bhi, type)
        case "sub":
            return clamp(miss, alo - bhi, ahi - blo, type)
        case "mul":
            corners = [x * y for x, y in product((alo, ahi), (blo, bhi))]
            return clamp(miss, min(corners), max(corners), type)
        case "and" | "or" | "xor":
            return _bits(op, miss, (alo, ahi), (blo, bhi), type), False
        case "shl" | "shr":
            return _shift(op, miss, (alo, ahi), (blo, bhi), type)
        case _:
            return _divide(op, miss, (alo, ahi), (blo, bhi), type)


def _bits(op: str, miss: bool, a: tuple[int, int], b: tuple[int, int], type: Type) -> Value:
    if a[0] >= 0 and b[0] >= 0:
        if op == "and":
            return Value(miss, 0, min(a[1], b[1]))
        return Value(miss, 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1)
    if op == "and" and (a[0] >= 0 or b[0] >= 0):
        return Value(miss, 0, a[1] if a[0] >= 0 else b[1])
    return top(type, miss)


def _shift(op: str, miss: bool, a: tuple[int, int], b: tuple[int, int], type: Type) -> tuple[Value, bool]:
    by = max(b[0], 0), min(b[1], 63)
    if by[0] > by[1]:
        return NOTHING, True
    odd = by != b
    corners = [x << y if op == "shl" else x >> y for x, y in product(a, by)]
    value, fault = clamp(miss or odd, min(corners), max(corners), type)
    return value, fault or odd


def _divide(op: str, miss: bool, a: tuple[int, int], b: tuple[int, int], type: Type) -> tuple[Value, bool]:
    by_zero = b[0] <= 0 <= b[1]
    divisors = sorted({d for d in (b[0], b[1], -1, 1) if b[0] <= d <= b[1] and d != 0})
    if not divisors:
        return NOTHING, True
    if op in ("tdiv", "fdiv"):
        quotients = [_quotient(op, x, d) for x, d in product(a, divisors)]
        value, fault = clamp(miss or by_zero, min(quotients), max(quotients), type)
        return value, fault or by_zero
    most = max(abs(b[0]), abs(b[1])) - 1
    if op == "tmod":  # the dividend's sign, and never further from zero than it
        lo, hi = (0 if a[0] >= 0 else -min(most, -a[0])), (0 if a[1] <= 0 else min(most, a[1]))
    else:  # the divisor's sign
        lo, hi = (0 if b[0] >= 0 else b[0] + 1), (0 if b[1] <= 0 else b[1] - 1)
    return Value(miss or by_zero, lo, hi), by_zero


def _quotient(op: str, x: int, d: int) -> int:
    floor, rest = divmod(x, d)
    return floor + 1 if op == "tdiv" and rest and (x < 0) != (d < 0) else floor


def negate(a: Value, type: Type) -> tuple[Value, bool]:
    """The interval of a negation, and whether it may overflow."""
    if a.empty:
        return NOTHING, False
    if type == F64:
        return (Value(a.miss, -a.hi, -a.lo) if a.lo is not None and a.hi is not None else Value(a.miss)), False
    assert a.lo is not None and a.hi is not None
    return clamp(a.miss, -int(a.hi), -int(a.lo), type)


def invert(a: Value, type: Type) -> Value:
    """Bitwise not."""
    if a.empty:
        return NOTHING
    assert a.lo is not None and a.hi is not None
    most = -1 if type == I64 else (1 << 64) - 1
    return Value(a.miss, most - int(a.hi), most - int(a.lo))


def compare(op: str, a: Value, b: Value) -> Value:
    """The truth of a comparison, where the intervals decide it."""
    if a.empty or b.empty:
        return NOTHING
    miss = a.miss or b.miss
    if a.lo is None or b.lo is None or a.hi is None or b.hi is None:
        return Value(miss, 0, 1)
    always, never = {
        "lt": (a.hi < b.lo, a.lo >= b.hi),
        "le": (a.hi <= b.lo, a.lo > b.hi),
        "gt": (a.lo > b.hi, a.hi <= b.lo),
        "ge": (a.lo >= b.hi, a.hi < b.lo),
        "eq": (a.lo == a.hi == b.lo == b.hi, a.hi < b.lo or a.lo > b.hi),
        "ne": (a.hi < b.lo or a.lo > b.hi, a.lo == a.hi == b.lo == b.hi),
    }[op]
    return Value(miss, 1 if always else 0, 0 if never else 1)


def cast(a: Value, source: Type, to: Type) -> tuple[Value, bool]:
    """The interval after a conversion, and whether that may be impossible for some of it."""
    if a.empty:
        return NOTHING, False
    if to == BOOL:
        if a.lo is None or a.hi is None:
            return Value(a.miss, 0, 1), False
        return Value(a.miss, 0 if a.lo <= 0 <= a.hi else 1, 0 if a.lo == a.hi == 0 else 1), False
    if isinstance(to, Scalar) and to.is_float:
        if a.lo is None or a.hi is None or to != F64:
            return Value(a.miss), False
        return Value(a.miss, float(a.lo), float(a.hi)), False
    if a.lo is None or a.hi is None:
        return top(to, True), True
    return clamp(a.miss, math.trunc(a.lo), math.trunc(a.hi), to)


_PARTS = {
    "year": (1, 9999),
    "month": (1, 12),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
    "weekday": (0, 6),
    "length": (0, LENGTH_MAX),
    "byte_length": (0, LENGTH_MAX),
}


def call(fn: str, args: list[Value], type: Type) -> tuple[Value, bool]:
    """A library function other than coalesce."""
    if any(arg.empty for arg in args):
        return NOTHING, False
    miss = any(arg.miss for arg in args)
    first = args[0]
    if fn in _PARTS:
        return Value(miss, *_PARTS[fn]), False
    match fn:
        case "micros" | "code":
            return first, False
        case "fmod":
            return binary("div", first, args[1], F64)
        case "seconds" | "minutes" | "hours" | "days":
            if first.lo is None or first.hi is None or isinstance(first.lo, float):
                return top(I64, True), True
            return clamp(miss, int(first.lo) * MICROS[fn], int(first.hi) * MICROS[fn], I64)
        case "abs" if type != F64:
            assert first.lo is not None and first.hi is not None
            low, high = int(first.lo), int(first.hi)
            return clamp(miss, 0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)), type)
        case "min" | "max" if type in (I64, U64):
            pick = min if fn == "min" else max
            lows, highs = [int(arg.lo or 0) for arg in args], [int(arg.hi or 0) for arg in args]
            return Value(miss, pick(lows), pick(highs)), False
        case _:
            return top(type, miss), False


def reduce(op: str, miss: bool, stored: Type, type: Type) -> tuple[Value, bool]:
    """A reduction over an array or list that is missing or not."""
    assert isinstance(stored, Array | List)
    count = (stored.count, stored.count) if isinstance(stored, Array) else (0, LENGTH_MAX)
    if op == "len":
        return Value(miss, *((stored.shape[0],) * 2 if isinstance(stored, Array) else count)), False
    bounds = type_range(stored.element)
    if op == "sum" and bounds:
        return clamp(miss, min(0, bounds[0] * count[1]), max(0, bounds[1] * count[1]), type)
    some = miss or (op != "sum" and count[0] == 0)
    return (Value(some, *bounds) if bounds and op in ("min", "max") else Value(some)), False
