"""Tasks that come again and wait for other nodes: each at most once at a time, a few side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from headwater.threads import Crashes, Worker

THREADS = 3
WAITING = 10_000


class Chores:
    """Of one node. Thread-safe."""

    def __init__(self, name: str, crashes: Crashes) -> None:
        self._worker = Worker(name, WAITING, threads=THREADS, crashes=crashes)
        self._lock = threading.Lock()
        self._under_way: set[Hashable] = set()

    def start(self) -> None:
        """From here on they are done."""
        self._worker.start()

    def stop(self) -> None:
        """None is begun any more."""
        self._worker.stop()

    def do(self, key: Hashable, task: Callable[[], object]) -> bool:
        """Have a task done soon, unless the one of that key is under way; whether it will be."""
        with self._lock:
            if key in self._under_way:
                return False
            self._under_way.add(key)

        def run() -> None:
            try:
                task()
            finally:
                with self._lock:
                    self._under_way.discard(key)

        if self._worker.put(run):
            return True
        with self._lock:
            self._under_way.discard(key)
        return False


__all__ = ["Chores"]
