"""What was published before, asked of the node whose source it is, page by page. Nothing here is trusted yet."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number, Source
from headwater.federation.wire.requests import Request

PAGE_EVENTS = 4_096  # in an answer, at most
PAGE_BYTES = 256 << 10  # of records in an answer: one event may take more
READ_EVENTS = 1 << 16  # that are judged for one answer
MAX_PROGRAM = 512 << 10
MAX_RECORD = 16 << 20
MAX_SOURCES = 1_000  # in one question

_Blob = Annotated[bytes, Meta(max_length=MAX_PROGRAM)]
_Record = Annotated[bytes, Meta(max_length=MAX_RECORD)]


class PastOf(msgspec.Struct, frozen=True, array_like=True):
    """The events of one source with `after` < number <= `upto`. Where `after` is not said, it is looked for where those
    begin that are wanted by their time. `sid` is the number of the source: another life of it has other events."""

    source: Name
    sid: Source
    upto: Number
    after: Number | None = None


class PastPart(msgspec.Struct, frozen=True, array_like=True):
    """Events of a source, ascending: numbers, times (nanoseconds) and records. All numbers up to `reached` were looked
    at; so many are `missing`, since they are no longer there. `error`: why there are none."""

    sid: Source
    reached: Number
    seqs: Annotated[list[Number], Meta(max_length=PAGE_EVENTS)] = []
    stamps: Annotated[list[int], Meta(max_length=PAGE_EVENTS)] = []
    records: Annotated[list[_Record], Meta(max_length=PAGE_EVENTS)] = []
    missing: Number = 0
    error: Annotated[str, Meta(max_length=1000)] = ""


class PastPage(msgspec.Struct, frozen=True, tag=True):
    """Of the sources that were asked for, the first ones: what is not here, or not all, is asked for again.
    `remembers`: the node keeps a past of the channel at all."""

    remembers: bool
    parts: Annotated[list[PastPart], Meta(max_length=MAX_SOURCES)] = []


class Past(Request, frozen=True, tag=True):
    """The events of some sources of a channel that pass an interest, and are no older than `since`. Without sources:
    whether the node keeps a past of the channel, and lets the interest be asked of it."""

    answer: ClassVar[Any] = PastPage
    channel: Name
    sources: Annotated[list[PastOf], Meta(max_length=MAX_SOURCES)] = []  # noqa: RUF012  (msgspec copies it)
    since: int = 0  # nanoseconds
    program: _Blob = b""
    params: _Blob = b""


__all__ = ["MAX_SOURCES", "PAGE_BYTES", "PAGE_EVENTS", "READ_EVENTS", "Past", "PastOf", "PastPage", "PastPart"]
