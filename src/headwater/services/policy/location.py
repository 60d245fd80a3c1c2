"""Where a user is: the last event of a channel that is about the user, or an object of the user's name.

    Location(channel="ie.tcd.sighting", type="who: text, floor: u32", user="who", gives={"here": "floor"})
    Location(object="person.{user}", of="Person", type="floor: u32", gives={"here": "floor"}, node="reception")

`gives` names parameters after its fields. A place that was said longer ago than `within` seconds is not known any more.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.channel.names import check_name
from headwater.errors import ChannelError, ConfigProblem, HeadwaterError
from headwater.interest import as_event_type
from headwater.services.policy.parameters import RESERVED
from headwater.types import EventType
from headwater.types.model import BOOL, F64, I64, TEXT, U64, Record, promote

MOST_GIVEN = 16  # parameters
USER = "{user}"  # in the name of an object, in the place of the user's
OBJECTS = "objects."  # before the name of a type: the channel of changes of its objects
_SAMPLES: dict[Any, object] = {TEXT: "", BOOL: False, I64: 0, U64: 0, F64: 0.0}
_FIELDS = ("channel", "type", "user", "gives", "object", "of", "node", "within")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """How a policy's sources know where a user is. It is checked with the policy that has it."""

    channel: str = ""
    type: str = ""
    user: str = ""  # the field of the event that says whose place it is
    gives: Mapping[str, str] = field(default_factory=dict, hash=False)  # parameters, and the fields that they are
    object: str = ""
    of: str = ""  # the type of the object
    node: str = ""  # whose object it is; nothing: the source's own node
    within: float = math.inf  # seconds

    @property
    def watched(self) -> str:
        """The channel whose events say that somebody has moved."""
        return self.channel or f"{OBJECTS}{self.of}"

    def name_of(self, user: str) -> str:
        """The name of a user's object."""
        return self.object.replace(USER, user)

    def record(self, fallback: EventType | None = None) -> EventType:
        """The type of its events, or of the object."""
        return fallback if fallback is not None and not self.type else as_event_type(self.type)

    def samples(self, fallback: EventType | None) -> dict[str, builtins.object]:
        """A value of its type for each parameter."""
        record = self.record(fallback).record
        return {name: _sample(record, each) for name, each in self.gives.items()}

    def problems(self, place: str, fallback: EventType | None) -> list[ConfigProblem]:
        """Everything wrong with it; `fallback` is the type of the policy's own channel, if it is that."""
        found: list[ConfigProblem] = []
        if bool(self.channel) == bool(self.object):
            found.append(ConfigProblem(place, "a channel or an object", "both" if self.channel else "none"))
            return found
        try:
            check_name(self.channel or self.watched)
        except ChannelError as error:
            found.append(
                ConfigProblem(f"{place} {'channel' if self.channel else 'of'}", "a channel's name", str(error))
            )
        if self.object and self.object.count(USER) != 1:
            found.append(ConfigProblem(f"{place} object", f"a name with {USER} in it, once", repr(self.object)))
        if not self.within > 0:
            found.append(ConfigProblem(f"{place} within", "a number of seconds above 0", repr(self.within)))
        try:
            record = self.record(fallback).record
        except (HeadwaterError, TypeError, ValueError) as error:
            return [
                *found,
                ConfigProblem(f"{place} type", "the type of its events, as `who: text, floor: u32`", str(error)),
            ]
        if self.channel and (self.user not in record.by_name or promote(record.by_name[self.user].type) != TEXT):
            found.append(ConfigProblem(f"{place} user", "a text field that says whose place it is", repr(self.user)))
        return found + self._given_problems(record, place)

    def _given_problems(self, record: Record, place: str) -> list[ConfigProblem]:
        found = []
        if not isinstance(self.gives, Mapping) or not 0 < len(self.gives) <= MOST_GIVEN:
            expected = f'1 to {MOST_GIVEN} parameters with the fields that they are, as {{here = "floor"}}'
            return [ConfigProblem(f"{place} gives", expected, repr(self.gives)[:100])]
        for name, each in self.gives.items():
            if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
                found.append(ConfigProblem(f"{place} gives", "names that no other parameter has", repr(name)))
            elif each not in record.by_name or promote(record.by_name[each].type) not in _SAMPLES:
                known = ", ".join(record.by_name)
                found.append(ConfigProblem(f"{place} gives {name}", f"a plain field of {known}", repr(each)))
        return found


def read_location(table: Any, place: str, problems: list[ConfigProblem]) -> Location | None:
    """The location in a table of a TOML file, or of a document."""
    if table is None or isinstance(table, Location):
        return table
    if not isinstance(table, Mapping):
        problems.append(ConfigProblem(place, "a table", repr(table)[:100]))
        return None
    wrong = [
        ConfigProblem(f"{place} {key}", f"one of {', '.join(_FIELDS)}", repr(key))
        for key in table
        if key not in _FIELDS
    ]
    for key in ("channel", "type", "user", "object", "of", "node"):
        if not isinstance(table.get(key, ""), str):
            wrong.append(ConfigProblem(f"{place} {key}", "a text", repr(table[key])[:100]))
    within = table.get("within", math.inf)
    if isinstance(within, bool) or not isinstance(within, int | float):
        wrong.append(ConfigProblem(f"{place} within", "a number of seconds", repr(within)[:100]))
    if wrong:
        problems += wrong
        return None
    return Location(**{str(key): value for key, value in table.items()})


def _sample(record: Record, name: str) -> object:
    return _SAMPLES[promote(record.by_name[name].type)]


__all__ = ["USER", "Location", "read_location"]
