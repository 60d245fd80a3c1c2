"""Whether a value is near enough to another: member by member, exactly, also where numbers are floats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.objects.object_types import member_of
from headwater.types.model import Record

if TYPE_CHECKING:
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType

Raw = Mapping[str, Any]


class Leaf(NamedTuple):
    """A part of an object that is looked at by itself; `only`: no more than whether it is there."""

    path: str
    bound: float
    only: bool = False


class Bounds:
    """Of the objects of one replica."""

    def __init__(self, spec: ReplicaSpec, form: EventType) -> None:
        wanted = {*spec.members, *spec.bounds}
        self.leaves = tuple(
            each._replace(bound=spec.bounds.get(each.path, 0.0))
            for each in _leaves(form.record, "")
            if not spec.members or _covered(each.path, wanted)
        )

    def within(self, told: Raw, value: Raw) -> bool:
        """Whether who was told the one may go on with it while the other is true."""
        return told is value or all(
            near(member_of(told, path), member_of(value, path), bound)
            if not only
            else (member_of(told, path) is None) == (member_of(value, path) is None)
            for path, bound, only in self.leaves
        )


def near(told: Any, value: Any, bound: float) -> bool:
    """Whether two values of a member differ by no more than this. NaN is near NaN only, what is missing near what is
    missing."""
    if told is None or value is None:
        return told is value
    if told == value or (told != told and value != value):
        return True
    if not bound:
        return False
    apart = abs(told - value)
    if apart != bound:
        return bool(apart < bound)  # rounding keeps the order: less than the bound is so before it, too
    return abs(Fraction(told) - Fraction(value)) <= Fraction(bound)


def _leaves(record: Record, before: str) -> Iterator[Leaf]:
    for field in record.fields:
        path = before + field.name
        if isinstance(field.type, Record):
            if field.optional:
                yield Leaf(path, 0.0, True)
            yield from _leaves(field.type, f"{path}.")
        else:
            yield Leaf(path, 0.0)


def _covered(path: str, wanted: set[str]) -> bool:
    """Whether a member is wanted, or is a part of one that is, or has one as its part (then it has to be there)."""
    return any(path == each or path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in wanted)


__all__ = ["Bounds", "Leaf", "Raw", "near"]
