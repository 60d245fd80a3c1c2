"""Sinks that leave this node, and sinks that come: as a service of its node, which others ask for those they may have.

    leave    it stands still; that it is on its way is written; then there is a token
    claim    who shows the token, and may, gets it: that is written before it is told
    resume   at the other node: subscribed, and held; claimed; in force at all sources; then it goes on

Whoever crashes at whatever point: the sink goes on where it was, or it is claimed and goes on at the other node when
that asks again, but never at both.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.options.subscribe import check_seconds
from headwater.channel.queues.position_keys import LOGGED
from headwater.channel.services import Service
from headwater.channel.subscription import Subscription
from headwater.errors import ConfigError, FederationError, HeadwaterError, SubscriptionError, Unreachable
from headwater.federation.moving.departure import Standstill, check_movable, described
from headwater.federation.moving.resumption import Resumed, Whereabouts, wanted
from headwater.federation.moving.token import make_token, read_token
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.security.rules import Rule
from headwater.federation.wire.move_requests import ID_BYTES, ClaimMove, MoveClaimed
from headwater.federation.wire.requests import Accepted
from headwater.services.moving.register import MoveRegister

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.federation.context import Context
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.move_requests import SinkMove
    from headwater.federation.wire.requests import Reply

log = logging.getLogger("headwater.federation")
MOST_SECONDS = 7 * 86_400.0  # for which a token is good
RETRY_SECONDS = 0.1
SOON_SECONDS = 0.02  # between two looks whether what was asked for is in force
CLAIM_SECONDS = 3.0  # for which one answer is waited for, before it is asked again
ERROR_CHARACTERS = 2000
LEAVING = "it is on its way to another node"
InForce = Callable[[Iterable["RoutedChannel"]], bool]


class Moving(Service):
    """Of one node. `in_force`: whether all that is wanted of channels is taken up by the nodes that are there."""

    name = "moving"
    kind = Resumed

    def __init__(
        self,
        node: Node,
        context: Context,
        peers: Peers,
        dialogue: Dialogue,
        whereabouts: Whereabouts,
        in_force: InForce,
    ) -> None:
        self._node, self._context, self._peers, self._dialogue = node, context, peers, dialogue
        self._whereabouts, self._in_force = whereabouts, in_force
        self._register: MoveRegister | None = None
        self._opening = threading.Lock()
        self._had: set[str] = set()  # names of durable subscriptions of this life
        self._leaving: dict[str, tuple[Subscription[Any], Standstill]] = {}  # by name: held here until they are claimed
        self.left = self.came = self.refused = self.expired = 0

    @property
    def register(self) -> MoveRegister:
        """Opened when it is first needed."""
        with self._opening:
            if self._register is None:
                state = self._node.state
                if state is None:
                    raise SubscriptionError(
                        f"node {self._node.name!r}: expected a node with state, for what moves is kept there, found "
                        'one without; give it a file, Node(state="lab.state"), or ":memory:"'
                    )
                self._register = MoveRegister(state)
            return self._register

    # ── leaving ──

    def leave(self, subscription: Subscription[Any], to: str, lasts: float) -> str:
        """A token for a sink of this node, which stands still from here on."""
        check_movable(subscription, (Subscription, Resumed))
        seconds = check_seconds("move: lasts", lasts)
        if seconds > MOST_SECONDS:
            raise SubscriptionError(f"move: lasts: expected at most {MOST_SECONDS:,.0f} seconds, found {seconds:,.0f}")
        check_target(to)
        register, id = self.register, secrets.token_bytes(ID_BYTES)
        assert self._node.state is not None
        if subscription._progress is not None and subscription._progress.fenced is not None:
            raise SubscriptionError(f"move: subscription {subscription.name!r}: {subscription._progress.fenced}")
        still = Standstill(subscription, LEAVING)
        still.reach()
        try:
            token = make_token(
                self._context,
                subscription.name,
                described(subscription, id, self._context.id, still, self._node.state),
            )
            self._leaving[subscription.name] = subscription, still
            channels = [channel.name for channel, _ in subscription._attachments]
            register.begin(id, subscription.name, channels, to, self._now() + round(seconds * 1e9))
        except BaseException:
            self._leaving.pop(subscription.name, None)
            still.undo()
            raise
        self._node._timers.call_after(seconds, partial(self._look, subscription.name))
        return token

    def _now(self) -> int:
        return self._node._stamp()

    def _look(self, name: str) -> None:
        """The time of a token is over: if nobody has used it, the sink goes on here."""
        found = self._leaving.get(name)
        if found is None or self._node.closed:
            return
        fence = self.register.enter(name, self._now())
        if fence is None:
            if self._leaving.pop(name, None) is not None:
                self.expired += 1
                log.warning("subscription %r goes on: nobody has taken it up in time", name)
                found[1].undo()
        elif fence.until:  # the clock has gone back
            self._node._timers.call_after(
                max(RETRY_SECONDS, (fence.until - self._now()) / 1e9), partial(self._look, name)
            )

    def check(self, name: str | None) -> None:
        """Raise if a durable subscription of that name is not to go on here."""
        if name is None or self._node.state is None:
            return
        fence = self.register.enter(name, self._now())
        if fence is not None:
            hint = (
                "resume(token, handler) it, or wait" if fence.until else "or give the name up: node.forget_moved(name)"
            )
            raise SubscriptionError(f"subscribe: {name!r}: {fence.why}; have it moved back, {hint}")

    def forget(self, name: str) -> bool:
        """Give the name of a sink that has left up."""
        found = self._leaving.pop(name, None)
        if found is not None:
            self._end(found[0])
        return self.register.forget(name)

    # ── who may have it ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return ((ClaimMove, self._asked),)

    def _asked(self, caller: Caller, request: ClaimMove) -> Postponed:
        """It is written to the disk before it is answered, which takes a while."""

        def begin(tell: Callable[[Reply], None]) -> None:
            if not self._context.scheduler.work(answer, tell, on=f"moving/{caller.peer.id}"):
                tell(Accepted(error="refused: the node is closing"))

        def answer(tell: Callable[[Reply], None]) -> None:
            try:
                tell(MoveClaimed(self._claimed(caller, request)))
            except HeadwaterError as error:
                self.refused += 1
                log.warning("node %s: %s is not given a sink: %s", self._node.name, caller.peer.name, error)
                tell(Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS]))

        return Postponed(begin)

    def _claimed(self, caller: Caller, request: ClaimMove) -> str:
        if self._node.state is None:
            raise SubscriptionError("it was never made here, or is long over")
        terms = self.register.terms(request.id)
        if terms is None:
            raise SubscriptionError("it was never made here, or is long over")
        target, channels = terms
        principal, peer = caller.principal, caller.peer
        fits = not target or Rule("**", target).concerns(principal)
        if not (fits or target == peer.id or (principal.how == "key" and target == peer.name)):
            raise SubscriptionError(f"the token is for {target}, and not for {principal}")
        for channel in channels:
            verdict = self._context.decisions.decide(principal, "subscribe", channel)
            if not verdict:
                raise SubscriptionError(f"{channel}: {verdict.why}")
        return self._give(request.id, peer.id, request.claimant)

    def _give(self, id: bytes, who: str, claimant: bytes) -> str:
        """Written for good; then nothing of it is left here."""
        sink = self.register.claim(id, who, claimant, self._now())
        found = self._leaving.pop(sink, None)
        if found is not None:
            self.left += 1
            self._end(found[0])
        return sink

    def _end(self, subscription: Subscription[Any]) -> None:
        self._node._end_subscription(subscription, drain=False)
        subscription._mailbox.close(drop=True)  # also of a sink that pulls

    # ── coming back ──

    def comes_back(self, name: str | None, asked: Iterable[Asked], options: Options) -> tuple[Any, ...] | None:
        """Where a durable subscription was, if it is subscribed again in one life of its node, after others here have
        been sent what it wants: what it has missed is not sent by itself then. After a restart it is: who is asked by
        the first sink of a channel waits for the others; but not for those of a source that was here, and has moved
        since."""
        state, delivery = self._node.state, options.delivery
        first = name is None or name not in self._had
        self._had.add(name or "")
        if name is None or state is None or options.order == "total" or getattr(delivery, "within", None) is not None:
            return None
        positions = state.positions(name)
        logged = [key for key in positions if key.startswith(LOGGED)]
        if not any(map(self._whereabouts.has_left, logged) if first else logged):
            return None
        channels = [each for each in self._node.channels() if any(one.wants(each) for one in asked)]
        with self._context.wiring.lock:
            new = all(map(self._whereabouts.is_new, channels))
        if new:
            return None  # who is asked first is told where it was
        return None, positions, state.handed(name), self._whereabouts

    def back(self, made: Resumed) -> None:
        """It goes on as soon as it is in force; nobody waits for that."""
        self._let_go(made, 0.0)

    # ── coming ──

    def resume(
        self, token: str, handler: Any, name: str | None, timeout: float, options: Mapping[str, Any]
    ) -> Subscription[Any]:
        """Go on here with a sink of another node; FederationError says why not, and then nothing was changed here."""
        end = monotonic() + check_seconds("resume: timeout", timeout)
        sink, move = read_token(self._context, token)
        try:
            taken = self.register.taken(move.id)
        except SubscriptionError as error:
            raise FederationError(f"resume: the token of {sink!r}: {error}") from None
        name = taken or name or sink
        state = self._node.state
        assert state is not None
        positions, handed = dict(move.positions), dict(move.handed)
        if taken is not None:
            positions, handed = state.positions(taken), state.handed(taken)
        elif self.register.namesake(name):
            raise SubscriptionError(
                f"resume: name: {name!r} is that of a durable subscription of this node, whose positions are kept; "
                "give another: resume(token, handler, name=...)"
            )
        local = move.node == self._context.id
        asked, made_options = wanted(self._node, move, handler, options)
        if local and taken is None and sink in self._leaving:  # it has the name until then
            self._at_home(sink, move)
        made: Resumed = self._node._start(
            Resumed, [asked], made_options, name, move if taken is None else None, positions, handed, self._whereabouts
        )
        try:
            if taken is None:
                if local:
                    self._at_home(sink, move)
                else:
                    self._claim(sink, move, end)
                self.register.take(move.id, name, positions, handed)
        except BaseException:
            made.cancel()
            raise
        self.came += 1
        self._let_go(made, max(0.0, end - monotonic()))
        return made

    def _at_home(self, sink: str, move: SinkMove) -> None:
        try:
            self._give(move.id, move.node, self.register.claimant)
        except SubscriptionError as error:
            raise FederationError(f"resume: the token of {sink!r}: {error}") from None

    def _claim(self, sink: str, move: SinkMove, end: float) -> None:
        """Ask the node that it was at, again and again: it may be away for a moment, or an answer be lost."""
        problem = f"node {move.node} is not there"
        while True:
            peer = self._peer(move.node)
            if peer is not None:
                try:
                    left = max(RETRY_SECONDS, min(CLAIM_SECONDS, end - monotonic()))
                    self._dialogue.ask(peer, ClaimMove(move.id, self.register.claimant), left)
                    return
                except Unreachable as error:
                    problem = str(error)
            if monotonic() >= end or self._context.closing:
                raise Unreachable(
                    f"resume: {sink!r} cannot be had from the node that it was at: {problem}; try again with the same "
                    "token when that is there"
                )
            moment = min(RETRY_SECONDS, max(0.0, end - monotonic()))
            self._context.scheduler.until(lambda: self._context.closing, moment)

    def _peer(self, id: str) -> Peer | None:
        found = self._peers.get(id)
        return found if found is not None and found.gone is None and found.exchange is not None else None

    def _let_go(self, made: Resumed, timeout: float) -> None:
        """Once it is in force at all sources that are there. What is not in time is waited for beside."""

        def settled() -> bool:
            return (
                made.cancelled
                or made.begins_by_itself
                or self._in_force([channel for channel, _ in list(made._attachments)])
            )

        if self._context.scheduler.until(settled, timeout):
            made.arrived()
            return
        if timeout:
            log.warning("subscription %r has moved here, and waits for nodes that have not answered yet", made.name)

        def look() -> None:
            if settled():
                made.arrived()
            elif not self._context.closing:
                self._context.scheduler.later(SOON_SECONDS, look)

        self._context.scheduler.later(SOON_SECONDS, look)

    # ── with the node ──

    def report(self) -> Mapping[str, Any]:
        """Sinks that are on their way, where others have gone, and how many came, left or were refused."""
        if self._register is None:
            return {}
        counts = {"left": self.left, "came": self.came, "refused": self.refused, "expired": self.expired}
        return {**self._register.report(), **counts}

    def stop(self) -> None:
        """What is on its way stays so, in the state."""
        self._leaving.clear()


def check_target(to: object) -> None:
    """Raise unless that can be whom a token is for."""
    if to == "":
        return
    try:
        if not isinstance(to, str) or len(to) > 255:
            raise ValueError(to)
        Rule("**", to)
    except (ConfigError, ValueError):
        raise SubscriptionError(
            f"move: to: expected a node's name or id, or as in rules user:, group: or key: and a name, found {to!r}; "
            "leave it out for whoever shows the token and may subscribe"
        ) from None


__all__ = ["Moving", "check_target"]
