"""Conditions of the tests: sums and products of one or two values of each owner, decided by plain interval arithmetic
that shares nothing with the library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headwater.objects.zones.conditions import Verdict
from headwater.objects.zones.ranges import Bounds, Only, Range, Value

Span = tuple[float, float]
WIDE: Span = (-math.inf, math.inf)


def _span(range: Range) -> Span | None:
    """None: it may be no number."""
    if isinstance(range, Bounds):
        return range.low, range.high
    if isinstance(range, Only) and isinstance(range.value, int | float) and range.value == range.value:
        return range.value, range.value
    return None


def _times(a: Span, b: Span) -> Span:
    corners = [0.0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(corners), max(corners)


class Weighted:
    """`w1 * a + w2 * b + … > limit`, and every owner's gate is open: a truth value that is decided there."""

    def __init__(self, weights: Mapping[str, float], limit: float, *, gates: bool = False) -> None:
        self.weights, self.limit, self.gates = weights, limit, gates
        self.owners: Mapping[str, tuple[str, ...]] = dict.fromkeys(weights, ("gate", "x") if gates else ("x",))

    def _parts(self, row: Sequence) -> tuple[list, list]:
        return (list(row[0::2]), list(row[1::2])) if self.gates else ([], list(row))

    def holds(self, values: Sequence[Value]) -> bool:
        gates, numbers = self._parts(values)
        if any(gate is not True for gate in gates) or any(number is None for number in numbers):
            return False
        return sum(w * x for w, x in zip(self.weights.values(), numbers, strict=True)) > self.limit

    def decide(self, area: Sequence[Range]) -> Verdict:
        gates, numbers = self._parts(area)
        if any(isinstance(gate, Only) and gate.value is not True for gate in gates):
            return False
        if any(isinstance(number, Only) and number.value is None for number in numbers):
            return False
        low = high = 0.0
        for weight, number in zip(self.weights.values(), numbers, strict=True):
            span = _span(number)
            if span is None:
                return None
            part = _times((weight, weight), span)
            low, high = low + part[0], high + part[1]
        if high <= self.limit:
            return False
        return True if low > self.limit and all(isinstance(gate, Only) for gate in gates) else None


class Product:
    """`a * b > limit`."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.owners: Mapping[str, tuple[str, ...]] = {"a": ("x",), "b": ("x",)}

    def holds(self, values: Sequence[Value]) -> bool:
        return None not in values and values[0] * values[1] > self.limit  # type: ignore[operator]

    def decide(self, area: Sequence[Range]) -> Verdict:
        if Only(None) in area:
            return False
        a, b = map(_span, area)
        if a is None or b is None:
            return None
        low, high = _times(a, b)
        return True if low > self.limit else False if high <= self.limit else None


class Opaque(Weighted):
    """One of which nothing is certain in any box."""

    def decide(self, area: Sequence[Range]) -> Verdict:
        return None
