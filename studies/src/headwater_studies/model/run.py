"""The model of larger federations: run, checked against real ones, and shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater.spark.backtest import Subscription, load
from headwater.spark.session import session
from headwater.study.badges.day import CHANNEL
from headwater.study.badges.run import record
from headwater.study.badges.subscribers import subscribers
from headwater.study.report.html import Heading, Notes, Text
from headwater.study.report.table import Column, Row, Table, Value, rows, time
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.bench import versions as versions_of
from headwater_studies.harness.result import Axis, Plot, Section, Series, content
from headwater_studies.model.costs import (
    LEAST,
    Administration,
    Checked,
    administration,
    check,
    measured,
    small_runs,
)
from headwater_studies.scale import ASSUMPTIONS, TOPOLOGIES, Costs, Grown, Recorded, Scenario, Topology, grow, recorded
from headwater_studies.scale.projection import FANOUT

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (10, 1_000_000)
OWN, FEW, SOME, ALL = "own site", "few", "one in 1000 everywhere", "all everywhere"
SCENARIOS: Mapping[Scenario, str] = {
    Scenario(name=FEW, kept=10): "every tenth subscription is there, for its own site: much of what is published "
    "nobody wants",
    Scenario(name=OWN): "all subscriptions, each for its own site",
    Scenario(name=SOME, everywhere=1000): "and every 1000th of all subscriptions is for all sites",
    Scenario(name=ALL, everywhere=1): "all subscriptions are for all sites: the more nodes, the more want an event",
}
SHOWN: tuple[Topology, ...] = ("peer to peer", "centralised", "tree", "multicast by site")
LINK = 125e6  # bytes a second each way: 1 Gbit/s
RATE = 1.0  # events a second of each node
MEMORY = 16 * 2**30  # bytes that a node may have for what it knows of others
DESCRIPTORS = 1 << 20  # that Linux lets a process open at most, unless told otherwise
EACH = 2  # connections to a peer: Zenoh's, and the stream of events
_COMMAND = "headwater study interests --part model"


def modelled(bench: Bench, *, log: Path | None = None, subscriptions: Path | None = None) -> Found:
    """See `headwater_studies.model.part.model`."""
    started = perf_counter()
    spark = session("headwater study", bench.master)
    ready = perf_counter() - started
    runs = small_runs(bench)
    costs = measured(runs, bench.costs)
    bench.say("the recorded log, on Spark")
    began = perf_counter()
    known = _recorded(spark, bench, log, subscriptions)
    passed = perf_counter() - began
    began = perf_counter()
    sizes = QUICK_SIZES if bench.quick else SIZES
    grown = grow(spark, known, sizes, SCENARIOS, costs)
    took = perf_counter() - began
    bench.say(f"federations of up to {max(sizes):,} nodes, in {took:.1f} s on Spark")
    checked = check(spark, bench.folder, runs, costs)
    admin = administration(runs)
    seconds = {"Spark's start": ready, "the pass over the log": passed, "the federations": took}
    model = Section(
        key="model",
        title="Larger federations: a model",
        contents=content(
            *_about(known, seconds, bench.master),
            *(block for scenario in SCENARIOS for block in _scenario(scenario, grown)),
            Heading("Where it stops"),
            _limits(grown),
            Text(
                "This is of events only; what it takes to know each other is below. Where everybody wants what is "
                "near, the load of a node does not grow with the federation among peers, in a tree and with a group "
                "for each site; that of a centre, a router and a single group does, since everything passes them. "
                "Where somebody wants everything, nothing helps the node that does: it gets all events of the "
                "federation. A tree takes the sending from the sources and gives it to its gateways; those at the top "
                "pass whatever is wanted far away. The model has one gateway for each group; several side by side "
                "would share that."
            ),
            *_plots(grown),
            Heading("Before the first event"),
            Text(
                "Nodes that are peers know each other, and tell each other what they publish and want. In a tree a "
                "node knows those of its own federation only."
            ),
            _before(sizes, len(known.nodes), admin),
            Heading("Every arrangement"),
            _all(grown),
        ),
        command=_COMMAND,
        repetitions="computed; the same for the same log and costs",
    )
    small = Section(
        key="model-check",
        title="Larger federations: the model beside real ones",
        contents=content(
            Text(
                "Real nodes of this run published events one at a time; the model computed from a log of the same "
                f"events, by the same job, what that takes. Messages must be equal: they are in "
                f"{sum(each.exact for each in checked)} of {len(checked)} runs. Bytes differ by what the model leaves "
                "out, which the difference shows."
            ),
            _checked(checked),
            Text(
                "A router is Zenoh's, and what it adds to a frame is not in the model. Measured latency is of one "
                "machine whose processors all nodes share: with more nodes than processors what the nodes do at the "
                "same time in the model, they do one after another here."
            ),
            _costs(costs),
            Heading("Assumptions"),
            Notes(ASSUMPTIONS),
        ),
        command=_COMMAND,
        repetitions=f"{len(checked)} runs of {min(each.run.events for each in checked):,} to "
        f"{max(each.run.events for each in checked):,} events, one at a time; median latency",
    )
    names = ("publish", "send", "receive", "discard", "forward", "relay", "hop")
    return Found(
        sections=(model, small),
        versions=versions_of("pyspark"),
        costs={f"model.{name}": getattr(costs, name) for name in names},
    )


def _recorded(spark: Any, bench: Bench, log: Path | None, subscriptions: Path | None) -> Recorded:
    if log is not None and subscriptions is not None:
        return recorded(spark, log, load(subscriptions))
    folder = bench.folder / "badges"
    record(folder)
    some = subscribers()[:: bench.size(1, 6)]
    wanted = [Subscription(name=each.name, where=each.interest()) for each in some]
    return recorded(spark, folder, wanted, channel=CHANNEL)


# ── text and tables ──


def _about(known: Recorded, seconds: Mapping[str, float], master: str) -> tuple[Any, ...]:
    took = "; ".join(f"{what}: {value:.1f} s" for what, value in seconds.items())
    rate = known.events / known.seconds / len(known.nodes)
    return (
        Text(
            f"The recorded site has {len(known.nodes)} nodes, {len(known.subscriptions)} subscriptions and "
            f"{known.events:,} events in {known.seconds / 3600:.1f} hours ({rate:.3f} a second and node). Federations "
            f"are copies of it, so one of a million nodes has {1_000_000 // len(known.nodes):,} such sites. Each event "
            f"of the log is judged once, by the code that judges it at a source; events that the same subscriptions "
            f"want are then one class ({len(known.classes):,} here), and sites that are alike one kind. Spark, "
            f"`{master}`: {took}."
        ),
        Table(
            name="model-scenarios",
            title="Who wants what",
            columns=(Column("scenario", "text"), Column("what that is", "text")),
            rows=rows((scenario.name, what) for scenario, what in SCENARIOS.items()),
        ),
    )


def cpu_share(grown: Grown, rate: float | None = None) -> float:
    """Of one processor, at the busiest node; as recorded, or where each node publishes `rate` events a second."""
    faster = 1.0 if rate is None else grown.faster(rate)
    return grown.busiest.cpu / grown.seconds * faster


def link_share(grown: Grown, rate: float | None = None) -> float:
    """Of a link of 1 Gbit/s, at the busiest node."""
    faster = 1.0 if rate is None else grown.faster(rate)
    return grown.busiest.bytes / grown.seconds * faster / LINK


def _who(grown: Grown) -> str:
    if grown.other.cpu <= grown.node.cpu:
        return "a node"
    return {"tree": "a gateway", "router": "the router"}.get(grown.topology, "the centre")


_COLUMNS = (
    Column("nodes"),
    Column("topology", "text"),
    Column("messages an event", "number"),
    Column("bytes an event, by its source", "bytes"),
    Column("busiest", "text"),
    Column("bytes a second", "bytes", "the busiest, at 1 event/s of each node"),
    Column("processors", "number", "the busiest, at 1 event/s of each node"),
    Column("processors", "number", "the busiest, as recorded"),
    Column("until the last has it", "time"),
)


def _row(grown: Grown) -> Row:
    most = cpu_share(grown, RATE)
    values: tuple[Value, ...] = (
        grown.nodes,
        grown.topology,
        grown.messages / grown.published,
        grown.source_bytes / grown.published,
        _who(grown),
        link_share(grown, RATE) * LINK,
        most,
        cpu_share(grown),
        grown.latency,
    )
    beyond = []
    if most > 1:
        beyond.append("more than a processor can do")
    if link_share(grown, RATE) > 1:
        beyond.append("more than 1 Gbit/s")
    return Row(values, {6: "; ".join(beyond)} if beyond else {})


def _scenario(scenario: Scenario, grown: Sequence[Grown]) -> tuple[Any, ...]:
    chosen = [each for each in grown if each.scenario == scenario.name and each.topology in SHOWN]
    return (
        Table(
            name=f"model-{scenario.name.replace(' ', '-')}",
            title=scenario.name[0].upper() + scenario.name[1:],
            columns=_COLUMNS,
            rows=tuple(_row(each) for each in chosen),
        ),
    )


def _all(grown: Sequence[Grown]) -> Table:
    more = (Column("received, an event", "number"), Column("gateways and the like"))
    columns = (Column("scenario", "text"), *_COLUMNS, *more)
    made = []
    for each in grown:
        row = _row(each)
        made.append((each.scenario, *row.values, each.received / each.published, each.others))
    return Table(name="model-all", title="All of it", columns=columns, rows=rows(made), folded=True)


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """Where a load that grows with the size reaches 1, between two sizes on a line of logarithms; None if nowhere."""
    known = [(size, share) for size, share in points if share > 0]
    if known and known[0][1] >= 1:
        return known[0][0]
    for (size, share), (next_size, more) in pairwise(known):
        if share < 1 <= more:
            part = -log(share) / (log(more) - log(share))
            return exp(log(size) + part * (log(next_size) - log(size)))
    return None


def _limits(grown: Sequence[Grown]) -> Table:
    made: list[tuple[Value, ...]] = []
    largest = max(each.nodes for each in grown)
    for scenario in SCENARIOS:
        for topology in TOPOLOGIES:
            some = [each for each in grown if (each.scenario, each.topology) == (scenario.name, topology)]
            shares = [[(float(each.nodes), share(each, rate)) for each in some]
                      for rate in (RATE, None) for share in (cpu_share, link_share)]  # fmt: skip
            made.append((scenario.name, topology, *(_said(crossing(each), largest) for each in shares)))
    groups = ("at 1 event/s of each node", "as recorded")
    columns = tuple(Column(what, "text", group) for group in groups for what in ("one processor", "1 Gbit/s"))
    return Table(
        name="model-limits",
        title="From how many nodes on the busiest one cannot keep up",
        columns=(Column("scenario", "text"), Column("topology", "text"), *columns),
        rows=rows(made),
        note="Between the sizes computed on a line of logarithms.",
    )


def _said(size: float | None, largest: int) -> str:
    if size is None:
        return f"beyond {largest:,}"
    digits = 10 ** max(0, len(str(round(size))) - 2)
    return f"{round(size / digits) * digits:,}"


def _plots(grown: Sequence[Grown]) -> Iterable[Plot]:
    for scenario in (OWN, SOME, ALL):
        for name, title, share, scale in (
            ("cpu", "processor time of the busiest node, seconds a second", cpu_share, 1.0),
            ("bytes", "bytes a second at the busiest node", link_share, LINK),
        ):
            series = []
            for topology in TOPOLOGIES:
                some = [each for each in grown if (each.scenario, each.topology) == (scenario, topology)]
                points = tuple((float(each.nodes), share(each, RATE) * scale) for each in some if share(each, RATE))
                series.append(Series(name=topology, points=points, dashed=True))
            yield Plot(
                name=f"model-{name}-{scenario.replace(' ', '-')}",
                title=f"The busiest node, {scenario}",
                x=Axis("nodes", log=True),
                y=Axis(f"{title}, at 1 event/s of each node", log=True),
                series=tuple(series),
                below=f"A {'processor' if name == 'cpu' else 'link of 1 Gbit/s'} is full at {scale:,.0f}.",
            )


# ── before the first event ──


def peers_of(nodes: int, site: int, *, fanout: int = FANOUT) -> tuple[int, int]:
    """In a tree: the most that a node or gateway knows, and the ordered pairs of those that know each other."""
    sites = -(-nodes // site)
    if sites == 1:
        return nodes - 1, nodes * (nodes - 1)
    sizes = [site + 1] * (nodes // site) + ([nodes % site + 1] if nodes % site else [])
    pairs = sum(size * (size - 1) for size in sizes)
    most = site
    groups = sites
    while groups > 1:
        above = -(-groups // fanout)
        for group in range(above) if above < 3 else (0, above - 1):
            members = min(fanout, groups - group * fanout) + (above > 1)
            pairs += members * (members - 1) * (1 if above < 3 or group else above - 1)
            most = max(most, members - 1 + (fanout if groups < sites else site))
        groups = above
    return most, pairs


def _before(sizes: Iterable[int], site: int, admin: Administration) -> Table:
    made: list[tuple[Value, ...]] = []
    for nodes in sizes:
        most, pairs = peers_of(nodes, site)
        for topology, links, known in (("peers", nodes - 1, nodes * (nodes - 1)), ("tree", most, pairs)):
            memory = links * admin.memory if admin.memory else None
            limits = []
            if EACH * links > DESCRIPTORS:
                limits.append("connections")
            if memory is not None and memory > MEMORY:
                limits.append("memory")
            formula = 2 * nodes**2 + 4 * nodes
            said = known * admin.messages
            made.append((nodes, topology, links, said, memory, " and ".join(limits) or "–", formula))
    stops = min(DESCRIPTORS / EACH, MEMORY / admin.memory if admin.memory else float("inf"))
    weight = (
        f"{admin.memory / 1000:,.0f} kB of memory for each other node that a node knows"
        if admin.memory
        else "memory for each other node that was too little to be told from chance"
    )
    note = (
        f"Measured here: {admin.messages:.2f} messages for each ordered pair of nodes until all interests are in "
        f"force, and {weight}. A process of Linux may have {DESCRIPTORS:,} connections at most, {EACH} of them for "
        f"each peer, and is given 16 GiB here, so peers are possible up to about {_said(stops, DESCRIPTORS)} nodes. "
        "Router and multicast are the same in this: every node still knows every other. The formula is SECO's for "
        "joining and leaving, 2n² + 4n."
    )
    return Table(
        name="model-before",
        title="Knowing each other",
        columns=(
            Column("nodes"),
            Column("topology", "text"),
            Column("others that a node knows, at most"),
            Column("messages in all", "number"),
            Column("memory for it at a node", "bytes"),
            Column("not possible by", "text"),
            Column("SECO's formula"),
        ),
        rows=rows(made),
        note=note,
    )


# ── beside real ones ──


def _checked(found: Sequence[Checked]) -> Table:
    made: list[tuple[Value, ...]] = []
    for each in found:
        run = each.run
        made.append(
            (
                "router" if run.topology == "centralised" else run.topology,
                run.nodes,
                "a share each" if run.split else "everything",
                round(each.messages),
                run.messages,
                run.messages - round(each.messages),
                each.bytes,
                run.bytes,
                100 * (run.bytes - each.bytes) / each.bytes,
                each.latency,
                run.last_latency,
            )
        )
    return Table(
        name="model-check",
        title="Predicted and measured",
        columns=(
            Column("topology", "text"),
            Column("nodes that receive"),
            Column("each wants", "text"),
            Column("model", "int", "messages"),
            Column("measured", "int", "messages"),
            Column("difference", "diff", "messages"),
            Column("model", "bytes", "bytes"),
            Column("measured", "bytes", "bytes"),
            Column("difference", "percent", "bytes"),
            Column("model", "time", "until the last has it"),
            Column("measured", "time", "until the last has it"),
        ),
        rows=rows(made),
    )


def _costs(costs: Costs) -> Table:
    what = {
        "publish": "publishing an event, whoever wants it: processor time at its source",
        "send": "a frame to one more node: processor time at its source",
        "receive": "an event that a node wants, until its handler returns: processor time",
        "discard": "a datagram that a node does not want; measured with nodes that want it, so at most",
        "forward": "an event that a gateway or centre takes in",
        "relay": "an event through a router",
        "hop": "latency to one other node",
    }
    return Table(
        name="model-costs",
        title="The costs that went in",
        columns=(Column("cost", "code"), Column("of", "text"), Column("measured", "time")),
        rows=rows((name, text, getattr(costs, name)) for name, text in what.items()),
        note=f"From real nodes of the same run, events as fast as they go; latency from events one at a time. A frame "
        f"is {costs.frame} bytes more than the record as it is stored, a datagram {costs.datagram} more than that; "
        f"{100 * costs.loss:g} % of datagrams are lost (assumed). A cost of {time(LEAST)} was too little to be told "
        "from chance.",
    )


__all__ = ["cpu_share", "crossing", "link_share", "modelled", "peers_of"]
