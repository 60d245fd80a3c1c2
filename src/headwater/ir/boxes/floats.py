"""Arithmetic of floats over intervals.

The executions round every operation to nearest, and rounding never changes an order: what is computed at the ends
bounds what is computed between them, to the last bit. The functions of the C library are not rounded like that and
differ from one library to the next: their bounds are moved outward by `SLACK`.
"""

from __future__ import annotations

import math

from headwater.ir.boxes.interval import INFINITY, NO_VALUE, Bounds
from headwater.ir.library import PLAIN, libm, round_f32

LEAST = 5e-324  # the least float above zero
TINY = 32 * LEAST  # what SLACK is where floats have few digits left
SLACK = 2.0**-49  # relative: sixteen units in the last place; C libraries are within one or two
FAR = 1e6  # beyond this many radians, turns are not counted
TURN = 2 * math.pi
NEAR_TURN = 1e-6  # radians: how near to a turning point counts as being at it


def negate(a: Bounds) -> Bounds:
    """The interval turned round at zero."""
    return (-a[1], -a[0], a[2], a[3])


def add(a: Bounds, b: Bounds) -> Bounds:
    """A sum; infinities of both signs may meet, which is NaN."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    nan, miss = anan or bnan, amiss or bmiss
    if alo > ahi or blo > bhi:
        return (*NO_VALUE, nan, miss)
    lo, hi = alo + blo, ahi + bhi
    if (alo == -INFINITY and bhi == INFINITY) or (ahi == INFINITY and blo == -INFINITY):
        nan = True
        lo, hi = (lo if lo == lo else -INFINITY), (hi if hi == hi else INFINITY)
    return (lo, hi, nan, miss)


def subtract(a: Bounds, b: Bounds) -> Bounds:
    """A difference: a sum with the other negated."""
    return add(a, (-b[1], -b[0], b[2], b[3]))


def multiply(a: Bounds, b: Bounds) -> Bounds:
    """A product: its extremes are at corners; zero times infinity is NaN, and counts as zero beside it."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    nan, miss = anan or bnan, amiss or bmiss
    if alo > ahi or blo > bhi:
        return (*NO_VALUE, nan, miss)
    w, x, y, z = alo * blo, alo * bhi, ahi * blo, ahi * bhi
    if w != w or x != x or y != y or z != z:
        w, x, y, z = (0.0 if corner != corner else corner for corner in (w, x, y, z))
    if not nan:
        endless_a, endless_b = alo == -INFINITY or ahi == INFINITY, blo == -INFINITY or bhi == INFINITY
        nan = (endless_a and blo <= 0 <= bhi) or (endless_b and alo <= 0 <= ahi)
    return (min(w, x, y, z), max(w, x, y, z), nan, miss)


def square(a: Bounds) -> Bounds:
    """A value times itself."""
    lo, hi, nan, miss = a
    if lo > hi:
        return a
    low, high = lo * lo, hi * hi
    if lo <= 0 <= hi:
        return (0.0, max(low, high), nan, miss)
    return (min(low, high), max(low, high), nan, miss)


def divide(a: Bounds, b: Bounds) -> Bounds:
    """A quotient. By zero there is none: what is left are divisors of either sign, down to the least float."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    nan, miss = anan or bnan, amiss or bmiss
    if blo > bhi:
        return (*NO_VALUE, nan, miss)
    if blo <= 0 <= bhi:
        miss = True
    if alo > ahi:
        return (*NO_VALUE, nan, miss)
    nan = nan or ((alo == -INFINITY or ahi == INFINITY) and (blo == -INFINITY or bhi == INFINITY))
    corners = []
    if bhi > 0:
        low = max(blo, LEAST)
        corners += [alo / low, alo / bhi, ahi / low, ahi / bhi]
    if blo < 0:
        high = min(bhi, -LEAST)
        corners += [alo / blo, alo / high, ahi / blo, ahi / high]
    if not corners:
        return (*NO_VALUE, nan, miss)
    if nan:  # infinity by infinity; what is finite beside it gives zero
        corners = [0.0 if corner != corner else corner for corner in corners]
    return (min(corners), max(corners), nan, miss)


def absolute(a: Bounds) -> Bounds:
    """Without its sign."""
    lo, hi, nan, miss = a
    if lo > hi or lo >= 0:
        return a
    if hi <= 0:
        return (-hi, -lo, nan, miss)
    return (0.0, max(-lo, hi), nan, miss)


def least(a: Bounds, b: Bounds) -> Bounds:
    """The lesser of two; NaN if one is."""
    nan, miss = a[2] or b[2], a[3] or b[3]
    if a[0] > a[1] or b[0] > b[1]:
        return (*NO_VALUE, nan, miss)
    return (min(a[0], b[0]), min(a[1], b[1]), nan, miss)


def greatest(a: Bounds, b: Bounds) -> Bounds:
    """The greater of two; NaN if one is."""
    nan, miss = a[2] or b[2], a[3] or b[3]
    if a[0] > a[1] or b[0] > b[1]:
        return (*NO_VALUE, nan, miss)
    return (max(a[0], b[0]), max(a[1], b[1]), nan, miss)


def floor(a: Bounds) -> Bounds:
    """Whole numbers not above: it never falls."""
    return a if a[0] > a[1] else (PLAIN["floor"](a[0]), PLAIN["floor"](a[1]), a[2], a[3])


def ceil(a: Bounds) -> Bounds:
    """Whole numbers not below: it never falls."""
    return a if a[0] > a[1] else (PLAIN["ceil"](a[0]), PLAIN["ceil"](a[1]), a[2], a[3])


def single(a: Bounds) -> Bounds:
    """Rounded to an f32."""
    return a if a[0] > a[1] else (round_f32(a[0]), round_f32(a[1]), a[2], a[3])


def root(a: Bounds) -> Bounds:
    """A square root: NaN below zero."""
    lo, hi, nan, miss = a
    if lo > hi:
        return a
    if hi < 0:
        return (*NO_VALUE, True, miss)
    return (math.sqrt(max(lo, 0.0)), math.sqrt(hi), nan or lo < 0, miss)


def remainder(a: Bounds, b: Bounds) -> Bounds:
    """What a division leaves: of the dividend's sign, no further from zero than it, and nearer than the divisor."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    nan, miss = anan or bnan, amiss or bmiss
    if blo > bhi:
        return (*NO_VALUE, nan, miss)
    if blo <= 0 <= bhi:
        miss = True
    if alo > ahi or blo == bhi == 0:
        return (*NO_VALUE, nan, miss)
    nan = nan or alo == -INFINITY or ahi == INFINITY
    nearest = 0.0 if blo <= 0 <= bhi else min(abs(blo), abs(bhi))
    if max(abs(alo), abs(ahi)) < nearest:
        return (alo, ahi, nan, miss)
    most = max(abs(blo), abs(bhi))
    return (0.0 if alo >= 0 else -min(most, -alo), 0.0 if ahi <= 0 else min(most, ahi), nan, miss)


# ── of the C library ──


def _outward(lo: float, hi: float, nan: bool, miss: bool) -> Bounds:
    low = lo - abs(lo) * SLACK - TINY if abs(lo) < INFINITY else lo
    high = hi + abs(hi) * SLACK + TINY if abs(hi) < INFINITY else hi
    # What overflows in one library may be the greatest float in another.
    low = min(low, 1.797e308) if low == INFINITY else low
    high = max(high, -1.797e308) if high == -INFINITY else high
    return (low, high, nan, miss)


def exponential(a: Bounds) -> Bounds:
    """e to the power x: it rises, and is never negative."""
    lo, hi, nan, miss = a
    if lo > hi:
        return a
    low, high, nan, miss = _outward(libm("exp")(lo), libm("exp")(hi), nan, miss)
    return (max(low, 0.0), high, nan, miss)


def logarithm(a: Bounds) -> Bounds:
    """Natural: NaN below zero, and without bound at it."""
    lo, hi, nan, miss = a
    if lo > hi:
        return a
    if hi < 0:
        return (*NO_VALUE, True, miss)
    low, high = libm("log")(max(lo, 0.0)), libm("log")(hi)
    return _outward(low, high, nan or lo < 0, miss)


def sine(a: Bounds) -> Bounds:
    """The sine of radians."""
    return _wave(a, "sin", math.pi / 2)


def cosine(a: Bounds) -> Bounds:
    """The cosine of radians."""
    return _wave(a, "cos", 0.0)


def _wave(a: Bounds, name: str, top: float) -> Bounds:
    """A sine or cosine, which is 1 at `top` and every turn from there."""
    lo, hi, nan, miss = a
    if lo > hi:
        return a
    nan = nan or lo == -INFINITY or hi == INFINITY
    most = 1.0 + SLACK
    if lo < -FAR or hi > FAR or hi - lo >= TURN:
        return (-most, most, nan, miss)
    ends = libm(name)(lo), libm(name)(hi)
    low = -most if _passes(lo, hi, top + math.pi) else max(-most, min(ends) - SLACK)
    high = most if _passes(lo, hi, top) else min(most, max(ends) + SLACK)
    return (low, high, nan, miss)


def _passes(lo: float, hi: float, at: float) -> bool:
    """Whether a turning point is between, or so near that rounding might take it there."""
    turns = math.ceil((lo - NEAR_TURN - at) / TURN)
    return at + turns * TURN <= hi + NEAR_TURN


def power(a: Bounds, b: Bounds) -> Bounds:
    """x to the power y. Of NaN too: NaN to the power 0 and 1 to the power NaN are 1."""
    alo, ahi, anan, amiss = a
    blo, bhi, bnan, bmiss = b
    nan, miss = anan or bnan, amiss or bmiss
    if alo > ahi or blo > bhi:
        return (1.0, 1.0, True, miss) if nan else (*NO_VALUE, False, miss)
    if alo >= 0:
        lo, hi, _, _ = _positive_power(alo, ahi, blo, bhi)
        lo = -INFINITY if alo == 0 and blo < 0 else lo  # as of -0.0 to the power -1
    elif blo == bhi and blo.is_integer() and abs(blo) < 2.0**53:
        lo, hi = _whole_power(alo, ahi, blo)
    else:
        _, hi, _, _ = _positive_power(0.0, max(-alo, ahi), blo, bhi)
        lo, nan = -hi, True
    return (min(lo, 1.0), max(hi, 1.0), nan, miss) if anan or bnan else (lo, hi, nan, miss)


def _positive_power(alo: float, ahi: float, blo: float, bhi: float) -> Bounds:
    """It rises or falls in each argument all the way, whatever the other is: extremes are at corners."""
    pow = libm("pow")
    corners = [pow(x, y) for x in (abs(alo), abs(ahi)) for y in (blo, bhi)]
    low, high, nan, miss = _outward(min(corners), max(corners), False, False)
    return (max(low, 0.0), high, nan, miss)


def _whole_power(alo: float, ahi: float, by: float) -> tuple[float, float]:
    """Of a base that may be negative."""
    low, high, _, _ = _positive_power(0.0 if ahi >= 0 else -ahi, max(-alo, ahi), by, by)
    if by % 2 == 0:
        return low, high
    if ahi < 0:
        return -high, -low
    if by < 0:
        return -INFINITY, INFINITY
    below = _positive_power(0.0, -alo, by, by)[1]
    above = _positive_power(0.0, ahi, by, by)[1]
    return -below, above
