"""The owner's side of a replica, as values and rules only: what has to be told of which object, and when.

    tracker = Tracker(spec, type)
    told, tell = tracker.judge(tracker.told.get("car"), record, raw, at)

`tell`: what was told before is too far from what is true. Otherwise it will do until `told.lasts`: then the model has
gone too far and the value has not, which has to be told though nothing has happened: `corrected`, once, since holders
take it to stay there until they are told otherwise. `messages` does all this over changes that were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from headwater.objects.object_types import member_of
from headwater.objects.replicas.bounds import Bounds, Raw, near
from headwater.objects.replicas.model import Extrapolation

if TYPE_CHECKING:
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType

FOREVER = 1 << 62
_HORIZON = 1 << 50  # microseconds, some 35 years: by then it is looked again


class Told(NamedTuple):
    """What holders of a replica have of an object: its value at a time, and how long that will do."""

    record: bytes
    raw: Raw
    at: int
    turn: int
    still: bool  # whether it stays so, whatever the model says
    lasts: int  # the last microsecond at which it is near enough to what is true, as that is now


class Message(NamedTuple):
    """Something that crosses: what an object is at a time; no record: it is not there any more."""

    at: int
    object: str
    record: bytes | None


class Tracker:
    """Of one replica. `told` is what its holders have; who uses this keeps it."""

    def __init__(self, spec: ReplicaSpec, form: EventType) -> None:
        self.spec, self.form = spec, form
        self.bounds = Bounds(spec, form)
        self.model = Extrapolation(spec.model, form.record)
        self.told: dict[str, Told] = {}

    def judge(self, told: Told | None, record: bytes, raw: Raw, at: int, turn: int = 0) -> tuple[Told, bool]:
        """An object is this from now on: what its holders have then, and whether they have to be told that."""
        if told is not None:
            lasts = self.lasts(told, raw, at)
            if lasts >= at:
                return (told if lasts == told.lasts else told._replace(lasts=lasts)), False
        fresh = Told(record, raw, at, turn, False, FOREVER)
        return fresh._replace(lasts=self.lasts(fresh, raw, at)), True

    def corrected(self, record: bytes, raw: Raw, at: int, turn: int = 0) -> Told:
        """What holders have once they know that an object has not done what the model says."""
        return Told(record, raw, at, turn, True, FOREVER)

    def value(self, told: Told, at: int) -> Raw:
        """What holders take an object for at a time."""
        return told.raw if told.still else self.model.at(told.raw, at - told.at)

    def lasts(self, told: Told, raw: Raw, at: int) -> int:
        """The last time from now on at which what was told is near to this value; before now if it is not."""
        if not self.bounds.within(self.value(told, at), raw):
            return at - 1
        if told.still or not self.model.moves(told.raw):
            return FOREVER
        since = at - told.at
        good, bad = since, since + _HORIZON
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._near(told.raw, middle, raw):
                good = middle
            else:
                bad = middle
        return told.at + good

    def _near(self, told: Raw, elapsed: int, raw: Raw) -> bool:
        """The same as `within`, of what moves only."""
        bounds = self.spec.bounds
        return all(
            near(moved, member_of(raw, path), bounds[path]) for path, moved in self.model.moved(told, elapsed).items()
        )


class Retelling:
    """What would have crossed for a replica of objects, of changes that were recorded, in the order of time."""

    def __init__(self, spec: ReplicaSpec, form: EventType) -> None:
        self.tracker, self.form = Tracker(spec, form), form
        self._now: dict[str, tuple[bytes, Raw]] = {}
        self._due: list[tuple[int, str]] = []

    def change(self, at: int, object: str, record: bytes | None) -> Iterator[Message]:
        """What an object is from then on (None: it is no more): what crosses until then, and by that."""
        yield from self.until(at)
        told = self.tracker.told
        if record is None:
            self._now.pop(object, None)
            if told.pop(object, None) is not None:
                yield Message(at, object, None)
            return
        self._now[object] = record, self.form.decode_raw(record)
        told[object], tell = self.tracker.judge(told.get(object), *self._now[object], at)
        if told[object].lasts < FOREVER:
            heappush(self._due, (told[object].lasts, object))
        if tell:
            yield Message(at, object, record)

    def until(self, time: int) -> Iterator[Message]:
        """What has to be told before then, since the model has gone too far."""
        while self._due and self._due[0][0] < time:
            lasts, object = heappop(self._due)
            known = self.tracker.told.get(object)
            if known is not None and known.lasts == lasts:
                self.tracker.told[object] = self.tracker.corrected(*self._now[object], lasts + 1)
                yield Message(lasts + 1, object, self._now[object][0])


def messages(
    spec: ReplicaSpec, form: EventType, changes: Iterable[tuple[int, str, bytes | None]], until: int | None = None
) -> Iterator[Message]:
    """What would have crossed for a replica of these objects, of changes in the order of time: when, which object, and
    what it is then (a record, None if it is no more). After the last change, what the model makes necessary up to a
    time."""
    retelling = Retelling(spec, form)
    for change in changes:
        yield from retelling.change(*change)
    if until is not None:
        yield from retelling.until(until)


__all__ = ["FOREVER", "Message", "Retelling", "Told", "Tracker", "messages"]
