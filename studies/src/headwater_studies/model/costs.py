"""What the model of larger federations is fed with, and checked by: real ones of a few nodes, in this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.spark.backtest import Subscription
from headwater.store.log import ChannelLog, Log
from headwater.types import EventType, event_type
from headwater_studies.fleet.node import Sample
from headwater_studies.fleet.worker import PICKS, VALUES
from headwater_studies.growth.small_federations import GATEWAYS, RealRun, Topology, real_runs
from headwater_studies.harness.bench import Bench, middle, regression
from headwater_studies.scale import Costs, Recorded, Scenario, grow_each, recorded
from headwater_studies.scale import Topology as Modelled

SAMPLE: EventType = event_type(Sample)
# Sizes that the growth of nodes is measured at too: these runs serve for both.
SIZES: Mapping[Topology, tuple[int, ...]] = {
    "peer to peer": (2, 4, 8, 16),
    "multicast": (2, 4, 8),
    "centralised": (2, 4, 8),
    "tree": (3, 9),
}
QUICK_SIZES: Mapping[Topology, tuple[int, ...]] = {
    "peer to peer": (1, 3),
    "multicast": (3,),
    "centralised": (3,),
    "tree": (3,),
}
LEAST = 1e-8  # seconds: what is too short to be measured costs as much
LOSS = 0.001
# The model's name of a real arrangement.
MODELLED: Mapping[Topology, Modelled] = {
    "peer to peer": "peer to peer",
    "multicast": "multicast",
    "centralised": "router",
    "tree": "tree",
}


def small_runs(bench: Bench) -> list[RealRun]:
    """Real federations in every arrangement."""
    sizes = QUICK_SIZES if bench.quick else SIZES
    return [run for kind in sizes for run in real_runs(bench, topologies=[kind], sizes=sizes[kind])]


# ── costs ──


@dataclass(frozen=True, slots=True)
class Administration:
    """What a peer costs before any event: messages for each pair of nodes, and bytes of memory at each of the two."""

    messages: float
    memory: float


def measured(runs: Sequence[RealRun], known: Mapping[str, float]) -> Costs:
    """The costs of a model: what is `known` by name, else from these runs."""

    def some(topology: Topology, *, paced: bool = False, split: bool = False) -> list[RealRun]:
        kind = (topology, paced, split, 1)
        return [run for run in runs if (run.topology, run.paced, run.split, run.rows) == kind]

    def at_least(value: float) -> float:
        return max(value, LEAST)

    peers, groups = some("peer to peer"), some("multicast")
    tree, through = some("tree", split=True), [*some("centralised"), *some("centralised", split=True)]
    line = regression([(float(run.nodes), run.source_cpu / run.events) for run in peers])
    send = at_least(line.slope)
    late = [run.last_latency for run in some("peer to peer", paced=True, split=True) if run.last_latency is not None]
    found = {
        "publish": at_least(line.start),
        "send": send,
        "receive": at_least(middle(run.nodes_cpu / run.delivered for run in peers)),
        "discard": at_least(middle(run.nodes_cpu / run.delivered for run in groups)),
        "forward": at_least(middle(run.middle_cpu / run.events for run in tree) - send),
        "relay": at_least(middle(run.middle_cpu / run.delivered for run in through)),
        "hop": at_least(middle(late)),
    }
    alone = middle(run.bytes / run.messages for run in some("peer to peer", paced=True))
    several = [run.bytes / run.messages for run in some("multicast", paced=True) if run.nodes > 1]
    chosen: dict[str, Any] = {name: known.get(f"model.{name}", value) for name, value in found.items()}
    frame = max(0, round(alone) - SAMPLE.layout.size)
    return Costs(**chosen, frame=frame, datagram=max(0, round(middle(several) - alone)), loss=LOSS)


def administration(runs: Sequence[RealRun]) -> Administration:
    peers = {r.nodes: r for r in runs if r.topology == "peer to peer"}
    largest = peers[max(peers)]
    pairs = (largest.nodes + 1) * largest.nodes
    line = regression([(float(nodes), run.memory) for nodes, run in peers.items()])
    return Administration(largest.control / pairs, max(line.slope, 0.0))


# ── predicted, and found ──


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A real run of events one at a time, beside what the model says of it."""

    run: RealRun
    messages: float
    bytes: float
    source_messages: float
    latency: float

    @property
    def exact(self) -> bool:
        return self.messages == self.run.messages and self.source_messages == self.run.source_messages


def check(spark: Any, folder: Path, runs: Sequence[RealRun], costs: Costs) -> list[Checked]:
    """Every paced run, from a log of what was published in it."""
    paced = [run for run in runs if run.paced]
    shapes = {(run.nodes, run.split, run.events) for run in paced if run.topology != "tree"}
    known = {shape: _recorded(spark, folder, *shape) for shape in sorted(shapes)}
    scenario = Scenario(name="as run")
    federations = [(each, nodes + 1, scenario) for (nodes, _, _), each in known.items()]
    # Datagrams do not get lost on loopback.
    grown = grow_each(spark, federations, replace(costs, loss=0.0))
    each = len(grown) // len(federations)
    of = {(shape, row.topology): row for at, shape in enumerate(known) for row in grown[at * each : (at + 1) * each]}
    found = []
    for run in paced:
        if run.topology == "tree":
            found.append(_tree(run, costs))
            continue
        row = of[(run.nodes, run.split, run.events), MODELLED[run.topology]]
        assert row.latency is not None
        found.append(
            Checked(
                run=run,
                messages=row.messages,
                bytes=row.bytes,
                source_messages=row.source_messages,
                latency=row.latency,
            )
        )
    return found


def _recorded(spark: Any, folder: Path, nodes: int, split: bool, events: int) -> Recorded:
    log = folder / f"check-{nodes}-{events}"
    channel = "bench.events"
    if not log.exists():
        _write(log, channel, events, nodes)
    names = [f"far{number:02}" for number in range(nodes)]
    wanted = [
        Subscription(name=name, where=f"share = {number}" if split else None, at=name)
        for number, name in enumerate(names)
    ]
    return recorded(spark, log, wanted, channel=channel, nodes=names, seconds=1.0)


def _write(log: Path, channel: str, events: int, shares: int) -> None:
    """What the real source publishes."""
    numbers = range(events)
    columns = [
        [float(number % PICKS) for number in numbers],
        [float(number % shares) for number in numbers],
        [float(number) for number in numbers],
        [0.0] * events,
        *([value] * events for value in VALUES),
    ]
    rows = pa.RecordBatch.from_arrays([pa.array(each, pa.float64()) for each in columns], schema=SAMPLE.schema)
    with ChannelLog.open(Log(log, sync="roll"), channel, "near", SAMPLE) as writer:
        writer.append_rows("bench", range(1, events + 1), pa.array(numbers, pa.int64()), rows)
        writer.roll(wait=True)


def _tree(run: RealRun, costs: Costs) -> Checked:
    """By the model's rule for one event: the source is in the federation of the gateways itself, so it has none to
    pass. A gateway gets it if a node behind it wants it."""
    wanting = 1 if run.split else run.nodes
    gateways = min(GATEWAYS, wanting)
    size = SAMPLE.layout.size + costs.frame
    behind = -(-wanting // gateways)
    return Checked(
        run=run,
        messages=run.events * (gateways + wanting),
        bytes=run.events * (gateways + wanting) * size,
        source_messages=run.events * gateways,
        latency=2 * costs.hop + costs.send * (gateways - 1 + behind - 1),
    )


__all__ = ["Administration", "Checked", "administration", "check", "measured", "small_runs"]
