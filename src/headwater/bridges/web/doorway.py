"""The doorway of a web server: connections are counted, and parted with if they say, or read, nothing for too long."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from headwater.bridges.web.gate import network_of


class Doorway:
    """Of one server; only the thread of its loop is here. A whole request must have come in `seconds`, and what is sent
    must have been taken in `taking` seconds."""

    def __init__(self, most: int, seconds: float, taking: float) -> None:
        self._most, self._seconds, self._taking = most, seconds, taking
        self._places: dict[asyncio.BaseTransport, str] = {}  # where each connection is from, the oldest first
        self._silent: dict[asyncio.BaseTransport, float] = {}  # those without a whole request yet, since when
        self._full: dict[asyncio.BaseTransport, float] = {}  # those that do not take what is sent, since when
        self.refused = 0

    def let_in(self, transport: asyncio.BaseTransport) -> bool:
        """One more connection; whether there is room for it. Where there is none, whatever place has most of them gives
        its newest for one that has fewer."""
        place = network_of((transport.get_extra_info("peername") or ("",))[0])
        if len(self._places) >= self._most:
            self.refused += 1
            counts = Counter(self._places.values())
            [(greedy, most)] = counts.most_common(1) or [(place, 0)]
            if most <= counts[place] + 1:
                return False
            newest = next(each for each in reversed(self._places) if self._places[each] == greedy)
            self.left(newest)
            newest.abort()  # type: ignore[attr-defined]
        self._places[transport] = place
        self._silent[transport] = monotonic()
        return True

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """It has sent a request."""
        if transport is not None:
            self._silent.pop(transport, None)

    def left(self, transport: asyncio.BaseTransport) -> None:
        """A connection has ended."""
        self._silent.pop(transport, None)
        self._full.pop(transport, None)
        self._places.pop(transport, None)

    def takes(self, transport: asyncio.BaseTransport, takes: bool) -> None:
        """Whether it takes what is sent."""
        if takes:
            self._full.pop(transport, None)
        elif transport in self._places:
            self._full[transport] = monotonic()

    def sweep(self) -> None:
        """Part with who has been silent, or has read nothing, for too long."""
        now = monotonic()
        late = [each for each, since in self._silent.items() if now - since > self._seconds]
        late += [each for each, since in self._full.items() if now - since > self._taking]
        for transport in late:
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
            self._doorway.takes(self._transport, False)
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._doorway.takes(self._transport, True)
            self._inner.resume_writing()


class Complaints(logging.LoggerAdapter[logging.Logger]):
    """What aiohttp has to say of requests. Of those that are none it says little, since anybody may send them, as fast
    as they like: they are counted. That somebody has left is nothing to speak of either."""

    def __init__(self, logger: logging.Logger, count: Callable[[], None]) -> None:
        super().__init__(logger)
        self._count = count

    def exception(self, msg: object, *args: object, exc_info: Any = True, **others: Any) -> None:
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        if isinstance(error, HttpProcessingError | ConnectionError):
            if isinstance(error, HttpProcessingError):
                self._count()
            self.debug(msg, *args, exc_info=error)
        else:
            super().exception(msg, *args, exc_info=exc_info, **others)


__all__ = ["Complaints", "Doorway", "Watched"]
