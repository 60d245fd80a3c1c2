"""What a fabric is made of besides Zenoh: counters, and a thread that works off a queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headwater.threads import PROCESS, Crashes, Supervised

KINDS = ("join", "leave", "roll", "news", "ask", "post", "log")
JOIN_SECONDS = 1.0  # that an end waits for what a thread is doing
WAITING_BYTES = 64 << 20  # of messages that may wait for one worker, whoever sent them


def bounded(payload: Any, limit: int) -> bytes:
    """What came; of more than `limit` bytes nothing is kept, but something that is seen to be too large as well."""
    return bytes(payload) if len(payload) <= limit else bytes(limit + 1)


class Counters:
    """Messages and bytes in and out, by kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in = {kind: [0, 0] for kind in KINDS}
        self._out = {kind: [0, 0] for kind in KINDS}

    def sent(self, kind: str, size: int) -> None:
        cell = self._out[kind]
        with self._lock:
            cell[0] += 1
            cell[1] += size

    def received(self, kind: str, size: int) -> None:
        cell = self._in[kind]
        with self._lock:
            cell[0] += 1
            cell[1] += size

    def snapshot(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {
                kind: {
                    "messages_in": self._in[kind][0],
                    "bytes_in": self._in[kind][1],
                    "messages_out": self._out[kind][0],
                    "bytes_out": self._out[kind][1],
                }
                for kind in KINDS
            }


class Worker:
    """One thread, or several, that do what is put, in order; what waits is bounded."""

    def __init__(self, name: str, most: int, *, threads: int = 1, crashes: Crashes = PROCESS) -> None:
        self._name, self._crashes = name, crashes
        self._most = most
        self._count = threads
        self._queue: deque[tuple[Callable[[], None], int]] = deque()
        self._bytes = 0
        self._wake = threading.Condition(threading.Lock())
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def start(self) -> None:
        for _ in range(self._count):
            thread = Supervised(self._run, self._name, self._crashes, again=lambda: not self._stopped)
            self._threads.append(thread)
            thread.start()

    def put(self, work: Callable[[], None], *, size: int = 0, always: bool = False) -> bool:
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

    def stop(self) -> None:
        """End after the work in hand; what waits is dropped. Waits for the threads, but not for long."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)
