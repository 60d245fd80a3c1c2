"""Threads for what waits for the network, shared fairly: one node that does not answer holds up few of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

MOST_THREADS = 32  # at most; there are as many as were needed at a time
THREADS_PER_KEY = 4  # that work, and as a rule wait, for one node


class Workers:
    """`submit` has something done in a thread, in order and few at a time for each key."""

    def __init__(self, name: str, *, threads: int = MOST_THREADS, of_one: int = THREADS_PER_KEY) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._of_one = of_one
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def submit(self, key: str, task: Callable[[], None]) -> None:
        """`key`: the node that is waited for, or nothing: then it is one of its own. RuntimeError after `stop`."""
        if not key:
            self._pool.submit(task)
            return
        with self._lock:
            if self._running.get(key, 0) >= self._of_one:
                self._waiting.setdefault(key, deque()).append(task)
                return
            self._running[key] = self._running.get(key, 0) + 1
        try:
            self._pool.submit(self._run, key, task)
        except RuntimeError:
            self._next(key)
            raise

    def stop(self) -> None:
        """What has not begun is dropped; what has begun is not waited for."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, key: str, task: Callable[[], Any]) -> None:
        try:
            task()
        finally:
            following = self._next(key)
            if following is not None:
                with suppress(RuntimeError):  # it is stopped; who waits behind others has their turn first
                    self._pool.submit(self._run, key, following)

    def _next(self, key: str) -> Callable[[], None] | None:
        """The next for a key, whose turn it is now; None: one thread less works for it."""
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting:
                task = waiting.popleft()
                if not waiting:
                    del self._waiting[key]
                return task
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            return None
