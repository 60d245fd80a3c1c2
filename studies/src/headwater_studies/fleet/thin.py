"""Our nodes on hosts of their own, with a link between them that may be full; see `worker` for how they are told."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

from headwater.channel.options.config import Queue
from headwater.federation.network import LINK, Network
from headwater.federation.node import Node
from headwater.federation.security.settings import Security
from headwater_studies.fleet.node import BACK, CHANNEL, Nodes, Sample, sample
from headwater_studies.fleet.worker import Meter, serve


class Order:
    """A handler that sees whether events come once and in their order."""

    def __init__(self) -> None:
        self.arm(-1, Meter())

    def arm(self, goal: int, meter: Meter) -> None:
        self.got, self.wrong, self._goal, self._meter, self._last = 0, 0, goal, meter, -1.0
        meter.look = lambda: self.got

    def __call__(self, event: Sample) -> None:
        if event.number <= self._last:
            self.wrong += 1
        self._last = event.number
        self.got += 1
        if self.got == self._goal:
            self._meter.done(self.got, self.got, 0.0)


class Thin(Nodes):
    """One node, which other hosts can reach."""

    def __init__(self) -> None:
        super().__init__()
        self._order = Order()
        # Where these nodes run nobody else can reach them, and everybody's events go in the clear.
        logging.getLogger("headwater.federation").setLevel(logging.ERROR)

    def listen(self, name: str, host: str, connect: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """A node at an address, in place of the one before; `limit`: how many events of a source may wait for another
        node before publishers do."""
        self.close()
        self._nodes.clear()
        self._sinks.clear()
        self._sources.clear()
        network = Network(
            listen=(f"tcp/{host}:0",),
            connect=() if connect is None else (connect,),
            federation="bench",
            link=LINK if limit is None else Queue(limit=limit, policy="block"),
            security=Security(open=True),
        )
        node = Node(name, network=network)
        for channel in (CHANNEL, BACK):
            node.channel(channel, Sample)
        self._nodes.append(node)
        return {"endpoint": node.endpoints[0]}

    def want(self, where: str | None) -> dict[str, Any]:
        """One interest, at the source; how long until it is in force there. It takes the place of the one before."""
        began = perf_counter()
        self.unsubscribe()
        self._sinks.append(self._nodes[0].channel(CHANNEL).subscribe(self._order, where))
        self._settle(CHANNEL)
        return {"seconds": perf_counter() - began}

    def expect(self, n: int, mode: str = "") -> None:
        meter = Meter()
        self._meters = [meter]
        self._order.arm(n, meter)

    def seen(self) -> dict[str, Any]:
        """How many have come, and how many of them twice or too late."""
        return {"got": self._order.got, "wrong": self._order.wrong}

    def send_timed(self, n: int) -> dict[str, Any]:
        """Publish `n` events, and say what a publisher sees of a full link: the longest call, and all of them."""
        publish, longest, waited = self._sources[CHANNEL].publish, 0.0, 0
        start = before = perf_counter()
        for number in range(n):
            publish(sample(number))
            now = perf_counter()
            took, before = now - before, now
            longest = max(longest, took)
            waited += took > 0.001
        return {"start": start, "sent": before, "longest": longest, "waited": waited}


if __name__ == "__main__":
    serve(Thin())
