"""The frames that nodes exchange: on direct streams, on the routed path and in datagrams. Bytes only, no I/O.

`encode_...` make whole frames, with the prefix that streams need; `decode` takes one without it, and `Splitter` finds
them in what a stream gives. Whatever is malformed is a `FrameError`, and nothing else; what a frame takes in memory is
bounded by its size and the bounds in `kinds`, where the kinds of frames are listed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from headwater.errors import FrameError
from headwater.federation.wire import kinds
from headwater.federation.wire.batch import Batch, decode_batch, encode_batch, encode_batches
from headwater.federation.wire.control import (
    VERSION,
    Bye,
    Control,
    Repair,
    Resume,
    decode_control,
    encode_control,
)
from headwater.federation.wire.events import (
    EVENT_AT,
    Events,
    decode_event,
    decode_events,
    encode_event,
    encode_events,
    encode_run_first,
    event_head,
    is_past,
    resent,
    runs,
    spans,
)
from headwater.federation.wire.headerless import Header, header_of
from headwater.federation.wire.kinds import (
    ACK,
    BATCH,
    BODY,
    COMPRESSED,
    CONTROL,
    EVENT,
    EVENTS,
    MAX_FRAME,
    MAX_PAIRS,
    PING,
    PONG,
    PREFIX,
    PROMISE,
    REBODY,
    TIMES,
    Data,
    check_columns,
    too_large,
)
from headwater.late import pa

_ACK = struct.Struct("<IQ")
_PROMISE = struct.Struct("<Iq")
_TIMES = struct.Struct("<Iqq")
_BEAT = struct.Struct("<IBQ")  # with the prefix
_BEAT_BODY = struct.Struct("<Q")
_SQUEEZED = struct.Struct("<IBBI")  # with the prefix
_SQUEEZED_BODY = struct.Struct("<BI")

Codec = Literal["lz4", "zstd"]
_CODECS: dict[Codec, int] = {"lz4": 1, "zstd": 2}


class Ack(msgspec.Struct, gc=False):
    """Of each source: all up to this number has arrived and is done with."""

    pairs: list[tuple[int, int]]


class Promise(msgspec.Struct, gc=False):
    """Of each source: no later event is older than this time in nanoseconds."""

    pairs: list[tuple[int, int]]


class Times(msgspec.Struct, gc=False):
    """Of each source whose events say their own times, in microseconds: no later event has an earlier one than the
    first of these, no earlier event a later one than the second."""

    pairs: list[tuple[int, int, int]]


class Ping(msgspec.Struct, gc=False):
    """Answer with a Pong of the same number."""

    number: int


class Pong(msgspec.Struct, gc=False):
    """The answer to a Ping."""

    number: int


Frame = Events | Batch | Ack | Promise | Times | Ping | Pong | Control


# ── encoding ──


def encode_ack(pairs: Iterable[tuple[int, int]]) -> bytes:
    """The frame that acknowledges (source, number)..."""
    return _encode_pairs(ACK, _ACK, pairs, "ack")


def encode_promise(pairs: Iterable[tuple[int, int]]) -> bytes:
    """The frame that promises (source, nanoseconds)..."""
    return _encode_pairs(PROMISE, _PROMISE, pairs, "promise")


def encode_times(triples: Iterable[tuple[int, int, int]]) -> bytes:
    """The frame that says (source, microseconds, microseconds)..."""
    return _encode_pairs(TIMES, _TIMES, triples, "times")


def _encode_pairs(kind: int, form: struct.Struct, pairs: Iterable[tuple[int, ...]], what: str) -> bytes:
    try:
        body = b"".join([form.pack(*pair) for pair in pairs])
    except struct.error as error:
        raise FrameError(f"{what}: a source or a value does not fit its place in a frame: {error}") from None
    if len(body) > MAX_PAIRS * form.size:
        raise FrameError(f"{what}: expected at most {MAX_PAIRS:,} sources, found more; send several")
    return b"".join((PREFIX.pack(len(body) + 1), bytes((kind,)), body))


def encode_ping(number: int) -> bytes:
    """The frame that asks for a Pong."""
    return _encode_beat(PING, number)


def encode_pong(number: int) -> bytes:
    """The frame that answers a Ping."""
    return _encode_beat(PONG, number)


def _encode_beat(kind: int, number: int) -> bytes:
    try:
        return _BEAT.pack(_BEAT.size - 4, kind, number)
    except struct.error as error:
        raise FrameError(f"ping: expected a number of 64 bits, found {number}: {error}") from None


def compress(frame: bytes, codec: Codec = "lz4") -> bytes:
    """The frame with its body compressed, or as it is if that does not make it smaller."""
    if codec not in _CODECS:
        raise FrameError(f"compress: expected one of {', '.join(_CODECS)}, found {codec!r}")
    body = memoryview(frame)[5:]
    if frame[4] & COMPRESSED or not body:
        return frame
    squeezed = pa.Codec(codec, compression_level=1 if codec == "zstd" else None).compress(body, asbytes=True)
    size = _SQUEEZED.size - 4 + len(squeezed)
    if size >= len(frame) - 4:
        return frame
    return b"".join((_SQUEEZED.pack(size, frame[4] | COMPRESSED, _CODECS[codec], len(body)), squeezed))


# ── decoding ──


def decode(frame: Data, limit: int = MAX_FRAME) -> Frame:
    """What a frame says; `frame` is kind and body, without the prefix. FrameError if it is not one."""
    try:
        kind = frame[0]
        if len(frame) > limit:
            raise too_large("frame", len(frame), limit)
        if kind == BODY:
            return decode_event(frame, 1, False, True)
        if kind == EVENT:
            return decode_event(frame, 1, False)
        if kind & COMPRESSED:
            return _body(kind & ~COMPRESSED, _expand(frame, limit), 0)
        return _body(kind, frame, 1)
    except (struct.error, IndexError) as error:
        raise FrameError(f"frame: expected more than its {len(frame)} bytes: {error}") from None


def _body(kind: int, data: Data, at: int) -> Frame:
    """What a frame of this kind says."""
    match kind:
        case kinds.EVENTS:
            return decode_events(data, at)
        case kinds.EVENT:
            return decode_event(data, at, False)
        case kinds.BATCH:
            return decode_batch(data, at)
        case kinds.ACK:
            return Ack(_decode_pairs(_ACK, data, at, "ack"))
        case kinds.PROMISE:
            return Promise(_decode_pairs(_PROMISE, data, at, "promise"))
        case kinds.TIMES:
            return Times(_decode_pairs(_TIMES, data, at, "times"))
        case kinds.PING:
            return Ping(_decode_beat(data, at))
        case kinds.PONG:
            return Pong(_decode_beat(data, at))
        case kinds.CONTROL:
            return decode_control(data, at)
        case kinds.RETOLD:
            return decode_event(data, at, True)
        case kinds.BODY:
            return decode_event(data, at, False, True)
        case kinds.REBODY:
            return decode_event(data, at, True, True)
        case _:
            raise FrameError(
                f"frame: expected a kind of 1 to {REBODY}, found {kind}; the peer may be of a newer version"
            )


def _decode_pairs(form: struct.Struct, data: Data, at: int, what: str) -> list[Any]:
    size = len(data) - at
    if size % form.size or size > MAX_PAIRS * form.size:
        raise FrameError(f"{what}: expected up to {MAX_PAIRS:,} pairs of {form.size} bytes, found {size:,} bytes")
    return list(form.iter_unpack(memoryview(data)[at:])) if size else []


def _decode_beat(data: Data, at: int) -> int:
    _exactly(_BEAT_BODY, data, at, "ping")
    number: int = _BEAT_BODY.unpack_from(data, at)[0]
    return number


def _exactly(form: struct.Struct, data: Data, at: int, what: str) -> None:
    if len(data) - at != form.size:
        raise FrameError(f"{what}: expected {form.size} bytes, found {len(data) - at}")


def _expand(frame: Data, limit: int) -> bytes:
    """The body of a compressed frame."""
    check_columns("compressed frame")
    codec, size = _SQUEEZED_BODY.unpack_from(frame, 1)
    if size >= limit:
        raise too_large("compressed frame", size + 1, limit)
    if codec not in _CODECS.values():
        raise FrameError(f"compressed frame: expected a codec of 1 or 2, found {codec}; the peer may be newer")
    data = pa.py_buffer(memoryview(frame)[1 + _SQUEEZED_BODY.size :])
    try:
        if codec == _CODECS["zstd"]:
            body: bytes = pa.Codec("zstd").decompress(data, size, asbytes=True)
        else:  # a whole LZ4 frame read at once would be given in full even if it has less than it says
            with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as stream:
                body = stream.read(size + 1)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FrameError(f"compressed frame: expected {size:,} bytes compressed, found: {error}") from None
    if len(body) != size:
        raise FrameError(f"compressed frame: expected {size:,} bytes compressed, found another number")
    return body


class Splitter:
    """Finds the frames in what a stream gives. After a FrameError the stream is of no use any more."""

    __slots__ = ("_broken", "_limit", "_need", "_tail")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._tail = bytearray()  # the beginning of a frame, with its prefix
        self._need = 0  # bytes of that frame, 0 while its prefix is not complete
        self._broken = ""

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not complete; more than 0 at the end of a stream means that one was cut off."""
        return len(self._tail)

    def feed(self, data: Data) -> list[memoryview]:
        """The frames (kind and body) that are complete with this. They stay valid: they lie in `data`, or in a copy
        where a frame came in parts or `data` may change."""
        if data.__class__ is not bytes:
            data = bytes(data)
        if self._broken:
            raise FrameError(self._broken)
        frames: list[memoryview] = []
        view, at, end = memoryview(data), 0, len(data)
        if self._tail:
            at = self._fill(view, frames)
        limit = self._limit
        while end - at >= 4:
            (size,) = PREFIX.unpack_from(data, at)
            if not 0 < size <= limit:
                self._refuse(size)
            at += 4
            if at + size > end:
                at -= 4
                self._need = size + 4
                break
            frames.append(view[at : at + size])
            at += size
        if at < end:
            self._tail = bytearray(view[at:])
        return frames

    def _fill(self, view: memoryview, frames: list[memoryview]) -> int:
        """Complete the frame that was begun; how much of the data belongs to it."""
        tail, at = self._tail, 0
        if not self._need:
            at = min(4 - len(tail), len(view))
            tail += view[:at]
            if len(tail) < 4:
                return at
            (size,) = PREFIX.unpack(tail)
            if not 0 < size <= self._limit:
                self._refuse(size)
            self._need = size + 4
        more = min(self._need - len(tail), len(view) - at)
        tail += view[at : at + more]
        if len(tail) == self._need:
            frames.append(memoryview(tail).toreadonly()[4:])  # nothing changes it any more: the next has its own
            self._tail, self._need = bytearray(), 0
        return at + more

    def _refuse(self, size: int) -> None:
        self._tail, self._need = bytearray(), 0
        self._broken = f"stream: expected a frame of 1 to {self._limit:,} bytes, found a length of {size:,}"
        raise FrameError(self._broken)


__all__ = [
    "ACK",
    "BATCH",
    "BODY",
    "CONTROL",
    "EVENT",
    "EVENTS",
    "EVENT_AT",
    "MAX_FRAME",
    "VERSION",
    "Ack",
    "Batch",
    "Bye",
    "Control",
    "Events",
    "Frame",
    "Header",
    "Ping",
    "Pong",
    "Promise",
    "Repair",
    "Resume",
    "Splitter",
    "compress",
    "decode",
    "encode_ack",
    "encode_batch",
    "encode_batches",
    "encode_control",
    "encode_event",
    "encode_events",
    "encode_ping",
    "encode_pong",
    "encode_promise",
    "encode_run_first",
    "encode_times",
    "event_head",
    "header_of",
    "is_past",
    "resent",
    "runs",
    "spans",
]
