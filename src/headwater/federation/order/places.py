"""The events of a channel that wait for their places, those that have one, and the source that publishes them so."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from headwater.channel.queues.position_keys import key_of
from headwater.channel.routing.letter import Chunk, Letter
from headwater.federation.arrive.deduplication import order_origin, origin_of
from headwater.federation.arrive.relay import RelaySource
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.order.protocol import Key, Placing
from headwater.federation.wire.requests import ORDERED

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.order.contract import Federated

EVENTS_HELD = 262_144  # events that may be held, for want of their places; then sources wait
RECHECK_SECONDS = 0.05  # after which is looked again


class Places:
    """Of one channel, at one node that sequences it. `federated` is None where there is only this node."""

    def __init__(self, node: Node, channel: Channel, federated: Federated | None) -> None:
        self.node, self.channel, self._federated = node, channel, federated
        self.term = 0  # in which it leads, or has led last
        self.place = 0  # the last that was given
        self.floor = 0  # up to here everyone has everything
        self.missing = 0  # events that were not published for sure: they had a place and did not come, or no leader
        self._lock = threading.Condition()
        self._held: dict[Key, Letter] = {}  # in order of arrival
        self._placed: dict[Key, int] = {}  # those of them, and of others to come, that have a place
        self._taken: dict[str, int] = {}  # of each origin, the last event that came
        self._sent: dict[int, tuple[Key, Letter]] = {}  # by place: what it has published, and may not have reached all
        self._done: dict[str, int] = {}  # of each origin, the last event that got a place
        self._since = 0  # nanoseconds: events that were published before are not its business
        self._ending = False
        self._event = threading.Event()  # there is something to do
        self.ordered = node.channel(channel.name + ORDERED, bytes if channel.type is None else channel.type)
        self._out = self._source()

    def _source(self) -> RelaySource:
        """A source of the ordered channel, of this term. There is always one, so that sinks have asked for what comes
        before something does."""
        federated = self._federated
        federation = "" if federated is None else federated.context.network.federation
        origin = order_origin(federation, self.channel.name, self.term)
        made = RelaySource(
            self.ordered,
            "sequencer",
            origin=origin,
            path=(),
            way=None if federated is None else lambda source: federated.origins.way(origin, source, (), ()),
            tag=(lambda entry: None) if federated is None else federated.demands.number,
        )
        with self.node._wiring.lock:
            made.advertise(f"sequencer#{made.number}")
        return made

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
            while len(self._held) >= EVENTS_HELD and not self._ending and not self.node.closed:
                self._lock.wait(RECHECK_SECONDS)
            origin = self._origin(what.source)
            done, last = self._done.get(origin, 0), 0
            for letter in self._letters(what):
                last = letter.seq
                key = origin, letter.seq
                if letter.stamp < self._since:
                    self.missing += 1
                elif letter.seq > done or key in self._placed:
                    self._held[key] = letter
            self._taken[origin] = max(last, self._taken.get(origin, 0))
            self._lock.notify_all()
        self._event.set()

    def _origin(self, source: Source) -> str:
        if source.origin:
            return source.origin
        assert self._federated is not None
        context = self._federated.context
        if not isinstance(source, RemoteSource):
            if source.log is not None:  # it goes on with its numbers in its next life
                return key_of(self.node.name, source.log.id, source.name)
            return origin_of(context.network.federation, context.id, context.incarnation, source.number)
        if source.ad.log:
            return str(source.position_key)
        return origin_of(context.network.federation, source.peer.id, source.peer.incarnation, source.sid)

    def _follow(self, event: Placing) -> None:
        """What the leader has done."""
        if event.count > 0:
            for at in range(event.count):
                self._placed[event.origin, event.first + at] = event.place + at
            self._finish(event.origin, event.first + event.count - 1)
            self.place = event.place + event.count - 1
        elif event.origin:
            self._finish(event.origin, event.first)
            for key in [each for each in self._held if each[0] == event.origin and each[1] <= event.first]:
                if key not in self._placed:
                    del self._held[key]
        self._forget(event.floor)

    def _missed(self, key: Key) -> bool:
        """Whether an event will not come: its source sends in order, and a later one has."""
        return key not in self._held and self._taken.get(key[0], 0) >= key[1]

    def _finish(self, origin: str, seq: int) -> None:
        self._done[origin] = max(self._done.get(origin, 0), seq)

    def _forget(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        for key in list(takewhile(lambda key: self._placed[key] <= self.floor, self._placed)):  # in order of places
            del self._placed[key]
            self._held.pop(key, None)
        for place in list(takewhile(lambda place: place <= self.floor, self._sent)):
            del self._sent[place]
        self._lock.notify_all()

    def _recall(self) -> None:
        """What it has published in an earlier term is refused where it has not come yet: it is published again."""
        for place, (key, letter) in self._sent.items():
            self._placed[key] = place
            self._held[key] = letter
        self._sent.clear()
        self._placed = dict(sorted(self._placed.items(), key=lambda item: item[1]))

    def _renew_source(self) -> None:
        """What it publishes has the term in which it does so."""
        old, self._out = self._out, self._source()
        self.node._close_source(old)


__all__ = ["EVENTS_HELD", "RECHECK_SECONDS", "Places"]
