"""Which nodes are there: what follows when one is started again, is not heard of any more, leaves or is expelled."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from headwater.errors import FederationError
from headwater.federation.peers.acquaintances import Acquaintances
from headwater.federation.wire import frames as wire
from headwater.federation.wire.requests import Describe

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.description import Description
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.permissions import Permissions
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
ALIVE_SECONDS = 2.0  # in which a run of a node answers, if it is there, when another says to have come after it
MOST_EXPELLED = 1024  # nodes that are remembered for having been expelled, or for having refused this one
MOST_APPEARED = 1024  # runs of nodes of which is remembered since when they are said to be there
MOST_SILENT = 1024  # runs that are remembered for not having answered


class Linker(Protocol):
    """Makes links to other nodes."""

    def wanted(self, peer: Peer) -> bool:
        """Whether there is a reason to have a link."""
        ...

    def connect(self, peer: Peer) -> None:
        """See to it that there is one; soon, not now."""


class Installs(Protocol):
    """Keeps what other nodes have installed at this node's sources."""

    def sources_gone(self, sources: list[Source]) -> None:
        """Sources of this node are no more."""

    def away(self, peer: Peer) -> None:
        """A peer is not there."""

    def restarted(self, peer: Peer) -> None:
        """A peer was started again."""

    def gone(self, peer: Peer, *, orderly: bool) -> bool:
        """A peer has left, or stays away for too long; whether something is still kept for it."""
        ...


class Presence:
    """Of the other nodes, as one node sees them. What follows from who comes and goes is done by those who are set
    after it was made: `links`, `installer`, and `look_at_wants`, as what another node has may be different then."""

    links: Linker
    installer: Installs
    look_at_wants: Callable[[], None]

    def __init__(
        self,
        context: Context,
        peers: Peers,
        fabric: Fabric,
        dialogue: Dialogue,
        description: Description,
        permissions: Permissions,
        control: ControlEvents,
        make_peer: Callable[[str, int], Peer],
    ) -> None:
        self._context, self._peers, self._fabric, self._dialogue = context, peers, fabric, dialogue
        self._permissions, self._control, self._make_peer = permissions, control, make_peer
        self._description = description
        self.expelled: dict[str, str] = {}  # nodes with which this one has parted, and why
        self._silent: set[tuple[str, int]] = set()  # runs of nodes that are said to be there, and do not answer
        self._appeared: dict[tuple[str, int], float] = {}  # runs of nodes that are said to be there, and since when
        self.acquaintances = Acquaintances(fabric, peers.__contains__)

    def peer(self, node: str, incarnation: int) -> Peer:
        """The peer of that id; one that was started again is the same peer, with nothing of what it was sending."""
        with self._peers.lock:
            found = self._peers.get(node)
            if found is None or found.forgotten:
                found = self._peers[node] = self._make_peer(node, incarnation)
                found.consented = self.acquaintances.consented
                self._fabric.attend(node)
        if self._is_later(found, incarnation):
            self._renewed(found, incarnation)
        return found

    def _is_later(self, peer: Peer, incarnation: int) -> bool:
        """Whether it is another run of a node than the one known here, and the one that is there now."""
        return incarnation != peer.incarnation and incarnation == self._context.keyring.verifier.run_of(peer.id)

    def proven(self, node: str, incarnation: int) -> bool:
        """Whether that run of a node has signed something that came here."""
        peer = self._peers.get(node)
        return peer is not None and peer.incarnation == incarnation

    def lives(self, node: str, incarnation: int) -> bool:
        """Whether that run of a node is there, as far as can be seen from here. Where that rests on a sign of life
        alone, which others can make, it is asked: if it does not answer it counts as gone."""
        peer = self._peers.get(node)
        if peer is None or peer.incarnation != incarnation:
            return False
        if peer.direct and monotonic() - peer.heard < self._context.network.lease:
            return True
        if not self._fabric.is_alive(node, incarnation) or (node, incarnation) in self._silent:
            return False
        self._context.scheduler.work(self._check_alive, peer, incarnation, on=node)
        return True

    def _check_alive(self, peer: Peer, incarnation: int) -> None:
        try:
            known = 0 if peer.state is None else peer.state.version
            self._dialogue.ask(peer, Describe(known), ALIVE_SECONDS)
        except FederationError as error:
            log.info("node %s: %s, run %d, does not answer: %s", self._context.name, peer.id, incarnation, error)
            if len(self._silent) >= MOST_SILENT:
                self._silent.clear()
            self._silent.add((peer.id, incarnation))

    def _renewed(self, peer: Peer, incarnation: int) -> None:
        """The node was started again: nothing that it had said holds any more. Its sources are gone, its link is let
        go, and this node's wishes go to it anew."""
        with peer.lock:
            if not self._is_later(peer, incarnation):
                return
            for crossing in list(peer.crossings.values()):  # first: nothing goes to that run before its sinks are back
                crossing.parked = crossing.parked or bool(crossing.durable)
            peer.incarnation, peer.state, peer.pages = incarnation, None, None
            peer.described, peer.newest, peer.considered, peer.met = False, 0, 0, monotonic()
            exchange, peer.exchange = peer.exchange, None
            if exchange is not None:
                self._context.keyring.exchange.forget(exchange, peer.id)
            peer.asked.clear()
            peer.memory_there, peer.parted = 0, False
            peer.unwanted.clear()
            gone = list(peer.remote_sources.values())
            peer.remote_sources.clear()
            peer.over.clear()
            peer.unacknowledged.clear()
            link, peer.link = peer.link, None
            if link is not None:
                peer._let_go(link, "the other node was started again")
        for source in gone:
            self._context.wiring.withdraw(source)
            self._forget_positions(source)
        self.installer.restarted(peer)

    def _forget_positions(self, source: RemoteSource) -> None:
        """A source will not come back: how far sinks were with it need not be remembered."""
        state = self._context.node.state
        if state is not None and source.position_key is not None and not source.ad.log:
            for sink in state.sinks():
                state.forget(sink, source.position_key)

    def expected(self, since: float) -> set[tuple[str, int]]:
        """Runs of nodes that are said to be there since a time or later, and have not said anything themselves yet."""
        known = {(peer.id, peer.incarnation) for peer in self._peers.everyone()}
        appeared = {who for who, at in list(self._appeared.items()) if at >= since}
        return {who for who in appeared - known if self._fabric.is_alive(*who)}

    def appeared(self, node: str, incarnation: int) -> Peer | None:
        """Someone says that this run of a node is there; who that is, if it is known."""
        self._appeared.pop((node, incarnation), None)
        self._appeared[node, incarnation] = monotonic()
        while len(self._appeared) > MOST_APPEARED:
            del self._appeared[next(iter(self._appeared))]
        with self._peers.lock:
            return self._peers.get(node)

    def left(self, node: str, incarnation: int) -> None:
        """Someone says that this run of a node is there no more."""
        self._appeared.pop((node, incarnation), None)
        with self._peers.lock:
            peer = self._peers.get(node)
        if peer is None or incarnation != peer.incarnation:
            return
        peer.present = False
        if peer.direct:
            peer.say(wire.encode_ping(self._description.version))  # it may be only Zenoh that does not reach it
            heard = peer.heard
            self._context.scheduler.later(min(1.0, self._context.network.lease), lambda: self._still_there(peer, heard))
        else:
            self._away(peer)

    def _still_there(self, peer: Peer, heard: float) -> None:
        if not peer.present and peer.direct and peer.heard <= heard:
            link = peer.link
            if link is not None:
                peer.link_down(link, "it does not answer")

    def _away(self, peer: Peer) -> None:
        """Neither Zenoh nor a stream reaches it."""
        with peer.lock:
            if peer.gone is not None or self._context.closed:
                return
            peer.gone = monotonic()
            link = peer.link
        if link is not None:
            peer.link_down(link, "the other node is not there any more")
        self.installer.away(peer)
        for source in list(peer.remote_sources.values()):
            source.promised(None)
        self._control.node(peer, "left")
        self.look_at_wants()
        self._context.scheduler.changed()

    def link_lost(self, peer: Peer) -> None:
        """A link to a peer has ended."""
        if self._context.closed:
            return
        if not peer.present:
            self._away(peer)
        elif self.links.wanted(peer):
            self.links.connect(peer)
        self._context.scheduler.changed()

    def said_bye(self, peer: Peer, reason: str) -> None:
        """A peer leaves in an orderly way."""
        peer.present, peer.parted = False, True
        link = peer.link
        if link is not None:
            peer.link_down(link, f"it said goodbye: {reason}")
        self._context.scheduler.later(0.0, lambda: self._forget(peer, orderly=True))

    def _forget(self, peer: Peer, *, orderly: bool = False) -> None:
        """It will not come back, or too late."""
        with peer.lock:
            if peer.gone is None:
                return
            peer.given_up_at = peer.gone  # before its sources are: who has to know what it has published must see that
            sources = list(peer.remote_sources.values())
            peer.remote_sources.clear()
            peer.over.clear()
            peer.unacknowledged.clear()
        for source in sources:
            self._context.wiring.withdraw(source)
        self._permissions.forget(peer)
        if not self.installer.gone(peer, orderly=orderly):
            self._strike_off(peer)
        self._context.scheduler.changed()

    def _strike_off(self, peer: Peer) -> None:
        """Nothing is kept for it: it is a peer no more, unless it has come back meanwhile. Then it is one that sends
        and receives, and nothing of it is closed."""
        with peer.lock:
            if peer.gone is None:
                return
            peer.forgotten = True
            if peer.exchange is not None:
                self._context.keyring.exchange.forget(peer.exchange, peer.id)
        self._context.keyring.verifier.forget(peer.id)
        with self._peers.lock:
            if self._peers.get(peer.id) is peer:
                del self._peers[peer.id]
                self.acquaintances.forgotten(peer.id)
        peer.sender.close()

    def check_vouched(self) -> None:
        """Part with those for whom nobody vouches any more: their certificate has expired, or was revoked."""
        now = time.time_ns()
        for peer in self._peers.everyone():
            principal = peer.principal
            why = (
                None if principal is None else self._context.keyring.credentials.trust.why_not(principal.certified, now)
            )
            if why is not None:
                self._expel(peer, why[1])

    def _expel(self, peer: Peer, why: str) -> None:
        """Nothing more comes from it, and nothing goes to it; until it shows a certificate that is good."""
        self._context.offences.note(peer.id, why)
        peer.principal, peer.trouble, peer.present = None, why, False
        link = peer.link
        if link is not None:
            peer.link_down(link, why)
        self._away(peer)
        self._forget(peer, orderly=True)
        if peer.id not in self.expelled and len(self.expelled) >= MOST_EXPELLED:
            self.expelled.pop(next(iter(self.expelled)))
        self.expelled[peer.id] = why

    def link_again(self, peer: Peer) -> None:
        """It is back: what was kept for it, or is still wanted of it, needs a link."""
        if peer.link is None and self.links.wanted(peer):
            self.links.connect(peer)

    def _is_idle(self, peer: Peer, now: float) -> bool:
        """Whether this node, which does not know all others, has nothing to do with a peer any more."""
        if peer.gone is not None or self.acquaintances.has(peer.id) or self.links.wanted(peer):
            return False
        return now - peer.addressed > self._context.network.keep

    def _part_with(self, peer: Peer) -> None:
        """Neither end wants anything of the other: forget it, until one does."""
        self._fabric.ignore(peer.id)
        peer.present = False
        self._away(peer)
        self._forget(peer, orderly=True)

    def look_around(self) -> None:
        """Heartbeats, regularly: who has not been heard of for a third of the lease is asked for a sign of life, who
        has not for all of it counts as away, and who has been away for too long is forgotten."""
        now, alive, lease = monotonic(), self._fabric.alive, self._context.network.lease
        for peer in self._peers.everyone():
            link = peer.link
            if self._fabric.named and self._is_idle(peer, now):
                self._part_with(peer)
                continue
            if peer.gone is not None:
                if now - peer.gone > self._context.network.keep:
                    self._forget(peer)
            elif link is None and now - peer.met > lease and (peer.id, peer.incarnation) not in alive:
                peer.present = False  # it has signed something, but there is no sign of life of it
                self._away(peer)
            elif link is not None and peer.direct:
                if now - peer.heard > lease:
                    peer.link_down(link, f"nothing was heard for {lease:g} s")
                elif now - peer.heard > lease / 3:
                    peer.say(wire.encode_ping(self._description.version))
