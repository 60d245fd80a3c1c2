"""What nodes ask each other about objects. Nothing here is trusted yet.

SubmitTransaction   have the owner run a transaction; asked again with the same ticket, it runs once
CollectOutcome      what has become of one
ReadObjects         a page of objects, as they are
TellTypes           which types of objects there are that the asking node may read
InstallTrigger, ChangeTrigger, RemoveTrigger   triggers of the asking node at the owner
TellTriggers        triggers there with their counts, or one of them in words
ExplainTrigger      one that is not installed in words, as InstallTrigger would install it
HoldReplica         be told of some objects from now on, or still, as far as they leave their bounds
ReadReplica         a page of what holders of a replica were told last
ReleaseReplica      be told no more
TellServices        services with quality that the owner offers the asking node
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name, Number
from headwater.federation.wire.requests import Accepted, Request

MAX_TRANSACTION = 1 << 20  # bytes of a transaction that another node may send
MAX_OUTCOME = 4 << 20
MAX_TYPE = 1 << 20
MAX_REPLICA = 64 << 10  # bytes of what a replica is of
MOST_OBJECTS = 1000  # on a page
MOST_TYPES = 1000
PAGE_BYTES = 256 << 10  # of records, after which a page ends
MOST_WAIT = 0.25  # seconds that a node is kept waiting for an outcome before it asks again
MOST_ROWS = 500  # of triggers on a page
MOST_TOLD = 500  # characters of what a trigger listens to, and of a failure, on a page
MOST_TEXT = 64 << 10  # characters of one in words
MOST_BUSY = 60.0
MOST_WHY = 1000

_Ticket = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Wait = Annotated[float, Meta(ge=0, le=MOST_WAIT)]
_Pattern = Annotated[str, Meta(max_length=600)]
_Path = Annotated[str, Meta(min_length=1, max_length=600)]


# ── answers ──


class TransactionIs(msgspec.Struct, frozen=True, tag=True):
    """`outcome` is packed, and empty while the transaction waits. One that is not `known` is not durable yet, or never
    was: it may be submitted again; if its owner is `busy`, after so many seconds, and `why` says with what."""

    known: bool
    outcome: Annotated[bytes, Meta(max_length=MAX_OUTCOME)] = b""
    busy: Annotated[float, Meta(ge=0, le=MOST_BUSY)] = 0.0
    why: Annotated[str, Meta(max_length=MOST_WHY)] = ""


class ObjectRow(msgspec.Struct, frozen=True, array_like=True):
    """An object as it is: its path at its owner, its type, its record, the turn that has written it, and when."""

    path: _Path
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


class TriggerIs(msgspec.Struct, frozen=True, tag=True):
    """A trigger as it is installed: its name there, the channel of its notifications and their type (`told`), what was
    warned of, and the last turn in which it was another, or was not there."""

    name: Name
    channel: Name
    told: Annotated[bytes, Meta(max_length=MAX_TYPE)]
    turn: Number
    warnings: Annotated[list[str], Meta(max_length=100)] = []


class TriggerRow(msgspec.Struct, frozen=True, array_like=True):
    """A trigger and its counts since its node was started; `text` is all of it in words, if that was asked for."""

    name: Name
    on: str
    when: str
    enabled: bool
    evaluated: int = 0
    fired: int = 0
    vetoed: int = 0
    failed: int = 0
    failure: str = ""
    text: str = ""


class TriggersAre(msgspec.Struct, frozen=True, tag=True):
    """Triggers by name; `next`: the name after which it goes on, nothing if it does not."""

    rows: Annotated[list[TriggerRow], Meta(max_length=MOST_ROWS)]
    next: _Pattern = ""


class ReplicaIs(msgspec.Struct, frozen=True, tag=True):
    """A replica as it is held: the channel on which its owner tells of it, the type of what is told, and for how many
    seconds it is held if nothing more is said. From `at` on, and for as long, members change by at most so much in a
    second, for which so many seconds can be saved up."""

    channel: Name
    told: Annotated[bytes, Meta(max_length=MAX_TYPE)]
    lease: Annotated[float, Meta(gt=0)]
    at: int = 0
    rates: Annotated[dict[Name, tuple[float, float]], Meta(max_length=MOST_OBJECTS)] = {}


class ToldRow(msgspec.Struct, frozen=True, array_like=True):
    """What holders were told last of an object: its path at its owner, its record, when and in which turn that was, and
    whether it stays so whatever the model says."""

    path: _Path
    record: bytes
    at: int
    turn: Number
    still: bool


class ReplicaPage(msgspec.Struct, frozen=True, tag=True):
    """Objects by name; `next`: the path after which it goes on, nothing if it does not."""

    rows: Annotated[list[ToldRow], Meta(max_length=MOST_OBJECTS)]
    next: _Pattern = ""


class ServicesAre(msgspec.Struct, frozen=True, tag=True):
    """Services with quality, in serial form; where one over a trigger was asked for by name, the channels of its levels
    and the types of what is told there."""

    services: Annotated[list[Annotated[bytes, Meta(max_length=MAX_REPLICA)]], Meta(max_length=MOST_OBJECTS)]
    channels: Annotated[
        dict[Name, tuple[Name, Annotated[bytes, Meta(max_length=MAX_TYPE)]]], Meta(max_length=MOST_TYPES)
    ] = {}


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


class InstallTrigger(Request, frozen=True, tag=True):
    """Have the owner judge a trigger, and tell of it when it fires. An equal one of the same node is that one."""

    answer: ClassVar[Any] = TriggerIs
    trigger: Annotated[bytes, Meta(max_length=MAX_TRANSACTION)]


class ChangeTrigger(Request, frozen=True, tag=True):
    """Other values of parameters, or whether it is judged at all, of a trigger of the same node's."""

    answer: ClassVar[Any] = TriggerIs
    name: Name
    params: Annotated[bytes, Meta(max_length=MAX_TRANSACTION)] | None = None
    enabled: bool | None = None


class TellTriggers(Request, frozen=True, tag=True):
    """Triggers that the asking node may know of, after a name; or only one, in words."""

    answer: ClassVar[Any] = TriggersAre
    name: _Pattern = ""
    after: _Pattern = ""


class ExplainTrigger(Request, frozen=True, tag=True):
    """A trigger that is not installed, in words."""

    answer: ClassVar[Any] = TriggersAre
    trigger: Annotated[bytes, Meta(max_length=MAX_TRANSACTION)]


class RemoveTrigger(Request, frozen=True, tag=True):
    """End a trigger of the same node's."""

    answer: ClassVar[Any] = Accepted
    name: Name


class HoldReplica(Request, frozen=True, tag=True):
    """Be told of some objects, from now on or still."""

    answer: ClassVar[Any] = ReplicaIs
    spec: Annotated[bytes, Meta(max_length=MAX_REPLICA)]


class ReadReplica(Request, frozen=True, tag=True):
    """What holders of a replica, which the asking node is one of, were told of objects after a path."""

    answer: ClassVar[Any] = ReplicaPage
    replica: Number
    after: _Pattern = ""


class TellServices(Request, frozen=True, tag=True):
    """Which services with quality there are, or one by its name."""

    answer: ClassVar[Any] = ServicesAre
    name: Annotated[str, Meta(max_length=255)] = ""


class ReleaseReplica(Request, frozen=True, tag=True):
    """Be told no more."""

    answer: ClassVar[Any] = Accepted
    spec: Annotated[bytes, Meta(max_length=MAX_REPLICA)]


__all__ = [
    "MAX_TRANSACTION",
    "MOST_BUSY",
    "MOST_OBJECTS",
    "MOST_ROWS",
    "MOST_TEXT",
    "MOST_TOLD",
    "MOST_TYPES",
    "MOST_WAIT",
    "MOST_WHY",
    "PAGE_BYTES",
    "ChangeTrigger",
    "CollectOutcome",
    "ExplainTrigger",
    "HoldReplica",
    "InstallTrigger",
    "ObjectPage",
    "ObjectRow",
    "ReadObjects",
    "ReadReplica",
    "ReleaseReplica",
    "RemoveTrigger",
    "ReplicaIs",
    "ReplicaPage",
    "ServicesAre",
    "SubmitTransaction",
    "TellServices",
    "TellTriggers",
    "TellTypes",
    "ToldRow",
    "TransactionIs",
    "TriggerIs",
    "TriggerRow",
    "TriggersAre",
    "TypesAre",
]
