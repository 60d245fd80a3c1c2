"""A replica of another node's objects, as a node holds it.

    tanks = desk.objects_at("plant").replica("hall/*", type="Tank", bound={"level": 0.5})
    tanks.ready()
    found = tanks["hall/north"]
    found.value.level, found.as_of, found.bound["level"]

It is a subscription to what the owner tells of these objects, with what it had told before, and with the times through
which the owner has told everything: these come with the link's heartbeats. Should something be missed (the link was
down for too long, the owner was started again), another copy is made beside this one and takes its place when it is
whole; until then this one stays as it is, and as old.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headwater.channel.objects.outlets import SOURCE
from headwater.errors import ClosedError, HeadwaterError, ObjectError, Unreachable
from headwater.federation.arrive.record_check import check_of
from headwater.federation.wire.object_requests import HoldReplica, ReadReplica, ReleaseReplica, ReplicaIs, ReplicaPage
from headwater.federation.wire.requests import unpack_type
from headwater.interest import Interest
from headwater.objects.names import NamePattern, object_name
from headwater.objects.rates import Rate
from headwater.objects.replicas import spec as specs
from headwater.objects.replicas.copy import Copy, Line

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.routing.hearing import Hearing, Life
    from headwater.channel.routing.letter import About
    from headwater.channel.subscription import Subscription
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.context import Context
    from headwater.federation.objects.holds import Holds
    from headwater.federation.peers.peer import Peer
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType

READY_SECONDS = 30.0
LOOK_SECONDS = 1.0  # between two looks whether all is well
AGAIN_SECONDS = 0.1  # while it is not
MOST_TROUBLES = 6  # after which it is tried no more seldom: each doubles the time until the next try
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reading:
    """An object as a replica has it: at `as_of` (microseconds since 1970 by the owner's clock) each member of the true
    value differed from this one by at most its `bound`; members that are not named there, and may be off by nothing or
    are not kept in step, are as the replica's definition says."""

    name: str
    value: Any
    as_of: int
    bound: Mapping[str, float]


class _Stretch:
    """A copy, and what it was made of: a source of the owner, heard without a gap."""

    def __init__(self, copy: Copy, source: RemoteSource, hearing: Hearing) -> None:
        self.copy, self.source, self.lost = copy, source, source.lost
        self._heard: tuple[Life, int] = (hearing.life, hearing.judged)

    def goes_on(self, source: RemoteSource | None, hearing: Hearing) -> bool:
        """Whether it is still so."""
        own, heard = self.source, (hearing.life, hearing.judged)
        return (
            own is source and not own.closed and self._heard == heard and own.lost == self.lost and not self.copy.broken
        )


class Replica:
    """Held until it is closed, or its node is; made by `node.objects_at(owner).replica(...)`. Threads may share it."""

    def __init__(
        self,
        spec: ReplicaSpec,
        form: EventType,
        context: Context,
        holds: Holds,
        ask: Callable[[Any], Any],
        peer: Callable[[], Peer | None],
    ) -> None:
        self.spec, self.form, self._number = spec, form, spec.number
        self._context, self._holds, self._ask, self._peer = context, holds, ask, peer
        self._lock = threading.Lock()  # of what follows
        self._shown: _Stretch | None = None  # what is read
        self._made: _Stretch | None = None  # what is to take its place
        self._stays = ""  # why it does not go on
        self._tending = threading.Lock()
        self._held, self._renew = (0, 0), 0.0  # in which life of its owner, and how often that was judged by then
        self._rates: tuple[int, float, Mapping[str, Rate]] = (0, 0.0, {})  # from when on, until when, and how fast
        self._troubles = 0  # one after the other
        self._waiting = 0  # how many wait for something to come, about
        self.closed = False
        holds.take(self._number)
        try:
            held = self._hold()
        except BaseException:
            holds.let_go(self._number)
            raise
        type = unpack_type(held.told)
        if type is None:
            raise ObjectError(f"{self}: expected the type of what its owner tells, found none")
        self._channel: Channel[Any] = context.node.channel(held.channel, type)
        wanted = Interest("replica = :replica", type, params={"replica": self._number})
        self._subscription: Subscription[Any] = self._channel.subscribe(self._heard, wanted, about=True)
        with context.wiring.lock:
            self._subscription._promising = True
            [attachment] = self._subscription._attachments.values()
            context.wiring.rearranged(self._channel, [attachment.entry])  # it may be asked for already, without times
            context.wiring.changed([self._channel])
        self._look()

    # ── what it has ──

    @property
    def bound(self) -> Mapping[str, float]:
        """How far each member may have been off at `as_of`; those that are not named are exact, unless the replica is
        of some `members` only."""
        return MappingProxyType(dict(self.spec.bounds))

    @property
    def as_of(self) -> int | None:
        """The time by the owner's clock, in microseconds since 1970, of which this is known; None before the first."""
        with self._lock:
            return self._as_of()

    @property
    def state(self) -> str:
        """`beginning` before anything is known, `live` while the owner says again and again how far it has come,
        `unknown` while nothing is heard of it (what is here stays, and is as of then), or `closed`; and why."""
        if self.closed:
            return "closed"
        with self._lock:
            shown = self._shown
            why = f": {self._stays}" if self._stays else ""
            if shown is None or shown.copy.as_of is None:
                return f"beginning{why}"
            return "live" if self._is_live(shown) else f"unknown{why}"

    def bound_now(self, *, clock_error: float) -> Mapping[str, float] | None:
        """How far each member may be off *now*, while its object is not destroyed: only of members whose rate of change
        the owner has declared (`objects.limit_rates`), and by clocks that differ by at most `clock_error` seconds,
        which is for you to know. None where nothing can be said."""
        with self._lock:
            at = self._as_of()
            since, until, rates = self._rates
            bounds = self.spec.bounds
            kept = {name: rate for name, rate in rates.items() if not self.spec.members or name in self.spec.members}
            kept |= {name: rate for name, rate in rates.items() if name in bounds}
            if at is None or at < since or monotonic() > until or not kept or self.spec.model is not None:
                return None
            age = (self._context.node.clock.time() - at) / 1e6 + clock_error
            return {name: bounds.get(name, 0.0) + rate.within(age) for name, rate in kept.items()}

    def get(self, name: str) -> Reading | None:
        """An object at `as_of`; None if there was none of that name then. ObjectError while nothing is known."""
        path = object_name(name, self.spec.owner).whole
        with self._lock:
            return self._read(path.object, self._must_know())

    def __getitem__(self, name: str) -> Reading:
        """An object at `as_of`; KeyError if there was none of that name then."""
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[Reading]:
        """All objects at `as_of`, by name: of one moment."""
        with self._lock:
            at = self._must_know()
            assert self._shown is not None
            found = [self._read(path, at) for path in sorted(self._shown.copy.told)]
        return iter([each for each in found if each is not None])

    def __len__(self) -> int:
        with self._lock:
            return 0 if self._shown is None else len(self._shown.copy.told)

    @property
    def value(self) -> Any:
        """Where it is of one object: its value, where there is a model as that says it is now, by this node's clock."""
        return self.at(self._context.node.clock.time())

    def at(self, time: int, name: str = "") -> Any:
        """The value of an object at a time, as the model says; without a model, as it was told last. None if it is not
        there. For times after `as_of` nothing bounds how far it is off."""
        literal = NamePattern(self.spec.pattern).literal
        if not name and literal is None:
            raise ObjectError(f"{self}: expected the name of an object, since it is of several, found none")
        path = object_name(name, self.spec.owner).object if name else literal
        with self._lock:
            self._must_know()
            assert self._shown is not None and path is not None
            raw = self._shown.copy.value(path, time)
            return None if raw is None else self.form.decode(self.form.encode(raw))

    def _read(self, path: str, at: int) -> Reading | None:
        assert self._shown is not None
        raw = self._shown.copy.value(path, at)
        if raw is None:
            return None
        value = self.form.decode(self.form.encode(raw))
        return Reading(f"//{self.spec.owner}/{path}", value, at, self.bound)

    def _must_know(self) -> int:
        found = self._as_of()
        if found is None:
            why = f": {self._stays}" if self._stays else ""
            raise ObjectError(f"{self}: expected something to be known, found nothing yet{why}; wait: replica.ready()")
        return found

    def _as_of(self) -> int | None:
        """What the source has said of times counts only while nothing is missing, and all that came is taken."""
        shown = self._shown
        if shown is None:
            return None
        if self._is_live(shown):
            self._advance(shown)
        return shown.copy.as_of

    def _advance(self, stretch: _Stretch) -> None:
        times = stretch.source.come_to()  # first: what came before it was said is taken by then, if nothing waits
        if times is not None and self._subscription._mailbox.idle:
            stretch.copy.come_to(times[0])

    def _is_live(self, stretch: _Stretch) -> bool:
        peer = None
        with suppress(HeadwaterError):  # there may be two of that name
            peer = None if self.closed else self._peer()
        if peer is None or peer.gone is not None or peer.link is None:
            return False
        return stretch.goes_on(self._source(peer), self._hearing(peer))

    def measured(self) -> tuple[float, int, int] | None:
        """How the link to the owner does: seconds between `as_of` and now by the two clocks, events lost, and bytes
        that came over it; None while there is none."""
        with self._lock:
            at, shown = self._as_of(), self._shown
        peer = self._peer()
        link = None if peer is None else peer.link
        if at is None or shown is None or link is None:
            return None
        return (self._context.node.clock.time() - at) / 1e6, shown.source.lost, link.bytes_in

    # ── waiting and watching ──

    def ready(self, timeout: float = READY_SECONDS) -> bool:
        """Wait until something is known; whether it is."""
        return self.until(0, timeout)

    def until(self, time: int, timeout: float = READY_SECONDS) -> bool:
        """Wait until it is as of this time, or later; whether it is."""
        self._waiting += 1
        try:
            return self._context.scheduler.until(lambda: self._reached(time), timeout)
        finally:
            self._waiting -= 1

    async def auntil(self, time: int = 0, timeout: float = READY_SECONDS) -> bool:
        """The same from a coroutine, whose loop goes on."""
        return await self._context.scheduler.auntil(lambda: self._reached(time), timeout)

    def _reached(self, time: int) -> bool:
        found = self.as_of
        if self.closed:
            raise ClosedError(f"{self} is closed")
        return found is not None and found >= time

    def subscribe(self, handler: Any = None, where: str = "", **options: Any) -> Subscription[Any]:
        """What the owner tells of these objects from now on, as of any channel: `object`, `value` (missing: it is no
        more), `at` and `turn`. It comes once to this node, however many subscribe."""
        wanted = "replica = :replica and object <> ''" + (f" and ({where})" if where else "")
        interest = Interest(wanted, self._channel.type, params={"replica": self._number})
        return self._channel.subscribe(handler, interest, **options)

    # ── what comes ──

    def _heard(self, event: Any, about: About) -> None:
        source = about._source
        record = None if event.value is None else self.form.encode(event.value)
        line = Line(event.object, record, event.still, _micros(event.at), event.turn, event.after, event.more)
        with self._lock:
            for each in (self._shown, self._made):
                if each is not None and each.source is source:  # else it is nothing of its owner's
                    each.copy.line(line)
        if self._waiting:
            self._context.scheduler.nudge()

    # ── seeing to it ──

    def _hold(self, judged: int = 0) -> ReplicaIs:
        """Say that it is held, and for how long that is so; after its owner has `judged` anew what may be heard of it,
        whether it still may be."""
        peer, began = self._peer(), monotonic()
        held: ReplicaIs = self._ask(HoldReplica(specs.pack(self.spec)))
        self._held = (0 if peer is None else peer.incarnation), judged
        self._renew = began + held.lease / 4
        rates = {name: Rate(*each) for name, each in held.rates.items()}
        with self._lock:
            self._rates = held.at, began + held.lease / 2, rates  # by half, should the clocks go at different speeds
        return held

    def _look(self) -> None:
        """See, by another thread, to whatever is to be done; and again in a while."""
        peer = None
        with suppress(HeadwaterError):
            peer = self._peer()
        if not self.closed and not self._context.closed:
            self._context.scheduler.work(self._tend, on=self.spec.owner if peer is None else peer.id)

    def _tend(self) -> None:
        again = LOOK_SECONDS
        if self._tending.acquire(blocking=False):
            try:
                if self._step():
                    self._troubles = 0
                else:
                    again = AGAIN_SECONDS * 2**self._troubles
            except Unreachable:
                self._stays, again = "its owner does not answer", AGAIN_SECONDS
            except HeadwaterError as error:
                self._stays = " ".join(str(error).split())
                self._troubles = min(self._troubles + 1, MOST_TROUBLES)
                again = LOOK_SECONDS * 2**self._troubles
            finally:
                self._tending.release()
        if not self.closed and not self._context.closed:
            self._context.scheduler.later(again, self._look)

    def _step(self) -> bool:
        """Hold it, have a copy that goes on, or make one; whether all is well."""
        peer = self._peer()
        if peer is None or peer.gone is not None:
            self._stays = "its owner is not there"
            return False
        latest = self._made or self._shown
        over = latest is not None and bool(latest.copy.broken)
        if over:  # what breaks again and again is not asked for without end
            self._troubles = min(self._troubles + 1, MOST_TROUBLES)
        source, hearing = self._source(peer), self._hearing(peer)
        if over or (peer.incarnation, hearing.judged) != self._held or monotonic() >= self._renew:
            self._hold(hearing.judged)
            source, hearing = self._source(peer), self._hearing(peer)
        with self._lock:
            if self._shown is not None and self._shown.goes_on(source, hearing):
                self._made, self._stays = None, ""
                return True
            if self._made is None or not self._made.goes_on(source, hearing):
                self._made = None
        if source is None or not hearing.in_force():
            self._stays = "its owner does not allow it" if hearing.refused else "what is told of it is not in force yet"
            return False
        return self._copy(source, hearing)

    def _copy(self, source: RemoteSource, hearing: Hearing) -> bool:
        """Make a copy of what others were told, unless that is done; whether it has taken its place."""
        with self._lock:
            made = self._made
            if made is None:
                made = self._made = _Stretch(Copy(self.spec, self.form), source, hearing)
        if not made.copy.complete:
            try:
                self._read_pages(made.copy)
            except HeadwaterError:
                with self._lock:
                    self._made = None  # from the beginning, next time
                raise
        with self._lock:
            self._advance(made)
            if self._made is not made or made.copy.as_of is None or made.copy.broken:
                return False
            self._shown, self._made, self._stays = made, None, ""
        self._context.scheduler.changed()
        return True

    def _read_pages(self, copy: Copy) -> None:
        after = ""
        while True:
            page: ReplicaPage = self._ask(ReadReplica(self._number, after))
            if check_of(self.form)([row.record for row in page.rows]):
                raise ObjectError(f"{self}: expected objects of type {self.spec.type}, found something else")
            with self._lock:
                copy.page([(row.path, row.record, row.at, row.turn, row.still) for row in page.rows])
            if not page.next or page.next <= after or copy.broken:
                break
            after = page.next
        with self._lock:
            copy.finished()

    def _source(self, peer: Peer) -> RemoteSource | None:
        for source in list(peer.remote_sources.values()):
            if source.channel is self._channel and source.name == SOURCE and not source.closed:
                return source
        return None

    def _hearing(self, peer: Peer) -> Hearing:
        [attachment] = self._subscription._attachments.values()
        return self._holds.requester.hearing(self._channel, attachment.entry, peer)

    # ── the end ──

    def close(self) -> None:
        """Hold it no more. What it has can still be read."""
        if self.closed:
            return
        self.closed = True
        self._subscription.cancel()
        if self._holds.let_go(self._number):
            with suppress(HeadwaterError):  # else its owner gives it up by itself
                self._ask(ReleaseReplica(specs.pack(self.spec)))

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Replica of {self.spec.pattern}>"


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


__all__ = ["Reading", "Replica"]
