"""One box, as seen from its centre: the intervals of the steps of a tape, and linear forms of those that have one."""

from __future__ import annotations

import math

from headwater.ir.boxes import floats, truth
from headwater.ir.boxes.enclosure import (
    LARGEST,
    Ends,
    Form,
    minus,
    negated,
    of_number,
    outward,
    reached,
    summed,
    widened,
)
from headwater.ir.boxes.interval import Bounds
from headwater.ir.boxes.tape import Operation, Tape
from headwater.types.model import F64

ROUNDING = 2.0**-52  # relative, twice what rounding to nearest loses
MORE = 1 + 2.0**-20  # what computing an error may itself lose


class Expansion:
    """The intervals of the steps so far, their forms, and how far each input may be from its centre."""

    def __init__(self, tape: Tape, values: list[Bounds]) -> None:
        self.tape, self.values = tape, values
        self.forms: list[Form | None] = [None] * len(values)
        self.apart: dict[int, Ends] = {}

    def take(self, at: int, *, whole: bool = False) -> None:
        """An input that is a number, around the middle of its interval, or around all of it."""
        lo, hi, _, _ = self.values[at]
        if lo is None or not -LARGEST < lo <= hi < LARGEST:
            return
        if isinstance(lo, int) and isinstance(hi, int):
            middle: float = (lo + hi) // 2
            self.apart[at] = of_number(lo - middle)[0], of_number(hi - middle)[1]
        else:
            middle = min(max(lo / 2 + hi / 2, lo), hi)
            self.apart[at] = (0.0, 0.0) if lo == hi else outward(lo - middle, hi - middle)
        centre = (of_number(lo)[0], of_number(hi)[1]) if whole else of_number(middle)
        self.forms[at] = Form(centre, {at: (1.0, 1.0)}, 0.0)

    def cut(self, at: int, ends: Ends) -> None:
        lo, hi, nan, miss = self.values[at]
        low, high = ends
        if isinstance(lo, int):
            lo = max(lo, math.ceil(low)) if low > lo else lo
            hi = min(hi, math.floor(high)) if high < hi else hi
        else:
            lo, hi = max(lo, low) if low == low else lo, min(hi, high) if high == high else hi
        self.values[at] = (lo, hi, nan, miss)

    def confine(self, at: int) -> None:
        """The centre within what is known of the step, where every point of the box has a number."""
        form, (_, _, nan, miss) = self.forms[at], self.values[at]
        if form is not None and not nan and not miss:
            lo, hi = self.real(at, form)
            centre = max(form.centre[0], lo), min(form.centre[1], hi)
            self.forms[at] = form._replace(centre=centre) if centre[0] <= centre[1] else form

    def compare(self, at: int, operation: Operation) -> None:
        """By the difference: what both sides share falls out of it."""
        difference = self.difference(operation)
        if difference is not None:
            self.settle(at, operation, widened(reached(difference, self.apart), difference.error))

    def difference(self, operation: Operation) -> Form | None:
        """The form of one side of a comparison less the other."""
        a, b = (self.forms[i] for i in operation.operands)
        if a is None or b is None:
            return None
        return Form(minus(a.centre, b.centre), summed(a.slopes, negated(b.slopes)), (a.error + b.error) * MORE)

    def settle(self, at: int, operation: Operation, ends: Ends) -> None:
        """A comparison, by the interval in which the difference of its sides is."""
        low, high = ends
        if not low <= high:
            return
        (_, _, anan, amiss), (_, _, bnan, bmiss) = (self.values[i] for i in operation.operands)
        found = truth.compare(operation.name, (low, high, anan or bnan, amiss or bmiss), (0.0, 0.0, False, False))
        lo, hi, nan, miss = self.values[at]
        self.values[at] = (max(lo, found[0]), min(hi, found[1]), nan, miss)

    def real(self, at: int, form: Form) -> Ends:
        """The real numbers that a step stands for, wherever it has a value."""
        lo, hi, _, _ = self.values[at]
        if not isinstance(lo, float):
            lo, hi = of_number(lo)[0], of_number(hi)[1]
        error = form.error
        return (math.nextafter(lo - error, -math.inf), math.nextafter(hi + error, math.inf)) if error else (lo, hi)

    def rounded(self, at: int, error: float) -> float:
        """An error with that of rounding the result, if it is a float."""
        if self.tape.operations[at].type != F64:
            return error * MORE if error else 0.0
        lo, hi, _, _ = self.values[at]
        return float((error + ROUNDING * max(-lo, hi)) * MORE + floats.TINY)
