"""What a node remembers of replicas of its objects, and tells their holders: an observer of all changes.

When a turn ends, each object that it has changed is held against what the holders of each replica were told of it. What
is too far off is told, once for all of them, as an event that leaves with the turn: holders see whole turns, in order.
Nobody else may have the time of a turn that is told of, and no turn may come before a time up to which holders were
promised that they know all: see `TurnClock`.

A replica has holders for as long as these say so now and then. Nothing is told at its beginning: who holds it reads
what the others have (`replica_told`), and listens from before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.objects.names import NamePattern
from headwater.objects.object_types import packed, unpacked
from headwater.objects.observers import Observer
from headwater.objects.operations import Administer
from headwater.objects.reactions import Moment, Notice, Occurrence
from headwater.objects.replicas import spec as specs
from headwater.objects.replicas import tables
from headwater.objects.replicas.tracker import FOREVER, Told, Tracker

if TYPE_CHECKING:
    from headwater.objects.observers import Errand
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType

MOST_REPLICAS = 4_096  # of a node's objects
MOST_HELD = 256  # by one other node
MOST_OBJECTS = 10_000  # in one
MOST_OBJECTS_HELD = 100_000  # by one other node, in all of its replicas together
TOOK = "took"  # the result of holding one: nanoseconds of the processor
HOLD, RELEASE, DUE = "hold replica", "release replica", "replicas due"


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a replica, and for how many microseconds that is certain."""

    spec: bytes
    holder: str
    lease: int


_HOLDING = msgpack_decoder(Holding)


class Held:
    """A replica, with its holders."""

    def __init__(self, spec: ReplicaSpec, form: EventType) -> None:
        self.spec, self.number, self.pattern = spec, spec.number, NamePattern(spec.pattern)
        self.tracker, self.type = Tracker(spec, form), specs.told_type(form)
        self.channel = spec.channel
        self.holders: dict[str, int] = {}
        self.last = 0  # the turn that was told of last; not known after a restart

    def wants(self, object: str, form: EventType) -> bool:
        """Whether an object is one of its."""
        own = self.tracker.form
        return (own is form or own == form) and self.pattern.matches(object)


Line = tuple[str, Told | None]  # what is told of an object; None: it is no more


class Replicas(Observer):
    """Of one node. All of it is of the thread that runs turns, but for `cap`."""

    tables = tables.REPLICAS

    def __init__(self, type_named: Callable[[str], EventType | None]) -> None:
        super().__init__()
        self._type_named = type_named
        self.held: dict[int, Held] = {}
        self._of: dict[str, dict[int, Held]] = {}  # by object, the replicas that have it
        self._dirty: dict[str, bool] = {}  # objects that may be others than before the turn; whether one is new
        self._due: list[tuple[int, int, str]] = []  # when a model goes too far: the last good time, of which, of what
        self._armed = FOREVER  # for when the clock was set
        self.wake: Callable[[int], None] = lambda when: None  # has DUE run at that time
        self.cap = FOREVER  # the last time at which all that was told is near enough; of what is committed
        self.latest = 0  # the time of the last turn that was told of, in a life before
        self.told = self.spared = 0  # counts, for reports

    @property
    def errands(self) -> Mapping[str, Errand]:
        return {HOLD: self._hold, RELEASE: self._release, DUE: self._was_due}

    # ── what is there already ──

    def open(self, moment: Moment) -> None:
        """Replicas of a life before: their holders go on."""
        for _, body, form in tables.replicas(moment.execute):
            held = Held(specs.unpack(body), unpacked(form))
            held.holders = tables.holders(moment.execute, held.number)
            self.held[held.number] = held
            for object, record, at, turn, still in tables.told(moment.execute, held.number):
                raw = held.tracker.form.decode_raw(record)
                found, told = moment.value(object), Told(record, raw, at, turn, bool(still), FOREVER)
                if found is not None:
                    told = told._replace(lasts=held.tracker.lasts(told, found[2], max(at, moment.at)))
                self._set(held, object, told)
                self.latest = max(self.latest, at)

    # ── within a turn ──

    def changed(self, occurrence: Occurrence, moment: Moment) -> None:
        """Noted only: what it is at the end of the turn is what matters."""
        if occurrence.op == "created":
            if self.held:
                self._dirty[occurrence.object] = True
        elif occurrence.object in self._of:
            self._dirty.setdefault(occurrence.object, False)

    def ended(self, moment: Moment) -> bool:
        """The turn is done: tell what is too far off; whether anything was told."""
        if not self._dirty and (not self._due or self._due[0][0] >= moment.at):
            return False
        lines: dict[int, dict[str, Told | None]] = {}
        dirty, self._dirty = self._dirty, {}
        for object, new in dirty.items():
            self._look(object, new, moment, lines)
        while self._due and self._due[0][0] < moment.at:
            self._correct(*self._due[0], moment, lines)
            heappop(self._due)  # not before: should that fail, it is still due
        for number, told in lines.items():
            self._tell(self.held[number], list(told.items()), moment)
        return bool(lines)

    def _look(self, object: str, new: bool, moment: Moment, lines: dict[int, dict[str, Told | None]]) -> None:
        """What of an object is to be told."""
        found = moment.value(object)
        for held in list(self._of.get(object, {}).values()):
            if found is None or not held.wants(object, found[0]):
                self._note(held, object, None, moment)
                lines.setdefault(held.number, {})[object] = None
                continue
            before = held.tracker.told[object]
            told, tell = held.tracker.judge(before, found[1], found[2], moment.at, moment.turn)
            if tell:
                self._note(held, object, told, moment)
                lines.setdefault(held.number, {})[object] = told
            else:
                self.spared += 1
                if told is not before:
                    self._set(held, object, told)
                    self._can_undo(held, object, before)
        if new and found is not None:
            for held in self.held.values():
                if object not in held.tracker.told and held.wants(object, found[0]):
                    told, _ = held.tracker.judge(None, found[1], found[2], moment.at, moment.turn)
                    self._note(held, object, told, moment)
                    lines.setdefault(held.number, {})[object] = told

    def _correct(
        self, lasts: int, number: int, object: str, moment: Moment, lines: dict[int, dict[str, Told | None]]
    ) -> None:
        """The model has gone too far, and the object has not."""
        held = self.held.get(number)
        known = None if held is None else held.tracker.told.get(object)
        found = moment.value(object)
        if held is None or known is None or known.lasts != lasts or found is None:
            return
        told = held.tracker.corrected(found[1], found[2], moment.at, moment.turn)
        self._note(held, object, told, moment)
        lines.setdefault(number, {})[object] = told

    def _note(self, held: Held, object: str, told: Told | None, moment: Moment) -> None:
        """What holders have of an object from now on, here and in the file."""
        before = held.tracker.told.get(object)
        self._set(held, object, told)
        self._can_undo(held, object, before)
        if told is None:
            tables.untell(moment.execute, held.number, object)
        else:
            row = object, told.record, told.at, told.turn, int(told.still)
            tables.tell(moment.execute, held.number, row)

    def _can_undo(self, held: Held, object: str, before: Told | None) -> None:
        self.journal.did(lambda: self._set(held, object, before))

    def _set(self, held: Held, object: str, told: Told | None) -> None:
        if told is None:
            held.tracker.told.pop(object, None)
            of = self._of.get(object)
            if of is not None:
                of.pop(held.number, None)
                if not of:
                    del self._of[object]
            return
        held.tracker.told[object] = told
        self._of.setdefault(object, {})[held.number] = held
        if told.lasts < FOREVER:
            heappush(self._due, (told.lasts, held.number, object))

    def _tell(self, held: Held, lines: list[Line], moment: Moment) -> None:
        """One event for each object, all of one turn; or that it is over, since it has come to be too much, or since
        nobody has said for long that he holds it."""
        gone = [holder for holder, until in held.holders.items() if until < moment.at]
        if len(held.tracker.told) > MOST_OBJECTS or len(gone) == len(held.holders):
            self._end(held, moment)
            return
        last, held.last = held.last, moment.turn
        self.journal.did(lambda: setattr(held, "last", last))
        for left, (object, told) in zip(range(len(lines) - 1, -1, -1), lines, strict=True):
            self.told += 1
            self._say(held, object, told, last, left, moment)

    def _say(self, held: Held, object: str, told: Told | None, last: int, left: int, moment: Moment) -> None:
        event = {
            "replica": held.number,
            "object": object,
            "value": None if told is None else told.raw,
            "still": told is not None and told.still,
            "at": moment.at,
            "turn": moment.turn,
            "after": last,
            "more": left,
        }
        moment.notify(Notice(held.channel, held.type, held.type.encode(event)))

    def _end(self, held: Held, moment: Moment) -> None:
        """It is no more; holders that there still are may ask for it again."""
        self._say(held, "", None, held.last, 0, moment)
        self._drop(held, moment)

    def _drop(self, held: Held, moment: Moment) -> None:
        tables.remove(moment.execute, held.number)
        for object, told in list(held.tracker.told.items()):
            self._set(held, object, None)
            self._can_undo(held, object, told)
        del self.held[held.number]
        self.journal.did(lambda: self.held.__setitem__(held.number, held))

    # ── errands ──

    def _hold(self, operation: Administer, moment: Moment) -> Any:
        """A node holds a replica, from now on or still: how much of the turn that has taken, in nanoseconds."""
        began = thread_time_ns()
        asked = _HOLDING.decode(operation.body)
        spec = specs.unpack(asked.spec)
        self._sweep(moment)
        held = self.held.get(spec.number)
        if held is None:
            held = self._begin(spec, asked.holder, moment)
        elif held.tracker.spec != spec:
            raise ObjectError("replica: expected another, found one of the same number; change a bound a little")
        self._check_room(asked.holder, held)
        until, before = moment.at + asked.lease, held.holders.get(asked.holder)
        held.holders[asked.holder] = until
        tables.hold(moment.execute, held.number, asked.holder, until)
        self.journal.did(lambda: _put_back(held.holders, asked.holder, before))
        return thread_time_ns() - began

    def _begin(self, spec: ReplicaSpec, holder: str, moment: Moment) -> Held:
        """All objects that it is of are in it; nobody is told of that."""
        form = self._type_named(spec.type)
        if form is None:
            raise ObjectError(f"replica: expected a type of objects, found {spec.type!r}")
        specs.check(spec, form)
        if spec.owner != moment.node:
            raise ObjectError(f"replica: expected objects of //{moment.node}/…, found {spec.pattern!r}")
        if len(self.held) >= MOST_REPLICAS:
            raise ObjectError(f"replica: expected at most {MOST_REPLICAS:,} of a node's objects, found as many")
        held = self.held[spec.number] = Held(spec, form)
        self.journal.did(lambda: self.held.pop(held.number))
        tables.add(moment.execute, held.number, specs.pack(spec), packed(form))
        prefix, after, types = held.pattern.prefix, "", self.numbers_of(form)
        while names := tables.objects_from(moment.execute, types, prefix, after):
            for name in names:
                found = moment.value(name)
                if found is not None and held.wants(name, found[0]):
                    told, _ = held.tracker.judge(None, found[1], found[2], moment.at, moment.turn)
                    self._note(held, name, told, moment)
            after = names[-1]
            if len(held.tracker.told) > MOST_OBJECTS:
                raise ObjectError(
                    f"replica: expected at most {MOST_OBJECTS:,} objects in one, found more; ask for several, of fewer"
                )
        return held

    def _check_room(self, holder: str, held: Held) -> None:
        own = {each.number: each for each in self.held.values() if holder in each.holders} | {held.number: held}
        if len(own) > MOST_HELD:
            raise ObjectError(f"replica: expected at most {MOST_HELD:,} of one node, found more; close some")
        objects = sum(len(each.tracker.told) for each in own.values())
        if objects > MOST_OBJECTS_HELD:
            raise ObjectError(
                f"replica: expected at most {MOST_OBJECTS_HELD:,} objects in all of a node's, found {objects:,}"
            )

    def _release(self, operation: Administer, moment: Moment) -> Any:
        """A node holds a replica no more; one that nobody holds is no more."""
        asked = _HOLDING.decode(operation.body)
        held = self.held.get(specs.unpack(asked.spec).number)
        if held is None or asked.holder not in held.holders:
            return None
        before = held.holders.pop(asked.holder)
        self.journal.did(lambda: held.holders.__setitem__(asked.holder, before))
        tables.release(moment.execute, held.number, asked.holder)
        if not held.holders:
            self._end(held, moment)
        return None

    def _sweep(self, moment: Moment) -> None:
        """Replicas that nobody has said to hold for long are no more."""
        for held in list(self.held.values()):
            if held.holders and all(until < moment.at for until in held.holders.values()):
                self._end(held, moment)

    def _was_due(self, operation: Administer, moment: Moment) -> Any:
        """The clock says that a model may have gone too far: the end of this turn looks."""
        self._armed = FOREVER

    def holds_type(self, type: str) -> bool:
        """Whether there are replicas of objects of a type."""
        return any(held.tracker.spec.type == type for held in self.held.values())

    # ── after a commit ──

    def committed(self) -> None:
        """What is told is durable, and how long it will do is known; the clock is set for when it does not."""
        while self._due:
            lasts, number, object = self._due[0]
            held = self.held.get(number)
            known = None if held is None else held.tracker.told.get(object)
            if known is not None and known.lasts == lasts:
                break
            heappop(self._due)
        self.cap = self._due[0][0] if self._due else FOREVER
        if self.cap != self._armed:
            self._armed = self.cap
            if self.cap < FOREVER:
                self.wake(self.cap + 1)

    def forget(self) -> None:
        """What was noted is put back by the journal; the clock is set again with the next commit."""
        self._armed = FOREVER
        self._dirty.clear()

    def report(self) -> dict[str, int]:
        """How many replicas there are, what was told, and how often a change had not to be."""
        return {"replicas": len(self.held), "told": self.told, "spared": self.spared}


def _put_back(holders: dict[str, int], holder: str, before: int | None) -> None:
    if before is None:
        holders.pop(holder, None)
    else:
        holders[holder] = before


def holding(spec: ReplicaSpec, holder: str, lease: int) -> Administer:
    """The operation by which a node holds a replica for so many microseconds more; its result: how long it took."""
    return Administer(HOLD, spec.type, msgspec.msgpack.encode(Holding(specs.pack(spec), holder, lease)), TOOK)


def releasing(spec: ReplicaSpec, holder: str) -> Administer:
    """The operation by which a node holds one no more."""
    return Administer(RELEASE, spec.type, msgspec.msgpack.encode(Holding(specs.pack(spec), holder, 0)))


def due() -> Administer:
    """The operation of a clock."""
    return Administer(DUE, "replicas")


__all__ = ["MOST_HELD", "MOST_OBJECTS", "MOST_REPLICAS", "TOOK", "Held", "Replicas", "due", "holding", "releasing"]
