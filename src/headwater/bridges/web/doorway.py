"""The doorway of a web server: connections are counted, and parted with if they say nothing for too long."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any


class Doorway:
    """Of one server; only the thread of its loop is here."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._silent: dict[asyncio.BaseTransport, float] = {}  # connections without a whole request yet, since when
        self._heard: set[asyncio.BaseTransport] = set()
        self.refused = 0

    def let_in(self, transport: asyncio.BaseTransport) -> bool:
        """One more connection; whether there is room for it."""
        if len(self._silent) + len(self._heard) >= self._most:
            self.refused += 1
            return False
        self._silent[transport] = monotonic()
        return True

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """It has sent a request."""
        if transport is not None and self._silent.pop(transport, None) is not None:
            self._heard.add(transport)

    def left(self, transport: asyncio.BaseTransport) -> None:
        """A connection has ended."""
        self._silent.pop(transport, None)
        self._heard.discard(transport)

    def sweep(self) -> None:
        """Part with who has been silent for too long."""
        now = monotonic()
        for transport, since in list(self._silent.items()):
            if now - since > self._seconds:
                self.refused += 1
                self.left(transport)
                transport.abort()  # type: ignore[attr-defined]


class Watched(asyncio.Protocol):
    """The protocol of a connection, behind the doorway."""

    def __init__(self, doorway: Doorway, inner: Any) -> None:
        self._doorway, self._inner = doorway, inner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._doorway.let_in(transport):
            transport.abort()  # type: ignore[attr-defined]
            return
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._transport is not None:
            self._doorway.left(self._transport)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._transport is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._inner.resume_writing()


__all__ = ["Doorway", "Watched"]
