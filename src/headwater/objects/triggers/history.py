"""What is remembered of the events of an object: recent values, counts, and whether something held.

A history belongs to one object and is kept once, however many triggers ask for it; what a trigger sees of it is a
`View` by name. It takes in every event of the object, whether a trigger fires or not, before conditions are judged:
windows and counts have the present event in them, and only `Was` tells of the time before it.

    Over("new.price", within)   the values younger than that: count, first, last, min, max, sum, mean, since
    Count("new.price > 5")      events at which that held: count, in all or younger than `within`
    Was("new.x > 0")            whether that held at the event before: it

A value that is missing or NaN is none. The memory is bounded: beyond `most` values the oldest go, and `whole` is false
until they would be too old anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any, NamedTuple

import msgspec

from headwater.objects.journal import Journal
from headwater.types.model import BOOL, F64, TIMESTAMP, U64, Field, Record, Type

MOST = 4_096  # values of a window, unless said
MOST_EVER = 1_000_000  # that may be said
LONG_AGO = -(1 << 63)  # before all times


class Over(msgspec.Struct, frozen=True, tag="over", omit_defaults=True, forbid_unknown_fields=True):
    """The values of an expression over {old, new} that are younger than `within` (microseconds)."""

    of: str
    within: int
    most: int = MOST


class Count(msgspec.Struct, frozen=True, tag="count", omit_defaults=True, forbid_unknown_fields=True):
    """How many events satisfied a condition over {old, new}: all of them, or those younger than `within`."""

    where: str
    within: int = 0  # microseconds; 0: ever
    most: int = MOST


class Was(msgspec.Struct, frozen=True, tag="was", omit_defaults=True, forbid_unknown_fields=True):
    """Whether a condition over {old, new} held at the event before; missing at the first."""

    where: str


History = Over | Count | Was


def members(history: History, value: Type) -> Record:
    """What a condition can read of it; `value` is the type of an `Over`'s expression."""
    if isinstance(history, Was):
        return Record("Was", (Field("it", BOOL, optional=True),))
    if isinstance(history, Count):
        return Record("Count", (Field("count", U64), Field("whole", BOOL)))
    typed = [Field(name, value, optional=True) for name in ("first", "last", "min", "max")]
    floats = [Field("sum", F64), Field("mean", F64, optional=True)]
    return Record("Over", (Field("count", U64), *typed, *floats, Field("since", TIMESTAMP, optional=True),
                           Field("whole", BOOL)))  # fmt: skip


class Row(NamedTuple):
    """One remembered value as the file has it."""

    number: int
    time: int
    value: Any


class Written(NamedTuple):
    """What the file is to do for one history: forget the rows before `first`, and have these."""

    first: int
    rows: Sequence[Row]


class Past:
    """One history of one object. Times are microseconds; one that goes back counts as the one before it."""

    def __init__(self, history: History, journal: Journal) -> None:
        self.history, self._journal = history, journal
        self._rows: deque[Row] = deque()
        self._next = 0  # number of the next row
        self._cut = LONG_AGO  # time of the youngest value that had to go too early
        self._unwritten = 0  # rows from this number on are not in the file
        self._lows: deque[Row] | None = None  # of which the first is the least; None: to be made anew
        self._highs: deque[Row] | None = None
        self._total = 0  # of a count that is kept for ever
        self._held: bool | None = None
        self._before: bool | None = None

    # ── taking in ──

    def take(self, time: int, value: Any) -> None:
        """An event of the object: the value of the expression, or whether the condition held (None: undecided)."""
        match self.history:
            case Was():
                self._hold(bool(value) if value is not None else None, time)
            case Count(within=0):
                if value:
                    self._count(time)
            case Count(within=within, most=most):
                self._add(time, 1 if value else None, within, most)
            case Over(within=within, most=most):
                missing = value is None or value != value
                self._add(time, None if missing else value, within, most)

    def _hold(self, held: bool | None, time: int) -> None:
        before, earlier = self._held, self._before
        self._before, self._held = before, held
        self._write_one(time, None if held is None else int(held))

        def undo() -> None:
            self._held, self._before = before, earlier

        self._journal.did(undo)

    def _count(self, time: int) -> None:
        before = self._total
        self._total += 1
        self._write_one(time, self._total)

        def undo() -> None:
            self._total = before

        self._journal.did(undo)

    def _write_one(self, time: int, value: Any) -> None:
        """The one row of what is no window."""
        rows, number = list(self._rows), self._next
        self._rows = deque([Row(number, time, value)])
        self._next += 1

        def undo() -> None:
            self._rows, self._next = deque(rows), number

        self._journal.did(undo)

    def _add(self, time: int, value: Any, within: int, most: int) -> None:
        """A value at the young end, and what is too old or too much away at the other."""
        if self._rows:
            time = max(time, self._rows[-1].time)
        number, cut = self._next, self._cut
        gone: list[Row] = []
        if value is not None:
            row = Row(number, time, value)
            self._rows.append(row)
            self._next += 1
            if self._lows is not None and self._highs is not None:
                _note(row, self._lows, self._highs)
        gone += self._expire(time - within)
        while len(self._rows) > most:
            gone.append(self._rows.popleft())
            self._cut = gone[-1].time
        self._trim()

        def undo() -> None:
            if value is not None:
                self._rows.pop()
            self._rows.extendleft(reversed(gone))
            self._next, self._cut, self._lows, self._highs = number, cut, None, None

        if gone or value is not None:
            self._journal.did(undo)

    def __len__(self) -> int:
        """How many values it has."""
        return len(self._rows)

    def shorten(self) -> None:
        """The oldest value goes too early, for want of room."""
        if len(self._rows) < 2:
            return
        cut = self._cut
        gone = self._rows.popleft()
        self._cut, self._lows, self._highs = gone.time, None, None

        def undo() -> None:
            self._rows.appendleft(gone)
            self._cut, self._lows, self._highs = cut, None, None

        self._journal.did(undo)

    def _expire(self, oldest: int) -> list[Row]:
        gone = []
        while self._rows and self._rows[0].time <= oldest:
            gone.append(self._rows.popleft())
        return gone

    def _trim(self) -> None:
        first = self._rows[0].number if self._rows else self._next
        for extremes in (self._lows, self._highs):
            while extremes and extremes[0].number < first:
                extremes.popleft()

    # ── telling ──

    def view(self, now: int) -> dict[str, Any]:
        """What conditions read, at this time: the raw form of `members`."""
        match self.history:
            case Was():
                return {"it": self._before}
            case Count(within=0):
                return {"count": self._total, "whole": True}
            case Count(within=within):
                young = self._young(now - within)
                return {"count": len(young), "whole": self._cut <= now - within}
            case Over(within=within):
                return self._window(self._young(now - within), now - within)

    def _young(self, oldest: int) -> Sequence[Row]:
        """The rows younger than that; usually all, as they were trimmed when the last one came."""
        if not self._rows or self._rows[0].time > oldest:
            return self._rows
        return [row for row in self._rows if row.time > oldest]

    def _window(self, rows: Sequence[Row], oldest: int) -> dict[str, Any]:
        whole = self._cut <= oldest
        if not rows:
            nothing = dict.fromkeys(("first", "last", "min", "max", "mean", "since"))
            return {"count": 0, **nothing, "sum": 0.0, "whole": whole}
        if rows is self._rows:
            low, high = self._extremes()
        else:
            low, high = min(row.value for row in rows), max(row.value for row in rows)
        total = _sum(row.value for row in rows)
        return {
            "count": len(rows), "first": rows[0].value, "last": rows[-1].value, "min": low, "max": high,
            "sum": total, "mean": total / len(rows), "since": rows[0].time, "whole": whole,
        }  # fmt: skip

    def _extremes(self) -> tuple[Any, Any]:
        if self._lows is None or self._highs is None:
            self._lows, self._highs = deque(), deque()
            for row in self._rows:
                _note(row, self._lows, self._highs)
        return self._lows[0].value, self._highs[0].value

    # ── the file ──

    def written(self) -> Written:
        """What the file lacks, and from where on it is to have rows at all."""
        first = self._rows[0].number if self._rows else self._next
        young = []
        for row in reversed(self._rows):
            if row.number < self._unwritten:
                break
            young.append(row)
        return Written(first, young[::-1])

    def settled(self) -> None:
        """The file has it all, unless that is undone."""
        before = self._unwritten
        self._unwritten = self._next

        def undo() -> None:
            self._unwritten = before

        self._journal.did(undo)

    def load(self, rows: Iterable[Row]) -> None:
        """What the file has, when it is opened: rows in their order."""
        self._rows = deque(rows)
        self._next = self._unwritten = self._rows[-1].number + 1 if self._rows else 0
        self._lows = self._highs = None
        if not self._rows:
            return
        match self.history:
            case Was():
                last = self._rows[-1].value
                self._held = None if last is None else bool(last)
            case Count(within=0):
                self._total = int(self._rows[-1].value)
            case Over(most=most) | Count(most=most):
                if len(self._rows) >= most:  # older ones may have gone
                    self._cut = self._rows[0].time - 1


def _note(row: Row, lows: deque[Row], highs: deque[Row]) -> None:
    """Of those that may yet be the least, or the greatest: what this one outlives and outdoes can not."""
    while lows and lows[-1].value >= row.value:
        lows.pop()
    lows.append(row)
    while highs and highs[-1].value <= row.value:
        highs.pop()
    highs.append(row)


def _sum(values: Iterable[Any]) -> float:
    """As exact as a float can be; inf of both signs has no sum."""
    listed = [float(value) for value in values]
    try:
        return fsum(listed)
    except (OverflowError, ValueError):
        return sum(listed)


__all__ = ["MOST", "MOST_EVER", "Count", "History", "Over", "Past", "Row", "Was", "Written", "members"]
