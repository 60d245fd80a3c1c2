"""Processes of nodes that grow in number: joined in several ways, with exact counts of what crossed.

How late an event is at the last of many nodes is told to the publisher beside the federation, over a TCP connection of
its own, so that nothing but the events is counted at the nodes.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa

from headwater.channel.source import Source
from headwater.federation.address_map import HashedGroups
from headwater.federation.gateway.gateway import Gateway
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.threads import Supervised
from headwater_studies.fleet.node import CHANNEL, WAIT, Nodes, Sample
from headwater_studies.fleet.worker import PATIENCE, PICKS, VALUES, Meter, serve

_LATE = struct.Struct("<d")


def memory() -> int:
    """Bytes of this process that are in memory; 0 where that is not told."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0


def shared(number: int, shares: int) -> Sample:
    """An event that is of one of so many shares."""
    return Sample(float(number % PICKS), float(number % shares), float(number), 0.0, *VALUES)


class Ear:
    """What the nodes of this process have got: counted for each, and timed when events come one at a time."""

    def __init__(self, nodes: int) -> None:
        self.got, self.total = [0] * nodes, [0.0] * nodes
        self._goal, self._meters = -1, [Meter() for _ in range(nodes)]
        self._line: socket.socket | None = None
        self._each = self._left = 0
        self._lock = threading.Lock()

    def handler(self, at: int) -> Callable[[Sample], None]:
        def take(event: Sample) -> None:
            self.got[at] += 1
            self.total[at] += event.number
            if self._line is not None:
                self._tell(event)
            elif self.got[at] == self._goal:
                self._meters[at].done(self._goal, self._goal, self.total[at])

        return take

    def _tell(self, event: Sample) -> None:
        late = perf_counter() - event.sent
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._left = self._each
                assert self._line is not None
                self._line.sendall(_LATE.pack(late))

    def paced(self, port: int, each: int) -> None:
        """From now on every event comes to `each` of the nodes; who publishes is told how late the last of them is."""
        self.clear()
        self._each = self._left = each
        self._line = socket.create_connection(("127.0.0.1", port))
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def flood(self, goal: int) -> None:
        """From now on as many come to each node."""
        self.clear()
        self._goal, self._meters = goal, [Meter() for _ in self.got]

    def clear(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, self._goal = None, -1
        self.got, self.total = [0] * len(self.got), [0.0] * len(self.got)

    def wait(self) -> float:
        """When the last node had all of them."""
        return float(max(meter.result(PATIENCE / 2)["end"] for meter in self._meters))


class Growing(Nodes):
    """Nodes that are counted."""

    def __init__(self) -> None:
        super().__init__()
        self._gateways: list[Gateway] = []
        self._ear = Ear(0)
        self._listener: socket.socket | None = None
        self._many: list[Source] = []

    def grow(self, names: list[str], **how: Any) -> dict[str, Any]:
        """More nodes, joined as `how` says: `port` of multicast groups, and fields of Network."""
        port = how.pop("port", None)
        how = {"listen": "tcp/127.0.0.1:0", "federation": "growth", **how}
        if how["listen"] is None:
            del how["listen"]
        if port is not None:
            how["multicast"] = HashedGroups(port=port, base="239.255.78.0")
        start, made = perf_counter(), []
        for name in names:
            node = Node(name, network=Network(**how))
            node.channel(CHANNEL, Sample)
            made.append(node)
        self._nodes += made
        return {"endpoints": [node.endpoints[0] if node.endpoints else "" for node in made], "start": start}

    def gates(self, roots: str, leaves: list[str]) -> dict[str, Any]:
        """A gateway for each federation of leaves: its two nodes. The endpoints are those for the leaves."""
        found = []
        for leaf in leaves:
            self.grow([f"up-{leaf}"], connect=roots)
            found += self.grow([f"down-{leaf}"], federation=leaf)["endpoints"]
            self._gateways.append(Gateway(self._nodes[-2], self._nodes[-1], CHANNEL))
        return {"endpoints": found}

    def together(self, others: int) -> dict[str, float]:
        """Wait until each node knows so many others; when that was."""
        for node in self._nodes:
            if not node.until(lambda it=node: len(it.peers) >= others, 3 * WAIT):  # type: ignore[misc]
                raise TimeoutError(f"{node.name}: knows {len(node.peers)} of {others} other nodes")
        return {"end": perf_counter()}

    def hear(self, wheres: list[str | None], first: int = 0) -> dict[str, float]:
        """Each node (from that one on) wants something; returns when that is in force."""
        self._ear = Ear(len(wheres))
        start = perf_counter()
        for at, (node, where) in enumerate(zip(self._nodes[first:], wheres, strict=True)):
            self._sinks.append(node.channel(CHANNEL).subscribe(self._ear.handler(at), where))
        self._settle(CHANNEL)
        return {"start": start, "end": perf_counter()}

    def settled(self) -> None:
        """Gateways have asked for all that is wanted behind them."""
        for gateway in self._gateways:
            if not gateway.ready(WAIT):
                raise TimeoutError(f"{gateway!r}: what is wanted behind it is not in force")

    def deaf(self) -> None:
        self.unsubscribe()
        for node in self._nodes:
            node.ready(WAIT)

    def flood(self, goal: int) -> None:
        self._ear.flood(goal)

    def end(self) -> dict[str, float]:
        return {"end": self._ear.wait()}

    def heard(self) -> dict[str, Any]:
        """What each node has got."""
        return {"got": self._ear.got, "totals": self._ear.total}

    def quiet(self) -> None:
        self._ear.clear()

    # ── publishing ──

    def port(self) -> dict[str, int]:
        """Where the processes of the other nodes say how late an event was."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        return {"port": self._listener.getsockname()[1]}

    def tell(self, port: int, each: int) -> None:
        self._ear.paced(port, each)

    def paced(self, n: int, shares: int, listeners: int, answers: int) -> dict[str, Any]:
        """`n` events, each when all who want it have had the one before: how late the last of them was, each time."""
        assert self._listener is not None
        lines = [self._listener.accept()[0] for _ in range(listeners)]
        self._listener.close()
        late, publish = [], self._sources[CHANNEL].publish
        heard: list[float] = []
        come = threading.Semaphore(0)

        def read(line: socket.socket) -> None:
            while data := line.recv(_LATE.size):
                heard.append(_LATE.unpack(data)[0])
                come.release()

        threads = [Supervised(partial(read, line), "headwater-study-line") for line in lines]
        for thread in threads:
            thread.start()
        before = process_time()
        for number in range(n):
            publish(Sample(float(number % PICKS), float(number % shares), float(number), perf_counter(), *VALUES))
            for _ in range(answers):
                if not come.acquire(timeout=WAIT):
                    raise TimeoutError(f"event {number} has not come to all nodes")
            late.append(max(heard))
            heard.clear()
        used = process_time() - before
        return {"late": late, "cpu": used}

    def publish(self, n: int, shares: int, rows: int = 1) -> dict[str, float]:
        """`n` events as fast as they go, one by one or so many at once, and until they are acknowledged."""
        events: list[Any] = [shared(number, shares) for number in range(n)]
        source = self._sources[CHANNEL]
        publish: Callable[[Any], Any] = source.publish
        if rows > 1:
            columns = [pa.array([getattr(event, name) for event in events]) for name in source.type.schema.names]
            whole = pa.RecordBatch.from_arrays(columns, schema=source.type.schema)
            publish, events = source.publish_many, [whole.slice(at, rows) for at in range(0, n, rows)]
        before, start = process_time(), perf_counter()
        for event in events:
            publish(event)
        sent = perf_counter()
        self.flush()
        return {"start": start, "sent": sent, "cpu": process_time() - before}

    # ── many sources ──

    def sources(self, count: int) -> dict[str, float]:
        """So many sources of the channel at the first node, more than before."""
        start, channel = perf_counter(), self._nodes[0].channel(CHANNEL)
        self._many += [channel.source(f"s{number}") for number in range(len(self._many), count)]
        return {"start": start}

    def knows(self, count: int) -> dict[str, float]:
        """Wait until the first node knows so many sources elsewhere, and what it wants is in force at all of them."""
        node = self._nodes[0]
        if not node.until(lambda: len(node.remote_sources(CHANNEL)) == count, WAIT) or not node.ready(WAIT):
            raise TimeoutError(f"{len(node.remote_sources(CHANNEL))} of {count} sources are known")
        return {"end": perf_counter()}

    def publish_round(self, n: int) -> dict[str, float]:
        """`n` events, of each source in turn, and until they are acknowledged."""
        events = [shared(number, 1) for number in range(n)]
        ways = list(islice(cycle([source.publish for source in self._many]), n))
        before, start = process_time(), perf_counter()
        for publish, event in zip(ways, events, strict=True):
            publish(event)
        sent = perf_counter()
        self.flush()
        return {"start": start, "sent": sent, "cpu": process_time() - before}

    # ── counts ──

    def crossed(self) -> dict[str, Any]:
        """Since the beginning, at all nodes of this process: frames of events and their events that were sent, bytes
        written; datagrams; and messages beside them by kind."""
        found: Counter[str] = Counter()
        said: Counter[str] = Counter()
        to: Counter[str] = Counter()
        links: set[str] = set()
        for node in self._nodes:
            engine = node._engine
            assert engine is not None
            for peer in engine.everyone():
                lanes = list(peer.lanes())
                if lanes or engine.multicast is not None:  # else it is nothing but acknowledgements
                    found["bytes"] += peer.bytes_out
                for lane in lanes:
                    to[f"{node.name}>{peer.name}"] += lane.number
                    found["frames"] += lane.number
                    found["events"] += lane.passed
                said.update(peer.control_in)
                if peer.link is not None:
                    links.add(peer.link.kind)
            if engine.multicast is not None:
                found["datagrams"] += engine.multicast.counters.sent
                found["datagram_bytes"] += engine.multicast.counters.bytes_out
                found["datagrams_in"] += engine.multicast.counters.received
            for kind, each in engine.fabric.counters.items():
                if kind == "post":
                    found["posts"] += each["messages_out"]
                    found["posts_in"] += each["messages_in"]
                    continue
                said[f"zenoh {kind}"] += each["messages_out"]
                found["control_bytes"] += each["bytes_out"]
        found["control"] = sum(said.values())
        return {**found, "said": dict(+said), "to": dict(to), "links": sorted(links)}

    def weight(self) -> dict[str, int]:
        """Memory and threads of this process."""
        return {"memory": memory(), "threads": len(list(Path("/proc/self/task").iterdir()))}

    def close(self) -> None:
        for gateway in self._gateways:
            gateway.close(timeout=0.5)
        super().close()


if __name__ == "__main__":
    serve(Growing())
