"""A trigger over several nodes, over what was recorded of them: when it would have fired, and what would have crossed.

The owners' and the home's own rules are run over the changes of all nodes, put together by the owners' clocks, in
simulated time: a message takes a stated time, and none is lost. What a transaction leaves is one change, as in a turn.
Heartbeats are those of a link that has one at every `beat`; where nothing has happened since the last, they are left
out: they would say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.errors import ObjectError
from headwater.objects.zones.coordinator import Coordinator, Counts, Terms
from headwater.objects.zones.distribution import condition_of, forms_of, gives_zones
from headwater.objects.zones.messages import Alive, Effects, Fired, FromOwner, ToOwner
from headwater.objects.zones.owner import Owner
from headwater.objects.zones.part_form import Measure, measure_of

if TYPE_CHECKING:
    from headwater.objects.triggers.definition import Trigger
    from headwater.objects.zones.ranges import Value
    from headwater.types import EventType

NEVER = 1 << 61  # nanoseconds: nothing is lost, so that nobody waits for so long
MOST_BEATS = 100_000  # one after the other, without anything that happens
MICROSECOND = 1000
_encode = msgspec.msgpack.Encoder().encode


class Changed(NamedTuple):
    """What a transaction leaves of an object of a node: its raw form, None if it is no more."""

    object: str  # its path
    type: EventType
    raw: Mapping[str, Any] | None
    event: bool = True


class Step(NamedTuple):
    """A transaction of a node, at a time by its clock, in microseconds."""

    node: str
    at: int
    changed: Sequence[Changed]


class Told(NamedTuple):
    """A firing: when it was by the owners' clocks, since when at the earliest, when the home knew of it (microseconds
    all), and what is known of the inputs."""

    time: int
    earliest: int
    known: int
    values: Mapping[str, Any]


class _Site:
    """An owner: the objects that its part is about, and what it does."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.objects: dict[str, tuple[EventType, bytes, Mapping[str, Any]]] = {}
        self.owner: Owner | None = None
        self.changes = 0

    def value(self, object: str) -> tuple[EventType, bytes, Mapping[str, Any]] | None:
        """As much of a `Moment` as measures ask for."""
        return self.objects.get(object)

    def values(self) -> tuple[Value, ...]:
        moment: Any = self
        return self.measure.values(moment)


class Rehearsal:
    """One trigger, made by `spread`. Times within are nanoseconds. `zones` False is the simple scheme."""

    def __init__(
        self,
        trigger: Trigger,
        type_named: Callable[[str], EventType | None],
        *,
        begin: int,
        delay: int,
        beat: int,
        zones: bool = True,
    ) -> None:
        assert trigger.distributed is not None
        self.trigger, self.condition = trigger, condition_of(trigger)
        self._delay, self._beat = max(1, delay * MICROSECOND), max(1, beat * MICROSECOND)
        self._now = begin * MICROSECOND - 2
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._beating = False
        self._idle = 0
        self._latest = self._now
        self.bytes = 0
        self.told: list[Told] = []
        each = trigger.distributed.when == "each"
        self._sites: dict[str, _Site] = {}
        for name, form in forms_of(trigger, self.condition).items():
            site = self._sites[name] = _Site(measure_of(form, type_named))
            site.owner = Owner(site.values(), self._now, each=each)
        self._now += 1
        self._home = Coordinator(
            self.condition,
            self._now,
            terms=Terms(lease=NEVER, retry=4 * self._delay + 1),
            when=trigger.distributed.when,
            zones=zones and gives_zones(trigger, self.condition),
        )
        self._effects(self._home.begin(self._now))

    @property
    def counts(self) -> Counts:
        """Of the home: messages in both directions, zones, questions, heartbeats."""
        return self._home.counts

    @property
    def changes(self) -> dict[str, int]:
        """By owner, the changes that its part was looked at for."""
        return {name: site.changes for name, site in self._sites.items()}

    @property
    def gives_zones(self) -> bool:
        """Whether owners may be silent; else every change crosses."""
        return self._home.gives_zones

    def run(self, steps: Iterable[Step]) -> None:
        """Everything that was recorded, in the order of the clocks; then until all of it is decided."""
        for step in steps:
            self._until(max(self._now, step.at * MICROSECOND))
            site = self._sites.get(step.node)
            if site is not None:
                self._step(step.node, site, step)
        self._until(None)

    def _step(self, name: str, site: _Site, step: Step) -> None:
        """What the transaction leaves is seen first, and then told of each object."""
        mine = [each for each in step.changed if each.object in site.measure.objects]
        for each in mine:
            if each.raw is None:
                site.objects.pop(each.object, None)
            else:
                site.objects[each.object] = each.type, b"", each.raw
        for each in mine:
            assert site.owner is not None
            site.changes += 1
            event = each.event and site.measure.counts(each.object)
            messages = site.owner.changed(site.values(), self._now, event=event)
            self._latest = max(self._latest, site.owner.stamp)
            self._to_home(name, messages)
            self._wake()

    # ── time ──

    def _until(self, end: int | None) -> None:
        """All that is to happen until then, or at all."""
        while self._agenda and (end is None or self._agenda[0][0] <= end):
            self._now, _, do = heappop(self._agenda)
            do()
        if end is not None:
            self._now = end

    def _at(self, delay: int, do: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._agenda, (self._now + delay, self._number, do))

    def _wake(self) -> None:
        """Something has happened: the next heartbeats say so."""
        self._idle = 0
        if not self._beating:
            self._beating = True
            self._at(self._beat - self._now % self._beat, self._beats)

    def _beats(self) -> None:
        """All owners say how far they are; again, if that does not decide it."""
        self._beating = False
        for name, site in self._sites.items():
            assert site.owner is not None
            self._to_home(name, [site.owner.alive(self._now)])
        self._effects(self._home.tick(self._now))
        self._at(self._delay + 1, self._again)

    def _again(self) -> None:
        if self._home.decided < self._latest and not self._beating:
            self._idle += 1
            if self._idle > MOST_BEATS:
                raise ObjectError(
                    f"trigger {self.trigger.name!r}: expected all to be decided after {MOST_BEATS:,} heartbeats, found "
                    "that it is not; say a shorter delay"
                )
            idle = self._idle
            self._wake()
            self._idle = idle

    # ── messages ──

    def _to_home(self, name: str, messages: Sequence[FromOwner]) -> None:
        for message in messages:
            self.bytes += 0 if isinstance(message, Alive) else len(_encode(message))
            self._at(self._delay, lambda message=message: self._heard(name, message))  # type: ignore[misc]

    def _heard(self, name: str, message: FromOwner) -> None:
        self._effects(self._home.received(name, message, self._now))

    def _effects(self, effects: Effects) -> None:
        for happening in effects.happenings:
            if isinstance(happening, Fired):
                values = self.condition.known(happening.area)
                first, known = happening.earliest // MICROSECOND, self._now // MICROSECOND
                self.told.append(Told(happening.time // MICROSECOND, first, known, values))
        for name, message in effects.messages:
            self.bytes += len(_encode(message))
            self._at(self._delay, lambda name=name, message=message: self._asked(name, message))  # type: ignore[misc]

    def _asked(self, name: str, message: ToOwner) -> None:
        site = self._sites[name]
        assert site.owner is not None
        self._to_home(name, site.owner.received(message, self._now))
        self._wake()


def merged(streams: Iterable[Iterator[Step]]) -> Iterator[Step]:
    """Of several nodes, by their clocks; each stream keeps its order, also where its clock was set back."""
    waiting: list[tuple[int, int, Step, Iterator[Step]]] = []
    for number, stream in enumerate(streams):
        if (first := next(stream, None)) is not None:
            heappush(waiting, (first.at, number, first, stream))
    while waiting:
        at, number, step, stream = heappop(waiting)
        yield step
        if (following := next(stream, None)) is not None:
            heappush(waiting, (max(at, following.at), number, following, stream))


__all__ = ["Changed", "Rehearsal", "Step", "Told", "merged"]
