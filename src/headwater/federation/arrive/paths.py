"""The ways by which events of one origin come to a node: by several gateways, in a ring or side by side.

Each way brings the events of the origin in the order of their source, but one may be ahead of another, and each may
begin at another event. So a node takes the events of an origin from one way at a time: the one through the fewest
gateways, and of those the first that brings something. What the others bring is acknowledged, and held, as far as the
chosen way has not come, for when that is gone, or brings nothing that another one had a lease ago: then the events of
another way follow, from exactly after the last that was taken. At most HELD are held of a way; if there were more than
that, some may be lost at such a change, and are counted as missed.

Ways through gateways with filters pass less than others. One whose filters are all among those of another is better,
however long: it is taken once the other has brought all from before the first event that it has brought itself, or has
brought nothing for a lease. Two of which each has filters that the other has not complete each other: each is in order
by itself, and what both bring is taken once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from headwater.channel.queues.mailbox import dispatch_all
from headwater.federation.arrive.deduplication import Fence, PlacesOfTerm, SeenOnce, Verdict, order_of
from headwater.federation.wire.kinds import PAST

if TYPE_CHECKING:
    from headwater.channel.routing.route import Ready
    from headwater.federation.scheduler import Scheduler

EVENTS_HELD = 65_536  # events of a way that is not taken, ahead of the one that is
LOOKS_PER_LEASE = 4  # within a lease, whether a way has fallen silent

Deliver = Callable[[int, "Ready"], None]  # hands on events after a number


class _Held(NamedTuple):
    last: int  # the number of its last event
    tag: int
    events: int
    since: float
    deliver: Deliver


class Way:
    """One of them: `source` publishes its events here."""

    def __init__(self, origin: Origin, source: Any, path: Iterable[str], filters: Iterable[str]) -> None:
        self.origin, self.source = origin, source
        self.turn = origin.turn
        self.length, self.filters = len(tuple(path)), frozenset(filters)
        self.last: dict[int, int] = {}  # by tag: the last event that was taken
        self.held: deque[_Held] = deque()
        self.waiting = 0  # events that are held
        self.overrun: dict[int, int] = {}  # by tag, the last of those of which too many were held
        self.lost = 0
        self.begins: dict[int, int] = {}  # by tag: the first event that it has brought
        self.done: set[int] = set()  # tags of which it has brought all from before a better way began
        self.silent = False  # it was left for another, and has brought nothing since

    @property
    def alive(self) -> bool:
        return bool(self.source.reachable)

    def offer(self, seq: int, ready: Ready, tag: int = 0) -> Verdict:
        """What is to become of an event; under the source's lock, and its turn. What was held before it, and is to be
        taken now, is handed on first."""
        verdict, _ = self.origin.offer(self, [seq], tag, ready)
        return verdict

    def offer_rows(self, seqs: list[int], ready: Ready, tag: int = 0) -> tuple[Verdict, list[int]]:
        """The same of rows, all of them, and which are to be taken."""
        return self.origin.offer(self, seqs, tag, ready)

    def new(self, seq: int, tag: int = 0) -> bool:
        """Whether an event that was held has not come by a way that completes this one; it has, from now on."""
        return self.origin.seen.first_time(seq, tag)

    def hold(self, last: int, tag: int, events: int, deliver: Deliver) -> None:
        """Keep events that are to be held."""
        self.held.append(_Held(last, tag, events, monotonic(), deliver))
        self.waiting += events
        while self.waiting > EVENTS_HELD:
            dropped = self.held.popleft()
            self.waiting -= dropped.events
            self.overrun[dropped.tag] = dropped.last
            self.lost += dropped.events
        self.origin.watch()

    def flush(self, ready: Ready) -> None:
        """Hand on what is held, and comes after what was taken."""
        held, self.held, self.waiting = self.held, deque(), 0
        if any(last > self.last.get(tag, 0) for tag, last in self.overrun.items()):
            self.source.missed += self.lost
        self.overrun, self.lost = {}, 0
        for each in held:
            after = self.last.get(each.tag, 0)
            if each.last > after:
                each.deliver(after, ready)
                self.last[each.tag] = each.last

    def forget(self, passed: dict[int, int]) -> None:
        """What the way that is taken has brought as well need not be held."""
        held = self.held
        while held and held[0].last <= passed.get(held[0].tag, 0):
            self.waiting -= held.popleft().events
        if not held:
            self.overrun, self.lost = {}, 0


class Origin:
    """Of one origin, at one node: its ways, and what was taken.

    `turn` is held from the question what becomes of an event until it is queued for all sinks, so that events of one
    origin keep their order, whichever way each comes. It is taken after the lock of a source."""

    def __init__(self, scheduler: Scheduler, lease: float) -> None:
        self._scheduler, self._lease = scheduler, lease
        self.seen = SeenOnce()
        self.turn = self.seen.turn
        self.ways: list[Way] = []
        self._chosen: list[Way] = []
        self._watching = False

    def way(self, source: Any, path: Iterable[str], filters: Iterable[str]) -> Way:
        made = Way(self, source, path, filters)
        with self.turn:
            self.ways = [way for way in self.ways if not way.source.closed or way in self._chosen]
            self.ways.append(made)
        return made

    def offer(self, way: Way, seqs: list[int], tag: int, ready: Ready) -> tuple[Verdict, list[int]]:
        """Events have come by a way: which of them to take, if they count now (deduplicated), or whether to hold them
        until it is clear that a better way does not bring them."""
        first_time = self.seen.first_time
        if tag & PAST:
            rows = [row for row, seq in enumerate(seqs) if first_time(seq, tag)]
            return (Verdict.TAKE if rows else Verdict.DROP), rows
        way.silent = False
        way.begins.setdefault(tag, seqs[0])
        if way not in self._chosen:
            if not self._first(way):
                passed = self._passed(way)
                way.forget(passed)
                return (Verdict.DROP if seqs[-1] <= passed.get(tag, 0) else Verdict.HOLD), []
            if self._awaits(way):
                return Verdict.HOLD, []
            self._choose(way)
            way.flush(ready)
        end = self._end(way, tag) if len(self.ways) > 1 else None
        if way.held and (end is None or seqs[0] < end):  # the better one is gone again
            way.flush(ready)
        last = way.last.get(tag, 0)
        if end is not None and seqs[-1] >= end:
            if tag not in way.done:
                way.done.add(tag)
                self._scheduler.later(0.0, self._look)
            if seqs[0] >= end:
                return Verdict.HOLD, []
            seqs = [seq for seq in seqs if seq < end]
        rows = [row for row, seq in enumerate(seqs) if seq > last and first_time(seq, tag)]
        way.last[tag] = max(last, seqs[-1])
        return (Verdict.TAKE if rows else Verdict.DROP), rows

    def _first(self, way: Way) -> bool:
        """Whether no other way that works is taken instead, or should be."""
        return not any(self._better(other, way) for other in self.ways if other is not way)

    def _better(self, other: Way, way: Way) -> bool:
        if other.silent or not other.alive:
            return False
        if other.filters != way.filters:
            return other.filters < way.filters
        return other in self._chosen or other.length < way.length

    def _awaits(self, way: Way) -> bool:
        """Whether one that is taken now, and passes less, may still bring events from before this one began."""
        return any(
            tag not in other.done and other.last.get(tag, 0) < first - 1
            for other in self._chosen
            if other.alive and not other.silent and way.filters < other.filters
            for tag, first in way.begins.items()
        )

    def _end(self, way: Way, tag: int) -> int | None:
        """Of one that is taken, the first event that a better one brings which is to take its place."""
        last = way.last.get(tag, 0)
        firsts = [
            first
            for other in self.ways
            if other.held and other.alive and other.filters < way.filters and (first := other.begins.get(tag, 0)) > last
        ]
        return min(firsts, default=None)

    def _passed(self, way: Way) -> dict[int, int]:
        """What those that are taken instead have brought."""
        found: dict[int, int] = {}
        for other in self._chosen:
            if other.filters <= way.filters:
                for tag, last in other.last.items():
                    found[tag] = max(last, found.get(tag, 0))
        return found

    def _choose(self, way: Way) -> None:
        """Take a way from now on; it goes on from where those were that it takes the place of."""
        stay = []
        for other in self._chosen:
            related = other.filters <= way.filters or way.filters <= other.filters
            if related:
                for tag, last in other.last.items():
                    way.last[tag] = max(last, way.last.get(tag, 0))
            elif other.alive:
                stay.append(other)
        self._chosen = [*stay, way]
        way.silent = False
        way.done.clear()

    # ── when one falls silent ──

    def watch(self) -> None:
        """Something is held: look now and then whether it is time to hand it on."""
        if not self._watching:
            self._watching = True
            self._scheduler.later(self._lease / LOOKS_PER_LEASE, self._look)

    def _look(self) -> None:
        self._watching = False
        for way in list(self.ways):
            ready: Ready = []
            with way.source.lock, self.turn:
                way.forget(self._passed(way))
                if not way.held or way.source.closed:
                    continue
                self.watch()
                if monotonic() - way.held[0].since > self._lease:
                    for other in self.ways:
                        if other is not way and (self._better(other, way) or way.filters < other.filters):
                            other.silent = True
                if self._first(way) and not self._awaits(way):
                    self._choose(way)
                    way.flush(ready)
            dispatch_all(list(dict.fromkeys(ready)))


class Origins:
    """Of one node: all origins whose events come here by sources that pass them on."""

    def __init__(self, scheduler: Scheduler, lease: float) -> None:
        self._scheduler, self._lease = scheduler, lease
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[str, Origin] = WeakValueDictionary()
        self._fences: dict[str, Fence] = {}

    def way(self, origin: str, source: Any, path: Iterable[str], filters: Iterable[str]) -> Way | PlacesOfTerm:
        """What becomes of the events that a source here passes on of one of another federation, which may come by other
        gateways too; or of a channel's order."""
        if (order := order_of(origin)) is not None:
            key, term = order
            return PlacesOfTerm(self.fence(key), term)
        with self._lock:
            found = self._known.get(origin)
            if found is None:
                found = self._known[origin] = Origin(self._scheduler, self._lease)
        return found.way(source, path, filters)

    def fence(self, key: str) -> Fence:
        """What this node's sinks have had of a channel's order, in whatever terms."""
        with self._lock:
            return self._fences.setdefault(key, Fence())


__all__ = ["Origin", "Origins", "Verdict", "Way"]
