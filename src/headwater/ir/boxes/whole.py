"""Arithmetic of integers, timestamps and what becomes of them: exact, and missing where a result does not fit.

What is not written out here `ir/intervals.py` knows already.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headwater.ir import intervals
from headwater.ir.boxes.interval import INFINITY, NO_VALUE, Bounds
from headwater.ir.intervals import Value, type_range
from headwater.ir.library import PLAIN
from headwater.types.model import I64, Type

HOUR = 3_600_000_000  # microseconds
DAY = 24 * HOUR


def fit(lo: int, hi: int, miss: bool, type: Type) -> Bounds:
    """A checked result: what does not fit the type is missing."""
    least, greatest = type_range(type) or (lo, hi)
    if least <= lo and hi <= greatest:
        return (lo, hi, False, miss)
    if lo > greatest or hi < least:
        return (*NO_VALUE, False, True)
    return (max(lo, least), min(hi, greatest), False, True)


def binary(op: str, a: Bounds, b: Bounds, type: Type) -> Bounds:
    """An arithmetic operation on integers, or with timestamps."""
    alo, ahi, _, amiss = a
    blo, bhi, _, bmiss = b
    miss = amiss or bmiss
    if alo > ahi or blo > bhi:
        return (*NO_VALUE, False, miss)
    if op == "add":
        return fit(alo + blo, ahi + bhi, miss, type)
    if op == "sub":
        return fit(alo - bhi, ahi - blo, miss, type)
    if op == "mul":
        corners = (alo * blo, alo * bhi, ahi * blo, ahi * bhi)
        return fit(min(corners), max(corners), miss, type)
    found, _ = intervals.binary(op, Value(amiss, alo, ahi), Value(bmiss, blo, bhi), type)
    return _bounds(found)


def _bounds(value: Value) -> Bounds:
    if value.empty:
        return (*NO_VALUE, False, value.miss)
    return (value.lo, value.hi, False, value.miss)


def square(a: Bounds, type: Type) -> Bounds:
    """A value times itself."""
    lo, hi, _, miss = a
    if lo > hi:
        return a
    high = max(lo * lo, hi * hi)
    return fit(0 if lo <= 0 <= hi else min(lo * lo, hi * hi), high, miss, type)


def negate(a: Bounds, type: Type) -> Bounds:
    """Of the least integer there is none, and of an unsigned one only of zero."""
    return a if a[0] > a[1] else fit(-a[1], -a[0], a[3], type)


def invert(a: Bounds, type: Type) -> Bounds:
    """All bits the other way."""
    most = -1 if type == I64 else (1 << 64) - 1
    return a if a[0] > a[1] else (most - a[1], most - a[0], False, a[3])


def absolute(a: Bounds) -> Bounds:
    """Without its sign; the least integer has no counterpart. What may be negative is an i64."""
    lo, hi, _, miss = a
    if lo > hi or lo >= 0:
        return a
    return fit(0 if hi >= 0 else -hi, max(-lo, hi), miss, I64)


def to_float(a: Bounds) -> Bounds:
    """The nearest float: rounding keeps the order."""
    return a if a[0] > a[1] else (float(a[0]), float(a[1]), False, a[3])


def from_float(a: Bounds, type: Type) -> Bounds:
    """Truncated; NaN, infinities and what does not fit are missing."""
    lo, hi, nan, miss = a
    if lo > hi:
        return (*NO_VALUE, False, miss or nan)
    least, greatest = type_range(type) or (0, 0)
    miss = miss or nan or lo == -INFINITY or hi == INFINITY
    low = least - 1 if lo == -INFINITY else greatest + 1 if lo == INFINITY else math.trunc(lo)
    high = greatest + 1 if hi == INFINITY else least - 1 if hi == -INFINITY else math.trunc(hi)
    return fit(low, high, miss, type)


def convert(a: Bounds, type: Type) -> Bounds:
    """To another type that is counted in integers."""
    return a if a[0] > a[1] else fit(a[0], a[1], a[3], type)


# ── calendar: each part rises within a period, and starts again with the next ──

_WITHIN: dict[str, Callable[[int], object]] = {
    "year": lambda t: 0,
    "month": PLAIN["year"],
    "day": lambda t: (PLAIN["year"](t), PLAIN["month"](t)),
    "hour": lambda t: t // DAY,
    "minute": lambda t: t // HOUR,
    "second": lambda t: t // 60_000_000,
    "weekday": lambda t: (t // DAY + 3) // 7,
}
_RANGES = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "weekday": (0, 6)}
PARTS = tuple(_WITHIN)


def part(name: str, a: Bounds) -> Bounds:
    """A part of a time."""
    lo, hi, _, miss = a
    if lo > hi:
        return a
    if _WITHIN[name](lo) == _WITHIN[name](hi):
        return (PLAIN[name](lo), PLAIN[name](hi), False, miss)
    return (*_RANGES[name], False, miss)


def lengths(a: Bounds) -> Bounds:
    """How long a text may be of which nothing is known."""
    return (0, intervals.LENGTH_MAX, False, a[3]) if a[0] is None or a[0] <= a[1] else (*NO_VALUE, False, a[3])


def fit_zero(a: Bounds) -> Bounds:
    """An integer minus itself."""
    return a if a[0] > a[1] else (0, 0, False, a[3])
