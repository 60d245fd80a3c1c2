"""What the members of a group agree on, and what a member may ask for: checked at the door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.channel.options.delivery import BestEffort, Reliable
from headwater.channel.routing.route import key_of
from headwater.errors import SubscriptionError
from headwater.spelling import did_you_mean
from headwater.types.model import Scalar

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Options
    from headwater.interest import Interest
    from headwater.types import EventType

LONGEST_NAME = 200
CREDIT = 256  # events that a member has at once, if its queue takes so many


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one group: what it wants, by which field its events belong together, and whether they wait for members."""

    interest: Interest | None
    key: str = ""
    zones: frozenset[str] | None = None
    durable: bool = False

    def differences(self, other: Terms) -> list[str]:
        """What another one would have otherwise, naming both."""
        found = []
        if not self.wants_as(other):
            found.append(f"interest: expected {wanted(self.interest)}, found {wanted(other.interest)}")
        if self.key != other.key:
            found.append(f"group_key: expected {self.key or 'none'}, found {other.key or 'none'}")
        if self.zones != other.zones:
            found.append(f"zones: expected {_zones(self.zones)}, found {_zones(other.zones)}")
        if self.durable != other.durable:
            kinds = "not durable", "durable"
            found.append(
                f"delivery: expected one that is {kinds[self.durable]}, found one that is {kinds[other.durable]}"
            )
        return found

    def wants_as(self, other: Terms) -> bool:
        """Whether both are for the same events."""
        mine, its = self.interest, other.interest
        if mine is None or its is None:
            return mine is its
        if mine.stateful or its.stateful:
            return mine.fingerprint == its.fingerprint and mine.params == its.params
        return key_of(mine) == key_of(its)

    def check(self, group: str, channel: str, other: Terms) -> None:
        """Raise if somebody would join with other terms."""
        found = self.differences(other)
        if found:
            raise SubscriptionError(
                f"group {group!r} of channel {channel!r}: its members agree on what they want; {'; '.join(found)}; "
                "subscribe with the same, or choose another name for the group"
            )


def wanted(interest: Interest | None) -> str:
    """An interest in words."""
    if interest is None:
        return "all events"
    text = interest.text or str(interest)
    return f"{text!r} with {dict(interest.params)}" if interest.params else repr(text)


def _zones(zones: frozenset[str] | None) -> str:
    return "all" if zones is None else ", ".join(sorted(zones))


def check_group(group: Any, key: Any, options: Options, type: EventType | None) -> Options:
    """The options of a member, checked: what a group cannot have is an error, all of it at once."""
    problems = []
    if group is None:
        problems.append(f"group_key: expected group= beside it, found {key!r} alone; give the group a name")
    elif not isinstance(group, str) or not group or len(group) > LONGEST_NAME or not group.isprintable():
        problems.append(f"group: expected a name of 1 to {LONGEST_NAME} characters, found {group!r}")
    problems += key_problems(key, type)
    for what, wrong, why in (
        ("history", options.history, "a group has what is published while it has members, or, durable, since it began"),
        ("order", options.order != "receive", "events of a group have no order but that of their keys"),
        ("rate", options.sheds is not None, 'what is shed is lost to the whole group; write Rate(..., over="wait")'),
        ("as_", options.as_ is not None, "the members of a group get the same, whoever they are for"),
        ("delivery", isinstance(options.delivery, BestEffort), "what a member does not acknowledge goes to another"),
    ):
        if wrong:
            problems.append(f"{what}: {why}; leave it out for a member of a group")
    if isinstance(options.delivery, Reliable):
        for what, wrong in (
            ("within", options.delivery.within is not None),
            ('acknowledge="manual"', options.delivery.acknowledge == "manual"),
        ):
            if wrong:
                problems.append(f"delivery: {what}: a member has acknowledged when its handler has returned; remove it")
    if problems:
        raise SubscriptionError("; ".join(problems))
    return replace(options, delivery=Reliable())


def key_problems(key: Any, type: EventType | None) -> list[str]:
    """What is wrong with the field that is to be the key."""
    if key is None:
        return []
    if not isinstance(key, str):
        return [f"group_key: expected the name of a field, found {key!r}"]
    if type is None:
        return [f"group_key: expected a channel with a type, which has a field {key!r}, found one that carries bytes"]
    field = type.record.by_name.get(key)
    if field is None:
        hint = did_you_mean(key, type.record.by_name)
        return [
            f"group_key: expected a field of {type.name}, found {key!r}{f'; {hint}' if hint else ''}; it has "
            + ", ".join(type.record.by_name)
        ]
    if not isinstance(field.type, Scalar):
        return [f"group_key: expected a field with a single value, found {key!r}, which is {field.type}"]
    return []


def credit_of(options: Options) -> int:
    """How many events a member takes at once."""
    return min(options.queue.limit, CREDIT)


__all__ = ["CREDIT", "Terms", "check_group", "credit_of", "key_problems", "wanted"]
