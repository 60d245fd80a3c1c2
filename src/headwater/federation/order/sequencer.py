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
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.options.config import Queue
from headwater.channel.options.subscribe import Asked, make_options
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.subscription import Subscription
from headwater.errors import ChannelError, ClosedError, HeadwaterError
from headwater.federation.arrive.deduplication import order_origin, origin_of
from headwater.federation.arrive.log_positions import key_of
from headwater.federation.arrive.relay import RelaySource, RelayThreads
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.order.election import Electorate, sequencers_of
from headwater.federation.wire.requests import ORDERED, ORDERING, Lead, Stand, Vote
from headwater.threads import Supervised
from headwater.types import Event, i64

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.node import Node
    from headwater.channel.source import Source
    from headwater.federation.order.federated import Federated
    from headwater.federation.peers.peer import Peer
    from headwater.federation.send.lane import Lane

log = logging.getLogger("headwater.federation")
PLACES_AT_ONCE = 4096  # events that get their places at once
PLACES_RESERVED = 1 << 20  # places that a leader may give before it says again how far it is
EVENTS_KEPT = 65_536  # events that are kept for sinks that are not there, to be published again by another leader
EVENTS_HELD = 262_144  # events that may be held, for want of their places; then sources wait
RECHECK_SECONDS = 0.05  # after which is looked again
ARRIVAL_SECONDS = 5.0  # that an event may take that is known to have a place
RENEWALS_PER_LEASE = 4  # of a lease, within it
LEASE_COUNTED = 0.9  # what a leader counts of the lease it was promised: clocks may differ that much in speed
FORGET, PLACES = -1, 0  # counts that are none: what they say is in Placing
Key = tuple[str, int]  # origin of an event, and its number there


class Placing(Event, name="headwater.Placing"):
    """What sequencers tell each other.

    count > 0   a leader: so many events of a source, from number `first` on, have the places from `place` on
    PLACES      it is there, leads or not, and the next place is `place`; with `origin`: the events of that source up
                to `first` have had theirs
    FORGET      a leader, `to` one that begins to follow: what it is told from here on is all that counts"""

    place: i64
    floor: i64  # all up to this place have reached everyone
    origin: str
    first: i64
    count: i64
    active: bool
    term: i64
    to: str = ""  # to one of the others only
    ready: bool = False  # it gets the events of all sources, and could follow


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


class Sequencer:
    """Of one channel, at one node: active, or standing by. Made by `node.sequence(channel)`; ends with `close`."""

    def __init__(
        self,
        node: Node,
        channel: Channel,
        federated: Federated | None = None,
        on_close: Callable[[Sequencer], None] = lambda sequencer: None,
    ) -> None:
        if channel.name.endswith((ORDERED, ORDERING)):
            raise ChannelError(f"sequence: expected a channel of events, found {channel.name!r}, which is one's order")
        self.node, self.channel = node, channel
        self._federated, self._on_close = federated, on_close
        self.active = self._federated is None
        self.closed = False
        self.term = 0  # in which it leads, or has led last
        self.place = 0  # the last that was given
        self.floor = 0  # up to here everyone has everything
        self.missing = 0  # events that were not published for sure: they had a place and did not come, or no leader
        self.followers: frozenset[str] = frozenset()  # others that could go on from here, if it leads
        self._lock = threading.Condition()
        self._held: dict[Key, Letter] = {}  # in order of arrival
        self._placed: dict[Key, int] = {}  # those of them, and of others to come, that have a place
        self._taken: dict[str, int] = {}  # of each origin, the last event that came
        self._sent: dict[int, tuple[Key, Letter]] = {}  # by place: what it has published, and may not have reached all
        self._done: dict[str, int] = {}  # of each origin, the last event that got a place
        self._ending = False
        self._event = threading.Event()
        self.ordered = node.channel(channel.name + ORDERED, bytes if channel.type is None else channel.type)
        self._out = self._source()
        self._thread: threading.Thread | None = None
        if federated is None:
            self._taker = self._taking("inline", self._pass_on)
            return
        self._talk = node.channel(channel.name + ORDERING, Placing)
        self.rank = f"{time.time_ns()} {federated.context.id}"
        self._lease = federated.context.network.lease
        self._electorate = Electorate(federated.context, federated.peers, federated.ballots, federated.dialogue)
        self._ballot = federated.ballots.of(channel.name)
        federated.ballots.ranks[channel.name] = self.rank
        self._version = 1  # of its followers
        self._until = 0.0  # when its lease ends, by its own clock
        self._reserved = 0  # the last place that it may give under that
        self._renewed = self._asked = self._said = 0.0  # when it last did so
        self._follows = 0, ""  # the last term in which it has followed somebody, or led, and whom
        self._since = 0  # nanoseconds: events that were published before are not its business
        self._highest = 0  # the latest term that it has heard of
        self._alone: float | None = None  # since when nobody leads
        self._others: dict[str, bool] = {}  # by rank: whether it is active, as it has said
        self._greeted: set[tuple[str, int]] = set()  # peers that know that it is there
        self._ready: set[str] = set()  # others that want to follow, and can
        self._joining: dict[str, int] = {}  # who begins to follow, and the last place before that
        self._reach, self._reach_here = _Reach(), _Reach()
        self._reached = 0  # up to here everyone who is there has everything
        self._told = 0  # the floor, as the others know it
        self._say = self._talk.source(self.rank)
        self._listening = self._talk.subscribe(self._heard, name=f"sequencer of {channel.name}, listening")
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

    # ── what the others say ──

    def _heard(self, event: Placing, about: Any) -> None:
        """Another sequencer says something; or this one."""
        rank = about.source
        if rank == self.rank or (event.to and event.to != self.rank):
            return
        with self._lock:
            self._others[rank] = event.active
            self._highest = max(self._highest, event.term)
            if not event.active:
                if event.ready:
                    self._ready.add(rank)
            elif not self.active and event.count == FORGET and event.term >= self._follows[0]:
                self._follows = event.term, rank
                self._placed.clear()
                self._sent.clear()
                self._done.clear()
                self.place = event.place - 1
                self._forget(event.floor)
            elif not self.active and self._follows == (event.term, rank):
                self._follow(event)
            self._lock.notify_all()
        self._event.set()

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

    def _publish(self, place: int, origin: str, first: int, count: int, *, to: str = "") -> None:
        if not to:
            self._told = self.floor
        self._say.publish(
            place=place,
            floor=self.floor,
            origin=origin,
            first=first,
            count=count,
            active=self.active,
            term=self.term if self.active else self._follows[0],
            to=to,
            ready=not self.active and self._complete(),
        )

    def _complete(self) -> bool:
        """Whether it gets the events of all sources that it knows."""
        assert self._federated is not None
        return self._federated.in_force([self.channel, self._talk])

    # ── who leads ──

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

    def _introduce(self) -> None:
        """Tell who has begun to listen that it is there."""
        assert self._federated is not None
        listening = {
            (peer.id, peer.incarnation)
            for peer in self._federated.peers.everyone()
            if (crossing := peer.crossings.get(self._talk.name)) is not None and crossing.wishes
        }
        if listening - self._greeted:
            self._publish(self.place + 1, "", 0, PLACES)
        self._greeted = listening

    @property
    def following(self) -> bool:
        """Whether it could go on from where the leader is, and the leader knows that."""
        if self._federated is None or self.active:
            return False
        ballot = self._ballot
        return self._follows == (ballot.term, ballot.leader) and self.rank in ballot.followers

    def _ask_to_follow(self, candidates: dict[str, Peer]) -> None:
        """While a leader does not count this one among those who follow it."""
        now = monotonic()
        led = any(self._others.get(rank) for rank in candidates)
        if led and not self.following and not self._ending and now - self._said > RECHECK_SECONDS and self._complete():
            self._said = now
            self._publish(self.place + 1, "", 0, PLACES)

    def _decide(self, candidates: dict[str, Peer]) -> None:
        """Stand for election if nobody leads: at once if it is the one to do so, else when nobody else does."""
        assert self._federated is not None
        now, ballot = monotonic(), self._ballot
        if self._ending or any(peer.present and peer.state is None for peer in self._federated.peers.everyone()):
            return
        if not ballot.free(now) and ballot.voted != self.rank:
            self._alone = None
            return
        if self._alone is None:
            self._alone = now
        rivals = [rank for rank in candidates if rank != ballot.leader]
        first = all(self._suits(self.rank) < self._suits(rank) for rank in rivals)
        if now < self._alone + (0.0 if first else self._lease) or now < self._asked + self._lease / RENEWALS_PER_LEASE:
            return
        self._asked = now
        term = 1 + max(self._highest, ballot.promised, self.term)
        request = Stand(self.channel.name, term, self.rank, self._lease, *self._follows)
        elected, votes = self._electorate.poll(request, self._lease / 2)
        self._highest = max([self._highest, *(vote.term for vote in votes)])
        if elected:
            self._take_over(term, votes)

    def _suits(self, rank: str) -> tuple[bool, tuple[int, str]]:
        """Who should lead: one that has followed, and the eldest of those."""
        return rank not in self._ballot.followers, _order(rank)

    def _take_over(self, term: int, votes: list[Vote]) -> None:
        """It is elected: it goes on from where the last leader was, if it can."""
        last = max(vote.known for vote in votes)
        close = all(vote.close for vote in votes if vote.known == last)
        with self._lock:
            self.term, self.followers, self._alone = term, frozenset(), None
            self._ready.clear()
            self._joining.clear()
            self._until = 0.0
            self._follows = term, self.rank
            self.place = max([self.place, *(vote.place for vote in votes)])
            if not close:
                self.place = max([self.place, *(vote.reserved for vote in votes)])
                self.missing += len(self._held)
                self._since = time.time_ns()
                self._held.clear()
                self._placed.clear()
                self._sent.clear()
            self._forget(self.floor)
            self._recall()
            for key in [key for key in self._held if key[1] <= self._done.get(key[0], 0) and key not in self._placed]:
                del self._held[key]  # the last leader had begun to hear this source after it
            self._renew_source()
            self.active = True
        log.info(
            "%r: from place %d on%s", self, self.place + 1, "" if close else ", with what is published from now on"
        )
        if self._renew(now=True):
            self._publish(self.place + 1, "", 0, PLACES)
        assert self._federated is not None
        self._federated.context.scheduler.changed()

    def _recall(self) -> None:
        """What it has published in an earlier term is refused where it has not come yet: it is published again."""
        for place, (key, letter) in self._sent.items():
            self._placed[key] = place
            self._held[key] = letter
        self._sent.clear()
        self._placed = dict(sorted(self._placed.items(), key=lambda item: item[1]))

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

    def _renew_source(self) -> None:
        """What it publishes has the term in which it does so."""
        old, self._out = self._out, self._source()
        self.node._close_source(old)

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

    # ── its lease ──

    def _leased(self) -> bool:
        return monotonic() < self._until

    def _renew(self, *, now: bool = False) -> bool:
        """Whether it has a lease: it asks for it again in good time, or `now`. If somebody has heard of a newer term,
        it was replaced, and leads no more."""
        if not self.active:
            return False
        begun = monotonic()
        if not now and self._leased() and begun - self._renewed < self._lease / RENEWALS_PER_LEASE:
            return True
        if not now and not self._leased() and begun - self._renewed < self._lease / 20:
            return False
        self._renewed = begun
        claim = self._claim()
        granted, votes = self._electorate.poll(claim, self._lease / 2)
        if granted:
            self._until = begun + LEASE_COUNTED * self._lease
            self._reserved = claim.reserved
        refusals = [vote for vote in votes if not vote.granted]
        if refusals:
            self._step_down(max(refusals, key=lambda vote: vote.term))
        return self.active and self._leased()

    def _claim(self, *, resigned: bool = False) -> Lead:
        followers = sorted({self.rank, *self.followers})
        reserved = self.place if resigned else self.place + PLACES_RESERVED
        return Lead(
            self.channel.name,
            self.term,
            self.rank,
            self._lease,
            self.place,
            followers,
            self._version,
            resigned,
            reserved,
        )

    def _step_down(self, why: Vote) -> None:
        log.info("%r: it leads no more: %s does, or may, in term %d", self, why.leader or "somebody", why.term)
        with self._lock:
            self._highest = max(self._highest, why.term)
            self.active, self.followers, self._until = False, frozenset(), 0.0
            self._lock.notify_all()
        self._publish(self.place + 1, "", 0, PLACES)
        assert self._federated is not None
        self._federated.context.scheduler.changed()

    def _resign(self) -> None:
        """It ends, with all done: others need not wait for its lease to end."""
        assert self._federated is not None
        if self.active and not self._federated.context.closed:
            self.active = False
            self._electorate.poll(self._claim(resigned=True), min(1.0, self._lease / 2))

    # ── who follows ──

    def _admit(self, candidates: dict[str, Peer]) -> None:
        """Who wants to follow does so once all that was placed before has reached the sinks that are there."""
        self._joining = {rank: place for rank, place in self._joining.items() if rank in candidates}
        stay = frozenset(rank for rank in self.followers if rank in candidates)
        if stay != self.followers:
            self._follow_on(stay)
        with self._lock:
            wanting, self._ready = [rank for rank in self._ready if rank in candidates], set()
        for rank in wanting:
            if rank not in {*self.followers, *self._joining} and self._lane(candidates[rank]) is not None:
                self._joining[rank] = self.place
                self._brief(rank)
        if self._joining:
            self._measure()
        joined = {
            rank
            for rank, place in self._joining.items()
            if place <= self._reached and self._up_to_date(candidates[rank])
        }
        if joined:
            for rank in joined:
                del self._joining[rank]
            self._follow_on(self.followers | joined)

    def _up_to_date(self, peer: Peer) -> bool:
        """Whether another has heard all that was said so far; it is waited for a little."""
        lane = self._lane(peer)
        return lane is not None and lane.wait(partial(_heard_all, lane), 4 * RECHECK_SECONDS)

    def _follow_on(self, followers: frozenset[str]) -> None:
        """Others follow from now on. That counts once enough nodes know it: until then nothing is published."""
        assert self._federated is not None
        self.followers = followers
        self._version += 1
        self._until = 0.0
        self._renew(now=True)
        self._federated.context.scheduler.changed()

    def _brief(self, rank: str) -> None:
        """Tell one all that it needs to follow."""
        self._publish(self.place + 1, "", 0, FORGET, to=rank)
        with self._lock:
            done = list(self._done.items())
        for origin, seq in done:
            self._publish(0, origin, seq, PLACES, to=rank)

    def _lane(self, peer: Peer) -> Lane | None:
        """What it says on its way to another."""
        crossing = peer.crossings.get(self._talk.name)
        return None if crossing is None or not crossing.wishes else crossing.lanes.get(self._say)

    # ── giving places ──

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
            for origin, first, count in _runs(key for key, _ in batch):
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
                lane.wait(partial(_heard_all, lane), RECHECK_SECONDS)

    def _measure(self) -> None:
        """How far everyone is with what was published, and everyone who is there."""
        assert self._federated is not None
        lanes = [
            (peer, lane)
            for peer in self._federated.peers.everyone()
            if (crossing := peer.crossings.get(self.ordered.name)) is not None
            and (lane := crossing.lanes.get(self._out)) is not None
        ]
        here = [lane for peer, lane in lanes if peer.gone is None]
        self._reached = max(self._reached, self._reach_here.of(here, self.place, self._reached))
        all_have = self._reach.of([lane for _, lane in lanes], self.place, self.floor)
        with self._lock:
            self._forget(max(all_have, min(self._reached, self.place - EVENTS_KEPT)))

    def _tell_floor(self, candidates: dict[str, Peer]) -> None:
        self._measure()
        if candidates and self.floor > self._told:
            self._publish(self.place + 1, "", 0, PLACES)


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
