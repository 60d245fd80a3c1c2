"""What crosses to a pattern whose state is kept: after a restart, of those who are bound, what was published meanwhile;
once, and of nobody else."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Config, Node, Patterns
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.patterns.test_narrowing import CHANNEL, REACTOR, TYPE, Held
from tests.patterns import oracle

NAME = "found"
OFTEN = Config(patterns=Patterns(keep_events=1, grace=30))
SELDOM = Config(patterns=Patterns(keep_events=1_000_000, keep_seconds=3600, grace=30))


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Building:
    """Nodes that log their sightings, and a home that keeps the state of a pattern; it can be opened again."""

    def __init__(self, make: Nodes, folder: Path) -> None:
        self.make, self.folder = make, folder
        self.nodes: dict[str, Node] = {}
        self.sources: dict[str, Any] = {}
        for name in ("east", "west"):
            self.nodes[name] = node = make(name, log=folder / name)
            self.sources[name] = node.channel(CHANNEL, TYPE).source(f"door-{name}")
        make.together()

    def open(self, config: Config = OFTEN, *, narrow: bool = True) -> None:
        self.home = self.make("home", state=self.folder / "home", log=self.folder / "found", config=config)
        self.home.channel(CHANNEL, TYPE)
        for node in self.nodes.values():
            see(self.home, node)
        self.pattern: Any = self.home.pattern(NAME, REACTOR, aliases={"Seen": CHANNEL}, at="home")
        self.make.ready(self.home)
        if narrow:
            self.narrow()

    def narrow(self) -> None:
        eventually(lambda: self.report["asked for open values"] == ["east", "west"] and self.narrowing.idle)

    def close(self) -> None:
        self.home.close()
        self.make.opened.remove(self.home)

    def save(self) -> None:
        """What is written from here on is as if a kill had come before that."""
        for suffix in ("", "-wal"):
            if (self.folder / f"home{suffix}").exists():
                shutil.copy(self.folder / f"home{suffix}", self.folder / f"saved{suffix}")

    def kill(self) -> None:
        """When it is opened again, its state is as it was saved."""
        self.close()
        for suffix in ("", "-wal"):
            (self.folder / f"home{suffix}").unlink(missing_ok=True)
            if (self.folder / f"saved{suffix}").exists():
                (self.folder / f"saved{suffix}").rename(self.folder / f"home{suffix}")

    @property
    def narrowing(self) -> Any:
        return self.pattern.local._stage.arrivals

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pattern.report().crossing
        return found

    @property
    def crossed(self) -> tuple[int, int, int, int]:
        report = self.report
        return report["crossed"], report["read back"], report["repeated"], report["lost"]

    def see(self, node: str, who: str, room: int) -> None:
        self.sources[node].publish(who=who, room=room)

    def results(self, count: int) -> list[tuple[str, int]]:
        """Who was seen where afterwards, once there are so many: all that were ever published."""
        channel = self.home.channel(NAME)
        eventually(lambda: channel.sources[NAME].seq >= count)
        records = [record for part in channel.backlog.read(NAME) for _, _, record in part.events()]
        raw = [channel.type.decode_raw(record) for record in records]
        return [(each["who"], each["room"]) for each in raw]

    def bound(self, count: int) -> None:
        """Wait until so many values are open, and nothing is being asked for; and that this is kept."""
        eventually(lambda: self.report["open"] == {"P of the key": count} and self.narrowing.idle)
        self.pattern.keep()
        eventually(lambda: self.pattern.report().kept["events_since"] == 0)

    def guests(self, count: int) -> None:
        for n in range(count):
            self.see("east", f"guest {n}", n)
            self.see("west", f"guest {n}", n)


def test_only_those_who_were_there_cross(make: Nodes, tmp_path: Path) -> None:
    building = Building(make, tmp_path)
    building.open()
    building.guests(10)
    building.see("east", "ann", 42)
    building.bound(1)
    building.guests(10)
    building.see("west", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    assert building.crossed == (2, 0, 0, 0)


def test_what_was_published_meanwhile_of_those_who_are_bound_comes_once(make: Nodes, tmp_path: Path) -> None:
    building = Building(make, tmp_path)
    building.open()
    building.see("east", "ann", 42)
    building.bound(1)
    building.see("west", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    building.close()
    building.guests(10)
    building.see("west", "ann", 2)
    building.see("east", "ann", 3)
    building.see("west", "bob", 4)  # before he was there
    building.see("east", "bob", 42)
    building.see("west", "bob", 5)
    building.open(narrow=False)
    assert building.pattern.report().kept["resumed"]
    assert Counter(building.results(4)) == Counter([("ann", 1), ("ann", 2), ("ann", 3), ("bob", 5)])
    building.narrow()
    crossed, back, repeated, lost = building.crossed
    assert (crossed + back - repeated, lost) == (4, 0)
    building.guests(10)
    building.see("west", "bob", 6)
    assert ("bob", 6) in building.results(5)
    assert sum(building.crossed[:2]) == crossed + back + 1


def test_nothing_was_heard_of_anybody_before_the_restart(make: Nodes, tmp_path: Path) -> None:
    building = Building(make, tmp_path)
    building.guests(3)
    building.open()
    eventually(lambda: len(building.pattern.local._stage.operator.positions) == 2)
    building.bound(0)
    building.close()
    building.guests(3)
    building.see("east", "ann", 42)
    building.see("west", "ann", 1)
    building.open(narrow=False)
    assert building.results(1) == [("ann", 1)]
    building.narrow()
    assert building.crossed == (1, 1, 0, 0)


@pytest.mark.parametrize("step", ["_ask", "_missed"])
def test_a_kill_while_a_value_is_being_asked_for(make: Nodes, tmp_path: Path, step: str) -> None:
    """The state says that she is bound, and that all events up to those of the others are in it: hers are not."""
    building = Building(make, tmp_path)
    building.open()
    building.see("east", "bob", 42)
    building.bound(1)
    held = Held(building.narrowing, step)
    building.see("east", "ann", 42)
    assert held.reached.wait(60)
    building.see("west", "ann", 1)
    building.see("west", "bob", 2)
    if step == "_ask":
        eventually(lambda: building.report["crossed"] == 3)
    building.pattern.keep()
    eventually(lambda: building.pattern.report().kept["events_since"] == 0)
    building.save()
    held.go.set()
    building.kill()
    building.see("west", "ann", 3)
    building.open(narrow=False)
    assert Counter(building.results(3)) == Counter([("ann", 1), ("bob", 2), ("ann", 3)])
    building.narrow()
    assert building.report["lost"] == 0


def test_what_is_published_while_its_node_closes_comes_after_the_restart(make: Nodes, tmp_path: Path) -> None:
    """A round that ends meanwhile says how far the sources are: not that what they have sent was taken."""
    building = Building(make, tmp_path)
    building.open()
    held = Held(building.nodes["east"]._engine.installer, "install")
    building.see("west", "ann", 42)
    assert held.reached.wait(60)
    building.see("east", "ann", 1)  # which is read back
    busy, asked = threading.Event(), building.narrowing
    other = building.home.channel("other", "x: i64")
    other.subscribe(lambda _: busy.wait(GUARD), dispatch="pool")
    other.source().publish(x=1)
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(building.close)
        eventually(lambda: building.home.closed)
        building.see("east", "bob", 42)
        building.see("west", "bob", 2)
        held.go.set()
        eventually(lambda: not asked._working)
        busy.set()
        closing.result()
    building.see("west", "ann", 3)
    building.open(narrow=False)
    building.see("west", "bob", 4)
    assert Counter(building.results(4)) == Counter([("ann", 1), ("bob", 2), ("ann", 3), ("bob", 4)])


def test_a_kill_before_anything_of_it_was_kept(make: Nodes, tmp_path: Path) -> None:
    """The event that binds comes again, and what was read back or had come of it is found again, and published once."""
    building = Building(make, tmp_path)
    building.open(SELDOM)
    eventually(lambda: len(building.pattern.local._stage.operator.positions) == 2)
    building.bound(0)
    building.save()
    building.see("east", "ann", 42)
    eventually(lambda: building.report["open"] == {"P of the key": 1} and building.narrowing.idle)
    building.see("west", "ann", 1)
    assert building.results(1) == [("ann", 1)]
    building.kill()
    building.see("west", "ann", 2)
    building.open(SELDOM, narrow=False)
    assert building.results(2) == [("ann", 1), ("ann", 2)]
    building.narrow()
    assert building.crossed == (1, 2, 0, 0)


def test_it_finds_what_the_definition_says_through_restarts(make: Nodes, tmp_path: Path) -> None:
    building = Building(make, tmp_path)
    building.open()
    random = Random(15)
    for step in range(90):
        building.see(random.choice(("east", "west")), random.choice("abcdefgh"), random.choice((42, 7, 8, 9, 10)))
        if step in (20, 45, 70):
            building.kill() if step == 45 else building.close()
        elif step == 40:
            building.save()
        elif step in (30, 55, 80):
            building.open(narrow=False)
    events = []
    for node, source in building.sources.items():
        channel = building.nodes[node].channel(CHANNEL)
        for stretch in channel.backlog.read(source.name):
            for seq, stamp, record in stretch.events():
                fields = channel.type.decode_raw(record)
                events.append(
                    {"channel": CHANNEL, "source": source.name, "seq": seq, "time": stamp // 1000, "fields": fields}
                )
    model = building.pattern.local.pattern.model
    expected = Counter((match.result["who"], match.result["room"]) for match in oracle.matches(model, events))
    assert Counter(building.results(expected.total())) == expected
    building.narrow()
    assert not building.report["lost"]
