"""Roll calls that are repeated, so that honest nodes meet however many others only seem to be there."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.scheduler import Scheduler

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 30.0  # between roll calls while there are strangers


class RollCalls:
    """A node calls the roll when it joins; and again, at ever longer pauses, while others are said to be there that
    have proven nothing. Two honest nodes may have missed each other, and among many that are not there neither would be
    asked by the other soon, if at all."""

    def __init__(self, scheduler: Scheduler, fabric: Fabric, call: Callable[[], None]) -> None:
        self._scheduler, self._fabric, self._call_all = scheduler, fabric, call
        self._pause, self._next = FIRST_PAUSE_SECONDS, monotonic() + FIRST_PAUSE_SECONDS
        self._ignored = 0  # signs of life, by the last call
        self._calling = False

    def look(self, now: float) -> None:
        """Call again, if it is time."""
        fabric = self._fabric
        if not fabric.unproven and fabric.ignored_tokens == self._ignored:
            self._pause, self._next = FIRST_PAUSE_SECONDS, now + FIRST_PAUSE_SECONDS
        elif now >= self._next and not self._calling:
            self._ignored = fabric.ignored_tokens
            self._pause = min(LONGEST_PAUSE_SECONDS, 2 * self._pause)
            self._next, self._calling = now + self._pause, True
            if not self._scheduler.work(self._call):
                self._calling = False

    def _call(self) -> None:
        try:
            self._call_all()
        finally:
            self._calling = False
