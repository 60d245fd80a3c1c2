"""Sources that leave this node, and sources that come: as a service of its node, which others ask for those they may
have.

    leave     a token; nothing else changes, and it publishes here as before
    fetch     who shows the token, and may, gets what it has published, so that sinks that are behind find it there
    claim     nothing more is published here; that it is the other one's, from which number on, is written and told
    resume    at the other node: the rest of the past is written, then that it is here; then it publishes

Whoever crashes at whatever point: it is at one node, or is claimed and goes on at the other one when that asks again,
but never at both.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.channel.groups.group_positions import GroupPosition, GroupPositions
from headwater.channel.options.subscribe import check_seconds
from headwater.channel.services import Service
from headwater.errors import SubscriptionError
from headwater.federation.arrive.deeds import Deeds, leading_to
from headwater.federation.moving.answering import Answering, Later
from headwater.federation.moving.service import MOST_SECONDS, checked_target, claimant_of
from headwater.federation.moving.source_arrival import KIND, PREFIX, SourceArrival
from headwater.federation.moving.source_departure import SourceDeparture, check_movable, home_of
from headwater.federation.moving.source_past import EarlierEvents, page_of
from headwater.federation.moving.token import signed_token
from headwater.federation.security.rules import Rule
from headwater.federation.wire.control import MAX_DEEDS
from headwater.federation.wire.move_requests import ID_BYTES
from headwater.federation.wire.requests import MAX_LIST, pack_type
from headwater.federation.wire.source_move_requests import (
    MAX_GROUPS,
    ClaimSource,
    FetchPast,
    GroupAt,
    MemberAt,
    PastPage,
    SourceClaimed,
    SourceMove,
)
from headwater.services.moving.source_register import SourceRegister

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.source import Source
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.services.moving.source_register import Cut, Terms
    from headwater.store.log.handed_past import HandedPast

log = logging.getLogger("headwater.federation")
_encode = msgspec.msgpack.Encoder().encode


class MovingSources(Service):
    """Of one node."""

    name = "moving sources"

    def __init__(self, node: Node, context: Context, departure: SourceDeparture, arrival: SourceArrival) -> None:
        self._node, self._context, self._departure, self._arrival = node, context, departure, arrival
        self._register: SourceRegister | None = None
        self._opening = threading.Lock()
        self._deeds, self._answering = Deeds(context), Answering(context, "a source")
        self._past: HandedPast | None = None
        if node._logs is not None:
            from headwater.store.log.handed_past import HandedPast  # late: a node without a log needs none of it

            self._past = HandedPast(node._logs.settings, node.name)
        self.left = 0

    @property
    def register(self) -> SourceRegister:
        """Opened when it is first needed."""
        with self._opening:
            if self._register is None:
                state = self._node.state
                if state is None:
                    raise SubscriptionError(
                        f"node {self._node.name!r}: expected a node with state, for what moves is kept there, found "
                        'one without; give it a file, Node(state="lab.state"), or ":memory:"'
                    )
                self._register = SourceRegister(state)
            return self._register

    # ── leaving ──

    def leave(self, source: Source[Any], to: str | None, lasts: float) -> str:
        """A token for a source of this node, which goes on here until somebody claims it."""
        check_movable(source, self._departure.multicast)
        seconds = check_seconds("move: lasts", lasts)
        if seconds > MOST_SECONDS:
            raise SubscriptionError(f"move: lasts: expected at most {MOST_SECONDS:,.0f} seconds, found {seconds:,.0f}")
        target = checked_target(to)
        channel, id, now = source.channel, secrets.token_bytes(ID_BYTES), self._node._stamp()
        facts = source.facts
        move = SourceMove(
            id,
            self._context.id,
            channel.name,
            source.name,
            pack_type(channel.type),
            None if channel.type is None or source.type == channel.type else pack_type(source.type),
            None if facts is None else facts.dumps(),
            sorted(source.zones),
            source.priority,
            home_of(source),
        )
        token = signed_token(self._context, PREFIX, KIND, source.name, _encode(move))
        self.register.begin(id, channel.name, source.name, target, now + round(seconds * 1e9), now)
        return token

    def place(self, source: Source[Any]) -> None:
        """A source is about to be advertised: ClosedError if it goes on elsewhere; if it came from there, it goes on
        from where it was."""
        if self._node.state is None:
            return
        channel, name = source.channel.name, source.name
        who = self.register.fence(channel, name)
        if who is not None:
            raise SubscriptionError(
                f"source {name!r} of {channel}: it has moved to {who}, and goes on there; have it moved back, or give "
                "this one another name"
            )
        if self.register.claiming(channel, name) is not None:
            raise SubscriptionError(
                f"source {name!r} of {channel}: it was about to come here from another node, and may have; "
                "resume_source with the same token goes on with it, or give this one another name"
            )
        arrived = self.register.arrival(channel, name)
        if arrived is None:
            return
        cut = arrived.cut
        if bool(cut.home) != (source.log is not None):
            if cut.home:
                raise SubscriptionError(
                    f"source {name!r} of {channel}: expected a log, which it has had since it moved here, found none; "
                    "give its node one"
                )
            return  # it was not logged when it came: its numbers are those of the log
        source.term, source.begins_after = cut.term, cut.upto
        source.go_on_after(cut.stamp)
        if not cut.home:
            return
        logs = self._node._logs
        assert logs is not None and self._past is not None
        source.home, source.deeds = cut.home, arrived.deeds
        logs.handed[channel, name] = EarlierEvents(self._past, channel, cut.home, cut.upto)  # it may have come back
        source.kept_key = cut.home
        source.again = source.logged_upto(source.channel)

    def of_channel(self, channel: str) -> tuple[dict[str, int], dict[str, int]]:
        """Sources of a channel that came from other nodes and are here, open or not, with the event after which they
        are, and what is before that to be read; and those that have left, with how often they had moved then."""
        logs = self._node._logs
        if self._node.state is None or logs is None or self._past is None:
            return {}, {}
        came, left = self.register.arrivals(channel), self.register.left(channel)
        here = {source: cut for source, cut in came.items() if cut.home and source not in left}
        for source, cut in here.items():
            logs.handed.setdefault((channel, source), EarlierEvents(self._past, channel, cut.home, cut.upto))
        return {source: cut.upto for source, cut in here.items()}, left

    def settled(self, source: Source[Any]) -> None:
        """A source that came from another node is advertised."""
        if source.home:
            self._arrival.settle(source)

    # ── who may have it ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (
            (FetchPast, self._answering.by("moving", self._fetched)),
            (ClaimSource, self._answering.by("moving", self._claimed)),
        )

    def _terms(self, caller: Caller, id: bytes) -> Terms:
        """Of the move that a token is for, if it is for who shows it."""
        terms = None if self._node.state is None else self.register.terms(id)
        if terms is None:
            raise SubscriptionError("the token was never made here, or is long over")
        principal, peer = caller.principal, caller.peer
        fits = not terms.target or Rule("**", terms.target).concerns(principal)
        if not (fits or terms.target == peer.id or (principal.how == "key" and terms.target == peer.name)):
            raise SubscriptionError(f"the token is for {terms.target}, and not for {claimant_of(caller)}")
        verdict = self._context.decisions.decide(principal, "advertise", terms.channel)
        if not verdict:
            raise SubscriptionError(f"{terms.channel}: {verdict.why}")
        return terms

    def _open(self, id: bytes, terms: Terms) -> Source[Any]:
        channel = next((each for each in self._node.channels() if each.name == terms.channel), None)
        source = None if channel is None else channel.sources.get(terms.source)
        if source is None or not source.local or source.closed:
            raise self._not_open(id, terms)
        return source

    def _not_open(self, id: bytes, terms: Terms) -> SubscriptionError:
        now = self.register.terms(id) or terms  # another one may have been quicker
        if now.who:
            return SubscriptionError(
                f"the token was used: {now.who} goes on with {terms.source!r}; have that one move it"
            )
        return Later(f"{terms.source!r} is not open there")  # a program that was started again makes it soon

    def _fetched(self, caller: Caller, request: FetchPast) -> PastPage:
        terms = self._terms(caller, request.id)
        if terms.status == "over":
            raise SubscriptionError(terms.why)
        if terms.status == "open":
            self.register.check(request.id, self._node._stamp())
            last = self._open(request.id, terms).seq
        elif terms.who == caller.peer.name:
            last = request.upto
        else:
            raise SubscriptionError(f"the token was used: {terms.who} goes on with {terms.source!r}")
        rows, upto = self._page(terms, request.after, min(request.upto or last, last))
        return PastPage(rows, upto, last)

    def _page(self, terms: Terms, after: int, upto: int) -> tuple[bytes, int]:
        logs = self._node._logs
        if logs is None or self._past is None:
            raise SubscriptionError(f"{terms.source!r} has no log: what it has published is nowhere")
        arrived = self.register.arrival(terms.channel, terms.source)
        return page_of(logs, self._past, terms.channel, terms.source, arrived, after, upto)

    def _claimed(self, caller: Caller, request: ClaimSource) -> SourceClaimed:
        """Written for good; then nothing of it is left here but its log."""
        terms = self._terms(caller, request.id)
        who = caller.peer.name
        cut = self.register.claimed(request.id, who, request.claimant)
        if cut is not None:
            self._finish(terms, cut)
        else:
            self.register.check(request.id, self._node._stamp())
            source = self._open(request.id, terms)
            check_movable(source, self._departure.multicast)
            if source.log is not None and len(self._led_here(terms, home_of(source))) >= MAX_DEEDS:
                raise SubscriptionError(
                    f"{terms.source!r} was at {MAX_DEEDS} other nodes on its way here, which is as many as may be; "
                    "move it to one of those"
                )
            if len(self._groups_with(terms)) > MAX_GROUPS:
                raise SubscriptionError(f"{terms.channel}: expected at most {MAX_GROUPS:,} durable groups, found more")
            cut = self._departure.cut(self.register, request.id, source, who, request.claimant)
            if cut is None:
                raise self._not_open(request.id, terms)
            self.left += 1
        subscribers = self._departure.subscribers(terms.channel)  # not before: some may have left meanwhile
        members = [MemberAt(*each) for each in sorted(self._departure.members(terms.channel))[:MAX_LIST]]
        rows = b""
        if cut.home and request.after < cut.upto:
            rows, _ = self._page(terms, request.after, cut.upto)
        deeds = self._deeds_of(terms, cut, who) if cut.home else []
        groups = [GroupAt(*each) for each in self._groups_with(terms, cut)] if cut.home else []
        return SourceClaimed(cut.upto, cut.stamp, cut.term, cut.home, deeds, subscribers, rows, groups, members)

    def _groups_with(self, terms: Terms, cut: Cut | None = None) -> list[GroupPosition]:
        """How far durable groups are with a source, by this node's state: also those that have no members now, and
        those that have begun since it was claimed."""
        kept = GroupPositions.at(self._node, terms.channel)
        if kept is None:
            return []
        arrived = self.register.arrival(terms.channel, terms.source)
        left = None if cut is None else (cut.term, cut.upto)
        return kept.of_source(terms.source, 0 if arrived is None else arrived.cut.upto, left)

    def _finish(self, terms: Terms, cut: Cut) -> None:
        """It was claimed before: nobody is told so again until that is on the disk, and it is gone from here."""
        self.register.settle()
        channel = next((each for each in self._node.channels() if each.name == terms.channel), None)
        source = None if channel is None else channel.sources.get(terms.source)
        if source is not None and source.local and source.moved_to is not None:
            self._departure.goes(source, cut)

    def _deeds_of(self, terms: Terms, cut: Cut, who: str) -> list[bytes]:
        """What led here, and from here to the next."""
        return [*self._led_here(terms, cut.home), self._deeds.sign(cut.home, cut.term, who)]

    def _led_here(self, terms: Terms, home: str) -> tuple[bytes, ...]:
        arrived = self.register.arrival(terms.channel, terms.source)
        return () if arrived is None else leading_to(self._node.name, home, arrived.deeds)

    # ── coming ──

    def resume(self, token: str, timeout: float, options: Mapping[str, Any]) -> Source[Any]:
        """Go on here with a source of another node; FederationError says why not."""
        return self._arrival.resume(self.register, self._past, token, timeout, options)

    def closes(self, source: Source[Any]) -> None:
        """A source of this node is about to be closed."""
        self._arrival.followers.closes(source)

    # ── with the node ──

    def report(self) -> Mapping[str, Any]:
        """Sources that may leave, where others have gone, and how many came, left or were refused."""
        if self._register is None:
            return {}
        return {
            **self._register.report(),
            "left": self.left,
            "came": self._arrival.came,
            "refused": self._answering.refused,
        }

    @property
    def busy(self) -> bool:
        """Whether nodes that had the events of a source that came have not asked for them here yet."""
        return not self._arrival.followers.over

    def drain(self, until: float) -> None:
        """They do so while they can: then they have what was published here before this node leaves."""
        self._arrival.followers.wait(until, threading.Event())

    def stop(self) -> None:
        """What came is on the disk, and let go of."""
        if self._past is not None:
            self._past.stop()


__all__ = ["MovingSources"]
