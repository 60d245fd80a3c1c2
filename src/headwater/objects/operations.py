"""What a transaction is made of, as it is queued, kept and sent: operations, the transaction, and its outcome.

    Create     an object of a type, with its first value
    Update     members of an object get values, or what is computed; with an event, or silently
    Put        the same, of an object that is made first where there is none
    Read       a value, under a name that later operations may use
    Invoke     a registered method of an object; what it returns has a name too
    Raise      an event about an object that is not changed, or an event of a channel
    Destroy    an object
    Guard      the transaction goes on only if this holds
    Administer what another room does in the same queue: it installs a trigger, changes or removes it, …

Values are plain: None, booleans, numbers, text, bytes, times, lists, and dicts by field name. What is `computed` is
text in the predicate notation over what was read before, and the members of the object itself.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, ClassVar

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError, TransactionError, TransactionProblem

MAX_OPERATIONS = 10_000  # of one transaction
MAX_BYTES = 4 << 20  # of one transaction, as it is queued
MAX_COMPUTED = 1000  # conditions and computed values of one of another node,
MAX_TEXTS = 16 << 10  # and characters of them, each text counted once: it may have to be compiled
MAX_STEPS = 250_000_000  # nanoseconds or so that it may take to compute them, as far as a checker can tell
MAX_TOUCHED = 32 << 20  # bytes of objects that one of another node may change, all operations together
MAX_RESULTS = 2 << 20  # bytes that it may be told
TICKET = 16  # bytes


class Operation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="operation"):
    """One of those below; each names what it is about."""

    verb: ClassVar[str] = ""


class Create(Operation, frozen=True, array_like=True, tag="create"):
    """A new object; its members are given, or computed."""

    verb: ClassVar[str] = "create"
    name: str
    type: str
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}


class Update(Operation, frozen=True, array_like=True, tag="update"):
    """Members (by path, as `position.x`) get values, or what is computed; all are computed before any is set."""

    verb: ClassVar[str] = "update"
    name: str
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}
    event: bool = False


class Put(Operation, frozen=True, array_like=True, tag="put"):
    """Members of an object get values, or what is computed; where there is none of that name, one is made of them."""

    verb: ClassVar[str] = "put"
    name: str
    type: str
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}
    event: bool = False


class Read(Operation, frozen=True, array_like=True, tag="read"):
    """The value of an object or member, under a name: None if it is missing."""

    verb: ClassVar[str] = "read"
    name: str
    alias: str


class Invoke(Operation, frozen=True, array_like=True, tag="invoke"):
    """A method, registered for the object's type at its owner."""

    verb: ClassVar[str] = "invoke"
    name: str
    method: str
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}
    alias: str = ""


class Raise(Operation, frozen=True, array_like=True, tag="raise"):
    """An event about an object or, where the name is empty, one of a channel with this value."""

    verb: ClassVar[str] = "raise"
    name: str = ""
    channel: str = ""
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}


class Destroy(Operation, frozen=True, array_like=True, tag="destroy"):
    """It is no more."""

    verb: ClassVar[str] = "destroy"
    name: str


class Guard(Operation, frozen=True, array_like=True, tag="guard"):
    """A condition over what was read before; the transaction is refused, and changes nothing, unless it holds."""

    verb: ClassVar[str] = "only if"
    condition: str

    @property
    def name(self) -> str:
        """What it is about, in a message."""
        return self.condition


class Administer(Operation, frozen=True, array_like=True, tag="administer"):
    """For whoever meets `Reactions`: `what` says which of its errands, `body` is in a form of its own."""

    verb: ClassVar[str] = "administer"
    what: str
    name: str
    body: bytes = b""
    alias: str = ""


AnyOperation = Create | Update | Put | Read | Invoke | Raise | Destroy | Guard | Administer


class Permits(msgspec.Struct, frozen=True, array_like=True):
    """What a transaction of another node may touch, as its owner has decided when it came: types of objects that it may
    change, types that it may read, and channels that it may raise events of. It is queued with the transaction, and
    looked at in its turn: an object of that name may be another by then."""

    change: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def check(self, type: str | None, deed: str) -> None:
        """Of an object of that type, or none; ObjectError, the same for one that is not there and one that may not be
        known."""
        if type is None or type not in (self.read if deed == "read" else self.change):
            known = type is not None and (type in self.read or type in self.change)
            what = f"of type {type}, which it may not {deed}" if known else "none"
            raise ObjectError(f"expected an object of that name that it may {deed}, found {what}")

    def check_type(self, type: str) -> None:
        """Of an object that is made."""
        if type not in self.change:
            raise ObjectError(f"expected a type of objects that it may change, found {type!r}")

    def check_channel(self, channel: str) -> None:
        """Of an event that is raised."""
        if channel not in self.channels:
            raise ObjectError(f"expected a channel that it may raise events of, found {channel!r}")


class Transaction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Operations that are done together or not at all, at the node that owns their objects.

    `ticket` is empty, or 16 bytes by which it is known for good: the same ticket twice runs once. `params` are for all
    conditions and computed values. `caller` is who has submitted it, as the owner knows it, and `permits` what that one
    may touch: everything, if it is the owner."""

    operations: tuple[AnyOperation, ...]
    ticket: bytes = b""
    params: dict[str, Any] = {}
    caller: str = ""
    permits: Permits | None = None


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Something that a trigger caused and that could not be done; its own transaction was undone."""

    trigger: str
    text: str


class Problem(msgspec.Struct, frozen=True, array_like=True):
    """What was wrong with one operation, counted from 1; 0: with the transaction as a whole."""

    operation: int
    text: str


class Outcome(msgspec.Struct, array_like=True):
    """What has become of a transaction. `results` are by the names that operations gave them.

    `done` says whether it was done; if not, `problems` say why, and nothing was changed, unless `failures` are of
    triggers that it caused. `cut`: what triggers caused was too much, and the rest of it was left out."""

    done: bool
    turn: int = 0
    at: int = 0  # by the owner's clock, in microseconds
    results: dict[str, Any] = {}
    problems: tuple[Problem, ...] = ()
    failures: tuple[Failure, ...] = ()
    cut: bool = False
    ticket: bytes = b""

    def check(self) -> Outcome:
        """Itself; TransactionError if it was not done."""
        if not self.done:
            raise TransactionError([TransactionProblem(each.operation, each.text) for each in self.problems])
        return self


_ENCODER = msgspec.msgpack.Encoder()
_TRANSACTION = msgpack_decoder(Transaction)
_OUTCOME = msgpack_decoder(Outcome)


def pack(transaction: Transaction) -> bytes:
    """As it is queued and sent; ObjectError if there is something in it that cannot be."""
    try:
        data = _ENCODER.encode(transaction)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ObjectError(f"transaction: expected plain values, found one that cannot be sent: {error}") from None
    if len(data) > MAX_BYTES:
        raise ObjectError(f"transaction: expected at most {MAX_BYTES:,} bytes, found {len(data):,}; make several of it")
    return data


def unpack(data: bytes) -> Transaction:
    """From bytes that may come from anyone: its form is right, its names, types and conditions are not checked yet."""
    if len(data) > MAX_BYTES:
        raise ObjectError(f"transaction: expected at most {MAX_BYTES:,} bytes, found {len(data):,}")
    try:
        found = _TRANSACTION.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ObjectError(f"transaction: expected its packed form, found other bytes: {error}") from None
    check_form(found)
    return found


def texts_in(transaction: Transaction) -> list[str]:
    """What of it has to be compiled."""
    found: list[str] = []
    for each in transaction.operations:
        if isinstance(each, Guard):
            found.append(each.condition)
        else:
            found += getattr(each, "computed", {}).values()
    return found


def check_texts(transaction: Transaction) -> None:
    """What another node wants to have computed is not too much."""
    texts = texts_in(transaction)
    if len(texts) > MAX_COMPUTED:
        raise ObjectError(
            f"transaction: expected at most {MAX_COMPUTED:,} computed values, found {len(texts):,}; make several of it"
        )
    length = sum(map(len, set(texts)))
    if length > MAX_TEXTS:
        raise ObjectError(
            f"transaction: expected at most {MAX_TEXTS:,} characters of expressions, each counted once, found "
            f"{length:,}; use parameters, so that they are the same, or make several of it"
        )


def check_form(transaction: Transaction) -> None:
    """The measures of a transaction are right."""
    count, ticket = len(transaction.operations), transaction.ticket
    if count > MAX_OPERATIONS:
        raise ObjectError(f"transaction: expected at most {MAX_OPERATIONS:,} operations, found {count:,}")
    if ticket and len(ticket) != TICKET:
        raise ObjectError(f"transaction: expected a ticket of {TICKET} bytes, or none, found {len(ticket)}")


def packed_size(value: Any) -> int:
    """Bytes of a plain value as it is kept and sent."""
    return len(_ENCODER.encode(value))


def pack_outcome(outcome: Outcome) -> bytes:
    """As it is kept and sent."""
    return _ENCODER.encode(outcome)


def unpack_outcome(data: bytes) -> Outcome:
    """From what `pack_outcome` has made; ObjectError for anything else."""
    try:
        return _OUTCOME.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ObjectError(f"outcome: expected its packed form, found other bytes: {error}") from None


def plain(value: Any) -> Any:
    """A value as an operation has it: events and mappings as dicts, members of enumerations by name."""
    if value is None or value.__class__ in (bool, int, float, str, bytes):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime):
        return value
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if hasattr(value, "tolist"):  # of numpy
        return plain(value.tolist())
    if isinstance(value, (int, float, str)):
        return value
    raise ObjectError(f"transaction: expected a plain value, an event or a dict, found {value.__class__.__name__}")


__all__ = [
    "MAX_BYTES",
    "MAX_OPERATIONS",
    "MAX_RESULTS",
    "MAX_STEPS",
    "MAX_TEXTS",
    "MAX_TOUCHED",
    "TICKET",
    "Administer",
    "AnyOperation",
    "Create",
    "Destroy",
    "Failure",
    "Guard",
    "Invoke",
    "Operation",
    "Outcome",
    "Permits",
    "Problem",
    "Raise",
    "Read",
    "Transaction",
    "Update",
    "check_form",
    "check_texts",
    "pack",
    "pack_outcome",
    "packed_size",
    "plain",
    "texts_in",
    "unpack",
    "unpack_outcome",
]
