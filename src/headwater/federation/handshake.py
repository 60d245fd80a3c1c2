"""How two nodes get to know each other at the two ends of a stream, before anything else is said.

The one that was called sends a nonce; the caller answers with a signed hello that has that nonce in it, and one of its
own; the one that was called answers with a signed welcome. So each end knows the key, and what it proves, of the other.
"""

from __future__ import annotations

import os
import threading
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import FrameError, LinkDown, SecurityError
from headwater.federation import wire
from headwater.federation.envelope import Opened
from headwater.federation.identity import same_key
from headwater.federation.offences import UNKNOWN, place_of, who_sent
from headwater.federation.stream import MALFORMED, Stream
from headwater.federation.wire_control import Challenge, Greeting

if TYPE_CHECKING:
    from headwater.federation.engine import Engine
    from headwater.federation.peer import Peer

NONCE = 16
GREETING = 5.0  # seconds in which the other end must have said who it is
STRANGERS = 64  # streams whose other end has not yet


class _Greeting(msgspec.Struct, frozen=True, array_like=True):
    answer: bytes  # the other's nonce
    nonce: bytes


_DECODER = msgspec.msgpack.Decoder(_Greeting)


class Strangers:
    """Streams whose other end has not said who it is. There are not many at a time, and none for long: one more ends
    the oldest."""

    def __init__(self) -> None:
        self._since: dict[Stream, float] = {}
        self._lock = threading.Lock()

    def add(self, stream: Stream) -> None:
        with self._lock:
            self._since[stream] = monotonic()
            oldest = next(iter(self._since)) if len(self._since) > STRANGERS else None
        if oldest is not None:
            oldest.close("too many others have not said who they are either")

    def discard(self, stream: Stream) -> None:
        with self._lock:
            self._since.pop(stream, None)

    def look(self) -> None:
        """End those that have been silent for too long."""
        with self._lock:
            late = [stream for stream, since in self._since.items() if monotonic() - since > GREETING]
        for stream in late:
            stream.close(f"it did not say who it is within {GREETING:g} s")


class Handshake:
    """One end of one stream: until both know each other, and after that the way to the peer."""

    def __init__(self, engine: Engine, stream: Stream, *, target: str | None) -> None:
        self._engine, self._stream, self._target = engine, stream, target
        self._nonce = os.urandom(NONCE)
        self._peer: Peer | None = None
        stream.start(self._on_frame, self._on_end)
        if target is None:
            engine.strangers.add(stream)
            stream.write(wire.encode_control(Challenge(self._nonce)))

    def _on_frame(self, frame: bytes | memoryview) -> None:
        try:
            if self._peer is not None:
                self._peer.on_frame(frame, self._stream)
            else:
                self._greet(wire.decode(frame, 1 << 16))
        except (FrameError, SecurityError) as error:
            self._offence(error)
            self._stream.close(f"refused: {error}")
        except LinkDown as error:
            self._stream.close(str(error))

    def _offence(self, error: FrameError | SecurityError | str) -> None:
        """By whom: the peer, if it is known by now; else who it says to be, and in any case where it is."""
        if self._peer is not None:
            self._engine.offence(self._peer, str(error))
            return
        who = UNKNOWN if isinstance(error, str) else who_sent(error)
        place = place_of(self._stream.remote)
        self._engine.offence(place if who == UNKNOWN else f"{who} at {place}", str(error))

    def _greet(self, message: object) -> None:
        match message:
            case Challenge(nonce=nonce) if self._target is not None:
                self._stream.write(self._signed("hello", nonce, self._target))
            case Greeting(envelope=envelope):
                kind = "welcome" if self._target is not None else "hello"
                opened = self._engine.open_sealed(envelope, kind)
                self._check(opened)
                if self._target is None:
                    self._stream.write(self._signed("welcome", _greeting(opened).nonce, opened.sender))
                self._engine.strangers.discard(self._stream)
                self._peer = self._engine.links.established(opened, self._stream, dialled=self._target is not None)
            case _:
                raise FrameError(f"expected a greeting, found {type(message).__name__}")

    def _signed(self, kind: str, answer: bytes, to: str) -> bytes:
        body = msgspec.msgpack.encode(_Greeting(answer, self._nonce))
        return wire.encode_control(Greeting(self._engine.seal(kind, body, to=to)))

    def _check(self, opened: Opened) -> None:
        if _greeting(opened).answer != self._nonce:
            raise SecurityError(f"the greeting of {opened.sender} answers another challenge", "replayed", opened.sender)
        if self._target is not None and opened.sender != self._target:
            raise SecurityError(f"expected node {self._target}, found {opened.sender}", "key", opened.sender)
        certificate = self._stream.certificate
        if certificate is not None and not same_key(certificate, opened.key):
            raise SecurityError(f"{opened.sender} signs with another key than that of its stream", "key", opened.sender)

    def _on_end(self, reason: str) -> None:
        self._engine.strangers.discard(self._stream)
        if reason.startswith(MALFORMED):
            self._offence(reason)
        if self._peer is not None:
            self._peer.link_down(self._stream, reason)


def _greeting(opened: Opened) -> _Greeting:
    try:
        return _DECODER.decode(opened.body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FrameError(f"the greeting of {opened.sender} cannot be read: {error}") from None
