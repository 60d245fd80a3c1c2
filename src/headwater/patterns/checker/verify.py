"""What must hold of a whole pattern, whatever it came from: that it can match, and that what it keeps has a bound.

The checker asks after it has read a text, and so does who reads a serial form: bytes may say what no text can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.errors import Problem
from headwater.interest import Interest
from headwater.ir.nodes import NOWHERE, Span
from headwater.ir.notes import locate
from headwater.patterns import structure
from headwater.patterns.checker import contradictions
from headwater.patterns.model import Both, Either, Leaf, Node, Pattern, Repeat, Sequence, Step, steps

_WINDOWS = {"match_recognize": "WITHIN INTERVAL '10' SECOND after PATTERN (…)"}  # as a notation writes one
_WINDOW = "within 10 seconds"


def verify(pattern: Pattern) -> list[Problem]:
    """Every reason to refuse it."""
    return [*windows(pattern), *_never(pattern), *_costs(pattern)]


def remarks(pattern: Pattern, places: Mapping[str, Span]) -> tuple[Problem, ...]:
    """What is allowed and hardly meant; `places` are those of the clauses."""
    return tuple(_unused(pattern, places))


def _at(pattern: Pattern, span: Span, message: str, **more: str | None) -> Problem:
    return locate(pattern.text, span, message, **more)


# ── windows ──


def _needed(pattern: Pattern, why: str) -> str:
    """What to do about a window that is not there, in the words of the notation."""
    window = _WINDOWS.get(pattern.notation, _WINDOW)
    return f"one run per partition is not enough: {why}; give it a window, e.g. {window}"


def windows(pattern: Pattern) -> Iterator[Problem]:
    """Why its window, or that it has none, does not fit."""
    window, whole = pattern.window, Span(0, len(pattern.text))
    fewest = structure.least(pattern.root)
    if fewest == 0:
        yield _at(
            pattern,
            pattern.root.span,
            "this may be an occurrence of no event at all",
            expected="at least one event",
            hint="make one of its parts sure to be taken",
        )
    if window is not None:
        if window.rows is not None and window.rows < fewest:
            yield _at(
                pattern,
                whole,
                f"no match has so few events as the window: {window.rows}",
                expected=f"{fewest} or more",
                hint="make the window larger",
            )
        return
    if pattern.absent:
        names = ", ".join(pattern.elements[at].name for at in pattern.absent)
        yield _at(
            pattern,
            pattern.elements[pattern.absent[0]].span,
            f"without {names} at the end never comes true: nothing says until when",
            expected="a window",
            hint="add within 10 seconds",
        )
        return
    if pattern.begin == "each":
        if structure.most(pattern.root) == 1 or _is_short(pattern.root):
            return
        yield _at(
            pattern,
            pattern.root.span,
            "a pattern that begins anew at each event needs a window",
            hint=_needed(pattern, "each beginning would be kept for ever"),
        )
        return
    found = structure.keeps_many_runs(pattern.root)
    if found is not None:
        endless = isinstance(found, Repeat) and found.most is None
        why = (
            "a repetition without end keeps all its events"
            if endless
            else "each event that fits here begins another run"
        )
        yield _at(pattern, found.span, "this pattern needs a window", hint=_needed(pattern, why))


def _is_short(root: Node) -> bool:
    """Whether a run ends by itself: all its events are adjacent, and not more than some number."""
    return structure.most(root) is not None and all(step.selection == "strict" for step in steps(root))


# ── what cannot be ──


def _never(pattern: Pattern) -> Iterator[Problem]:
    """Why there can be no match: elements that take no event, or conditions of several that contradict each other."""
    dead = contradictions.dead(pattern, [at for at, each in enumerate(pattern.elements) if not each.negative])
    if not _possible(pattern.root, set(dead)):
        for at, place in dead.items():
            element = pattern.elements[at]
            if structure.times(pattern.root, at, least=True) >= 1:
                yield _at(
                    pattern,
                    place,
                    f"no event can be {element.name!r}: the pattern can never match",
                    hint="what it asks for contradicts itself, or has no value whatever the event",
                )
                return
        yield _at(
            pattern, pattern.root.span, "this pattern can never match", hint="what it asks for contradicts itself"
        )
    elif (here := contradictions.between(pattern)) is not None:
        yield _at(
            pattern,
            here,
            "this contradicts what is asked of the events before: the pattern can never match",
            hint="no events satisfy all conditions together",
        )


def _possible(node: Node, dead: set[int]) -> bool:
    """Whether there is an occurrence without these elements."""
    match node:
        case Leaf(element=element):
            return element not in dead
        case Repeat(part=part, least=least):
            return least == 0 or _possible(part, dead)
        case Either(parts=parts):
            return any(_possible(part, dead) for part in parts)
        case Sequence(parts=parts) | Both(parts=parts):
            return all(_possible(part, dead) for part in parts)


def _unused(pattern: Pattern, places: Mapping[str, Span]) -> Iterator[Problem]:
    """Elements that take nothing, and clauses that have no meaning here."""
    others = [
        at
        for at, element in enumerate(pattern.elements)
        if element.negative or structure.times(pattern.root, at, least=True) < 1
    ]
    for at, place in contradictions.dead(pattern, others).items():
        said = f"no event can be {pattern.elements[at].name!r}"
        yield _at(pattern, place, said, hint="what it asks for contradicts itself")
    if pattern.lateness and all(channel.time is None for channel in pattern.channels):
        yield _at(
            pattern,
            places.get("lateness", NOWHERE),
            "lateness has no meaning without time: in the order of publication no event comes late",
            hint="say which field has the time of an event, e.g. time at; or leave lateness out",
        )
    if pattern.window is not None and pattern.window.microseconds == 0 and structure.least(pattern.root) > 1:
        yield _at(
            pattern,
            places.get("window", NOWHERE),
            "within no time at all: only events of the same microsecond match",
        )
    yield from _same_conditions(pattern)


def _same_conditions(pattern: Pattern) -> Iterator[Problem]:
    """A step that forbids what it leads to would never be taken, unless what was bound tells them apart."""
    for node in _sequences(pattern.root):
        for step, part in zip(node.steps, node.parts[1:], strict=True):
            yield from _forbids_itself(pattern, step, part)


def _forbids_itself(pattern: Pattern, step: Step, part: Node) -> Iterator[Problem]:
    for at in step.forbidden:
        other = pattern.elements[at]
        if step.selection == "next" and isinstance(part, Leaf) and _same(pattern, at, part.element):
            yield _at(pattern, other.span, f"without {other.name!r} adds nothing: the next that fits is taken anyway")


def _same(pattern: Pattern, one: int, other: int) -> bool:
    a, b = pattern.elements[one], pattern.elements[other]
    if any({one, other} & set(condition.elements) for condition in pattern.conditions):
        return False
    marks = [element.condition.fingerprint if element.condition is not None else b"" for element in (a, b)]
    return a.channels == b.channels and marks[0] == marks[1]


def _sequences(node: Node) -> Iterator[Sequence]:
    match node:
        case Leaf():
            return
        case Repeat(part=part):
            yield from _sequences(part)
        case Sequence(parts=parts):
            yield node
            for each in parts:
                yield from _sequences(each)
        case Either(parts=parts) | Both(parts=parts):
            for each in parts:
                yield from _sequences(each)


# ── what it costs ──


def interests(pattern: Pattern) -> Iterator[Interest]:
    """All that an event may have to be tested with."""
    for channel in pattern.channels:
        yield from (each for each in (channel.key, channel.time, channel.among) if each is not None)
    yield from (element.condition for element in pattern.elements if element.condition is not None)
    yield from (condition.interest for condition in pattern.conditions)


def _costs(pattern: Pattern) -> Iterator[Problem]:
    worst = sum(interest.cost.worst for interest in interests(pattern))
    if worst > pattern.limits.worst:
        yield _at(
            pattern,
            Span(0, len(pattern.text)),
            "at worst an event takes too long in this pattern",
            expected=f"at most {pattern.limits.worst:,} operations",
            found=f"{worst:,}",
            hint="ask less, or have the owner allow more: Limits(worst=…)",
        )
