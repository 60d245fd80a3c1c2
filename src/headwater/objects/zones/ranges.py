"""Ranges of values, and areas: one range for each of the values that an owner is asked about.

A box of numbers holds neither NaN nor a missing value: an owner whose number becomes one of these has left it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

Number = int | float
Value = bool | int | float | str | None


class Bounds(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """All numbers from `low` to `high`, both included; either may be infinite."""

    low: Number
    high: Number


class Only(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Exactly this value."""

    value: Value


class Anything(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Any value at all, NaN and missing among them."""


Range = Bounds | Only | Anything
Area = tuple[Range, ...]
ANYTHING = Anything()


def is_number(value: object) -> bool:
    """Whether a value can lie between bounds: no truth value, no NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def same(a: Value, b: Value) -> bool:
    """Whether no condition can tell two values apart: NaN is itself here, and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    return a == b


def holds_value(range: Range, value: Value) -> bool:
    """Whether the value lies in the range."""
    match range:
        case Bounds(low, high):
            return is_number(value) and low <= value <= high  # type: ignore[operator]
        case Only(only):
            return same(only, value)
        case Anything():
            return True


def holds_values(area: Sequence[Range], values: Sequence[Value]) -> bool:
    """Whether each value lies in its range."""
    return all(map(holds_value, area, values))


def exactly(values: Iterable[Value]) -> Area:
    """The area of just these values."""
    return tuple(map(Only, values))


def is_exact(area: Sequence[Range]) -> bool:
    """Whether an area leaves no doubt about any value."""
    return all(isinstance(range, Only) for range in area)


def values_of(area: Sequence[Range]) -> tuple[Value, ...]:
    """The values of an exact area."""
    return tuple(range.value for range in area if isinstance(range, Only))


def hull(a: Range, b: Range) -> Range:
    """The smallest range that holds both."""
    if isinstance(a, Anything) or isinstance(b, Anything):
        return ANYTHING
    if isinstance(a, Only) and isinstance(b, Only) and same(a.value, b.value):
        return a
    x, y = _bounds(a), _bounds(b)
    if x is None or y is None:
        return ANYTHING
    return Bounds(min(x.low, y.low), max(x.high, y.high))


def hull_of(areas: Iterable[Area]) -> Area:
    """The smallest area that holds all of these."""
    return tuple(_hull_of(ranges) for ranges in zip(*areas, strict=True))


def _hull_of(ranges: Iterable[Range]) -> Range:
    first, *others = ranges
    for other in others:
        first = hull(first, other)
    return first


def _bounds(range: Bounds | Only) -> Bounds | None:
    if isinstance(range, Bounds):
        return range
    value = range.value
    return Bounds(value, value) if is_number(value) else None  # type: ignore[arg-type]


def show_range(range: Range) -> str:
    """As `explain` prints it."""
    match range:
        case Bounds(low, high) if math.isinf(low) and math.isinf(high):
            return "any number"
        case Bounds(low, high) if math.isinf(low):
            return f"≤ {high:g}"
        case Bounds(low, high) if math.isinf(high):
            return f"≥ {low:g}"
        case Bounds(low, high):
            return f"{low:g} … {high:g}"
        case Only(value):
            return f"= {value!r}"
        case Anything():
            return "anything"
