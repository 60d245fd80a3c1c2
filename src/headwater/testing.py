"""For tests of programs that use Headwater: time that is advanced by hand, and waiting without sleeping.

with Node(clock=ManualClock()) as node:
    heard = Recorder()
    node.channel("ie.tcd.sighting", Sighting).subscribe(heard, "level > 0.5", dispatch="pool")
    ...
    assert [event.badge for event in heard.wait(2)] == [7, 8]
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic

from headwater.channel.annotations import E
from headwater.channel.time.clock import ManualClock

GUARD_SECONDS = 30.0  # against hanging: what is waited for comes in moments, or never
RECHECK_SECONDS = 0.005


class Recorder(Generic[E]):
    """A handler that keeps what it gets, in `events`; a test waits with it in another thread."""

    def __init__(self) -> None:
        self.events: list[E] = []
        self._came = threading.Condition()

    def __call__(self, event: E) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def wait(self, count: int, timeout: float = GUARD_SECONDS) -> list[E]:
        """What has come, once it is at least so many events; else an AssertionError says what has."""
        self.until(lambda events: len(events) >= count, f"{count} events", timeout)
        return self.events

    def until(
        self,
        condition: Callable[[list[E]], bool],
        what: str = "what was waited for",
        timeout: float = GUARD_SECONDS,
    ) -> None:
        """Wait until a condition holds of what has come; `what` names it in the AssertionError."""
        with self._came:
            came = self._came.wait_for(lambda: condition(self.events), timeout)
        if not came:
            raise AssertionError(f"{what} did not come, but {len(self.events)}: {self.events[-20:]}")

    def field(self, name: str) -> list[Any]:
        """One field of all that has come."""
        return [getattr(event, name) for event in self.events]


def eventually(condition: Callable[[], bool], what: str = "it", timeout: float = GUARD_SECONDS) -> None:
    """Look again and again, where nothing tells that something has happened."""
    end, pause = monotonic() + timeout, threading.Event()
    while not condition():
        if monotonic() >= end:
            raise AssertionError(f"{what} did not happen")
        pause.wait(RECHECK_SECONDS)


__all__ = ["ManualClock", "Recorder", "eventually"]
