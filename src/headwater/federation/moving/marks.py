"""Marks: where, in the events of a source, a sink leaves one node and goes on at another.

The node that a sink leaves asks each node with sources of its channels for a mark. That one has them stand still for a
moment, between two events, and tells both nodes where that was, behind all that it has sent them before. Up to there
the old node has everything that the sink wants, and after it the new one; and the state of an interest is given on at
that very point.

State is given on by who has it, to whom it says, and only if that one expects it: nobody gets, or is given, another's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headwater.decoders import msgpack_decoder
from headwater.errors import FederationError, HeadwaterError, Unreachable
from headwater.federation.moving.answering import Answering, Later
from headwater.federation.peers.post_registry import frame_of
from headwater.federation.security.policy import Restrict
from headwater.federation.wire.move_requests import MARK, ExpectState, Mark, Marked, MarkEvents
from headwater.federation.wire.requests import Accepted, pack_params

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.federation.context import Context
    from headwater.federation.demand.demand import Demands
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
ASK_SECONDS = 1.0  # after which a mark that has not come is asked for again
SOON_SECONDS = 0.02  # the same, where the other node is not in force yet
MOST_EXPECTED = 1_000  # states that one node expects of this one at a time
MOST_BEHIND = 1_000  # marks that may wait for a node
EXPECT_SECONDS = 60.0
Place = tuple[str, str]  # a node's id, and a channel

_encode = msgspec.msgpack.Encoder().encode
_MARK = msgpack_decoder(Mark)


@dataclass(eq=False, slots=True)
class Watch:
    """The marks of one move that have come here: by place, the last event of each source before it, by its number
    there. `asked`: when each was asked for last; `over`: those that will not come."""

    of: str  # the id of the node that the sink leaves: no other one has marks made of it
    to: str  # and of that which it goes to
    gives: dict[str, Entry] = field(default_factory=dict)  # by channel: those whose state is given on from here
    takes: dict[str, Entry] = field(default_factory=dict)  # and those that go on here with that of others
    points: dict[Place, dict[int, int]] = field(default_factory=dict)
    asked: dict[Place, float] = field(default_factory=dict)
    over: set[Place] = field(default_factory=set)
    terms: dict[Place, Marked] = field(default_factory=dict)  # what the other node may have of each


class Marks:
    """Of one node: those that it is asked for, and those that it waits for."""

    def __init__(self, context: Context, peers: Peers, dialogue: Dialogue, demands: Demands) -> None:
        self._context, self._peers, self._dialogue, self._demands = context, peers, dialogue, demands
        self._lock = threading.Lock()
        self._watched: dict[bytes, Watch] = {}
        self._answering = Answering(context)
        # By node, channel and move: the tag of the interest that is to go on with the state of another's, and whose.
        self._expected: dict[tuple[str, str, bytes], tuple[int, str, float]] = {}

    # ── what others ask ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (MarkEvents, self._answering.by("marks", self._mark)), (ExpectState, self._expects)

    def posts(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        return ((MARK, self._came),)

    def _expects(self, caller: Caller, request: ExpectState) -> Accepted:
        """Only of what is in force for the one that asks: that much it was let have."""
        now, peer = monotonic(), caller.peer
        crossing = peer.crossings.get(request.channel)
        if crossing is None or request.tag not in crossing.wishes:
            return Accepted(error=f"refused: no interest {request.tag} in {request.channel!r} is in force for you here")
        with self._lock:
            self._expected = {key: each for key, each in self._expected.items() if each[2] > now}
            if sum(key[0] == peer.id for key in self._expected) >= MOST_EXPECTED:
                return Accepted(error=f"refused: {MOST_EXPECTED:,} of your interests are to go on with a state already")
            until = now + EXPECT_SECONDS
            self._expected[peer.id, request.channel, request.move] = request.tag, request.of, until
        return Accepted()

    def _mark(self, caller: Caller, request: MarkEvents) -> Marked:
        """Who gets events of a channel may know where they end, and whether another one may have them. Sources stand
        still for it, which may take a moment."""
        peer, allowed = caller.peer, self._context.decisions.decide(caller.principal, "subscribe", request.channel)
        if not allowed or request.channel not in {channel.name for channel in self._context.node.channels()}:
            raise FederationError(f"there is no channel {request.channel!r} here for {peer.name}")
        crossing = peer.crossings.get(request.channel)
        if crossing is None:
            return replace(self._terms(request.channel, request.to), unsent=True)
        terms = self._terms(request.channel, request.to)
        if not terms.nothing and self._is_early(crossing.channel, request.to):
            return replace(terms, early=True)
        for told in (peer, self._peers.get(request.to)):
            if told is not None and len(told.behind_due) >= MOST_BEHIND:
                raise Later(f"{MOST_BEHIND:,} marks wait for {told.name} already; ask again")
        found = crossing.wishes.get(request.tag) if request.tag else None
        self._stand_still(crossing.channel, request.move, request.to, None if found is None else found[0], peer)
        return terms

    def _is_early(self, channel: Channel, to: str) -> bool:
        """Whether this node has sources of a channel, and nothing of them goes to another one that is there: it may not
        have heard of them yet."""
        new = self._peers.get(to)
        if new is None or new.gone is not None or channel.name in new.crossings:
            return False
        return any(flow.source.local and flow.source.channel is channel for flow in channel.flows())

    def _terms(self, channel: str, to: str) -> Marked:
        """What a node may have of a channel, by the word of this one, which has sources of it."""
        new = self._peers.get(to)
        if to == self._context.id:
            return Marked()
        if new is None or new.principal is None:
            return Marked(nothing=True)
        verdict = self._context.decisions.decide(new.principal, "subscribe", channel)
        if not isinstance(verdict, Restrict):
            return Marked(nothing=not verdict)
        limit = verdict.interest
        return Marked(limit=limit.dumps(), params=pack_params(limit.params) if limit.params else None)

    def _stand_still(self, channel: Channel, move: bytes, to: str, giver: Entry | None, peer: Peer | None) -> None:
        """The point of a mark, which `peer` has asked for, or this node itself."""
        wiring = self._context.wiring
        new = self._peers.get(to)
        of = self._context.id if peer is None else peer.id
        watch = self._watched.get(move) if peer is None or to == self._context.id else None
        with wiring.lock, wiring.still([channel]):
            own = [flow for flow in channel.flows() if flow.source.local and flow.source.channel is channel]
            points = {flow.source.number: flow.source.seq for flow in own}
            taker = self._taker(channel, move, of, to, new)
            if giver is not None and taker is not None and _equal(giver, taker):
                for flow in own:
                    flow.restore(taker, flow.snapshot(giver))
            if watch is not None and watch.of == of:  # no event comes between: what is published next is after it
                watch.points.setdefault((self._context.id, channel.name), points)
        frame = frame_of(MARK, _encode(Mark(channel.name, move, of, points)))
        for told in (peer, new):
            crossing = None if told is None else told.crossings.get(channel.name)
            if told is not None and crossing is not None:
                told.say_behind(crossing, frame)
        self._context.scheduler.nudge()

    def _taker(self, channel: Channel, move: bytes, of: str, to: str, new: Peer | None) -> Entry | None:
        """The interest that goes on with the state of one that has left; the wiring's lock is held."""
        if to == self._context.id:
            watch = self._watched.get(move)
            return None if watch is None or watch.of != of else watch.takes.get(channel.name)
        key = to, channel.name, move
        with self._lock:
            tag, whose, until = self._expected.get(key, (0, "", 0.0))
            if whose != of:
                return None
            del self._expected[key]
        crossing = None if new is None else new.crossings.get(channel.name)
        found = None if crossing is None or monotonic() > until else crossing.wishes.get(tag)
        return None if found is None else found[0]

    # ── what this node waits for ──

    def watch(self, move: bytes, of: str, to: str) -> Watch:
        """Keep the marks of a move, until `forget`. A sink may leave and come at one node: then both have the same."""
        with self._lock:
            found = self._watched.get(move)
            if found is None:
                found = self._watched[move] = Watch(of, to)
            return found

    def forget(self, move: bytes) -> None:
        with self._lock:
            self._watched.pop(move, None)

    def _came(self, peer: Peer, body: bytes) -> None:
        """A mark, behind all that has come before it; in the thread that reads the link."""
        try:
            mark = _MARK.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._context.offences.note(peer.id, f"a mark that is none: {error}")
            return
        note = partial(self._note, peer, mark)
        if peer.groups is None:
            note()
        else:
            peer.groups.hearing.barrier_came(peer, mark.channel, note)

    def _note(self, peer: Peer, mark: Mark) -> None:
        asked = peer.asked.get(mark.channel)
        version = 0 if asked is None else asked.marked
        for number, seq in mark.points.items():
            source = peer.remote_sources.get(number)
            if source is not None and source.channel.name == mark.channel:
                # What is read again for others here begins after it, for who goes on here too.
                source.passed_by(seq, version)
        watch = self._watched.get(mark.move)
        place = peer.id, mark.channel
        # Of what nobody wants of that node nothing is kept, however much it says.
        if watch is not None and watch.of == mark.of and (place in watch.asked or self.comes_from(*place)):
            # The first one counts: state was given on there.
            watch.points.setdefault(place, mark.points)
            self._context.scheduler.nudge()

    def ask(self, move: bytes, watch: Watch, channels: Iterable[Channel], also: set[Place]) -> tuple[bool, bool]:
        """Ask for the marks of a move that have not come, each again after a while; and at `also`, where what waits has
        come from. Whether all have said what the other node may have, and whether all marks are here, too, or will not
        come. Called by who leaves."""
        now, told, done = monotonic(), True, True
        for channel in channels:
            own = self._context.id, channel.name
            if own not in watch.points:
                if self._is_early(channel, watch.to) and not self._terms(channel.name, watch.to).nothing:
                    done = False
                else:
                    self._stand_still(channel, move, watch.to, watch.gives.get(channel.name), None)
            for peer in self._peers.everyone():
                place = peer.id, channel.name
                concerns = place in also or self.comes_from(peer.id, channel.name)
                if place in watch.over or not concerns or peer.gone is not None:
                    continue
                known = place in watch.terms
                told, done = told and known, done and known and place in watch.points
                if not (known and place in watch.points) and now - watch.asked.get(place, -inf) >= ASK_SECONDS:
                    watch.asked[place] = now
                    self._context.scheduler.work(self._ask, move, watch, peer, channel, on=peer.id)
        return told, done

    def is_there(self, node: str) -> bool:
        """Whether a node can be asked."""
        peer = self._peers.get(node)
        return peer is not None and peer.gone is None

    def comes_from(self, node: str, channel: str) -> bool:
        """Whether events of a channel may come from a node that is there, and so a mark that it has made of them."""
        peer = self._peers.get(node)
        if peer is None:
            return node == self._context.id
        asked = peer.asked.get(channel)
        return peer.gone is None and asked is not None and bool(asked.demand.wishes) and not asked.all_refused

    def _ask(self, move: bytes, watch: Watch, peer: Peer, channel: Channel) -> None:
        entry = watch.gives.get(channel.name)
        tag = 0 if entry is None else self._demands.number(entry) or 0
        try:
            terms = self._dialogue.ask(peer, MarkEvents(channel.name, move, watch.to, tag), ASK_SECONDS)
            watch.terms[peer.id, channel.name] = terms
            if terms.unsent:
                watch.over.add((peer.id, channel.name))
            elif terms.early:
                watch.asked[peer.id, channel.name] = monotonic() - ASK_SECONDS + SOON_SECONDS
                self._context.scheduler.later(SOON_SECONDS, self._context.scheduler.nudge)
        except Unreachable:
            pass  # it is asked again
        except FederationError as error:
            log.info("node %s: %s does not mark its events: %s", self._context.name, peer.name, error)
            watch.over.add((peer.id, channel.name))
        self._context.scheduler.nudge()

    def expect_state(self, move: bytes, watch: Watch, channels: Iterable[Channel], timeout: float) -> None:
        """Have the sources' nodes know that interests of this one are to go on with a state; called by who comes."""
        waiting = [
            (peer, channel, entry)
            for channel in channels
            if (entry := watch.takes.get(channel.name)) is not None
            for peer in self._peers.everyone()
            if self.comes_from(peer.id, channel.name)
        ]
        if not waiting:
            return
        left = len(waiting)

        def ask(peer: Peer, channel: Channel, entry: Entry) -> None:
            nonlocal left
            try:
                tag = self._demands.number(entry) or 0
                self._dialogue.ask(peer, ExpectState(channel.name, move, tag, watch.of), min(timeout, ASK_SECONDS))
            except HeadwaterError as error:
                log.warning("%s: the state of an interest begins anew at %s: %s", channel.name, peer.name, error)
            finally:
                left -= 1
                self._context.scheduler.nudge()

        for peer, channel, entry in waiting:
            self._context.scheduler.work(ask, peer, channel, entry, on=peer.id)
        self._context.scheduler.until(lambda: left <= 0, timeout)


def _equal(one: Entry, other: Entry) -> bool:
    """Whether two interests, as policies have left them, are the same program with the same parameters."""
    a, b = one.here, other.here
    if a is None or b is None or not a.stateful:
        return False
    return a.fingerprint == b.fingerprint and sorted(a.params.items()) == sorted(b.params.items())


__all__ = ["Marks", "Watch"]
