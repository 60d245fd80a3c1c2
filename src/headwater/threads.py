"""The threads of Headwater: none of them ends without anybody noticing.

    Supervised(self._keep, "headwater-lab-keeper", node._crashes, again=lambda: not self.closed).start()

What the body of such a thread raises is said in the log with its traceback, and counted in `Crashes`, which reports
show. With `again` the body is then called again, after a pause that doubles from failure to failure, for as long as
`again()` says so: a loop goes on. Without it the thread ends, having said why.

A bare `threading.Thread` is made here only; a test sees to that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic

log = logging.getLogger("headwater.threads")

FIRST_PAUSE = 0.05  # seconds before a body is called again
LONGEST_PAUSE = 1.0  # which is also how long one must run to count as well again
TOLD_APART = 256  # names that failures are counted by
REST = "others"


class Crashes:
    """How often something failed that nobody was waiting for, by what it was, and how it failed last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def note(self, what: str, error: BaseException) -> None:
        """One more. Of many of one kind, ever fewer are said in the log."""
        with self._lock:
            name = what if what in self._counts or len(self._counts) < TOLD_APART else REST
            count = self._counts[name] = self._counts.get(name, 0) + 1
            self._last[name] = f"{type(error).__name__}: {error}"
        if count & (count - 1) == 0:
            often = f" (number {count:,})" if count > 1 else ""
            log.error("%s failed%s: %s: %s", what, often, type(error).__name__, error, exc_info=error)

    @property
    def counts(self) -> Mapping[str, int]:
        """By what it was."""
        with self._lock:
            return dict(self._counts)

    @property
    def last(self) -> Mapping[str, str]:
        """The last failure of each."""
        with self._lock:
            return dict(self._last)

    def lines(self) -> tuple[str, ...]:
        """For people."""
        last = self.last
        return tuple(f"{name} failed {count:,} times, last with {last[name]}" for name, count in self.counts.items())


PROCESS = Crashes()  # of threads that belong to no node in particular


class Supervised(threading.Thread):
    """A thread that says what went wrong in it, and, with `again`, goes on."""

    def __init__(
        self,
        body: Callable[[], object],
        name: str,
        crashes: Crashes = PROCESS,
        *,
        again: Callable[[], bool] | None = None,
        daemon: bool = True,
    ) -> None:
        super().__init__(name=name, daemon=daemon)
        self._body, self._crashes, self._again = body, crashes, again

    def run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = monotonic()
            try:
                self._body()
                return
            except BaseException as error:  # also what is no Exception: a panic in Zenoh's code is not
                self._crashes.note(self.name, error)
            if self._again is None:
                return
            pause = FIRST_PAUSE if monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            threading.Event().wait(pause)
            if not self._again():
                return


__all__ = ["PROCESS", "Crashes", "Supervised"]
