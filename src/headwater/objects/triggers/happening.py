"""What happens to no object in particular, told as if it did: a tick of the clock, an event of a channel, silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.objects.names import object_name
from headwater.objects.triggers.scope import TICK

if TYPE_CHECKING:
    from headwater.objects.reactions import Moment
    from headwater.objects.triggers.deadlines import Deadline, Deadlines
    from headwater.objects.triggers.events import Listened
    from headwater.types import EventType


class Brought(NamedTuple):
    """What `Moment.happened` takes: what it is about, its type, what happened, and the record before and after."""

    object: str
    type: EventType
    op: str
    old: bytes | None
    new: bytes | None


def due(deadlines: Deadlines, deadline: Deadline, moment: Moment) -> Brought | None:
    """What has been waited for long enough, at this moment; None if nothing has, or what it is of is no more."""
    since = deadlines.since(deadline)
    listened = deadlines.over(deadline, moment.at)
    if listened is None:
        return None
    if listened.kind == "every":
        return ticked(listened, moment.at, since or 0)
    return unchanged(deadline.object, deadline.what, moment)


def ticked(listened: Listened, now: int, since: int) -> Brought:
    """`every`: the time, and how many lengths of it have gone by since the last tick."""
    record = TICK.encode({"time": now, "count": max(1, (now - since) // listened.length)})
    return Brought(listened.subject, TICK, "ticked", None, record)


def unchanged(object: str, what: str, moment: Moment) -> Brought | None:
    """An object has not changed for so long; None if it is no more."""
    path = object_name(object).object
    found = moment.value(path)
    return None if found is None else Brought(path, found[0], what, found[1], found[1])


def received(channel: str, type: EventType, record: bytes) -> Brought:
    """An event of a channel."""
    type.validate(record)
    return Brought(channel, type, "received", None, record)
