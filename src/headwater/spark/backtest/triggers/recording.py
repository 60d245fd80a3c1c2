"""What was recorded, as it travels to whoever replays it: types, nodes, triggers, and what the rows of a table are.

A row is a change of an object, or an event of a channel that a trigger listens to. Changes of older logs do not say
where in their turn they stand: the fields for that may be missing here, whatever the log's own type says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ConfigError, ConfigProblem, HeadwaterError
from headwater.objects.object_types import CHANNEL, packed, unpacked
from headwater.objects.object_types import change_type as live_change_type
from headwater.objects.reactions import OPS
from headwater.objects.triggers import definition
from headwater.objects.triggers.definition import Trigger
from headwater.objects.triggers.events import pattern_of
from headwater.objects.triggers.installed import Installed, install
from headwater.objects.triggers.replay import Change, separable
from headwater.types import EventType, event_type
from headwater.types.model import Field, Record

HELD = 0  # the turn of rows that say which objects there were before the recording begins; none of a node has it
_LATER = ("step", "position", "member")  # fields that changes of older logs lack


@lru_cache(maxsize=256)
def recorded_type(type: EventType) -> EventType:
    """The changes of objects of a type, as they are read here."""
    live = live_change_type(type).record
    fields = tuple(Field(each.name, each.type, each.optional or each.name in _LATER) for each in live.fields)
    return event_type(Record(live.name, fields))


def object_type(change: EventType) -> EventType | None:
    """The type of the objects whose changes these are; None if they are none of changes."""
    fields = change.record.by_name
    if not {"object", "op", "old", "new", "turn", "at"} <= fields.keys() or not isinstance(fields["new"].type, Record):
        return None
    return event_type(fields["new"].type)


class Table(msgspec.Struct, frozen=True, array_like=True):
    """A channel of the recording: of changes of objects of a type, or of events that triggers listen to."""

    channel: str
    form: bytes  # the type of the objects, or of the events

    @property
    def objects(self) -> str:
        """The name of the objects' type; empty if it is of other events."""
        return self.channel.removeprefix(CHANNEL) if self.channel.startswith(CHANNEL) else ""

    @property
    def type(self) -> EventType:
        """The type of the objects, or of the events."""
        return _unpacked(self.form)

    @property
    def rows(self) -> EventType:
        """The type of the rows."""
        return recorded_type(self.type) if self.objects else self.type


_unpacked = lru_cache(maxsize=256)(unpacked)


class OfNode(msgspec.Struct, frozen=True, array_like=True):
    """One node: when its recording begins and ends, what is tried there, and the types of objects it names."""

    begin: int
    end: int
    after: int  # turns up to this one are before it begins
    triggers: list[bytes]
    named: dict[str, str]  # an object's path -> the name of its type


class Package(msgspec.Struct, frozen=True, array_like=True):
    """All that a worker needs. `width` is that of stretches of time, in microseconds."""

    nodes: dict[str, OfNode]
    types: dict[str, bytes]  # of objects, by name
    tables: list[Table]
    width: int | None

    def dumps(self) -> bytes:
        """As it travels."""
        return msgspec.msgpack.encode(self)

    def triggers(self, node: str) -> list[Trigger]:
        """Those that are tried at a node."""
        return [definition.unpack(each) for each in self.nodes[node].triggers]

    def known(self, node: str) -> KnownTypes:
        """What they are checked against."""
        return KnownTypes(
            {name: _unpacked(form) for name, form in self.types.items()},
            {table.channel: table.type for table in self.tables if not table.objects},
            self.nodes[node].named,
        )


_DECODER = msgpack_decoder(Package)


def loads(data: bytes) -> Package:
    """What has travelled; the driver has made it."""
    return _DECODER.decode(data)


class KnownTypes:
    """The types of a recording; they meet `Types`."""

    def __init__(
        self, objects: Mapping[str, EventType], channels: Mapping[str, EventType], named: Mapping[str, str]
    ) -> None:
        self.objects, self.channels, self.named = objects, channels, named

    def type_of(self, object: str) -> EventType | None:
        """Of an object, as its changes say."""
        return self.objects.get(self.named.get(object, ""))

    def type_named(self, name: str) -> EventType | None:
        """A type of objects."""
        return self.objects.get(name)

    def channel_type(self, name: str) -> EventType | None:
        """Of a channel."""
        return self.channels.get(name)

    def method(self, type: str, name: str) -> None:
        """None is recorded."""

    def result(self, type: str, name: str) -> None:
        """None is recorded."""


class Entry(NamedTuple):
    """A row, in its place: of which node, of which table, and its raw form."""

    node: str
    table: int
    raw: Mapping[str, Any]
    at: int


def change_of(raw: Mapping[str, Any], type: EventType) -> Change:
    """A row as a change."""
    return Change(raw["object"], type, OPS[raw["op"]], raw["old"], raw["new"], raw["turn"], raw["at"],
                  raw["position"] or 0, raw["member"] or "")  # fmt: skip


# ── what is tried, checked ──


def unnamed_types(triggers: Mapping[str, Sequence[Trigger]]) -> set[str]:
    """Whole names of objects whose type has to be looked for: nothing says it."""
    found: set[str] = set()
    for many in triggers.values():
        for trigger in many:
            if not trigger.type:
                kinds = ("every", "channel")
                found |= {each.name for each in trigger.on if not each.is_pattern and each.kind not in kinds}
            found |= {
                each.name.partition(".")[0]
                for each in trigger.inputs.values()
                if not each.type and "{" not in each.name
            }
    return found


def checked(triggers: Mapping[str, Sequence[Trigger]], types: Mapping[str, KnownTypes]) -> list[Installed]:
    """All of them, as they would be installed; a ConfigError has everything that is wrong."""
    problems: dict[str, ConfigProblem] = {}
    made: list[Installed] = []
    for node, many in triggers.items():
        for number, trigger in enumerate(many, 1):
            where = f"trigger {trigger.name!r}"
            called = sorted({each.method for each in trigger.inputs.values() if each.method})
            if called:
                expected = "inputs that were recorded: objects and members"
                problems[where] = ConfigProblem(where, expected, f"results of methods: {', '.join(called)}")
                continue
            try:
                made.append(install(trigger, types[node], node, number))
            except HeadwaterError as error:
                told = "\n    ".join(str(error).splitlines())
                problems[where] = ConfigProblem(where, "a trigger over what was recorded", told)
    if problems:
        raise ConfigError(list(problems.values()))
    return made


def tables_of(
    installed: Iterable[Installed], objects: Mapping[str, EventType], channels: Mapping[str, EventType]
) -> list[Table]:
    """What has to be read: the changes of all objects of types that triggers are about, and the channels."""
    read: set[EventType] = set()
    heard: set[str] = set()
    for each in installed:
        heard |= {entry.listened.name for entry in each.condition.entries if entry.listened.kind == "channel"}
        read |= {entry.subject for entry in each.condition.entries if entry.listened.kind not in ("channel", "every")}
        read |= set(each.inputs.values())
    found = [Table(CHANNEL + name, packed(type)) for name, type in sorted(objects.items()) if type in read]
    return found + [Table(name, packed(channels[name])) for name in sorted(heard)]


class Objects(NamedTuple):
    """Which objects matter: whole names, and what names begin with."""

    names: frozenset[str]
    prefixes: frozenset[str]


def objects_of(installed: Iterable[Installed]) -> Objects | None:
    """Those that triggers listen to or read; None: any may be."""
    names: set[str] = set()
    prefixes: set[str] = set()
    for each in installed:
        for listened in each.trigger.on:
            if listened.kind in ("channel", "every"):
                continue
            if listened.is_pattern:
                found = pattern_of(listened.name)
                prefixes.add(f"//{found.node}/{found.prefix}")
            else:
                names.add(listened.name)
        for given in each.trigger.inputs.values():
            if "{" in given.name:
                if given.name.partition(".")[0] == definition.OBJECT:
                    continue
                return None
            names.add(given.name.partition(".")[0])
    return Objects(frozenset(names), frozenset(prefixes))


__all__ = [
    "HELD",
    "Entry",
    "KnownTypes",
    "Objects",
    "OfNode",
    "Package",
    "Table",
    "change_of",
    "checked",
    "loads",
    "object_type",
    "objects_of",
    "recorded_type",
    "separable",
    "tables_of",
    "unnamed_types",
]
