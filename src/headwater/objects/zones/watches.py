"""The owner's side of triggers of other nodes: what they have this node measure, in its turns and in its file.

Every change of an object that is measured is seen in its turn, silent ones too. Where it is to be reported, what the
owner knows is written in the SQLite transaction of the turn, and the report leaves when that is durable; if the turn is
undone, nothing of it has been. What a home says comes as an errand, in the same queue.

Between turns `standings` says where everybody stands, which is what heartbeats carry. Of what is not durable yet they
say nothing: it may still be undone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, ObjectError
from headwater.objects.observers import Errand, Observer
from headwater.objects.operations import Administer
from headwater.objects.zones import tables
from headwater.objects.zones.messages import FromOwner, Standing, ToOwner
from headwater.objects.zones.owner import Owner, OwnerState
from headwater.objects.zones.part_form import Measure, measure_of

if TYPE_CHECKING:
    from headwater.objects.reactions import Moment, Occurrence

MOST_WATCHES = 1_000  # of one home
PREPARED = 256  # parts that were checked, and wait for their turn
Place = tuple[str, bytes]  # a home, and its key for a watch
_encode = msgspec.msgpack.Encoder().encode
_state = msgpack_decoder(OwnerState).decode
_message = msgpack_decoder(ToOwner).decode
_pair = msgpack_decoder(tuple[bytes, bytes]).decode
_ended = msgpack_decoder(tuple[bytes, str]).decode


class Homeward(Protocol):
    """Who carries messages to homes."""

    def to_home(self, home: str, key: bytes, message: FromOwner) -> None:
        """It may be lost. Nothing here may wait."""
        ...

    def gone(self, home: str, key: bytes, why: str) -> None:
        """Nothing is measured for it here; nor will be, if there is a reason."""
        ...


class Watched:
    """What is measured for one trigger."""

    __slots__ = ("form", "measure", "owner", "place")

    def __init__(self, place: Place, form: bytes, measure: Measure, owner: Owner) -> None:
        self.place, self.form, self.measure, self.owner = place, form, measure, owner


class Watches(Observer):
    """Of one node. Turns, and whoever has heartbeats sent, are here."""

    tables = tables.ZONES

    def __init__(self, now: Callable[[], int], error: int = 0) -> None:
        """`now`, and how far this node's clock may be from the true time, as is stated: in nanoseconds."""
        super().__init__()
        self._now, self._error = now, error
        self.carrier: Homeward | None = None
        self._lock = threading.Lock()  # of owners: turns change them, heartbeats move their stamps
        self._all: dict[Place, Watched] = {}
        self._by_object: dict[str, dict[Place, Watched]] = {}
        self._last = 0
        self._leaving: list[tuple[Place, FromOwner | str]] = []
        self._unsettled: set[Place] = set()  # of which something is not durable yet
        self._late: set[Place] = set()  # of these, heartbeats that are due
        self.lost: dict[Place, str] = {}  # watches of the file that cannot be run any more, and why
        self.reported = 0
        self._prepared: dict[bytes, Measure] = {}

    def prepare(self, form: bytes) -> None:
        """Check a part before its turn, which need not do so then; ObjectError with what is wrong with it."""
        made = measure_of(form, self.type_named)
        with self._lock:
            self._prepared[form] = made
            while len(self._prepared) > PREPARED:
                del self._prepared[next(iter(self._prepared))]

    @property
    def errands(self) -> Mapping[str, Errand]:
        return {"zones watch": self._watch, "zones tell": self._tell, "zones end": self._end}

    # ── the file ──

    def open(self, moment: Moment) -> None:
        """Each goes on with the values as they are; it has not left its zone since it was written."""
        self._last = tables.last_stamp(moment.execute)
        for home, key, form, state in tables.watches(moment.execute):
            try:
                measure = measure_of(form, self.type_named)
                each = measure.form.each
                owner = Owner.restore(
                    _state(state), measure.values(moment), 1000 * moment.at, error=self._error, each=each
                )
            except (HeadwaterError, msgspec.DecodeError, ValueError) as error:
                self.lost[home, key] = str(error)
                continue
            self._add(Watched((home, key), form, measure, owner))
            tables.keep_watch(moment.execute, home, key, _encode(owner.snapshot()))

    def _add(self, watched: Watched) -> None:
        self._all[watched.place] = watched
        for object in watched.measure.objects:
            self._by_object.setdefault(object, {})[watched.place] = watched

    def _remove(self, watched: Watched) -> None:
        self._all.pop(watched.place, None)
        for object in watched.measure.objects:
            many = self._by_object.get(object, {})
            many.pop(watched.place, None)
            if not many:
                self._by_object.pop(object, None)

    # ── in turns ──

    def changed(self, occurrence: Occurrence, moment: Moment) -> None:
        """A transaction has changed an object: what it leaves is what counts."""
        many = self._by_object.get(occurrence.object)
        if many is None:
            return
        for watched in list(many.values()):
            values = watched.measure.values(moment)
            event = occurrence.event and watched.measure.counts(occurrence.object)
            with self._lock:
                owner = self._touched(watched)
                messages = owner.changed(values, 1000 * moment.at, event=event)
            self._settle(watched, messages, moment, keep=bool(messages))

    def _touched(self, watched: Watched) -> Owner:
        """The owner, to be changed within this turn, which may be taken back."""
        before = watched.owner
        owner = watched.owner = before.copy()
        self._unsettled.add(watched.place)

        def back() -> None:
            watched.owner = before

        self.journal.did(back)
        return owner

    def _settle(self, watched: Watched, messages: Sequence[FromOwner], moment: Moment, *, keep: bool) -> None:
        """Written before anything is sent."""
        if keep:
            tables.keep_watch(moment.execute, *watched.place, _encode(watched.owner.snapshot()))
        for message in messages:
            self.reported += 1
            self._leave(watched.place, message)

    def _leave(self, place: Place, message: FromOwner | str) -> None:
        self._leaving.append((place, message))
        self.journal.did(self._leaving.pop)

    def _watch(self, operation: Administer, moment: Moment) -> None:
        """A home has something measured; the same again changes nothing. What cannot be is told to it."""
        key, form = _pair(operation.body)
        place = operation.name, key
        if place in self._all:
            return
        with self._lock:
            prepared = self._prepared.pop(form, None)
        try:
            measure = prepared or measure_of(form, self.type_named)
            if sum(home == operation.name for home, _ in self._all) >= MOST_WATCHES:
                raise ObjectError(f"expected at most {MOST_WATCHES:,} triggers of a node, found as many; remove some")
        except ObjectError as error:
            self._leave(place, str(error))
            return
        now = max(1000 * moment.at, self._last + 1)
        owner = Owner(measure.values(moment), now, error=self._error, each=measure.form.each)
        watched = Watched(place, form, measure, owner)
        self.lost.pop(place, None)
        with self._lock:
            self._add(watched)
            self._unsettled.add(place)
        self.journal.did(lambda: self._remove(watched))
        tables.add_watch(moment.execute, *place, form, _encode(owner.snapshot()))

    def _tell(self, operation: Administer, moment: Moment) -> None:
        """A question or a zone of a home."""
        key, body = _pair(operation.body)
        place = operation.name, key
        watched = self._all.get(place)
        if watched is None:
            self._leave(place, "")
            return
        message = _message(body)
        with self._lock:
            owner = self._touched(watched)
            messages = owner.received(message, 1000 * moment.at)
        self._settle(watched, messages, moment, keep=True)

    def _end(self, operation: Administer, moment: Moment) -> None:
        """Nobody wants it measured any more, or may. What is said of that is in the body."""
        key, why = _ended(operation.body)
        place = operation.name, key
        watched = self._all.get(place)
        stamp = 0 if watched is None else watched.owner.stamp
        if watched is not None:
            with self._lock:
                self._remove(watched)
            self.journal.did(lambda: self._add(watched))
            before, self._last = self._last, max(self._last, stamp)
            self.journal.did(lambda: setattr(self, "_last", before))
        tables.end_watch(moment.execute, *place, stamp)
        if why:
            self._leave(place, why)

    def committed(self) -> None:
        """What was written may be said."""
        if not (self._leaving or self._unsettled or self._late):  # only turns add to these, and late are unsettled ones
            return
        with self._lock:
            leaving, self._leaving = self._leaving, []
            self._unsettled.clear()
            late, self._late = self._late, set()
        carrier = self.carrier
        if carrier is None:
            return
        for (home, key), message in leaving:
            if isinstance(message, str):
                carrier.gone(home, key, message)
            else:
                carrier.to_home(home, key, message)
        for (home, key), watched in [(place, self._all[place]) for place in late if place in self._all]:
            with self._lock:
                alive = watched.owner.alive(self._now())
            carrier.to_home(home, key, alive)

    def forget(self) -> None:
        """The journal has put back what was noted in it."""
        with self._lock:
            self._leaving.clear()
            self._unsettled.clear()

    # ── between turns ──

    def standings(self) -> dict[str, list[tuple[bytes, Standing]]]:
        """Where everybody stands, by home. Who has something on its way to the file says so when it is there."""
        found: dict[str, list[tuple[bytes, Standing]]] = {}
        now = self._now()
        with self._lock:
            for place, watched in self._all.items():
                if place in self._unsettled:
                    self._late.add(place)
                else:
                    found.setdefault(place[0], []).append((place[1], watched.owner.alive(now).standing))
        return found

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[tuple[Place, Measure]]:
        with self._lock:
            return iter([(place, each.measure) for place, each in self._all.items()])

    def owner(self, place: Place) -> Owner:
        """Of a watch that there is: where it stands."""
        return self._all[place].owner

    def __contains__(self, place: object) -> bool:
        return place in self._all

    def report(self) -> dict[str, Any]:
        """What is measured for others."""
        return {"watched": len(self._all), "reported": self.reported, "unreadable": len(self.lost)}


def watching(home: str, key: bytes, form: bytes) -> Administer:
    """The operation by which a home has something measured."""
    return Administer("zones watch", home, _encode((key, form)))


def telling(home: str, key: bytes, message: ToOwner) -> Administer:
    """The operation of a question or a zone."""
    return Administer("zones tell", home, _encode((key, _encode(message))))


def ending(home: str, key: bytes, why: str = "") -> Administer:
    """The operation by which nothing is measured any more; with a reason, the home is told."""
    return Administer("zones end", home, _encode((key, why)))


__all__ = ["MOST_WATCHES", "Homeward", "Watches", "ending", "telling", "watching"]
