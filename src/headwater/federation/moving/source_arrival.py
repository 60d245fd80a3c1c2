"""A source goes on at this node where it was at another: its past comes, it is claimed, and then it publishes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater.channel.groups.group_positions import GroupPosition
from headwater.channel.groups.service import Groups, groups_of
from headwater.channel.options.subscribe import check_seconds
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.queues.position_keys import key_of
from headwater.channel.registration import check_run
from headwater.channel.routing.attachment import attachments_of
from headwater.channel.routing.past import steps_to
from headwater.decoders import msgpack_decoder
from headwater.errors import ChannelError, FederationError, SubscriptionError, Unreachable
from headwater.federation.arrive.deeds import Deeds
from headwater.federation.moving.followers import Followed, Followers, Members
from headwater.federation.moving.source_past import append_page
from headwater.federation.moving.token import verified_token
from headwater.federation.wire.control import MAX_DEEDS, SourceAd
from headwater.federation.wire.kinds import MAX_SEQ
from headwater.federation.wire.requests import unpack_interest, unpack_type
from headwater.federation.wire.source_move_requests import (
    ClaimSource,
    FetchPast,
    PastPage,
    SourceClaimed,
    SourceMove,
)
from headwater.services.moving.source_register import Arrival, Cut
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.source import Source
    from headwater.federation.arrive.log_positions import LogPositions
    from headwater.federation.context import Context
    from headwater.federation.demand.demand import Demands
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.services.moving.source_register import SourceRegister
    from headwater.store.log.handed_past import HandedPast

T = TypeVar("T")
log = logging.getLogger("headwater.federation")
KIND, PREFIX = "source-move", "hws1."
PLACE = "resume_source"
NEARLY_EVENTS = 512  # that are left to be fetched when it is claimed
ROUNDS = 64  # pages without coming nearer to a source that goes on publishing
RETRY_SECONDS = 0.1
ANSWER_SECONDS = 5.0  # for which one answer is waited for, before it is asked again
_FIXED = ("name", "type", "facts", "zones", "priority")
_GIVEN = ("ask", "every", "context", "rate")
_MOVE = msgpack_decoder(SourceMove)


class SourceArrival:
    """Of one node."""

    def __init__(
        self,
        node: Any,
        context: Context,
        peers: Peers,
        dialogue: Dialogue,
        demands: Demands,
        positions: LogPositions,
        members: Members,
    ) -> None:
        self._node, self._context, self._peers, self._dialogue = node, context, peers, dialogue
        self._demands, self._positions, self._deeds = demands, positions, Deeds(context)
        self.followers = Followers(context, peers, members)
        self.came = 0

    def resume(
        self, register: SourceRegister, past: HandedPast | None, token: str, timeout: float, options: Mapping[str, Any]
    ) -> Source[Any]:
        """Go on here with a source of another node; FederationError says why not, and then nothing was changed here."""
        end = monotonic() + check_seconds(f"{PLACE}: timeout", timeout)
        wrong = [name for name in _FIXED if name in options]
        if wrong:
            raise SubscriptionError(f"{PLACE}: {wrong[0]}: a source that moves has the one that it had; leave it out")
        unknown = [name for name in options if name not in _GIVEN]
        if unknown:
            hint = did_you_mean(unknown[0], _GIVEN)
            raise SubscriptionError(f"{PLACE}: expected {', '.join(_GIVEN)}, found {unknown[0]}{hint}")
        move = self._read(token)
        if register.taken(move.id):
            return self._again(register, move, options)
        channel = self._channel(move)
        self._check(register, channel, move)
        check_run(PLACE, channel, **options)  # before it is claimed: from then on it publishes here or nowhere
        if past is not None and move.home:
            claimed = self._fetched(register, past, channel, move, end)
        else:
            claimed = self._claimed(register, move, 0, end)
        if claimed.home != move.home or len(claimed.deeds) > MAX_DEEDS:
            raise FederationError(f"{PLACE}: {move.source!r}: expected the source of the token, found another")
        if claimed.home:
            said = SourceAd(0, move.source, move.channel, log=PLACE, home=claimed.home, term=claimed.term)
            self._deeds.check(self._node.name, said, claimed.deeds)  # else nobody would hear it
        cut = Cut(claimed.home, claimed.term, claimed.upto, claimed.stamp)
        if claimed.groups:
            self._take_over(channel, move.source, claimed)
        register.take(move.id, move.channel, move.source, Arrival(cut, tuple(claimed.deeds)))
        made = self._made(channel, move, options)
        if not self._context.scheduler.work(register.settle, on="moving"):
            register.settle()
        self._await_followers(made, claimed, self._who(register, move, cut), end)
        return made

    def _read(self, token: object) -> SourceMove:
        document = verified_token(self._context, token, PREFIX, KIND, PLACE, "source.move()")
        try:
            move = _MOVE.decode(document.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FederationError(f"{PLACE}: expected what a source is, found something else: {error}") from None
        if move.node != document.signer:
            raise FederationError(f"{PLACE}: the token is signed by {document.signer}, and says to be of {move.node}")
        return move

    def _channel(self, move: SourceMove) -> Channel[Any]:
        type = unpack_type(move.type)
        if move.channel not in {each.name for each in self._node.channels()}:
            made: Channel[Any] = self._node.channel(move.channel, bytes if type is None else type)
            return made
        found: Channel[Any] = self._node.channel(move.channel)
        if (found.type is None) != (type is None):
            raise ChannelError(
                f"{PLACE}: channel {move.channel!r} has a type at one node and carries bytes at the other"
            )
        return found

    def _check(self, register: SourceRegister, channel: Channel[Any], move: SourceMove) -> None:
        """Raise where it cannot go on here."""
        name, logs = move.source, self._node._logs
        if move.node == self._context.id:
            who = register.fence(move.channel, name)
            raise FederationError(
                f"{PLACE}: {name!r} is a source of this node: publish at it, or have another resume it"
                if who is None
                else f"{PLACE}: {name!r} was a source of this node: it has moved to {who}, and goes on there; have it "
                "moved back by a token that it gives there"
            )
        logged = logs is not None and logs.wants(move.channel)
        if logged != bool(move.home):
            raise FederationError(
                f"{PLACE}: source {name!r} of {move.channel}: expected a log of the channel at both nodes or at "
                + (
                    "neither, found one here and none where the source is; log the channel there too, or leave it out "
                    "of the `channels` of the log here"
                    if logged
                    else "neither, found one where the source is and none here; give this node one, "
                    "Node(log=...), whose `channels` have it"
                )
            )
        namesake = channel.sources.get(name)
        if namesake is not None and namesake.local:
            raise ChannelError(f"{PLACE}: source {name!r}: expected a name that no source of {channel.name} has here")
        if logged:
            mine = logs.opened(channel.name, channel.type)
            before = register.arrival(channel.name, name)
            own = key_of(self._node.name, mine.id, name)
            known = own, None if before is None else before.cut.home, register.claiming(channel.name, name)
            if (mine.last(name) or register.fence(channel.name, name) is not None) and move.home not in known:
                raise FederationError(
                    f"{PLACE}: source {name!r}: the log of {channel.name} here has events of another one of that name, "
                    "or that one has left for another node; give it, or this one, another name"
                )

    def _again(self, register: SourceRegister, move: SourceMove, options: Mapping[str, Any]) -> Source[Any]:
        """The token was used here before: it is here, or has gone on."""
        who = register.fence(move.channel, move.source)
        if who is not None:
            raise FederationError(
                f"{PLACE}: the token of {move.source!r} was used here before, and since then it has moved to {who}"
            )
        channel = self._channel(move)
        there = channel.sources.get(move.source)
        if there is not None and there.local and not there.closed:
            return there
        return self._made(channel, move, options)

    # ── what it had published ──

    def _fetched(
        self, register: SourceRegister, past: HandedPast, channel: Channel[Any], move: SourceMove, end: float
    ) -> SourceClaimed:
        """Most of its past while it still publishes there; then it is claimed, and the rest comes. It is asked for once
        that node is there: nobody else waits for that here."""
        self._asked(move, FetchPast(move.id, MAX_SEQ), PastPage, end)
        with past.opened(channel.name, channel.type) as copy:
            after, patience, left = copy.last(move.home), ROUNDS, 1 << 62
            while patience:
                page = self._asked(move, FetchPast(move.id, after), PastPage, end)
                after = self._append(copy, move, page.rows, after, page.upto)
                if page.last - after <= NEARLY_EVENTS:
                    break
                patience = ROUNDS if page.last - after < left else patience - 1
                left = min(left, page.last - after)
            claimed = self._claimed(register, move, after, end)
            if claimed.rows:
                append_page(copy, move.home, claimed.rows, after, claimed.upto)
                after = max(after, copy.last(move.home))
            while after < claimed.upto:
                page = self._asked(move, FetchPast(move.id, after, claimed.upto), PastPage, end)
                if page.upto <= after:
                    raise FederationError(f"{PLACE}: {move.source!r}: expected events after {after:,}, found none")
                after = self._append(copy, move, page.rows, after, page.upto)
            if copy.settings.sync == "publish":
                copy.sync()
            return claimed

    def _claimed(self, register: SourceRegister, move: SourceMove, after: int, end: float) -> SourceClaimed:
        """That it may be here is written before it is claimed, while it still publishes there: after a power cut it is
        not taken for another one of that name."""
        register.claims(move.id, move.channel, move.source, move.home)
        try:
            return self._asked(move, ClaimSource(move.id, register.claimant, after), SourceClaimed, end)
        except Unreachable:
            raise
        except FederationError:
            register.refused(move.id)
            raise

    def _append(self, copy: Any, move: SourceMove, rows: bytes, after: int, upto: int) -> int:
        if rows and upto <= after:
            raise FederationError(f"{PLACE}: {move.source!r}: expected events after {after:,}, found none, or others")
        append_page(copy, move.home, rows, after, upto)
        return max(after, upto)

    def _asked(self, move: SourceMove, request: Any, answer: type[T], end: float) -> T:
        """Ask the node that it was at, again and again: it may be away for a moment, or an answer be lost."""
        problem = f"node {move.node} is not there"
        name = move.node.rpartition(".")[0]
        while True:
            peer = self._peer(move.node, name)
            if peer is not None:
                try:
                    left = max(RETRY_SECONDS, min(ANSWER_SECONDS, end - monotonic()))
                    found = self._dialogue.ask(peer, request, left)
                    if not isinstance(found, answer):
                        raise FederationError(f"expected {answer.__name__}, found {type(found).__name__}")
                    return found
                except Unreachable as error:
                    problem = str(error)
                except FederationError as error:
                    if type(error) is FederationError:  # the node's own word: say what it is about
                        raise FederationError(f"{PLACE}: {move.source!r}: {error}") from None
                    raise
            if monotonic() >= end or self._context.closing:
                raise Unreachable(
                    f"{PLACE}: {move.source!r} cannot be had from the node that it was at: {problem}; try again with "
                    "the same token when that is there"
                )
            moment = min(RETRY_SECONDS, max(0.0, end - monotonic()))
            self._context.scheduler.until(lambda: self._context.closing, moment)

    def _peer(self, id: str, name: str) -> Peer | None:
        """The node that it was at; started again, it may have another key."""
        there = [each for each in self._peers.everyone() if each.gone is None and each.exchange is not None]
        named = next((each for each in there if each.name == name), None)
        return next((each for each in there if each.id == id), named)

    # ── it goes on ──

    def _take_over(self, channel: Channel[Any], source: str, claimed: SourceClaimed) -> None:
        """Durable groups go on with it where they were: that is written before it is here. No more is believed of what
        was said than can be so."""
        groups, upto = groups_of(self._node), claimed.upto
        told = [GroupPosition(each.group, min(each.done, upto), min(each.handed, upto)) for each in claimed.groups]
        groups.take_over(channel, source, told)

    def _made(self, channel: Channel[Any], move: SourceMove, options: Mapping[str, Any]) -> Source[Any]:
        facts = None if move.facts is None else unpack_interest(move.facts, None)
        own = None if move.own is None else unpack_type(move.own)
        made: Source[Any] = channel.source(
            move.source, type=own, facts=facts, priority=move.priority, zones=move.zones or None, **options
        )
        self.came += 1
        return made

    def settle(self, source: Source[Any]) -> None:
        """It is advertised: sinks here have what has not come to them yet from the copy, and other nodes are asked how
        far they are."""
        ready: Any = []
        channel = source.channel
        with self._context.wiring.lock:
            self._positions.supersede(channel, source.home, source.term)
            reached = self._positions.of(source.home, channel.name)
            attachments = attachments_of(source)
        with source.between():
            for attachment in attachments:
                if attachment.subscription._progress is not None:
                    attachment.catch_up(source, ready)
                else:
                    after = reached.at.get(self._stream_of(source, attachment))
                    if after is not None and source.home in attachment.heard:
                        attachment.recall(source, after, ready)
            for tag in reached.at:
                reached.reach(tag, source.seq)
        for subscription in list(self._node.subscriptions.values()):
            if subscription._progress is not None:
                subscription._progress.note_beginnings()
        dispatch_all(ready)
        groups = self._node.services.get(Groups.name)
        if groups is not None:
            groups.meet(source)
        for peer in self._peers.everyone():
            crossing = peer.crossings.get(channel.name)
            if crossing is not None:
                with source.lock:
                    crossing.lane(source)
                peer.send_soon()

    def _stream_of(self, source: Source[Any], attachment: Attachment) -> int:
        """The tag with which its events came for an interest while it was elsewhere; all filters are one stream."""
        flow, entry = steps_to(source.flows[attachment.channel], attachment.entry)[0]
        alone = flow.lineup.judges(entry) == "alone"
        return (self._demands.number(entry) or 0) if alone else 0

    def _await_followers(
        self, source: Source[Any], claimed: SourceClaimed, who: Callable[[], SourceClaimed], end: float
    ) -> None:
        """Who had its events asks here, first of all those for whom nobody keeps what is published meanwhile."""
        subscribers = self.followers.of_channel(source, claimed.subscribers, lambda: who().subscribers)
        kept, lost = ([subscribers], []) if claimed.home else ([], [subscribers])
        for group, durable in sorted({(each.group, each.durable) for each in claimed.members}):
            members = self._members_of(source, group, claimed, who)
            (kept if durable and claimed.home else lost).append(members)
        for each in kept:
            self.followers.expect(each)
        if not all(each.wait(end, threading.Event()) for each in lost):
            log.warning("%s goes on here, and not all that had its events have asked for them", source)

    def _members_of(
        self, source: Source[Any], group: str, claimed: SourceClaimed, who: Callable[[], SourceClaimed]
    ) -> Followed:
        return self.followers.of_group(source, group, _in(group, claimed), lambda: _in(group, who()))

    def _who(self, register: SourceRegister, move: SourceMove, cut: Cut) -> Callable[[], SourceClaimed]:
        """Asks the node that it was at who wants its events now; in another run, that does not know who did."""
        before = self._peer(move.node, move.node.rpartition(".")[0])
        run = None if before is None else before.incarnation

        def who() -> SourceClaimed:
            again = ClaimSource(move.id, register.claimant, cut.upto)
            found = self._asked(move, again, SourceClaimed, monotonic())
            if before is None or before.incarnation != run or before.forgotten:
                raise Unreachable(f"{PLACE}: node {move.node} was started again")
            return found

        return who


def _in(group: str, claimed: SourceClaimed) -> list[str]:
    """Nodes that have members of a group."""
    return [each.node for each in claimed.members if each.group == group]


__all__ = ["KIND", "PREFIX", "SourceArrival"]
