"""A total order: all sinks that ask for it get the events of all sources of a channel in one and the same order.

    node.sequence(channel)                       # at one node, or at several: one leads, the others stand by
    channel.subscribe(handler, order="total")    # at any node

A sequencer takes all events of a channel, gives each a place, and publishes them again, as they are, in the channel
`<name>.ordered`. A subscription with order="total" is one to that channel: `about.seq` is the place in the order and
`about.time` when the event was first published. While nobody leads, nothing comes. In a node without a network the node
itself sequences.

Where there are several, they elect one (`election.py`). What it promises:

- All sinks see one order: no place twice, none after a later one, and of two sinks that get an event both have it at
  the same place. That holds whatever is frozen, killed or cut off.
- Nothing is lost or doubled when the leader is killed, frozen or cut off, if one of the others *follows* it: before
  events are published, those who follow know which they are and in which places (the leader waits for that), and they
  get the events themselves, from their sources. Who comes, or comes back, follows once everything that was placed
  before has reached the sinks that are there. A new leader publishes again what may not have reached everyone; sinks
  drop what they had.
- A leader that was away learns that it was replaced before it numbers anything: it needs a lease of at least half of
  all nodes, by its own clock. All it publishes has its term, and sinks refuse an older one than they have seen.

What it gives up for that is the flow of events, never their order: in a part of a network that has not more than half
of all nodes, nobody is elected, and a leader that hears from less than half stops, until the parts meet again. With two
nodes, the one that leads goes on when the other is gone; if it is the leader that is killed, the other waits until that
is forgotten (`Network.keep`). For events to go on, have three nodes or more, two of which sequence.

If the leader dies and nobody follows it, what it had not sent is lost, and who is elected then begins with the events
that are published from then on, at a place after all that may have been given: some numbers are nobody's then. Events
pause for as long as it takes to notice that a leader is gone (`lease`), and once more for the election. With others
that follow, an event takes about one acknowledgement (20 ms) longer; throughput does not suffer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.options.config import Queue
from headwater.channel.options.subscribe import Asked, make_options
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.subscription import Subscription
from headwater.errors import ChannelError, ClosedError, HeadwaterError
from headwater.federation.arrive.relay import RelayThreads
from headwater.federation.order.election import sequencers_of
from headwater.federation.order.leadership import Leadership
from headwater.federation.order.places import EVENTS_HELD, RECHECK_SECONDS
from headwater.federation.order.protocol import Key, Placing, runs
from headwater.federation.order.reach import heard_all
from headwater.federation.wire.requests import ORDERED, ORDERING
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.order.contract import Federated
    from headwater.federation.peers.peer import Peer

log = logging.getLogger("headwater.federation")
PLACES_AT_ONCE = 4096  # events that get their places at once
ARRIVAL_SECONDS = 5.0  # that an event may take that is known to have a place


class _Taker(Subscription):
    """Takes all events of the channel, as they are."""

    _calm = False

    def __init__(self, *args: Any) -> None:
        *rest, self._take = args
        super().__init__(*rest)

    def _deliver(self, item: Any) -> None:
        self._handling = item[1]
        try:
            self._take(item[1])
            self._delivered += item[2]
        except HeadwaterError as error:
            self._handler_failed(error, item[1])
        finally:
            self._handling = None


class Sequencer(Leadership):
    """Of one channel, at one node: active, or standing by. Made by `node.sequence(channel)`; ends with `close`.

    Places       the events, and their places      (places.py)
    Leadership   who leads, and who follows        (leadership.py)
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        federated: Federated | None = None,
        on_close: Callable[[Sequencer], None] = lambda sequencer: None,
    ) -> None:
        if channel.name.endswith((ORDERED, ORDERING)):
            raise ChannelError(f"sequence: expected a channel of events, found {channel.name!r}, which is one's order")
        super().__init__(node, channel, federated)
        self._on_close = on_close
        self.closed = False
        self._thread: threading.Thread | None = None
        if federated is None:
            self._taker = self._taking("inline", self._pass_on)
            return
        self._taker = self._taking(RelayThreads(), self._take)
        federated.context.scheduler.watchers.append(self._event.set)
        self._thread = Supervised(
            self._keep, f"headwater-{node.name}-sequencer", node._crashes, again=lambda: not self.closed
        )
        self._thread.start()

    def _taking(self, dispatch: Any, take: Callable[[Letter | Chunk], None]) -> Subscription:
        options = make_options(
            self.node.config, _nothing, queue=Queue(limit=EVENTS_HELD), dispatch=dispatch, failures=0, about=False
        )
        made: Subscription = self.node._start(
            _Taker, [Asked(self.channel)], options, f"sequencer of {self.channel.name}", take
        )
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
        self._on_close(self)
        if self._federated is not None:
            self._federated.ballots.ranks.pop(self.channel.name, None)
            self._resign()
            with suppress(ValueError):
                self._federated.context.scheduler.watchers.remove(self._event.set)
            self._electorate.close()
            self._listening.cancel()
            self._say.close()
        self._out.close()

    def __enter__(self) -> Sequencer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"active in term {self.term}" if self.active else "standing by"
        if self.following:
            state += ", following"
        return f"<Sequencer of {self.channel.name} at {self.node.name}, {state}, {self.place:,} events>"

    def _keep(self) -> None:
        assert self._federated is not None
        with suppress(HeadwaterError):
            self._federated.look_round(self._say)
        while not self.node.closed:
            self._event.wait(RECHECK_SECONDS)
            self._event.clear()
            ending = self._ending and self._taker._mailbox.idle
            try:
                self._turn()
            except ClosedError:
                return
            except Exception as error:
                log.error("%r: %s: %s", self, type(error).__name__, error, exc_info=error)
            if ending and not (self.active and self._held and self._leased()):
                return

    def _turn(self) -> None:
        """Whatever there is to do, once."""
        assert self._federated is not None
        candidates = dict(sequencers_of(self._federated.peers, self.channel.name))
        self._introduce()
        if not self.active:
            self._ask_to_follow(candidates)
            self._decide(candidates)
        if self.active and self._renew():
            self._publish_again()
            self._admit(candidates)
            while self.active and not self._placed and self._give_places(candidates):
                pass
            if self.active:
                self._tell_floor(candidates)

    def _publish_again(self) -> None:
        """A new leader: what has its place, but may not have reached everyone."""
        with self._lock:
            again = sorted((place, key) for key, place in self._placed.items())
        patience: dict[str, float] = {}  # of each origin: until when its events are waited for
        for place, key in again:
            letter = self._wait_for(key, patience)
            if not self._renew():
                return  # the rest when it has a lease again
            if letter is None:
                self.missing += 1
                log.warning("%r: event %d of %s in place %d did not come", self, key[1], key[0], place)
            else:
                self._out.relay(letter, seq=place)
            with self._lock:
                self._held.pop(key, None)
                self._placed.pop(key, None)
                if letter is not None:
                    self._sent[place] = key, letter

    def _wait_for(self, key: Key, patience: dict[str, float]) -> Letter | None:
        """An event that has its place, but may still be on its way here. Once one of an origin has been waited for in
        vain, those after it are not waited for anew: they come in order, so none of them is nearer."""
        end = patience.setdefault(key[0], monotonic() + ARRIVAL_SECONDS)
        while key not in self._held and monotonic() < end and not self.node.closed and self._renew():
            with self._lock:
                if self._missed(key) or len(self._held) >= EVENTS_HELD:  # nothing more is taken before some have gone
                    break
                self._lock.wait_for(lambda: key in self._held, RECHECK_SECONDS)
        found = self._held.get(key)
        if found is not None:
            del patience[key[0]]
        return found

    def _give_places(self, candidates: dict[str, Peer]) -> bool:
        """To the events that wait for theirs; whether there were any."""
        with self._lock:
            batch = list(islice(self._held.items(), PLACES_AT_ONCE))
        if not batch:
            return False
        place = self.place
        if place + len(batch) > self._reserved and not (
            self._renew(now=True) and place + PLACES_AT_ONCE <= self._reserved
        ):
            return False
        if candidates:
            for origin, first, count in runs(key for key, _ in batch):
                self._publish(place + 1, origin, first, count)
                place += count
            self._wait_until_heard(candidates)
        if not self._renew():  # it may have been away since it looked
            return False
        before = self.place
        for _, letter in batch:
            self.place += 1
            self._out.relay(letter, seq=self.place)
        with self._lock:
            for at, (key, letter) in enumerate(batch, before + 1):
                del self._held[key]
                self._finish(*key)
                self._sent[at] = key, letter
            self._lock.notify_all()
        return True

    def _wait_until_heard(self, candidates: dict[str, Peer]) -> None:
        """Before anybody else gets an event, all who follow know its place."""
        assert self._federated is not None
        for rank in list(self.followers):
            while self._renew() and not self.node.closed:
                there = rank in dict(sequencers_of(self._federated.peers, self.channel.name))
                lane = self._lane(candidates[rank]) if there else None
                if lane is None or lane.ended:
                    self._follow_on(self.followers - {rank})
                    break
                if not lane.waiting:
                    break
                lane.wait(partial(heard_all, lane), RECHECK_SECONDS)


def _nothing(event: Any) -> None:
    """Events are taken as they are, before any handler would see them."""


__all__ = ["ORDERED", "Placing", "Sequencer"]
