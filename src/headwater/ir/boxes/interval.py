"""Intervals of values, and boxes of them by path.

    Interval(0.0, 10.0)                  a number from 0 to 10, there, and not NaN
    Interval(0, 5, miss=True)            the same of integers, or missing
    Interval.of(3.5)                     exactly this value
    Box({"a.x": Interval(0.0, 10.0)})    what is not named may be anything that its type has

The ends belong to it. Integers, timestamps (microseconds), booleans (0 and 1) and enumerations (codes) have integer
ends, floats have floats, which may be infinite; texts and bytes have ends of their own kind. An interval whose lower
end is above its upper one holds no value but what its flags say. 0.0 and -0.0 are one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.ir.intervals import type_range
from headwater.types.model import BOOL, Enum, Scalar, Type

INFINITY = math.inf

# An interval as the arithmetic hands it on: (lo, hi, may be NaN, may be missing).
Bounds = tuple[Any, Any, bool, bool]


class Interval(NamedTuple):
    """From where to where a value is, and whether it may be NaN or missing; ends of None: any value of its type."""

    lo: Any = None
    hi: Any = None
    nan: bool = False
    miss: bool = False

    @classmethod
    def of(cls, value: Any) -> Interval:
        """Exactly one raw value: None is missing."""
        if value is None:
            return MISSING
        if isinstance(value, float) and math.isnan(value):
            return cls(*NO_VALUE, nan=True)
        if isinstance(value, bool):
            value = int(value)
        return cls(value, value)

    @property
    def empty(self) -> bool:
        """Whether it holds no value other than NaN."""
        return self.lo is not None and bool(self.lo > self.hi)

    def holds(self, value: Any) -> bool:
        """Whether a raw value lies in it."""
        if value is None:
            return self.miss
        if isinstance(value, float) and math.isnan(value):
            return self.nan
        return self.lo is None or bool(self.lo <= value <= self.hi)

    def __str__(self) -> str:
        flags = [word for word, on in (("NaN", self.nan), ("missing", self.miss)) if on]
        if self.lo is None:
            return " or ".join(["any value", *flags])
        shown = [] if self.empty else [f"{self.lo!r}" if self.lo == self.hi else f"{self.lo!r} to {self.hi!r}"]
        return " or ".join([*shown, *flags]) or "nothing"


NO_VALUE = (INFINITY, -INFINITY)  # the ends of an interval without a number
MISSING = Interval(*NO_VALUE, miss=True)
ANYTHING = Interval(nan=True, miss=True)


class Box(dict[str, Interval]):
    """Intervals by path: `a.position.x`, `wind[2]`; what the service knows of an event is `@time`, `@seq`, `@source`
    and `@node`. A part of which only the presence is asked has a path too."""

    @classmethod
    def at(cls, values: Mapping[str, Any]) -> Box:
        """The box of one point: raw values by path."""
        return cls({path: Interval.of(value) for path, value in values.items()})

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether a point lies in it; what the point does not name counts as missing."""
        return all(interval.holds(values.get(path)) for path, interval in self.items())


def anything(type: Type, miss: bool) -> Bounds:
    """All values of a stored type."""
    whole = type_range(type)
    if whole is not None:
        return (*whole, False, miss)
    if isinstance(type, Scalar) and type.is_float:
        return (-INFINITY, INFINITY, True, miss)
    return (None, None, False, miss)


def fitted(given: Bounds, type: Type) -> Bounds:
    """An interval of a box as one of values of a type: whole numbers have whole ends, within the type's range."""
    lo, hi, nan, miss = given
    if lo is None or hi is None:
        whole = anything(type, miss)
        return (whole[0], whole[1], nan and whole[2], miss)
    if lo != lo or hi != hi:
        raise ValueError(f"an interval of a box: expected ends that are numbers, found {lo!r} to {hi!r}")
    if isinstance(type, Enum) or (isinstance(type, Scalar) and (type.is_integer or type in (BOOL, _TIME))):
        return _whole(lo, hi, miss, type)
    if isinstance(type, Scalar) and type.is_float:
        return (_below(lo), _above(hi), nan, miss)
    return (lo, hi, False, miss)


_TIME = Scalar("timestamp")


def _whole(lo: Any, hi: Any, miss: bool, type: Type) -> Bounds:
    least, greatest = type_range(type) or (0, 0)
    if lo > greatest or hi < least or lo > hi:
        return (*NO_VALUE, False, miss)
    low = least if lo < least else math.ceil(lo)
    high = greatest if hi > greatest else math.floor(hi)
    return (low, high, False, miss) if low <= high else (*NO_VALUE, False, miss)


def _below(x: Any) -> float:
    """A float that is no greater: of an integer that no float is, the one below."""
    near = float(x)
    return near if near <= x else math.nextafter(near, -INFINITY)


def _above(x: Any) -> float:
    near = float(x)
    return near if near >= x else math.nextafter(near, INFINITY)


def hull(a: Bounds, b: Bounds) -> Bounds:
    """What is either."""
    nan, miss = a[2] or b[2], a[3] or b[3]
    if a[0] is None or b[0] is None:
        return (None, None, nan, miss)
    if a[0] > a[1]:
        return (b[0], b[1], nan, miss)
    if b[0] > b[1]:
        return (a[0], a[1], nan, miss)
    return (min(a[0], b[0]), max(a[1], b[1]), nan, miss)
