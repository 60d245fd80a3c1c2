"""The link between nodes that only Zenoh connects: the same frames, in encrypted messages.

In the clear is only who posts it: the node's id and incarnation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import FrameError, LinkDown, Unreachable
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.security.session import Session

SLOW_SECONDS = 0.002  # that sinks may take in Zenoh's thread, before another hands on for a while
ASIDE_SECONDS = 1.0  # that while
_HEAD = struct.Struct("<BQ")


class RoutedLink:
    """Takes frames for one node and posts them."""

    kind = "zenoh"
    busy = False

    def __init__(
        self,
        fabric: Fabric,
        me: str,
        incarnation: int,
        peer: str,
        session: Callable[[], Session],
        on_data: Callable[[RoutedLink, memoryview], None],
    ) -> None:
        self._fabric, self._peer, self._session = fabric, peer, session
        self._arrived: SimpleQueue[memoryview | None] = SimpleQueue()
        self._on_data = on_data
        self._put = self._done = 0  # messages for that thread, each counted by one thread
        self._aside = 0.0  # until when it does all
        self._reader = Supervised(self._read, f"headwater-from-{peer}", again=lambda: self._ended is None)
        self._reader.start()
        name = me.encode()
        self._head = _HEAD.pack(len(name), incarnation) + name
        self.bytes_out = self.bytes_in = 0
        self._ended: str | None = None

    def write(self, data: bytes) -> bool:
        if self._ended is not None:
            raise LinkDown(f"the routed link to {self._peer} has ended: {self._ended}")
        message = self._head + self._session().seal(data, self._head)
        self.bytes_out += len(message)
        try:
            self._fabric.post(self._peer, message)
        except Unreachable as error:
            raise LinkDown(f"the routed link to {self._peer}: {error}") from None
        return True

    def drain(self, timeout: float) -> bool:
        return True

    def arrived(self, data: memoryview) -> None:
        """Something was posted for this node. The thread that hands it over must not wait for long: as soon as sinks
        take their time, a thread of this link's own does the rest."""
        self.bytes_in += len(data)
        now = monotonic()
        if self._put != self._done or now < self._aside:
            self._put += 1
            self._arrived.put(data)
            return
        self._on_data(self, data)
        if monotonic() - now > SLOW_SECONDS:
            self._aside = now + ASIDE_SECONDS

    def _read(self) -> None:
        while (data := self._arrived.get()) is not None:
            try:
                if self._ended is None:
                    self._on_data(self, data)
            finally:
                self._done += 1  # only now: what comes meanwhile comes after it

    @property
    def ended(self) -> str | None:
        """Why, if it has."""
        return self._ended

    def close(self, reason: str) -> None:
        self._ended = self._ended or reason
        self._arrived.put(None)


def read_head(message: bytes) -> tuple[str, int, memoryview, memoryview]:
    """Who says to have posted a message, in which incarnation; that head, and what is sealed under it. Nothing is
    proven yet."""
    if len(message) < _HEAD.size:
        raise FrameError(f"expected a posted message, found {len(message)} bytes")
    size, incarnation = _HEAD.unpack_from(message)
    view, end = memoryview(message), _HEAD.size + size
    try:
        return str(view[_HEAD.size : end], "ascii"), incarnation, view[:end], view[end:]
    except UnicodeDecodeError:
        raise FrameError("expected the name of a node, found other bytes") from None
