"""A crowd of our nodes that come, go, advertise, subscribe and tell: what a federation costs besides its events.

Nodes have names here, and may be in different federations: an open one, and a guarded one, where nodes consult rules
about who has which key before they let anybody subscribe.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.channel.source import Source
from headwater.channel.subscription import Subscription
from headwater.federation.address_map import HashedGroups
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.federation.security.settings import Rule, Security
from headwater_studies.fleet.node import WAIT, Nodes, Sample
from headwater_studies.fleet.worker import VALUES, loopback, serve

OTHERS = 9  # rules about somebody else, that are consulted first
_FLAGS, _UP = struct.Struct("16sH22x"), 0x1 | 0x40  # of an interface: up and running
_SET_FLAGS = 0x8914


def guarded(key: str) -> Security:
    """Of eleven rules the tenth lets one node subscribe, by its key ("*": all), and the last lets all advertise."""
    rules = [Rule(f"elsewhere.n{number}.**", f"user:other{number}", may=("subscribe",)) for number in range(OTHERS)]
    rules.append(Rule("crowd.**", key))
    return Security(rules=[*rules, Rule("crowd.**", "*", may=("advertise",))])


class Crowd(Nodes):
    """The nodes of this process by name, with their sources, and what their sinks have got."""

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, Node] = {}
        self.gone: Counter[str] = Counter()  # what nodes had counted that have left
        self.sources: dict[tuple[str, str, str], Source] = {}
        self.taken: dict[str, list[Subscription]] = {}
        self.late: dict[str, list[float]] = {}
        self.calls: Counter[str] = Counter()
        self.news: dict[tuple[str, str, str], float] = {}  # when a node heard what of which source
        self._news = threading.Condition()

    # ── nodes ──

    def private(self) -> None:
        """In a network namespace of its own loopback is down at first."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
            fcntl.ioctl(plug, _SET_FLAGS, _FLAGS.pack(b"lo", _UP))

    def join(
        self, name: str, connect: str | None = None, only: str | None = None, groups: int | None = None
    ) -> dict[str, Any]:
        """A node more; where it can be reached, and its key as rules have it. `only`: in the guarded federation, where
        this one may subscribe. `groups`: the port of multicast."""
        node = Node(
            name,
            network=Network(
                listen=("tcp/127.0.0.1:0",),
                connect=() if connect is None else (connect,),
                federation="crowd" if only is None else "guarded",
                security=Security() if only is None else guarded(only),
                multicast=None if groups is None else HashedGroups(port=groups, base="239.255.99.0"),
            ),
        )
        self.members[name] = node
        self._nodes.append(node)
        return {"endpoint": node.endpoints[0], "key": f"key:{node.id.rpartition('.')[2]}"}

    def together(self, others: int, node: str | None = None) -> None:
        """Each node of this process (or this one) knows so many others."""
        for member in self.members.values() if node is None else (self.members[node],):
            if not member.until(lambda it=member: len(it.peers) >= others, WAIT):  # type: ignore[misc]
                raise TimeoutError(f"{member.name}: {len(member.peers)} of {others} nodes were found")

    def others(self, name: str) -> dict[str, list[str]]:
        """The nodes of this process but for one."""
        return {"names": [each for each in self.members if each != name]}

    def leave(self, name: str) -> None:
        """A node goes, and all others of this process have heard of it."""
        node = self.members.pop(name)
        self._nodes.remove(node)
        node.close()
        self.gone += _counted(node)
        for other in self.members.values():
            if not other.until(lambda it=other: name not in it.peers, WAIT):  # type: ignore[misc]
                raise TimeoutError(f"{other.name}: it has not heard that {name} has gone")

    def all_leave(self) -> None:
        for name in reversed(list(self.members)):
            self.leave(name)
        self.sources.clear()
        self.taken.clear()

    def messages(self) -> dict[str, int]:
        """Control messages and their bytes so far, of all nodes that are or were here: `<kind>_out`, `<kind>_in`,
        `<kind>_bytes` over Zenoh; frames on streams by kind; and all that crossed loopback."""
        total = Counter(self.gone)
        for node in self.members.values():
            total += _counted(node)
        return {**total, "loopback": loopback()}

    # ── sources ──

    def advertise(self, node: str, channel: str, name: str = "s") -> dict[str, float]:
        """When it began and when it returned."""
        found = self.members[node].channel(channel, Sample)
        began = perf_counter()
        self.sources[node, channel, name] = found.source(name)
        return {"began": began, "returned": perf_counter()}

    def withdraw(self, node: str, channel: str, name: str = "s") -> dict[str, float]:
        source = self.sources.pop((node, channel, name))
        began = perf_counter()
        source.close()
        return {"began": began, "returned": perf_counter()}

    def watch(self, node: str) -> None:
        """From now on note when this node hears of other nodes' sources."""

        def heard(event: Any) -> None:
            now = perf_counter()
            with self._news:
                self.news[node, event.source, event.change] = now
                self._news.notify_all()

        self.members[node].channel("headwater.sources").subscribe(heard)

    def heard(self, node: str, name: str, change: str) -> dict[str, float]:
        """When this node heard that a source was "advertised" or "withdrawn"."""
        with self._news:
            if not self._news.wait_for(lambda: (node, name, change) in self.news, WAIT):
                raise TimeoutError(f"{node}: it has not heard that {name} was {change}")
            return {"at": self.news.pop((node, name, change))}

    def knows(self, node: str, channel: str, count: int) -> None:
        """This node has the channel, and knows so many sources of it at other nodes."""
        member = self.members[node]
        member.channel(channel, Sample)
        if not member.until(lambda: len(member.remote_sources(channel)) >= count, WAIT):
            raise TimeoutError(f"{node}: {len(member.remote_sources(channel))} of {count} sources of {channel}")

    # ── subscriptions that come and go ──

    def come_and_go(self, node: str, channel: str, wheres: list[str | None]) -> dict[str, list[float]]:
        """Subscribe and unsubscribe once for each interest: how long until it returned, and until the sources had it.

        Interests are read from their text each time, as a program does that subscribes."""
        member, found = self.members[node], self.members[node].channel(channel, Sample)
        times: dict[str, list[float]] = {"subscribe": [], "in force": [], "unsubscribe": [], "withdrawn": []}
        for where in wheres:
            began = perf_counter()
            subscription = found.subscribe(_ignore, where)
            times["subscribe"].append(perf_counter() - began)
            if not member.ready(WAIT):
                raise TimeoutError(f"{node}: an interest in {channel} is not in force")
            times["in force"].append(perf_counter() - began)
            if subscription.refused:
                raise RuntimeError(f"{node}: refused: {subscription.refused}")
            began = perf_counter()
            subscription.cancel()
            times["unsubscribe"].append(perf_counter() - began)
            self._settled(member)
            times["withdrawn"].append(perf_counter() - began)
        return times

    def _settled(self, member: Node) -> None:
        """What is not wanted any more is withdrawn everywhere."""
        engine = member._engine
        assert engine is not None
        if not member.until(lambda: engine.requester.settled(member.channels(), barriers=True), WAIT):
            raise TimeoutError(f"{member.name}: the other nodes have not answered")

    def take(self, node: str, channel: str, wheres: list[str | None], one_by_one: bool = True) -> None:
        """Subscribe for each interest; in force in the end, or each before the next."""
        member, taken = self.members[node], self.taken.setdefault(node, [])
        found = member.channel(channel, Sample)
        for where in wheres:
            taken.append(found.subscribe(_ignore, where))
            if one_by_one:
                self._settled(member)
        self._settled(member)

    def drop(self, node: str, one_by_one: bool = True) -> None:
        """Cancel all that was taken, the last one first."""
        for subscription in reversed(self.taken.pop(node, [])):
            subscription.cancel()
            if one_by_one:
                self._settled(self.members[node])
        self._settled(self.members[node])

    # ── notification ──

    def listen(self, node: str, channel: str, wheres: list[str | None]) -> None:
        """A sink for each interest, that notes how late each event is."""
        member = self.members[node]
        late = self.late.setdefault(channel, [])

        def handler(event: Sample) -> None:
            late.append(perf_counter() - event.sent)
            self.calls[channel] += 1

        found = member.channel(channel, Sample)
        for where in wheres:
            self.taken.setdefault(node, []).append(found.subscribe(handler, where))
        if not member.ready(WAIT):
            raise TimeoutError(f"{node}: its interests in {channel} are not in force")

    def tell(self, node: str, channel: str, n: int, at_once: bool = False) -> dict[str, Any]:
        """Publish `n` events, each when all that want it have the one before (or all as one batch): event frames that
        went to other nodes for them, bytes of these and of what is said beside them, and multicast datagrams."""
        member, source = self.members[node], self.sources[node, channel, "s"]
        engine = member._engine
        assert engine is not None
        before = _sent(member)
        if at_once:
            columns = [np.full(n, value) for value in (7.0, 0.0, 0.0, perf_counter(), *VALUES)]
            arrays = [pa.array(each) for each in columns]
            source.publish_many(pa.RecordBatch.from_arrays(arrays, schema=source.type.schema))
        for number in () if at_once else range(n):
            source.publish(Sample(7.0, float(number % 12), float(number), perf_counter(), *VALUES))
            if not member.flush(WAIT):
                raise TimeoutError(f"{node}: an event on {channel} was not acknowledged")
        if not member.flush(WAIT):
            raise TimeoutError(f"{node}: what was published on {channel} was not acknowledged")
        after = _sent(member)
        return {name: after[name] - before[name] for name in after}

    def came(self, channel: str) -> dict[str, Any]:
        """How late events were at the sinks of this process, and how often they were called, since the last time."""
        late, calls = list(self.late.get(channel, [])), self.calls.pop(channel, 0)
        self.late.get(channel, []).clear()
        return {"late": late, "calls": calls}

    def close(self) -> None:
        for node in self._nodes:
            with suppress(Exception):
                node.close(drain=False, timeout=1.0)


def _counted(node: Node) -> Counter[str]:
    total: Counter[str] = Counter()
    assert node._engine is not None
    for kind, each in node._engine.fabric.counters.items():
        total[f"{kind}_out"] += each["messages_out"]
        total[f"{kind}_in"] += each["messages_in"]
        total[f"{kind}_bytes"] += each["bytes_out"]
        total[f"{kind}_bytes_in"] += each["bytes_in"]
    for peer in node._engine.everyone():
        total.update({f"stream_{kind}": count for kind, count in peer.control_in.items()})
    return total


def _sent(node: Node) -> dict[str, int]:
    assert node._engine is not None
    report = node.federation_report()
    multicast = node._engine.multicast
    return {
        "frames": sum(lane.frames for peer in report.peers for lane in peer.lanes),
        "stream_bytes": sum(peer.bytes_out for peer in report.peers),
        "datagrams": 0 if multicast is None else multicast.counters.sent,
        "datagram_bytes": 0 if multicast is None else multicast.counters.bytes_out,
    }


def _ignore(event: Any) -> None:
    """For what is only subscribed to."""


if __name__ == "__main__":
    serve(Crowd())
