"""How two nodes get to know each other at the two ends of a stream, before anything else is said.

    called -> caller    challenge: a nonce
    caller -> called    hello: signed; that nonce, one of its own, and half of a key
    called -> caller    welcome: signed; the caller's nonce, its own, and half of a key

So each end knows the key, and what it proves, of the other. Where nodes must prove who they are and there is no TLS,
the two halves make the keys with which all that follows is sealed (`sealed_stream`); they are in what is signed, so
nobody on the way can take them out or put in others. Until then no thread of the node that was called waits for the
other end, and 64 KiB is all that either can say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError, LinkDown, SecurityError
from headwater.federation.security.envelope import Opened
from headwater.federation.security.identity import same_key
from headwater.federation.security.offences import UNKNOWN, place_of, who_sent
from headwater.federation.transport.sealed_stream import Agreement, SealedStream
from headwater.federation.transport.stream import FORGED, GREETING_BYTES, MALFORMED, Receiver, Refusal, Stream
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Challenge, Greeting

if TYPE_CHECKING:
    from headwater.federation.security.keyring import Keyring
    from headwater.federation.security.offences import Offences
    from headwater.federation.transport.link import Link

NONCE = 16


class _Greeting(msgspec.Struct, frozen=True, array_like=True):
    answer: bytes  # the other's nonce
    nonce: bytes
    half: bytes = b""  # of the key for what follows


_DECODER = msgpack_decoder(_Greeting)


class Party(Protocol):
    """The node at the other end, once it is known: what follows is its business."""

    def on_frame(self, frame: bytes | memoryview, link: Link) -> None:
        """A frame; FrameError if it is not one."""

    def link_down(self, link: Link, reason: str) -> None:
        """The stream has ended."""


@dataclass(frozen=True, slots=True)
class Host:
    """This end: who it is, and whom it takes for what.

    `established` is called when the other end has proven who it is (SecurityError, LinkDown: it is not to be); `known`
    finds a node of an id, if it was met before."""

    keyring: Keyring
    offences: Offences
    established: Callable[..., Party]  # (opened, stream, *, dialled)
    known: Callable[[str], Party | None]


class _Handshake:
    """What the two ends have in common."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._nonce = os.urandom(NONCE)
        self._agreement: Agreement | None = None

    def _seals(self, stream: Stream) -> bool:
        """Whether all that follows the greetings must be sealed."""
        return self._host.keyring.security.proves and stream.kind != "tls"

    def _signed(self, kind: str, answer: bytes, to: str, stream: Stream) -> bytes:
        if self._seals(stream):
            self._agreement = Agreement()
        half = b"" if self._agreement is None else self._agreement.public
        body = msgspec.msgpack.encode(_Greeting(answer, self._nonce, half))
        return wire.encode_control(Greeting(self._host.keyring.seal(kind, body, to=to)))

    def _answered(self, body: bytes) -> bool:
        """Whether a greeting answers this end's nonce, and so was made just now."""
        try:
            return _DECODER.decode(body).answer == self._nonce
        except (msgspec.MsgspecError, ValueError):
            return False

    def _opened(self, message: object, kind: str, stream: Stream, expected: str | None) -> tuple[Opened, _Greeting]:
        """A greeting that answers this end's nonce, by the node that is expected and has the key of the stream."""
        if not isinstance(message, Greeting):
            raise FrameError(f"expected a greeting, found {type(message).__name__}")
        opened = self._host.keyring.open(message.envelope, kind, fresh=self._answered)
        greeting = _greeting(opened)
        if greeting.answer != self._nonce:
            raise SecurityError(f"the greeting of {opened.sender} answers another challenge", "replayed", opened.sender)
        if expected is not None and opened.sender != expected:
            raise SecurityError(f"expected node {expected}, found {opened.sender}", "key", opened.sender)
        certificate = stream.certificate
        if certificate is not None and not same_key(certificate, opened.key):
            raise SecurityError(f"{opened.sender} signs with another key than that of its stream", "key", opened.sender)
        if self._seals(stream) and not greeting.half:
            what = "expected half of a key in its greeting, for there is no TLS, found none"
            raise SecurityError(f"{opened.sender}: {what}", "key", opened.sender)
        return opened, greeting

    def _upgraded(self, stream: Stream, opened: Opened, greeting: _Greeting, *, dialled: bool) -> Stream:
        """The stream for all that follows."""
        if self._agreement is None:
            return stream
        mine = msgspec.msgpack.encode((self._host.keyring.id, self._nonce, self._agreement.public))
        other = msgspec.msgpack.encode((opened.sender, greeting.nonce, greeting.half))
        caller, called = (mine, other) if dialled else (other, mine)
        there, back = self._agreement.keys(greeting.half, caller=caller, called=called)
        return SealedStream(stream, *((there, back) if dialled else (back, there)))

    def _offence(self, stream: Stream, error: FrameError | SecurityError) -> None:
        """Of who it says to be, and in any case of where it is."""
        who, place = who_sent(error), place_of(stream.remote)
        self._host.offences.note(place if who == UNKNOWN else f"{who} at {place}", str(error))


class Reception(_Handshake):
    """The end that was called: one for each stranger. It answers in the listener's thread."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.challenge = wire.encode_control(Challenge(self._nonce))

    def answered(self, stream: Stream, frame: bytes | memoryview) -> bool:
        try:
            opened, greeting = self._opened(wire.decode(frame, GREETING_BYTES), "hello", stream, None)
            stream.write(self._signed("welcome", greeting.nonce, opened.sender, stream))
            Conversation(self._host, self._upgraded(stream, opened, greeting, dialled=False), opened, dialled=False)
        except (FrameError, SecurityError) as error:
            self._offence(stream, error)
            stream.close(f"refused: {error}")
            return False
        except LinkDown as error:
            stream.close(str(error))
            return False
        return True

    def failed(self, stream: Stream, error: FrameError) -> None:
        self._offence(stream, FrameError(f"{MALFORMED}: {error}"))


class Introduction(_Handshake):
    """The end that has called: `made` waits until both know each other, and returns the stream for what follows."""

    def made(self, stream: Stream, target: str, timeout: float) -> Stream:
        """Go through the handshake, for at most `timeout` seconds, with the node `target`. What is wrong with its
        answers is noted as an offence; in any case the stream is closed if this raises."""
        end = monotonic() + timeout
        try:
            challenge = wire.decode(stream.hear_within(timeout), GREETING_BYTES)
            if not isinstance(challenge, Challenge):
                raise FrameError(f"expected a challenge, found {type(challenge).__name__}")
            stream.write(self._signed("hello", challenge.nonce, target, stream))
            message = wire.decode(stream.hear_within(end - monotonic()), GREETING_BYTES)
            opened, greeting = self._opened(message, "welcome", stream, target)
            if greeting.nonce != challenge.nonce:
                raise SecurityError(f"the welcome of {target} is of another stream", "replayed", target)
            upgraded = self._upgraded(stream, opened, greeting, dialled=True)
            Conversation(self._host, upgraded, opened, dialled=True)
        except (FrameError, SecurityError) as error:
            self._offence(stream, error)
            stream.close(f"refused: {error}")
            raise
        except BaseException as error:
            stream.close(str(error))
            raise
        return upgraded


class Conversation:
    """The end of a handshake: the stream's thread has the peer established, and from then on hands the frames straight
    to it. Left to this is what the peer cannot know of: offences, and the end."""

    def __init__(self, host: Host, stream: Stream, opened: Opened, *, dialled: bool) -> None:
        self._host, self._stream = host, stream
        self._opened, self._dialled = opened, dialled
        self._peer: Party | None = None
        stream.start(self._begin, self._on_end, self._refused)

    def _begin(self) -> Receiver:
        try:
            self._peer = self._host.established(self._opened, self._stream, dialled=self._dialled)
        except (SecurityError, LinkDown) as error:
            self._refused(error)
            return _nobody
        return self._peer.on_frame

    def _refused(self, error: Refusal) -> None:
        """What is wrong with a frame is an offence of the sender's, and ends the stream, unless that has ended."""
        if isinstance(error, LinkDown):
            self._stream.close(str(error))
            return
        self._host.offences.note(self._opened.sender, str(error))
        self._stream.close(f"refused: {error}")

    def _on_end(self, reason: str) -> None:
        if reason.startswith(MALFORMED):
            self._host.offences.note(self._opened.sender, reason)
        elif reason.startswith(FORGED):
            self._host.offences.note(f"{self._opened.sender} (unproven)", reason)
        peer = self._peer or self._host.known(self._opened.sender)  # it may have ended while it was made
        if peer is not None:
            peer.link_down(self._stream, reason)


def _nobody(frame: bytes | memoryview, link: Link) -> None:
    """Receives for who was not let in: the stream is closed, and nothing comes any more."""


def _greeting(opened: Opened) -> _Greeting:
    try:
        return _DECODER.decode(opened.body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FrameError(f"the greeting of {opened.sender} cannot be read: {error}") from None
