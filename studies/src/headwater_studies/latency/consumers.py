"""How long until the last of many consumers has an event, and what one more of them adds: TAO's section 5.2.3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from headwater.study.report.html import Text
from headwater.study.report.table import Column, Row, Table, Value, time
from headwater_studies.fleet.tcp_c import NoCompiler
from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.bench import Bench, Found, Line, between, middle, regression
from headwater_studies.harness.pair import Lossy, Pair, end, started
from headwater_studies.harness.result import Axis, Plot, Section, Series, content
from headwater_studies.latency import pairs
from headwater_studies.latency.pairs import CENTRAL, TCP, TCP_C, Samples, seconds

# TAO, the table in 5.2.3 (microseconds for one more consumer, correlation) and TCP/IP's average in 5.2.2
TAO_CENTRALISED, TAO_FEDERATED, TAO_CORRELATION, TAO_TCP = 212.9, 8.8, 0.999, 96.0

COUNTS = tuple(range(5, 101, 5))  # as TAO's
NODES = (1, 2, 4, 8)
SAMPLES = 2_000  # at each point, over all rounds
TRIPS = 5_000  # over TCP, in each round
WARM = 50
FEDERATED, CENTRALISED = "federated", "centralised"
ON_NODES, ROUTED_NODES = "federated, each on its own node", "centralised, each on its own node"


@dataclass(slots=True)
class Growing:
    """A way in which events reach consumers, and samples of each round for each number of them."""

    name: str
    pair: Pair
    more: Callable[[int], None]  # have so many consumers
    measure: Callable[[int], Samples]  # so many events, one after the other: until the last consumer has each
    taken: dict[int, list[Samples]] = field(default_factory=dict)

    def point(self, count: int, n: int) -> None:
        self.more(count)
        self.measure(min(WARM, n))
        self.taken.setdefault(count, []).append(self.measure(n))

    def averages(self, number: int) -> list[tuple[float, float]]:
        """Of a round: consumers, and the average time until the last of them has an event."""
        return [(float(count), float(rounds[number].mean())) for count, rounds in sorted(self.taken.items())]

    def overall(self) -> list[tuple[float, float]]:
        return [(float(count), float(np.concatenate(each).mean())) for count, each in sorted(self.taken.items())]

    def medians(self) -> list[tuple[float, float]]:
        return [(float(count), float(np.median(np.concatenate(each)))) for count, each in sorted(self.taken.items())]


# ── the ways ──


def _federated(bench: Bench) -> tuple[Growing, Growing]:
    """A supplier's node, and in another process a node with consumers or several with one each; direct streams."""
    pair, there = started(bench.start, pairs.FEDERATED, CENTRAL, ours=True).join(), 1
    at = pair.near.call("endpoint")["endpoint"]
    pair.far.call("gather", each=1)
    pair.near.call("prepare_trips")
    pair.expect_link("tcp")

    def nodes(count: int) -> None:
        nonlocal there
        pair.far.call("open", names=[f"far{number}" for number in range(there, count)], connect=at)
        there = count
        pair.far.call("gather", each=1)
        pair.expect_link("tcp")

    measure = _spread(pair, lambda: there)
    here = Growing(FEDERATED, pair, lambda count: _tell(pair.far, "gather", count), measure)
    return here, Growing(ON_NODES, pair, nodes, measure)


def _centralised(bench: Bench) -> tuple[Growing, Growing]:
    """A supplier's node, and in the same process a node with consumers or several with one each; a router between
    all of them."""
    pair, there = pairs.centralised(bench), 1
    at = pair.far.call("endpoint")["endpoint"]

    def nodes(count: int) -> None:
        nonlocal there
        pair.near.call("clients", names=[f"consumer{number}" for number in range(there, count)], connect=at)
        there = count
        pair.near.call("consume", each=1)

    def measure(n: int) -> Samples:
        return pairs.samples(pair, n)

    here = Growing(CENTRALISED, pair, lambda count: _tell(pair.near, "consume", count), measure)
    return here, Growing(ROUTED_NODES, pair, nodes, measure)


def _tell(worker: Worker, do: str, count: int) -> None:
    worker.call(do, each=count)


def _spread(pair: Pair, crossings: Callable[[], int]) -> Callable[[int], Samples]:
    """Measures at consumers in the other process, by the clock that the processes of a machine share."""

    def measure(n: int) -> Samples:
        before = pair.near.call("counters")["events"]
        found = seconds(pair.near.call("spread", n=n)["nanoseconds"])
        passed = pair.near.call("counters")["events"] - before
        if len(found) != n or passed != n * crossings():
            raise Lossy(f"{pair.name}: of {n:,} events {passed:,} crossed to {crossings()} nodes, {len(found):,} came")
        return found

    return measure


@contextmanager
def _opened(bench: Bench) -> Iterator[tuple[list[Growing], dict[str, Pair], dict[str, str]]]:
    """The ways with a node for all consumers, then those with a node for each; TCP; and why something is not there."""
    together: list[Growing] = []
    apart: list[Growing] = []
    references: dict[str, Pair] = {}
    missing: dict[str, str] = {}
    try:
        for way in (_federated, _centralised):
            bench.say(f"starting {way.__name__.strip('_')}")
            for grown, into in zip(way(bench), (together, apart), strict=True):
                into.append(grown)
        references[TCP] = pairs.tcp(bench)
        try:
            references[TCP_C] = pairs.tcp_in_c(bench)
        except NoCompiler as error:
            missing[TCP_C] = str(error)
        for pair in (*(each.pair for each in together), *references.values()):
            pair.pin()
        yield together + apart, references, missing
    finally:
        everyone = [*(each.pair for each in together), *references.values()]
        end([worker for pair in everyone for worker in pair.workers])


# ── the part ──


def consumers(bench: Bench) -> Found:
    """Until the last of 5 to 100 consumers has an event, federated and centralised; and with a node for each."""
    counts, nodes = ((5, 20), (1, 3)) if bench.quick else (COUNTS, NODES)
    n = bench.size(SAMPLES, 100) // bench.rounds
    trips: dict[str, list[float]] = {}
    with _opened(bench) as (ways, references, missing):
        for number in range(bench.rounds):
            for name, pair in references.items():
                pairs.samples(pair, min(WARM, TRIPS))
                trips.setdefault(name, []).append(float(pairs.samples(pair, bench.size(TRIPS, 200)).mean()))
            for count in counts if number % 2 == 0 else reversed(counts):
                for way in ways[:2]:
                    way.point(count, n)
            bench.say(f"consumers, round {number + 1} of {bench.rounds}")
        for count in nodes:  # nodes only ever get more
            for _ in range(bench.rounds):
                for way in ways[2:]:
                    way.point(count, n)
            bench.say(f"consumers on {count} {'node' if count == 1 else 'nodes'}")
    return reported(ways, trips, missing, n)


def reported(
    ways: Sequence[Growing], trips: Mapping[str, Sequence[float]], missing: Mapping[str, str], n: int
) -> Found:
    lines = {way.name: regression(way.overall()) for way in ways}
    calm = {way.name: regression(way.medians()) for way in ways}
    rounds = len(trips[TCP])
    slopes = {way.name: [regression(way.averages(number)).slope for number in range(rounds)] for way in ways}
    tcp = {name: middle(values) for name, values in trips.items()}
    section = Section(
        key="consumers",
        title="The last of many consumers",
        contents=content(
            Text(_WHAT),
            _slopes(lines, calm, slopes, tcp),
            Text(_WHY),
            _plot("consumers", "Until the last consumer has the event", "consumers", ways[:2], lines),
            _plot("consumers-nodes", "The same, each consumer on its own node", "consumers and nodes", ways[2:], lines),
            _points(ways),
        ),
        command="headwater study latency --part consumers",
        repetitions=f"{n * rounds:,} events at each point, in {rounds} {'round' if rounds == 1 else 'rounds'} in turn",
    )
    costs = {
        "per_consumer": max(0.0, calm[FEDERATED].slope),
        "per_node": max(0.0, calm[ON_NODES].slope),
        "routed_per_node": max(0.0, calm[ROUTED_NODES].slope),
    }
    return Found((section,), (), {}, dict(missing), costs)


_WHAT = (
    "A supplier publishes an event when all consumers have the one before; what is taken is the time until the last of "
    "them has it. TAO did this for 5 to 100 consumers, and gives the slope of the line through the averages: what one "
    "more consumer adds. Federated, supplier and consumers are in two processes, and the time is from the publisher's "
    "clock to the last handler's: on one machine both read the same clock. Centralised, they are in one process and "
    "all that they exchange passes through a router in another."
)
_WHY = (
    "With TAO's centralised service every consumer gets a copy of its own over the network, more than two round trips "
    "over TCP for each; federated, an event crosses once and is handed out on the other side. With us an event crosses "
    "once for a node whichever way it goes, router or not, so that a consumer costs a call of its handler. The rows "
    "with a node for each consumer are the counterpart to TAO's centralised service: a crossing for each. All these "
    "nodes share one process and its interpreter, so that a part of what one more of them adds is waiting "
    "for the others."
)


def _slopes(
    lines: Mapping[str, Line], calm: Mapping[str, Line], slopes: Mapping[str, Sequence[float]], tcp: Mapping[str, float]
) -> Table:
    columns = (
        Column("", "text"),
        Column("one more consumer", "time", "by averages"),
        Column("rounds", "text", "by averages"),
        Column("correlation", "number", "by averages"),
        Column("in TCP round trips, C", "number", "by averages"),
        Column("in TCP round trips, Python", "number", "by averages"),
        Column("one more consumer", "time", "by medians"),
        Column("correlation", "number", "by medians"),
        Column("in TCP round trips, C", "number", "by medians"),
    )
    rows = []
    for name, line in lines.items():
        quiet, in_c = calm[name], tcp.get(TCP_C)
        figures: tuple[Value, ...] = (
            line.slope,
            between(slopes[name], time),
            line.correlation,
            line.slope / in_c if in_c else None,
            line.slope / tcp[TCP],
            quiet.slope,
            quiet.correlation,
            quiet.slope / in_c if in_c else None,
        )
        rows.append(Row((name, *figures)))
    for name, slope in (("TAO: Federated EC", TAO_FEDERATED), ("TAO: Centralized EC", TAO_CENTRALISED)):
        published: tuple[Value, ...] = (slope / 1e6, "published", TAO_CORRELATION, slope / TAO_TCP)
        rows.append(Row((name, *published, None, None, None, None)))
    said = ", ".join(f"{name} {time(value)}" for name, value in tcp.items())
    return Table(
        name="consumers",
        title="What one more consumer adds",
        columns=columns,
        rows=tuple(rows),
        note=f"A round trip over TCP in this run, on average: {said}; with TAO {TAO_TCP:g} µs. TAO "
        "gives averages; medians show less of what else a machine does.",
    )


def _plot(name: str, title: str, what: str, ways: Sequence[Growing], lines: Mapping[str, Line]) -> Plot:
    series = []
    for way in ways:
        averages = way.overall()
        rounds = [[float(each.mean()) * 1e6 for each in way.taken[int(count)]] for count, _ in averages]
        series.append(
            Series(
                name=way.name,
                points=tuple((count, value * 1e6) for count, value in averages),
                style="dots",
                band=tuple((min(each), max(each)) for each in rounds),
            )
        )
        line, ends = lines[way.name], (averages[0][0], averages[-1][0])
        series.append(
            Series(
                name=f"{way.name}: {time(line.slope)} each",
                points=tuple((count, (line.start + line.slope * count) * 1e6) for count in ends),
                dashed=True,
                like=len(series) - 1,
            )
        )
    return Plot(
        name=name,
        title=title,
        x=Axis(what, least=0.0),
        y=Axis("average, µs", least=0.0),
        series=tuple(series),
        below="Dashed: the line through the averages, by regression.",
    )


def _points(ways: Sequence[Growing]) -> Table:
    columns = (
        Column("", "text"),
        Column("consumers"),
        *(Column(title, "time") for title in ("average", "least", "most", "jitter", "p50", "p99")),
        Column("averages of the rounds", "text"),
    )
    rows = []
    for way in ways:
        for count, rounds in sorted(way.taken.items()):
            everything = np.concatenate(rounds)
            p50, p99 = (float(each) for each in np.quantile(everything, (0.5, 0.99)))
            figures: tuple[Value, ...] = (
                float(everything.mean()), float(everything.min()), float(everything.max()), float(everything.std()),
                p50, p99,
            )  # fmt: skip
            spread = between([float(each.mean()) for each in rounds], time)
            rows.append(Row((way.name, count, *figures, spread)))
    return Table(
        name="consumers-points",
        title="Until the last consumer has the event, by the number of consumers",
        columns=columns,
        rows=tuple(rows),
        folded=True,
    )
