"""The time of publication where somebody relies on it: it goes on, also when the clock of the machine is set back.

Who was promised that nothing older comes, or reads from a log that times do not go back in a source, would else miss
what is published until the clock is where it was. So that is ahead of the clock for a while, and comes back to it
slowly. It goes on from where the clock was looked at last: what has passed between then and when it was set back is
not known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

CATCH_UP = 8  # for so long, in times of what the clock was set back by, the time is ahead of it


class SteadyTime:
    """Nanoseconds, as a clock says, but never less than before. Threads may share it."""

    __slots__ = ("_ahead", "_lock", "_read", "_said")

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._said = read()  # by the clock, last
        self._ahead = 0  # nanoseconds by which the time is later than the clock

    def __call__(self) -> int:
        with self._lock:  # two threads must not mistake who was first for a clock that was set back
            now = self._read()
            if now < self._said:
                self._ahead += self._said - now
            elif self._ahead:
                self._ahead = max(0, self._ahead - (now - self._said) // CATCH_UP)
            self._said = now
            return now + self._ahead


__all__ = ["SteadyTime"]
