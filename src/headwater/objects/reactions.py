"""What reacts to changes within a turn: the contract between turns and triggers.

A turn tells of everything that happens to objects, in order. First what is coupled within a transaction is asked, when
its operations are done and it may still be undone; then, when it is done, everything else. All that one event fires is
said before any of it is carried out; what is said goes in the order in which it is said, depth first.

Whatever is remembered from event to event is written by `Moment.execute`, in the SQLite transaction of the turn, so
that it survives exactly if the turn does. What is held in memory besides is put back when a part of the turn is undone:
`mark` and `undo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from headwater.objects.operations import Administer, Outcome, Transaction

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.types import EventType

Op = Literal["created", "updated", "raised", "destroyed"]
OPS: tuple[Op, ...] = ("created", "updated", "raised", "destroyed")
Coupling = Literal["within", "after", "decoupled"]
# Of an action that fails: it alone is undone, and reported; or its whole turn is undone.
OnFailure = Literal["report", "abort turn"]


class Occurrence(NamedTuple):
    """Something that has happened to an object. Records are of its `type`."""

    object: str  # its path at this node: fleet/car7
    type: EventType
    op: str  # an Op, or what a clock or a channel has brought
    old: bytes | None  # missing: it was not there
    new: bytes | None  # missing: it is not there any more
    old_raw: Mapping[str, Any] | None  # the same, decoded; nobody may change it
    new_raw: Mapping[str, Any] | None
    members: tuple[str, ...]  # paths that were written; empty: all of it, or none if it was raised
    event: bool  # an update without one is silent: it counts for histories and bounds, and fires nothing
    turn: int
    at: int  # by this node's clock, in microseconds; of one turn, all the same
    position: int  # among all that has happened in the turn, from 0
    depth: int  # 0: of the external transaction; else so many triggers led to it


class Notice(NamedTuple):
    """What is to leave after the commit, as an event of a channel; the record is of this type."""

    channel: str
    type: EventType
    record: bytes


class Fired(NamedTuple):
    """What a trigger causes.

    `within`: its transaction becomes a part of the one that is under way, and fails with it; with a `veto`, why that
    one must not be. `after`: it runs in the same turn. `decoupled`: it goes to the back of the external queue."""

    trigger: str
    transaction: Transaction | None = None
    notices: tuple[Notice, ...] = ()
    coupling: Coupling = "after"
    on_failure: OnFailure = "report"
    veto: str = ""


class Moment(Protocol):
    """The turn, as those that react to it see it."""

    @property
    def node(self) -> str:
        """The name of this node, which owns all objects here."""
        ...

    @property
    def turn(self) -> int:
        """Its number; none is given twice."""
        ...

    @property
    def at(self) -> int:
        """By this node's clock, in microseconds."""
        ...

    @property
    def execute(self) -> Execute:
        """A statement in the SQLite transaction of the turn."""
        ...

    def value(self, object: str) -> tuple[EventType, bytes, Mapping[str, Any]] | None:
        """The type and the present value of an object, as a record and decoded; None if there is none."""
        ...

    def type_name(self, object: str) -> str | None:
        """The name under which the type of an object is declared; None if there is no such object."""
        ...

    def notify(self, notice: Notice) -> None:
        """Have something leave after the commit."""
        ...

    def happened(self, object: str, type: EventType, op: str, old: bytes | None, new: bytes | None) -> None:
        """Within `administer`: have something judged that no operation on an object has done, such as a tick."""
        ...


class Reactions(Protocol):
    """What triggers are to turns. Nothing here may wait, or raise for a fault of a trigger: that is reported."""

    def within(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """What fires within the transaction that this is of: coupled so, and no other. It may still be undone."""
        ...

    def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        """What else fires by this event, by priority, then in the order of installation; histories have it then."""
        ...

    def note(self, occurrence: Occurrence, moment: Moment) -> None:
        """A silent update: for histories and bounds."""
        ...

    def administer(self, operation: Administer, moment: Moment) -> Any:
        """An operation of its own: a plain value, as its result. ObjectError if it cannot be done."""
        ...

    def failed(self, fired: Fired, outcome: Outcome, moment: Moment) -> None:
        """What it caused was undone."""
        ...

    def ended(self, moment: Moment) -> bool:
        """The turn is done: nothing more happens in it. Whether others are told of its time, which no other has."""
        ...

    def mark(self) -> object:
        """Where it is, to be put back there."""
        ...

    def undo(self, mark: object) -> None:
        """Everything since was undone, in the file too."""
        ...

    def committed(self) -> None:
        """Everything so far is durable: nothing of it will be undone."""
        ...

    def forget(self) -> None:
        """Nothing since the last `committed` has happened: the commit failed. The file is as it was."""
        ...


class Leaving(NamedTuple):
    """Something that leaves, under its number; a record of the channel's type."""

    channel: str
    seq: int
    record: bytes


class Outlets(Protocol):
    """Where everything goes that leaves after a commit. It may be told of the same again after a restart."""

    def open(self, channel: str, type: EventType, sent: int, again: int = 0) -> int:
        """Be ready to send on a channel, after this number: the last number that is known to have gone out. What is up
        to `again` may have gone out in a life before, and is to say so."""
        ...

    def last(self, channel: str, type: EventType) -> int:
        """The last number that a channel is known to have had in lives before; 0 if nothing is known. It is asked
        within a turn: it opens no source, and waits for nobody who may wait for a turn."""
        ...

    def send(self, leaving: Sequence[Leaving]) -> None:
        """Of one channel, in the order of their numbers, without a gap. What is raised here has them sent again."""
        ...

    def unheard(self, leaving: Leaving) -> bool:
        """Send it if nobody takes it, which is only to count it; whether that was so. It waits for nobody."""
        ...


# Who is to know what has become of a transaction.
Told = Callable[[Outcome | BaseException], None]

__all__ = [
    "OPS",
    "Coupling",
    "Fired",
    "Leaving",
    "Moment",
    "Notice",
    "Occurrence",
    "OnFailure",
    "Op",
    "Outlets",
    "Reactions",
    "Told",
]
