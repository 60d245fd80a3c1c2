"""Limits of types of objects: between which numbers a member may be, whoever changes it.

They are the owner's, and a part of the type: each transaction that would leave an object of the type outside of them is
refused, silent updates and methods included. They are kept in the state file, and hold from the first turn on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.spelling import did_you_mean
from headwater.store import Tables
from headwater.types.model import Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.types import EventType

LIMITS = Tables(
    "limits of objects",
    (("CREATE TABLE object_limits (type TEXT PRIMARY KEY, form BLOB NOT NULL) WITHOUT ROWID",),),
)
Number = int | float


class Limit(msgspec.Struct, frozen=True, array_like=True):
    """The least and the greatest number, both allowed; None for none."""

    low: Number | None = None
    high: Number | None = None

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high!r}"
        return f"at least {self.low!r}" if self.high is None else f"{self.low!r} to {self.high!r}"

    def allows(self, value: Number) -> bool:
        """NaN is nowhere."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high) and value == value


Limits = Mapping[str, Limit]
Given = Mapping[str, tuple[Number | None, Number | None]]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgpack_decoder(dict[str, Limit]).decode


def limits_of(name: str, type: EventType, given: Given) -> Limits:
    """As they are given for a type, by member; ObjectError with all that is wrong with them."""
    found, problems = {}, []
    for member, pair in given.items():
        problem = _fault(type.record, member, pair)
        if problem:
            problems.append(f"limits: {member}: {problem}")
        else:
            found[member] = Limit(*pair)
    if problems:
        raise ObjectError("\n".join([f"type {name!r}:", *(f"  - {problem}" for problem in problems)]))
    return found


def _fault(record: Record, member: str, pair: Any) -> str:
    here: Type = record
    for step in member.split("."):
        names = here.by_name if isinstance(here, Record) else {}
        if step not in names:
            hint = did_you_mean(step, names) or f"there are {', '.join(names)}"
            return f"expected a member, found none; {hint}"
        here = names[step].type
    if not isinstance(here, Scalar) or not here.is_number:
        return f"expected a number, found {here}"
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(_is_bound(each) for each in pair):
        return f"expected (low, high), numbers or None, found {pair!r}"
    low, high = pair
    if low is None and high is None:
        return "expected a least or a greatest number, found none"
    return f"expected low to be at most high, found {pair!r}" if None not in (low, high) and low > high else ""


def _is_bound(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value == value)


def check(limits: Limits, raw: Mapping[str, Any]) -> None:
    """Whether an object may be so; ObjectError names all members that may not. What is missing is within."""
    wrong = []
    for member, limit in limits.items():
        here: Any = raw
        for step in member.split("."):
            here = None if here is None else here[step]
        if here is not None and not limit.allows(here):
            wrong.append(f"{member}: expected {limit}, found {here!r}")
    if wrong:
        raise ObjectError("; ".join(wrong))


def kept(execute: Execute) -> dict[str, Limits]:
    """Those of all types that have some, by name."""
    return {name: _unpack(form) for name, form in execute("SELECT type, form FROM object_limits")}


def keep(execute: Execute, type: str, limits: Limits) -> None:
    """From now on."""
    if limits:
        execute("INSERT OR REPLACE INTO object_limits (type, form) VALUES (?, ?)", (type, _pack(dict(limits))))
    else:
        execute("DELETE FROM object_limits WHERE type = ?", (type,))


__all__ = ["LIMITS", "Given", "Limit", "Limits", "check", "keep", "kept", "limits_of"]
