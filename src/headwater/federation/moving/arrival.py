"""A sink comes to this node: it is subscribed, and held; claimed; in force at all sources; what waited at the node that
it was at comes first; then it goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.names import Pattern
from headwater.channel.options.subscribe import check_seconds
from headwater.channel.subscription import Subscription
from headwater.errors import FederationError, HeadwaterError, SubscriptionError, Unreachable
from headwater.federation.moving.handover import MARK_SECONDS
from headwater.federation.moving.resumption import Resumed, Whereabouts, wanted
from headwater.federation.moving.takeover import Takeover
from headwater.federation.moving.token import read_token
from headwater.federation.wire.move_requests import ClaimMove, FetchWaiting, MoveClaimed, WaitingPage
from headwater.services.moving.register import digest_of

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.federation.context import Context
    from headwater.federation.interests.channel_discovery import ChannelDiscovery
    from headwater.federation.moving.marks import Marks, Watch
    from headwater.federation.moving.registers import Registers
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.move_requests import SinkMove
    from headwater.services.moving.register import MoveRegister

log = logging.getLogger("headwater.federation")
RETRY_SECONDS = 0.1
SOON_SECONDS = 0.02  # between two looks whether what was asked for is in force
CLAIM_SECONDS = 3.0  # for which one answer is waited for, before it is asked again
InForce = Callable[[Iterable["RoutedChannel"]], bool]


class OldPlace(Protocol):
    """The sinks that leave this node: it may be the one that they come to."""

    registers: Registers

    def at_home(self, id: bytes, claimant: bytes) -> MoveClaimed: ...

    def page(self, request: FetchWaiting, who: str, principal: None) -> WaitingPage: ...


class Arrival:
    """Of one node. `in_force`: whether all that is wanted of channels is taken up by the nodes that are there. `want`:
    have them asked at once for what is wanted of a channel now."""

    def __init__(
        self,
        moving: OldPlace,
        node: Node,
        context: Context,
        peers: Peers,
        dialogue: Dialogue,
        whereabouts: Whereabouts,
        in_force: InForce,
        want: Callable[[Any], None],
        marks: Marks,
        channels: ChannelDiscovery,
    ) -> None:
        self._moving, self._node, self._context = moving, node, context
        self._peers, self._dialogue, self._marks, self._channels = peers, dialogue, marks, channels
        self._whereabouts, self._in_force, self._want = whereabouts, in_force, want

    def resume(
        self, token: str, handler: Any, name: str | None, timeout: float, options: Mapping[str, Any]
    ) -> Subscription[Any]:
        """Go on here with a sink of another node, or of this one."""
        end = monotonic() + check_seconds("resume: timeout", timeout)
        sink, move = read_token(self._context, token)
        durable = move.delivery == "durable"
        register = self._moving.registers.of(durable=durable)
        try:
            taken = register.taken(move.id)
        except SubscriptionError as error:
            raise FederationError(f"resume: {sink!r}: {error}") from None
        asked, made_options = wanted(self._node, move, handler, options)
        if durable:
            return self._resume_durable(register, sink, move, name, taken, (asked, made_options), end)
        if taken is not None:
            raise FederationError(f"resume: {sink!r}: the token was used here before, by {taken!r}")
        return self._resume(register, sink, move, name, (asked, made_options), end)

    def _resume_durable(
        self,
        register: MoveRegister,
        sink: str,
        move: SinkMove,
        name: str | None,
        taken: str | None,
        wanted: tuple[Asked, Any],
        end: float,
    ) -> Subscription[Any]:
        """One that was taken up here before goes on by what is kept here, also after a restart; another by its
        token."""
        name = taken or name or sink
        if taken is not None and taken in self._node.subscriptions:
            raise SubscriptionError(
                f"resume: {sink!r}: the token was used here, and the subscription goes on: it is "
                f"node.subscriptions[{taken!r}]"
            )
        if taken is not None:
            claimed = self._asked_again(sink, move, end)
            made: Resumed = self._node._start(Resumed, [wanted[0]], wanted[1], name, None, self._whereabouts)
            if claimed is not None and claimed.waits:
                self._take_over(made, move, end)
            else:
                self.let_go(made, max(0.0, end - monotonic()))
            register.settle()  # it may have been ended before it was
            return made
        if register.namesake(name, move.id):
            raise SubscriptionError(
                f"resume: name: {name!r} is that of a durable subscription of this node, whose positions are kept; "
                "give another: resume(token, handler, name=...)"
            )
        return self._resume(register, sink, move, name, wanted, end)

    def _resume(
        self,
        register: MoveRegister,
        sink: str,
        move: SinkMove,
        name: str | None,
        wanted: tuple[Asked, Any],
        end: float,
    ) -> Subscription[Any]:
        """It is subscribed before it is claimed, so that sources are asked meanwhile: if it is not to be had, that is
        taken back. Without a name it has the one that it had, or, where that is in use, one of its own."""
        local = move.node == self._context.id
        if local and name != sink and name in self._node.subscriptions:  # before it is claimed for nothing
            raise SubscriptionError(
                f"resume: name: expected one that no subscription of this node has, found {name!r} in use"
            )
        claimed = self._at_home(sink, move) if local else None  # the name is free then
        with self._context.wiring.lock:  # nobody takes its name in between; if somebody has, it gets another
            if name is None and sink not in self._node.subscriptions:
                name = sink
            made: Resumed = self._node._start(Resumed, [wanted[0]], wanted[1], name, move, self._whereabouts)
        want = partial(self._want_all, made)
        try:
            if claimed is None:
                claimed = self._claim(sink, move, end, want)
            else:
                want()
            register.take(move.id, made.name, move.positions, move.handed, move.unsure)
        except BaseException:
            made.cancel()
            raise
        if claimed.waits:
            self._take_over(made, move, end)
        else:
            self.let_go(made, max(0.0, end - monotonic()))
        try:
            register.settle()  # it goes on meanwhile: how far it comes is no safer than that until then
        except HeadwaterError:
            made.cancel()
            raise
        return made

    def _want_all(self, made: Resumed) -> None:
        """Have sources asked for what a sink wants, beside the claim: that takes longest, and is on its way."""
        for channel, _ in list(made._attachments):
            self._context.scheduler.work(self._want, channel)

    def _take_over(self, made: Resumed, move: SinkMove, end: float) -> None:
        """What waited at the old node comes first. What is not had in time is lost, and said."""
        digest = digest_of(move.id)
        watch = self._marks.watch(digest, move.node, self._context.id)
        made.takes_over()
        try:
            self._context.scheduler.until(lambda: self._is_in_force(made), max(0.0, end - monotonic()))
            channels = _channels_of(made)
            for (channel, _), attachment in list(made._attachments.items()):
                if attachment.entry.interest is not None and attachment.entry.interest.stateful:
                    watch.takes[channel.name] = attachment.entry
            self._marks.expect_state(digest, watch, channels, max(0.0, end - monotonic()))
            takeover = Takeover(self._context, made, watch, move.node, self._channels.adopt)
            problem = self._fetch_all(takeover, move, watch, end)
            if problem:
                log.warning("subscription %r has moved here, but not all that waited for it: %s", made.name, problem)
            made.begins_after(takeover.finish())
        finally:
            self._marks.forget(digest)
            made.arrived()

    def _is_in_force(self, made: Resumed) -> bool:
        """Also at channels of which a pattern has not heard yet, as far as their nodes are known."""
        known = not isinstance(made._asked[0].target, Pattern) or self._channels.considered()
        return known and self._in_force(_channels_of(made))

    def _fetch_all(self, takeover: Takeover, move: SinkMove, watch: Watch, end: float) -> str:
        """Ask the old node for what waits there, page by page: what is missing, if anything is."""
        number, page = 0, WaitingPage(more=True)
        while page.more:
            try:
                page = self._ask(move, FetchWaiting(move.id, self._claimant_of(move), number), end)
            except HeadwaterError as error:
                return str(error)
            if not takeover.accept(page):
                return f"{move.node} has handed over what cannot be"
            number += 1
        # It is told that all is here; nobody waits for that.
        last = FetchWaiting(move.id, self._claimant_of(move), number)
        self._context.scheduler.work(self._tell, move, last, on=f"moving/{move.node}")
        takeover.told = {(node, channel): points for node, channel, points in page.marked}
        due = {place for place in takeover.told if self._marks.comes_from(*place)}
        if not self._context.scheduler.until(lambda: due <= watch.points.keys(), MARK_SECONDS) or page.short:
            return "not all nodes with sources have said where it ends"
        return ""

    def _tell(self, move: SinkMove, request: FetchWaiting) -> None:
        with suppress(HeadwaterError):  # else it is forgotten there after a while
            self._ask(move, request, monotonic())

    def _claimant_of(self, move: SinkMove) -> bytes:
        return self._moving.registers.of(durable=move.delivery == "durable").claimant

    def _at_home(self, sink: str, move: SinkMove) -> MoveClaimed:
        try:
            return self._moving.at_home(move.id, self._claimant_of(move))
        except SubscriptionError as error:
            raise FederationError(f"resume: {sink!r}: {error}") from None

    def _asked_again(self, sink: str, move: SinkMove, end: float) -> MoveClaimed | None:
        """It is here, and may have been ended before it had what waits at the old node, if that is still there."""
        with suppress(HeadwaterError):
            if move.node == self._context.id:
                return self._at_home(sink, move)
            return self._claim(sink, move, min(end, monotonic() + CLAIM_SECONDS))
        return None

    def _claim(self, sink: str, move: SinkMove, end: float, sent: Callable[[], None] | None = None) -> MoveClaimed:
        """Ask the node that it was at."""
        try:
            made: MoveClaimed = self._ask(move, ClaimMove(move.id, self._claimant_of(move)), end, sent)
        except Unreachable as error:
            raise Unreachable(
                f"resume: {sink!r} cannot be had from the node that it was at: {error}; try again with the same "
                "token when that is there"
            ) from None
        except FederationError as error:
            if type(error) is FederationError:  # the node's own word: say what it is about
                raise FederationError(f"resume: {sink!r}: {error}") from None
            raise
        return made

    def _ask(self, move: SinkMove, request: Any, end: float, sent: Callable[[], None] | None = None) -> Any:
        """A question to the node that a sink was at, again and again: it may be away for a moment, or an answer be
        lost."""
        if move.node == self._context.id:
            return self._moving.page(request, move.node, None)
        problem = f"node {move.node} is not there"
        while True:
            peer = self._peer(move.node)
            if peer is not None:
                try:
                    left = max(RETRY_SECONDS, min(CLAIM_SECONDS, end - monotonic()))
                    return self._dialogue.ask(peer, request, left, sent)
                except Unreachable as error:
                    problem = str(error)
            if monotonic() >= end or self._context.closing:
                raise Unreachable(problem)
            moment = min(RETRY_SECONDS, max(0.0, end - monotonic()))
            self._context.scheduler.until(lambda: self._context.closing, moment)

    def _peer(self, id: str) -> Peer | None:
        found = self._peers.get(id)
        return found if found is not None and found.gone is None and found.exchange is not None else None

    def let_go(self, made: Resumed, timeout: float) -> None:
        """Once it is in force at all sources that are there. What is not in time is waited for beside."""

        def settled() -> bool:
            return made.cancelled or made.begins_by_itself or self._in_force(_channels_of(made))

        if self._context.scheduler.until(settled, timeout):
            made.arrived()
            return
        made.hold_back()
        if timeout:
            log.warning("subscription %r has moved here, and waits for nodes that have not answered yet", made.name)

        def look() -> None:
            if settled():
                made.arrived()
            elif not self._context.closing:
                self._context.scheduler.later(SOON_SECONDS, look)

        self._context.scheduler.later(SOON_SECONDS, look)


def _channels_of(made: Resumed) -> list[RoutedChannel]:
    return list(dict.fromkeys(channel for channel, _ in list(made._attachments)))


__all__ = ["Arrival", "InForce"]
