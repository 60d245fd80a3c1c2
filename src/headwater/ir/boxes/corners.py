"""Comparisons that are decided at the corners of a box.

Around every point of a box at once, a form has slopes that hold between any two points of it. Where such a slope is
never negative, what is compared never falls with that input: it is least where the input is. So inputs go to one of
their ends, in the best case all of them, and what is left is a box of fewer dimensions, or a point.
"""

from __future__ import annotations

from headwater.ir.boxes.enclosure import Ends, Form, minus, of_number, reached, widened
from headwater.ir.boxes.expansion import Expansion
from headwater.ir.boxes.interval import Bounds
from headwater.ir.boxes.tangle import COMPARED, Tangle


class Corners:
    """The tangled comparisons of a tape."""

    def __init__(self, tangle: Tangle) -> None:
        self.tangle, self.tape = tangle, tangle.tape
        operations = tangle.tape.operations
        self.compared = [at for at, each in enumerate(operations) if each.name in COMPARED and tangle.tangled[at]]
        self._uphill: dict[int, bool] = {}  # of the last box: the inputs with which the difference rose
        self.steep = True  # whether in the last box slopes had a sign

    def refuted(self, values: list[Bounds]) -> bool:
        """Whether the condition comes out in different ways at two corners, those that mattered in the last box."""
        if not self._uphill:
            return False
        found = []
        for high in (False, True):
            pinned = values.copy()
            for i, up in self._uphill.items():
                end = values[i][1 if up is high else 0]
                pinned[i] = (end, end, False, False)
            lo, hi, _, miss = self._run(pinned)[self.tape.result]
            if lo is None or lo < hi or (miss and hi == 1):
                return False
            found.append(hi == 1)
        return found.count(True) == 1

    def decided(self, values: list[Bounds]) -> list[Bounds] | None:
        """The intervals with comparisons settled at two points each; None where a slope has no certain sign."""
        whole, look = self._surveyed(values)
        known: dict[int, Bounds] = {}
        for at in self.compared:
            if not _is_open(look.values[at]):
                continue
            difference = self._difference(at, whole)
            if difference is None or not self.steep:
                return None
            low, high = (self._at_corner(at, whole, difference, least=least) for least in (True, False))
            # The corner's own rounding, and that of every other point.
            look.settle(at, self.tape.operations[at], widened((low[0], high[1]), 2 * difference.error))
            known[at] = look.values[at]
        return self._spread(look.values, known)

    def tighten(self, values: list[Bounds]) -> list[Bounds]:
        """The intervals of all steps once more, with inputs at their ends where slopes have a sign."""
        whole, look = self._surveyed(values)
        known = {at: look.values[at] for at in self.compared if self._settle(at, whole, look)}
        return self._spread(look.values, known) if known else values

    def _surveyed(self, values: list[Bounds]) -> tuple[Expansion, Expansion]:
        whole = Expansion(self.tape, values.copy())
        self.tangle.survey(whole)
        return whole, Expansion(self.tape, values.copy())

    def _difference(self, at: int, whole: Expansion) -> Form | None:
        """What is compared with zero, where every point of the box has a number; a corner might be the one without."""
        self.steep = False
        operation = self.tape.operations[at]
        if any(whole.values[i][2] or whole.values[i][3] for i in operation.operands):
            return None
        difference = whole.difference(operation)
        if difference is not None:
            self._uphill = {i: lo + hi >= 0 for i, (lo, hi) in difference.slopes.items()}
            self.steep = all(lo >= 0 or hi <= 0 for lo, hi in difference.slopes.values())
        return difference

    def _settle(self, at: int, whole: Expansion, look: Expansion) -> bool:
        """Whether a comparison that was open is decided now."""
        before = look.values[at]
        difference = self._difference(at, whole) if _is_open(before) else None
        if difference is None or not any(lo >= 0 or hi <= 0 for lo, hi in difference.slopes.values()):
            return False
        low, high = (self._end(at, whole, difference, least=least) for least in (True, False))
        if low is None or high is None:
            return False
        look.settle(at, self.tape.operations[at], widened((low, high), difference.error))
        return look.values[at] != before

    def _end(self, at: int, whole: Expansion, difference: Form, *, least: bool) -> float | None:
        """The least or the greatest that a difference of real numbers can be."""
        look = Expansion(self.tape, _pinned(whole.values, difference, least=least))
        self.tangle.follow(look)
        form = look.difference(self.tape.operations[at])
        return None if form is None else reached(form, look.apart)[0 if least else 1]

    def _at_corner(self, at: int, whole: Expansion, difference: Form, *, least: bool) -> Ends:
        """The difference as it is computed at a corner."""
        values = self._run(_pinned(whole.values, difference, least=least))
        (alo, ahi, _, _), (blo, bhi, _, _) = (values[i] for i in self.tape.operations[at].operands)
        return minus((of_number(alo)[0], of_number(ahi)[1]), (of_number(blo)[0], of_number(bhi)[1]))

    def _run(self, values: list[Bounds]) -> list[Bounds]:
        for at, step in self.tape.steps:
            values[at] = step(values)
        return values

    def _spread(self, values: list[Bounds], known: dict[int, Bounds]) -> list[Bounds]:
        """What follows from comparisons that are known now, for the steps after them."""
        for at, step in self.tape.steps:
            if at not in known:
                lo, hi, _, _ = values[at]
                found = step(values)
                narrower = lo is not None and found[0] is not None
                values[at] = (max(lo, found[0]), min(hi, found[1]), *found[2:]) if narrower else found
        return values


def _is_open(truth: Bounds) -> bool:
    return truth[0] is not None and truth[0] < truth[1]


def _pinned(values: list[Bounds], difference: Form, *, least: bool) -> list[Bounds]:
    """Inputs whose slopes have a sign at the end where the difference is least, or greatest."""
    values = values.copy()
    for i, (slo, shi) in difference.slopes.items():
        if slo >= 0 or shi <= 0:
            end = values[i][0 if (slo >= 0) is least else 1]
            values[i] = (end, end, False, False)
    return values
