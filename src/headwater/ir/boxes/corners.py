"""Comparisons that are decided at the corners of a box.

Around every point of a box at once, a form has slopes that hold between any two points of it. Where such a slope is
never negative, what is compared never falls with that input: it is least where the input is. So inputs go to one of
their ends, in the best case all of them, and what is left is a box of fewer dimensions, or a point.
"""

from __future__ import annotations

from headwater.ir.boxes.enclosure import Form, reached, widened
from headwater.ir.boxes.expansion import Expansion
from headwater.ir.boxes.interval import Bounds
from headwater.ir.boxes.tangle import COMPARED, Tangle


class Corners:
    """The tangled comparisons of a tape."""

    def __init__(self, tangle: Tangle) -> None:
        self.tangle, self.tape = tangle, tangle.tape
        operations = tangle.tape.operations
        self.compared = [at for at, each in enumerate(operations) if each.name in COMPARED and tangle.tangled[at]]

    def tighten(self, values: list[Bounds]) -> list[Bounds]:
        """The intervals of all steps once more, comparisons decided where corners do."""
        whole = Expansion(self.tape, values.copy())
        self.tangle.survey(whole)
        look = Expansion(self.tape, values.copy())
        settled = [at for at in self.compared if self._settle(at, whole, look)]
        if not settled:
            return values
        known = {at: look.values[at] for at in settled}
        for at, step in self.tape.steps:
            if at in known:
                continue
            lo, hi, _, _ = look.values[at]
            found = step(look.values)
            narrower = lo is not None and found[0] is not None
            look.values[at] = (max(lo, found[0]), min(hi, found[1]), *found[2:]) if narrower else found
        return look.values

    def _settle(self, at: int, whole: Expansion, look: Expansion) -> bool:
        """Whether a comparison that was open is decided now."""
        before = look.values[at]
        operation = self.tape.operations[at]
        if before[0] is None or before[0] >= before[1]:
            return False
        if any(whole.values[i][2] or whole.values[i][3] for i in operation.operands):
            return False  # somewhere in the box there is no number, maybe just at the corner
        difference = whole.difference(operation)
        if difference is None or not any(lo >= 0 or hi <= 0 for lo, hi in difference.slopes.values()):
            return False
        low, high = (self._end(at, whole, difference, least=least) for least in (True, False))
        if low is None or high is None:
            return False
        look.settle(at, operation, widened((low, high), difference.error))
        return look.values[at] != before

    def _end(self, at: int, whole: Expansion, difference: Form, *, least: bool) -> float | None:
        """The least or the greatest that a difference of real numbers can be."""
        values = whole.values.copy()
        for i, (slo, shi) in difference.slopes.items():
            if slo >= 0 or shi <= 0:
                end = values[i][0 if (slo >= 0) is least else 1]
                values[i] = (end, end, False, False)
        look = Expansion(self.tape, values)
        self.tangle.follow(look)
        form = look.difference(self.tape.operations[at])
        return None if form is None else reached(form, look.apart)[0 if least else 1]
