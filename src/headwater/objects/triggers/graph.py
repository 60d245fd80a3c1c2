"""Which trigger may set off which: what writes what another listens to. Sets that may not end are told with a path.

An action that updates an object with an event, raises one on it, creates or destroys it, may set off every trigger that
listens to that. A cycle need not run for ever: conditions may end it, and cascades are bounded anyway. It is a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from headwater.objects.names import NamePattern
from headwater.objects.operations import Create, Destroy, Invoke, Put, Raise, Update
from headwater.objects.triggers.definition import NAME, OBJECT, PLACE, Trigger
from headwater.objects.triggers.events import Listened, operations, pattern_of

MAX_LOOKED_AT = 2_000  # pairs of triggers: beyond that nothing is said of cycles


def writes(trigger: Trigger) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What an action does: the happening, the object (perhaps a pattern), and the members that it writes."""
    for each in trigger.do:
        match each:
            case Update(event=True):
                yield "updated", each.name, (*each.value, *each.computed)
            case Put():
                yield "created", each.name, ()
                if each.event:
                    yield "updated", each.name, (*each.value, *each.computed)
            case Raise() if each.name:
                yield "raised", each.name, ()
            case Create():
                yield "created", each.name, ()
            case Destroy():
                yield "destroyed", each.name, ()
            case Invoke():
                yield "updated", each.name, ()
            case Raise():
                yield "received", each.channel, ()


def sets_off(trigger: Trigger, listened: Listened) -> bool:
    """Whether its action may bring about what is listened to."""
    return any(
        op in operations(listened) and any(_meets(each, members, listened) for each in _names(name, trigger))
        for op, name, members in writes(trigger)
    )


def _names(name: str, trigger: Trigger) -> Iterator[str]:
    """What a name of an action may stand for."""
    if OBJECT not in name and NAME not in name:
        yield PLACE.sub("*", name)
        return
    for each in trigger.on:
        last = each.name.rpartition("/")[2]
        yield PLACE.sub("*", name.replace(OBJECT, each.name).replace(NAME, last))


def _meets(name: str, members: tuple[str, ...], listened: Listened) -> bool:
    if listened.kind == "channel":
        return name == listened.name
    object, _, member = name.partition(".") if not name.startswith("//") else _parted(name)
    if not _overlap(object, listened.name):
        return False
    written = (member,) if member else members
    return not listened.member or not written or any(_within(each, listened.member) for each in written)


def _parted(name: str) -> tuple[str, str, str]:
    at = name.find(".", name.rfind("/"))
    return (name, "", "") if at < 0 else (name[:at], ".", name[at + 1 :])


def _within(a: str, b: str) -> bool:
    return not a or a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.")


def _overlap(a: str, b: str) -> bool:
    """Whether there may be a name that is meant by both; of two patterns, as far as their beginnings tell."""
    if not a.startswith("//"):
        a = f"//{pattern_of(b).node}/{a}"
    if "*" not in a:
        pattern: NamePattern = pattern_of(b)
        return pattern_of(a).node == pattern.node and pattern.matches(pattern_of(a).literal or "")
    if "*" not in b:
        return _overlap(b, a)
    first, second = pattern_of(a).prefix, pattern_of(b).prefix
    return first.startswith(second) or second.startswith(first)


def cycle(first: Trigger, listening: Callable[[str], Iterable[Trigger]]) -> list[str]:
    """A shortest way from a trigger back to itself, by names; empty if there is none, or too much to look at.
    `listening` finds triggers that may listen to an object or channel."""
    ways = {first.name: [first.name]}
    line = deque([first])
    looked = 0
    while line:
        trigger = line.popleft()
        for other in _next(trigger, listening):
            looked += 1
            if looked > MAX_LOOKED_AT:
                return []
            if other.name == first.name:
                return [*ways[trigger.name], first.name]
            if other.do and other.name not in ways:
                ways[other.name] = [*ways[trigger.name], other.name]
                line.append(other)
    return []


def _next(trigger: Trigger, listening: Callable[[str], Iterable[Trigger]]) -> Iterator[Trigger]:
    """Those that its action may set off."""
    seen = set()
    for _, written, _ in writes(trigger):
        for name in _names(written, trigger):
            for other in listening(_parted(name)[0]):
                if other.name not in seen and any(sets_off(trigger, listened) for listened in other.on):
                    seen.add(other.name)
                    yield other


def warnings(trigger: Trigger, listening: Callable[[str], Iterable[Trigger]]) -> list[str]:
    """What is to be said of a trigger that was just installed."""
    way = cycle(trigger, listening) if trigger.do else []
    if not way:
        return []
    return [
        f"these triggers may set each other off without end: {' -> '.join(way)}; cascades are bounded, but see that a "
        "condition ends it"
    ]


__all__ = ["cycle", "sets_off", "warnings", "writes"]
