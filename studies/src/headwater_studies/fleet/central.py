"""Our nodes around a router: a process whose first node supplies and whose others consume, all of them clients of a
router in a process of its own. Everything that they say to each other passes through that process.

Supplier and consumers share a process, so that one clock says how long an event takes. Each event carries its number,
and a consumer that gets another one than was sent last ends the measurement: it was lost, or came twice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any

from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater_studies.fleet.node import BACK, CHANNEL, Nodes, Sample
from headwater_studies.fleet.worker import VALUES, Trips, serve


class Central(Nodes):
    """A router, or the nodes of one host around it; or, without a router, consumers on several nodes.

    `trips` is for a host around a router."""

    def __init__(self) -> None:
        super().__init__()
        self._wrong: list[float] = []  # numbers that came where another was expected
        self._last: Callable[[], None] = _nothing
        self._number = 0.0

    def router(self) -> dict[str, Any]:
        """What `headwater node` starts: a node that passes on."""
        network = Network(listen=("tcp/127.0.0.1:0",), router=True, direct=(), federation="bench")
        self._nodes.append(Node("router", network=network))
        return {"endpoint": self._nodes[0].endpoints[0]}

    def clients(self, names: list[str], connect: str) -> None:
        """More nodes of this process, that reach each other through the router only."""
        for name in names:
            node = Node(name, network=Network(connect=(connect,), client=True, direct=(), federation="bench"))
            node.channel(CHANNEL, Sample)
            self._nodes.append(node)

    def endpoint(self) -> dict[str, Any]:
        """Where others find the first node."""
        return {"endpoint": self._nodes[0].endpoints[0]}

    def _settle(self, channel: str, nodes: list[Node] | None = None) -> None:
        everyone = self._nodes
        try:
            self._nodes = everyone if nodes is None else nodes
            super()._settle(channel)
        finally:
            self._nodes = everyone

    # ── supplier and consumers in one process ──

    def consume(self, each: int) -> None:
        """So many consumers on each node but the first, instead of those that there are."""
        self.unsubscribe()
        total, arrived = each * (len(self._nodes) - 1), count(1).__next__

        def consumer(event: Sample) -> None:
            if event.number != self._number:
                self._wrong.append(event.number)
            if arrived() % total == 0:
                self._last()

        for node in self._nodes[1:]:
            self._sinks += [node.channel(CHANNEL).subscribe(consumer) for _ in range(each)]
        self._settle(CHANNEL, self._nodes[1:])

    def trips(self, n: int) -> dict[str, Any]:
        """`n` events, each when the last consumer has the one before, and how long that took."""
        trips, publish = Trips(n), self._sources[CHANNEL].publish

        def again() -> None:
            self._number += 1.0
            publish(Sample(0.0, 0.0, self._number, 0.0, *VALUES))

        def last() -> None:
            if trips.back():
                again()

        self._last = last
        again()
        found = trips.result()
        if self._wrong:
            raise RuntimeError(f"expected every event once and in order, found {self._wrong[:5]} out of turn")
        return found

    # ── consumers on several nodes of this process, the supplier in another ──

    def gather(self, each: int) -> None:
        """So many consumers on each node; the last of all to get an event answers with how long that took."""
        self.unsubscribe()
        if BACK not in self._sources:
            self.source(BACK)
        back, total, arrived = self._sources[BACK].publish, each * len(self._nodes), count(1).__next__

        def consumer(event: Sample) -> None:
            if arrived() % total == 0:
                back(Sample(0.0, 0.0, event.number, perf_counter() - event.sent, *VALUES))

        for node in self._nodes:
            self._sinks += [node.channel(CHANNEL).subscribe(consumer) for _ in range(each)]
        self._settle(CHANNEL)


def _nothing() -> None:
    """For what nobody expects."""


if __name__ == "__main__":
    serve(Central())
