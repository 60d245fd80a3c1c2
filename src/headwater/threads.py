"""The threads of Headwater: none of them ends without anybody noticing.

    Supervised(self._keep, "headwater-lab-keeper", node._crashes, again=lambda: not self.closed).start()

What the body of such a thread raises is said in the log with its traceback, and counted in `Crashes`, which reports
show. With `again` the body is then called again, after a pause that doubles from failure to failure, for as long as
`again()` says so: a loop goes on. Without it the thread ends, having said why. A `Worker` is such threads with a queue
of what they are to do.

A bare `threading.Thread` is made here only; a test sees to that.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic

log = logging.getLogger("headwater.threads")

FIRST_PAUSE = 0.05  # seconds before a body is called again
LONGEST_PAUSE = 1.0  # which is also how long one must run to count as well again
TOLD_APART = 256  # names that failures are counted by
REST = "others"
JOIN_SECONDS = 1.0  # that an end waits for what a worker is doing
WAITING_BYTES = 64 << 20  # of messages that may wait for one worker, whoever sent them


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


class Worker:
    """One thread, or several, that do what is put, in order. What waits is bounded: by `most`, and in bytes."""

    def __init__(
        self,
        name: str,
        most: float = math.inf,
        *,
        threads: int = 1,
        crashes: Crashes = PROCESS,
    ) -> None:
        self._name, self._crashes = name, crashes
        self._most = most
        self._count = threads
        self._queue: deque[tuple[Callable[[], object], int]] = deque()
        self._bytes = 0
        self._wake = threading.Condition(threading.Lock())
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def start(self) -> None:
        for _ in range(self._count):
            thread = Supervised(self._run, self._name, self._crashes, again=lambda: not self._stopped)
            self._threads.append(thread)
            thread.start()

    def put(self, work: Callable[[], object], *, size: int = 0, always: bool = False) -> bool:
        """Whether it is taken: not when `most` wait already, or too many bytes with these (unless `always`)."""
        with self._wake:
            if self._stopped:
                return True  # nobody is left to be told
            full = len(self._queue) >= self._most or (self._bytes > 0 and self._bytes + size > WAITING_BYTES)
            if full and not always:
                return False
            self._queue.append((work, size))
            self._bytes += size
            self._wake.notify()
        return True

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._stopped:
                    self._wake.wait()
                if self._stopped:
                    self._queue.clear()
                    return
                work, size = self._queue.popleft()
                self._bytes -= size
            try:
                work()
            except BaseException as error:  # one failure must not end the thread: nobody else would do the rest
                self._crashes.note(self._name, error)
            del work  # what it holds ends now, not with the next work

    def stop(self, timeout: float | None = JOIN_SECONDS) -> None:
        """End after the work in hand; what waits is dropped. Waits for each thread so long, None: until it ends."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)


__all__ = ["PROCESS", "Crashes", "Supervised", "Worker"]
