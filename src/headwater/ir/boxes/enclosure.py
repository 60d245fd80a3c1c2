"""Enclosures of real numbers: intervals whose ends are moved outward after every operation, so that rounding never
loses a number; and linear forms of them.

A `Form` encloses what a step computes, around the centre of a box: for every event of the box that has a value there,
the function of real numbers that the step stands for is

    centre + sum of slope * (input - its centre)

with the centre and each slope somewhere in their enclosures; what is computed is at most `error` from that.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import NamedTuple

Ends = tuple[float, float]
Slopes = dict[int, Ends]  # by the step of the input
LARGEST = 1e300  # beyond it a form is given up, so that no infinity gets into one


class Form(NamedTuple):
    """The enclosure of the value at the centre, those of the slopes, and how far what is computed may be from it."""

    centre: Ends
    slopes: Slopes
    error: float


def outward(lo: float, hi: float) -> Ends:
    """One float further on either side."""
    return nextafter(lo, -inf), nextafter(hi, inf)


def widened(value: Ends, by: float) -> Ends:
    """By as much on either side."""
    return outward(value[0] - by, value[1] + by)


def plus(a: Ends, b: Ends) -> Ends:
    """A sum."""
    return nextafter(a[0] + b[0], -inf), nextafter(a[1] + b[1], inf)


def minus(a: Ends, b: Ends) -> Ends:
    """A difference."""
    return nextafter(a[0] - b[1], -inf), nextafter(a[1] - b[0], inf)


def times(a: Ends, b: Ends) -> Ends:
    """A product of what is finite."""
    if a[0] == a[1] == 1.0:
        return b
    w, x, y, z = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return nextafter(min(w, x, y, z), -inf), nextafter(max(w, x, y, z), inf)


def over(a: Ends, b: Ends) -> Ends:
    """A quotient of what is finite, by what is not zero."""
    w, x, y, z = a[0] / b[0], a[0] / b[1], a[1] / b[0], a[1] / b[1]
    return nextafter(min(w, x, y, z), -inf), nextafter(max(w, x, y, z), inf)


def either(a: Ends, b: Ends) -> Ends:
    """What is in one of them, or between."""
    return min(a[0], b[0]), max(a[1], b[1])


def magnitude(a: Ends) -> float:
    """The greatest distance from zero."""
    return max(-a[0], a[1])


def is_finite(a: Ends) -> bool:
    """Whether it is far from any infinity; what is NaN is not."""
    return a[0] > -LARGEST and a[1] < LARGEST


def of_number(x: float | int) -> Ends:
    """The floats on either side of a number that may be an integer too large to be one."""
    near = float(x)
    return (near, near) if near == x else outward(near, near)


def scaled(slopes: Slopes, by: Ends) -> Slopes:
    """Every slope times a factor."""
    return {at: times(slope, by) for at, slope in slopes.items()}


def summed(a: Slopes, b: Slopes) -> Slopes:
    """The slopes of a sum."""
    if len(a) < len(b):
        a, b = b, a
    found = a.copy()
    for at, slope in b.items():
        found[at] = plus(found[at], slope) if at in found else slope
    return found


def joined(a: Slopes, b: Slopes) -> Slopes:
    """The slopes of what is one or the other."""
    nothing = (0.0, 0.0)
    return {at: either(a.get(at, nothing), b.get(at, nothing)) for at in {**a, **b}}


def negated(slopes: Slopes) -> Slopes:
    """The slopes of the opposite."""
    return {at: (-hi, -lo) for at, (lo, hi) in slopes.items()}


def reached(form: Form, apart: dict[int, Ends]) -> Ends:
    """The real numbers over the box; `apart` says how far each input is from its centre."""
    lo, hi = form.centre
    for at, (slo, shi) in form.slopes.items():
        dlo, dhi = apart[at]
        w, x, y, z = slo * dlo, slo * dhi, shi * dlo, shi * dhi
        lo = nextafter(lo + nextafter(min(w, x, y, z), -inf), -inf)
        hi = nextafter(hi + nextafter(max(w, x, y, z), inf), inf)
    return lo, hi
