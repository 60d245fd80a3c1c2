"""Growth between processes: federations of 1 to 32 nodes, in every arrangement. `small_federations` runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.study.report.html import Text
from headwater.study.report.table import Column, Table, rate, rows, time
from headwater_studies.growth.small_federations import (
    BATCH,
    GATEWAYS,
    PROCESSES,
    RealRun,
    Topology,
    runs_of,
    typical,
)
from headwater_studies.harness.bench import Bench, Found, between, middle, regression, versions
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, content, spread

RECORD = 64  # bytes of an event
SHORT: dict[Topology, str] = {
    "peer to peer": "p2p",
    "multicast": "multicast",
    "centralised": "centralised",
    "tree": "tree",
}
SIZES: dict[Topology, tuple[int, ...]] = {
    "peer to peer": (1, 2, 4, 8, 16, 32),
    "multicast": (1, 2, 4, 8, 16, 32),
    "centralised": (2, 4, 8, 16),
    "tree": (3, 9, 18),
}
QUICK: dict[Topology, tuple[int, ...]] = {"peer to peer": (1, 3), "multicast": (3,), "centralised": (3,), "tree": (3,)}


def nodes(bench: Bench) -> Found:
    """One source's node and 1 to 32 others: peer to peer, by multicast, through a router, and as a tree of gateways."""
    sizes = QUICK if bench.quick else SIZES
    found = [run for topology, counts in sizes.items() for count in counts for run in runs_of(bench, topology, count)]
    return Found(
        (_joined(bench, found), _one_by_one(bench, found), _fast(bench, found)),
        tuple(_ratios(found)),
        versions(),
        costs=_costs(found),
    )


def pick(
    runs: Iterable[RealRun], topology: Topology, *, split: bool = False, paced: bool = True, rows: int = 1
) -> dict[int, list[RealRun]]:
    """The rounds of one kind of run, by the number of nodes."""
    found: dict[int, list[RealRun]] = {}
    for run in runs:
        if (run.topology, run.split, run.paced, run.rows) == (topology, split, paced, rows):
            found.setdefault(run.nodes, []).append(run)
    return found


def _joined(bench: Bench, runs: Sequence[RealRun]) -> Section:
    firsts: dict[tuple[Topology, int], RealRun] = {}
    for run in runs:
        firsts.setdefault((run.topology, run.nodes), run)
    table = Table(
        name="growth-joined",
        title="Coming together",
        columns=(
            Column("arrangement", "text"),
            Column("nodes"),
            Column("know each other", "time"),
            Column("interests in force", "time"),
            Column("messages beside events"),
            Column("bytes of them", "bytes"),
            Column("memory", "bytes", group="of a node, about"),
            Column("threads", "number", group="of a node, about"),
        ),
        rows=rows(
            (
                run.topology,
                run.nodes,
                run.join,
                run.in_force,
                run.control,
                run.control_bytes,
                run.memory,
                run.threads,
            )
            for run in firsts.values()
        ),
        note=(
            "Nodes that receive, beside the source's. Once each, so without a spread: from the first node's start "
            "until each knew all others (in a tree, those of its own federation), and from the first subscription "
            "until all were in force. Messages: all that was said beside events until then, over Zenoh and on streams; "
            f"bytes: of those over Zenoh. Nodes share {PROCESSES} processes: one of few has most of a process's memory "
            "to itself."
        ),
    )
    return Section(
        key="nodes-joined",
        title="From one node to 32",
        contents=content(
            Text(
                "One node publishes events of 64 bytes; the others want all of them, or each one of as many shares. "
                "All run on this machine, the source's node in a process of its own, and what stands between (the "
                f"router, or {GATEWAYS} gateways) in another: with more nodes than cores, times grow by that as well, "
                "while messages and bytes are exact whatever the machine."
            ),
            table,
        ),
        command="headwater study interests --part nodes",
        repetitions="once each",
    )


def _one_by_one(bench: Bench, runs: Sequence[RealRun]) -> Section:
    shown = [run for run in typical(runs) if run.paced]
    table = Table(
        name="growth-paced",
        title="One event at a time",
        columns=(
            Column("arrangement", "text"),
            Column("nodes"),
            Column("want", "text"),
            Column("messages", "number", group="for each event"),
            Column("of them by the source", "number", group="for each event"),
            Column("bytes", "number", group="for each event"),
            Column("through the busiest node", "percent"),
            Column("the source", "time", group="processor time for each event"),
            Column("between", "time", group="processor time for each event"),
            Column("all others", "time", group="processor time for each event"),
            Column("until the last node has it", "time"),
            Column("spread", "text"),
        ),
        rows=rows(
            (
                run.topology,
                run.nodes,
                _wants(run),
                run.messages / run.events,
                run.source_messages / run.events,
                run.bytes / run.events,
                100 * run.busiest,
                run.source_cpu / run.events,
                run.middle_cpu / run.events if run.middle_cpu else None,
                run.nodes_cpu / run.events,
                run.last_latency,
                between(_latencies(runs, run), time),
            )
            for run in shown
        ),
        note=(
            "An event is published when all who want it have had the one before, so that each is a message by itself. "
            "A message that goes on from a router or a gateway is another one. Bytes are those that nodes write for "
            "events, without acknowledgements and headers of TCP and IP; what a router passes on counts again. By "
            "multicast all nodes of the group get each datagram, whoever wants it."
        ),
    )
    series = []
    for topology in SHORT:
        for split in (False, True):
            picked = pick(runs, topology, split=split)
            if not picked:
                continue
            late = [(float(n), [run.last_latency or 0.0 for run in each]) for n, each in picked.items()]
            series.append(spread(f"{topology}, {'a share each' if split else 'everything'}", late, 1e6))
    plot = Plot(
        name="growth-last",
        title="Until the last of n nodes has an event",
        x=Axis("nodes", log=True),
        y=Axis("µs", log=True),
        series=tuple(series),
        below="All nodes on this machine's cores: what they do at the same time elsewhere they do in turn here.",
    )
    return Section(
        key="nodes-paced",
        title="What an event costs in a federation of n nodes",
        contents=content(table, plot),
        command="headwater study interests --part nodes",
        repetitions=_rounds(bench, shown),
    )


def _fast(bench: Bench, runs: Sequence[RealRun]) -> Section:
    shown = [run for run in typical(runs) if not run.paced]
    table = Table(
        name="growth-fast",
        title="As fast as they go",
        columns=(
            Column("arrangement", "text"),
            Column("nodes"),
            Column("want", "text"),
            Column("published", "text"),
            Column("published/s", "rate"),
            Column("arrived/s", "rate"),
            Column("between", "text"),
            Column("events in a message", "number"),
            Column("bytes for an event that arrives", "number"),
            Column("the source's processor time for each", "time"),
        ),
        rows=rows(
            (
                run.topology,
                run.nodes,
                _wants(run),
                "one by one" if run.rows == 1 else f"{run.rows:,} at once",
                run.events / run.seconds,
                run.delivered / run.seconds,
                between([each.delivered / each.seconds for each in _alike(runs, run)], rate),
                run.delivered / run.source_messages,
                run.source_bytes / run.delivered,
                run.source_cpu / run.events,
            )
            for run in shown
        ),
        note=(
            "From the first event until the last node has the last one; every node got exactly what it wants, once. "
            "Events in a message: that arrive at nodes for each message that the source's node sends; bytes: that it "
            "writes for each of them."
        ),
    )
    series = []
    for topology in SHORT:
        for count_rows, name in ((1, "one by one"), (BATCH, f"{BATCH:,} at once")):
            picked = pick(runs, topology, paced=False, rows=count_rows)
            if picked:
                rates = [(float(n), [run.delivered / run.seconds for run in each]) for n, each in picked.items()]
                series.append(spread(f"{topology}, {name}", rates))
    plot = Plot(
        name="growth-rate",
        title="Events that arrive at n nodes per second, all wanting everything",
        x=Axis("nodes", log=True),
        y=Axis("events/s", log=True),
        series=tuple(series),
        below="Sender and receivers share this machine's cores.",
    )
    return Section(
        key="nodes-fast",
        title="How fast one source serves n nodes",
        contents=content(table, plot),
        command="headwater study interests --part nodes",
        repetitions=_rounds(bench, shown),
    )


def _rounds(bench: Bench, runs: Sequence[RealRun]) -> str:
    sizes = [run.events for run in runs]
    return f"{bench.rounds} rounds of {min(sizes):,} to {max(sizes):,} events"


def _wants(run: RealRun) -> str:
    return "everything" if not run.split else f"1/{run.nodes} each"


def _alike(runs: Sequence[RealRun], run: RealRun) -> list[RealRun]:
    return pick(runs, run.topology, split=run.split, paced=run.paced, rows=run.rows)[run.nodes]


def _latencies(runs: Sequence[RealRun], run: RealRun) -> list[float]:
    return [each.last_latency or 0.0 for each in _alike(runs, run)]


def _ratios(runs: Sequence[RealRun]) -> Iterable[Ratio]:
    """Beside linear growth (an event's arrival costs what it does with one node), and beside peer to peer."""
    for count_rows, name in ((1, "one by one"), (BATCH, f"{BATCH:,} at once")):
        peer = pick(runs, "peer to peer", paced=False, rows=count_rows)
        least, most = min(peer), max(peer)
        if least < most:
            yield Ratio(
                case=f"to {most} nodes peer to peer, {name}: arrived/s",
                reference=f"linear growth: as many as at {least}",
                ours=tuple(run.delivered / run.seconds for run in peer[most]),
                theirs=tuple(run.delivered / run.seconds for run in peer[least]),
                kind="per second",
                why="each node has a link of its own, to which events are written; and all nodes share the cores",
            )
        group = pick(runs, "multicast", paced=False, rows=count_rows)
        both = max(set(group) & set(peer))
        yield Ratio(
            case=f"to {both} nodes by multicast, {name}: arrived/s",
            reference="peer to peer",
            ours=tuple(run.delivered / run.seconds for run in group[both]),
            theirs=tuple(run.delivered / run.seconds for run in peer[both]),
            kind="per second",
            why="a datagram is checked, and what is missing asked for, in Python at every node",
        )
    peer, group = pick(runs, "peer to peer"), pick(runs, "multicast")
    both = max(set(group) & set(peer))
    yield Ratio(
        case=f"bytes by the source for an event to {both} nodes, multicast",
        reference="peer to peer",
        ours=tuple(run.source_bytes / run.events for run in group[both]),
        theirs=tuple(run.source_bytes / run.events for run in peer[both]),
        kind="bytes",
        why="a datagram has a longer head, with a proof",
    )


# ── for the model ──


def _costs(runs: Sequence[RealRun]) -> dict[str, float]:
    """What things cost, by themselves and in federations of n nodes."""
    found: dict[str, float] = {"record_bytes": float(RECORD)}
    for topology, short in SHORT.items():
        for split in (False, True):
            suffix = "_split" if split else ""
            for n, each in pick(runs, topology, split=split).items():
                run = typical(each)[0]
                name = f"{{}}_n{n}{suffix}"
                found[f"{short}_" + name.format("messages_per_event")] = run.messages / run.events
                found[f"{short}_" + name.format("source_messages_per_event")] = run.source_messages / run.events
                found[f"{short}_" + name.format("bytes_per_event")] = run.bytes / run.events
                found[f"{short}_" + name.format("busiest")] = run.busiest
                found[f"{short}_" + name.format("source_cpu")] = run.source_cpu / run.events
                found[f"{short}_" + name.format("last_latency")] = run.last_latency or 0.0
            for n, each in pick(runs, topology, split=split, paced=False, rows=BATCH).items():
                run = typical(each)[0]
                found[f"{short}_arrived_per_second_n{n}{suffix}"] = run.delivered / run.seconds
    for run in runs:
        found.setdefault(f"{SHORT[run.topology]}_control_messages_n{run.nodes}", float(run.control))
        found.setdefault(f"{SHORT[run.topology]}_join_n{run.nodes}", run.join)
        found.setdefault(f"{SHORT[run.topology]}_in_force_n{run.nodes}", run.in_force)
    found.update(_units(runs))
    return found


def _units(runs: Sequence[RealRun]) -> dict[str, float]:
    """What one of each costs: from runs of one event at a time, lines through those of all sizes."""
    peer = pick(runs, "peer to peer")
    every = [run for each in peer.values() for run in each]
    message = middle(run.bytes / run.messages for run in every)
    batches = [run for each in pick(runs, "peer to peer", paced=False, rows=BATCH).values() for run in each]
    found = {
        "bytes_per_event": message,
        "frame_overhead_bytes": message - RECORD,
        "bytes_per_event_batched": middle(run.bytes / run.delivered for run in batches),
        "cpu_receive": middle(run.nodes_cpu / run.delivered for run in every),
        "memory_per_node": middle(run.memory for run in peer[max(peer)]),
    }
    for topology, name in (("multicast", "datagram_bytes"), ("centralised", "routed_bytes")):
        picked = [run for each in pick(runs, topology).values() for run in each]  # type: ignore[arg-type]
        if picked:
            found[name] = middle(run.bytes / run.messages for run in picked)
    for topology, name in (("centralised", "cpu_router_message"), ("tree", "cpu_gateway_message")):
        picked = [run for each in pick(runs, topology).values() for run in each]  # type: ignore[arg-type]
        if picked:
            found[name] = middle(run.middle_cpu / (run.messages - run.source_messages) for run in picked)
    if len(peer) > 1:
        cpu = regression([(n, middle(run.source_cpu / run.events for run in each)) for n, each in peer.items()])
        late = regression([(n, middle(run.last_latency or 0.0 for run in each)) for n, each in peer.items()])
        found |= {"cpu_publish": max(0.0, cpu.start), "cpu_per_node_frame": max(0.0, cpu.slope)}
        found |= {"latency_first": max(0.0, late.start + late.slope), "latency_more_node": max(0.0, late.slope)}
    return found
