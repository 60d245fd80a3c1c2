"""What nodes ask each other about sinks that move, and what a token says of one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number, Positions
from headwater.federation.wire.requests import MAX_LIST, Accepted, Request, Tag

ID_BYTES, CLAIMANT_BYTES = 32, 16
MAX_INTEREST = 128 << 10  # bytes of a moved interest, and of its parameters
PAGE_EVENTS = 4_096  # in an answer, at most
PAGE_BYTES = 256 << 10  # of records in an answer: one event may take more
MAX_RECORD = 16 << 20
MOST_EVENTS = 1 << 20  # that are handed over with one sink
MOST_BYTES = 256 << 20

_Key = Annotated[str, Meta(max_length=2048)]
_Points = Annotated[dict[_Key, Number], Meta(max_length=MAX_LIST)]
_Bytes = Annotated[bytes, Meta(max_length=MAX_INTEREST)]
_Id = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]  # what is known of a move to those who are told of it
_Claimant = Annotated[bytes, Meta(min_length=CLAIMANT_BYTES, max_length=CLAIMANT_BYTES)]
_Record = Annotated[bytes, Meta(max_length=MAX_RECORD)]
_Count = Meta(max_length=PAGE_EVENTS)


class SinkMove(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of a token: a sink as it was when it left, complete but for its handler. `positions`: after which event
    of each logged source it goes on; `handed`: up to where events were handed over and are not done, and `unsure`: of
    which sources the next one may have been, by a process that was killed; `since`: from where on the state of its
    interest counts."""

    id: _Id
    node: Name  # the id of the node that it leaves
    target: Name  # a channel's name, or a pattern
    type: _Bytes | None  # of the channel; None: it is a pattern, or carries bytes
    where: Annotated[str, Meta(max_length=MAX_INTEREST)] = ""  # the interest as text, of a pattern or by name
    program: _Bytes | None = None  # or as a program
    params: _Bytes | None = None
    zones: Annotated[list[Name], Meta(max_length=4096)] | None = None
    manual: bool = False
    order: Annotated[str, Meta(max_length=16)] = "receive"
    positions: _Points = {}
    handed: _Points = {}
    since: _Points = {}
    delivery: Annotated[str, Meta(max_length=16)] = "durable"  # or reliable, or best_effort
    unsure: Annotated[list[_Key], Meta(max_length=MAX_LIST)] = []


class MoveClaimed(msgspec.Struct, frozen=True, tag=True):
    """The sink is the claimant's, for good: it goes on nowhere else. `waits`: events may wait for it here that no log
    has, and are to be fetched when it is in force at the sources."""

    sink: Name
    waits: bool = False


class ClaimMove(Request, frozen=True, tag=True):
    """To go on with a sink; asked again by the same one, it is answered again. `claimant` tells one state of a node
    from another, which may have forgotten everything."""

    answer: ClassVar[Any] = MoveClaimed
    id: _Id
    claimant: _Claimant


class WaitingSource(msgspec.Struct, frozen=True, array_like=True):
    """Whose events wait: the channel, the key by which all nodes know the source, its name, and the type of its events
    (None: bytes)."""

    channel: Name
    key: _Key
    name: Name
    type: _Bytes | None


class WaitingPage(msgspec.Struct, frozen=True, tag=True):
    """What waits for a sink that has left, in its order: of which of `sources` each event is, its number, time
    (nanoseconds) and record; `again` are the places of those that its handler has had and not acknowledged. `more`:
    there is another page, or not all has come yet. With the last one: the nodes, each with a channel, that have said by
    a mark where what waited here ends, and what comes from them begins, and where; `short`: some have not."""

    sources: Annotated[list[WaitingSource], _Count] = []
    of: Annotated[list[Number], _Count] = []
    seqs: Annotated[list[Number], _Count] = []
    stamps: Annotated[list[int], _Count] = []
    records: Annotated[list[_Record], _Count] = []
    again: Annotated[list[Number], _Count] = []
    more: bool = False
    marked: Annotated[list[tuple[Name, Name, Positions]], Meta(max_length=MAX_LIST)] = []
    short: bool = False


class FetchWaiting(Request, frozen=True, tag=True):
    """What waits for a sink that was claimed; asked for again, a page is the same. One that is beyond the last says
    that all is here."""

    answer: ClassVar[Any] = WaitingPage
    id: _Id
    claimant: _Claimant
    page: Number


class Marked(msgspec.Struct, frozen=True, tag=True):
    """It is done, unless the asker gets nothing of the channel (`unsent`), or the other node does not yet (`early`: ask
    again); and what rules and policies there let the other node have of it: all, `nothing`, or what an interest
    passes."""

    unsent: bool = False
    early: bool = False
    nothing: bool = False
    limit: _Bytes | None = None
    params: _Bytes | None = None


class MarkEvents(Request, frozen=True, tag=True):
    """A sink of the asker goes on at node `to`: have the sources of a channel stand still for a moment, and tell both
    where that was, behind all events of before, by a post `MARK`. If `tag` is that of the asker's interest, its state
    goes on in the one that the other node has named (`ExpectState`)."""

    answer: ClassVar[Any] = Marked
    channel: Name
    move: _Digest
    to: Name  # a node's id
    tag: Tag = 0


class ExpectState(Request, frozen=True, tag=True):
    """An interest of the asker, which was put in force just now, is to go on with the state of one of node `of`, if
    that one says so."""

    answer: ClassVar[Any] = Accepted
    channel: Name
    move: _Digest
    tag: Tag
    of: Name  # a node's id


MARK = "moving/mark"  # the kind of the post


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """All events of a channel up to these points have gone before it, for who leaves and who comes. `of`: the node that
    has asked for it."""

    channel: Name
    move: _Digest
    of: Name
    points: Positions


__all__ = [
    "CLAIMANT_BYTES",
    "ID_BYTES",
    "MARK",
    "MAX_INTEREST",
    "MOST_BYTES",
    "MOST_EVENTS",
    "PAGE_BYTES",
    "PAGE_EVENTS",
    "ClaimMove",
    "ExpectState",
    "FetchWaiting",
    "Mark",
    "MarkEvents",
    "Marked",
    "MoveClaimed",
    "SinkMove",
    "WaitingPage",
    "WaitingSource",
]
