"""Comparisons, three-valued logic, choices and membership over intervals. A truth is an interval of 0 and 1."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headwater.ir.boxes.interval import NO_VALUE, Bounds, Interval, hull

FALSE: Bounds = (0, 0, False, False)
TRUE: Bounds = (1, 1, False, False)
ENUMERATED = 64  # so many values of an interval are looked up one by one


def truth(can_be: bool, can_fail: bool, miss: bool) -> Bounds:
    """True, false or missing, as each may be."""
    if can_be:
        return (0 if can_fail else 1, 1, False, miss)
    return (0, 0, False, miss) if can_fail else (*NO_VALUE, False, miss)


def compare(op: str, a: Bounds, b: Bounds) -> Bounds:
    """Where the intervals decide it. NaN is unequal to everything, and in no order."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    miss, nan = amiss or bmiss, anan or bnan
    if alo is None or blo is None:
        return (0, 1, False, miss)
    can_be = can_fail = False
    if alo <= ahi and blo <= bhi:
        can_be, can_fail = _COMPARED[op](alo, ahi, blo, bhi)
    if nan:
        can_be, can_fail = (True, can_fail) if op == "ne" else (can_be, True)
    return truth(can_be, can_fail, miss)


_Compared = Callable[[Any, Any, Any, Any], tuple[bool, bool]]  # whether it may hold, whether it may not
_COMPARED: dict[str, _Compared] = {
    "lt": lambda alo, ahi, blo, bhi: (alo < bhi, ahi >= blo),
    "le": lambda alo, ahi, blo, bhi: (alo <= bhi, ahi > blo),
    "gt": lambda alo, ahi, blo, bhi: (ahi > blo, alo <= bhi),
    "ge": lambda alo, ahi, blo, bhi: (ahi >= blo, alo < bhi),
    "eq": lambda alo, ahi, blo, bhi: (alo <= bhi and blo <= ahi, not alo == ahi == blo == bhi),
    "ne": lambda alo, ahi, blo, bhi: (not alo == ahi == blo == bhi, alo <= bhi and blo <= ahi),
}


def compare_with_itself(op: str, a: Bounds) -> Bounds:
    """A value beside the same value: only NaN is not equal to itself."""
    there = a[0] is None or a[0] <= a[1]
    if op in ("eq", "le", "ge"):
        return truth(there, a[2], a[3])
    return truth(a[2] and op == "ne", there or (a[2] and op != "ne"), a[3])


def negate(a: Bounds) -> Bounds:
    """`not`: missing stays missing."""
    return a if a[0] > a[1] else (1 - a[1], 1 - a[0], False, a[3])


def logic(decisive: int, args: list[Bounds]) -> Bounds:
    """`or` (1) and `and` (0): the decisive value decides, else missing does, else all are the other."""
    if decisive == 0:
        return negate(logic(1, [negate(arg) for arg in args]))
    can_be, all_fail, some_missing = False, True, False
    for lo, hi, _, miss in args:
        if lo == 1 and not miss:
            return TRUE
        can_be = can_be or hi == 1
        all_fail = all_fail and lo == 0
        some_missing = some_missing or miss
    return truth(can_be, all_fail, some_missing)


def choose(test: Bounds, then: Bounds, other: Bounds, neither: Bounds) -> Bounds:
    """What a conditional may be: every branch that its test may take."""
    lo, hi, _, miss = test
    found: Bounds | None = neither if miss else None
    if lo <= hi:
        if hi == 1:
            found = then if found is None else hull(found, then)
        if lo == 0:
            found = other if found is None else hull(found, other)
    return (*NO_VALUE, False, False) if found is None else found


def coalesce(args: list[Bounds]) -> Bounds:
    """The first that is there."""
    found = args[0]
    for arg in args[1:]:
        if not found[3]:
            return found
        found = hull((found[0], found[1], found[2], False), arg)
    return found


def is_missing(a: Bounds) -> Bounds:
    """Whether there is a value; never missing itself."""
    return truth(a[3], a[0] is None or a[2] or a[0] <= a[1], False)


def is_nan(a: Bounds) -> Bounds:
    """Whether a float is NaN."""
    return truth(a[2], a[0] <= a[1], a[3])


def is_not_zero(a: Bounds) -> Bounds:
    """A number as a truth; NaN is not zero."""
    lo, hi, nan, miss = a
    there = lo <= hi
    return truth((there and not lo == hi == 0) or nan, there and lo <= 0 <= hi, miss)


class Members:
    """Constants, or a parameter's members: asked by the interval what may be among them."""

    def __init__(self, values: Collection[Any]) -> None:
        self.values = frozenset(value for value in values if value == value)
        self.ordered = sorted(self.values)

    def test(self, a: Bounds) -> Bounds:
        lo, hi, nan, miss = a
        if lo is None:
            return truth(bool(self.values), True, miss)
        if lo > hi:
            return truth(False, nan, miss)
        if lo == hi:
            return truth(lo in self.values, lo not in self.values or nan, miss)
        count = bisect_right(self.ordered, hi) - bisect_left(self.ordered, lo)
        every = isinstance(lo, int) and isinstance(hi, int) and count == hi - lo + 1
        return truth(count > 0, not every or nan, miss)


class Entries:
    """A map parameter: what is found at the keys of an interval."""

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = values
        self.whole: Bounds = (*NO_VALUE, False, False)
        for value in values.values():
            self.whole = hull(self.whole, Interval.of(value))

    def find(self, key: Bounds) -> Bounds:
        """The value at a key that is certain; else any of them, or none."""
        lo, hi, nan, miss = key
        if not self.values or (lo is not None and lo > hi):
            return (*NO_VALUE, False, True)
        if lo is None or lo != hi:
            if isinstance(lo, int) and isinstance(hi, int) and hi - lo < ENUMERATED:
                return self._among(range(lo, hi + 1), miss)
            return (*self.whole[:3], True)
        found: Bounds = Interval.of(self.values.get(lo))
        return (*found[:3], found[3] or miss or nan)

    def _among(self, keys: range, miss: bool) -> Bounds:
        found: Bounds = (*NO_VALUE, False, miss)
        for key in keys:
            found = hull(found, Interval.of(self.values.get(key)))
        return found
