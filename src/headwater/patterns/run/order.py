"""The order of rows: time, then source, then number. A row waits until no source can have an earlier one.

Each source's own events promise for it: none of its later ones is older than the latest, less the pattern's lateness.
Where it is `given` how far the sources have come, who feeds the runner says so, and promises only tell what is late of
events that say their own times.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headwater.late import np
from headwater.patterns.run.matches import Counts

DOUBTS = 1_024  # rows that came too late to be waited for, of which the times are kept
FOR_EVER = (1 << 63) - 1
NEVER = -FOR_EVER
LAST = "\U0010ffff"  # after the name of every source
Place = tuple[int, str]  # in the order of rows: a time, and the id of a source


class Waiting(NamedTuple):
    """A row that waits for its turn. Rows are in order by what stands first; no two have the same event's number."""

    time: int
    source: str
    seq: int
    channel: str
    letter: int
    number: int
    words: Sequence[int]
    values: Sequence[int]


class Order:
    """How far sources have come, and the rows that wait for them. `waiting` is a heap."""

    def __init__(self, lateness: int, *, given: bool) -> None:
        self.lateness, self.given = lateness, given
        self.promises: dict[str, int] = {}
        self.waiting: list[Waiting] = []
        self._least: Place | None = None  # the promise that all others reach, None: to be looked for
        self.released: Place = (NEVER, "")
        self.sure: Place = (NEVER, "")  # up to here nothing was released that a source may still precede
        self.doubts: list[int] = []  # times of rows that came after it was no longer waited for them

    # ── how far sources have come ──

    def expect(self, sources: Iterable[str]) -> None:
        """Wait for these sources too, of which nothing has come yet."""
        for source in sources:
            self.promises.setdefault(source, NEVER)
        self._least = None

    def promise(self, source: str, time: int) -> None:
        """None of the source's later events is older than `time`."""
        before = self.promises.get(source)
        if before is None or time > before:
            self.promises[source] = time
            if before is None or (self._least is not None and self._least[1] == source):
                self._least = None

    def leave(self, source: str) -> None:
        """The source will have no more events."""
        self.promises.pop(source, None)
        self._least = None

    def finish(self) -> None:
        """No source will have more events."""
        self.promises = dict.fromkeys(self.promises, FOR_EVER)
        self._least = None

    def go_on(self, promises: dict[str, int], released: Place, waiting: list[Waiting]) -> None:
        """From what was kept; `waiting` is in order."""
        self.promises, self.released, self.waiting, self._least = promises, released, waiting, None

    def take_over(self, other: Order) -> None:
        """As far as the sources of another have come that has ended."""
        self.doubts, self.sure = list(other.doubts), other.sure
        self.go_on(dict(other.promises), other.released, self.waiting)

    def source(self, channel: str, who: str) -> str:
        """What the promises of a source go by, whose id this is."""
        return f"{channel}/{who}" if self.given else who

    @property
    def least(self) -> Place | None:
        """The promise that all others reach; None where nobody has promised anything."""
        if self._least is None and self.promises:
            if len(self.promises) == 1:
                ((name, promise),) = self.promises.items()
                self._least = promise, name
            else:
                self._least = min((promise, name) for name, promise in self.promises.items())
        return self._least

    def reached(self) -> Place:
        """The time and source up to which no source can have earlier events. A source that appears later may have
        promised less: what was let through stays so."""
        least = self._least or self.least
        if least is None:
            return FOR_EVER, LAST
        if least > self.released:
            self.released = least
        return self.released

    # ── rows ──

    def is_late(self, channel: str, says_time: bool, who: str, time: int) -> bool:
        """Whether an event's source had come further already; and so far it has come now. `says_time`: events of this
        channel say their own time."""
        source = who
        if self.given:
            if not says_time:
                return False  # who tells us how far sources have come knows
            source = self.source(channel, who)
        promised = self.promises.get(source, NEVER)
        if time - self.lateness > promised:
            self.promise(source, time - self.lateness)
        return time < promised

    def is_behind(self, time: int, source: str, counts: Counts) -> bool:
        """Whether a row comes after its turn: it is left out, and counted. One of the very moment that was released
        last is not, whatever its source: that may have come only now."""
        if time >= self.released[0]:
            return False
        if (time, source) > self.sure:
            counts.contradicted += 1
            self.doubts.append(time)
            del self.doubts[:-DOUBTS]
        else:
            counts.late += 1
        return True

    def is_next(self, source: str, times: Any, upto: Place | None) -> bool:
        """Whether rows of a source, as they come, are in order and need not wait."""
        if self.waiting or not len(times):
            return False
        if len(times) > 1 and (np.diff(times) < 0).any():
            return False
        end = int(times[-1]), source
        if self.given:
            return upto is not None and end <= upto
        return all((promise, name) >= end for name, promise in self.promises.items())

    def wait(self, row: Waiting) -> None:
        """For its turn."""
        heapq.heappush(self.waiting, row)

    def ready(self, place: Place) -> list[Waiting]:
        """What waits no longer, up to a place."""
        waiting, found = self.waiting, list[Waiting]()
        while waiting and (place[0] == FOR_EVER or waiting[0][:2] <= place):
            found.append(heapq.heappop(waiting))
        return found


__all__ = ["FOR_EVER", "NEVER", "Order", "Place", "Waiting"]
