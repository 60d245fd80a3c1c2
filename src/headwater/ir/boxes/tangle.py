"""Tighter bounds where an input is read more than once.

Interval arithmetic takes every reading of an input for another input: of `x * y - x * z` it knows less than of
`x * (y - z)`. Here each step also has a linear form around the centre of the box (`enclosure.py`), by the arithmetic
of slopes (`slope_rules.py`); what it encloses is cut with the interval. All of it is about real numbers; how far the
executions may be from these is counted along: a rounding is at most half a unit in the last place of the largest
result.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from headwater.ir.boxes.enclosure import LARGEST, Form, is_finite, of_number, reached, widened
from headwater.ir.boxes.expansion import Expansion
from headwater.ir.boxes.interval import Bounds
from headwater.ir.boxes.slope_rules import RULES, Rule, Sum, total
from headwater.ir.boxes.tape import Operation, Tape
from headwater.types.model import TIMESTAMP, Scalar, Type

COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


class Tangle:
    """The steps of a tape that an input reaches on several ways, and all that they are made of."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        reach: list[frozenset[int]] = []
        self.mixing = [False] * len(tape.operations)  # here an input meets itself
        self.tangled = [False] * len(tape.operations)  # here, or before
        inputs = {each.at: each for each in tape.inputs}
        for at, operation in enumerate(tape.operations):
            if at in inputs:
                reach.append(frozenset((at,)) if _is_number(operation.type) else frozenset())
                continue
            operands = [reach[i] for i in operation.operands]
            reach.append(frozenset().union(*operands))
            if operation.name in RULES or operation.name in COMPARED:
                self.mixing[at] = sum(map(len, operands)) > len(reach[at])
                self.tangled[at] = self.mixing[at] or any(self.tangled[i] for i in operation.operands)
        self.needed = self._below()
        self.numbers = [each for each in tape.inputs if self.needed[each.at] and reach[each.at]]
        self.inputs = [each.at for each in self.numbers]
        constants = [at for at, each in enumerate(tape.operations) if self.needed[at] and each.name == "constant"]
        self.constants = [(at, form) for at in constants if (form := _constant(tape.start[at])) is not None]
        self.there = any(self.mixing)
        self.sums = self._sums()
        self.inner = {at for terms in self.sums.values() for at in terms.inner}
        self.turns = [self._turn(at) for at in range(len(tape.operations))]

    def _below(self) -> list[bool]:
        """The tangled steps, and those that they are made of."""
        needed = self.tangled.copy()
        for at in range(len(needed) - 1, -1, -1):
            if needed[at]:
                for operand in self.tape.operations[at].operands:
                    needed[operand] = True
        return needed

    def _sums(self) -> dict[int, Sum]:
        """Sums of sums as one: what is only added on has no form of its own."""
        operations = self.tape.operations
        used = Counter(operand for operation in operations for operand in operation.operands)
        sums: dict[int, Sum] = {}
        for at, (name, operands, _) in enumerate(operations):
            if name not in ("add", "sub") or not self.needed[at]:
                continue
            terms: list[tuple[int, bool]] = []
            inner: list[int] = []
            for operand, negative in zip(operands, (False, name == "sub"), strict=True):
                part = sums.pop(operand, None) if used[operand] == 1 else None
                if part is None:
                    terms.append((operand, negative))
                else:
                    terms += [(term, negative != sign) for term, sign in part.terms]
                    inner += [operand, *part.inner]
            sums[at] = Sum(tuple(terms), tuple(inner))
        return {at: found for at, found in sums.items() if found.inner}

    def tighten(self, values: list[Bounds]) -> list[Bounds]:
        """The intervals of all steps once more, cut with what forms around the middle of the box enclose."""
        look = Expansion(self.tape, values.copy())
        self.follow(look)
        return look.values

    def follow(self, look: Expansion) -> None:
        """Forms and intervals of all steps, around the middle of the box."""
        self._begin(look, whole=False)
        values = look.values
        for at, step in self.tape.steps:
            values[at] = step(values)
            turn = self.turns[at]
            if turn is not None:
                turn.expand(look)
                if turn.mixing and (form := look.forms[at]) is not None:
                    look.cut(at, widened(reached(form, look.apart), form.error))
            elif self.needed[at] and self.tape.operations[at].name in COMPARED:
                look.compare(at, self.tape.operations[at])

    def survey(self, look: Expansion) -> None:
        """Forms around every point of the box at once, from intervals that are known already."""
        self._begin(look, whole=True)
        for at, _ in self.tape.steps:
            turn = self.turns[at]
            if turn is not None:
                turn.expand(look)
                if turn.mixing:
                    look.confine(at)

    def _begin(self, look: Expansion, *, whole: bool) -> None:
        for at in self.inputs:
            look.take(at, whole=whole)
        for at, form in self.constants:
            look.forms[at] = form

    def _turn(self, at: int) -> Turn | None:
        """What is done for the form of a step; None where it has none."""
        operation = self.tape.operations[at]
        rule = RULES.get(operation.name)
        if rule is None or not self.needed[at] or at in self.inner or not _is_number(operation.type):
            return None
        return Turn(at, rule, operation, self.sums.get(at), self.mixing[at])


class Turn(NamedTuple):
    """A step that has a form: by which rule, or as which sum, and whether inputs meet again in it."""

    at: int
    rule: Rule
    operation: Operation
    parts: Sum | None
    mixing: bool

    def expand(self, look: Expansion) -> None:
        """The form of the step, if all numbers of it are finite."""
        at = self.at
        lo, hi, _, _ = look.values[at]
        if lo is None or not -LARGEST < lo <= hi < LARGEST:
            return
        form = self.rule(look, at, self.operation) if self.parts is None else total(look, at, self.parts)
        if form is None or not is_finite(form.centre) or not form.error < LARGEST:
            return
        for slo, shi in form.slopes.values():
            if not (slo > -LARGEST and shi < LARGEST):
                return
        look.forms[at] = form


def _is_number(type: Type) -> bool:
    return isinstance(type, Scalar) and (type.is_number or type == TIMESTAMP)


def _constant(value: Bounds) -> Form | None:
    lo, hi, _, _ = value
    if not isinstance(lo, int | float) or lo != hi or abs(lo) == math.inf:
        return None
    return Form(of_number(lo), {}, 0.0)
