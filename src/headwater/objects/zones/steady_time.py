"""The time by which a home measures leases: that of people, which never stands still or goes back with their clock."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SteadyTime:
    """Nanoseconds since 1970, at least as fast as a clock that only goes forward. A clock of people that is put forward
    takes it along; one that is put back is not followed."""

    def __init__(self, people: Callable[[], int], forward: Callable[[], float]) -> None:
        """`people` says microseconds since 1970, `forward` seconds since whenever."""
        self._people, self._forward = people, forward
        self._lock = threading.Lock()
        self._last, self._at = 1000 * people(), forward()

    def __call__(self) -> int:
        with self._lock:
            at = self._forward()
            passed = int(1e9 * (at - self._at))
            self._last, self._at = max(self._last + max(0, passed), 1000 * self._people()), at
            return self._last


__all__ = ["SteadyTime"]
