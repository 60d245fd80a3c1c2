"""The times of turns: they never go back, whatever the clock does; and up to when all of them are known.

Each turn has the time at which it began. A time that was told to others as the last through which they know everything
is before every turn that comes later, also if the clock is set back meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class TurnClock:
    """Of one node, in microseconds. Turns are begun by one thread at a time; others may ask for promises."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._floor = 0  # no turn begins before
        self._open: int | None = None  # the first turn that is not known to be committed, or not to have been

    def begin(self) -> int:
        """The time of a turn that begins now."""
        with self._lock:
            at = self._now()
            if at > self._floor:
                self._floor = at
            else:
                at = self._floor
            if self._open is None:
                self._open = at
            return at

    def told(self, at: int) -> None:
        """Others are told of a turn of this time: no other has the same."""
        with self._lock:
            self._floor = max(self._floor, at + 1)

    def settled(self) -> None:
        """All turns so far are committed, or are not any more; and what they have to send is known to whoever sends."""
        with self._lock:
            self._open = None

    def promise(self, cap: Callable[[], int]) -> int:
        """The latest time, not after `cap`, so that all turns up to it are settled and none comes any more."""
        with self._lock:
            upto = max(self._now(), self._floor - 1)
            if self._open is not None:
                upto = min(upto, self._open - 1)
            upto = min(upto, cap())
            self._floor = max(self._floor, upto + 1)
            return upto


__all__ = ["TurnClock"]
