"""Who leads of those that sequence a channel, with which lease, and who follows it closely enough to go on."""

from __future__ import annotations

import logging
import time
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.federation.order.election import Electorate
from headwater.federation.order.places import RECHECK_SECONDS, Places
from headwater.federation.order.protocol import FORGET, PLACES, Placing
from headwater.federation.order.reach import Reach, heard_all
from headwater.federation.wire.requests import ORDERING, Lead, Stand, Vote

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.order.contract import Federated
    from headwater.federation.peers.peer import Peer
    from headwater.federation.send.lane import Lane

log = logging.getLogger("headwater.federation")
PLACES_RESERVED = 1 << 20  # places that a leader may give before it says again how far it is
EVENTS_KEPT = 65_536  # events that are kept for sinks that are not there, to be published again by another leader
RENEWALS_PER_LEASE = 4  # of a lease, within it
LEASE_COUNTED = 0.9  # what a leader counts of the lease it was promised: clocks may differ that much in speed


class Leadership(Places):
    """Of one channel, at one node: whether it leads, and what it and the others say to each other about that. Where
    there is only this node, it does."""

    def __init__(self, node: Node, channel: Channel, federated: Federated | None) -> None:
        super().__init__(node, channel, federated)
        self.active = federated is None
        self.followers: frozenset[str] = frozenset()  # others that could go on from here, if it leads
        if federated is not None:
            self._stand_by(federated)

    def _stand_by(self, federated: Federated) -> None:
        """Begin to listen to the others, and to have a voice."""
        self._talk = self.node.channel(self.channel.name + ORDERING, Placing)
        self.rank = f"{time.time_ns()} {federated.context.id}"
        self._lease = federated.context.network.lease
        self._electorate = Electorate(federated.context, federated.peers, federated.ballots, federated.dialogue)
        self._ballot = federated.ballots.of(self.channel.name)
        federated.ballots.ranks[self.channel.name] = self.rank
        self._version = 1  # of its followers
        self._until = 0.0  # when its lease ends, by its own clock
        self._reserved = 0  # the last place that it may give under that
        self._renewed = self._asked = self._said = 0.0  # when it last did so
        self._follows = 0, ""  # the last term in which it has followed somebody, or led, and whom
        self._highest = 0  # the latest term that it has heard of
        self._alone: float | None = None  # since when nobody leads
        self._others: dict[str, bool] = {}  # by rank: whether it is active, as it has said
        self._greeted: set[tuple[str, int]] = set()  # peers that know that it is there
        self._ready: set[str] = set()  # others that want to follow, and can
        self._joining: dict[str, int] = {}  # who begins to follow, and the last place before that
        self._reach, self._reach_here = Reach(), Reach()
        self._reached = 0  # up to here everyone who is there has everything
        self._told = 0  # the floor, as the others know it
        self._say = self._talk.source(self.rank)
        self._listening = self._talk.subscribe(self._heard, name=f"sequencer of {self.channel.name}, listening")

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
        return lane is not None and lane.wait(partial(heard_all, lane), 4 * RECHECK_SECONDS)

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


def _order(rank: str) -> tuple[int, str]:
    made, _, node = rank.partition(" ")
    return (int(made) if made.isdecimal() else 0), node


__all__ = ["Leadership"]
