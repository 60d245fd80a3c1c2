"""What a replica is of: which objects, how far each member may be off, and what both sides take it to do meanwhile.

Two that ask for the same are the same replica: its number is made of what it says, the owner's name included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.objects.names import NamePattern
from headwater.objects.object_types import CHANNEL
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, F64, TEXT, TIMESTAMP, U32, U64, Field, Record, Scalar

if TYPE_CHECKING:
    from headwater.types.model import Type

SUFFIX = ".replicas"  # of the channel of a type's changes: what is told to replicas of its objects
MOST_MEMBERS = 256  # named in one
MAX_BYTES = 64 << 10  # of one, packed


class Linear(msgspec.Struct, frozen=True, array_like=True, tag="linear"):
    """A model: each member goes on as another says, which is how much it changes in a second.

    Linear({"position.x": "velocity.x", "position.y": "velocity.y"})"""

    rates: dict[str, str]


class ReplicaSpec(msgspec.Struct, frozen=True, array_like=True):
    """Checked by `replica_spec` or, of another node, by `problems`. A member of `members`, or any if there are none,
    that has no bound is exact: it is told whenever it is another."""

    pattern: str  # //plant/hall/*
    type: str
    bounds: dict[str, float] = {}
    members: tuple[str, ...] = ()
    model: Linear | None = None

    @property
    def number(self) -> int:
        """By which it is known at its owner and at its holders, of 62 bits; equal ones have the same."""
        return int.from_bytes(blake2b(pack(self), digest_size=8, person=b"hw-replica").digest(), "little") >> 2

    @property
    def channel(self) -> str:
        """On which its owner tells of it."""
        return CHANNEL + self.type + SUFFIX

    @property
    def owner(self) -> str:
        """The node whose objects they are."""
        return NamePattern(self.pattern).node


_DECODER = msgpack_decoder(ReplicaSpec)
_ENCODER = msgspec.msgpack.Encoder(order="sorted")


def pack(spec: ReplicaSpec) -> bytes:
    """As bytes, the same for equal ones."""
    return _ENCODER.encode(spec)


def unpack(data: bytes) -> ReplicaSpec:
    """What was packed; ObjectError if it is none."""
    if len(data) > MAX_BYTES:
        raise ObjectError(f"replica: expected at most {MAX_BYTES:,} bytes, found {len(data):,}")
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ObjectError(f"replica: expected one in serial form, found something else: {error}") from None


def replica_spec(
    pattern: str,
    type: str,
    form: EventType,
    *,
    node: str,
    bound: Mapping[str, float] | None = None,
    members: Iterable[str] = (),
    model: Linear | None = None,
) -> ReplicaSpec:
    """One that is sound: names as a whole, numbers as floats. ObjectError with all that is wrong."""
    named = NamePattern(pattern, node)
    bounds = {name: _number(value) for name, value in (bound or {}).items()}
    made = ReplicaSpec(named.text, type, bounds, tuple(sorted(set(members))), model)
    check(made, form)
    return made


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def check(spec: ReplicaSpec, form: EventType) -> None:
    """ObjectError if there is something wrong with it."""
    if found := problems(spec, form):
        raise ObjectError("\n".join([f"replica of {spec.pattern!r}:", *(f"  - {each}" for each in found)]))


def problems(spec: ReplicaSpec, form: EventType) -> list[str]:
    """All that is wrong with it, for objects of this type."""
    found: list[str] = []
    try:
        if NamePattern(spec.pattern).member:
            found.append(
                f"expected objects, found a member of them, {spec.pattern!r}; name members in bound or members"
            )
    except ObjectError as error:
        found.append(str(error))
    if len(spec.bounds) + len(spec.members) > MOST_MEMBERS:
        found.append(f"expected at most {MOST_MEMBERS} members, found {len(spec.bounds) + len(spec.members)}")
        return found
    for path, bound in spec.bounds.items():
        member = member_type(form, path)
        if member is None:
            found.append(f"bound: {path!r}: expected a member of {spec.type}, found none of that name")
        elif not isinstance(member, Scalar) or not (member.is_integer or member.is_float):
            found.append(f"bound: {path}: expected a number, which can be near another, found {member}")
        if not isinstance(bound, float) or not isfinite(bound) or bound < 0:
            found.append(f"bound: {path}: expected a number from 0 on, found {bound!r}")
    for path in spec.members:
        if member_type(form, path) is None:
            found.append(f"members: {path!r}: expected a member of {spec.type}, found none of that name")
    if spec.model is not None:
        found += _model_problems(spec, form)
    return found


def _model_problems(spec: ReplicaSpec, form: EventType) -> list[str]:
    assert spec.model is not None
    found = []
    for path, rate in spec.model.rates.items():
        if path not in spec.bounds:
            found.append(f"model: {path}: expected a member with a bound, found none; add it to bound")
        for each in (path, rate):
            if member_type(form, each) != F64:
                found.append(f"model: {each}: expected a member of type f64, found {member_type(form, each)}")
        if rate in spec.bounds and spec.bounds[rate] > 0:
            found.append(f"model: {rate}: expected a member that is exact, found a bound; leave it out of bound")
        elif spec.members and not any(rate == each or rate.startswith(f"{each}.") for each in spec.members):
            found.append(f"model: {rate}: expected one of members, since the model goes by it, found another")
        if rate in spec.model.rates:
            found.append(f"model: {rate}: expected a member that stays, found one that the model changes")
    return found


def member_type(form: EventType, path: str) -> Type | None:
    """What a member of such objects holds; None if there is none."""
    here: Type = form.record
    for field in path.split("."):
        names = here.by_name if isinstance(here, Record) else {}
        if field not in names:
            return None
        here = names[field].type
    return here


def told_type(form: EventType) -> EventType:
    """The type of the events by which replicas of such objects are told. One of no object is of the replica as a whole:
    it is over."""
    record = form.record
    fields = (
        Field("replica", U64),
        Field("object", TEXT),  # its path at its owner
        Field("value", record, True),  # missing: it is not there any more
        Field("still", BOOL),  # whether it stays so until more is told, whatever the model says
        Field("at", TIMESTAMP),  # of the turn, by the owner's clock
        Field("turn", U64),
        Field("after", U64),  # the turn that was told of before, 0 if it is not known
        Field("more", U32),  # how many follow of the same turn
    )
    return event_type(Record(f"{record.name}Told", fields))


__all__ = [
    "MAX_BYTES",
    "SUFFIX",
    "Linear",
    "ReplicaSpec",
    "check",
    "member_type",
    "pack",
    "problems",
    "replica_spec",
    "told_type",
    "unpack",
]
