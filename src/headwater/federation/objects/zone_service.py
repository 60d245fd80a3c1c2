"""Triggers over values of several nodes, as a service of every node: what carries them is loaded when there are any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.channel.services import Service
from headwater.threads import Worker

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.objects.zone_carrier import ZoneCarrier
    from headwater.federation.peers.connections import Connections
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.objects.zones.coordinator import Terms
    from headwater.types import EventType

BEATS = 4  # heartbeats in a lease
TICKS = 10  # looks at what waits for an answer, in a lease
WAITING = 20_000  # posts that wait to be looked at


class ZoneService(Service):
    """Of one node: meets `Spreading`. One thread does all; what comes is bounded by what may wait for it."""

    name = "zones"

    def __init__(self, node: Node, context: Context, peers: Peers, dialogue: Dialogue, links: Connections) -> None:
        self._parts = node, context, peers, dialogue, links
        self._worker = Worker(f"headwater-{node.name}-zones", WAITING, crashes=node._crashes)
        self._lock = threading.Lock()
        self._made: ZoneCarrier | None = None
        self._running = False  # whether it has its thread
        self.attached: list[Callable[[], None]] = []  # who is told that the objects of this node are open
        self.lost = 0  # posts that came while too many waited
        lease, every = context.network.lease, context.scheduler.every
        every(lease / BEATS, lambda: self._put("beat"), wanted=lambda: self._made is not None and self._made.busy)
        every(lease / TICKS, lambda: self._put("tick"), wanted=lambda: self._made is not None and self._made.is_home)

    def stop(self) -> None:
        self._worker.stop()

    def posts(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        return (("zones", self._on_post),)

    def report(self) -> dict[str, Any]:
        """What was posted and came, beside heartbeats; nothing, as long as there was nothing to say."""
        made = self._made
        return {} if made is None else {**made.report(), "lost": made.lost + self.lost}

    @property
    def carrier(self) -> ZoneCarrier:
        """Made by the first who needs it."""
        with self._lock:
            if self._made is None:
                from headwater.federation.objects.zone_carrier import ZoneCarrier

                self._made = ZoneCarrier(*self._parts, self._worker)
            made = self._made
        self._run()
        return made

    def _run(self) -> None:
        with self._lock:
            if not self._running:
                self._running = True
                self._worker.start()

    def _put(self, what: str) -> None:
        if self._made is not None:
            self._worker.put(getattr(self._made, what))

    def rejudge(self, concerns: Callable[[str], bool], backlog: bool) -> None:
        """Policies have changed: what homes may not have watched any more ends now, and not with the next look."""
        self._put("examine")

    def _on_post(self, peer: Peer, body: bytes) -> None:
        """The thread that reads a link is here: it only passes it on."""
        if not self._worker.put(partial(self._take, peer, body), size=len(body)):
            self.lost += 1
        if not self._running:
            self._run()

    def _take(self, peer: Peer, body: bytes) -> None:
        self.carrier.take(peer, body)

    # ── what objects need of it ──

    @property
    def terms(self) -> Terms:
        """By which triggers over several nodes go here."""
        return self.carrier.terms

    def attach(self, objects: Objects) -> None:
        """The objects of this node are open."""
        self.carrier.attach(objects)
        for each in self.attached:
            each()

    def is_there(self, node: str) -> bool:
        """Whether a node can be asked now."""
        return self.carrier.is_there(node)

    def type_of(self, node: str, object: str, named: str) -> tuple[str, EventType]:
        """The type of an object of another node, which is asked for it."""
        return self.carrier.type_of(node, object, named)


__all__ = ["ZoneService"]
