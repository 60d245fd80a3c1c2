"""Groups between nodes, as a service of each: members of this node elsewhere, and members elsewhere in groups of this
node.

    as a member   every node that has sources of the channel is asked for a place in its group; what comes along the
                  lane is handed to the member, and the node told what is handled
    as a source   who asks is judged as anybody who subscribes; it is a seat of the group then, until it leaves, its
                  node is gone, or there was no link to it for longer than the lease

A lane is of its own, beside the numbered frames of a source: what goes again to another member has a number there that
was passed long ago. See docs/sharing.md.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.groups.terms import Terms, key_problems
from headwater.channel.services import Service
from headwater.errors import FrameError, HeadwaterError, Unreachable
from headwater.federation.groups.attendance import Attendance
from headwater.federation.groups.seat import RemoteSeat
from headwater.federation.interests.admission import Refused
from headwater.federation.peers.post_registry import Bounded, post
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.wire import group_messages as wire
from headwater.federation.wire.group_messages import GroupJoined, JoinGroup
from headwater.federation.wire.requests import Accepted, Wish, pack_params, pack_type, unpack_type

if TYPE_CHECKING:
    from headwater.channel.groups.member import GroupMember
    from headwater.channel.groups.service import Groups
    from headwater.channel.node import Node
    from headwater.federation.context import Context
    from headwater.federation.interests.admission import Granting
    from headwater.federation.peers.connections import Connections
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.requests import Reply

log = logging.getLogger("headwater.federation")
ASK_SECONDS = 3.0
RETRY_SECONDS = 0.2  # after which a node that did not answer is asked again
REFUSED_SECONDS = 2.0  # and one that has refused
MOST_LANES = 1024  # of one peer
ERROR_CHARACTERS = 1900
LOOKS = 4  # in a lease


class GroupLanes(Service):
    """Of one node."""

    name = "group lanes"

    def __init__(
        self, node: Node, context: Context, peers: Peers, dialogue: Dialogue, links: Connections, granting: Granting
    ) -> None:
        self._node, self._context, self._peers = node, context, peers
        self._dialogue, self._links, self._granting = dialogue, links, granting
        self._lock = threading.Lock()
        self._dirty = False
        # as a member
        self._members: list[GroupMember] = []
        self._lanes: dict[tuple[str, int], Attendance] = {}  # by peer and lane
        self._refused: dict[tuple[str, str, int], float] = {}  # by member, peer and run of it: since when
        # as a source
        self._seats: dict[tuple[str, int], tuple[RemoteSeat, int]] = {}  # with the run of the peer
        self.refused = self.strange = 0
        context.scheduler.watchers.append(self._changed)
        context.scheduler.every(0.0, self._look, wanted=lambda: self._dirty)
        beat = min(1.0, context.network.lease / LOOKS)
        context.scheduler.every(beat, self._beat, wanted=lambda: bool(self._members or self._seats or self._lanes))
        links.reasons.append(self._wants_link)

    @property
    def _groups(self) -> Groups:
        return self._node._groups()

    def _wants_link(self, peer: Peer) -> bool:
        return any(id == peer.id for id, _ in (*self._lanes, *self._seats))

    def _post(self, id: str, said: wire.GroupPost) -> bool:
        peer = self._peers.get(id)
        return peer is not None and post(peer, wire.KIND, wire.encode(said))

    # ── members of this node: `Carrier` ──

    def joined(self, member: GroupMember) -> None:
        """Nodes that have sources of its channel are asked."""
        with self._lock:
            self._members.append(member)
        self._changed()

    def left(self, member: GroupMember) -> None:
        """They are told."""
        with self._lock:
            if member in self._members:
                self._members.remove(member)
            mine = [each for each in list(self._lanes.values()) if each.member is member]
        for attendance in mine:
            attendance.leave()
        self._changed()

    def settled(self) -> bool:
        """Whether every node with sources of a channel has said whether a member of this node is one there."""
        if self._dirty:
            return False
        with self._lock:
            members = list(self._members)
            waiting = any(not each.accepted for each in list(self._lanes.values()) if not each.left)
        return not waiting and not any(self._missing(member) for member in members)

    def idle(self) -> bool:
        """Whether members of other nodes have said of all that is for them that it is handled."""
        seats = [seat for seat, _ in list(self._seats.values())]
        return not any(seat.waits or (seat.group is not None and seat.group.owes(seat.id)) for seat in seats)

    def members(self, channel: str) -> set[tuple[str, str, bool]]:
        """Who has members of groups of a channel here: the ids of nodes, this one with them, the group of each, and
        whether that is durable."""
        with self._lock:
            own = [each for each in self._members if each.channel.name == channel]
        found = {(self._context.id, each.group, each.terms.durable) for each in own}
        for (id, _), (seat, _) in list(self._seats.items()):
            group = seat.group
            if group is not None and group.channel.name == channel and not seat.over:
                found.add((id, group.name, group.terms.durable))
        return found

    def _missing(self, member: GroupMember) -> list[Peer]:
        """Nodes that have sources of a member's channel, and have not answered it yet."""
        there = {(each.peer, each.incarnation) for each in list(self._lanes.values()) if each.member is member}
        return [
            peer
            for peer in self._peers.everyone()
            if peer.gone is None
            and peer.exchange is not None
            and peer.offers(member.channel.name)
            and (peer.id, peer.incarnation) not in there
            and (member.id, peer.id, peer.incarnation) not in self._refused
        ]

    def _changed(self) -> None:
        """Something has: it is looked at soon."""
        if (self._members or self._lanes or self._seats) and not self._dirty:
            self._dirty = True
            self._context.scheduler.wake()

    def _look(self) -> None:
        """Ask whoever was not asked yet; forget whom there is nothing more to say to. The keeper is here."""
        self._dirty = False
        if self._context.closing:
            return
        self._greet()
        for key, attendance in list(self._lanes.items()):
            peer = self._peers.get(attendance.peer)
            if attendance.over or (attendance.left and attendance.finished):
                self._lanes.pop(key, None)
            elif peer is None or peer.incarnation != attendance.incarnation or peer.is_given_up:
                attendance.over = True
                self._lanes.pop(key, None)
        with self._lock:
            members = list(self._members)
        for member in members:
            for peer in self._missing(member):
                lane = secrets.randbits(52) + 1
                made = Attendance(member, peer.id, peer.incarnation, lane, peer.name, partial(self._post, peer.id))
                self._lanes[peer.id, lane] = made
                if not self._context.scheduler.work(self._ask, peer, made, on=f"groups/{peer.id}"):
                    self._lanes.pop((peer.id, lane), None)

    def _ask(self, peer: Peer, made: Attendance) -> None:
        """Ask a node to have a member of this one in its group; the worker that waits is here."""
        member = made.member
        place = f"{member.channel.name} at {peer.name}"
        try:
            answer = self._dialogue.ask(peer, _join(member, made.lane), ASK_SECONDS)
            made.accept(unpack_type(answer.events))
        except Unreachable:
            self._drop(made)
            self._context.scheduler.later(RETRY_SECONDS, self._changed)
            return
        except HeadwaterError as error:
            self._drop(made)
            self._refused[member.id, made.peer, made.incarnation] = monotonic()
            if not member.cancelled and not self._context.closing and member.refused.get(place) != str(error):
                member.refused[place] = str(error)
                log.warning(
                    "subscription %r is no member of group %r at node %s: %s",
                    member.name,
                    member.group,
                    peer.name,
                    error,
                )
            self._context.scheduler.changed()
            return
        member.refused.pop(place, None)
        if member.cancelled:
            made.leave()
        if peer.link is None:
            self._links.connect(peer)
        self._context.scheduler.changed()

    def _drop(self, made: Attendance) -> None:
        """It is no member there, or nobody knows."""
        made.over = True
        self._lanes.pop((made.peer, made.lane), None)
        self._post(made.peer, wire.Leave(made.lane))

    # ── members of other nodes ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return ((JoinGroup, self._asked),)

    def _asked(self, caller: Caller, request: JoinGroup) -> Postponed:
        """To judge what it wants takes a while."""

        def begin(tell: Callable[[Reply], None]) -> None:
            if not self._context.scheduler.work(answer, tell, on=f"groups/{caller.peer.id}"):
                tell(Accepted(error="refused: the node is closing"))

        def answer(tell: Callable[[Reply], None]) -> None:
            try:
                tell(self._admit(caller, request))
            except (HeadwaterError, Refused) as error:
                self.refused += 1
                tell(Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS]))

        return Postponed(begin)

    def _admit(self, caller: Caller, request: JoinGroup) -> GroupJoined:
        """A seat for a member of another node, if it may have one; raises if not."""
        with self._context.decisions.reading():
            return self._seated(caller, request)

    def _seated(self, caller: Caller, request: JoinGroup) -> GroupJoined:
        """The same: it is judged, gets its seat, and is judged again if policies have changed between the two."""
        peer = caller.peer
        if sum(1 for id, _ in list(self._seats) if id == peer.id) >= MOST_LANES:
            raise Refused(f"group {request.group!r}: it has {MOST_LANES:,} members at this node, and no more")
        channel = next((each for each in self._node.channels() if each.name == request.channel), None)
        if channel is None:
            verdict = self._context.decisions.decide(caller.principal, "subscribe", request.channel)
            raise Refused(
                f"not allowed: {verdict.why}" if not verdict else f"there is no channel {request.channel} here"
            )
        grant = self._granting.read(caller.principal, channel, request.wish)
        if grant.hidden:
            raise Refused(grant.hidden)
        if grant.cost > self._context.network.budget.each:
            raise Refused(f"too costly: about {grant.cost:,} native operations an event")
        interest = grant.interest
        type = channel.type if interest is None or interest.output is None else interest.output
        if problems := key_problems(request.key or None, type):
            raise Refused("; ".join(problems))
        terms = Terms(interest, request.key, grant.zones, request.durable)
        key = peer.id, request.lane
        if key in self._seats:
            raise Refused(f"group {request.group!r}: lane {request.lane} is in use")
        seat = RemoteSeat(
            f"{peer.name}/{request.member}/{request.lane:x}",
            request.lane,
            request.credit,
            partial(self._post, peer.id),
            peer.carry,
            asked=grant.asked,
        )
        self._seats[key] = seat, peer.incarnation
        try:
            seat.group = self._groups.join(channel, request.group, terms, seat)
        except BaseException:
            self._seats.pop(key, None)
            raise
        # What has changed since it was judged may not have found it.
        why = "" if self._granting.is_current(grant) else self._rejudged(key, seat, tell=False)
        if seat.over:  # it has left meanwhile, or may not be one any more
            seat.group.leave(seat.id)
            self._groups.tidy(seat.group)
            raise Refused(why or f"group {request.group!r}: it has left")
        seat.dispatch()
        if peer.link is None:
            self._links.connect(peer)
        return GroupJoined(pack_type(type))

    def _unseat(self, key: tuple[str, int], why: str, *, tell: bool = False, finishing: Iterable[int] = ()) -> None:
        """A member of another node is none any more."""
        found = self._seats.get(key)
        if found is None:
            return
        seat, keeps = found[0], list(finishing)
        if not keeps:
            seat.over = True  # first: who is just about to make it a member sees that then
            self._seats.pop(key, None)
        group = seat.group
        if group is not None:
            group.leave(seat.id, finishing=keeps, why=why)
            self._groups.tidy(group)
        if tell:
            self._post(key[0], wire.Over(key[1], why[:ERROR_CHARACTERS]))

    # ── what is posted ──

    def posts(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        return ((wire.KIND, Bounded(self._on_post)),)

    def _on_post(self, peer: Peer, body: bytes) -> None:
        """The thread that reads the link is here."""
        try:
            said = wire.decode(body)
        except FrameError as error:
            self._context.offences.note(peer.id, str(error))
            return
        key = peer.id, said.lane
        if isinstance(said, wire.TO_SOURCE):
            found = self._seats.get(key)
            if found is None:
                self.strange += 1
                if isinstance(said, wire.Standing):
                    self._post(peer.id, wire.Over(said.lane))
                return
            self._hear(key, found[0], said)
            return
        attendance = self._lanes.get(key)
        if attendance is None:
            self.strange += 1
            if isinstance(said, wire.Deal | wire.Probe):
                self._post(peer.id, wire.Leave(said.lane))
            return
        try:
            match said:
                case wire.Deal():
                    attendance.take(said)
                case wire.Probe():
                    attendance.stand()
                case wire.Over():
                    self._over(attendance, said.why)
        except FrameError as error:
            self._context.offences.note(peer.id, str(error))
            self._drop(attendance)
            self._refused[attendance.member.id, peer.id, attendance.incarnation] = monotonic()

    def _hear(self, key: tuple[str, int], seat: RemoteSeat, said: wire.GroupPost) -> None:
        match said:
            case wire.Handled(numbers=numbers):
                seat.handled(numbers)
                group = seat.group
                if group is not None and not group.distribution.knows(seat.id):  # it had left, and has finished
                    self._seats.pop(key, None)
                    self._groups.tidy(group)
            case wire.Standing(received=received, open=open):
                seat.stands(received, open)
            case wire.Again(after=after):
                seat.again(after)
            case wire.Leave(finishing=finishing):
                self._unseat(key, "it was cancelled", finishing=seat.of_group(finishing))

    def _over(self, attendance: Attendance, why: str) -> None:
        """The other end has no such member: it is asked again, or, if it may not be one, later."""
        attendance.over = True
        self._lanes.pop((attendance.peer, attendance.lane), None)
        if why:
            member = attendance.member
            member.refused[f"{member.channel.name} at {attendance.node}"] = why
            self._refused[member.id, attendance.peer, attendance.incarnation] = monotonic()
        self._changed()

    # ── time, and what changes ──

    def _beat(self) -> None:
        """Who is gone is none of a group any more; who has not said anything for a while is asked how far it is, and
        what members of this node have handled is said."""
        now, lease = monotonic(), self._context.network.lease
        for attendance in list(self._lanes.values()):
            attendance.say()
        for key, (seat, incarnation) in list(self._seats.items()):
            peer = self._peers.get(key[0])
            seat.give_up()
            if peer is None or peer.incarnation != incarnation or peer.gone is not None:
                self._unseat(key, f"node {key[0].rpartition('.')[0]} is gone")
                continue
            if peer.link is None:
                seat.linkless = seat.linkless or now
                if now - seat.linkless > lease:
                    self._unseat(key, f"there is no link to node {peer.name}")
                continue
            seat.linkless = None
            if seat.waits and now - seat.unheard > lease / LOOKS:
                seat.unheard = now
                seat.probe()
        for at, since in list(self._refused.items()):
            if now - since > REFUSED_SECONDS:
                self._refused.pop(at, None)
                self._dirty = True
        self._look()

    def _greet(self) -> None:
        """What was said before may have been lost with the link: over another one it is said how far everybody is."""
        for (id, _), (seat, _) in list(self._seats.items()):
            peer = self._peers.get(id)
            if peer is not None and peer.link is not None and seat.links != peer.links:
                seat.links = peer.links
                seat.probe()
        for attendance in list(self._lanes.values()):
            peer = self._peers.get(attendance.peer)
            if peer is not None and peer.link is not None and attendance.links != peer.links:
                attendance.links = peer.links
                if attendance.accepted:
                    attendance.stand()

    def rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies have changed: whoever may have something else now than its group has is no member of it."""
        for key, (seat, _) in list(self._seats.items()):
            if seat.group is not None and concerns(seat.group.channel.name):
                self._rejudged(key, seat, tell=True)

    def _rejudged(self, key: tuple[str, int], seat: RemoteSeat, *, tell: bool) -> str:
        """A member of another node that may have something else now than its group has is none any more: why."""
        group = seat.group
        if group is None or seat.asked is None:
            return ""
        try:
            grant = self._granting.judge(seat.asked, group.channel)
            now = Terms(grant.interest, group.terms.key, grant.zones, group.terms.durable)
            why = grant.hidden or "; ".join(group.terms.differences(now))
        except (HeadwaterError, Refused) as error:
            why = str(error)
        if why:
            why = f"policies have changed: {why}"
            self._unseat(key, why, tell=tell)
        return why

    def report(self) -> Mapping[str, Any]:
        """Lanes in and out, what was refused, and posts of lanes that are none."""
        if not (self._lanes or self._seats or self.refused or self.strange):
            return {}
        return {
            "attending": len(self._lanes),
            "seats": len(self._seats),
            "refused": self.refused,
            "strange": self.strange,
        }


def _join(member: GroupMember, lane: int) -> JoinGroup:
    """What a node is asked for a member."""
    interest, terms = member.terms.interest, member.terms
    tagged = interest is not None and (interest.stateful or interest.output is not None or interest.contextual)
    wish = Wish(
        1,
        None if interest is None else interest.dumps(),
        None if interest is None or not interest.params else pack_params(interest.params),
        tagged,
        sorted(terms.zones or ()),
        kind=interest.kind if interest is not None and interest.contextual else "",
    )
    return JoinGroup(
        member.channel.name, member.group, lane, wish, member.credit, terms.key, terms.durable, member.name
    )


__all__ = ["GroupLanes"]
