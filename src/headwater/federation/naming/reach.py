"""Nodes that were found by name, reached: those of this node's own federation, and those of others.

Into another federation a node has a leg: a node of the same name and key in this process, which joins that one as a
client, by the endpoints that the domain has named. It attends to nobody there but those that it was sent to, and so
neither learns of the other nodes of that federation, nor do they of it. There is one leg for a federation, however many
of its nodes are dealt with; it ends some time after the last of them was let go.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, FederationError, HeadwaterError, Unreachable
from headwater.federation.node import Node
from headwater.federation.wire.requests import Request
from headwater.services.naming.address import NodeAddress
from headwater.store import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headwater.federation.engine import Engine
    from headwater.federation.peers.peer import Peer

log = logging.getLogger("headwater.federation")
MOST_LEGS = 64  # other federations that a node is in at a time
REACH_SECONDS = 3.0  # in which a node that is there is reached, as a rule
SUSPECT_SECONDS = 10.0  # for which a node that was not reached is tried last


@dataclass(eq=False)
class _Leg:
    """A node of this process in another federation."""

    node: Node
    endpoints: frozenset[str]
    held: int = 0
    idle_since: float = field(default_factory=monotonic)


def engine_of(node: Node) -> Engine:
    """The network of a node; FederationError if it has none."""
    if node._engine is None:
        raise FederationError(f"names: expected a node with a network, found {node.name!r} without; give it listen=")
    return node._engine


class Reach:
    """Of one node, `home`. Thread-safe; whoever reaches a node lets it go in the end."""

    def __init__(self, home: Node, *, idle: float = 30.0) -> None:
        self.home, self._idle = home, idle
        self._engine = engine_of(home)
        self.federation = self._engine.network.federation
        self._lock = threading.Lock()
        self._opening = threading.Lock()  # legs are opened one at a time
        self._legs: dict[str, list[_Leg]] = {}  # by federation
        self._suspects: dict[str, float] = {}  # by node: until when
        self._closed = False

    # ── legs ──

    def hold(self, address: NodeAddress) -> Node:
        """The node of this process that can deal with another one, to which it attends from now on."""
        if address.federation == self.federation:
            self._engine.presence.acquaintances.hold(address.node)
            return self.home
        leg = self._leg(address)
        engine_of(leg.node).presence.acquaintances.hold(address.node)
        return leg.node

    def release(self, address: NodeAddress, node: Node) -> None:
        """It is not dealt with any more, by who has held it with this node."""
        with suppress(HeadwaterError):
            engine_of(node).presence.acquaintances.release(address.node)
        if node is not self.home:
            with self._lock:
                for leg in self._legs.get(address.federation, ()):
                    if leg.node is node:
                        leg.held -= 1
                        leg.idle_since = monotonic()

    @contextmanager
    def holding(self, address: NodeAddress) -> Iterator[Node]:
        """For as long as the block lasts."""
        node = self.hold(address)
        try:
            yield node
        finally:
            self.release(address, node)

    def _leg(self, address: NodeAddress) -> _Leg:
        """The leg into a federation, one more user of it; made, if there is none that leads there."""
        if (found := self._found(address)) is not None:
            return found
        with self._opening:
            if (found := self._found(address)) is not None:
                return found
            if not address.endpoints:
                raise Unreachable(
                    f"node {address.node}: expected an endpoint that leads into federation {address.federation!r}, "
                    "found none in its address"
                )
            made = _Leg(self._open(address), frozenset(address.endpoints), held=1)
            with self._lock:
                if not self._closed:
                    self._legs.setdefault(address.federation, []).append(made)
                    return made
            made.node.close(drain=False)
            raise ClosedError(f"names: node {self.home.name!r} is closed")

    def _found(self, address: NodeAddress) -> _Leg | None:
        """A leg that leads there: one that is connected, or was made for one of the same endpoints."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"names: node {self.home.name!r} is closed")
            legs = self._legs.get(address.federation, ())
            good = [leg for leg in legs if not leg.node.closed and engine_of(leg.node).fabric.connected]
            same = [leg for leg in legs if not leg.node.closed and not leg.endpoints.isdisjoint(address.endpoints)]
            found = next(iter([*good, *same]), None)
            if found is not None:
                found.held += 1
            elif sum(map(len, self._legs.values())) >= MOST_LEGS:
                raise FederationError(f"names: expected at most {MOST_LEGS} other federations at a time, found more")
            return found

    def _open(self, address: NodeAddress) -> Node:
        """Join a federation, with this node's own key."""
        network = replace(
            self._engine.network, listen=(), connect=address.endpoints, scout=False, federation=address.federation,
            direct=None, router=False, client=True, acquaintance="named", multicast=None, multicast_key=None,
        )  # fmt: skip
        identity = self._engine.keyring.credentials.identity
        state = NodeState(":memory:")
        if not identity.chain:
            state.keep(f"identity/{self.home.name}", identity.to_bytes())
        try:
            return Node(self.home.name, network=network, state=state)
        except BaseException:
            state.close()
            raise

    # ── asking ──

    def peer(self, address: NodeAddress, node: Node, timeout: float = REACH_SECONDS) -> Peer:
        """A node as one of this process sees it that has held it: once it has said who it is. Unreachable if that takes
        too long."""
        engine = engine_of(node)

        def met() -> bool:
            peer = engine.peers.get(address.node)
            return peer is not None and peer.exchange is not None and peer.gone is None

        if not engine.scheduler.until(met, timeout):
            self.suspect(address)
            raise Unreachable(f"node {address.node} is not reached in federation {address.federation!r}")
        return engine.peers[address.node]

    def is_ready(self, node: Node, others: Sequence[str], channel: str, end: float) -> bool:
        """Wait until other nodes, by id, have said that they have a channel (or are gone), and what is wanted at a node
        of this process is in force; False if that is not so at `end`."""
        engine = engine_of(node)
        wanted = [each for each in others if each != engine.id]

        def met() -> bool:
            peers = [engine.peers.get(each) for each in wanted]
            return all(peer is not None and (peer.has(channel) or peer.gone is not None) for peer in peers)

        return node.until(met, max(0.0, end - monotonic())) and node.ready(max(0.0, end - monotonic()))

    def ask(self, address: NodeAddress, request: Request, timeout: float = REACH_SECONDS) -> Any:
        """Ask a node something; Unreachable if it is not reached or does not answer in time."""
        with self.holding(address) as node:
            peer = self.peer(address, node, timeout)
            peer.addressed = monotonic()
            try:
                answer = engine_of(node).dialogue.ask(peer, request, timeout)
            except Unreachable:
                self.suspect(address)
                raise
            self._suspects.pop(address.node, None)
            return answer

    def run_of(self, address: NodeAddress) -> int:
        """Which run of a node is there, as far as is known without asking; 0 if it is not known."""
        node = self.home if address.federation == self.federation else self.legs.get(address.federation)
        peer = None if node is None or node._engine is None else node._engine.peers.get(address.node)
        return 0 if peer is None or peer.gone is not None else peer.incarnation

    def suspect(self, address: NodeAddress) -> None:
        """It was not reached: others are tried first for a while."""
        with self._lock:
            if len(self._suspects) > 10_000:
                self._suspects.clear()
            self._suspects[address.node] = monotonic() + SUSPECT_SECONDS

    def order(self, addresses: Iterable[NodeAddress]) -> list[NodeAddress]:
        """Nodes to be tried one after the other: first those of this federation, last those that were not reached."""
        now = monotonic()

        def rank(address: NodeAddress) -> tuple[bool, bool]:
            return self._suspects.get(address.node, 0.0) > now, address.federation != self.federation

        return sorted(addresses, key=rank)

    # ── the end ──

    def sweep(self) -> None:
        """End legs that nobody has used for a while."""
        now = monotonic()
        with self._lock:
            over = [
                (federation, leg)
                for federation, legs in self._legs.items()
                for leg in legs
                if not leg.held and now - leg.idle_since > self._idle
            ]
            for federation, leg in over:
                self._legs[federation].remove(leg)
                if not self._legs[federation]:
                    del self._legs[federation]
        for _, leg in over:
            _close(leg.node)

    def close(self) -> None:
        """Leave all other federations."""
        with self._lock:
            self._closed = True
            legs = [leg for several in self._legs.values() for leg in several]
            self._legs.clear()
        for leg in legs:
            _close(leg.node)

    @property
    def legs(self) -> dict[str, Node]:
        """The nodes of this process in other federations."""
        with self._lock:
            return {federation: legs[0].node for federation, legs in self._legs.items()}


def _close(node: Node) -> None:
    try:
        node.close()
        if node.state is not None:
            node.state.close()
    except HeadwaterError as error:
        log.warning("names: node %s could not leave another federation: %s", node.name, error)


Asks = Callable[[NodeAddress, Request], Any]

__all__ = ["REACH_SECONDS", "Asks", "Reach", "engine_of"]
