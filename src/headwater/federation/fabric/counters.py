"""Messages of a fabric as they come: their number and bytes by kind, and no more of one than its limit."""

from __future__ import annotations

import threading
from typing import Any

KINDS = ("join", "leave", "roll", "news", "ask", "post", "log")


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
