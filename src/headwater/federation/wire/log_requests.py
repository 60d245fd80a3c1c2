"""Questions about a node's log and the answers to them, as bytes. Nothing here is trusted yet.

A question travels in a signed envelope of the kind "log". The answer is a signed envelope of the kind "log-reply",
with a `Head` in it, and a payload beside it: the head has the payload's digest, so a large payload is proven without
being copied into the envelope. The head also names the question, so that no answer is taken for that of another.

    answer = u32 length of the envelope | envelope | payload

Both are in boxes, that of the question for one node, that of the answer for who asks. To know the keys for that, who
asks first shows its card to all nodes with logs (kind "log-card"), and they answer with theirs.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError
from headwater.federation.wire.control import Name, Number

KIND, REPLY, CARD = "log", "log-reply", "log-card"
PAGE_BYTES = 4 * 1024 * 1024  # bytes of events in an answer, at most
PAGE_ROWS = PAGE_BYTES // 8 + 1  # rows in an answer: the number of each takes part of its bytes
ANSWER_BYTES = 32 * 1024 * 1024  # bytes of an answer: one event may take more than a page
MAX_COLUMNS = 4096
MAX_PROGRAM = 512 * 1024
MAX_SOURCES = 200_000

_DIGEST = 32
_LENGTH = struct.Struct("<I")
_Nonce = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Blob = Annotated[bytes, Meta(max_length=MAX_PROGRAM)]


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Which channels there is a log of; or, with a channel, what there is of that one."""

    nonce: _Nonce
    channel: Annotated[str, Meta(max_length=255)] = ""


class Read(msgspec.Struct, frozen=True, tag=True):
    """The events of one source with `after` < sequence number <= `upto` (None: as far as there are), judged by an
    interest if one is given."""

    nonce: _Nonce
    channel: Name
    source: Name
    after: Number
    upto: Number | None = None
    program: _Blob | None = None
    params: _Blob | None = None
    fuel: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    columns: Annotated[list[Name], Meta(max_length=MAX_COLUMNS)] | None = None
    max_bytes: Annotated[int, Meta(ge=1, le=PAGE_BYTES)] = PAGE_BYTES
    compress: Annotated[str, Meta(max_length=8)] = ""


class Head(msgspec.Struct, frozen=True):
    """What an answer says; `digest` is that of the payload beside it."""

    nonce: bytes
    digest: bytes
    error: str = ""
    next: Number = 0  # after which sequence number to go on; `upto` when there is nothing more
    upto: Number = 0
    evaluated: Number = 0
    rows: Number = 0
    first: Number = 0  # of the source, what the log had first of it when the page was read; 0 from older nodes


class SourceLog(msgspec.Struct, frozen=True, array_like=True):
    """What a log has of one source."""

    source: Name
    first: Number
    last: Number
    events: Number | None = None


class ChannelLogged(msgspec.Struct, frozen=True, array_like=True):
    """What a node's log has of one channel; `schema` is Arrow's, in its IPC form."""

    channel: Name
    id: str
    type: bytes | None
    schema: bytes
    sources: Annotated[list[SourceLog], Meta(max_length=MAX_SOURCES)]


class Listing(msgspec.Struct, frozen=True):
    """The payload that answers `Logged`."""

    node: Name  # as the log has it
    channels: list[Name]
    channel: ChannelLogged | None = None


Question = Logged | Read

_QUESTION = msgpack_decoder(Question)
_HEAD = msgpack_decoder(Head)
_LISTING = msgpack_decoder(Listing)


def _unpack(decoder: Any, data: bytes | memoryview, what: str) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"expected {what}, found something else: {error}") from None


def question(data: bytes) -> Question:
    """A question about a log, decoded."""
    made: Question = _unpack(_QUESTION, data, "a question about a log")
    return made


def head(data: bytes) -> Head:
    """The first part of an answer about a log, decoded."""
    made: Head = _unpack(_HEAD, data, "the head of an answer about a log")
    return made


def listing(data: bytes | memoryview) -> Listing:
    """What a node says that it has logged, decoded."""
    made: Listing = _unpack(_LISTING, data, "what a node has logged")
    return made


def digest(payload: bytes | memoryview) -> bytes:
    """What the head of an answer, which is signed, says of the data that follows it."""
    return blake2b(payload, digest_size=_DIGEST).digest()


def join(envelope: bytes, payload: bytes | memoryview) -> bytes:
    """An answer from its parts."""
    return b"".join((_LENGTH.pack(len(envelope)), envelope, payload))


def split(answer: bytes) -> tuple[bytes, memoryview]:
    """The envelope and the payload of an answer."""
    view = memoryview(answer)
    if len(view) < _LENGTH.size:
        raise FrameError(f"expected an answer about a log, found {len(view)} bytes")
    (length,) = _LENGTH.unpack_from(view)
    end = _LENGTH.size + length
    if length > 1 << 20 or end > len(view) or len(view) > ANSWER_BYTES + end:
        raise FrameError(f"expected an envelope and a payload, found {len(view)} bytes and a length of {length}")
    return bytes(view[_LENGTH.size : end]), view[end:]
