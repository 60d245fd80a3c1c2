"""Marks over several nodes: of what fits no element only time and partition cross, and what is found is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Config
from headwater.network import Network
from headwater.patterns import model, written
from headwater.patterns.crossing.marks import Mark
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.identity import identity
from headwater.security import Security
from tests.effort import rounds
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.patterns.test_narrowing import Held, NoCode
from tests.federation.test_gateway import CHANNEL as SIGHTING
from tests.federation.test_gateway import Sighting, sees, world
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, SOURCES, patterns, streams

CHANNEL = "ie.tcd.seen"
TYPE = "who: text, room: i64, at: i64, note: text"
SHOWN = "measures a.who as who, a.at as began, b.at as ended"
PAIR = "a: Seen{room = 1}, b: Seen{room = 2} within 1 hour"
KEPT = Config(history=10_000)
COUNTED = (written.Window(rows=2), written.Window(rows=4), written.Window(rows=9))


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Building:
    """A home with a source of its own, two other nodes, and a pattern; what comes of the others is looked at."""

    def __init__(self, make: Nodes, text: str, config: Config = KEPT, away: Any = None, **more: Any) -> None:
        self.home = make("home", listen="tcp/127.0.0.1:0", config=KEPT)
        self.nodes = {
            "home": self.home,
            **{name: make(name, config=config, **(away or {})) for name in ("east", "west")},
        }
        self.sources = {name: node.channel(CHANNEL, TYPE).source(f"door-{name}") for name, node in self.nodes.items()}
        make.together()
        make.ready(self.home)
        self.found: Log = Log()
        self.watching = self.home.match(f"{text} {SHOWN}", self.found, aliases={"Seen": CHANNEL}, **more)
        self.marks: list[Mark] = []
        self.whole: list[dict[str, Any]] = []
        self._look(self.watching._asked[0].marking)
        make.ready(self.home)

    def _look(self, marking: Any) -> None:
        """Note what comes of other nodes, as it comes."""
        self.marking, opened, rows = marking, marking.opened, marking.opened_rows
        self.type = marking.channel.type

        def one(record: bytes) -> Any:
            found = opened(record)
            if isinstance(found, Mark):
                self.marks.append(found)
            else:
                self.whole.append(self.type.decode_raw(record))
            return found

        def many(batch: Any) -> Any:
            found = rows(batch)
            if found is None:
                self.whole += self.type.arrow_to_raw(batch)
            else:
                self.marks += found
            return found

        marking.opened, marking.opened_rows = one, many

    def narrow(self) -> None:
        """Wait until the other nodes are asked for open values only, and for all that are."""
        narrowing = self.watching._stage.arrivals
        eventually(lambda: self.watching.crossing["asked for open values"] == ["east", "west"] and narrowing.idle)

    def see(self, node: str, who: str, room: int, at: int = 0) -> None:
        self.sources[node].publish(who=who, room=room, at=at, note=node)

    def published(self) -> list[dict[str, Any]]:
        """All events, as the oracle takes them."""
        events = []
        for name, source in self.sources.items():
            channel = self.nodes[name].channel(CHANNEL)
            for stretch in channel.backlog.read(source.name):
                for seq, stamp, record in stretch.events():
                    about = {"channel": CHANNEL, "source": source.name, "seq": seq, "time": stamp // 1000}
                    events.append({**about, "fields": channel.type.decode_raw(record)})
        return events

    def expected(self) -> list[tuple[Any, ...]]:
        matches = oracle.matches(self.watching.pattern.model, self.published())
        return sorted((m.result["who"], m.result["began"], m.result["ended"]) for m in matches)

    def results(self) -> list[tuple[Any, ...]]:
        return sorted((each.who, each.began, each.ended) for each in self.found.events)


def test_of_what_fits_no_element_only_its_partition_crosses(make: Nodes) -> None:
    building = Building(make, f"{PAIR} partition by who among room < 90", config=Config())  # no past: nobody is narrow
    for n in range(10):
        building.see("east", "ann", 3, n)  # a row that fits nothing
        building.see("west", "bob", 99, n)  # not among the rows
    building.see("east", "ann", 1, 100)
    building.see("home", "ann", 5, 101)
    building.see("home", "bob", 1, 102)
    building.see("west", "bob", 2, 103)
    building.see("west", "ann", 2, 104)  # not the next in her partition
    building.see("west", "eve", 1, 105)
    building.see("east", "eve", 2, 106)
    eventually(lambda: len(building.found.events) >= 2)
    eventually(lambda: building.watching.report().rows == 17)
    assert building.results() == [("bob", 102, 103), ("eve", 105, 106)]
    report = building.watching.report()
    assert (report.events, report.rows, report.marks) == (17, 17, 10)
    assert building.marks == [Mark(True, {"who": "ann"}, None, 40)] * 10
    assert sorted(event["at"] for event in building.whole) == [100, 103, 104, 105, 106]


def test_marks_of_partitions_that_are_not_open_stay_where_they_are(make: Nodes) -> None:
    building = Building(make, f"{PAIR} partition by who")
    building.narrow()
    for n in range(10):
        building.see("west", "bob", 3, n)
    held = Held(building.watching._stage.arrivals, "_ask")
    building.see("east", "ann", 1, 100)
    assert held.reached.wait(GUARD)
    building.see("west", "ann", 3, 101)  # nobody has asked for it yet: it is read back
    building.see("west", "ann", 2, 102)
    building.see("west", "bob", 4, 103)
    held.go.set()
    eventually(lambda: building.watching.crossing["read back"] == 2)
    building.narrow()
    building.see("west", "ann", 5, 104)
    building.see("east", "ann", 1, 105)
    building.see("west", "ann", 2, 106)
    eventually(lambda: bool(building.found.events))
    assert building.results() == [("ann", 105, 106)]
    report = building.watching.crossing
    assert [report[what] for what in ("crossed", "read back", "repeated", "marks", "lost")] == [4, 2, 0, 2, 0]
    event = len(building.type.encode({"who": "ann", "room": 1, "at": 100, "note": "east"}))
    assert report["bytes"] == 4 * event + 2 * 40 and event == 56  # that of a mark grows with its key alone
    assert building.marks == [Mark(True, {"who": "ann"}, None, 40)] * 2


def test_a_node_that_lets_nobody_install_sends_events(make: Nodes) -> None:
    building = Building(make, PAIR, away={"network": Network(security=Security(policy=NoCode()))})
    assert str(building.watching.report()).count("it sends whole events, not marks") == 2
    for at, room in enumerate((1, 3, 2, 1, 2)):
        building.see("west" if at % 2 else "east", "ann", room, at)
    eventually(lambda: bool(building.found.events))
    assert building.results() == [("ann", 3, 4)]
    assert building.watching.report().marks == 0 and not building.marks
    assert sorted(event["at"] for event in building.whole) == list(range(5))


@pytest.mark.parametrize("rows", ["", "among room < 5"])
def test_what_others_want_crosses_once_and_counts_once(make: Nodes, rows: str) -> None:
    building = Building(make, f"{PAIR} partition by who {rows}", config=Config())
    heard = Log()
    building.home.channel(CHANNEL).subscribe(heard)
    make.ready(building.home)
    for at, room in enumerate((1, 3, 2, 1, 2, 4)):
        building.see("east", "ann", room, at)
    many = [{"who": "bob", "room": room, "at": 10 + at, "note": ""} for at, room in enumerate((1, 2, 3, 1, 4, 2))]
    building.sources["west"].publish_many(building.type.to_arrow(many))
    eventually(lambda: len(heard.events) == 12 and len(building.found.events) >= 2)
    eventually(lambda: building.watching.report().events == 12)
    assert building.results() == [("ann", 3, 4), ("bob", 10, 11)]
    report = building.watching.report()
    assert report.marks == 4 and report.counts.passed == 12


def test_a_pattern_that_is_changed_has_other_marks(make: Nodes) -> None:
    building = Building(make, "a: Seen{room = :first}, b: Seen{room = 2} within 1 hour", params={"first": 1})
    building.see("east", "ann", 1, 1)
    building.see("east", "ann", 2, 2)
    eventually(lambda: len(building.found.events) == 1)
    building.watching.change(params={"first": 7})
    for at, room in enumerate((1, 2, 7, 2), start=3):
        building.see("west", "ann", room, at)
    eventually(lambda: len(building.found.events) == 2)
    assert building.results() == [("ann", 1, 2), ("ann", 5, 6)]
    assert [event["room"] for event in building.whole] == [1, 2, 2, 7, 2] and len(building.marks) == 1


@settings(max_examples=rounds(1, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(patterns(windows=COUNTED, selections=("strict", "next", "strict", "any")), min_size=5, max_size=5),
    stream=st.lists(streams(most=8), min_size=3, max_size=6),
    ways=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=48, max_size=48),
    others=st.booleans(),
)
def test_random_patterns_over_two_nodes(
    found: list[model.Pattern], stream: list[list[dict[str, Any]]], ways: list[tuple[bool, bool]], others: bool
) -> None:
    """Events of two nodes, one by one and in batches, perhaps wanted by others too."""
    published = list[dict[str, Any]]()
    with nodes() as made:
        both = {name: made(name, config=KEPT) for name in ("desk", "far")}
        desk = both["desk"]
        channels = {
            (name, each): node.channel(each, of) for name, node in both.items() for each, of in CHANNELS.items()
        }
        sources = {(*at, name): channel.source(name) for at, channel in channels.items() for name in SOURCES}
        made.together()
        made.ready(desk)
        watches = [desk.match(Pattern.from_model(each), queue=100_000) for each in found]
        for name in CHANNELS if others else ():
            desk.channel(name).subscribe(Log())
        made.ready(desk)
        for events in stream:
            for event, (near, together) in zip(events, ways, strict=False):
                at = "desk" if near else "far", event["channel"]
                one = sources[(*at, event["source"])]
                if together:
                    one.publish_many(channels[at].type.to_arrow([event["fields"]] * 3))
                else:
                    one.publish(event["fields"])
        for name, each, source in sources:
            channel = channels[name, each]
            for stretch in channel.backlog.read(source):
                for seq, stamp, record in stretch.events():
                    about = {"channel": each, "source": source, "node": name, "seq": seq, "time": stamp // 1000}
                    published.append({**about, "fields": channel.type.decode_raw(record)})
        for pattern, watch in zip(found, watches, strict=True):
            theirs = Counter(
                identity(pattern.fingerprint, list(each.events), each.deadline)
                for each in oracle.matches(pattern, published)
            )
            ours = Counter[bytes]()

            def all_came() -> bool:
                while (got := watch.poll()) is not None:  # noqa: B023
                    ours[pattern.output.to_raw(got)["match"]["identity"]] += 1  # noqa: B023
                return ours.total() >= theirs.total()  # noqa: B023

            if pattern.after.rule == "no skip" and pattern.reuse:  # else a further row may have to decide
                eventually(all_came)
                assert ours == theirs, pattern.text
            else:
                made.flush()
                all_came()
                assert not ours - theirs, pattern.text


@pytest.mark.parametrize("text", [
    PAIR,
    f"{PAIR} partition by who",
    f"{PAIR} partition by who among room < 4",
    "a: Seen{room = 1}; b: Seen{room = 2} within 4 events",
    "a: Seen(P, 1, *, *); b: Seen(P, 2, *, *) within 3 events",
    f"{PAIR} partition by who time at lateness 3 microseconds",
    "a: Seen{room = 1} -> b: Seen{room = 2} within 8 microseconds partition by who time at",
])  # fmt: skip
def test_it_finds_what_the_definition_says(make: Nodes, text: str) -> None:
    building = Building(make, text)
    if building.watching.crossing:
        building.narrow()
    random, clock = Random(7), 0
    for _ in range(60):
        node = random.choice(("home", "east", "east", "west"))
        size = random.choice((1, 1, 1, 3, 40))
        rows = []
        for _ in range(size):
            clock += random.choice((0, 1, 2))
            at = clock - random.choice((0, 0, 0, 2, 5))
            who, room = random.choice("abc"), random.choice((1, 1, 2, 2, 3, 4))
            rows.append({"who": who, "room": room, "at": at, "note": node})
        if size == 1:
            building.sources[node].publish(**rows[0])
        else:
            building.sources[node].publish_many(building.marking.channel.type.to_arrow(rows))
    if "time at" in text:  # every source goes past what the others have said
        for node in building.sources:
            building.see(node, "z", 9, clock + 1_000_000)
    expected = building.expected()
    assert expected
    eventually(lambda: len(building.found.events) >= len(expected))
    assert building.results() == expected
    assert all(event["room"] in (1, 2) and event["note"] != "home" for event in building.whole)
    assert 0 < building.watching.report().marks <= len(building.marks)


def test_marks_and_events_pass_gateways() -> None:
    """A pattern at the gateway itself, and one at a node behind it."""
    text = f"a: {SIGHTING}{{x = 1}}, b: {SIGHTING}{{x = 2}} within 1 hour measures b.x as x"
    with world() as made:
        _, far = made.federation("a")
        gate, home = made.federation("b")
        source = far.channel(SIGHTING, Sighting).source()
        made.join(made.federations["a"][0], gate)
        sees(home, 1, SIGHTING)
        watches = [node.match(text) for node in (gate, home)]
        for node in (gate, home, made.federations["a"][0]):
            assert node.ready(GUARD)
        for x in (1, 3, 2, 1, 2):
            source.publish(x=x)
        source.publish_many(far.channel(SIGHTING).type.to_arrow([{"x": x} for x in (4, 1, 2, 1)]))
        for watch in watches:
            eventually(lambda watch=watch: (watch.report().events, watch.report().matches) == (9, 2))
        assert [watch.report().marks for watch in watches] == [0, 2]
