"""What nodes ask each other about objects. Nothing here is trusted yet.

SubmitTransaction   have the owner run a transaction; asked again with the same ticket, it runs once
CollectOutcome      what has become of one
ReadObjects         a page of objects, as they are
TellTypes           which types of objects there are that the asking node may read
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import Request

MAX_TRANSACTION = 1 << 20  # bytes of a transaction that another node may send
MAX_OUTCOME = 4 << 20
MAX_TYPE = 1 << 20
MOST_OBJECTS = 1000  # on a page
MOST_TYPES = 1000
PAGE_BYTES = 256 << 10  # of records, after which a page ends
MOST_WAIT = 0.25  # seconds that a node is kept waiting for an outcome before it asks again

_Ticket = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Wait = Annotated[float, Meta(ge=0, le=MOST_WAIT)]
_Pattern = Annotated[str, Meta(max_length=600)]


# ── answers ──


class TransactionIs(msgspec.Struct, frozen=True, tag=True):
    """`outcome` is packed, and empty while the transaction waits. One that is not `known` is not durable yet, or never
    was: it may be submitted again."""

    known: bool
    outcome: Annotated[bytes, Meta(max_length=MAX_OUTCOME)] = b""


class ObjectRow(msgspec.Struct, frozen=True, array_like=True):
    """An object as it is: its path at its owner, its type, its record, the turn that has written it, and when."""

    path: Name
    type: Name
    record: bytes
    turn: Number
    at: int


class ObjectPage(msgspec.Struct, frozen=True, tag=True):
    """Objects by name; `next`: the path after which it goes on, nothing if it does not."""

    rows: Annotated[list[ObjectRow], Meta(max_length=MOST_OBJECTS)]
    next: _Pattern = ""


class TypesAre(msgspec.Struct, frozen=True, tag=True):
    """Types of objects, by name, in serial form."""

    types: Annotated[dict[Name, Annotated[bytes, Meta(max_length=MAX_TYPE)]], Meta(max_length=MOST_TYPES)]


# ── requests ──


class SubmitTransaction(Request, frozen=True, tag=True):
    """Run a transaction. It is waited for a moment until it has run or, if `durable`, is certain to run."""

    answer: ClassVar[Any] = TransactionIs
    transaction: Annotated[bytes, Meta(max_length=MAX_TRANSACTION)]
    ticket: _Ticket
    wait: _Wait = 0.0
    durable: bool = False


class CollectOutcome(Request, frozen=True, tag=True):
    """What has become of a transaction that the same node has submitted; it is waited for a moment."""

    answer: ClassVar[Any] = TransactionIs
    ticket: _Ticket
    wait: _Wait = 0.0


class ReadObjects(Request, frozen=True, tag=True):
    """Objects whose names fit a pattern, after a path."""

    answer: ClassVar[Any] = ObjectPage
    pattern: _Pattern
    after: _Pattern = ""


class TellTypes(Request, frozen=True, tag=True):
    """Which types of objects there are."""

    answer: ClassVar[Any] = TypesAre


__all__ = [
    "MAX_TRANSACTION",
    "MOST_OBJECTS",
    "MOST_TYPES",
    "MOST_WAIT",
    "PAGE_BYTES",
    "CollectOutcome",
    "ObjectPage",
    "ObjectRow",
    "ReadObjects",
    "SubmitTransaction",
    "TellTypes",
    "TransactionIs",
    "TypesAre",
]
