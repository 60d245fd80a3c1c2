"""What nodes ask each other about their libraries, and how a wish names an entry of one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError
from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import Accepted, Request
from headwater.services.documents import DOCUMENT_BYTES
from headwater.services.library.reference import MAX_CODE

MOST_ENTRIES = 200  # in one answer
MOST_RUNNING = 200  # interests that run, in one answer
MOST_POINTS = 50  # of one subscription; further sources are left out
MAX_ERROR = 4000  # characters
MOST_UPGRADED = 100  # subscriptions of which is told what became of them
MAX_SAID = 400  # characters of what is said of one

EntryName = Annotated[str, Meta(min_length=1, max_length=128)]
Version = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Print = Annotated[bytes, Meta(max_length=16)]
DocumentBytes = Annotated[bytes, Meta(max_length=DOCUMENT_BYTES)]
Code = Annotated[bytes, Meta(max_length=MAX_CODE)]
Said = Annotated[str, Meta(max_length=MAX_SAID)]


class Named(msgspec.Struct, frozen=True, array_like=True):
    """The entry of a library that a wish is for. With its document and code it is in full: then nothing is missing."""

    name: EntryName
    version: Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
    fingerprint: Annotated[bytes, Meta(min_length=16, max_length=16)]
    document: DocumentBytes = b""
    code: Code = b""


_encode = msgspec.msgpack.Encoder().encode
_NAMED = msgpack_decoder(Named)


def pack_named(named: Named) -> bytes:
    """As a wish has it."""
    return _encode(named)


def unpack_named(data: bytes) -> Named:
    """What a wish names; FrameError if that is none."""
    try:
        return _NAMED.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"expected the name of an interest, found something else: {error}") from None


# ── entries ──


class FetchedEntry(msgspec.Struct, frozen=True, tag=True):
    """An entry, if there is one that who asks may have; its code only if that was not known."""

    document: DocumentBytes = b""
    code: Code = b""
    withdrawal: DocumentBytes = b""


class FetchEntry(Request, frozen=True, tag=True):
    """For a version of a name; 0: the newest that was not withdrawn. `known`: the fingerprint of what who asks has of
    that version already."""

    answer: ClassVar[Any] = FetchedEntry
    name: EntryName
    version: Version = 0
    known: Print = b""


class PublishEntry(Request, frozen=True, tag=True):
    """Have a node keep an entry, and give it to others."""

    answer: ClassVar[Any] = Accepted
    document: DocumentBytes
    code: Code


class WithdrawEntry(Request, frozen=True, tag=True):
    """Have a node give out an entry no more."""

    answer: ClassVar[Any] = Accepted
    document: DocumentBytes


class EntryRow(msgspec.Struct, frozen=True, array_like=True):
    """What is said of an entry in a list."""

    name: EntryName
    version: Version
    kind: Annotated[str, Meta(max_length=40)]
    fingerprint: Print
    owner: Annotated[str, Meta(max_length=400)]
    size: Number
    note: Said = ""
    withdrawn: Said = ""
    published: bool = True  # else it was fetched


class EntryPage(msgspec.Struct, frozen=True, tag=True):
    """Entries by name and version, and whether there are more behind them."""

    rows: Annotated[list[EntryRow], Meta(max_length=MOST_ENTRIES)] = []
    more: bool = False


class ListEntries(Request, frozen=True, tag=True):
    """For the entries of a node's library after a place in the order of names and versions."""

    answer: ClassVar[Any] = EntryPage
    after: tuple[Annotated[str, Meta(max_length=128)], Version] = ("", 0)


# ── what runs ──


class RunningRow(msgspec.Struct, frozen=True, array_like=True):
    """An interest, a pattern or a trigger that runs at a node. Counts are -1 where they are not known apart."""

    channel: Annotated[str, Meta(max_length=1000)]
    what: Said  # @name/version, or its text
    kind: Annotated[str, Meta(max_length=40)]
    asked_by: Said  # a node and what it has proven; or a subscription, pattern or trigger of the node itself
    size: Number  # bytes of code
    cost: Number  # native operations an event
    evaluated: int = -1
    passed: int = -1
    undecided: int = -1
    how: Said = ""
    fingerprint: Print = b""


class RunningPage(msgspec.Struct, frozen=True, tag=True):
    """Of what runs: what who asks may know of. `hidden`: there may be more, which it may not know of; the same whatever
    there is."""

    rows: Annotated[list[RunningRow], Meta(max_length=MOST_RUNNING)] = []
    more: bool = False
    hidden: bool = False


class ListRunning(Request, frozen=True, tag=True):
    """What runs at a node, from some place on, on channels whose names fit."""

    answer: ClassVar[Any] = RunningPage
    channels: Name = "**"
    skip: Number = 0


class UpgradedRow(msgspec.Struct, frozen=True, array_like=True):
    """What became of one subscription: the last event of each source before the new version held, and whether all
    nodes had taken it up by then; or what is wrong."""

    subscription: Said
    before: Version
    points: Annotated[dict[str, int], Meta(max_length=MOST_POINTS)] = {}
    acknowledged: bool = False
    error: Said = ""


class UpgradedAll(msgspec.Struct, frozen=True, tag=True):
    """What became of the subscriptions of a node."""

    rows: Annotated[list[UpgradedRow], Meta(max_length=MOST_UPGRADED)] = []
    error: Annotated[str, Meta(max_length=MAX_ERROR)] = ""
    done: bool = True  # else it is still under way: ask again
    more: Number = 0  # subscriptions that are not in `rows`, of which nothing is wrong


class UpgradeEntry(Request, frozen=True, tag=True):
    """Have a node's subscriptions to some version of a name go on with another one. Asked again with the same ticket,
    it says what has become of it."""

    answer: ClassVar[Any] = UpgradedAll
    name: EntryName
    version: Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
    fingerprint: Annotated[bytes, Meta(min_length=16, max_length=16)]
    ticket: Annotated[bytes, Meta(min_length=16, max_length=16)]


__all__ = [
    "EntryPage",
    "EntryRow",
    "FetchEntry",
    "FetchedEntry",
    "ListEntries",
    "ListRunning",
    "Named",
    "PublishEntry",
    "RunningPage",
    "RunningRow",
    "UpgradeEntry",
    "UpgradedAll",
    "UpgradedRow",
    "WithdrawEntry",
    "pack_named",
    "unpack_named",
]
