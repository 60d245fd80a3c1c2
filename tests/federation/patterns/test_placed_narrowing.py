"""What crosses to a pattern that runs for another node, and with one that moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater import Config, Interest, Node
from headwater.federation.security.policy import Restrict
from headwater.federation.security.settings import Security
from tests.federation.nodes import Log, Nodes, eventually, nodes
from tests.federation.patterns.test_narrowing import CHANNEL, KEPT, REACTOR, TYPE, Held
from tests.federation.test_pattern_placement import Watchman

NAME = "found"


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Building:
    """A desk that wants to know, a lab at which the pattern is to run, and a third node."""

    def __init__(self, make: Nodes, third: bool = True, **lab: Any) -> None:
        self.make = make
        self.desk = make("desk", config=KEPT)
        self.nodes = {"lab": make("lab", config=KEPT, **lab)}
        if third:
            self.nodes["third"] = make("third", config=KEPT)
        self.desk.channel(CHANNEL, TYPE)
        self.sources = {name: self.open(name) for name in self.nodes}
        make.together()
        make.ready()
        self.found: Log = Log()

    def open(self, name: str) -> Any:
        return self.nodes[name].channel(CHANNEL, TYPE).source(f"door-{name}")

    def run(self, at: str | None = None, text: str = REACTOR) -> Any:
        self.pattern: Any = self.desk.pattern(NAME, text, aliases={"Seen": CHANNEL}, at=at)
        self.desk.channel(NAME).subscribe(self.found)
        self.make.ready(self.desk)
        return self.pattern

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pattern.report().to_dict()["crossing"]
        return found

    def running(self, node: Node) -> Any:
        return node.subscriptions[NAME]._stage.arrivals  # type: ignore[attr-defined]

    def see(self, node: str, who: str, room: int) -> None:
        self.sources[node].publish(who=who, room=room)

    def bound(self, at: Any, what: str, count: int) -> None:
        """Wait until so many values are open, and asked for: they are open first."""
        eventually(lambda: self.report["open"] == {what: count} and at.idle)

    def results(self, count: int) -> list[tuple[str, int]]:
        try:
            eventually(lambda: len(self.found.events) >= count)
        except AssertionError:
            raise AssertionError(f"expected {count} results, found {self.found.events}; {self.report}") from None
        return [(each.who, each.room) for each in self.found.events]


def test_the_node_that_it_runs_at_asks_third_nodes_for_what_is_bound(make: Nodes) -> None:
    building = Building(make)
    building.run(at="lab")
    lab = building.running(building.nodes["lab"])
    eventually(lambda: building.report["asked for open values"] == ["third"] and lab.idle)
    for n in range(10):
        building.see("third", f"guest {n}", n)
    building.see("lab", "ann", 42)
    building.bound(lab, "P of the key", 1)
    for n in range(10):
        building.see("third", f"guest {n}", n)
    building.see("third", "ann", 7)
    building.see("third", "bob", 42)
    building.see("lab", "bob", 8)
    assert sorted(building.results(2)) == [("ann", 7), ("bob", 8)]
    assert (building.report["crossed"], building.report["read back"], building.report["lost"]) == (2, 0, 0)


def test_what_a_policy_hides_of_the_asker_is_not_read_back_either(make: Nodes) -> None:
    hidden = Restrict(Interest("room != 13", TYPE), "not there")
    policy = Watchman(lambda action, channel: hidden if (action, channel) == ("subscribe", CHANNEL) else None)
    building = Building(make, security=Security(policy=policy))
    building.run(at="lab")
    lab = building.running(building.nodes["lab"])
    eventually(lambda: building.report["asked for open values"] == ["third"] and lab.idle)
    held = Held(lab, "_ask")
    building.see("lab", "ann", 42)
    assert held.reached.wait(60)
    building.see("third", "ann", 13)
    building.see("third", "ann", 7)
    held.go.set()
    eventually(lambda: lab.idle)
    building.see("third", "ann", 13)
    building.see("third", "ann", 8)
    assert building.results(2) == [("ann", 7), ("ann", 8)]
    assert (building.report["crossed"], building.report["read back"]) == (1, 1)


def test_third_nodes_send_marks_of_what_the_asker_may_see(make: Nodes) -> None:
    hidden = Restrict(Interest("room != 13", TYPE), "not there")
    policy = Watchman(lambda action, channel: hidden if (action, channel) == ("subscribe", CHANNEL) else None)
    building = Building(make, security=Security(policy=policy))
    text = "a: Seen{room = 42}, b: Seen{room = 1} within 1 hour partition by who measures b.who as who, b.room as room"
    building.run("lab", text)
    lab = building.running(building.nodes["lab"])
    eventually(lambda: building.report["asked for open values"] == ["third"] and lab.idle)
    for who in ("ann", "bob"):
        building.see("lab", who, 42)
    building.bound(lab, "who of the key", 2)
    building.see("third", "ann", 13)  # nobody is to know of it
    building.see("third", "bob", 7)  # stands between
    for who in ("ann", "bob"):
        building.see("third", who, 1)
    assert building.results(1) == [("ann", 1)]
    eventually(lambda: building.report["crossed"] == 3)
    assert building.report["marks"] == 1


def test_bound_values_move_with_the_pattern(make: Nodes) -> None:
    building = Building(make, third=False)
    made = building.run()
    assert made.home.node == "lab"
    building.see("lab", "ann", 42)
    building.see("lab", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    building.nodes["third"] = make("third", config=KEPT)
    make.together()
    building.sources["third"] = building.open("third")
    eventually(lambda: made.home.node == "desk" and made.moves == 1)
    make.ready(building.desk)
    desk = building.running(building.desk)
    eventually(lambda: building.report["asked for open values"] == ["lab", "third"] and desk.idle)
    assert building.report["open"] == {"P of the key": 1}
    before = building.report["crossed"] + building.report["read back"]
    for n in range(10):
        building.see("third", f"guest {n}", n)
        building.see("lab", f"guest {n}", n)
    building.see("third", "ann", 2)
    building.see("lab", "ann", 3)
    assert sorted(building.results(3)) == [("ann", 1), ("ann", 2), ("ann", 3)]
    assert building.report["crossed"] + building.report["read back"] == before + 2


def test_third_nodes_that_keep_no_past_send_all_that_may_matter(make: Nodes) -> None:
    building = Building(make, third=False)
    building.nodes["third"] = make("third", config=Config())
    building.sources["third"] = building.open("third")
    make.together()
    make.ready()
    building.run(at="lab")
    eventually(lambda: "third" in building.report["asked for all"])
    make.ready(building.nodes["lab"])  # what it asks for is in force: nobody reads back what came before
    building.see("third", "bob", 1)
    building.see("lab", "ann", 42)
    building.see("third", "ann", 7)
    assert building.results(1) == [("ann", 7)]
    assert building.report["crossed"] == 2
