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

_Blob = Annotated[bytes, Meta(max_length=MAX_PROGRAM)]
_Record = Annotated[bytes, Meta(max_length=MAX_RECORD)]


class PastPage(msgspec.Struct, frozen=True, tag=True):
    """Events of a source, ascending: numbers, times (nanoseconds) and records. All numbers up to `reached` were looked
    at; so many are `missing`, since they are no longer there. `remembers`: the node keeps a past of the channel at
    all."""

    remembers: bool
    reached: Number = 0
    seqs: Annotated[list[Number], Meta(max_length=PAGE_EVENTS)] = []
    stamps: Annotated[list[int], Meta(max_length=PAGE_EVENTS)] = []
    records: Annotated[list[_Record], Meta(max_length=PAGE_EVENTS)] = []
    missing: Number = 0


class Past(Request, frozen=True, tag=True):
    """The events of one source with `after` < number <= `upto` that pass an interest; with `since` only those that are
    no older than this time, and `after` may be left out: where they begin is looked for. Without a source: whether the
    node keeps a past of the channel, and lets the interest be asked of it."""

    answer: ClassVar[Any] = PastPage
    channel: Name
    source: Annotated[str, Meta(max_length=255)] = ""
    sid: Source = 0  # the number of the source: of another life of it there are other numbers
    upto: Number = 0
    after: Number | None = None
    since: int = 0  # nanoseconds
    program: _Blob = b""
    params: _Blob = b""


__all__ = ["PAGE_BYTES", "PAGE_EVENTS", "READ_EVENTS", "Past", "PastPage"]
