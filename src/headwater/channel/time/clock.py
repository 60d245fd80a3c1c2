"""What time it is: the system's clock, or one that is advanced by hand.

    clock = ManualClock()
    clock.advance(1.5)          # runs every timer that falls due on the way, here and now

Everything in the service that waits for a time asks a `Clock`, so a test decides when an hour has passed.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol

EPOCH_2000 = 946_684_800_000_000  # microseconds from 1970 to 2000, UTC


class Clock(Protocol):
    """Tells the time, twice: for measuring and for people."""

    def now(self) -> float:
        """Seconds that only ever go forward, from an arbitrary start: what timers and deadlines are measured in."""

    def time(self) -> int:
        """The wall time, in microseconds since 1970 UTC: what an event is stamped with."""


class SystemClock:
    """The time of this machine."""

    __slots__ = ()

    def now(self) -> float:
        """Seconds that never go back, from an unknown point on."""
        return time.monotonic()

    def time(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def __repr__(self) -> str:
        return "SystemClock()"


class Agenda(Protocol):
    """Timers that a `ManualClock` runs: see `timers.Timers`, which enters itself."""

    def earliest(self) -> float | None:
        """When its next timer falls due, if it has one."""

    def first(self, now: float) -> tuple[int, float, int] | None:
        """Of the timers due at `now`, the rank of the one to run first: the smallest of all ranks goes first."""

    def fire(self, now: float) -> None:
        """Run that timer in the calling thread."""


class ManualClock:
    """A clock that stands still until it is advanced.

    Times are kept to the nanosecond, so ten steps of 0.1 s end exactly where one step of 1.0 s does.
    """

    def __init__(self, start: float = 0.0, *, time: int = EPOCH_2000) -> None:
        """`start`: the first `now()`, in seconds. `time`: the wall time then, in microseconds since 1970 UTC."""
        if not math.isfinite(start):
            raise ValueError(f"ManualClock: start must be a finite number of seconds, found {start!r}")
        self._start = self._now = to_nanosecond(start)
        self._time = time
        self._agendas: tuple[Agenda, ...] = ()
        self._lock = threading.Lock()  # never held while a timer runs

    def now(self) -> float:
        """Seconds, as far as it was advanced."""
        return self._now

    def time(self) -> int:
        """Microseconds since 1970, UTC: where it began, and as far as it was advanced."""
        return self._time + round((self._now - self._start) * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Move time on by so many seconds, and run in this thread what falls due on the way.

        Timers run in order of due time, then priority; each sees `now()` at its due time. A timer that an earlier one
        set is among them if it falls due on the way too. `advance(0)` runs what is due already. A timer may itself
        advance the clock: time never goes back.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"a clock advances by a finite number of seconds, 0 or more; found {seconds!r}")
        self.advance_to(self._now + seconds)

    def advance_to(self, when: float) -> None:
        """Move time on to `when`, as `advance` does; no step at all if that time has passed."""
        if not math.isfinite(when):
            raise ValueError(f"a clock advances to a finite time in seconds; found {when!r}")
        end = to_nanosecond(when)
        while (agenda := self._step(end)) is not None:
            agenda.fire(self._now)

    def _step(self, end: float) -> Agenda | None:
        """Move to the next due time up to `end`, and say who has the timer to run; None when `end` is reached."""
        with self._lock:
            while True:
                due = min((at for agenda in self._agendas if (at := agenda.earliest()) is not None), default=math.inf)
                if due > end:
                    self._now = max(end, self._now)
                    return None
                self._now = max(due, self._now)
                ranked = [(rank, agenda) for agenda in self._agendas if (rank := agenda.first(self._now)) is not None]
                if ranked:  # or another thread has just cancelled it
                    return min(ranked, key=lambda pair: pair[0])[1]

    def enter(self, agenda: Agenda) -> None:
        """From now on advancing runs the timers of `agenda`."""
        with self._lock:
            self._agendas = (*self._agendas, agenda)

    def leave(self, agenda: Agenda) -> None:
        """Advancing no longer runs them."""
        with self._lock:
            self._agendas = tuple(other for other in self._agendas if other is not agenda)

    def __repr__(self) -> str:
        return f"ManualClock(now={self._now!r})"


def to_nanosecond(seconds: float) -> float:
    """The time nearest to a whole nanosecond, so that sums of decimal fractions meet where one expects them."""
    return round(seconds, 9)
