"""Real federations of a few nodes, in every arrangement, with exact counts: what a model of larger ones is checked by.

One node publishes, `nodes` others want all of it or one of as many shares each. Events are 64 bytes. The source's node
is a process of its own, and so is what stands between (a router, gateways); the others share up to four processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

from headwater_studies.fleet.receiving import free_port
from headwater_studies.fleet.worker import Gone, Worker
from headwater_studies.harness.bench import Bench, Start, middle
from headwater_studies.harness.pair import Lossy, end

Topology = Literal["peer to peer", "multicast", "centralised", "tree"]
TOPOLOGIES: tuple[Topology, ...] = ("peer to peer", "multicast", "centralised", "tree")
GATEWAYS = 3
PROCESSES = 4  # of the nodes that receive
DELIVERIES, ROWS = 12_000, 48_000  # events that arrive at nodes in a run as fast as they go, one by one or in batches
BATCH = 1_000  # rows that are published at once
MODULE = "headwater_studies.fleet.growing"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """Of one run. A message is one frame of events, or one datagram, on its way from one node to another (or to a
    group): where it goes on from a router or a gateway that is another message.

    paced          each event was published when all who want it had the one before, so that no two share a message;
                   else all were published as fast as they go, one by one or (`rows`) so many at once
    nodes          that receive; beside them there are the source's, and a router or GATEWAYS gateways
    wanted         share of the events that each of them wants: all, or (`split`) one of as many shares
    delivered      events that arrived at nodes, each exactly once
    messages       of events, all of them; `source_messages` by the source's node
    bytes          written for them, acknowledgements and the like not counted; `source_bytes` by the source's node
    busiest        share of the messages that the busiest node sends or receives: 1 if all go through it
    control        messages beside events, from the first node's start until all interests are in force
    source_cpu, middle_cpu, nodes_cpu   processor time in seconds for all events: of the source's node, of a router or
                   gateways, of all nodes that receive
    seconds        from the first event until the last has arrived
    last_latency   from publishing an event until the last node has it, median; None if not paced
    join, in_force   seconds until all nodes knew each other, and until all interests were in force
    """

    topology: Topology
    nodes: int
    events: int
    wanted: float
    split: bool
    paced: bool
    rows: int  # published at once; 1: one by one
    delivered: int
    messages: int
    source_messages: int
    bytes: int
    source_bytes: int
    busiest: float
    control: int
    control_bytes: int
    source_cpu: float
    middle_cpu: float
    nodes_cpu: float
    seconds: float
    last_latency: float | None
    latencies: tuple[float, ...] = ()  # of all events of a paced run
    join: float = 0.0
    in_force: float = 0.0
    memory: float = 0.0  # bytes of a node that receives, about: what its process grew by for each
    threads: float = 0.0

    @property
    def per_event(self) -> float:
        """Messages for each event published."""
        return self.messages / self.events


def _handled(frames: Counter[str]) -> Counter[str]:
    """Frames that each node sends or gets; the two nodes of a gateway are one."""
    found: Counter[str] = Counter()
    for way, count in frames.items():
        for name in way.split(">"):
            found[name.removeprefix("up-").removeprefix("down-")] += count
    return found


class Federation:
    """Real nodes in one arrangement. `close` ends their processes."""

    def __init__(self, bench: Bench, topology: Topology, nodes: int) -> None:
        self.topology, self.nodes = topology, nodes
        self._workers: list[Worker] = []
        self.middle: Worker | None = None
        self._bench = bench
        self.near = self._start()
        processes = min(2 if bench.quick else PROCESSES, nodes)
        self.groups = [len(range(at, nodes, processes)) for at in range(processes)]
        self.fars = [self._start() for _ in self.groups]
        weights = [far.call("weight") for far in self.fars]
        try:
            self.join = self._joined()
        except BaseException:
            self.close()
            raise
        grown = [after - before["memory"] for before, after in zip(weights, self._weigh("memory"), strict=True)]
        more = [after - before["threads"] for before, after in zip(weights, self._weigh("threads"), strict=True)]
        self.memory, self.threads = sum(grown) / nodes, sum(more) / nodes
        self.in_force = 0.0

    def _start(self) -> Worker:
        worker = self._bench.start(MODULE)
        self._workers.append(worker)
        return worker

    def _weigh(self, what: str) -> list[int]:
        return [far.call("weight")[what] for far in self.fars]

    def _names(self, process: int) -> list[str]:
        return [f"far{process}x{number}" for number in range(self.groups[process])]

    def _joined(self) -> float:
        """Open all nodes; seconds until each knew all that it can know."""
        for worker in self._workers:
            worker.call("cpu")  # it is there
        match self.topology:
            case "tree":
                return self._joined_tree()
            case "centralised":
                self.middle = self._start()
                router = self.middle.call("grow", names=["router"], router=True, direct=[])
                way: dict[str, Any] = {"connect": router["endpoints"][0], "client": True, "direct": [], "listen": None}
                start = self.near.call("grow", names=["near"], **way)["start"]
            case "multicast":
                way = {"port": free_port()}
                near = self.near.call("grow", names=["near"], **way)
                way["connect"], start = near["endpoints"][0], near["start"]
            case _:
                near = self.near.call("grow", names=["near"])
                way, start = {"connect": near["endpoints"][0]}, near["start"]
        self.near.call("source", channel="bench.events")
        for process, far in enumerate(self.fars):
            far.ask("grow", names=self._names(process), **way)
        for far in self.fars:
            far.answer()
        others = self.nodes + (1 if self.topology == "centralised" else 0)
        return self._together([self.near, *self.fars], others) - float(start)

    def _joined_tree(self) -> float:
        self.middle = self._start()
        near = self.near.call("grow", names=["near"])
        self.near.call("source", channel="bench.events")
        self.leaves = min(GATEWAYS, self.nodes)
        leaves = [f"leaf{number}" for number in range(self.leaves)]
        gates = self.middle.call("gates", roots=near["endpoints"][0], leaves=leaves)["endpoints"]
        at = 0
        for process, far in enumerate(self.fars):
            for leaf in range(self.leaves):
                mine = self._names(process)[(leaf - at) % self.leaves :: self.leaves]
                far.ask("grow", names=mine, connect=gates[leaf], federation=leaves[leaf])
            at += self.groups[process]
        for far in self.fars * self.leaves:
            far.answer()
        end = self._together([self.near], self.leaves)
        return max(end, self._together(self.fars, self.nodes // self.leaves)) - float(near["start"])

    def _together(self, workers: Iterable[Worker], others: int) -> float:
        asked = list(workers)
        for worker in asked:
            worker.ask("together", others=others)
        return float(max(worker.answer()["end"] for worker in asked))

    # ── who wants what ──

    def want(self, split: bool) -> None:
        """Every node wants everything, or (split) one of as many shares as there are nodes; until that is in force."""
        for far in self.fars:
            far.call("deaf")
        at, shares = 0, [f"share == {number}" if split else None for number in range(self.nodes)]
        for far, count in zip(self.fars, self.groups, strict=True):
            far.ask("hear", wheres=shares[at : at + count])
            at += count
        found = [far.answer() for far in self.fars]
        if self.topology == "tree":
            assert self.middle is not None
            self.middle.call("settled")
        self.in_force = float(max(each["end"] for each in found)) - float(min(each["start"] for each in found))
        self.split = split

    # ── runs ──

    def paced(self, events: int) -> RealRun:
        """Events one at a time."""
        port = self.near.call("port")["port"]
        for far, count in zip(self.fars, self.groups, strict=True):
            far.call("tell", port=port, each=1 if self.split else count)
        before, used = self._crossed(), self._cpu()
        listeners = len(self.fars)
        found = self.near.call(
            "paced",
            n=events,
            shares=self.nodes if self.split else 1,
            listeners=listeners,
            answers=1 if self.split else listeners,
        )
        self.near.call("flush")
        return self._run(events, before, used, found["late"], found["cpu"], sum(found["late"]))

    def fast(self, events: int, rows: int = 1) -> RealRun:
        """Events as fast as they go, one by one or so many at once."""
        each = events // self.nodes if self.split else events
        for far in self.fars:
            far.call("flood", goal=each)
        before, used = self._crossed(), self._cpu()
        for far in self.fars:
            far.ask("end")
        found = self.near.call("publish", n=events, shares=self.nodes if self.split else 1, rows=rows)
        end = max(far.answer()["end"] for far in self.fars)
        return self._run(events, before, used, [], found["cpu"], end - found["start"], rows)

    def _cpu(self) -> list[float]:
        """Of the middle, and of the nodes that receive."""
        middle = 0.0 if self.middle is None else float(self.middle.call("cpu")["cpu"])
        return [middle, sum(far.call("cpu")["cpu"] for far in self.fars)]

    def _crossed(self) -> dict[str, Counter[str]]:
        """What each process has sent so far; and under "to" frames by who sent them to whom."""
        said = {"near": [self.near], "middle": [] if self.middle is None else [self.middle], "fars": self.fars}
        found: dict[str, Counter[str]] = {"to": Counter()}
        for who, workers in said.items():
            found[who] = Counter()
            for each in [worker.call("crossed") for worker in workers]:
                found[who].update({key: value for key, value in each.items() if isinstance(value, int)})
                found["to"].update(each["to"])
                if who == "near":
                    self._links = each["links"]
        return found

    def _run(
        self,
        events: int,
        before: dict[str, Counter[str]],
        used: list[float],
        late: list[float],
        cpu: float,
        took: float,
        rows: int = 1,
    ) -> RealRun:
        cpus = [now - then for now, then in zip(self._cpu(), used, strict=True)]
        now = self._crossed()
        crossed = {who: now[who] - before[who] for who in now}
        wanted = 1 / self.nodes if self.split else 1.0
        delivered = self._delivered(events)
        messages, data, own, own_bytes, busiest = self._messages(crossed)
        return RealRun(
            topology=self.topology,
            nodes=self.nodes,
            events=events,
            wanted=wanted,
            split=self.split,
            paced=bool(late),
            rows=rows,
            delivered=delivered,
            messages=messages,
            source_messages=own,
            bytes=data,
            source_bytes=own_bytes,
            busiest=busiest,
            control=sum(each["control"] for each in now.values()),
            control_bytes=sum(each["control_bytes"] for each in now.values()),
            source_cpu=cpu,
            middle_cpu=cpus[0],
            nodes_cpu=cpus[1],
            seconds=took,
            last_latency=middle(late) if late else None,
            latencies=tuple(late),
            join=self.join,
            in_force=self.in_force,
            memory=self.memory,
            threads=self.threads,
        )

    def _delivered(self, events: int) -> int:
        """How many events came to nodes; that each got exactly its own is checked."""
        got, totals = [], []
        for far in self.fars:
            found = far.call("heard")
            got += found["got"]
            totals += found["totals"]
        each, shares = (events // self.nodes, self.nodes) if self.split else (events, 1)
        for node, (count, total) in enumerate(zip(got, totals, strict=True)):
            expected = float(sum(range(node if self.split else 0, events, shares)))
            if count != each or total != expected:
                raise Lossy(f"{self.topology}, {self.nodes} nodes: node {node} got {count:,} of {each:,} events")
        return sum(got)

    def _messages(self, crossed: dict[str, Counter[str]]) -> tuple[int, int, int, int, float]:
        """All messages of events, their bytes, those of the source's node, and the busiest node's share."""
        near, between = crossed["near"], crossed["middle"]
        match self.topology:
            case "multicast":
                own, data = near["datagrams"] + near["frames"], near["datagram_bytes"] + near["bytes"]
                return own, data, own, data, 1.0
            case "centralised":  # Zenoh's router passes on each post as it is
                if self._links != ["zenoh"]:
                    raise Gone(f"expected Zenoh's path through the router, found {self._links}")
                return 2 * near["frames"], 2 * near["bytes"], near["frames"], near["bytes"], 1.0
            case "tree":
                total = near["frames"] + between["frames"]
                busiest = max(_handled(crossed["to"]).values()) / total
                return total, near["bytes"] + between["bytes"], near["frames"], near["bytes"], busiest
        return near["frames"], near["bytes"], near["frames"], near["bytes"], 1.0

    def close(self) -> None:
        end(self._workers)


Runs = tuple[RealRun, ...]
_KNOWN: WeakKeyDictionary[Start, dict[tuple[object, ...], Runs]] = WeakKeyDictionary()  # by what starts processes


def runs_of(bench: Bench, topology: Topology, nodes: int, events: int = 0) -> Runs:
    """Every round's runs of one arrangement: with everything wanted and with a share each, paced (about so many events,
    if that is said), fast and in batches. Two parts of a study need them: the second gets those of the first."""
    known = _KNOWN.setdefault(bench.start, {})
    key = (topology, nodes, bench.quick, bench.rounds)
    if key not in known:
        known[key] = _runs_of(bench, topology, nodes, events)
    return known[key]


def _runs_of(bench: Bench, topology: Topology, nodes: int, events: int) -> Runs:
    found: list[RealRun] = []
    federation = Federation(bench, topology, nodes)
    n = _whole(events or bench.size(240, 24), nodes)
    try:
        for split in (False, True):
            federation.want(split)
            federation.paced(_whole(24, nodes))  # to warm up
            each = _whole(n if split else n // 4, nodes)
            copies = 1 if split else nodes
            many, rows = bench.size(DELIVERIES, 600) // copies, bench.size(ROWS, 2_000) // copies
            federation.fast(each)
            federation.fast(each, rows=BATCH)
            for _ in range(bench.rounds):
                found.append(federation.paced(each))
                found.append(federation.fast(_whole(many, nodes)))
                found.append(federation.fast(_whole(rows, nodes), rows=BATCH))
    finally:
        federation.close()
    bench.say(f"{topology}, {nodes} nodes")
    return tuple(found)


def _whole(events: int, nodes: int) -> int:
    """About as many, of which every node's share is as large."""
    return max(1, events // nodes) * nodes


def typical(runs: Iterable[RealRun]) -> list[RealRun]:
    """Of the rounds of each kind of run, the one whose time is in the middle."""
    kinds: dict[tuple[object, ...], list[RealRun]] = {}
    for run in runs:
        kinds.setdefault((run.topology, run.nodes, run.wanted, run.split, run.paced, run.rows), []).append(run)
    return [sorted(each, key=lambda run: run.seconds)[len(each) // 2] for each in kinds.values()]


def real_runs(
    bench: Bench,
    *,
    topologies: Iterable[Topology] = TOPOLOGIES,
    sizes: Iterable[int] | None = None,
    events: int = 0,
) -> list[RealRun]:
    """A typical run of each kind (everything or a share wanted; paced, fast, in batches), of every arrangement at every
    size."""
    counts = list(sizes) if sizes is not None else [1, 3] if bench.quick else [2, 4, 8, 16]
    return typical(
        run for topology in topologies for count in counts for run in runs_of(bench, topology, count, events)
    )
