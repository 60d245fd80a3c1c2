"""What crosses a federation of 12 for a pattern, on the badge day: counted, beside sending everything.

    python -m headwater_studies.patterns.crossing [--quick]

The 12 networks of the day are 12 nodes, and the pattern runs at one of them. The day is played in its own time, by a
clock that all nodes share, so that every count is exact and the same each time:

    everything   all sightings of the 11 other nodes, as a centre would want them
    atoms        what the elements' own conditions let through
    bound        what crosses: of later elements only those whose values earlier events have bound

Bytes are those of the events' records. What goes on the streams, frames and promises with it, is measured beside that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from headwater import Config, Interest, Node
from headwater.patterns.crossing.atoms import source_interest
from headwater.study.badges.day import CHANNEL, SIGHTING, START, Sighting, day, station_name
from headwater.study.badges.margins import NETWORKS
from headwater.study.badges.run import node_name
from headwater.testing import ManualClock

HOME = "ORL-Home#5"  # the network of the node at which patterns run: the smallest
WAIT = 120.0  # seconds, at most, for nodes to agree on something
QUICK = slice(12_000, 14_000)  # sightings, around noon
KEPT = Config(history=10_000)  # sightings that each station's source remembers

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A pattern of the study, with its parameters."""

    name: str
    text: str
    params: Mapping[str, Any]


REACTOR = Question(
    "reactor room",
    f"a: {CHANNEL}(P, :network, :station, *); b: {CHANNEL}(P, *, *, *) "
    "measures b.badge as badge, b.network as network, b.station as station",
    {"network": "ORL-Net#7", "station": 9},
)
TAILGATING = Question(
    "tailgating",
    f"a: {CHANNEL}{{network = :network and station = :station}}; "
    f"b: {CHANNEL}{{network = :network and station = :station and badge != a.badge}} within 2 seconds "
    "measures a.badge as first, b.badge as second",
    {"network": "ORL-Three#8", "station": 7},
)
QUESTIONS = (TAILGATING, REACTOR)


@dataclass(frozen=True)
class Amount:
    """Events, and the bytes of their records."""

    events: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.events:,} events, {self.bytes:,} bytes"


@dataclass(frozen=True)
class Crossed:
    """What a question let cross, and what it would have, asked otherwise. `needed`: of the events, those that bound
    values let through, counted from the day itself; `streams`: bytes that came in on the streams, everything included.
    """

    question: Question
    matches: int
    expected: int
    everything: Amount
    atoms: Amount
    needed: Amount
    bound: Amount
    rounds: int
    lost: int
    streams: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether what crossed is what was needed, and what was found is all there was."""
        return self.bound == self.needed and self.matches == self.expected and not self.lost


def run(question: Question, sightings: list[Row], networks: Sequence[str] = tuple(NETWORKS)) -> Crossed:
    """Play the day, or a part of it, to a pattern; these networks are nodes, the home among them."""
    began = perf_counter()
    with building(networks) as (clock, nodes):
        home = nodes[HOME]
        sources = {
            (network, station): nodes[network].channel(CHANNEL, Sighting).source(station_name(network, station))
            for network, station in sorted({(row["network"], row["station"]) for row in sightings})
        }
        heard = len(sources) - sum(network == HOME for network, _ in sources)
        _until(home, lambda: len(home.remote_sources(CHANNEL)) == heard)
        watch = home.match(question.text, params=question.params, queue=1 << 20)
        if not home.ready(WAIT):
            raise RuntimeError("the nodes have not come together")
        bound = bool(watch.crossing)
        others = len({network for network, _ in sources} - {HOME})
        _until(home, lambda: not bound or len(watch.crossing["asked for open values"]) == others)
        streams = _streams(home)
        for row in sightings:
            clock.advance(max(0.0, (row["seen"] - START).total_seconds() - clock.now()))
            sources[row["network"], row["station"]].publish(**row)
        pattern = watch.pattern.model
        counted = _counted(question, sightings, source_interest(pattern, CHANNEL))
        found = _found(home, clock, watch, counted["matches"])
        crossing = watch.crossing
        if bound:
            amount = Amount(crossing["crossed"] + crossing["read back"], crossing["bytes"])
        else:
            amount = _heard(home, watch, counted["atoms"])
        return Crossed(
            question,
            found,
            counted["matches"],
            counted["everything"],
            counted["atoms"],
            counted["bound"],
            amount,
            crossing.get("rounds", 0),
            crossing.get("lost", 0),
            _streams(home) - streams,
            perf_counter() - began,
        )


@contextmanager
def building(networks: Sequence[str]) -> Iterator[tuple[ManualClock, dict[str, Node]]]:
    """A node for each, which know each other, and their clock, which stands at the beginning of the day."""
    clock = ManualClock(time=int(START.timestamp() * 1_000_000))
    with ExitStack() as stack:
        home = stack.enter_context(Node(node_name(HOME), listen="tcp/127.0.0.1:0", config=KEPT, clock=clock))
        nodes = {HOME: home}
        for network in networks:
            if network != HOME:
                node = Node(node_name(network), connect=home.endpoints[0], config=KEPT, clock=clock)
                nodes[network] = stack.enter_context(node)
        home.channel(CHANNEL, Sighting)
        _until(home, lambda: len(home.peers) == len(networks) - 1)
        yield clock, nodes


def _until(node: Node, condition: Any) -> None:
    if not node.until(condition, WAIT):
        raise RuntimeError("the nodes have not come together in time")


def _found(home: Node, clock: ManualClock, watch: Any, expected: int) -> int:
    """How many matches there are, once as many have come as there should be, and all have had time to."""
    found = 0
    for _ in range(expected):
        watch.get(WAIT)
        found += 1
    clock.advance(60.0)
    _until(home, lambda: watch._stage.seen is not None and watch._stage.seen.sure[0] >= clock.time() - 1_000_000)
    while watch.poll() is not None:
        found += 1
    return found


def _streams(home: Node) -> int:
    """Bytes that came in on the streams so far."""
    assert home._engine is not None
    return sum(peer.bytes_in for peer in home._engine.everyone())


def _heard(home: Node, watch: Any, expected: Amount) -> Amount:
    """What came of other nodes where all that passes the atoms does: as many as the sources say that they sent."""
    events = sum(counts.crossed for counts in home.remote_counts(watch))
    return Amount(events, expected.bytes if events == expected.events else 0)


def _counted(question: Question, sightings: list[Row], atoms: Interest | None) -> dict[str, Any]:
    """From the day itself, without any engine: what crosses by each way of asking, and how many matches there are."""
    everything, passed, needed = [0, 0], [0, 0], [0, 0]
    matches = 0
    known: set[str] = set()
    recent: list[Row] = []
    at = question.params["network"], question.params["station"]
    for row in sightings:
        size = len(SIGHTING.encode(dict(row)))
        here, there = row["network"] == HOME, (row["network"], row["station"]) == at
        if question is REACTOR:
            matches += row["badge"] in known
            wanted = there or row["badge"] in known
            if there:
                known.add(row["badge"])
        else:
            recent = [each for each in recent if (row["seen"] - each["seen"]).total_seconds() <= 2]
            matches += sum(there and each["badge"] != row["badge"] for each in recent)
            wanted = there
            recent += [row] if there else []
        if not here:
            for amount, counts in (
                (everything, True),
                (passed, atoms is None or atoms.test(dict(row))),
                (needed, wanted),
            ):
                amount[0] += counts
                amount[1] += size * counts
    return {
        "everything": Amount(*everything),
        "atoms": Amount(*passed),
        "bound": Amount(*needed),
        "matches": matches,
    }


def rows(report: Any, quick: bool) -> None:
    """For the benchmarks: a row for each question."""
    sightings = day().to_pylist()[QUICK if quick else slice(None)]
    for question in QUESTIONS:
        found = run(question, sightings)
        note = (
            f"{found.bound}; atoms alone {found.atoms}; everything {found.everything}; {found.matches:,} matches, "
            f"{found.rounds} rounds; on the streams {found.streams:,} bytes"
        )
        report.add(
            f"across 12 nodes, {question.name}, KB (beside: everything)",
            found.bound.bytes / 1000,
            found.everything.bytes / 1000,
            reach="what is bound, exactly",
            ok=found.exact,
            unit="KB",
            note=note,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 sightings only")
    args = parser.parse_args()
    sightings = day().to_pylist()[QUICK if args.quick else slice(None)]
    for question in QUESTIONS:
        found = run(question, sightings)
        print(f"{question.name}: {found.matches:,} matches of {len(sightings):,} sightings in {found.seconds:.1f} s")
        for name in ("everything", "atoms", "bound"):
            print(f"  {name:<12} {getattr(found, name)}")
        print(f"  {found.rounds} rounds, {found.lost} lost, {found.streams:,} bytes on the streams", end="")
        print(", exact" if found.exact else f"; expected {found.needed} and {found.expected:,} matches")


if __name__ == "__main__":
    main()
