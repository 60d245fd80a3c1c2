"""From a checked pattern to the automaton that runners step through: by partial derivatives of its tree.

    Point       where an occurrence may stand after a taken event: what it can go on with, in the order of preference
    Way         one of these: an element, the step to it, the point after it
    State       several points at once, as far as rows since have left them open: what runs with the same taken events
                and labels share, so that no match is found twice

A point is what is left of the pattern. `rest` is a tuple of pieces, each a node with the step that leads to it, or a
`Pending` conjunction. A way before the point's end is preferred to stopping there, one after it is not.

Points are for runs that are kept apart (conditions between elements, preference); states are for runs that share what
they have in common. Where there would be too many states a pattern runs by its points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from headwater.errors import PatternError, Problem
from headwater.patterns import model
from headwater.patterns.model import Step
from headwater.patterns.written import Selection

MAX_POINTS = 8_192  # of an automaton; each is some words of memory and moments to make
MAX_WAYS = 200_000  # of all its points together
MAX_STATES = 1_024  # each partition has a word for each
MAX_KILLERS = 8  # sets of elements that each end a part of a state: their combinations are a table
NOWHERE = -1


# ── what is left of a pattern ──


@dataclass(frozen=True)
class Piece:
    """A node that is to come, and the step to its first event. `joins`: another part of its sequence follows; the step
    to that one becomes longer where this one is left out."""

    step: Step
    node: model.Node
    joins: bool = False


@dataclass(frozen=True)
class Pending:
    """A conjunction that has begun: what is left of each part, and the part of the last event."""

    parts: tuple[Rest, ...]
    last: int
    step: Step


Rest = tuple[Piece | Pending, ...]


@dataclass(frozen=True)
class _Begin:
    """One way to begin a node: the element, by which step, and what is left of the node then."""

    element: int
    step: Step
    rest: Rest


_END = None  # among the ways: nothing of it is needed
_Begins = list[_Begin | None]


def _joined(before: Step, after: Step) -> Step:
    """The step over a part that is left out: of the latter's selection, and forbidding what both forbid."""
    return Step(after.selection, tuple(sorted({*before.forbidden, *after.forbidden})))


def _begins(node: model.Node, step: Step) -> _Begins:
    """All ways to begin a node that `step` leads to, the preferred first, with one _END where it may be left out."""
    match node:
        case model.Leaf(element=element):
            return [_Begin(element, step, ())]
        case model.Either(parts=parts):
            return _once([begin for part in parts for begin in _begins(part, step)])
        case model.Sequence(parts=parts, steps=steps):
            last = len(parts) - 1
            pieces = tuple(Piece(by, parts[at], at < last) for at, by in enumerate((step, *steps)))
            return _ways(pieces)
        case model.Repeat():
            return _rounds(node, step)
        case model.Both(parts=parts, step=between):
            # The first event is reached by the step to the whole; `last` is no part yet.
            return _pending(tuple((Piece(step, part),) for part in parts), None, between)


def _once(begins: _Begins) -> _Begins:
    end = begins.index(_END) if _END in begins else len(begins)
    return [*begins[: end + 1], *(begin for begin in begins[end + 1 :] if begin is not _END)]


def _ways(rest: Rest) -> _Begins:
    """All ways to go on with what is left; _END where nothing has to come."""
    found: _Begins = []
    less: list[_Begins] = []  # what is preferred less than leaving a piece out, the later pieces' before the earlier's
    while rest:
        head, tail = rest[0], rest[1:]
        first = _begins(head.node, head.step) if isinstance(head, Piece) else _pending(head.parts, head.last, head.step)
        ways: _Begins = [begin and _Begin(begin.element, begin.step, begin.rest + tail) for begin in first]
        if _END not in ways:
            found += ways
            break
        end = ways.index(_END)
        found += ways[:end]
        less.append(ways[end + 1 :])
        if isinstance(head, Piece) and head.joins:
            after = tail[0]
            assert isinstance(after, Piece)
            tail = (Piece(_joined(head.step, after.step), after.node, after.joins), *tail[1:])
        rest = tail
    else:
        found.append(_END)
    for ways in reversed(less):
        found += ways
    return found


def _rounds(repeat: model.Repeat, step: Step) -> _Begins:
    most = None if repeat.most is None else repeat.most - 1
    begins = _begins(repeat.part, step)
    again: _Begins = []
    if repeat.most is None or repeat.most > 0:
        more: Rest = ()
        if most is None or most > 0:
            left = model.Repeat(repeat.part, max(0, repeat.least - 1), most, repeat.step, repeat.greedy)
            more = (Piece(repeat.step, left),)
        again = [_Begin(begin.element, begin.step, begin.rest + more) for begin in begins if begin is not _END]
    if repeat.least > 0 and _END not in begins:
        return again
    return [*again, _END] if repeat.greedy else [_END, *again]


def _pending(parts: tuple[Rest, ...], last: int | None, step: Step) -> _Begins:
    """Parts from left to right; what a part prefers to its own end comes before the end of all, the rest after."""
    sooner: _Begins = []
    later: _Begins = []
    may_end = True
    for at, part in enumerate(parts):
        ended = False
        for begin in _ways(part):
            if begin is _END:
                ended = True
                continue
            by = begin.step if last is None or at == last else step
            rest = (Pending((*parts[:at], begin.rest, *parts[at + 1 :]), at, step),)
            (later if ended else sooner).append(_Begin(begin.element, by, rest))
        may_end = may_end and ended
    return [*sooner, *([_END] if may_end else []), *later]


# ── points ──


@dataclass(frozen=True)
class Way:
    """`after_end`: stopping at the point is preferred to it."""

    element: int
    selection: Selection
    forbidden: int  # a set of elements
    target: int  # a point
    after_end: bool = False


@dataclass
class Point:
    """`ends`: an occurrence may stop here. `fitting` is the set of elements of all ways: one of those that comes is not
    passed over by a way with the selection `next`."""

    number: int
    ways: tuple[Way, ...] = ()
    ends: bool = False

    @cached_property
    def fitting(self) -> int:
        return mask(way.element for way in self.ways)


@dataclass(frozen=True)
class State:
    """`open` are the (point, way) pairs that are. Of a row that is not taken: `killers` are sets of elements, and
    `skips[bits]` is the state that is left, where bit k says whether it fits one of `killers[k]`."""

    number: int
    open: tuple[tuple[int, int], ...]
    entries: tuple[Entry, ...] = ()
    killers: tuple[int, ...] = ()
    skips: tuple[int, ...] = ()


@dataclass(frozen=True)
class Entry:
    """Of a state: a row that fits the element may be taken for it. `ends`: an occurrence may stop with that; `target`
    is NOWHERE where it can not go on."""

    element: int
    target: int
    ends: bool


def mask(elements: Iterator[int] | tuple[int, ...]) -> int:
    """A set of elements as a word: bit n is element n."""
    found = 0
    for element in elements:
        found |= 1 << element
    return found


@dataclass
class Automaton:
    """`points[0]` is the beginning, of which steps are of no account: every row may be a first one."""

    elements: tuple[str, ...]
    points: list[Point] = field(default_factory=list)
    absent: int = 0

    @cached_property
    def first(self) -> int:
        """The elements with which an occurrence begins."""
        return self.points[0].fitting

    @cached_property
    def reading(self) -> int:
        """The elements that rows are asked for: others of the pattern can never matter."""
        found = self.absent
        for point in self.points:
            found |= point.fitting
            for way in point.ways:
                found |= way.forbidden
        return found

    @cached_property
    def strict(self) -> bool:
        """Whether a row that fits no element can end a run."""
        return any(way.selection == "strict" for point in self.points[1:] for way in point.ways)

    @cached_property
    def states(self) -> tuple[State, ...] | None:
        """`states[0]` is the beginning. None where there would be too many."""
        return _Determinisation(self).run()

    def show(self) -> str:
        """As text: a line for each way."""
        lines = []
        for point in self.points:
            lines.append(f"{point.number}{' (may end)' if point.ends else ''}")
            for way in point.ways:
                names = self.names(way.forbidden)
                without = f" without {', '.join(names)}" if names else ""
                by = way.selection if point.number else "begins"
                rank = " (after ending)" if way.after_end and point.ends else ""
                lines.append(f"    {by:<6} {self.elements[way.element]}{without} → {way.target}{rank}")
        if self.absent:
            lines.append(f"then without {', '.join(self.names(self.absent))} until the window ends")
        return "\n".join(lines)

    def names(self, elements: int) -> list[str]:
        return [name for at, name in enumerate(self.elements) if elements >> at & 1]


def automaton(pattern: model.Pattern) -> Automaton:
    """PatternError where it would be too large."""
    found = Automaton(tuple(element.name for element in pattern.elements), [], mask(pattern.absent))
    numbers: dict[Rest, int] = {}
    queue: list[Rest] = []

    def number(rest: Rest) -> int:
        if rest not in numbers:
            numbers[rest] = len(queue)
            found.points.append(Point(numbers[rest]))
            queue.append(rest)
        return numbers[rest]

    count = at = 0
    queue.append((Piece(Step(), pattern.root),))  # no point that is reached is the beginning, whatever is left there
    found.points.append(Point(0))
    while at < len(queue):
        ways: dict[Way, None] = {}
        ends = False
        for begin in _ways(queue[at]):
            if begin is _END:
                ends = True
                continue
            step = begin.step
            way = Way(begin.element, step.selection, mask(step.forbidden), number(begin.rest), ends)
            if ends and Way(*_fields(way), False) in ways:
                continue
            ways[way] = None
        found.points[at].ways, found.points[at].ends = tuple(ways), ends
        count += len(ways)
        at += 1
        if len(found.points) > MAX_POINTS or count > MAX_WAYS:
            raise _too_large(pattern)
    return found


def _fields(way: Way) -> tuple[int, Selection, int, int]:
    return way.element, way.selection, way.forbidden, way.target


def _too_large(pattern: model.Pattern) -> PatternError:
    problem = Problem(
        f"the pattern can stand at more than {MAX_POINTS:,} points, or go on from them in more than {MAX_WAYS:,} ways",
        1,
        1,
        excerpt=pattern.text.split("\n")[0][:100],
        hint="repeat less often, or put fewer parts together by &",
    )
    return PatternError([problem], "this pattern is too large")


# ── states ──


class _TooMany(Exception):
    pass


class _Determinisation:
    def __init__(self, automaton: Automaton) -> None:
        self.points = automaton.points
        self.numbers: dict[tuple[tuple[int, int], ...], int] = {}
        self.queue: list[tuple[tuple[int, int], ...]] = []

    def run(self) -> tuple[State, ...] | None:
        """Breadth first from the beginning."""
        states: list[State] = []
        try:
            self.number(self.arrival((0,)))
            while len(states) < len(self.queue):
                states.append(self.state(len(states)))
        except _TooMany:
            return None
        return tuple(states)

    def number(self, open: tuple[tuple[int, int], ...]) -> int:
        if not open:
            return NOWHERE
        if open not in self.numbers:
            if len(self.numbers) >= MAX_STATES:
                raise _TooMany
            self.numbers[open] = len(self.numbers)
            self.queue.append(open)
        return self.numbers[open]

    def arrival(self, points: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        return tuple((point, way) for point in points for way in range(len(self.points[point].ways)))

    def way(self, open: tuple[int, int]) -> Way:
        return self.points[open[0]].ways[open[1]]

    def state(self, number: int) -> State:
        open = self.queue[number]
        by_element: dict[int, set[int]] = {}
        for each in open:
            by_element.setdefault(self.way(each).element, set()).add(self.way(each).target)
        entries = []
        for element, targets in by_element.items():
            ends = any(self.points[target].ends for target in targets)
            entries.append(Entry(element, self.number(self.arrival(tuple(sorted(targets)))), ends))
        if number == 0:  # the beginning is always open
            return State(number, open, tuple(entries), (), (0,))
        killers = tuple(dict.fromkeys(filter(None, map(self.killer, open))))
        if len(killers) > MAX_KILLERS:
            raise _TooMany
        return State(number, open, tuple(entries), killers, tuple(self.skips(open, killers)))

    def killer(self, open: tuple[int, int]) -> int:
        """The elements of which a row ends this way, if it fits one and is not taken."""
        way = self.way(open)
        return way.forbidden | (self.points[open[0]].fitting if way.selection == "next" else 0)

    def skips(self, open: tuple[tuple[int, int], ...], killers: tuple[int, ...]) -> Iterator[int]:
        lasting = [each for each in open if self.way(each).selection != "strict"]
        place = {killer: at for at, killer in enumerate(killers)}
        for bits in range(1 << len(killers)):
            left = [each for each in lasting if not (killer := self.killer(each)) or not bits >> place[killer] & 1]
            yield self.number(tuple(left))


__all__ = ["NOWHERE", "Automaton", "Entry", "Point", "State", "Way", "automaton", "mask"]
