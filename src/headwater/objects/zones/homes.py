"""The home's side: each trigger of this node over values of several nodes has a `Home`, which hears the owners.

What is decided becomes an errand of the node's queue, one at a time for each trigger: in one turn the state of the
coordinator is written, and what it says happens. A firing is an event of that turn, which the trigger listens to, so
that action and notification are as of any other trigger. If the turn is undone because of what the action leads to, all
but the firing is written again, and the failure is told. If it cannot be written at all, the home goes back to what it
last wrote, and asks its owners anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ClosedError, HeadwaterError
from headwater.objects.observers import Errand, Observer
from headwater.objects.operations import Administer, Outcome, Transaction
from headwater.objects.reactions import Notice
from headwater.objects.triggers.distributed import FIRED, VALUES
from headwater.objects.triggers.firing import CHANNEL
from headwater.objects.zones import tables
from headwater.objects.zones.coordinator import CoordinatorState, Terms
from headwater.objects.zones.home import Home
from headwater.objects.zones.messages import Fired, FromOwner, Happening, Known, ToOwner, Unknown
from headwater.types import event_type
from headwater.types.model import BOOL, TEXT, TIMESTAMP, Field, Record

if TYPE_CHECKING:
    from headwater.objects.reactions import Moment, Told
    from headwater.objects.triggers.administration import Triggers
    from headwater.objects.triggers.installed import Installed

CERTAINTY = event_type(
    Record(
        "Certainty",
        (
            Field("trigger", TEXT),
            Field("known", BOOL),
            Field("unknown_since", TIMESTAMP),
            Field("since", TIMESTAMP, True),
            Field("holds", BOOL, True),
            Field("why", TEXT, True),
        ),
    )
)
_encode = msgspec.msgpack.Encoder().encode
_state = msgpack_decoder(CoordinatorState).decode
Decided = tuple[bytes, bytes, list[Happening]]
_decided = msgpack_decoder(Decided).decode
_number = msgpack_decoder(int).decode


class Ownerward(Protocol):
    """Who carries messages to owners, by their nodes' names. Nothing here may wait; what is sent may be lost."""

    def watch(self, node: str, key: bytes, form: bytes) -> None:
        """Have something measured there."""
        ...

    def to_owner(self, node: str, key: bytes, message: ToOwner) -> None:
        """A question, or a zone."""
        ...

    def end(self, node: str, key: bytes) -> None:
        """Nothing is to be measured any more."""
        ...

    def later(self, task: Callable[[], object]) -> None:
        """Have something done soon by a thread of its own, in order."""
        ...


Submit = Callable[[Transaction, "Told"], object]


class Homes(Observer):
    """Of one node. Turns are here, and the thread that hears owners."""

    def __init__(self, now: Callable[[], int], terms: Terms) -> None:
        """`now` goes forward only, in nanoseconds."""
        super().__init__()
        self._now, self.terms = now, terms
        self._triggers: Triggers | None = None
        self._submit: Submit | None = None
        self.carrier: Ownerward | None = None
        self._lock = threading.RLock()
        self._states: dict[int, tuple[bytes, CoordinatorState]] = {}  # as the file has them, by trigger
        self._homes: dict[int, Home] = {}
        self._by_key: dict[bytes, Home] = {}
        self._seen: object = None  # the triggers of several nodes, as they were looked at
        self._looked = False  # whether all triggers of the file are known
        self.strange = 0  # messages that could be nobody's

    def attach(self, triggers: Triggers, submit: Submit) -> None:
        """The triggers of this node, and its queue."""
        self._triggers, self._submit = triggers, submit

    def start(self, carrier: Ownerward) -> None:
        """Go on with all triggers there are."""
        self.carrier = carrier
        carrier.later(self._look)

    @property
    def errands(self) -> Mapping[str, Errand]:
        return {"zones decided": self._in_turn, "zones over": self._over}

    def open(self, moment: Moment) -> None:
        for number, fingerprint, state in tables.homes(moment.execute):
            with suppress(msgspec.DecodeError, ValueError):
                self._states[number] = fingerprint, _state(state)

    # ── triggers come and go ──

    def committed(self) -> None:
        """Triggers may have come, changed or gone."""
        if self.carrier is None or self._triggers is None or self._triggers.registry.spread is self._seen:
            return
        self._seen = self._triggers.registry.spread
        self.carrier.later(self._look)

    def _wanted(self) -> dict[tuple[int, bytes], Installed]:
        if self._triggers is None:
            return {}
        return {
            (each.number, each.trigger.fingerprint): each
            for each in self._triggers.registry.spread.values()
            if each.trigger.enabled
        }

    def _look(self) -> None:
        """Begin with those that are new, and end those that are no more."""
        assert self.carrier is not None
        wanted = self._wanted()
        with self._lock:
            self._looked = True
            for home in list(self._homes.values()):
                if (home.number, home.fingerprint) not in wanted:
                    self._drop(home)
            for (number, fingerprint), installed in wanted.items():
                if number not in self._homes:
                    self._take(installed, number, fingerprint)

    def _take(self, installed: Installed, number: int, fingerprint: bytes) -> None:
        known = self._states.get(number)
        state = known[1] if known is not None and known[0] == fingerprint else None
        after = known[1].term if known is not None else 0
        try:
            home = Home(installed, fingerprint, state, after, self._now(), self.terms)
        except HeadwaterError as error:  # it was sound when it was installed
            installed.counts.failed += 1
            installed.counts.failure = " ".join(str(error).split())
            return
        self._homes[number] = self._by_key[home.key] = home
        home.waiting = True  # its term has to be in the file before anybody hears of it
        self._write(home)

    def _drop(self, home: Home) -> None:
        assert self.carrier is not None
        del self._homes[home.number]
        self._by_key.pop(home.key, None)
        for node in home.forms:
            self.carrier.end(node, home.key)
        self._states.pop(home.number, None)
        self._run(Administer("zones over", home.name, _encode(home.number)), lambda outcome: None)

    def _run(self, operation: Administer, told: Told) -> None:
        assert self._submit is not None
        with suppress(ClosedError):
            self._submit(Transaction((operation,)), told)

    def _over(self, operation: Administer, moment: Moment) -> None:
        """Its state is not needed any more, unless it is at work again."""
        number = _number(operation.body)
        if number not in self._homes:
            tables.end_home(moment.execute, number)

    # ── what owners say ──

    def received(self, node: str, key: bytes, message: FromOwner) -> None:
        """A message of an owner; one that can be nobody's is counted."""
        with self._lock:
            home = self._by_key.get(key)
            if home is None or node not in home.forms:
                self.strange += 1
                if home is None and self.carrier is not None and self._looked:
                    self.carrier.end(node, key)  # it is of a trigger that is no more
                return
            if home.starting:
                return
            now = self._now()
            if not home.believable(node, message, now):
                self.strange += 1
                return
            home.refused.pop(node, None)
            self._carry(home, home.coordinator.received(node, message, now))

    def gone(self, node: str, key: bytes, why: str) -> None:
        """An owner measures nothing for a trigger: it is asked to, unless it has just been, or does not want to."""
        with self._lock:
            home = self._by_key.get(key)
            if home is None or node not in home.forms or self.carrier is None or home.starting:
                return
            if why:
                home.refused[node] = why[:500]
            if home.may_ask(node, self._now(), patient=bool(why)):
                self.carrier.watch(node, home.key, home.forms[node])

    def tick(self) -> None:
        """Time passed."""
        with self._lock:
            now = self._now()
            for home in list(self._homes.values()):
                if home.broken:
                    self._again(home, now)
                elif not home.starting:
                    self._carry(home, home.coordinator.tick(now))
                    if home.is_late(now):
                        self._write(home)

    def keys(self) -> dict[str, list[bytes]]:
        """By owner, what it measures for triggers of this node."""
        found: dict[str, list[bytes]] = {}
        with self._lock:
            for home in self._homes.values():
                for node in home.forms:
                    found.setdefault(node, []).append(home.key)
        return found

    def __len__(self) -> int:
        return len(self._homes)

    def named(self, name: str) -> Home | None:
        """By the trigger's name, if it is at work."""
        return next((each for each in list(self._homes.values()) if each.name == name), None)

    # ── what comes of it ──

    def _carry(self, home: Home, effects: Any) -> None:
        """Messages go at once: an owner goes by the term, which is in the file. What happened is written first."""
        assert self.carrier is not None
        for node, message in effects.messages:
            self.carrier.to_owner(node, home.key, message)
        home.happenings += effects.happenings
        if home.happenings and not home.waiting:
            self._write(home)

    def _write(self, home: Home) -> None:
        """Have the state written with all that has happened until it, in one turn."""
        happened, home.happenings = home.happenings, []
        state = home.coordinator.snapshot()
        home.waiting, home.written_at = True, self._now()
        body = _encode((home.fingerprint, _encode(state), happened))

        def told(outcome: Outcome | BaseException) -> None:
            assert self.carrier is not None
            self.carrier.later(partial(self._settled, home, state, happened, outcome))

        self._run(Administer("zones decided", home.name, body), told)

    def _settled(self, home: Home, state: CoordinatorState, happened: list[Happening], outcome: Any) -> None:
        with self._lock:
            if self._homes.get(home.number) is not home:
                return
            home.waiting = False
            if isinstance(outcome, BaseException):
                home.broken = True  # it goes back to what the file has, with the next tick
                return
            if not outcome.done:
                self._undone(home, happened, "; ".join(each.text for each in outcome.problems))
                return
            self._states[home.number] = home.fingerprint, state
            if home.starting:
                home.starting = False
                self._begin(home)
            if home.happenings:
                self._write(home)

    def _undone(self, home: Home, happened: list[Happening], why: str) -> None:
        """What the firing led to was too much, and its turn was undone: the firing is not tried again."""
        counts = home.installed.counts
        counts.failed += 1
        counts.failure = " ".join(why.split())
        rest: list[Happening] = [each for each in happened if not isinstance(each, Fired)]
        home.happenings = rest + home.happenings
        self._write(home)

    def _begin(self, home: Home) -> None:
        assert self.carrier is not None
        for node, form in home.forms.items():
            self.carrier.watch(node, home.key, form)
        self._carry(home, home.coordinator.begin(self._now()))

    def _again(self, home: Home, now: int) -> None:
        """As after a crash, with what the file has."""
        known = self._states.get(home.number)
        home.restart(known[1] if known is not None else None, now)
        home.waiting = True
        self._write(home)

    # ── in turns ──

    def _in_turn(self, operation: Administer, moment: Moment) -> None:
        """What was decided is written, and happens."""
        fingerprint, state, happened = _decided(operation.body)
        assert self._triggers is not None
        installed = self._triggers.registry.by_name.get(operation.name)
        if installed is None or installed.trigger.fingerprint != fingerprint:
            return
        tables.keep_home(moment.execute, installed.number, fingerprint, state)
        home = self._homes.get(installed.number)
        for each in happened:
            if isinstance(each, Fired):
                self._fire(installed, home, each, moment)
            else:
                record = self._certainty(installed, home, each)
                moment.notify(Notice(certainty_channel(moment.node, installed.name), CERTAINTY, record))

    def _fire(self, installed: Installed, home: Home | None, fired: Fired, moment: Moment) -> None:
        if home is None:  # it was disabled, or removed, since that was decided
            return
        type = installed.condition.entries[0].subject
        raw: dict[str, Any] = {
            "time": fired.time // 1000,
            "earliest": fired.earliest // 1000,
            "error": fired.error / 1e9,
            "late": fired.late,
        }
        if VALUES in type.record.by_name:
            raw[VALUES] = home.condition.known(fired.area)
        moment.happened(f"decided {installed.name}", type, FIRED, None, type.encode(raw))

    def _certainty(self, installed: Installed, home: Home | None, happened: Unknown | Known) -> bytes:
        raw: dict[str, Any] = {"trigger": installed.name, "since": None, "holds": None, "why": None}
        if isinstance(happened, Unknown):
            refused = [] if home is None else [f"{node} refuses: {why}" for node, why in home.refused.items()]
            raw |= {"known": False, "unknown_since": happened.since // 1000, "why": "; ".join([happened.why, *refused])}
        else:
            raw |= {"known": True, "unknown_since": happened.unknown_since // 1000, "since": happened.since // 1000}
            raw["holds"] = happened.holds
        return CERTAINTY.encode(raw)


def certainty_channel(node: str, name: str) -> str:
    """On which is told since when nothing is known of a trigger, and since when all is."""
    return f"{CHANNEL}.{node}.{name}.certainty"


__all__ = ["CERTAINTY", "Homes", "Ownerward", "certainty_channel"]
