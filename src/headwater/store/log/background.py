"""Threads for what logs do beside appending: one to sync and roll when it is time, one to bring segments to rest.

They are of the process, not of a log: they begin with the first job and end when there has been none for a while.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable

from headwater.threads import PROCESS, Supervised

_IDLE = 2.0  # seconds after which a thread without jobs ends


class Worker:
    """Runs jobs one at a time, each when it is due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._running = False

    def after(self, seconds: float, job: Callable[[], None]) -> int:
        """Run a job some seconds from now; its number, for `cancel`."""
        with self._changed:
            number = next(self._numbers)
            heapq.heappush(self._jobs, (time.monotonic() + seconds, number, job))
            if not self._running:
                self._running = True
                Supervised(self._run, self.name, again=lambda: True).start()
            elif self._jobs[0][2] is job:
                self._changed.notify()
            return number

    def cancel(self, number: int) -> None:
        """Do not run the job of this number, if it has not begun."""
        with self._changed:
            kept = [job for job in self._jobs if job[1] != number]
            if len(kept) < len(self._jobs):
                heapq.heapify(kept)
                self._jobs = kept
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while True:
                    wait = self._jobs[0][0] - time.monotonic() if self._jobs else _IDLE
                    if wait <= 0:
                        break
                    if not self._changed.wait(wait) and not self._jobs:
                        self._running = False
                        return
                job = heapq.heappop(self._jobs)[2]
            try:
                job()
            except Exception as error:
                PROCESS.note(self.name, error)
            del job


KEEPER = Worker("headwater-log")
RESTER = Worker("headwater-log-rest")

if hasattr(os, "register_at_fork"):
    for _worker in (KEEPER, RESTER):
        os.register_at_fork(after_in_child=_worker._reset)
