"""A clock for what must happen within a time, however long the machine takes for it."""

from __future__ import annotations

from headwater.channel.time.clock import SystemClock

SLOWER = 1000  # times: while tests wait for anything (`GUARD`), an eighth of a second goes by


class UnhurriedClock(SystemClock):
    """By which events have their times, at all nodes that share it: it nearly stands still until it is advanced. Timers
    go on as ever."""

    def __init__(self) -> None:
        self._start, self._ahead = super().time(), 0

    def time(self) -> int:
        return self._start + self._ahead + (super().time() - self._start) // SLOWER

    def twin(self) -> UnhurriedClock:
        """Another one, which shows the same until one of the two is advanced: one that was made a moment later would be
        ahead by that moment, in full."""
        made = UnhurriedClock()
        made._start, made._ahead = self._start, self._ahead
        return made

    def advance(self, seconds: float) -> None:
        self._ahead += round(seconds * 1_000_000)
