"""Slopes of each operation: how its result changes with the inputs, from what its operands do.

Every rule says, above its form, the equation between any point x of the box and the centre c that it rests on. An
operation that is not named here has no slopes; of it the interval is all that is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.ir.boxes import floats
from headwater.ir.boxes.enclosure import (
    LARGEST,
    Ends,
    Form,
    either,
    is_finite,
    joined,
    magnitude,
    minus,
    negated,
    over,
    plus,
    scaled,
    summed,
    times,
)
from headwater.ir.boxes.expansion import MORE, Expansion
from headwater.ir.boxes.interval import Bounds
from headwater.ir.boxes.tape import Operation

SINGLE_ROUNDING = 2.0**-23
SINGLE_LEAST = 1e-44  # above the least f32
EXACT = 2.0**53  # up to here every integer is a float


class Sum(NamedTuple):
    """The steps that are added, or subtracted, and the sums in between."""

    terms: tuple[tuple[int, bool], ...]
    inner: tuple[int, ...]


Rule = Callable[[Expansion, int, Operation], Form | None]


def _unary(make: Callable[[Expansion, int, int, Form], Form | None]) -> Rule:
    def rule(look: Expansion, at: int, operation: Operation) -> Form | None:
        form = look.forms[operation.operands[0]]
        return make(look, at, operation.operands[0], form) if form is not None else None

    return rule


def _binary(make: Callable[[Expansion, int, tuple[int, int], Form, Form], Form | None]) -> Rule:
    def rule(look: Expansion, at: int, operation: Operation) -> Form | None:
        i, j = operation.operands
        a, b = look.forms[i], look.forms[j]
        return make(look, at, (i, j), a, b) if a is not None and b is not None else None

    return rule


def _add(look: Expansion, at: int, of: Any, a: Form, b: Form) -> Form:
    return Form(plus(a.centre, b.centre), summed(a.slopes, b.slopes), look.rounded(at, a.error + b.error))


def total(look: Expansion, at: int, parts: Sum) -> Form | None:
    """Of all terms at once; every sum in between is rounded."""
    centre, slopes, error = (0.0, 0.0), dict[int, Ends](), 0.0
    for term, negative in parts.terms:
        form = look.forms[term]
        if form is None:
            return None
        error += form.error
        (lo, hi), own = form.centre, form.slopes
        centre = minus(centre, (lo, hi)) if negative else plus(centre, (lo, hi))
        for i, (slo, shi) in own.items():
            low, high = (-shi, -slo) if negative else (slo, shi)
            before = slopes.get(i)
            slopes[i] = (low, high) if before is None else plus(before, (low, high))
    for between in (*parts.inner, at):
        lo, hi, _, _ = look.values[between]
        if not -LARGEST < lo <= hi < LARGEST:
            return None
        error = look.rounded(between, error)
    return Form(centre, slopes, error)


def _subtract(look: Expansion, at: int, of: Any, a: Form, b: Form) -> Form:
    slopes = summed(a.slopes, negated(b.slopes))
    return Form(minus(a.centre, b.centre), slopes, look.rounded(at, a.error + b.error))


def _multiply(look: Expansion, at: int, of: tuple[int, int], a: Form, b: Form) -> Form:
    """u(x) v(x) - u(c) v(c) = u(x) (v(x) - v(c)) + v(c) (u(x) - u(c))"""
    if not a.slopes and not a.error:
        error = magnitude(a.centre) * b.error
        return Form(times(a.centre, b.centre), scaled(b.slopes, a.centre), look.rounded(at, error))
    u, v = look.real(of[0], a), look.real(of[1], b)
    error = magnitude(u) * b.error + magnitude(v) * a.error + a.error * b.error
    slopes = scaled(b.slopes, u)
    for i, slope in a.slopes.items():
        more = times(slope, b.centre)
        slopes[i] = plus(slopes[i], more) if i in slopes else more
    return Form(times(a.centre, b.centre), slopes, look.rounded(at, error))


def _square(look: Expansion, at: int, of: int, a: Form) -> Form:
    """u(x)² - u(c)² = (u(x) + u(c)) (u(x) - u(c))"""
    u = look.real(of, a)
    error = 2 * magnitude(u) * a.error + a.error * a.error
    return Form(times(a.centre, a.centre), scaled(a.slopes, plus(u, a.centre)), look.rounded(at, error))


def _divide(look: Expansion, at: int, of: tuple[int, int], a: Form, b: Form) -> Form | None:
    """u(x)/v(x) - u(c)/v(c) = (u(x) - u(c) - u(c)/v(c) (v(x) - v(c))) / v(x)"""
    u, v = look.real(of[0], a), look.real(of[1], b)
    if v[0] <= 0 <= v[1] or b.centre[0] <= 0 <= b.centre[1]:
        return None
    quotient = over(a.centre, b.centre)
    above = summed(a.slopes, scaled(b.slopes, (-quotient[1], -quotient[0])))
    nearest = min(abs(v[0]), abs(v[1]))
    error = a.error / nearest + (magnitude(u) + a.error) / nearest * (b.error / nearest)
    return Form(quotient, {i: over(slope, v) for i, slope in above.items()}, look.rounded(at, error))


def _negate(look: Expansion, at: int, of: int, a: Form) -> Form:
    return Form((-a.centre[1], -a.centre[0]), negated(a.slopes), a.error)


def _greatest(look: Expansion, at: int, of: tuple[int, int], a: Form, b: Form) -> Form:
    """Between the one at both places and the other: some mean of their slopes."""
    u, v = look.real(of[0], a), look.real(of[1], b)
    error = max(a.error, b.error)
    if u[0] > v[1] or v[0] > u[1]:
        chosen = a if u[0] > v[1] else b
        return Form(chosen.centre, chosen.slopes, error)
    centre = max(a.centre[0], b.centre[0]), max(a.centre[1], b.centre[1])
    return Form(centre, joined(a.slopes, b.slopes), error)


def _least(look: Expansion, at: int, of: tuple[int, int], a: Form, b: Form) -> Form:
    u, v = look.real(of[0], a), look.real(of[1], b)
    error = max(a.error, b.error)
    if u[1] < v[0] or v[1] < u[0]:
        chosen = a if u[1] < v[0] else b
        return Form(chosen.centre, chosen.slopes, error)
    centre = min(a.centre[0], b.centre[0]), min(a.centre[1], b.centre[1])
    return Form(centre, joined(a.slopes, b.slopes), error)


def _absolute(look: Expansion, at: int, of: int, a: Form) -> Form:
    lo, hi = look.real(of, a)
    if lo >= 0 and a.centre[0] >= 0:
        return a
    if hi <= 0 and a.centre[1] <= 0:
        return _negate(look, at, of, a)
    low, high = a.centre
    centre = 0.0 if low <= 0 <= high else min(abs(low), abs(high)), magnitude(a.centre)
    return Form(centre, joined(a.slopes, negated(a.slopes)), a.error)


def _root(look: Expansion, at: int, of: int, a: Form) -> Form | None:
    """sqrt(u(x)) - sqrt(u(c)) = (u(x) - u(c)) / (sqrt(u(x)) + sqrt(u(c)))"""
    u = look.real(of, a)
    if u[0] <= 0 or a.centre[0] <= 0:
        return None
    centre, here = _roots(a.centre), _roots(u)
    error = a.error / here[0] if a.error else 0.0
    both = plus(here, centre)
    return Form(centre, {i: over(slope, both) for i, slope in a.slopes.items()}, look.rounded(at, error))


def _roots(a: Ends) -> Ends:
    return math.nextafter(math.sqrt(a[0]), 0.0), math.nextafter(math.sqrt(a[1]), math.inf)


def _within_one(look: Expansion, at: int, of: int, a: Form) -> Form:
    """A whole number beside it."""
    return Form(a.centre, a.slopes, (a.error + 1.0) * MORE)


def _to_double(look: Expansion, at: int, of: int, a: Form) -> Form:
    exact = a.error == 0 and magnitude(look.values[at][:2]) <= EXACT
    return a if exact else Form(a.centre, a.slopes, look.rounded(at, a.error))


def _to_single(look: Expansion, at: int, of: int, a: Form) -> Form:
    most = magnitude(look.values[at][:2])
    return Form(a.centre, a.slopes, (a.error + SINGLE_ROUNDING * most) * MORE + SINGLE_LEAST)


def _same(look: Expansion, at: int, of: int, a: Form) -> Form:
    return a


# ── functions of the C library: the slope is that of some place between, the error theirs ──


def _smooth(look: Expansion, at: int, of: int, a: Form, value: Bounds, slope: Bounds) -> Form | None:
    centre, factor = value[:2], slope[:2]
    if value[2] or slope[2] or not is_finite(centre) or not is_finite(factor):
        return None
    lo, hi, _, _ = look.values[at]
    error = magnitude(factor) * a.error + floats.SLACK * max(-lo, hi, 1e-300)
    return Form(centre, scaled(a.slopes, factor), look.rounded(at, error))


def _way(look: Expansion, of: int, a: Form) -> Bounds:
    """Wherever the operand may be between the centre and an event of the box."""
    lo, hi = either(look.real(of, a), a.centre)
    return (lo, hi, False, False)


def _exponential(look: Expansion, at: int, of: int, a: Form) -> Form | None:
    slope = floats.exponential(_way(look, of, a))
    return _smooth(look, at, of, a, floats.exponential((*a.centre, False, False)), slope)


def _logarithm(look: Expansion, at: int, of: int, a: Form) -> Form | None:
    way = _way(look, of, a)
    if way[0] <= 0:
        return None
    slope = (*over((1.0, 1.0), way[:2]), False, False)
    return _smooth(look, at, of, a, floats.logarithm((*a.centre, False, False)), slope)


def _sine(look: Expansion, at: int, of: int, a: Form) -> Form | None:
    slope = floats.cosine(_way(look, of, a))
    form = _smooth(look, at, of, a, floats.sine((*a.centre, False, False)), slope)
    return form and form._replace(error=form.error + floats.SLACK)


def _cosine(look: Expansion, at: int, of: int, a: Form) -> Form | None:
    slope = floats.negate(floats.sine(_way(look, of, a)))
    form = _smooth(look, at, of, a, floats.cosine((*a.centre, False, False)), slope)
    return form and form._replace(error=form.error + floats.SLACK)


def _power(look: Expansion, at: int, operation: Operation) -> Form | None:
    """To a power that is a constant."""
    of, by = operation.operands
    a = look.forms[of]
    n, greatest, _, _ = look.values[by]
    if a is None or n != greatest or n == 0 or abs(n) > EXACT:
        return None
    exponent: Bounds = (n, n, False, False)
    below = (n - 1, n - 1, False, False) if (n - 1) + 1 == n else None
    if below is None:
        return None
    slope = floats.multiply(exponent, floats.power(_way(look, of, a), below))
    slope = (*times((1.0, 1.0), slope[:2]), *slope[2:]) if is_finite(slope[:2]) else slope
    return _smooth(look, at, of, a, floats.power((*a.centre, False, False), exponent), slope)


# ── choices that are certain ──


def _chosen(look: Expansion, at: int, operation: Operation) -> Form | None:
    test, then, other, neither = operation.operands
    lo, hi, _, miss = look.values[test]
    if lo > hi:
        return look.forms[neither] if miss else None
    if miss or lo != hi:
        return None
    return look.forms[then if lo == 1 else other]


def _first(look: Expansion, at: int, operation: Operation) -> Form | None:
    first = operation.operands[0]
    return None if look.values[first][3] else look.forms[first]


RULES: dict[str, Rule] = {
    "add": _binary(_add),
    "sub": _binary(_subtract),
    "mul": _binary(_multiply),
    "div": _binary(_divide),
    "min": _binary(_least),
    "max": _binary(_greatest),
    "square": _unary(_square),
    "neg": _unary(_negate),
    "abs": _unary(_absolute),
    "sqrt": _unary(_root),
    "floor": _unary(_within_one),
    "ceil": _unary(_within_one),
    "trunc": _unary(_within_one),
    "to": _unary(_same),
    "to f64": _unary(_to_double),
    "to f32": _unary(_to_single),
    "exp": _unary(_exponential),
    "log": _unary(_logarithm),
    "sin": _unary(_sine),
    "cos": _unary(_cosine),
    "pow": _power,
    "choose": _chosen,
    "coalesce": _first,
}
