"""What a trigger listens to, as it is written and as it is kept.

    //plant/car                 updates with event of the object, and events raised on it
    //plant/car.position        the same, if that member is another than before
    //plant/vehicle/*           of every object whose name fits
    created //plant/vehicle/*   when one is made;  destroyed //plant/vehicle/*   when one ends
    unchanged 60 s //plant/car  when nothing has changed for so long
    every 10 s                  the time itself
    channel quotes              every event of a channel

A trigger over values of several nodes listens to `decided NAME`, which is made for it and never written.
This module knows no types and no objects: whether there is such a name is asked elsewhere.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from headwater.durations import NUMBER, UNITS, micros, shown
from headwater.errors import ObjectError
from headwater.objects.names import NamePattern

Kind = Literal["change", "created", "destroyed", "unchanged", "every", "channel", "decided"]
FORMS = (
    "//node/object, //node/object.member, //node/some/*, created NAME, destroyed NAME, unchanged 60 s NAME, "
    "every 10 s, or channel NAME"
)
SHORTEST = 1_000  # µs of `every` and `unchanged`: a shorter one would keep the node busy with nothing else

_OPERATIONS: dict[Kind, tuple[str, ...]] = {
    "change": ("updated", "raised"),
    "created": ("created",),
    "destroyed": ("destroyed",),
    "every": ("ticked",),
    "channel": ("received",),
    "decided": ("fired",),
}
_LENGTH = re.compile(rf"({NUMBER.pattern})\s*([a-zµ]+)", re.IGNORECASE)


class Listened(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that a trigger listens to. `name` is that of an object or channel, perhaps a pattern; `member` a path
    within the object; `length` is in microseconds."""

    kind: Kind
    name: str = ""
    member: str = ""
    length: int = 0

    @property
    def is_pattern(self) -> bool:
        """Whether several objects may be meant."""
        return "*" in self.name

    @property
    def subject(self) -> str:
        """What its happenings are told of: an object's name, or of the time, that it is this one."""
        match self.kind:
            case "every":
                return f"every {shown(self.length)}"
            case "decided":
                return f"decided {self.name}"
            case _:
                return self.name

    def __str__(self) -> str:
        place = f"{self.name}.{self.member}" if self.member else self.name
        match self.kind:
            case "change":
                return place
            case "unchanged":
                return f"unchanged {shown(self.length)} {place}"
            case "every":
                return self.subject
            case _:
                return f"{self.kind} {place}"


def parse(text: str, node: str = "") -> Listened:
    """From its text, names without an owner being of this node; ValueError says what was expected."""
    words = text.split()
    first = words[0] if words else ""
    if first in ("created", "destroyed") and len(words) == 2:
        name, member = split(words[1], node)
        if member:
            raise ValueError(f"{text!r}: expected the name of an object, found a member ({member}) of one")
        return Listened("created" if first == "created" else "destroyed", name)
    if first == "channel" and len(words) == 2:
        return Listened("channel", words[1])
    if first in ("every", "unchanged"):
        rest = text.split(None, 1)[1] if len(words) > 1 else ""
        length, rest = duration(rest, text)
        if first == "every" and not rest:
            return Listened("every", length=length)
        if first == "unchanged" and rest:
            name, member = split(rest, node)
            return Listened("unchanged", name, member, length)
    elif len(words) == 1:
        name, member = split(first, node)
        return Listened("change", name, member)
    raise ValueError(f"{text!r}: expected {FORMS}")


def split(text: str, node: str = "") -> tuple[str, str]:
    """An object's whole name, or a pattern of them, and the path of a member in it, from both in one."""
    try:
        found = NamePattern(text, node)
    except ObjectError as error:
        raise ValueError(str(error)) from None
    return found.text.removesuffix(f".{found.member}") if found.member else found.text, found.member


def duration(text: str, whole: str = "") -> tuple[int, str]:
    """Microseconds at the start of a text, and the rest of it."""
    found = _LENGTH.match(text)
    unit = found.group(2).lower() if found else ""
    length = micros(found.group(1), unit) if found and unit in UNITS else None
    if found is None or length is None or length < SHORTEST:
        raise ValueError(
            f"{whole or text!r}: expected a length of time of 1 ms or more, such as 10 s, found {text[:30]!r}"
        )
    return length, text[found.end() :].strip()


def operations(listened: Listened) -> tuple[str, ...]:
    """Which happenings are meant, as `event.op` names them; that of having been unchanged by how long."""
    if listened.kind == "unchanged":
        return (f"unchanged {shown(listened.length)}{f' {listened.member}' if listened.member else ''}",)
    return _OPERATIONS[listened.kind]


@lru_cache(maxsize=65_536)
def pattern_of(name: str) -> NamePattern:
    """Which objects a name or pattern of names means."""
    return NamePattern(name)
