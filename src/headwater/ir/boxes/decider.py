"""Conditions over boxes: what is certain of an interest when each of its inputs lies in an interval.

    decider = Decider(interest)          # once
    decider.decide(box)                  # Outcome.TRUE, FALSE or UNKNOWN, for each box
    decider.decide(box, splits=20)       # with more patience

`TRUE`: every event in the box passes. `FALSE`: none does: the condition is false or missing, which is not true. Events
are valid ones of the interest's type. `limits` says of which parts nothing is known, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol

from headwater.ir import walk
from headwater.ir.boxes.corners import Corners
from headwater.ir.boxes.enclosure import LARGEST
from headwater.ir.boxes.interval import ANYTHING, Bounds, Interval
from headwater.ir.boxes.tangle import Tangle
from headwater.ir.boxes.tape import Limit, Tape
from headwater.ir.functional import as_expression, as_outputs
from headwater.ir.nodes import NOWHERE, Expr, Loop, Program
from headwater.ir.value import FIELD
from headwater.types.model import BOOL


class Interesting(Protocol):
    """What has a program and values for its parameters, as interests do."""

    @property
    def program(self) -> Program: ...
    @property
    def params(self) -> Mapping[str, Any]: ...


class Outcome(Enum):
    """Of a condition over a box."""

    TRUE = "certainly true"
    FALSE = "certainly false"
    UNKNOWN = "unknown"


class _Bounded:
    """An expression of a program that is one, ready for boxes."""

    def __init__(self, expr: Expr | None, program: Program, params: Mapping[str, Any]) -> None:
        self.program = program
        self.tape = Tape(expr, program.input, params) if expr is not None else None
        self.tangle = Tangle(self.tape) if self.tape is not None else None
        self.corners = Corners(self.tangle) if self.tangle is not None else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths that a box may bound."""
        return tuple(sorted(each.path for each in self.tape.inputs)) if self.tape is not None else ()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The parts of which nothing is known."""
        if self.tape is None:
            return (Limit("the program", _why_not(self.program), NOWHERE),)
        return tuple(dict.fromkeys(self.tape.limits))

    def bounds(self, box: Mapping[str, Interval]) -> Bounds:
        """The interval of the result: by what is cheapest first, until it is certain."""
        if self.tape is None or self.tangle is None or self.corners is None:
            return ANYTHING
        result = self.tape.result
        values = self.tape.run(box)
        found = values[result]
        if found[0] == found[1] or not self.tangle.there:
            return found
        if self.corners.compared:
            if self.tape.operations[result].type == BOOL and self.corners.refuted(values):
                return found
            decided = self.corners.decided(values) if self.corners.steep else None
            if decided is not None and self.tape.operations[result].type == BOOL:
                return decided[result]
        values = self.tangle.tighten(values)
        if values[result][0] == values[result][1] or not self.corners.compared:
            return values[result]
        return self.corners.tighten(values)[result]


class Decider(_Bounded):
    """A filter's condition, or whether a transformation passes an event on."""

    def __init__(self, interest: Interesting | Program, params: Mapping[str, Any] | None = None) -> None:
        program, values = program_of(interest, params)
        super().__init__(condition_of(program)[0], program, values)

    def decide(self, box: Mapping[str, Interval], *, splits: int = 0) -> Outcome:
        """What is certain of all events in the box. Where inputs are read more than once, `splits` allows for so many
        cuts of the box in two, each of which costs two more decisions, before it is given up."""
        outcome = self._outcome(box)
        if outcome is not Outcome.UNKNOWN or not splits or self.tangle is None or not self.tangle.there:
            return outcome
        given = {each.path: box[each.path] for each in self.tangle.numbers if each.path in box}
        sought = self._outcome({**box, **{path: _middle(interval) for path, interval in given.items()}})
        return self._divided(box, given, sought, splits) if sought is not Outcome.UNKNOWN else sought

    def _outcome(self, box: Mapping[str, Interval]) -> Outcome:
        lo, hi, _, miss = self.bounds(box)
        if lo is None:
            return Outcome.UNKNOWN
        if lo == 1 and not miss:
            return Outcome.TRUE
        return Outcome.UNKNOWN if hi == 1 else Outcome.FALSE

    def _divided(
        self, box: Mapping[str, Interval], given: Mapping[str, Interval], sought: Outcome, splits: int
    ) -> Outcome:
        """Whether all parts of a box come out as its middle does."""
        pending = [box]
        while pending:
            whole = pending.pop()
            widest = max(given, key=lambda path: _share(whole[path], given[path]), default=None)
            if not splits or widest is None or _share(whole[widest], given[widest]) == 0:
                return Outcome.UNKNOWN
            splits -= 1
            for half in _halves(whole[widest]):
                part = {**whole, widest: half}
                outcome = self._outcome(part)
                if outcome is Outcome.UNKNOWN:
                    pending.append(part)
                elif outcome is not sought:
                    return Outcome.UNKNOWN
        return sought


def _middle(interval: Interval) -> Interval:
    if interval.lo is None or interval.empty:
        return interval
    middle = _halves(interval)[0].hi
    return interval._replace(lo=middle, hi=middle)


def _halves(interval: Interval) -> tuple[Interval, Interval]:
    """Two intervals that hold the same between them; of integers they do not share an end."""
    lo, hi = interval.lo, interval.hi
    if isinstance(lo, int) and isinstance(hi, int):
        middle: float = (lo + hi) // 2
        return interval._replace(hi=middle), interval._replace(lo=min(middle + 1, hi))
    middle = min(max(lo / 2 + hi / 2, lo), hi)
    return interval._replace(hi=middle), interval._replace(lo=middle)


def _share(part: Interval, whole: Interval) -> float:
    """How much of an interval is left; nothing of what cannot be cut."""
    if whole.lo is None or not -LARGEST < whole.lo < whole.hi < LARGEST:
        return 0.0
    return float((part.hi - part.lo) / (whole.hi - whole.lo))


class Bounder(_Bounded):
    """A number that is computed from events (`ir/value.py`), or one field of a transformation."""

    def __init__(
        self,
        interest: Interesting | Program,
        params: Mapping[str, Any] | None = None,
        field: tuple[str, ...] = (FIELD,),
    ) -> None:
        program, values = program_of(interest, params)
        parts = as_outputs(program)
        super().__init__(parts[1].get(field) if parts is not None else None, program, values)

    def bound(self, box: Mapping[str, Interval]) -> Interval:
        """The interval in which it lies for every event in the box."""
        return Interval(*self.bounds(box))


def decide(
    interest: Interesting | Program, box: Mapping[str, Interval], params: Mapping[str, Any] | None = None
) -> Outcome:
    """What is certain of a condition for all events in a box; for several boxes keep a `Decider`."""
    return Decider(interest, params).decide(box)


def bound(
    interest: Interesting | Program, box: Mapping[str, Interval], params: Mapping[str, Any] | None = None
) -> Interval:
    """The interval of a number for all events in a box; for several boxes keep a `Bounder`."""
    return Bounder(interest, params).bound(box)


def limits(interest: Interesting | Program, params: Mapping[str, Any] | None = None) -> tuple[Limit, ...]:
    """The parts of a condition of which nothing is known, by name and with the reason."""
    return Decider(interest, params).limits


def program_of(interest: Interesting | Program, params: Mapping[str, Any] | None) -> tuple[Program, Mapping[str, Any]]:
    """The program of an interest, and values for its parameters."""
    if isinstance(interest, Program):
        return interest, params or {}
    return interest.program, interest.params if params is None else params


def condition_of(program: Program) -> tuple[Expr | None, str]:
    """When an event passes, as one expression; None, and why, where that cannot be said."""
    if program.output is None:
        expr = as_expression(program)
    else:
        parts = as_outputs(program)
        expr = parts[0] if parts is not None else None
    return expr, "" if expr is not None else _why_not(program)


def _why_not(program: Program) -> str:
    if any(variable.state for variable in program.variables):
        return "it keeps state from one event to the next"
    if any(isinstance(stmt, Loop) for stmt in walk.statements(program.body)):
        return "it has loops"
    if any(variable.shape for variable in program.variables):
        return "it has variables that are arrays"
    return "it is too large to be one expression"
