"""One direction of a gateway: which sources of one federation are advertised in the other, and what is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern
from headwater.channel.options.config import Queue
from headwater.channel.options.subscribe import Asked, interest_for, make_options
from headwater.channel.queues.forms import fitting
from headwater.channel.routing.hearing import NEVER
from headwater.errors import ChannelError, ClosedError, FederationError, HeadwaterError
from headwater.federation.arrive.deduplication import federation_of, origin_of
from headwater.federation.arrive.relay import Relay, RelaySource, RelayThreads, Routes
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.control_events import owns
from headwater.federation.gateway.knowledge import Knowledge
from headwater.federation.gateway.promises import OriginPromise
from headwater.federation.gateway.ways import wanted
from headwater.federation.interests.conjunction import combined
from headwater.federation.peers.barriers import Behind
from headwater.federation.peers.description import describe
from headwater.federation.wire.control import SourceAd
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.engine import Engine
    from headwater.federation.node import Node

log = logging.getLogger("headwater.federation")
SOURCES_WAITING = 4  # how many sources' worth of events may wait to be passed on
RECHECK_SECONDS = 0.02  # after which is looked again for what was not over
Key = tuple[str, int, int]


class _Asked(threading.local):
    def __init__(self) -> None:
        self.ways: list[Passage] = []  # that are asked just now, one for the other


_ASKED = _Asked()


def _engine(node: Node) -> Engine:
    if node._engine is None:
        raise FederationError(f"gateway: expected a node with a network, found {node.name!r} without; give it listen=")
    return node._engine


def federation_name(node: Node) -> str:
    """The name of the federation that a node is in."""
    return _engine(node).network.federation


@dataclass(frozen=True, slots=True)
class _Known:
    """A source on this side."""

    ad: SourceAd
    origin: str
    path: tuple[str, ...]


class Passage:
    """One direction: a thread that sees to it that the right sources are advertised there, and the right events asked
    for here."""

    def __init__(
        self, name: str, here: Node, there: Node, patterns: list[Pattern], where: Any, params: Any, ttl: int
    ) -> None:
        self.here, self.there = here, there
        self._name, self._patterns, self._where, self._params, self._ttl = name, patterns, where, params, ttl
        self._mine, self._theirs = _engine(here), _engine(there)
        self.source_side, self.sink_side = federation_name(here), federation_name(there)
        self.relays: dict[Key, RelaySource] = {}
        self.refused: dict[str, str] = {}
        self._past: dict[str, int] = {}
        self.taking: dict[str, Relay] = {}
        self._parting: list[Relay] = []  # that take nothing more, but may still have something
        self._asked: dict[str, object] = {}  # by channel, what the interest was made of
        self._knowledge = Knowledge(here)
        self._lock = threading.Lock()  # of relays
        self._wake = threading.Event()
        self._count = count(1)
        self._woken = self._done = 0
        self.over = False
        self._ending = False
        self._thread = Supervised(
            self._keep, f"headwater-{name}-{here.name}", here._crashes, again=lambda: not self._ends
        )

    def start(self) -> None:
        for engine in (self._mine, self._theirs):
            engine.scheduler.watchers.append(self._wakes)
        self._theirs.barriers.gates.append(self._gate)
        self._theirs.barriers.passages.append(self._behind)
        self._thread.start()
        self._wakes()

    def stop(self) -> None:
        self._ending = True
        self._wakes()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _wakes(self) -> None:
        """Something has changed: quick, for anyone may call this under any lock."""
        self._woken = next(self._count)  # one of its own for each, whoever comes first
        self._wake.set()

    def passed(self) -> dict[str, int]:
        with self._lock:
            found = dict(self._past)
            for relay in self.relays.values():
                found[relay.channel.name] = found.get(relay.channel.name, 0) + relay.passed
        return found

    # ── the thread ──

    @property
    def _ends(self) -> bool:
        return self._ending or self.here.closed or self.there.closed

    def _keep(self) -> None:
        again = False
        while not self._ends:
            self._wake.wait(RECHECK_SECONDS if again else None)
            self._wake.clear()
            woken = self._woken
            try:
                again = self._look()
                self._done = woken
            except Exception as error:
                again = True
                if not self._ends:
                    self.here._crashes.note(self._thread.name, error)
            self._mine.scheduler.nudge()
        self._end()

    def _look(self) -> bool:
        """Bring everything in step with what there is; whether to look again soon."""
        known = self._passable(dict(self._all()))
        for key, source in known.items():
            relay = self.relays.get(key)
            if relay is None:
                self._make(key, source)
            elif relay.zones != frozenset(source.ad.zones):
                relay.move(source.ad.zones or None)
        self._learn(settled=False)  # before sources end
        waits = self._withdraw([key for key in self.relays if key not in known])
        names = {relay.channel.name for relay in list(self.relays.values())}
        self._derive(names)
        for name in sorted(names | set(self.taking)):
            self._ask(name)
        self._learn(settled=True)
        return waits

    def _learn(self, *, settled: bool) -> None:
        """See who is heard, where somebody goes by time, and say so."""
        timed = {name: relay for name, relay in self.taking.items() if relay._promising}
        self._knowledge.look(timed)
        self._tell(timed, settled=settled)

    def _tell(self, names: Iterable[str], *, settled: bool) -> None:
        for name in names:
            self._theirs.barriers.renew(self._theirs.everyone(), name, settled=settled)

    def _behind(self, name: str) -> Behind:
        """What is known of a channel that is passed on."""
        if self in _ASKED.ways:  # a ring of gateways
            return Behind()
        taking = self.taking.get(name)
        _ASKED.ways.append(self)
        try:
            found = self._knowledge.of(name, taking)
        finally:
            _ASKED.ways.pop()
        passes = any(relay.channel.name == name for relay in list(self.relays.values()))
        asked = taking is not None and (self._done == self._woken or threading.current_thread() is self._thread)
        return found if asked or not passes or found.refused else found._replace(since=NEVER)

    def _derive(self, names: set[str]) -> None:
        """Channels that are derived here from one that is passed on are so there too."""
        states = [peer.state for peer in self._mine.everyone() if peer.state is not None]
        derived = {ad.name for state in states for ad in state.channels if ad.parent in names and self._fits(ad.name)}
        derived |= {
            channel.name
            for channel in self.here.channels()
            if channel.parent is not None and channel.parent.name in names and self._fits(channel.name)
        }
        for name in sorted(derived.difference(self.refused, [channel.name for channel in self.there.channels()])):
            self._in_both(name)

    def _end(self) -> None:
        """Pass on what was taken, and withdraw; who was told of it learns first that it is not heard any more."""
        names = {relay.channel.name for relay in list(self.relays.values())}
        self._knowledge.ends(names)
        self._tell(names, settled=False)
        for name in list(self.taking):
            self._leave(name)
        end = monotonic() + 5.0
        while self._withdraw(list(self.relays)) and monotonic() < end:
            self._wake.wait(RECHECK_SECONDS)
        with self._lock:
            left, self.relays = list(self.relays.values()), {}
        for relay in left:
            self.there._close_source(relay)
        for engine in (self._mine, self._theirs):
            with suppress(ValueError):
                engine.scheduler.watchers.remove(self._wakes)
        with suppress(ValueError):
            self._theirs.barriers.gates.remove(self._gate)
        self._theirs.barriers.leave(self._behind, names)
        self._tell(names, settled=True)
        self.over = True
        for engine in (self._mine, self._theirs):
            engine.scheduler.changed()

    # ── the sources here that are advertised there ──

    def _fits(self, channel: str) -> bool:
        return any(pattern.matches(channel) for pattern in self._patterns) and not owns(channel)

    def _all(self) -> Iterator[tuple[Key, _Known]]:
        """All sources here of channels that fit."""
        for peer in self._mine.everyone():
            ads = {ad.sid: ad for ad in peer.sources} if peer.gone is None else {}
            for sid, standin in list(peer.remote_sources.items()):
                ads.setdefault(sid, standin.ad)
            for sid, ad in ads.items():
                if self._fits(ad.channel) and peer.consented(peer.id, ad.channel):
                    yield (peer.id, peer.incarnation, sid), self._known(ad, peer.id, peer.incarnation)
        for source in self._own():
            if self._fits(source.channel.name):
                yield (
                    self._key(source),
                    self._known(describe(source), self._mine.id, self._mine.incarnation),
                )

    def _own(self) -> list[Source]:
        """Those of this node."""
        with self.here._wiring.lock:
            return [source for channel in self.here.channels() for source in channel.sources.values() if source.local]

    def _known(self, ad: SourceAd, node: str, incarnation: int) -> _Known:
        origin = ad.origin or origin_of(self.source_side, node, incarnation, ad.sid)
        return _Known(ad, origin, (*ad.path, self.source_side))

    def _key(self, source: Source) -> Key:
        if not isinstance(source, RemoteSource):
            return "", 0, source.number
        return source.peer.id, source.peer.incarnation, source.sid

    def _passable(self, known: dict[Key, _Known]) -> dict[Key, _Known]:
        """Those to be passed on. It counts by how few gateways any of the same origin can be reached, for events come
        by the way that is quickest."""
        nearest: dict[str, int] = {}
        for each in known.values():
            nearest[each.origin] = min(nearest.get(each.origin, 1 << 30), len(each.path))
        return {
            key: each
            for key, each in known.items()
            if self.sink_side not in each.path
            and federation_of(each.origin) != self.sink_side
            and nearest[each.origin] <= self._ttl
        }

    def _make(self, key: Key, known: _Known) -> RelaySource | None:
        """The relay, over there, of a source that is known here; None if the channel is not on both sides or is closed.
        Types and filters are settled before the locks are taken."""
        ad = known.ad
        pair = self._in_both(ad.channel)
        if pair is None:
            return None
        mine, channel = pair
        plan = None if mine.type is None or channel.type is None else fitting(mine.type, channel.type)
        filters = self._filters(ad, mine)
        with self.there._wiring.lock, self._lock:
            found = self.relays.get(key)
            if found is not None or self.there.closed or channel.closed:
                return found
            made = RelaySource(
                channel,
                ad.name,
                origin=known.origin,
                path=known.path,
                zones=frozenset(ad.zones),
                priority=ad.priority,
                filters=filters,
                way=lambda source: self._theirs.origins.way(known.origin, source, known.path, filters),
                tag=self._theirs.demands.number,
                plan=plan,
                promise=OriginPromise(lambda: self._upstream(key), lambda: self._holds(key)),
            )
            made.advertise(f"{ad.name}@{known.origin}#{made.number}")
            self.relays[key] = made
            return made

    def _filters(self, ad: SourceAd, channel: Channel) -> tuple[str, ...]:
        """What the gateways on the way let through, this one included."""
        where = interest_for(channel, self._where, self._params)
        if where is None:
            return tuple(ad.filters)
        own = sha256(f"{where.fingerprint!r} {sorted(where.params.items())!r}".encode()).hexdigest()[:32]
        return tuple(sorted({*ad.filters, own}))

    def _in_both(self, name: str) -> tuple[Channel, Channel] | None:
        """A channel here, and there; None if that cannot be, which is said once."""
        try:
            mine = self.here.channel(name)
            interest_for(mine, self._where, self._params)
            channel = self._declared(mine)
            if (mine.type is None) != (channel.type is None):
                raise ChannelError(f"channel {name!r} carries bytes on one side and events of a type on the other")
            if mine.type is not None and channel.type is not None:
                fitting(mine.type, channel.type)
        except ClosedError:
            return None
        except HeadwaterError as error:
            if self.refused.get(name) != str(error):
                log.warning("%s: channel %s is not passed on: %s", self._name, name, error)
            self.refused[name] = str(error)
            return None
        self.refused.pop(name, None)
        return mine, channel

    def _declared(self, mine: Channel) -> Channel:
        """The channel of the same name there, made if need be: derived if it is so here and its parent is passed on."""
        with self.there._wiring.lock:
            if any(channel.name == mine.name for channel in self.there.channels()):
                return self.there.channel(mine.name)
            if mine.parent is not None and mine.interest is not None and self._fits(mine.parent.name):
                return self._declared(mine.parent).derive(mine.name, mine.interest)
            return self.there.channel(mine.name, bytes if mine.type is None else mine.type)

    def _withdraw(self, keys: list[Key]) -> bool:
        """Sources that are no more, once all they have published is passed on; whether some must wait for that."""
        waits = False
        self._parting = [taking for taking in self._parting if not taking._mailbox.idle]
        for key in keys:
            relay = self.relays[key]
            if self._holds(key):
                waits = True
                continue
            with self._lock:
                del self.relays[key]
                name = relay.channel.name
                self._past[name] = self._past.get(name, 0) + relay.passed
            self.there._close_source(relay)
        return waits

    def _holds(self, key: Key) -> bool:
        """Whether events of a source are still to be passed on."""
        relays = [*list(self.taking.values()), *self._parting]
        return any(relay.holds(lambda source: self._key(source) == key) for relay in relays)

    # ── what is asked for here ──

    def _barred(self, source: Source) -> bool:
        """Whether a source's events must not go there; quick."""
        return self.sink_side in source.path

    def _relay_of(self, source: Source) -> RelaySource | None:
        """The source there that passes on the events of one here. One that has only just come may have none yet."""
        key = self._key(source)
        found = self.relays.get(key)
        if found is None and not self._barred(source) and not self._ending:
            if isinstance(source, RemoteSource):
                known = self._known(source.ad, source.peer.id, source.peer.incarnation)
            else:
                known = self._known(describe(source), self._mine.id, self._mine.incarnation)
            if key in self._passable({**dict(self._all()), key: known}):
                found = self._make(key, known)
                self._wakes()  # it may be gone again
        return found

    def _upstream(self, key: Key) -> Source | None:
        """The source here that a relay passes on, if it can be heard."""
        node, incarnation, number = key
        if not node:
            return next((each for each in self._own() if each.number == number and not each.closed), None)
        peers = [peer for peer in self._mine.everyone() if (peer.id, peer.incarnation) == (node, incarnation)]
        found = peers[0].remote_sources.get(number) if peers else None
        if found is None or found.closed or not self._knowledge.is_heard(found.channel.name, node, incarnation):
            return None
        return found

    def _ask(self, name: str) -> None:
        """See that what is taken here of a channel is what is wanted there."""
        channel = next((each for each in self.there.channels() if each.name == name), None)
        with self.there._wiring.lock:
            wants, found, timed = (
                ([], set(), False)
                if channel is None
                else wanted(channel, self._theirs.demands.ahead.get(channel, ()), self.source_side, self.sink_side)
            )
        if name not in {relay.channel.name for relay in list(self.relays.values())}:
            wants = []
        if not wants:
            self._leave(name)
            return
        routes = tuple(sorted(tuple(sorted(route)) for route in found if not any(other < route for other in found)))
        mine = self.here.channel(name)
        made_of = frozenset((want.fingerprint, repr(want.params)) if want is not None else None for want in wants)
        taking = self.taking.get(name)
        if taking is not None and self._asked.get(name) == made_of:
            self._reroute(taking, mine, routes, timed)
            return
        try:
            where = interest_for(mine, self._where, self._params)
        except HeadwaterError as error:
            self.refused[name] = str(error)
            return
        interest = combined(where, wants, mine.type)
        if timed:
            self.here._keep_time()
        if taking is None:
            options = make_options(
                self.here.config, _nothing, queue=self._queue(), dispatch=RelayThreads(), failures=0, about=False
            )
            self.taking[name] = self.here._start(
                Relay, [Asked(mine, interest)], options, f"{self._name} {name} to {self.sink_side}", self._relay_of,
                self._barred, routes, timed,
            )  # fmt: skip
        else:
            self._reroute(taking, mine, routes, timed)
            taking._impose(interest)
        self._knowledge.begin(name)
        self._asked[name] = made_of

    def _queue(self) -> Queue:
        """Room for all that several sources may have on their way here: so that who reads a link does not wait."""
        return Queue(limit=SOURCES_WAITING * self._mine.network.link.limit, policy="block")

    def _reroute(self, taking: Relay, channel: Channel, routes: Routes, timed: bool) -> None:
        if (taking._routes, taking._promising) != (routes, timed):
            if timed:
                self.here._keep_time()
            with self.here._wiring.lock:
                taking._routes, taking._promising = routes, timed
                self.here._wiring.changed([channel])

    def _leave(self, name: str) -> None:
        taking = self.taking.pop(name, None)
        self._asked.pop(name, None)
        self._knowledge.leave(name)
        if taking is not None:
            self._parting.append(taking)
            taking.cancel(drain=True)

    # ── waiting for it ──

    def _gate(self, name: str, routes: Routes) -> bool:
        """Whether it has, in force, what is wanted of a channel, and goes on from there to these federations."""
        idle = bool(routes) and all(self.source_side in route for route in routes)  # it has nothing for them
        return idle or self.over or self._ending or not self._fits(name) or self._settled([name])

    def settled(self) -> bool:
        return self.over or self._settled(list(self.taking))

    def _settled(self, names: list[str]) -> bool:
        if self.here.closed:
            return True
        if self._done != self._woken:
            return False
        taken = [(name, relay) for name in names if (relay := self.taking.get(name)) is not None]
        channels = [channel for channel in self.here.channels() if any(channel.name == name for name, _ in taken)]
        if not self._mine.requester.settled(channels, barriers=True):
            return False
        if self in _ASKED.ways:  # a ring of gateways
            return True
        _ASKED.ways.append(self)  # sources here may be those of other gateways
        try:
            return all(gate(name, relay._routes) for gate in list(self._mine.barriers.gates) for name, relay in taken)
        finally:
            _ASKED.ways.pop()


def _nothing(event: Any) -> None:
    """Events are passed on as they are, before any handler would see them."""


__all__ = ["Passage", "federation_name"]
