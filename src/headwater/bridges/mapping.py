"""A declared mapping between topics of another system and a channel: which messages are which events.

    Mapping("building/{floor}/{room}/temperature", "building.temperature", payload="text:celsius")
    Mapping("doors/{door}", "building.doors", payload="json", direction="out", where="opened")

    payload    json          an object with the fields that the topic does not have
               text:FIELD    one field, as text
               bytes:FIELD   one field, of bytes as they are
               record        Headwater's own form of the event
    direction  in, out, or both. What has come in does not go out to where it would come in again
    where      an interest: only such events go out. It is judged at their sources
    properties fields that are beside the payload: user properties of MQTT 5, headers of NATS

A message that is no event is no event of anybody: `read` raises EncodeError, which says which field and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from collections.abc import Mapping as Fields
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from headwater.bridges.topics import Topic, TopicSyntax
from headwater.channel.names import check_name
from headwater.errors import ChannelError, ConfigError, ConfigProblem, EncodeError
from headwater.spelling import did_you_mean
from headwater.types import EventType
from headwater.types.model import BOOL, BYTES, TEXT, Enum, Scalar, Type
from headwater.types.plain import NOT_FINITE, loads, object_in, shown, taken

Direction = Literal["in", "out", "both"]
PAYLOADS = ("json", "text", "bytes", "record")
OF_ONE = ("text", "bytes")  # those that are about one field
MAX_PAYLOAD = 1 << 20  # bytes of a message, unless said otherwise
MAX_PROPERTY = 4096  # bytes of a field that is beside the payload
MAX_EXPIRY = (1 << 32) - 1  # seconds
DIGITS = 20  # of a whole number that is read without ado, are fewer
Properties = Iterable[tuple[str, str]]


class Message(NamedTuple):
    """An event as another system has it."""

    topic: str
    payload: bytes
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Mapping:
    """Topics and a channel, and how a message is an event. `qos`, `retain`, and `expiry`, the seconds after which what
    went out is of no use any more (0: never), are for systems that know them."""

    topic: str
    channel: str
    payload: str = "json"
    direction: Direction = "in"
    where: str = ""
    qos: int = 1
    retain: bool = False
    properties: tuple[str, ...] = ()
    expiry: int = 0

    def __post_init__(self) -> None:
        """What is wrong whatever the system and the type are."""
        place = f"mapping of {self.topic!r}"
        problems = []
        try:
            check_name(self.channel)
        except (ChannelError, TypeError, AttributeError) as error:
            problems.append(ConfigProblem(f"{place}: channel", "the name of a channel", str(error)))
        kind, colon, field = str(self.payload).partition(":")
        if kind not in PAYLOADS:
            hint = did_you_mean(kind, PAYLOADS)
            problems.append(
                ConfigProblem(f"{place}: payload", f"one of {', '.join(PAYLOADS)}", repr(self.payload), hint)
            )
        elif (kind in OF_ONE) != bool(field) or (colon and not field):
            wanted = f"{kind}:FIELD" if kind in OF_ONE else kind
            problems.append(ConfigProblem(f"{place}: payload", wanted, repr(self.payload)))
        if self.direction not in get_args(Direction):
            problems.append(
                ConfigProblem(f"{place}: direction", f"one of {', '.join(get_args(Direction))}", repr(self.direction))
            )
        if not isinstance(self.where, str):
            problems.append(ConfigProblem(f"{place}: where", "an interest, as text", repr(self.where)))
        elif self.where and self.direction == "in":
            problems.append(
                ConfigProblem(f"{place}: where", "direction='out' or 'both': it is about what goes out", "in")
            )
        if self.qos.__class__ is not int or self.qos not in (0, 1, 2):
            problems.append(ConfigProblem(f"{place}: qos", "0, 1 or 2", repr(self.qos)))
        if not isinstance(self.retain, bool):
            problems.append(ConfigProblem(f"{place}: retain", "true or false", repr(self.retain)))
        if not isinstance(self.properties, list | tuple) or not all(isinstance(each, str) for each in self.properties):
            problems.append(
                ConfigProblem(f"{place}: properties", "names of fields, as in ['unit']", repr(self.properties))
            )
        else:
            object.__setattr__(self, "properties", tuple(self.properties))  # from a file it is a list
        if not isinstance(self.expiry, int) or not 0 <= self.expiry <= MAX_EXPIRY or isinstance(self.expiry, bool):
            problems.append(ConfigProblem(f"{place}: expiry", "whole seconds, or 0 for never", repr(self.expiry)))
        if problems:
            raise ConfigError(problems)

    @classmethod
    def read(cls, table: Fields[str, Any], place: str) -> Mapping:
        """From a table of a file."""
        known = [each.name for each in fields(cls)]
        problems = [
            ConfigProblem(f"{place}: {key}", "an option of a mapping", repr(key), did_you_mean(key, known))
            for key in table
            if key not in known
        ]
        problems += [
            ConfigProblem(f"{place}: {name}", "a value", "nothing")
            for name in ("topic", "channel")
            if name not in table
        ]
        if problems:
            raise ConfigError(problems)
        return cls(**table)

    @property
    def comes_in(self) -> bool:
        return self.direction != "out"

    @property
    def goes_out(self) -> bool:
        return self.direction != "in"


class Translation:
    """A mapping for one system and one type of events; None is a channel of bytes. It keeps nothing: threads may share
    it."""

    def __init__(self, mapping: Mapping, syntax: TopicSyntax, type: EventType | None) -> None:
        """ConfigError, with all that does not fit."""
        self.mapping, self.type = mapping, type
        self.topic = Topic(mapping.topic, syntax)
        self.kind, _, self.field = mapping.payload.partition(":")
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)
        own = {} if type is None else {each.name: each for each in type.record.fields}
        self._in_topic: dict[str, Type] = {name: own[name].type for name in self.topic.fields}
        self._value: Type | None = own[self.field].type if self.field else None
        self._readers = {name: _reader(name, own[name].type) for name in (*self.topic.fields, self.field) if name}
        self._beside: dict[str, Type] = {name: own[name].type for name in mapping.properties}

    def _problems(self) -> list[ConfigProblem]:
        """What of the mapping does not fit the type."""
        place = f"mapping of {self.mapping.topic!r}"
        if self.type is None:
            wrong = self.topic.fields or self.kind != "record" or self.mapping.properties
            wanted = "a topic without fields, and payload='record', for a channel of bytes"
            return [ConfigProblem(place, wanted, f"{self.mapping.topic!r}, {self.mapping.payload!r}")] if wrong else []
        own = {each.name: each for each in self.type.record.fields}
        found = []
        beside = self.mapping.properties
        for name in (*self.topic.fields, *((self.field,) if self.field else ()), *beside):
            if name not in own:
                hint = did_you_mean(name, own) or f"there are {', '.join(own)}"
                found.append(ConfigProblem(place, f"fields of {self.type.name}", name, hint))
            elif name in self.topic.fields and not _in_a_topic(own[name].type):
                found.append(ConfigProblem(place, f"a text, a whole number, true or false for {name}", "another type"))
            elif name in beside and not isinstance(own[name].type, Scalar | Enum):
                found.append(ConfigProblem(f"{place}: properties", f"a field of one value for {name}", "another type"))
        if self.field in self.topic.fields:
            found.append(ConfigProblem(place, f"{self.field} in the topic or in the payload", "both"))
        twice = [name for name in beside if name in (*self.topic.fields, self.field) or beside.count(name) > 1]
        if twice:
            found.append(ConfigProblem(f"{place}: properties", "each field in one place", f"{twice[0]} in two"))
        if beside and self.kind == "record":
            found.append(ConfigProblem(f"{place}: properties", "none, since a record has all fields", repr(beside)))
        if self.kind == "bytes" and self.field in own and own[self.field].type != BYTES:
            found.append(ConfigProblem(f"{place}: payload", f"a field of bytes, or text:{self.field}", self.field))
        if self.kind == "text" and self.field in own and not isinstance(own[self.field].type, Scalar | Enum):
            found.append(ConfigProblem(f"{place}: payload", "a field of one value", self.field))
        if self.kind == "record" and self.topic.fields:
            found.append(
                ConfigProblem(place, "no fields in the topic, since a record has them all", self.mapping.topic)
            )
        if self.kind in OF_ONE:
            told = {*self.topic.fields, self.field, *beside}
            untold = [each.name for each in self.type.record.fields if not each.optional and each.name not in told]
            if untold and self.mapping.comes_in:
                expected = "all fields that cannot be missing in the topic, the payload or the properties"
                found.append(ConfigProblem(place, expected, f"nothing of {', '.join(untold)}"))
        return found

    # ── in ──

    def read(self, topic: str, payload: bytes, properties: Properties = ()) -> Any:
        """The event of a message, as a source takes it, or None if the topic is none of the mapping's; EncodeError if
        it is no such event."""
        told = self.topic.read(topic)
        if told is None:
            return None
        if self.type is None:
            return payload
        if self.kind == "record":
            self.type.validate(payload)
            return self.type.decode(payload)
        readers = self._readers
        made = {name: readers[name](text) for name, text in told.items()}
        if self._beside:
            self._read_beside(made, properties)
        if self.kind == "json":
            self._join(made, object_in(self.type, payload))
        elif self.kind == "bytes":
            made[self.field] = payload
        else:
            made[self.field] = readers[self.field](_decoded(self.field, payload))
        return self.type.from_dict(made)

    def _read_beside(self, made: dict[str, Any], properties: Properties) -> None:
        """Others than those of the mapping are the devices' own."""
        for name, text in properties:
            if name in self._beside:
                if name in made:
                    raise EncodeError(name, "expected the property once, found it twice")
                if len(text.encode()) > MAX_PROPERTY:
                    raise EncodeError(name, f"expected a property of at most {MAX_PROPERTY:,} bytes, found more")
                made[name] = _of_text(name, self._beside[name], text)

    def _join(self, made: dict[str, Any], given: dict[str, Any]) -> None:
        """What both say must be the same."""
        for name, value in given.items():
            if name in made and made[name] != value:
                where = "property" if name in self._beside else "topic"
                raise EncodeError(
                    name, f"expected what the {where} says, {made[name]!r}, found {value!r} in the payload"
                )
            made[name] = value

    # ── out ──

    def write(self, event: Any) -> Message:
        """The message of an event; EncodeError if it cannot be said so."""
        if self.type is None:
            return Message(self.topic.text, bytes(event))
        if self.kind == "record":
            return Message(self.topic.text, self.type.encode(event))
        raw = self.type.to_raw(event)
        named = {name: _to_text(type, raw[name]) for name, type in self._in_topic.items()}
        topic = self.topic.write(named)
        beside = tuple(
            (name, _property(name, _to_text(type, raw[name])))
            for name, type in self._beside.items()
            if raw[name] is not None
        )
        if self.kind == "bytes":
            return Message(topic, bytes(raw[self.field] or b""), beside)
        if self.kind == "text":
            assert self._value is not None
            value = raw[self.field]
            return Message(topic, b"" if value is None else _text(_to_text(self._value, value)).encode(), beside)
        whole = shown(self.type.record, raw)
        rest = {name: value for name, value in whole.items() if name not in self._in_topic and name not in self._beside}
        return Message(topic, json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode(), beside)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _property(name: str, value: Any) -> str:
    """One line: in headers of NATS the next would be another header."""
    text = _text(value)
    if not text.isprintable() or text != text.strip() or len(text.encode()) > MAX_PROPERTY:
        raise EncodeError(
            name, f"expected one line of at most {MAX_PROPERTY:,} bytes for a property, found {text[:60]!r}"
        )
    return text


def _in_a_topic(type: Type) -> bool:
    if isinstance(type, Enum) or type in (TEXT, BOOL):
        return True
    return isinstance(type, Scalar) and type.name[0] in "iu"


def _decoded(name: str, payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise EncodeError(name, f"expected text in UTF-8, found other bytes: {error}") from None


def _reader(name: str, type: Type) -> Callable[[str], Any]:
    """As `_of_text`, for one field: most of what is found is a text, or a whole number without any ado."""
    if type == TEXT or isinstance(type, Enum):
        return str
    any_text = partial(_of_text, name, type)
    if not isinstance(type, Scalar) or type.name[0] not in "iu":
        return any_text

    def whole(text: str) -> Any:
        plain = text.isascii() and text.isdecimal() and len(text) < DIGITS and (text[0] != "0" or text == "0")
        return int(text) if plain else any_text(text)

    return whole


def _of_text(name: str, type: Type, text: str) -> Any:
    """A value that a topic, a payload of text or a property has."""
    if type == BOOL:
        found = {"true": True, "false": False, "1": True, "0": False, "on": True, "off": False}.get(
            text.strip().lower()
        )
        if found is None:
            raise EncodeError(name, f"expected true or false, found {text[:60]!r}")
        return found
    plain = isinstance(type, Enum) or type == TEXT or (isinstance(type, Scalar) and type.name in ("timestamp", "bytes"))
    try:
        return taken(type, text if plain or text in NOT_FINITE else loads(text))
    except EncodeError as error:
        raise EncodeError(name, str(error) if plain else f"expected a number, found {text[:60]!r}") from error


def _to_text(type: Type, value: Any) -> Any:
    """A raw value in a topic or a payload of text."""
    if value is None:
        return None
    if type == BOOL:
        return bool(value)
    return shown(type, value)


__all__ = ["MAX_PAYLOAD", "Direction", "Mapping", "Message", "Properties", "Translation"]
