"""Sinks that leave this node, and sinks that come: as a service of its node, which others ask for those they may have.

    leave    it stands still; that it is on its way is written; then there is a token
    claim    who shows the token, and may, gets it: that is written before it is told
    resume   at the other node: subscribed, and held; claimed; in force at all sources; what waited at the old node,
             and is in no log, fetched; then it goes on

Of durable sinks it is written in the node's state; of others in memory, as long as the process lasts: so do they.

Whoever crashes at whatever point: the sink goes on where it was, or it is claimed and goes on at the other node when
that asks again, but never at both.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.options.subscribe import check_seconds
from headwater.channel.services import Service
from headwater.channel.subscription import Subscription
from headwater.errors import ClosedError, ConfigError, HeadwaterError, SubscriptionError
from headwater.federation.moving.answering import Answering
from headwater.federation.moving.arrival import Arrival, InForce
from headwater.federation.moving.departure import Standstill, check_movable, described
from headwater.federation.moving.handover import TAKE_SECONDS, Handover, end_here, has_unlogged
from headwater.federation.moving.registers import Registers
from headwater.federation.moving.resumption import Resumed, Whereabouts
from headwater.federation.moving.token import make_token
from headwater.federation.security.rules import Rule
from headwater.federation.wire.move_requests import ID_BYTES, ClaimMove, FetchWaiting, MoveClaimed, WaitingPage
from headwater.services.moving.register import MoveRegister

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.federation.context import Context
    from headwater.federation.interests.channel_discovery import ChannelDiscovery
    from headwater.federation.moving.marks import Marks
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers
    from headwater.federation.security.rules import Principal

log = logging.getLogger("headwater.federation")
MOST_SECONDS = 7 * 86_400.0  # for which a token is good
RETRY_SECONDS = 1.0
LEAVING = "it is on its way to another node"


class Moving(Service):
    """Of one node. `in_force`: whether all that is wanted of channels is taken up by the nodes that are there. `want`:
    have them asked at once for what is wanted of a channel now."""

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
        want: Callable[[Any], None],
        marks: Marks,
        channels: ChannelDiscovery,
    ) -> None:
        self._node, self._context, self.whereabouts = node, context, whereabouts
        self._marks, self._answering = marks, Answering(context, "a sink")
        self.registers = Registers(node)
        self.arrival = Arrival(self, node, context, peers, dialogue, whereabouts, in_force, want, marks, channels)
        self._numbers = count(1)
        self._turn = threading.Lock()  # of who has a sink leave, or gives it: one at a time, also the same one again
        self._leaving: dict[str, Departure] = {}  # by name in the register: held here until they are claimed
        self._handovers: dict[bytes, Handover] = {}  # by id of the move: what waits for those that are
        self._given: list[Subscription[Any]] = []  # claimed by others, and still to be ended here
        self.left = self.came = self.expired = self.lost = 0

    # ── leaving ──

    def leave(self, subscription: Subscription[Any], to: str | None, lasts: float) -> str:
        """A token for a sink of this node, which stands still from here on."""
        check_movable(subscription, (Subscription, Resumed))
        seconds = check_seconds("move: lasts", lasts)
        if seconds > MOST_SECONDS:
            raise SubscriptionError(f"move: lasts: expected at most {MOST_SECONDS:,.0f} seconds, found {seconds:,.0f}")
        target = checked_target(to)
        durable = subscription._options.delivery.durable
        register, id = self.registers.of(durable=durable), secrets.token_bytes(ID_BYTES)
        # A name may be used again for another sink, once one that is not durable has left.
        name = subscription.name if durable else f"{subscription.name} ({next(self._numbers)})"
        until = self._now() + round(seconds * 1e9)
        with self._turn:
            if subscription._fenced is not None:
                raise SubscriptionError(
                    f"move: subscription {subscription.name!r}: {subscription._fenced} already; use the token that "
                    "there is, or wait until its time (lasts=) is over"
                )
            still = Standstill(self._context, subscription, LEAVING)
        try:
            still.reach()
            move = described(subscription, id, self._context.id, still)
            token = make_token(self._context, subscription.name, move)
            self._leaving[name] = Departure(id, subscription, still, register, until)
            channels = [channel.name for channel, _ in subscription._attachments]
            register.begin(id, name, channels, target, until)
        except BaseException:
            self._leaving.pop(name, None)
            still.undo()
            raise
        self._node._timers.call_after(seconds, partial(self._look, name))
        return token

    def _now(self) -> int:
        return self._node._stamp()

    def _look(self, name: str) -> None:
        """The time of a token is over: if nobody has used it, the sink goes on here."""
        found = self._leaving.get(name)
        if found is None or self._node.closed:
            return
        try:  # its time is over, whatever a clock says that was set back
            fence = found.register.enter(name, max(self._now(), found.until))
        except HeadwaterError as error:
            log.warning("subscription %r cannot go on yet: %s", found.subscription.name, error)
            with suppress(ClosedError):
                self._node._timers.call_after(RETRY_SECONDS, partial(self._look, name))
            return
        if fence is None and self._leaving.pop(name, None) is not None:
            self.expired += 1
            log.warning("subscription %r goes on: nobody has taken it up in time", found.subscription.name)
            found.still.undo()

    def check(self, name: str | None) -> None:
        """Raise if a durable subscription of that name is not to go on here."""
        if name is None or self._node.state is None:
            return
        fence = self.registers.durable.enter(name, self._now())
        if fence is not None:
            hint = (
                "resume(token, handler) it, or wait" if fence.until else "or give the name up: node.forget_moved(name)"
            )
            raise SubscriptionError(f"subscribe: {name!r}: {fence.why}; have it moved back, {hint}")

    def forget(self, name: str) -> bool:
        """Give the name of a sink that has left up."""
        self._end_given()
        found = self._leaving.pop(name, None)
        if found is not None:
            end_here(found.subscription)
        return self._node.state is not None and self.registers.durable.forget(name)

    # ── who may have it ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (
            (ClaimMove, self._answering.by("moving", self._claimed, self._end_given)),
            (FetchWaiting, self._answering.by("waiting", self._fetched)),
            *self._marks.requests(),
        )

    def posts(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        return self._marks.posts()

    def _claimed(self, caller: Caller, request: ClaimMove) -> MoveClaimed:
        register, (target, channels) = self.registers.find(request.id)
        principal, peer = caller.principal, caller.peer
        fits = not target or Rule("**", target).concerns(principal)
        if not (fits or target == peer.id or (principal.how == "key" and target == peer.name)):
            raise SubscriptionError(f"the token is for {target}, and not for {claimant_of(caller)}")
        for channel in channels:
            verdict = self._context.decisions.decide(principal, "subscribe", channel)
            if not verdict:
                raise SubscriptionError(f"{channel}: {verdict.why}")
        return self.give(register, request.id, peer.id, request.claimant)

    def give(self, register: MoveRegister, id: bytes, who: str, claimant: bytes) -> MoveClaimed:
        """Written for good; then nothing of it is left here, but what waits for it."""
        with self._turn:
            try:
                return self._give(register, id, who, claimant)
            except SubscriptionError:
                # By the clock its time may be over before the timer says so: if so it goes on here, once this is told.
                for name in [
                    name for name, each in self._leaving.items() if each.id == id and self._now() >= each.until
                ]:
                    self._node._timers.call_after(0.0, partial(self._look, name))
                raise

    def _give(self, register: MoveRegister, id: bytes, who: str, claimant: bytes) -> MoveClaimed:
        name = register.claim(id, who, claimant, self._now())
        found = self._leaving.get(name)
        if found is not None and found.id == id:  # else it was claimed before, and that is another one of that name
            del self._leaving[name]
            self.left += 1
            sink = found.subscription
            if not sink.cancelled and (register is self.registers.fleeting or has_unlogged(sink)):
                self._handovers[id] = Handover(self._context, self._marks, id, sink, (who, claimant))
            else:
                sink._mailbox.close(drop=True)
                self._given.append(sink)
            self._node._timers.call_after(TAKE_SECONDS, partial(self._watch_handover, id, name, register))
        return MoveClaimed(name, waits=id in self._handovers)

    def _end_given(self) -> None:
        """Nothing is left here of sinks that others have been told they have; their names are free."""
        with self._turn:
            while self._given:
                end_here(self._given.pop())

    def _fetched(self, caller: Caller, request: FetchWaiting) -> WaitingPage:
        return self.page(request, caller.peer.id, caller.principal)

    def page(self, request: FetchWaiting, who: str, principal: Principal | None) -> WaitingPage:
        """What waits for a sink that somebody has claimed; `principal` is None for this node itself."""
        found = self._handovers.get(request.id)
        if found is None or found.who != (who, request.claimant):
            raise SubscriptionError("nothing waits for it here any more")
        page = found.page(request.page, principal)
        if found.over:
            self._handovers.pop(request.id, None)
        return page

    def at_home(self, id: bytes, claimant: bytes) -> MoveClaimed:
        """A sink goes on at the node that it was about to leave; what it was gives its name to what it will be."""
        register, _ = self.registers.find(id)
        made = self.give(register, id, self._context.id, claimant)
        self._end_given()
        found = self._handovers.get(id)
        if found is not None:
            self._node._rename(found.subscription, f"{found.subscription.name} ({next(self._numbers)})")
        return made

    def _watch_handover(self, id: bytes, name: str, register: MoveRegister) -> None:
        """What nobody asks for is not kept for ever."""
        found = self._handovers.get(id)
        left = 0.0 if found is None else found.touched + TAKE_SECONDS - monotonic()
        if found is not None and left > 0:
            self._node._timers.call_after(left, partial(self._watch_handover, id, name, register))
            return
        if found is not None:
            self._handovers.pop(id, None)
            lost = found.give_up()
            self.lost += lost
            if lost:
                log.warning("subscription %r has moved, and %d events that waited were not fetched", name, lost)
        if register is self.registers.fleeting and not self._node.closed:
            register.forget(name, "the token was used, a while ago")

    # ── coming ──

    def resume(
        self, token: str, handler: Any, name: str | None, timeout: float, options: Mapping[str, Any]
    ) -> Subscription[Any]:
        """Go on here with a sink of another node; FederationError says why not, and then nothing was changed here."""
        self._end_given()
        made = self.arrival.resume(token, handler, name, timeout, options)
        self.came += 1
        return made

    # ── with the node ──

    def report(self) -> Mapping[str, Any]:
        """Sinks that are on their way, where others have gone, and how many came, left or were refused."""
        found = self.registers.report()
        if found is None:
            return {}
        counts = {"left": self.left, "came": self.came, "refused": self._answering.refused, "expired": self.expired}
        return {**found, **counts, "handing over": len(self._handovers), "not fetched": self.lost}

    @property
    def busy(self) -> bool:
        return bool(self._handovers)

    def drain(self, until: float) -> None:
        """What waits for others is fetched, if they do."""
        self._context.scheduler.until(lambda: not self._handovers, max(0.0, until - monotonic()))

    def stop(self) -> None:
        """What is on its way stays so, in the state."""
        self._leaving.clear()
        self._handovers.clear()
        self.registers.close()


@dataclass(frozen=True, slots=True)
class Departure:
    """A sink that is held until it is claimed."""

    id: bytes  # of the move
    subscription: Subscription[Any]
    still: Standstill
    register: MoveRegister
    until: int  # nanoseconds since 1970


def claimant_of(caller: Caller) -> str:
    """Who shows a token, for people: a key says nothing to them, so the name that comes with it is told too."""
    return f"{caller.peer.name}, {caller.principal}" if caller.principal.how == "key" else f"{caller.principal}"


def checked_target(to: object) -> str:
    """Whom a token is for; nothing, if nobody was said, for whoever shows it. An empty name is an error: a setting that
    was forgotten is not to make a token that is anybody's."""
    if to is None:
        return ""
    try:
        if not isinstance(to, str) or not 0 < len(to) <= 255:
            raise ValueError(to)
        Rule("**", to)
    except (ConfigError, ValueError):
        raise SubscriptionError(
            "move: to: expected a node's name or id, or as in rules user:, group:, certificate: or key: and a name, "
            f"found {to!r}; leave it out for whoever shows the token, and may have it by the rules"
        ) from None
    return to


__all__ = ["Moving", "checked_target", "claimant_of"]
