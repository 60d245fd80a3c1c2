"""Whether comparisons of two things that are both unknown can hold together: `b.x > a.x and b.x < a.x` cannot.

What is compared are the points of a graph; an arrow leads from what is at most as large to what is at least as large,
and is strict where the two cannot be equal. A way round that has a strict arrow is a contradiction. Constants are also
points, in their own order, and so are the bounds that are known of a part of an event.

It is sound, not complete: of arithmetic it knows `x + c` and `x - c` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.ir.domain import Domain, is_whole, plain
from headwater.ir.nodes import Binary, Compare, Const, Expr
from headwater.types.model import F64

MAX_POINTS = 40  # of a graph; the work grows with their cube

_OTHERWISE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_TRUE, _FALSE = frozenset((True,)), frozenset((False,))
_Point = tuple[str, Any]


def possible(way: Mapping[Expr, Domain], base: Callable[[Expr], Domain]) -> bool:
    """Whether all of these may hold at once, as far as comparisons tell; `base` is all that something may be."""
    facts = [fact for subject, domain in way.items() if (fact := _fact(subject, domain)) is not None]
    if not facts:
        return True  # what is known of single things has been looked at
    graph = _Graph()
    for op, a, b in facts:
        graph.fact(op, a, b)
    for kind, subject in list(graph.places):
        if kind == "part":
            graph.bounds(subject, way[subject] if subject in way else base(subject))
    return graph.possible()


def work(way: Mapping[Expr, Domain]) -> int:
    """About how many steps `possible` takes: the points are those that are compared, and their bounds."""
    count = sum(isinstance(subject, Compare) for subject in way)
    return min(4 * count, MAX_POINTS) ** 3


def _fact(subject: Expr, domain: Domain) -> tuple[str, Expr, Expr] | None:
    """A comparison that is known to be true. One of floats that is not true may be one with NaN: nothing follows."""
    if not isinstance(subject, Compare) or domain.missing:
        return None
    if domain.members == _TRUE:
        return subject.op, subject.a, subject.b
    if domain.members == _FALSE and (subject.a.type != F64 or subject.op == "ne"):
        return _OTHERWISE[subject.op], subject.a, subject.b
    return None


@dataclass
class _Graph:
    """`arrows` has, by the places of two points, whether the arrow between them is strict."""

    places: dict[_Point, int] = field(default_factory=dict)
    arrows: dict[tuple[int, int], bool] = field(default_factory=dict)
    unequal: list[tuple[int, int, bool]] = field(default_factory=list)  # the last: whether they may be NaN
    ordered: set[int] = field(default_factory=set)  # points that are no NaN

    def place(self, expr: Expr) -> int:
        if isinstance(expr, Const):
            return self._place(("constant", plain(expr.value)))
        known = ("part", expr) in self.places
        at = self._place(("part", expr))
        if not known:
            self._sum(expr, at)
        return at

    def _place(self, point: _Point) -> int:
        return self.places.setdefault(point, len(self.places))

    def _sum(self, expr: Expr, at: int) -> None:
        """`x + c` is no less than x for a c that is not negative: rounding keeps the order, and what overflows has no
        value."""
        if not isinstance(expr, Binary) or expr.op not in ("add", "sub") or not isinstance(expr.b, Const):
            return
        by = expr.b.value
        if isinstance(by, bool) or not isinstance(by, int | float) or by != by or expr.a.type != expr.type:
            return
        up = (by >= 0) == (expr.op == "add")
        other = self.place(expr.a)
        self.arrow(other, at, by != 0 and is_whole(expr.type), turned=not up)

    def arrow(self, low: int, high: int, strict: bool, *, turned: bool = False) -> None:
        key = (high, low) if turned else (low, high)
        self.arrows[key] = strict or self.arrows.get(key, False)

    def fact(self, op: str, a: Expr, b: Expr) -> None:
        """A comparison that is true; of floats it says that neither is NaN, unless it is `!=`."""
        one, other = self.place(a), self.place(b)
        if op == "ne":
            self.unequal.append((one, other, a.type == F64 or b.type == F64))
            return
        self.ordered |= {one, other}
        if op in ("lt", "le", "eq"):
            self.arrow(one, other, op == "lt")
        if op in ("gt", "ge", "eq"):
            self.arrow(one, other, op == "gt", turned=True)

    def bounds(self, subject: Expr, domain: Domain) -> None:
        """What is known of something that is compared with others, too. What a comparison that is true says something
        of is there, and no NaN."""
        at = self.place(subject)
        if at not in self.ordered and (domain.missing or domain.nan):
            return
        self.ordered.add(at)
        low, high = domain.lo, domain.hi
        if domain.members is not None:
            low, high = min(domain.members, default=None), max(domain.members, default=None)
        if low is not None:
            self.arrow(self._place(("constant", low)), at, domain.lo_open and domain.members is None)
        if high is not None:
            self.arrow(at, self._place(("constant", high)), domain.hi_open and domain.members is None)

    def possible(self) -> bool:
        count = len(self.places)
        if count > MAX_POINTS:
            return True
        self._order_constants()
        arrows = self.arrows
        for middle in range(count):  # every way over points up to this one
            coming = [(low, strict) for (low, high), strict in arrows.items() if high == middle]
            going = [(high, strict) for (low, high), strict in arrows.items() if low == middle]
            for low, before in coming:
                for high, after in going:
                    self.arrow(low, high, before or after)
        if any(arrows.get((at, at), False) for at in range(count)):
            return False
        for one, other, floats in self.unequal:
            same = one == other or ((one, other) in arrows and (other, one) in arrows)
            if same and (not floats or one in self.ordered):
                return False
        return True

    def _order_constants(self) -> None:
        found = [(value, at) for (kind, value), at in self.places.items() if kind == "constant" and value == value]
        for value, at in found:
            for other, there in found:
                if at != there and isinstance(value, bytes) == isinstance(other, bytes) and value <= other:
                    self.arrow(at, there, value < other)


__all__ = ["possible", "work"]
