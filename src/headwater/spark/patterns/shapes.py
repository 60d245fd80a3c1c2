"""Which patterns window functions can say exactly. Four shapes, all of one channel:

    Fixed      so many rows, one right after the other                           a, b, c
    Following  an event and the next one that fits, or all that may be between   a -> b      PATTERN (A X*? B)
    Later      the first event and every later one that fits                     a; b        (once for each partition)
    Absence    an event, and nothing of some kind until the window ends          a; without n within 10 seconds

What is of none of them, or lets matches overlap in a way that one depends on the other, needs a run of the automaton.
This file knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.ir.backend import Unsupported
from headwater.ir.covers import disjoint
from headwater.patterns import model

MOST = 62  # elements: which of them an event fits is a word of as many bits
LONGEST = 16  # rows of a Fixed: each is a column of the window's


@dataclass(frozen=True, slots=True)
class Fixed:
    """The elements of the rows, from the first to the last."""

    elements: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Following:
    """`between` may not come between the two. `filler` takes all rows between them, `least` of them or more.
    `exclusive`: of several that begin before the same second event, the first only."""

    first: int
    second: int
    between: tuple[int, ...] = ()
    filler: int | None = None
    least: int = 0
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Later:
    """The first event of a partition that fits `first`, with each later one that fits `second`."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Absence:
    """An event after which none of `absent` comes until the window ends."""

    first: int
    absent: tuple[int, ...]


Shape = Fixed | Following | Later | Absence


def shape_of(pattern: model.Pattern) -> Shape | Unsupported:
    """The pattern's shape, or why it has none."""
    if len(pattern.channels) != 1:
        return Unsupported("it takes events of several channels")
    if len(pattern.elements) > MOST:
        return Unsupported(f"it has more than {MOST} elements")
    if pattern.absent:
        return _absence(pattern)
    elements = _fixed(pattern.root)
    if elements is not None:
        return _checked_fixed(pattern, elements)
    match pattern.root:
        case model.Sequence(parts=(model.Leaf(element=first), model.Leaf(element=second)), steps=(step,)):
            return _pair(pattern, first, second, step)
        case model.Sequence(
            parts=(
                model.Leaf(element=first),
                model.Repeat(part=model.Leaf(element=filler), least=least, most=None, step=within, greedy=False),
                model.Leaf(element=second),
            ),
            steps=steps,
        ) if all(step.selection == "strict" for step in (within, *steps)):
            return _filled(pattern, Following(first, second, (), filler, least))
    return Unsupported("its length is open: it needs a run of the automaton", pattern.root.span)


# ── one right after the other ──


def _fixed(node: model.Node) -> tuple[int, ...] | None:
    """The elements of all rows, if that is all that the expression can take. Nothing comes between adjacent rows, so
    what may not come there does not matter."""
    match node:
        case model.Leaf(element=element):
            return (element,)
        case model.Sequence(parts=parts, steps=steps) if all(step.selection == "strict" for step in steps):
            return _joined(parts)
        case model.Repeat(part=part, least=least, most=most, step=step) if least == most and (
            least == 1 or step.selection == "strict"
        ):
            return _joined((part,) * min(least, LONGEST + 1))
    return None


def _joined(parts: Iterable[model.Node]) -> tuple[int, ...] | None:
    found: tuple[int, ...] = ()
    for part in parts:
        inner = _fixed(part)
        if inner is None or len(found) + len(inner) > LONGEST:
            return None
        found += inner
    return found


def _checked_fixed(pattern: model.Pattern, elements: tuple[int, ...]) -> Shape | Unsupported:
    if pattern.begin == "first" and _is_asked(pattern, elements[:1]):
        return Unsupported("whether its first event begins a match is more than a question about that event")
    alone = len(elements) == 1
    simple = pattern.after.rule in ("no skip", "next") and pattern.reuse
    if alone or simple or all(_apart(pattern, elements[0], other) for other in elements[1:]):
        return Fixed(elements)
    return Unsupported("matches may overlap, and which of them count depends on those before")


# ── two events ──


def _pair(pattern: model.Pattern, first: int, second: int, step: model.Step) -> Shape | Unsupported:
    if step.selection == "any":
        if pattern.begin == "each":
            return Unsupported("every pair of events is wanted: that is a join")
        if step.forbidden or pattern.after.rule != "no skip" or not pattern.reuse:
            return Unsupported("which later events count depends on those before")
        if _is_asked(pattern, (first,)):
            return Unsupported("whether its first event begins a match is more than a question about that event")
        return _within_time(pattern, Later(first, second))
    return _following(pattern, Following(first, second, step.forbidden))


def _filled(pattern: model.Pattern, shape: Following) -> Shape | Unsupported:
    assert shape.filler is not None
    if pattern.elements[shape.filler].condition is not None or _is_asked(pattern, (shape.filler,)):
        return Unsupported("not every row may be between its events")
    if pattern.after.rule == "no skip":
        return Unsupported("every way to match is wanted, not the preferred one")
    return _following(pattern, shape)


def _following(pattern: model.Pattern, shape: Following) -> Shape | Unsupported:
    if _is_asked(pattern, (shape.first, shape.second, *shape.between)):
        return Unsupported("which event is the next that fits depends on the first one")
    if pattern.after.rule in ("first", "last"):
        return Unsupported("where the next match may begin depends on the one before")
    if pattern.after.rule != "past last" and pattern.reuse:
        return _within_time(pattern, shape)
    if shape.least or not _apart(pattern, shape.first, shape.second):
        return Unsupported("matches may overlap, and which of them count depends on those before")
    return _within_time(
        pattern, Following(shape.first, shape.second, shape.between, shape.filler, shape.least, exclusive=True)
    )


def _within_time(pattern: model.Pattern, shape: Shape) -> Shape | Unsupported:
    if pattern.window is not None and pattern.window.rows is not None:
        return Unsupported("its window is a number of rows")
    return shape


def _absence(pattern: model.Pattern) -> Shape | Unsupported:
    if not isinstance(pattern.root, model.Leaf):
        return Unsupported("what must not come afterwards follows more than one event")
    shape = Absence(pattern.root.element, pattern.absent)
    if _is_asked(pattern, (shape.first, *shape.absent)):
        return Unsupported("what must not come afterwards depends on the event before")
    return _within_time(pattern, shape)


# ── questions about elements ──


def _is_asked(pattern: model.Pattern, elements: Iterable[int]) -> bool:
    """Whether more is asked of one of these than of its event alone."""
    asked = {at for condition in pattern.conditions for at in condition.elements}
    asked |= {at for variable in pattern.variables if not variable.key for at, _ in variable.fields}
    return not asked.isdisjoint(elements)


def _apart(pattern: model.Pattern, one: int, other: int) -> bool:
    """Whether no event fits both."""
    a, b = pattern.elements[one].condition, pattern.elements[other].condition
    if one == other or a is None or b is None:
        return False
    return disjoint(a.program, b.program, a_params=a.params, b_params=b.params)


__all__ = ["Absence", "Fixed", "Following", "Later", "Shape", "shape_of"]
