"""The types of a node's objects: event types under the names that transactions use, and what changes of them look like.

A change is an event too: which object, what was done with it, its value before and after (missing where it was not
there, or is no more), and the turn and time of that. Where in its turn it stands is said too: changes of objects of two
types are on two channels, and what judges them again has to know which were of one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import HeadwaterError, ObjectError
from headwater.interest import Interest
from headwater.ir import serial
from headwater.objects import limits as limiting
from headwater.objects import tables
from headwater.objects.limits import Limits
from headwater.objects.reactions import OPS, Op
from headwater.spelling import did_you_mean
from headwater.types import EventType, event_type
from headwater.types.model import (
    TEXT,
    TIMESTAMP,
    U32,
    U64,
    Array,
    Enum,
    Field,
    List,
    Record,
    Scalar,
    Type,
    describe,
)

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.types.binding import Binding

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPS = Enum("Op", tuple((name, code) for code, name in enumerate(OPS)))
CODES: dict[Op, int] = {name: code for code, name in enumerate(OPS)}
CHANNEL = "objects."  # what the channel of a type's changes begins with


class Member(NamedTuple):
    """A part of an object."""

    binding: Binding
    optional: bool

    @property
    def type(self) -> Type:
        """What it holds."""
        return self.binding.type


class ObjectType:
    """One of them. `number` is what it has in the state file."""

    def __init__(self, number: int, name: str, type: EventType, limits: Limits | None = None) -> None:
        self.number, self.name, self.type = number, name, type
        self.limits: Limits = limits or {}
        self.channel = CHANNEL + name
        self.change = change_type(type)
        self._members: dict[str, Member] = {}

    def member(self, path: str) -> Member:
        """The member at a path, the object itself at none; ObjectError if there is none."""
        found = self._members.get(path)
        if found is None:
            found = self._find(path)
            self._members[path] = found  # there are no more than its type has
        return found

    def _find(self, path: str) -> Member:
        here = Member(self.type.binding, False)
        for field in path.split(".") if path else ():
            names = here.type.by_name if isinstance(here.type, Record) else {}
            if field not in names:
                hint = did_you_mean(field, names) or f"there are {', '.join(names) or 'none'}"
                raise ObjectError(
                    f"expected a member of {self.name}, found {path!r}: {here.type} has no {field!r}; {hint}"
                )
            assert isinstance(here.type, Record)
            at = here.type.fields.index(names[field])
            here = Member(here.binding.parts[at], here.optional or names[field].optional)
        return here

    def __repr__(self) -> str:
        return f"<ObjectType {self.name}>"


def change_type(type: EventType) -> EventType:
    """The type of the events that changes of such objects are. `step` is which transaction of the turn it is of: 0 is
    the one from outside; `position` is its place among all that has happened in the turn; `member` is what a raised
    event is about, where it is not the whole object."""
    record = type.record
    fields = (
        Field("object", TEXT),
        Field("op", _OPS),
        Field("old", record, True),
        Field("new", record, True),
        Field("turn", U64),
        Field("at", TIMESTAMP),
        Field("step", U32),
        Field("position", U32),
        Field("member", TEXT, True),
    )
    return event_type(Record(f"{record.name}Change", fields))


def packed(type: EventType) -> bytes:
    """An event type as bytes: the input of a program that passes everything."""
    return serial.dumps(Interest("true", type).program)


def unpacked(form: bytes) -> EventType:
    """The event type that was packed."""
    return event_type(serial.loads(form).input)


class ObjectTypes(Mapping[str, ObjectType]):
    """Those of one node, by name. They are changed while no turn is under way."""

    def __init__(self, execute: Execute) -> None:
        self._by_name: dict[str, ObjectType] = {}
        self._by_number: dict[int, ObjectType] = {}
        limits = limiting.kept(execute)
        for number, name, form in tables.types_of(execute):
            self._add(ObjectType(number, name, unpacked(form), limits.get(name)))

    def _add(self, type: ObjectType) -> ObjectType:
        self._by_name = {**self._by_name, type.name: type}
        self._by_number = {**self._by_number, type.number: type}
        return type

    def declare(
        self, execute: Execute, name: str, type: EventType, limits: Limits | None = None
    ) -> Callable[[], ObjectType]:
        """A type under a name, as what is in the file from now on; with these limits, or those that it has. What is
        returned has it known here too, once that is committed. ObjectError if that name has another type."""
        known = self._by_name.get(name)
        if known is None:
            number = tables.add_type(execute, name, packed(type))
        elif known.type != type:
            raise ObjectError(
                f"type {name!r}: expected {shape(known.type)}, as it was declared, found {shape(type)}; "
                "give the new type another name"
            )
        else:
            number = known.number  # of another class: instances are of that from now on
        if limits is None:
            limits = {} if known is None else known.limits
        else:
            limiting.keep(execute, name, limits)
        return lambda: self._add(ObjectType(number, name, type, limits))

    def numbered(self, number: int) -> ObjectType:
        """By its number in the file."""
        found = self._by_number.get(number)
        if found is None:
            raise ObjectError(f"objects: expected type number {number} in the state file, found none; it is damaged")
        return found

    def named(self, name: str) -> ObjectType:
        """By its name; ObjectError if there is none."""
        found = self._by_name.get(name)
        if found is None:
            hint = did_you_mean(name, self._by_name) or "declare it: objects.type(name, fields)"
            raise ObjectError(f"expected a declared type, found {name!r}; {hint}")
        return found

    def __getitem__(self, name: str) -> ObjectType:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def shape(type: EventType) -> str:
    """A type in a message."""
    return f"{type.name}({', '.join(str(field) for field in type.record.fields)})"


def plain_value(type: Type, raw: Any) -> Any:
    """A value of the raw form, as outcomes have it: times as such, members of enumerations by name."""
    if raw is None:
        return None
    match type:
        case Scalar(name="timestamp"):
            return _EPOCH + timedelta(microseconds=raw)
        case Scalar():
            return raw
        case Enum():
            return type.name_of(raw)
        case Record(fields=fields):
            return {field.name: plain_value(field.type, raw[field.name]) for field in fields}
        case Array(element=element, shape=shape):
            return _nested(element, raw, len(shape))
        case List(element=element):
            return _nested(element, raw, 1)


def _nested(element: Type, raw: Any, depth: int) -> list[Any]:
    if depth > 1:
        return [_nested(element, each, depth - 1) for each in raw]
    return [plain_value(element, each) for each in raw]


def with_member(raw: Mapping[str, Any], path: str, value: Any, type: Record) -> dict[str, Any]:
    """A copy of an object's raw form in which one member is another. ObjectError if what it is in is missing."""
    field, _, rest = path.partition(".")
    made = dict(raw)
    if not rest:
        made[field] = value
        return made
    inner = type.by_name[field].type
    assert isinstance(inner, Record)
    if made[field] is None:
        raise ObjectError(
            f"{field}: expected a value, of which {rest!r} is a part, found it missing; set it as a whole"
        )
    made[field] = with_member(made[field], rest, value, inner)
    return made


def member_of(raw: Mapping[str, Any], path: str) -> Any:
    """The raw form of a member; None if it, or what it is in, is missing."""
    here: Any = raw
    for field in path.split(".") if path else ():
        if here is None:
            return None
        here = here[field]
    return here


def spoken(error: HeadwaterError) -> str:
    """An error on one line, for a list of problems."""
    return " ".join(str(error).split())


__all__ = [
    "CHANNEL",
    "CODES",
    "Member",
    "ObjectType",
    "ObjectTypes",
    "change_type",
    "describe",
    "member_of",
    "packed",
    "plain_value",
    "shape",
    "spoken",
    "unpacked",
    "with_member",
]
