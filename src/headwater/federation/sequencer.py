"""A total order: all sinks that ask for it get the events of all sources of a channel in one and the same order.

    node.sequence(channel)                       # at one node, or at several: one works, the others stand by
    channel.subscribe(handler, order="total")    # at any node

A sequencer takes all events of a channel, gives each a place, and publishes them again, as they are, in the channel
`<name>.ordered`. A subscription with order="total" is one to that channel: `about.seq` is the place in the order and
`about.time` when the event was first published. While there is no sequencer, nothing comes. In a node without a network
the node itself sequences.

Where there are several, one is active, the others know all it does: before it publishes events it tells them which
they are and in which places, and waits until they have heard. So when it leaves, is killed or cut off, the eldest of
the others goes on exactly there, with what it has of the events itself, and publishes again what may not have reached
everyone; sinks get each place once. Events then pause for as long as it takes to notice that it is gone (`lease`).
Without another one, a sequencer that is killed takes along what it had not sent; the next one to be made begins with
the events that are published from then on. Where a network breaks apart between sequencers, each part goes on with an
order of its own, and what they gave the same places is not told apart when the parts meet again: have sequencers where
they reach each other. With others standing by, an event takes about one acknowledgement (20 ms) longer; throughput
does not suffer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.asking import Asked, make_options
from headwater.channel.config import Queue
from headwater.channel.letter import Chunk, Letter
from headwater.channel.subscription import Subscription
from headwater.errors import ChannelError, ClosedError, HeadwaterError
from headwater.federation.ordered import ORDERED, ORDERING
from headwater.federation.relay import RelaySource, RelayThreads
from headwater.federation.seen import origin_of
from headwater.threads import Supervised
from headwater.types import Event, i64

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.lane import Lane
    from headwater.federation.node import Node
    from headwater.federation.peer import Peer

log = logging.getLogger("headwater.federation")
BATCH = 4096  # events that get their places at once
HELD = 262_144  # events that may be held, for want of their places; then sources wait
LOOK = 0.05  # seconds after which is looked again
ON_ITS_WAY = 5.0  # seconds that an event may take that is known to have a place
Key = tuple[str, int]  # origin of an event, and its number there


class Placing(Event, name="headwater.Placing"):
    """What a sequencer tells the others: `count` events of a source from number `first` on have the places from `place`
    on. Without any (0): it is there, is active or not, the next place is `place`, and, where a source is named, its
    events up to `first` have had theirs."""

    place: i64
    floor: i64  # all up to this place have reached everyone
    origin: str
    first: i64
    count: i64
    active: bool


class _Taker(Subscription):
    """Takes all events of the channel, as they are."""

    calm = False

    def __init__(self, *args: Any) -> None:
        *rest, self._take = args
        super().__init__(*rest)

    def deliver(self, item: Any) -> None:
        self.handling = item[1]
        try:
            self._take(item[1])
            self._delivered += item[2]
        except HeadwaterError as error:
            self.handler_failed(error, item[1])
        finally:
            self.handling = None


class Sequencer:
    """Of one channel, at one node: active, or standing by. Made by `node.sequence(channel)`; ends with `close`."""

    def __init__(self, node: Node, channel: Channel) -> None:
        if channel.name.endswith((ORDERED, ORDERING)):
            raise ChannelError(f"sequence: expected a channel of events, found {channel.name!r}, which is one's order")
        self.node, self.channel = node, channel
        self._engine = node.engine
        self.active = self._engine is None
        self.closed = False
        self.place = 0  # the last that was given
        self.floor = 0  # up to here everyone has everything
        self.missing = 0  # events that had a place and did not come in time
        self._lock = threading.Condition()
        self._held: dict[Key, Letter] = {}  # in order of arrival
        self._placed: dict[Key, int] = {}  # those of them, and of others to come, that have a place
        self._done: dict[str, int] = {}  # of each origin, the last event that got a place
        self._ending = False
        self._event = threading.Event()
        self.ordered = node.channel(channel.name + ORDERED, bytes if channel.type is None else channel.type)
        self._out = self._source()
        self._thread: threading.Thread | None = None
        if self._engine is None:
            self._taker = self._taking("inline", self._pass_on)
            return
        self._talk = node.channel(channel.name + ORDERING, Placing)
        self._rank = f"{time.time_ns()} {node.id}"
        self._others: dict[str, bool] = {}  # by rank: whether it is active, as it has said
        self._following: set[tuple[str, int]] = set()  # peers that hear of what is placed
        self._reach = _Reach()
        self._told = 0  # the floor, as the others know it
        self._say = self._talk.source(self._rank)
        self._listening = self._talk.subscribe(self._heard, name=f"sequencer of {channel.name}, listening")
        self._taker = self._taking(RelayThreads(), self._take)
        self._engine.keeping.watchers.append(self._event.set)
        self._thread = Supervised(
            self._keep, f"headwater-{node.name}-sequencer", node.crashes, again=lambda: not self.closed
        )
        self._thread.start()

    def _taking(self, dispatch: Any, take: Callable[[Letter | Chunk], None]) -> Subscription:
        options = make_options(
            self.node.config, _nothing, queue=Queue(limit=HELD), dispatch=dispatch, failures=0, about=False
        )
        made: Subscription = self.node.start(
            _Taker, [Asked(self.channel)], options, f"sequencer of {self.channel.name}", take
        )
        return made

    def _source(self) -> RelaySource:
        """The one source of the ordered channel here. All sequencers' have one origin: each place counts once."""
        engine = self._engine
        federation = "" if engine is None else engine.network.federation
        origin = origin_of(federation, f"sequencer.{self.channel.name}", 0, 0)
        made = RelaySource(
            self.ordered,
            "sequencer",
            origin=origin,
            path=(),
            seen=None if engine is None else engine.seen(origin),
            tag=(lambda entry: None) if engine is None else engine.demands.number,
        )
        with self.node.wiring.lock:
            made.advertise("sequencer")
        return made

    def close(self, *, timeout: float = 5.0) -> None:
        """End it: what it has is published first; another one goes on, if there is one."""
        if self.closed:
            return
        self._ending = True
        self._event.set()
        self._taker.cancel(drain=True)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        self.closed = True
        self.node.sequencers.pop(self.channel.name, None)
        if self._engine is not None:
            with suppress(ValueError):
                self._engine.keeping.watchers.remove(self._event.set)
            self._listening.cancel()
            self._say.close()
        self._out.close()

    def __enter__(self) -> Sequencer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "active" if self.active else "standing by"
        return f"<Sequencer of {self.channel.name} at {self.node.name}, {state}, {self.place:,} events>"

    # ── what comes ──

    def _letters(self, what: Letter | Chunk) -> Iterable[Letter]:
        if isinstance(what, Letter):
            return (what,)
        assert self.channel.type is not None
        return what.letters(self.channel.type.arrow_to_records(what.taken()))

    def _pass_on(self, what: Letter | Chunk) -> None:
        """Where there is only this node: at once, one after the other."""
        for letter in self._letters(what):
            self.place += 1
            self._out.relay(letter, seq=self.place)

    def _take(self, what: Letter | Chunk) -> None:
        with self._lock:
            while len(self._held) >= HELD and not self._ending and not self.node.closed:
                self._lock.wait(LOOK)
            origin = self._origin(what.source)
            done = self._done.get(origin, 0)
            for letter in self._letters(what):
                key = origin, letter.seq
                if letter.seq > done or key in self._placed:
                    self._held[key] = letter
            self._lock.notify_all()
        self._event.set()

    def _origin(self, source: Source) -> str:
        if origin := getattr(source, "origin", ""):
            return str(origin)
        engine, peer = self._engine, getattr(source, "peer", None)
        assert engine is not None
        if peer is None:
            return origin_of(engine.network.federation, engine.id, engine.incarnation, source.number)
        return origin_of(engine.network.federation, peer.id, peer.incarnation, source.sid)  # type: ignore[attr-defined]

    def _heard(self, event: Placing, about: Any) -> None:
        """Another sequencer says something; or this one."""
        if about.source == self._rank:
            return
        with self._lock:
            self._others[about.source] = event.active
            if event.active and not self.active:
                if event.count:
                    for at in range(event.count):
                        self._placed[event.origin, event.first + at] = event.place + at
                    self._finish(event.origin, event.first + event.count - 1)
                    self.place = event.place + event.count - 1
                elif event.origin:
                    self._finish(event.origin, event.first)
                    for key in [each for each in self._held if each[0] == event.origin and each[1] <= event.first]:
                        if key not in self._placed:
                            del self._held[key]
                else:
                    self._agree(event.place - 1)
                self._forget(event.floor)
            self._lock.notify_all()
        self._event.set()

    def _finish(self, origin: str, seq: int) -> None:
        self._done[origin] = max(self._done.get(origin, 0), seq)

    def _agree(self, place: int) -> None:
        """The active one has come so far: what was said to have later places has none."""
        for key in [key for key, at in self._placed.items() if at > place]:
            del self._placed[key]
            self._done[key[0]] = min(self._done[key[0]], key[1] - 1)
        self.place = place

    def _forget(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        for key in [key for key, place in self._placed.items() if place <= self.floor]:
            del self._placed[key]
            self._held.pop(key, None)
        self._lock.notify_all()

    # ── who is active ──

    def _keep(self) -> None:
        assert self._engine is not None
        with suppress(HeadwaterError):
            self._engine.membership.look_round(self._say)
        while not self.node.closed:
            self._event.wait(LOOK)
            self._event.clear()
            ending = self._ending and self._taker.mailbox.idle
            try:
                candidates = self._candidates()
                self._greet()
                if not self.active:
                    self._decide(candidates)
                if self.active:
                    while self._give_places(candidates):
                        pass
                    self._tell_floor()
            except ClosedError:
                return
            except Exception as error:
                log.error("%r: %s: %s", self, type(error).__name__, error, exc_info=error)
            if ending:
                return

    def _candidates(self) -> dict[str, Peer]:
        """The other sequencers that are there, by rank."""
        assert self._engine is not None
        return {
            ad.name: peer
            for peer in self._engine.everyone()
            if peer.gone is None
            for ad in peer.sources
            if ad.channel == self._talk.name
        }

    def _greet(self) -> None:
        """Tell who has begun to listen how things are."""
        assert self._engine is not None
        following = {
            (peer.id, peer.incarnation)
            for peer in self._engine.everyone()
            if (crossing := peer.crossings.get(self._talk.name)) is not None and crossing.wishes
        }
        if following - self._following:
            with self._lock:
                done = list(self._done.items()) if self.active else []
            for origin, seq in done:
                self._publish(0, origin, seq, 0)
            self._publish(self.place + 1, "", 0, 0)
        self._following = following

    def _publish(self, place: int, origin: str, first: int, count: int) -> None:
        self._told = self.floor
        self._say.publish(place=place, floor=self.floor, origin=origin, first=first, count=count, active=self.active)

    def _decide(self, candidates: dict[str, Peer]) -> None:
        """Become active if nobody is, and nobody who is there was made earlier."""
        assert self._engine is not None
        if self._ending or any(peer.present and peer.state is None for peer in self._engine.everyone()):
            return
        with self._lock:
            silent = any(rank not in self._others for rank in candidates)
            led = any(self._others.get(rank) for rank in candidates)
            first = all(_order(self._rank) < _order(rank) for rank in candidates)
            if silent or led or not first:
                return
            self.active = True
            again = sorted((place, key) for key, place in self._placed.items() if place > self.floor)
        log.info("%r: from place %d on", self, self.place + 1)
        self._publish(self.place + 1, "", 0, 0)
        for place, key in again:
            letter = self._wait_for(key)
            if letter is None:
                self.missing += 1
                log.warning("%r: event %d of %s in place %d did not come", self, key[1], key[0], place)
            else:
                self._out.relay(letter, seq=place)
        with self._lock:
            for _, key in again:
                self._held.pop(key, None)
            self._placed.clear()

    def _wait_for(self, key: Key) -> Letter | None:
        """An event that has its place, but may still be on its way here."""
        end = monotonic() + ON_ITS_WAY
        with self._lock:
            while key not in self._held and monotonic() < end and not self.node.closed:
                self._lock.wait(LOOK)
            return self._held.get(key)

    # ── giving places ──

    def _give_places(self, candidates: dict[str, Peer]) -> bool:
        """To the events that wait for theirs; whether there were any."""
        with self._lock:
            batch = list(islice(self._held.items(), BATCH))
        if not batch:
            return False
        place = self.place
        if candidates:
            for origin, first, count in _runs(key for key, _ in batch):
                self._publish(place + 1, origin, first, count)
                place += count
            self._wait_until_heard(candidates)
        for _, letter in batch:
            self.place += 1
            self._out.relay(letter, seq=self.place)
        with self._lock:
            for key, _ in batch:
                del self._held[key]
                self._finish(*key)
            self._lock.notify_all()
        return True

    def _wait_until_heard(self, candidates: dict[str, Peer]) -> None:
        """Before anybody else gets an event, all who stand by know its place."""
        for rank, peer in candidates.items():
            crossing = peer.crossings.get(self._talk.name)
            lane = None if crossing is None else crossing.lanes.get(self._say)
            while lane is not None and lane.waiting and not lane.ended and not self.node.closed:
                lane.wait(partial(_heard_all, lane), LOOK)
                if rank not in self._candidates():
                    break

    def _tell_floor(self) -> None:
        assert self._engine is not None
        lanes = [
            lane
            for peer in self._engine.everyone()
            if (crossing := peer.crossings.get(self.ordered.name)) is not None
            and (lane := crossing.lanes.get(self._out)) is not None
        ]
        self.floor = max(self.floor, self._reach.of(lanes, self.place, self.floor))
        if self._following and self.floor > self._told:
            self._publish(self.place + 1, "", 0, 0)


class _Reach:
    """Up to which event all lanes of a source were acknowledged, told from time to time."""

    def __init__(self) -> None:
        self._goals: dict[Lane, tuple[int, int]] = {}  # a frame that is on its way, and its last event
        self._reached: dict[Lane, int] = {}

    def of(self, lanes: list[Lane], last: int, known: int) -> int:
        self._goals = {lane: goal for lane, goal in self._goals.items() if lane in lanes}
        self._reached = {lane: self._reached.get(lane, known) for lane in lanes}
        for lane in lanes:
            if lane.ended or not lane.waiting:
                self._reached[lane] = last
                self._goals.pop(lane, None)
                continue
            with suppress(IndexError):  # it changes meanwhile: next time, then
                oldest, newest = lane.kept[0], lane.kept[-1]
                goal = self._goals.get(lane)
                if goal is not None and oldest.number > goal[0]:
                    self._reached[lane] = max(self._reached[lane], goal[1])
                    goal = None
                if goal is None:
                    self._goals[lane] = newest.number, newest.last
        return min(self._reached.values(), default=last)


def _heard_all(lane: Lane) -> bool:
    return not lane.waiting or lane.ended


def _order(rank: str) -> tuple[int, str]:
    made, _, node = rank.partition(" ")
    return (int(made) if made.isdecimal() else 0), node


def _runs(keys: Iterable[Key]) -> Iterator[tuple[str, int, int]]:
    """Stretches of numbers of one origin: origin, first and how many."""
    origin, first, count = "", 0, 0
    for name, seq in keys:
        if count and name == origin and seq == first + count:
            count += 1
            continue
        if count:
            yield origin, first, count
        origin, first, count = name, seq, 1
    if count:
        yield origin, first, count


def _nothing(event: Any) -> None:
    """Events are taken as they are, before any handler would see them."""


__all__ = ["ORDERED", "Placing", "Sequencer"]
