"""Which of many filters may cover another, found without testing each pair of them.

Each way in which a filter can be true is a box: for each field that it tests, the values it takes. One box can lie in
another only if it tests at least the same fields, so boxes are kept by the fields they test; and only if its ends lie
between the other's, which numpy compares for all boxes of the same fields at once. What is left over is a superset of
the answer, as a rule the answer itself; the caller tests that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.ir.covers import Prepared
from headwater.ir.domain import Domain
from headwater.ir.nodes import Expr
from headwater.late import np

Bounds = tuple[float, float, int]  # the least and the greatest value, and if there is but one a number for it
PREFIX_BYTES = 6  # bytes of a text that its place in the order is taken from; as a whole number that a float can hold
FIRST_ROWS = 16  # rows that a table has at first


class CoverIndex:
    """Filters by their keys."""

    def __init__(self) -> None:
        self._tables: dict[frozenset[Expr], _Table] = {}
        self._same: dict[bytes, set[int]] = {}  # by fingerprint
        self._never: set[int] = set()  # those that nothing satisfies: anything covers them
        self._places: dict[int, list[_Table]] = {}

    def add(self, key: int, filter: Prepared) -> None:
        """One more; its key is its own."""
        self._same.setdefault(filter.fingerprint, set()).add(key)
        boxes = filter.boxes
        if boxes is not None and not boxes:
            self._never.add(key)
        tables = self._places[key] = []
        for box in boxes or ():
            subjects = frozenset(box)
            table = self._tables.get(subjects)
            if table is None:
                table = self._tables[subjects] = _Table(tuple(box))
            table.add(key, [_bounds(box[subject]) for subject in table.subjects])
            tables.append(table)

    def remove(self, key: int, filter: Prepared) -> None:
        """One less."""
        same = self._same[filter.fingerprint]
        same.discard(key)
        if not same:
            del self._same[filter.fingerprint]
        self._never.discard(key)
        for table in self._places.pop(key):
            table.remove(key)
            if not table.count:
                self._tables.pop(frozenset(table.subjects), None)

    def above(self, filter: Prepared) -> set[int]:
        """All that cover a filter are among these."""
        found = set(self._same.get(filter.fingerprint, ()))
        boxes = filter.boxes
        if boxes is None:
            return found
        if not boxes:
            return set(self._places)
        box = boxes[0]  # each of its ways must lie in one of theirs
        bounds = {subject: _bounds(domain) for subject, domain in box.items()}
        for subjects, table in self._tables.items():
            if subjects <= box.keys():
                found.update(table.around(bounds))
        return found

    def below(self, filter: Prepared) -> set[int]:
        """All that a filter covers are among these."""
        found = self._never | self._same.get(filter.fingerprint, set())
        for box in filter.boxes or ():
            bounds = {subject: _bounds(domain) for subject, domain in box.items()}
            for subjects, table in self._tables.items():
                if subjects >= box.keys():
                    found.update(table.inside(bounds))
        return found


class _Table:
    """Boxes over the same subjects, a row each; a key may have several."""

    def __init__(self, subjects: tuple[Expr, ...]) -> None:
        self.subjects = subjects
        self.count = 0
        self._columns = {subject: number for number, subject in enumerate(subjects)}
        self._rows: dict[int, list[int]] = {}  # by key
        self._keys = np.zeros(FIRST_ROWS, np.int64)
        self._ends = np.zeros((2, len(subjects), FIRST_ROWS))  # least and greatest values
        self._points = np.zeros((len(subjects), FIRST_ROWS), np.int64)

    def add(self, key: int, bounds: list[Bounds]) -> None:
        row = self.count
        if row == len(self._keys):
            self._keys, self._ends, self._points = map(_doubled, (self._keys, self._ends, self._points))
        self._keys[row] = key
        for column, (low, high, point) in enumerate(bounds):
            self._ends[0, column, row], self._ends[1, column, row], self._points[column, row] = low, high, point
        self._rows.setdefault(key, []).append(row)
        self.count += 1

    def remove(self, key: int) -> None:
        """One row of a key; the last row takes its place."""
        row, last = self._rows[key].pop(), self.count - 1
        if not self._rows[key]:
            del self._rows[key]
        if row != last:
            mover = int(self._keys[last])
            self._keys[row] = mover
            self._ends[:, :, row], self._points[:, row] = self._ends[:, :, last], self._points[:, last]
            rows = self._rows[mover]
            rows[rows.index(last)] = row
        self.count = last

    def around(self, bounds: dict[Expr, Bounds]) -> Iterator[int]:
        """Keys of boxes that may contain this one."""
        mask = np.ones(self.count, bool)
        for subject, column in self._columns.items():
            low, high, point = bounds[subject]
            points = self._points[column, : self.count]
            mask &= (self._ends[0, column, : self.count] <= low) & (self._ends[1, column, : self.count] >= high)
            mask &= (points == 0) | (points == point)
        return iter(self._keys[: self.count][mask].tolist())

    def inside(self, bounds: dict[Expr, Bounds]) -> Iterator[int]:
        """Keys of boxes that may lie in this one."""
        mask = np.ones(self.count, bool)
        for subject, (low, high, point) in bounds.items():
            column = self._columns[subject]
            mask &= (self._ends[0, column, : self.count] >= low) & (self._ends[1, column, : self.count] <= high)
            if point:
                mask &= self._points[column, : self.count] == point
        return iter(self._keys[: self.count][mask].tolist())


def _doubled(array: Any) -> Any:
    return np.concatenate([array, np.zeros_like(array)], axis=-1)


def _bounds(domain: Domain) -> Bounds:
    """Where a set of values lies. Nothing but missing or NaN lies in everything."""
    if domain.members is None:
        return _place(domain.lo, -np.inf), _place(domain.hi, np.inf), 0
    if not domain.members:
        return np.inf, -np.inf, 0
    lows = [_place(value, -np.inf) for value in domain.members]
    highs = [_place(value, np.inf) for value in domain.members]
    alone = len(domain.members) == 1 and not domain.nan and not domain.missing
    return min(lows), max(highs), hash(next(iter(domain.members))) | 1 if alone else 0


def _place(value: Any, unknown: float) -> float:
    """A number that is never smaller for a greater value; `unknown` where there is no telling."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, bytes):
        return float(int.from_bytes(value[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"), "big"))
    return unknown


__all__ = ["CoverIndex"]
