"""Triggers over what was recorded: when they would have fired, by the code that judges them in turns.

A recording has the changes of a node's objects in the order of their turns, and perhaps events of channels. Nothing is
carried out: what actions have changed is in the recording already, if their triggers were at work then. Time goes on
with what is recorded: what is due is judged at the time at which it is, before whatever comes after it.

What a recording cannot say is counted, and not guessed: updates without an event, which show only in what an object was
before its next change, and objects whose value is not known before theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.errors import ObjectError
from headwater.objects.methods import Methods
from headwater.objects.names import object_name
from headwater.objects.reactions import Moment, Notice, Occurrence
from headwater.objects.triggers import happening
from headwater.objects.triggers.deadlines import Deadline
from headwater.objects.triggers.events import Listened
from headwater.objects.triggers.firing import Firing
from headwater.objects.triggers.installed import Counts, Installed, install

if TYPE_CHECKING:
    from headwater.objects.reactions import Fired
    from headwater.objects.triggers.definition import Trigger
    from headwater.objects.triggers.scope import Types
    from headwater.store.migrations import Execute
    from headwater.types import EventType

MOST_TICKS = 10_000_000  # moments that only time brings, over a whole recording
DECODED = 16_384  # objects that are kept decoded
NO_TURN = 0  # of what time or a channel brings: in which turn that was is not recorded


class Change(NamedTuple):
    """A change as it was recorded; values are in their raw form. What is raised may be about one `member`."""

    object: str  # its whole name
    type: EventType
    op: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    turn: int
    at: int
    position: int = 0
    member: str = ""


class Place(NamedTuple):
    """Where a firing stands among others of its time: by turn, transaction, whether it was within that, the event's
    place in the turn, and the firing's among those of the event."""

    turn: int
    step: int
    after: bool
    position: int
    rank: int


class Fire(NamedTuple):
    """A trigger would have fired. `turn` is None for what time or a channel has brought. `message` is the record of the
    notification, if there is one; `vetoed` says that the transaction would not have been."""

    trigger: str
    object: str
    op: str
    time: int
    turn: int | None
    vetoed: bool
    message: bytes | None
    place: Place


@dataclass
class Unknown:
    """What the recording does not say: objects that were changed without an event before a change, objects of which
    the first that is known is a change, and changes whose time is before that of the turn before."""

    silent: int = 0
    unseen: int = 0
    backwards: int = 0

    def __add__(self, other: Unknown) -> Unknown:
        return Unknown(self.silent + other.silent, self.unseen + other.unseen, self.backwards + other.backwards)


def _no_file(statement: str, values: Sequence[Any] = ()) -> Any:
    raise ObjectError(f"replay: expected nothing to be written, found {statement!r}")


class _Recorded(Moment):
    """A transaction of the recording, as triggers see it: the world after it."""

    __slots__ = ("_replay", "at", "brought", "node", "turn")

    node: str
    turn: int
    at: int

    def __init__(self, replay: Replay, turn: int, at: int) -> None:
        self._replay, self.node, self.turn, self.at = replay, replay.node, turn, at
        self.brought: list[Occurrence] = []

    @property
    def execute(self) -> Execute:
        """There is no file, and a replay writes nothing."""
        return _no_file

    def value(self, object: str) -> tuple[EventType, bytes, Mapping[str, Any]] | None:
        return self._replay.value(object)

    def type_name(self, object: str) -> str | None:
        """Only methods ask for it, and there are none."""
        return None

    def notify(self, notice: Notice) -> None:
        """Nothing leaves."""

    def happened(self, object: str, type: EventType, op: str, old: bytes | None, new: bytes | None) -> None:
        before, after = (None if each is None else type.decode_raw(each) for each in (old, new))
        place = len(self.brought)
        self.brought.append(
            Occurrence(object, type, op, old, new, before, after, (), True, self.turn, self.at, place, 0)
        )


class Replay(Firing):
    """The triggers of one node, over what was recorded of it. They are installed at `begin`, before everything, when
    there are the objects that it was told to `hold`."""

    def __init__(self, node: str, triggers: Sequence[Trigger], types: Types, *, begin: int) -> None:
        super().__init__(node, Methods())  # whatever the owner's are: they are not recorded
        self._objects: dict[str, tuple[EventType, bytes]] = {}
        self._decoded: dict[str, Mapping[str, Any]] = {}
        self._due: list[tuple[int, int, Deadline]] = []
        self._when: dict[Deadline, int] = {}
        self._brought_by_time = self._told = 0
        self._now, self._last_turn, self._begun = begin, NO_TURN, False
        self.unknown = Unknown()
        self.deadlines.timer = self
        self.installed = tuple(
            install(msgspec.structs.replace(each, enabled=True), types, node, number)
            for number, each in enumerate(triggers, 1)
        )

    def hold(self, name: str, type: EventType, raw: Mapping[str, Any]) -> None:
        """An object that was there before the recording begins; to be said before everything else."""
        self._put(object_name(name, self.node).object, type, type.encode(raw), raw)

    def _begin(self) -> None:
        self._begun = True
        moment = _Recorded(self, NO_TURN, self._now)
        for each in self.installed:
            self.start(each, self._now)
            self.wait(each, moment)
        self.committed()

    @property
    def counts(self) -> dict[str, Counts]:
        """Of each trigger, as a node counts them."""
        return {each.name: replace(each.counts) for each in self.installed}

    def write(self, execute: Execute) -> None:
        """There is no file."""

    # ── the world ──

    def value(self, path: str) -> tuple[EventType, bytes, Mapping[str, Any]] | None:
        """An object as it is at this point of the recording, as far as that says."""
        found = self._objects.get(path)
        if found is None:
            return None
        raw = self._decoded.get(path)
        if raw is None:
            raw = found[0].decode_raw(found[1])
            self._decode(path, raw)
        return (*found, raw)

    def _decode(self, path: str, raw: Mapping[str, Any]) -> None:
        if len(self._decoded) >= DECODED:
            self._decoded.clear()
        self._decoded[path] = raw

    def _put(self, path: str, type: EventType, record: bytes, raw: Mapping[str, Any]) -> None:
        self._objects[path] = type, record
        self._decode(path, raw)

    # ── what was recorded ──

    def transaction(self, changes: Sequence[Change], step: int = 0) -> Iterator[Fire]:
        """The changes of one transaction, in their order: what fires by them, once all of them are done."""
        first = changes[0]
        if first.turn != self._last_turn:  # time goes on between turns
            yield from self.until(first.at)
            self.unknown.backwards += first.at < self._now
        self._now, self._last_turn = max(self._now, first.at), first.turn
        happened = [self._occurred(each) for each in changes]
        yield from self._judged(happened, _Recorded(self, first.turn, first.at), step, first.turn)

    def received(self, channel: str, type: EventType, record: bytes, at: int) -> Iterator[Fire]:
        """An event of a channel: what fires by it."""
        yield from self.until(at)
        self._now = max(self._now, at)
        yield from self._brought(happening.received(channel, type, record), at)

    def until(self, time: int) -> Iterator[Fire]:
        """The last turn is over, and time goes on: what is due until then."""
        if not self._begun:
            self._begin()
        self.committed()
        while self._due and self._due[0][0] <= time:
            when, _, deadline = heappop(self._due)
            if self._when.get(deadline) != when:
                continue  # it has been moved meanwhile
            del self._when[deadline]
            self._now = max(self._now, when)
            brought = happening.due(self.deadlines, deadline, _Recorded(self, NO_TURN, when))
            self._brought_by_time += 1
            if self._brought_by_time > MOST_TICKS:
                raise ObjectError(
                    f"backtest: expected at most {MOST_TICKS:,} moments that time alone brings, found more, of "
                    f"{deadline.what!r}; give a longer time, or a shorter recording"
                )
            if brought is not None:
                yield from self._brought(brought, when)
            self.committed()

    def at(self, deadline: Deadline, when: int | None) -> None:
        """Something is due then, instead of what was said before."""
        if when is None:
            self._when.pop(deadline, None)
        else:
            self._told += 1
            self._when[deadline] = when
            heappush(self._due, (when, self._told, deadline))

    def _brought(self, brought: happening.Brought, at: int) -> Iterator[Fire]:
        moment = _Recorded(self, NO_TURN, at)
        moment.happened(*brought)
        yield from self._judged(moment.brought, moment, 0, None)

    def _occurred(self, change: Change) -> Occurrence:
        """A change, done in the world."""
        path, type = object_name(change.object, self.node).object, change.type
        old = None if change.old is None else type.encode(change.old)
        new = None if change.new is None else type.encode(change.new)
        known = self._objects.get(path)
        if change.op != "created":
            if known is None:
                self.unknown.unseen += 1
            elif known != (type, old):
                self.unknown.silent += 1
        if new is None or change.new is None:
            self._objects.pop(path, None)
            self._decoded.pop(path, None)
        else:
            self._put(path, type, new, change.new)
        members = (change.member,) if change.member else ()
        return Occurrence(path, type, change.op, old, new, change.old, change.new, members, True, change.turn,
                          change.at, change.position, 0)  # fmt: skip

    def _judged(self, happened: Sequence[Occurrence], moment: Moment, step: int, turn: int | None) -> Iterator[Fire]:
        """As a turn judges: first what is coupled within the transaction, then everything else."""
        for after, judge in enumerate((self.within, self.judge)):
            for occurrence in happened:
                for rank, fired in enumerate(judge(occurrence, moment)):
                    place = Place(moment.turn, step, bool(after), occurrence.position, rank)
                    yield self._fire_of(fired, occurrence, turn, place)

    def _fire_of(self, fired: Fired, occurrence: Occurrence, turn: int | None, place: Place) -> Fire:
        message = fired.notices[0].record if fired.notices and not fired.veto else None
        return Fire(fired.trigger, self.whole(occurrence), str(occurrence.op), occurrence.at, turn, bool(fired.veto),
                    message, place)  # fmt: skip


def separable(installed: Sequence[Installed]) -> bool:
    """Whether each object can be looked at without the others: no trigger reads another than the event's, waits for the
    clock itself, listens to a channel, or has one condition for all its objects."""
    return all(
        each.condition.apart and not each.trigger.inputs and not any(map(_is_apart_from_objects, each.trigger.on))
        for each in installed
    )


def _is_apart_from_objects(listened: Listened) -> bool:
    return listened.kind in ("every", "channel")


__all__ = ["MOST_TICKS", "NO_TURN", "Change", "Fire", "Place", "Replay", "Unknown", "separable"]
