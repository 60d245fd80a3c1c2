"""What other nodes ask of this node's sources: checked, compiled and put in force at an exact point, or refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from headwater.channel.routing.wiring import Move
from headwater.errors import FrameError, HeadwaterError
from headwater.federation.arrive.acknowledgement import FOREVER
from headwater.federation.control_events import owns
from headwater.federation.interests.admission import Grant, Granting, Refused
from headwater.federation.interests.request import MOST_WISHES, Pages, Question
from headwater.federation.peers.permissions import note_refused
from headwater.federation.security.decisions import whole_of
from headwater.federation.send.crossing import Crossing, FilteredMember, TaggedMember
from headwater.federation.send.past import recollect, send_past
from headwater.federation.send.pending import ControlFrame
from headwater.federation.wire import frames as wire
from headwater.federation.wire.kinds import AWAY
from headwater.federation.wire.requests import Ask, Install, Installed, Told, Wish, unpack_wishes

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.route import Entry
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.multicast.groups import Groups
    from headwater.federation.multicast.share import GroupCrossing
    from headwater.federation.peers.barriers import Barriers
    from headwater.federation.peers.connections import Connections
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.security.decisions import Claim
    from headwater.federation.security.rules import Principal
    from headwater.federation.send.lane import Lane

log = logging.getLogger("headwater.federation")
MOST_REFUSED = 1_000  # wishes of one question, after which the rest is not even read
REFUSALS_TOLD = 100  # of one question, as control events
# That a node which was started again may take to bring back all its durable sinks; at most `keep`.
RETURN_SECONDS = 15.0
WATCH_SECONDS = 60.0  # after so long at most it is looked again whether a proof has expired, should clocks be set


class Installer:
    """The wishes of all peers."""

    # Told, in a worker's thread, that proofs of a user may count no longer on a channel.
    expired: Callable[[str, str], object] = staticmethod(lambda channel, user: None)

    def __init__(
        self,
        context: Context,
        peers: Peers,
        barriers: Barriers,
        links: Connections,
        control: ControlEvents,
        groups: Groups | None,
    ) -> None:
        self._context, self._node, self._peers = context, context.node, peers
        self._barriers, self._links, self._control, self._groups = barriers, links, control, groups
        self._lock = threading.Lock()  # one change at a time
        self.promising = False
        self._telling = False  # how far patterns have come: by one worker at a time
        self._timed: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()  # by the frames that had gone, when it was said
        self.granting = Granting(context, peers)
        self.pages = Pages()

    def install(self, peer: Peer, principal: Principal, request: Install) -> Installed:
        """What a peer wants of a channel from now on: all of it, so that what it does not name is over, or
        what has changed. It is read, checked and analysed before any lock is taken: others publish meanwhile."""
        decision = self._context.security.decide(principal, "subscribe", request.channel)  # policies judge each wish
        try:
            if not decision and (request.wishes or request.packed or request.base):
                return self._not_allowed(peer, request, f"not allowed: {decision.why}")
            if not decision and request.channel not in peer.crossings:
                return Installed({})  # nothing is over, and who may not know of the channel learns nothing of it
            whole = self.pages.whole(peer, request, self._context.network.budget)
            if whole is None:
                return Installed({}, all=True)
            if whole.more:
                return Installed({})
            question = Question(whole, unpack_wishes(whole))
            missing = self._missing(peer, question)
            if missing:
                return Installed({}, missing=missing)
        except (Refused, FrameError) as error:
            return Installed({}, error=str(error))
        if question.wishes or whole.base:
            self._links.link_wanted(peer)
        channel = self._channel(whole.channel)
        if channel is not None:
            self._read(peer, principal, channel, question)
        with self._lock, self._context.wiring.lock:
            return replace(self._install(peer, principal, question), memory=peer.memory)

    def _missing(self, peer: Peer, question: Question) -> list[int]:
        """Tags of wishes that name code which is not here: who asks has it, and says all of it again with that."""
        crossing = peer.crossings.get(question.request.channel)
        anew = crossing is None or crossing.parked or crossing.incarnation != peer.incarnation
        known = {} if crossing is None or anew else crossing.wishes
        return [wish.tag for wish in question.wishes if wish.tag not in known and self.granting.lacks(wish)]

    def _not_allowed(self, peer: Peer, request: Install, why: str) -> Installed:
        note_refused(peer, request.channel, why)
        for wish in unpack_wishes(request)[:REFUSALS_TOLD]:
            self._control.wish(peer, request.channel, wish, "refused", why)
        return Installed({}, error=why)

    def _channel(self, name: str) -> Channel | None:
        if owns(name):
            return None
        with self._context.wiring.lock:
            return next((each for each in self._node.channels() if each.name == name), None)

    def _read(self, peer: Peer, principal: Principal, channel: Channel, question: Question) -> None:
        """Read and check what is new to this node; no lock is held."""
        crossing = peer.crossings.get(channel.name)
        anew = crossing is None or crossing.parked or crossing.incarnation != peer.incarnation
        known = {} if crossing is None or anew else dict(crossing.costs)
        for tag in question.request.gone:
            known.pop(tag, None)
        most, cost = self._context.network.budget.each, sum(known.get(wish.tag, 0) for wish in question.wishes)
        if question.request.base:
            cost = sum(known.values())
        refused = 0
        for wish in question.wishes:
            if wish.tag in known:
                continue
            if refused >= MOST_REFUSED:
                question.grants[wish.tag] = f"not read: of one question {MOST_REFUSED:,} interests were refused already"
                continue
            grant = question.grants[wish.tag] = self._try_read(principal, channel, wish)
            if isinstance(grant, str) or cost + grant.cost > most:
                refused += 1
            else:
                cost += grant.cost

    def _try_read(self, principal: Principal, channel: Channel, wish: Wish) -> Grant | str:
        try:
            return self.granting.read(principal, channel, wish)
        except (Refused, HeadwaterError) as error:
            return str(error)

    def _install(self, peer: Peer, principal: Principal, question: Question) -> Installed:
        """Answer one question of a peer: refused, put off until its sinks are all back, answered from what is known (an
        old one that came late), or carried out."""
        request = question.request
        channel = self._channel(request.channel)
        if channel is None or (self._node.closed and not _keeps(peer, request.channel)):
            return Installed({}, error=f"unknown channel {request.channel!r}" if question.wishes else "")
        crossing = peer.crossing(channel)
        if crossing.version and crossing.incarnation != peer.incarnation:  # and nobody has come to say so here yet
            self._begin_anew(peer, crossing)
            crossing = peer.crossing(channel)
        renewed = crossing.parked or crossing.incarnation != peer.incarnation
        if request.version < peer.unwanted.get(channel.name, 0):  # the same, and nothing is wanted by now
            self._forget_empty(peer, crossing)
            return Installed({})
        if request.version < crossing.version and crossing.incarnation == peer.incarnation:
            # an old question that has come late
            return Installed(crossing.points, barrier=crossing.due, group=_group(crossing))
        if request.base and (renewed or request.base > crossing.version):
            self._forget_empty(peer, crossing)
            return Installed({}, all=True)
        names = question.names(crossing)
        if len(names) > MOST_WISHES or len(crossing.wishes) + len(question.wishes) > 2 * MOST_WISHES:
            return Installed({}, error=f"expected at most {MOST_WISHES:,} interests and durable sinks, found more")
        awaited = set(request.known).difference(request.moved)
        if not crossing.version and not awaited <= names:
            crossing.parked, crossing.durable = True, awaited
        if crossing.parked and not self._all_back(peer, principal, crossing, question):
            return Installed(crossing.points, barrier=request.version)
        return self._change(peer, principal, crossing, question)

    def _forget_empty(self, peer: Peer, crossing: Crossing) -> None:
        if not crossing.version and not crossing.parked and not crossing.wishes and not crossing.lanes:
            peer.crossings.pop(crossing.channel.name, None)

    def _all_back(self, peer: Peer, principal: Principal, crossing: Crossing, question: Question) -> bool:
        """Whether all durable sinks are there for which something is kept: nothing goes before that, or some would
        miss what others get. Those that do not come back soon will not, nor those that have moved to another node."""
        if crossing.durable.difference(question.request.moved) <= set(question.request.sinks):
            return True

        def give_up() -> None:
            with self._lock, self._context.wiring.lock:
                if crossing.deferred is question and crossing.parked and not crossing.channel.closed:
                    self._change(peer, principal, crossing, question)

        first, crossing.deferred = crossing.deferred is None, question
        crossing.give_up = give_up
        if first:
            patience = min(RETURN_SECONDS, self._context.network.keep)
            self._context.scheduler.later(patience, lambda: crossing.give_up())
        return False

    def _change(self, peer: Peer, principal: Principal, crossing: Crossing, question: Question) -> Installed:
        """Carry out a change of a peer's wishes: withdraw what is gone, admit what is new, and move all of it into
        force at one point of each source, behind which a barrier is due. What is refused is told, and keeps nothing
        else back."""
        request, channel = question.request, crossing.channel
        restarted = crossing.parked or crossing.incarnation != peer.incarnation
        names = question.names(crossing)
        special = question.special(crossing)
        groups = self._groups
        wanted = bool(question.wishes) or (bool(request.base) and len(crossing.wishes) > len(request.gone))
        plain = wanted and not special and not names
        group = None if groups is None else groups.granted(crossing, request, plain=plain)
        other = (crossing.share is None) != (group is None)  # they come in another way from now on
        if other and request.base:  # changes to wishes that are another member's: all of them are needed
            return Installed({}, all=True)
        if restarted:
            crossing.due = crossing.told = 0
        moves: list[Move] = []
        changes: list[tuple[Wish | int, str, str, str]] = []
        tags = {wish.tag for wish in question.wishes}
        for tag in question.gone(crossing, anew=restarted or other):
            moves += self._withdraw(crossing, tag)
            if tag not in tags:
                changes.append((tag, "withdrawn", "", ""))
        refused: dict[int, str] = {}
        hidden: dict[int, str] = {}
        fresh: list[Wish] = []
        for wish in question.wishes:
            if wish.tag in crossing.wishes and _has_renewed(crossing, wish):
                moves += self._withdraw(crossing, wish.tag)
            if wish.tag in crossing.wishes:
                if (held := crossing.asked.get(wish.tag)) is not None and held.hidden:
                    hidden[wish.tag] = held.hidden
                if wish.history and wish.turn > crossing.turns.get(wish.tag, 0):
                    crossing.turns[wish.tag] = wish.turn  # one more sink wants to begin with the past
                    fresh.append(wish)
                continue
            grant = question.grants.get(wish.tag) or self._try_read(principal, channel, wish)
            if not isinstance(grant, str) and not self.granting.is_current(grant):
                grant = self._try_read(principal, channel, wish)  # a policy has changed since it was read
            try:
                if isinstance(grant, str):
                    raise Refused(grant)
                entry = self.granting.grant(crossing, grant)
            except (Refused, HeadwaterError) as error:
                refused[wish.tag] = str(error)
                if len(refused) <= REFUSALS_TOLD:
                    changes.append((wish, "refused", str(error), "" if isinstance(grant, str) else grant.text))
                continue
            moves += self._grant(crossing, wish, grant, entry, (group or crossing).merged)
            if grant.asked is not None and grant.asked.claim.proof:
                self._watch(channel.name, grant.asked.claim)
            fresh.append(wish)
            if grant.hidden:
                hidden[wish.tag] = grant.hidden
            changes.append((wish, "hidden" if grant.hidden else "installed", grant.hidden, grant.text))
        # What lanes go by is set before the wishes hold: the first event that they pass makes a lane.
        crossing.incarnation = peer.incarnation
        crossing.reliable, timed = request.reliable, crossing.promises
        crossing.promises = request.promises
        if timed != request.promises:
            self._context.scheduler.watched()  # gateways here have to ask for them
        if request.promises:
            self._node._keep_time()
        crossing.lead_to(tuple(map(tuple, request.routes)))
        crossing.resume(request.reached, request.since, anew=restarted or not crossing.version)
        crossing.durable, crossing.installing = names, request.version
        self._put_in_force(peer, crossing, moves, fresh, group if crossing.wishes else None)
        if fresh:
            crossing.since, crossing.first = self._node._stamp(), _is_unheard(crossing)
        crossing.version = request.version  # not before: a barrier of this version goes after what is of the past
        if crossing.parked:
            self._send_again(peer, crossing, request.positions)
        self.promising = any(each.promises for other in self._peers.everyone() for each in other.crossings.values())
        if not crossing.wishes:
            peer.unwanted[channel.name] = request.version  # should an earlier question still come
            self._over(peer, crossing)
        elif fresh or crossing.due > crossing.told:  # for what is only withdrawn nobody waits
            crossing.due = crossing.version
            self._barriers.send_barrier(peer, crossing)
        for which, what, why, text in changes:
            self._control.wish(peer, channel.name, which, what, why, text)
        return Installed(crossing.points, refused, barrier=crossing.due, group=_group(crossing), hidden=hidden)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """No question is answered meanwhile; taken before the wiring's lock."""
        with self._lock:
            yield

    def part_groups(self, concerns: Callable[[str], bool]) -> None:
        """Channels of which policies decide do not go to multicast groups, where anybody may get them: who got them so
        is given up, and asks again. Nothing of what waits goes out. Both locks are held."""
        if self._groups is None:
            return
        for peer in self._peers.everyone():
            for crossing in list(peer.crossings.values()):
                name = crossing.channel.name
                if crossing.share is not None and concerns(name) and not self._groups.for_all(name):
                    with self._groups.withholding():
                        self._give_up(peer, crossing)

    def _watch(self, channel: str, claim: Claim) -> None:
        """When the proof of a user counts no longer, what came with it is judged anew."""
        until = self._context.decisions.until(claim)
        if until is None:
            return
        left = until - time()
        if left > 0:
            self._context.scheduler.later(min(left, WATCH_SECONDS) + 0.01, partial(self._watch, channel, claim))
        else:
            self._context.scheduler.work(self.expired, channel, claim.user)

    def _withdraw(self, crossing: Crossing, tag: int) -> list[Move]:
        entry, member = crossing.forget(tag)
        if crossing.held(entry, member) or not member.crossing.release(entry):
            return []
        return [Move(crossing.channel, entry, member, joins=False)]

    def _grant(self, crossing: Crossing, wish: Wish, grant: Grant, entry: Entry, merged: FilteredMember) -> list[Move]:
        made = None if grant.interest is None or grant.interest.whole_at is None else grant.interest.output
        member = TaggedMember(crossing, wish.tag, made, grant.limiter, grant.quota) if wish.tagged else merged
        joins = not crossing.held(entry, member) and member.crossing.hold(entry)
        crossing.take(wish, entry, member, cost=grant.cost, size=grant.size, label=grant.label)
        crossing.asked[wish.tag] = grant
        if (grant.hidden or grant.limit is not None) and whole_of(crossing.channel.name):
            crossing.lapsed = True
        return [Move(crossing.channel, entry, member, joins=True)] if joins else []

    def _put_in_force(
        self, peer: Peer, crossing: Crossing, moves: list[Move], fresh: list[Wish], group: GroupCrossing | None
    ) -> None:
        wiring, groups = self._context.wiring, self._groups
        pasts = recollect(crossing, fresh)
        if groups is not None and (group is not None or crossing.share is not None):
            groups.change(peer, crossing, group, moves, lambda: send_past(crossing, pasts))
            return
        joins = any(move.joins for move in moves)
        if joins and pasts:
            crossing.to_start = lambda: send_past(crossing, pasts)
        if moves:
            wiring.move(moves)
        if not joins:
            with wiring.still([crossing.channel]):
                crossing.started()
                send_past(crossing, pasts)

    def _send_again(self, peer: Peer, crossing: Crossing, positions: dict[int, int]) -> None:
        """What was kept for durable sinks while their node was away."""
        with peer.building:
            crossing.parked, crossing.deferred = False, None
            begins: dict[str, int] = {}  # by name of a source: where what is kept of all its lives does
            for lane in crossing.active():
                first, again = lane.again(None, after=positions.get(lane.sid, 0))
                begins[lane.source.name] = lane.begins_with_kept(begins.get(lane.source.name))
                lane.live = max(lane.live, crossing.points.get(lane.sid, 0))
                if lane.ended and not again and not lane.pending and not lane.behind:
                    crossing.drop(lane)
                elif peer.resumed:
                    peer.control.append(peer._announce(lane, first))
                    peer.control.extend(again)
                    if lane.ended and not lane.pending and not lane.behind:
                        peer.control.append(lane.end_frame())
                    if lane.pending or lane.behind:
                        peer.add_dirty(lane)
                else:
                    lane.announced = False
        peer.send_soon()

    # ── peers and sources that go ──

    def away(self, peer: Peer) -> None:
        """A peer is not there: what is best effort is over."""
        self.pages.gone(peer)
        if self._groups is not None:
            self._groups.away(peer)
        for crossing in list(peer.crossings.values()):
            if not crossing.reliable:
                self._drop(peer, crossing)

    def restarted(self, peer: Peer) -> None:
        """A peer was started again: of what it had asked for, only what its durable sinks wanted is kept for it."""
        self.pages.gone(peer)
        for crossing in list(peer.crossings.values()):
            with self._lock, self._context.wiring.lock:
                if crossing.incarnation != peer.incarnation:  # else it has asked anew already
                    self._begin_anew(peer, crossing)
        if self._groups is not None:
            self._groups.forget(peer)

    def _begin_anew(self, peer: Peer, crossing: Crossing) -> None:
        """What an earlier run of a peer had asked for of a channel; both locks are held."""
        if crossing.durable:
            crossing.parked = True
            for lane in crossing.active():
                if lane.is_elsewhere:
                    lane.forget()
                    continue
                lane.announced, lane.again_asked, lane.restart = False, 0, None
                lane.beginning = None  # what came before went to an earlier process
                with peer.building:
                    lane.forget_past()
            self._await_return(peer, crossing)
        elif peer.crossings.get(crossing.channel.name) is crossing:
            self._give_up(peer, crossing, "its node is gone")

    def _await_return(self, peer: Peer, crossing: Crossing) -> None:
        """What is kept for durable sinks of a peer that was started again is so no longer than if it had stayed away:
        it may have none of them any more."""
        run = peer.incarnation

        def give_up() -> None:
            with self._lock, self._context.wiring.lock:
                waits = crossing.parked and crossing.deferred is None and peer.incarnation == run
                if not waits or peer.crossings.get(crossing.channel.name) is not crossing:
                    return
                if peer.gone is None:
                    self._give_up(peer, crossing, "its node was started again, and has not asked for it")
                    return
            self._await_return(peer, crossing)  # it is away: if it comes back, it has as long again

        self._context.scheduler.later(self._context.network.keep, give_up)

    def gone(self, peer: Peer, *, orderly: bool) -> bool:
        """A peer has left, or stays away for too long; whether something is still kept for it."""
        for crossing in list(peer.crossings.values()):
            if not (orderly and crossing.durable):
                self._drop(peer, crossing)
        if self._groups is not None:
            self._groups.forget(peer)
            self._groups.hearing.forget(peer)
        return bool(peer.crossings)

    def _drop(self, peer: Peer, crossing: Crossing) -> None:
        with self._lock, self._context.wiring.lock:
            if peer.crossings.get(crossing.channel.name) is crossing:
                self._give_up(peer, crossing, "its node is gone")

    def _give_up(self, peer: Peer, crossing: Crossing, why: str = "a policy has changed") -> None:
        """Nothing that a peer has asked for of a channel holds any more; both locks are held."""
        moves = []
        for tag in list(crossing.wishes):
            moves += self._withdraw(crossing, tag)
            self._control.wish(peer, crossing.channel.name, tag, "withdrawn", why)
        moves = [] if crossing.channel.closed else moves
        if crossing.share is not None:
            self._put_in_force(peer, crossing, moves, [], None)
        elif moves:
            self._context.wiring.move(moves)
        self._over(peer, crossing)
        peer.given_up()

    def _over(self, peer: Peer, crossing: Crossing) -> None:
        """Nothing is wanted any more."""
        if peer.crossings.get(crossing.channel.name) is crossing:
            del peer.crossings[crossing.channel.name]
        for lane in crossing.active():
            if peer.link is not None and (lane.announced or lane.restart is not None):
                with peer.building:
                    # What is still to be read from the log nobody waits for: the end goes at once, or the next lane of
                    # that source, whose frames are counted anew, would be taken for this one.
                    lane.ended, lane.behind, lane.restart = True, None, None
                    frames: list[bytes] = []
                    if lane.announced:
                        lane.build(frames, now=True)
                    peer.control.extend([*frames, lane.end_frame()])
                peer.send_soon()
            lane.forget()

    def sources_gone(self, sources: list[Source]) -> None:
        """Sources of this node are no more."""
        if self._groups is not None:
            self._groups.sources_gone(sources)
        gone = {source.number for source in sources}
        for peer in self._peers.everyone():
            for crossing in list(peer.crossings.values()):
                with self._context.wiring.lock:
                    for source in sources:
                        crossing.counting.gone(source)
                for source, lane in list(crossing.lanes.items()):
                    if lane is not None and lane.sid in gone:
                        peer.end_lane(lane)
                    elif lane is None and source.withdrawn:
                        del crossing.lanes[source]

    def sweep(self, channels: Iterable[Channel]) -> None:
        """Sources that have come and gone before anyone was told of them: those who got their events forget them."""
        if self._groups is not None:
            self._groups.sweep(channels)
        for peer in self._peers.everyone():
            for channel in channels:
                crossing = peer.crossings.get(channel.name)
                if crossing is not None:
                    self._introduce(crossing)
                if crossing is not None:
                    lanes = list(crossing.lanes.items())
                    brief = [each for each, lane in lanes if each.withdrawn and lane is not None and not lane.ended]
                    if brief:
                        self.sources_gone(brief)

    def _introduce(self, crossing: Crossing) -> None:
        """Logged sources that have come after a peer's wishes: it learns of them now, not with the first event that it
        wants, since they owe it something from here on; and they take up how far it is with them."""
        if crossing.parked or crossing.share is not None or not (crossing.reliable and crossing.wishes):
            return
        for source in list(crossing.channel.sources.values()):
            if not source.local or source.log is None or source in crossing.lanes:
                continue
            with source.lock:
                lane = crossing.lane(source)
            if lane is not None:
                lane.dispatch()

    def moved(self, source: Source) -> None:
        """A source has gone to other zones; its lock is held. Who gets its events is told between the same two."""
        if not source.local:
            return
        if self._groups is not None:
            self._groups.moved(source)
        for peer in self._peers.everyone():
            crossing = peer.crossings.get(source.channel.name)
            lane = None if crossing is None else crossing.lanes.get(source)
            if lane is not None:
                lane.put(ControlFrame(peer.introduction(lane, 0)), 0)
                peer.add_dirty(lane)

    # ── time, and what is counted ──

    def promise(self) -> None:
        """Tell who wants to know how far time has come at sources that are idle."""
        if not self.promising:
            return
        timed: list[tuple[Peer, Crossing, Lane]] = []
        for peer in self._peers.everyone():
            pairs, new = [], False
            for crossing in list(peer.crossings.values()):
                if crossing.promises and peer.resumed:
                    for source in list(crossing.channel.sources.values()):
                        if not source.local:
                            continue
                        with source.lock:
                            lane = crossing.lane(source)
                        if lane is not None:
                            # What it has passed on by then is in the lane.
                            passed = _passed_on(source) if source.relays else None
                            with source.between():  # what is being written to its log was stamped before
                                now = passed if source.relays else self._node._stamp()
                                quiet = not lane.pending and lane.behind is None
                            if not lane.announced:
                                new = lane.dirty = True
                                peer.dirty.append(lane)
                            else:
                                if quiet and now is not None:
                                    pairs.append((lane.sid, now))
                                if now is not None and source.come_to is not None:
                                    timed.append((peer, crossing, lane))
            if pairs:
                peer.say(wire.encode_promise(pairs))
            elif new:
                peer.send_soon()
        if timed and not self._telling:
            self._telling = True  # before that is done, which may be at once
            if not self._context.scheduler.work(self._tell_times, timed):
                self._telling = False

    def _tell_times(self, lanes: list[tuple[Peer, Crossing, Lane]]) -> None:
        """Tell how far sources have come that publish matches; in a worker's thread, since for that their patterns look
        how far they are, which may find some. Whom something of a replica was hidden from is told nothing: it would
        take what it has for all there is."""
        try:
            found: dict[Peer, list[tuple[int, int, int]]] = {}
            for peer, crossing, lane in lanes:
                source: Any = lane.source
                times = source.come_to()
                if times is None:
                    continue
                with source.lock:
                    there = lane.behind is None and lane.announced and not lane.ended and not crossing.lapsed
                    waits = there and bool(lane.pending)
                    if waits and self._timed.get(lane) != lane.number:  # behind what waits, once until some of it goes
                        self._timed[lane] = lane.number
                        lane.put(ControlFrame(wire.encode_times([(lane.sid, *times)])), 0)
                if waits:
                    lane.dispatch()
                elif there:
                    found.setdefault(peer, []).append((lane.sid, *times))
            for peer, triples in found.items():
                peer.say(wire.encode_times(triples))
        finally:
            self._telling = False

    def tell(self, peer: Peer, request: Ask) -> Told:
        """The counts of a peer's interests in a channel."""
        crossing = peer.crossings.get(request.channel)
        if crossing is None:
            return Told({})
        with self._context.wiring.lock:
            return crossing.counting.told()


def _keeps(peer: Peer, channel: str) -> bool:
    """Whether something is kept for a peer until its durable sinks are back: a node that is closed waits for them."""
    crossing = peer.crossings.get(channel)
    return crossing is not None and crossing.parked


def _has_renewed(crossing: Crossing, wish: Wish) -> bool:
    """Whether a wish that is known comes with another proof of whom it is for."""
    known = crossing.asked.get(wish.tag)
    return known is not None and known.asked is not None and known.asked.wish.proof != wish.proof


def _passed_on(source: Source) -> int | None:
    """How far time has come at the origin of a source that is passed on, as far as that was; AWAY if the origin is."""
    return AWAY if source.promise == FOREVER else source.said


def _group(crossing: Crossing) -> str:
    """The multicast group by which events go to a peer, if they do."""
    return "" if crossing.share is None else crossing.share.address


def _is_unheard(crossing: Crossing) -> bool:
    """Whether no source of this node has published anything on the channel before the point from which wishes hold;
    sources that are no more count."""
    channel: Any = crossing.channel
    gone = [channel.past, *(lineup.past for lineup in channel.lineups)]
    return not any(crossing.points.values()) and not any(tally.published for tally in gone)
