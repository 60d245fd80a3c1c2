"""What nodes ask each other about sources that move, what a token says of one, and what proves whose it is."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import MAX_DEEDS, Deed, Name, Number, Text
from headwater.federation.wire.move_requests import CLAIMANT_BYTES, ID_BYTES
from headwater.federation.wire.requests import MAX_LIST, Request

MAX_TYPE = 128 << 10  # bytes
PAGE_BYTES = 256 << 10  # of events in one answer, unless a single one is larger
MAX_PAGE = 32 << 20
MAX_GROUPS = 4096  # durable ones, that a source has

_Id = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Claimant = Annotated[bytes, Meta(min_length=CLAIMANT_BYTES, max_length=CLAIMANT_BYTES)]
_Page = Annotated[bytes, Meta(max_length=MAX_PAGE)]


class SourceMove(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of a token: a source, complete but for what its process does."""

    id: _Id
    node: Name  # the id of the node that it leaves
    channel: Name
    source: Name
    type: Annotated[bytes, Meta(max_length=MAX_TYPE)] | None  # of the channel; None: it carries bytes
    own: Annotated[bytes, Meta(max_length=MAX_TYPE)] | None = None  # of the source, where that is another
    facts: Annotated[bytes, Meta(max_length=MAX_TYPE)] | None = None  # what holds for all its events
    zones: Annotated[list[Name], Meta(max_length=4096)] = []
    priority: int = 0
    home: Text = ""  # under which key sinks know it; nothing: it is not logged


class PastPage(msgspec.Struct, frozen=True, tag=True):
    """Some of a source's events, as an Arrow stream with their numbers and times; up to `upto` there are no others, and
    the source has come to `last`."""

    rows: _Page
    upto: Number
    last: Number


class FetchPast(Request, frozen=True, tag=True):
    """What a source has published after an event, to who may have it. `upto`: no more than that; 0: all there is."""

    answer: ClassVar[Any] = PastPage
    id: _Id
    after: Number
    upto: Number = 0


class GroupAt(msgspec.Struct, frozen=True, array_like=True):
    """How far a durable group is with a source: what is done, and what somebody may have had."""

    group: Name
    done: Number
    handed: Number


class MemberAt(msgspec.Struct, frozen=True, array_like=True):
    """A node, by its id, that has members of a group."""

    node: Name
    group: Name
    durable: bool


class SourceClaimed(msgspec.Struct, frozen=True, tag=True):
    """The source is the claimant's, for good, after its event `upto`, which was published at `stamp`. `subscribers` are
    the ids of nodes that get its events; `rows` is what is after the event that the claimant has, or a part of it;
    `groups` are durable ones that have its events, `members` nodes with members of any."""

    upto: Number
    stamp: Number
    term: Number
    home: Text
    deeds: Annotated[list[Deed], Meta(max_length=MAX_DEEDS)]
    subscribers: Annotated[list[Name], Meta(max_length=MAX_LIST)] = []
    rows: _Page = b""
    groups: Annotated[list[GroupAt], Meta(max_length=MAX_GROUPS)] = []
    members: Annotated[list[MemberAt], Meta(max_length=MAX_LIST)] = []


class ClaimSource(Request, frozen=True, tag=True):
    """To go on with a source; asked again by the same one, it is answered again."""

    answer: ClassVar[Any] = SourceClaimed
    id: _Id
    claimant: _Claimant
    after: Number = 0  # up to which event it has all


class DeedBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a node signs when a source of it goes on at another one: which, how often it has moved, and where to."""

    home: Text
    term: Number
    to: Name  # the name of a node


__all__ = [
    "MAX_GROUPS",
    "MAX_PAGE",
    "PAGE_BYTES",
    "ClaimSource",
    "DeedBody",
    "FetchPast",
    "GroupAt",
    "MemberAt",
    "PastPage",
    "SourceClaimed",
    "SourceMove",
]
