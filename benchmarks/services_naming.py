"""Names: what a lookup takes beside a control message, and what a node keeps and says as its federations grow.

    python benchmarks/services.py [--quick] lookup growth

`lookup`: a name of another federation, from the cache of the server that a node asks, and by one delegation: the server
asks the one that the name was delegated to. Beside each, one question and its answer between the same two nodes.

`growth`: two domains in two federations, 10, 20 and 50 nodes in all, each a process of its own. Each advertises one
name and subscribes to five, three of its own domain and two of the other. Counted is what each node knows of others
(nodes, sources, zones, answers) and what it has sent and heard over Zenoh until all that all want is in force. Of ten
nodes some use the same others, of more none do: a line through the last two says what 200 nodes would.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

from headwater import Network, Node
from headwater.federation.security.identity import Identity
from headwater.federation.wire.requests import Latest
from headwater.names import Names, NodeAddress
from headwater_studies.harness.benchmark import Report

GUARD = 300.0  # seconds, against hanging
SIZES, QUICK_SIZES = (10, 20, 50), (4, 8)
PROJECTED = 200
WAVE = 4  # nodes that begin at a time
NEAR, FAR = 3, 2  # names of its own domain that a node uses, and of the other
FEDERATIONS = ("tcd", "ucc")


def _hub(name: str, federation: str) -> Node:
    return Node(
        name, network=Network(listen="tcp/127.0.0.1:0", router=True, acquaintance="named", federation=federation)
    )


def _node(name: str, address: NodeAddress) -> Node:
    network = Network(
        connect=address.endpoints, client=True, direct="tcp/127.0.0.1:0", acquaintance="named",
        federation=address.federation,
    )  # fmt: skip
    return Node(name, network=network)


def _address(node: Node) -> NodeAddress:
    return NodeAddress(node.id, node.federation_report().federation, tuple(node.endpoints))


@dataclass(frozen=True)
class Served:
    """Where the root and the two domains are served, and the root's key."""

    anchor: str
    servers: tuple[NodeAddress, ...]

    def settings(self, domain: int) -> dict[str, Any]:
        return {"anchors": {".": self.anchor}, "servers": [self.servers[domain]]}


@contextmanager
def _served() -> Iterator[Served]:
    """The root, ie.tcd and ie.ucc, each at a router of its own federation, in this process."""
    owners = [Identity.ephemeral("owner") for _ in range(3)]
    with ExitStack() as stack:
        root = stack.enter_context(_hub("root", "core"))
        hubs = [stack.enter_context(_hub(f"hub-{name}", name)) for name in FEDERATIONS]
        parts = {
            f"ie.{name}": {"owner": owner.fingerprint, "servers": [_address(hub)]}
            for name, owner, hub in zip(FEDERATIONS, owners[1:], hubs, strict=True)
        }
        Names(root, {"serve": [{"domain": ".", "key": owners[0], "delegations": parts}]})
        anchors = {".": {"owner": owners[0].fingerprint, "servers": [_address(root)]}}
        for name, owner, hub in zip(FEDERATIONS, owners[1:], hubs, strict=True):
            served = {
                "domain": f"ie.{name}",
                "key": owner,
                "parent": [_address(root)],
                "advertise": [{"names": f"ie.{name}.**", "who": "*"}],
                "lease": 3600.0,  # so that what is counted does not depend on how long the others take
            }
            Names(hub, {"anchors": anchors, "serve": [served]})
        yield Served(owners[0].fingerprint, tuple(map(_address, hubs)))


def lookup(report: Report, quick: bool) -> None:
    """Both kinds and the control message take turns."""
    rounds = 20 if quick else 400
    name = "ie.ucc.door"
    with _served() as served, ExitStack() as stack:
        desk = stack.enter_context(_node("desk", served.servers[0]))
        porter = stack.enter_context(_node("porter", served.servers[1]))
        names, having = Names(desk, served.settings(0)), Names(porter, served.settings(1))
        porter.channel(name, "n: i64").source()
        having.advertise(name)
        assert len(names.lookup(name).sources) == 1
        engine = desk._engine
        assert engine is not None
        peer = engine.peers[served.servers[0].node]

        def control() -> None:
            engine.dialogue.ask(peer, Latest())

        def cached() -> None:
            names.lookups.cache.forget(name)
            assert names.lookup(name).cached

        def delegated() -> None:
            assert not names.lookup(name, fresh=True).cached

        def here() -> None:
            names.lookup(name)

        taken: dict[Any, list[float]] = {each: [] for each in (control, cached, delegated, here)}
        for _ in range(rounds):
            for each, times in taken.items():
                start = perf_counter()
                each()
                times.append(perf_counter() - start)
    once, known, asked, own = (statistics.median(times) for times in taken.values())
    report.add(
        "lookup, from the server's cache, beside a control message", known, once, reach="at most 1.5×",
        ok=known <= 1.5 * once,
    )  # fmt: skip
    report.add(
        "lookup, by one delegation, beside a control message", asked, once, reach="at most 3×", ok=asked <= 3 * once
    )
    report.add("lookup, from the node's own cache", own, once, reach="", ok=None)


# ── growth ──


def _names_of(number: int, each: int) -> list[str]:
    """What the node of a number uses: of those after it in its own domain, and in the other."""
    domain, place = number % 2, number // 2
    near = [f"ie.{FEDERATIONS[domain]}.n{(place + step) % each}" for step in range(1, NEAR + 1)]
    return near + [f"ie.{FEDERATIONS[1 - domain]}.n{(place + step) % each}" for step in range(FAR)]


def _run(pipe: Any) -> None:
    """One node, in a process of its own: it is told what to do, and says what it has found."""
    number, each, served = pipe.recv()
    domain, place = number % 2, number // 2
    own = f"ie.{FEDERATIONS[domain]}.n{place}"
    with _node(f"n{number}", served.servers[domain]) as node:
        names = Names(node, served.settings(domain))
        source = node.channel(own, "n: i64").source()
        names.advertise(own)
        pipe.send("advertised")
        pipe.recv()
        start, got = perf_counter(), [0]

        def count(event: Any) -> None:
            got[0] += 1

        used = _names_of(number, each)
        subscriptions = [names.subscribe(name, count) for name in used]
        ready = all(subscription.ready(GUARD) for subscription in subscriptions)
        took = perf_counter() - start
        pipe.send(ready)
        pipe.recv()
        source.publish(n=number)
        end = monotonic() + GUARD
        while got[0] < len(used) and monotonic() < end:
            node.until(lambda: got[0] >= len(used), 0.2)
        pipe.send({"got": got[0], "seconds": took, **_state(node, names)})
        pipe.recv()


def _state(node: Node, names: Names) -> dict[str, int]:
    """What a node knows of others, and what it has sent and heard over Zenoh."""
    engines = [each._engine for each in (node, *names.reach.legs.values()) if each._engine is not None]
    report = names.report()
    peers = [peer for engine in engines for peer in engine.everyone()]
    counters = [kind for engine in engines for kind in engine.fabric.counters.values()]
    return {
        "nodes": len(peers),
        "known": len(peers) + sum(len(peer.sources) for peer in peers) + report["zones"] + report["answers"],
        "bytes": sum(kind["bytes_in"] + kind["bytes_out"] for kind in counters),
        "messages": sum(kind["messages_in"] + kind["messages_out"] for kind in counters),
    }


def _grown(size: int) -> dict[str, float]:
    """So many nodes: the mean of each figure, of all of them."""
    context = multiprocessing.get_context("forkserver")  # forked from a process that has never had a node
    context.set_forkserver_preload([__name__])
    pipes, processes = [], []
    for _ in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(theirs,), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)

    def say(some: list[Any], what: list[Any]) -> list[Any]:
        """Tell each something, and hear what it answers."""
        for pipe, each in zip(some, what, strict=True):
            pipe.send(each)
        found = []
        for pipe in some:
            assert pipe.poll(GUARD), "expected a node's answer, found none"
            found.append(pipe.recv())
        return found

    def waves(what: list[Any]) -> list[Any]:
        """A few at a time: what they say is counted, and not how a machine of two cores copes with all at once."""
        parts = [slice(start, start + WAVE) for start in range(0, size, WAVE)]
        return [answer for part in parts for answer in say(pipes[part], what[part])]

    try:
        with _served() as served:
            each = size // 2
            waves([(number, each, served) for number in range(size)])
            assert all(waves(["subscribe"] * size)), "expected that all is in force, found that it is not"
            found = say(pipes, ["publish"] * size)
            wanted = len(_names_of(0, each))
            assert all(one["got"] >= wanted for one in found), f"expected all events, found {found}"
            for pipe in pipes:
                pipe.send("end")
    finally:
        for process in processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
    return {what: statistics.mean(one[what] for one in found) for what in found[0]}


def growth(report: Report, quick: bool) -> None:
    """Each size by itself; the first one is what the others are compared with."""
    sizes = QUICK_SIZES if quick else SIZES
    found = {size: _grown(size) for size in sizes}
    first, last = sizes[0], sizes[-1]
    for what, title, unit in (
        ("known", "what a node knows of others", "entries"),
        ("bytes", "what a node says and hears until all is in force", "B"),
    ):
        line = statistics.linear_regression(sizes[-2:], [found[size][what] for size in sizes[-2:]])
        for size in sizes[1:]:
            ratio = found[size][what] / found[first][what]
            wanted = size == last
            report.add(
                f"{title}, {first} → {size} nodes", found[size][what], found[first][what], unit=unit,
                reach="at most 2×" if wanted else "", ok=ratio <= 2 if wanted else None,
            )  # fmt: skip
        projected = line.slope * PROJECTED + line.intercept
        report.add(
            f"{title}, {first} → {PROJECTED} nodes, by a line through the last two",
            projected,
            found[first][what],
            unit=unit,
            reach="at most 2×",
            ok=projected <= 2 * found[first][what],
        )
    for size in sizes:
        report.add(
            f"until all is in force, {size} nodes", found[size]["seconds"], None, reach="", ok=None,
            note=f"{found[size]['nodes']:.1f} other nodes known, {found[size]['messages']:.0f} messages",
        )  # fmt: skip


__all__ = ["growth", "lookup"]
