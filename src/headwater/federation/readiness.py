"""What `node.ready()` waits for."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import FederationError, HeadwaterError, SecurityError, Unreachable
from headwater.federation.wire.requests import Latest, LatestIs

if TYPE_CHECKING:
    from headwater.federation.engine import Engine
    from headwater.federation.peers.peer import Peer
    from headwater.federation.security.rules import Principal
    from headwater.federation.transport.contacts import Contact

STRANGER_SECONDS = 2.0  # for which nodes that have proven nothing are waited for
SILENT_SECONDS = 5.0  # and those that have proven who they are, but do not say what they have
ANSWER_SECONDS = 2.0  # for which an answer is waited for, before it is asked again
AGAIN_SECONDS = 0.1


class Readiness:
    """One call of `ready`. It is over when each endpoint of `connect`, or as many as are enough, was reached at some
    time, and of every other node that is there,

    * it has said, after the call began, which version of its state is the latest: whatever it had advertised by then,
    * that version is known here, and all that follows from it was looked at: channels that patterns fit are declared,
    * and each question to it is answered, and what it answered is in force: the barrier has come, behind all events of
      before.

    Who is at an endpoint that was just reached is waited for, for STRANGER_SECONDS.
    A node that leaves, is away, or may not advertise anything here is not waited for. A node that is only said to be
    there is waited for until STRANGER_SECONDS after that was first said, and one that has proven who it is but does
    not say what it has until SILENT_SECONDS after that; each node that comes later, or is started again, anew."""

    def __init__(self, engine: Engine, reached: int | None = None) -> None:
        self._engine, self._enough = engine, reached
        self._asked: set[Peer] = set()
        self._confirmed: set[tuple[Peer, int]] = set()  # peers in an incarnation
        self._fetched: set[tuple[Peer, int]] = set()  # peers that were asked what they have, in an incarnation
        self._advertisers: dict[Principal, bool] = {}  # whether each may advertise anything here
        self._began = monotonic()
        self._strangers = engine.presence.expected(self._began - STRANGER_SECONDS)
        self.over = False

    def wait(self, timeout: float) -> bool:
        """Whether it came to that in time."""
        try:
            return self._said(self._engine.scheduler.until(self._reached, timeout))
        finally:
            self.over = True

    async def await_(self, timeout: float) -> bool:
        """The same for a coroutine."""
        try:
            return self._said(await self._engine.scheduler.auntil(self._reached, timeout))
        finally:
            self.over = True

    def _said(self, found: bool) -> bool:
        self._engine.unready = [] if found else self._reasons()
        return found

    def _peers(self) -> list[Peer]:
        return [peer for peer in self._engine.everyone() if peer.gone is None and self._matters(peer)]

    def _reasons(self) -> list[str]:
        """What it has not come to, for people."""
        engine = self._engine
        found = [str(each) for each in engine.contacts.awaited(self._enough)]
        for peer in self._peers():
            if not self._has_confirmed(peer):
                found.append(f"node {peer.name} has not answered what it has")
            elif not self._informed(peer):
                found.append(f"node {peer.name} has not said what it has, or it is not looked at yet")
        found += [f"who is at {each.written} has not said so yet" for each in self._unmet()]
        if self._expects_others():
            found.append("a node that is said to be there has not proven who it is")
        for channel in engine.node.channels():
            if not engine.requester.settled([channel], barriers=True):
                found.append(f"what is wanted of channel {channel.name} is not in force at all of its sources")
        if not all(each() for each in engine.also_settled):
            found.append("a node with sources has not answered that a sink of this one is a member of a group")
        return found or ["what was waited for has just happened"]

    def _reached(self) -> bool:
        engine = self._engine
        missing = engine.contacts.awaited(self._enough) or self._unmet()  # first: who is there is a peer by then
        peers = self._peers()
        unconfirmed = [peer for peer in peers if not self._has_confirmed(peer)]  # all are asked at once
        if missing or unconfirmed or any(not self._informed(peer) for peer in peers) or self._expects_others():
            return False
        settled = engine.requester.settled(engine.node.channels(), barriers=True)
        return settled and all(each() for each in engine.also_settled)

    def _matters(self, peer: Peer) -> bool:
        """Whether there may be sources of a peer, as far as the rules go: else it could only keep this one waiting."""
        principal = peer.principal
        if principal is None:
            return True
        found = self._advertisers.get(principal)
        if found is None:
            found = self._advertisers[principal] = self._engine.security.deals_with(principal, "advertise")
        return found

    def _informed(self, peer: Peer) -> bool:
        """Whether all is known here of what a peer has, as it says, and was looked at."""
        state = peer.state
        if state is None or not peer.described:
            self._have_described(peer)
            return monotonic() > peer.met + SILENT_SECONDS
        return state.version >= peer.newest and peer.considered >= state.version

    def _have_described(self, peer: Peer) -> None:
        """Have a peer asked for what it has: one that has nothing does not say so by itself."""
        if (run := (peer, peer.incarnation)) not in self._fetched:
            self._fetched.add(run)
            self._engine.membership.inquiries.want(peer.id, peer.incarnation, proven=True, anew=True)

    def _expects_others(self) -> bool:
        """Whether a node was said to be there when this began, not long before, of which nothing is known yet."""
        return bool(self._strangers & self._engine.presence.expected(monotonic() - STRANGER_SECONDS))

    def _unmet(self) -> list[Contact]:
        """Endpoints that were just reached, and where it is not known yet who is there."""
        engine = self._engine
        if engine.fabric.named:
            return []
        sessions = {peer.session for peer in engine.everyone() if peer.gone is None}
        return engine.contacts.unmet(sessions, monotonic() - STRANGER_SECONDS)

    def _has_confirmed(self, peer: Peer) -> bool:
        if not peer.described or (peer, peer.incarnation) in self._confirmed:
            return True
        if peer not in self._asked:
            self._asked.add(peer)
            self._engine.scheduler.work(self._ask, peer, on=peer.id)
        return False

    def _ask(self, peer: Peer) -> None:
        incarnation = peer.incarnation
        try:
            answer = self._engine.dialogue.ask(peer, Latest(), ANSWER_SECONDS)
            if isinstance(answer, LatestIs):
                self._engine.membership.version_said(peer, answer.version)
        except (Unreachable, SecurityError):
            if not self.over and not self._engine.closed:
                self._engine.scheduler.later(AGAIN_SECONDS, partial(self._asked.discard, peer))
            return
        except FederationError:
            pass  # it does not let this node in, and so it has nothing for it
        except HeadwaterError:
            return
        self._confirmed.add((peer, incarnation))
        self._asked.discard(peer)
        self._engine.scheduler.changed()


__all__ = ["Readiness"]
