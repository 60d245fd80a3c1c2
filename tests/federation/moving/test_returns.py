"""Durable sinks of every kind that come back to a node in every way, after others there have had events or before:
each has all events of a logged source, in order, once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Event, Interest, Node, Queue, Reliable, i64
from headwater.federation.network import Budget, Network
from tests.federation.moving.test_sources import place
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

CHANNEL, DERIVED, TWICE = "test.count", "test.derived", "test.derived.twice"
DURABLE = Reliable(durable=True)
ALWAYS = "{ static int seen = 0; seen = seen + 1; return seen > 0; }"
DOUBLE = "{ output.n = input.n; output.twice = 2 * input.n; return input.n >= 0; }"
MANY = 60_001  # events, of which much is read from a log while other things happen
Way = Callable[["Scene"], None]


class Count(Event, name="test.Count"):
    n: i64


class Double(Event, name="test.Double"):
    n: i64
    twice: i64


def _derived(node: Node, where: Any, *, of: str = CHANNEL, name: str = DERIVED) -> Any:
    known = next((each for each in node.channels() if each.name == name), None)
    return node.channel(of, Count).derive(name, where) if known is None else known


def _subscribe(node: Node, kind: str, name: str, seen: list[int], path: Path) -> Any:
    """A durable sink of a kind; all of them want all events."""
    channel = node.channel(CHANNEL, Count)

    def take(event: Any, about: Any) -> None:
        seen.append(event.n)
        if kind == "manual":
            about.acknowledge()

    match kind:
        case "derived":
            channel = _derived(node, "n >= 0")
        case "derived with output":
            channel = _derived(node, Interest(DOUBLE, Count, output=Double))
        case "derived twice":
            _derived(node, "n >= 0")
            channel = _derived(node, Interest(DOUBLE, Count, output=Double), of=DERIVED, name=TWICE)
        case "derived with state":
            channel = _derived(node, ALWAYS)
        case "pattern":
            return node.subscribe("test.**", take, name=name, delivery=DURABLE)
    where = {
        "stateful": ALWAYS,
        "output": Interest(DOUBLE, Count, output=Double),
        "filter": "n >= 0",
        "derived twice": "twice >= 0",
    }.get(kind)
    more: dict[str, Any] = {"history": {"history": 5}, "by time": {"order": "timestamp"}, "rate": {"rate": 1e6}}
    delivery = DURABLE
    if kind == "manual":
        delivery = Reliable(durable=True, acknowledge="manual")
    elif kind == "within":
        kept = sqlite3.connect(path / f"{name}.db", check_same_thread=False, isolation_level=None)
        delivery = Reliable(durable=True, within=kept)
    return channel.subscribe(take, where, name=name, delivery=delivery, **more.get(kind, {}))


@dataclass
class Scene:
    """A source at `lab`, which may go to `hall`, and two durable sinks at `desk`: one without a filter, which was there
    first, and the `late` one, of some kind, which is to come back."""

    make: Nodes
    path: Path
    kind: str
    first: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    published: int = 0

    def begin(self) -> None:
        self.at("hub")
        self.lab, self.hall = self.at("lab"), self.at("hall")
        self.hall.channel(CHANNEL, Count)
        self.source: Any = self.lab.channel(CHANNEL, Count).source("s")
        self.desk = self.at("desk")
        self.first_comes()
        assert self.desk.until(lambda: self.desk.has_channel(CHANNEL), GUARD)
        self.late_comes()
        self.in_force()

    def at(self, name: str) -> Node:
        return place(self.make, name, self.path)

    def first_comes(self) -> None:
        _subscribe(self.desk, "plain", "first", self.first, self.path)

    def late_comes(self) -> None:
        self.sink = _subscribe(self.desk, self.kind, "late", self.late, self.path)

    def in_force(self) -> None:
        for node in (self.lab, self.hall):
            if not node.closed:
                see(self.desk, node)
        assert self.desk.ready(GUARD)

    def publish(self, *, late: bool = False) -> None:
        """Ten more, which the first has, or both."""
        for n in range(self.published, self.published + 10):
            self.source.publish(Count(n))
        self.published += 10
        if not self.desk.closed:
            eventually(lambda: len(self.first) >= self.published, f"the first has all: {self.first[-3:]}")
        if late:
            eventually(lambda: len(self.late) >= self.published, f"the late one has all: {self.late}")

    def close(self, node: Node) -> None:
        node.close(drain=False, timeout=0.0)


def restarted(scene: Scene) -> None:
    """Its node, and the first is back, and has what it missed, before it is."""
    scene.publish(late=True)
    scene.sink.cancel()
    scene.publish()
    scene.close(scene.desk)
    scene.publish()
    scene.desk = scene.at("desk")
    scene.first_comes()
    scene.in_force()
    scene.publish()


def cancelled(scene: Scene) -> None:
    """It alone."""
    scene.publish(late=True)
    scene.sink.cancel()
    scene.publish()


def before_anything(scene: Scene) -> None:
    """The same, and nothing was published yet."""
    scene.sink.cancel()
    assert scene.desk.ready(GUARD)


def moved(scene: Scene) -> None:
    """The source goes to another node meanwhile."""
    cancelled(scene)
    scene.source = scene.hall.resume_source(scene.source.move())
    scene.publish()


def here_and_away(scene: Scene) -> None:
    """The source comes to the sinks' own node, and leaves it."""
    cancelled(scene)
    for node in (scene.desk, scene.hall):
        scene.source = node.resume_source(scene.source.move())
        scene.publish()


def comes_here(scene: Scene) -> None:
    """Its node is started again, and the source moves there before the sinks are back: what its old node still has for
    them is not taken."""
    scene.publish(late=True)
    scene.close(scene.desk)
    scene.publish()
    scene.desk = scene.at("desk")
    see(scene.desk, scene.lab)
    scene.source = scene.desk.resume_source(scene.source.move(), timeout=GUARD)
    scene.first_comes()
    scene.late_comes()
    scene.in_force()
    scene.publish()


def follows(scene: Scene) -> None:
    """Its node is started again, and the source moves there when the sinks are back, and may not have all yet."""
    scene.publish(late=True)
    scene.close(scene.desk)
    scene.publish()
    scene.desk = scene.at("desk")
    scene.first_comes()
    scene.late_comes()
    scene.source = scene.desk.resume_source(scene.source.move(), timeout=GUARD)


def here(scene: Scene) -> None:
    """The source comes to the sinks' own node, and that is started again, and once more."""
    cancelled(scene)
    scene.source = scene.desk.resume_source(scene.source.move())
    scene.publish()
    scene.late_comes()
    scene.publish(late=True)
    for _ in range(2):
        scene.close(scene.desk)
        scene.desk = scene.at("desk")
        scene.source = scene.desk.channel(CHANNEL, Count).source("s")
        scene.first_comes()
        scene.publish()
    scene.late_comes()
    scene.publish(late=True)
    scene.close(scene.desk)
    scene.desk = scene.at("desk")
    scene.first_comes()
    scene.late_comes()
    scene.source = scene.desk.channel(CHANNEL, Count).source("s")


def made_again(scene: Scene) -> None:
    """The source ends, and begins again."""
    cancelled(scene)
    scene.source.close()
    scene.source = scene.lab.channel(CHANNEL, Count).source("s")


def both_restarted(scene: Scene) -> None:
    """Its node and that of the source, which is made when all sinks are back."""
    cancelled(scene)
    scene.close(scene.desk)
    scene.publish()
    scene.close(scene.lab)
    scene.lab = scene.at("lab")
    channel = scene.lab.channel(CHANNEL, Count)
    scene.desk = scene.at("desk")
    scene.first_comes()
    scene.late_comes()
    scene.source = channel.source("s")
    scene.in_force()


def while_away(scene: Scene) -> None:
    """It is back while the source's node, to which that has moved, is started again."""
    cancelled(scene)
    scene.source = scene.hall.resume_source(scene.source.move())
    scene.publish()
    scene.close(scene.hall)
    gone = lambda: all(each.local for each in scene.desk.channel(CHANNEL).sources.values())  # noqa: E731
    eventually(gone, "the source is not there", GUARD)
    scene.late_comes()
    scene.hall = scene.at("hall")
    scene.source = scene.hall.channel(CHANNEL, Count).source("s")
    scene.in_force()


def paused(scene: Scene) -> None:
    """It is paused while the source's node is started again."""
    scene.publish(late=True)
    scene.sink.pause()
    scene.publish()
    scene.close(scene.lab)
    scene.lab = scene.at("lab")
    scene.source = scene.lab.channel(CHANNEL, Count).source("s")
    scene.in_force()
    scene.publish()
    scene.sink.resume()


def before_the_first(scene: Scene) -> None:
    """Its node is started again, and it is back before the other one."""
    scene.publish(late=True)
    scene.close(scene.desk)
    scene.publish()
    scene.desk = scene.at("desk")
    scene.late_comes()
    scene.in_force()
    scene.first_comes()


KINDS = ("filter", "derived", "derived with output", "derived twice", "derived with state", "pattern", "stateful",
         "output", "history", "manual", "by time", "rate", "within")  # fmt: skip
WAYS = (restarted, cancelled, before_anything, moved, here_and_away, comes_here, follows, here, made_again,
        both_restarted, while_away, paused, before_the_first)  # fmt: skip
BACK = (comes_here, follows, here, both_restarted, while_away, paused, before_the_first)  # in these it is back already
CASES = [(kind, way) for kind in KINDS for way in WAYS]


@pytest.mark.parametrize(("kind", "way"), CASES, ids=[f"{kind}-{way.__name__}" for kind, way in CASES])
def test_it_has_all_in_order_and_once(kind: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.federation.interests.installer.RETURN_SECONDS", 0.1)
    with nodes() as make:
        scene = Scene(make, tmp_path, kind)
        scene.begin()
        way(scene)
        if way not in BACK:
            scene.late_comes()
        scene.in_force()
        scene.publish(late=True)
        assert scene.late == scene.first == list(range(scene.published))


def test_many_that_come_back_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More questions than are remembered, with events between them."""
    monkeypatch.setattr("headwater.federation.interests.installer.RETURN_SECONDS", 0.1)
    with nodes() as make:
        scene = Scene(make, tmp_path, "filter")
        scene.begin()
        more: dict[str, list[int]] = {f"sink {number}": [] for number in range(20)}
        for name, seen in more.items():
            _subscribe(scene.desk, "filter", name, seen, tmp_path)
        scene.in_force()
        scene.publish(late=True)
        eventually(lambda: all(len(seen) == 10 for seen in more.values()), "all came")
        scene.close(scene.desk)
        scene.publish()
        scene.desk = scene.at("desk")
        scene.first_comes()
        scene.in_force()
        for name, seen in more.items():
            _subscribe(scene.desk, "filter", name, seen, tmp_path)
            scene.publish()
        scene.late_comes()
        scene.publish(late=True)
        eventually(lambda: all(len(seen) >= scene.published for seen in more.values()), "all came")
        assert all(seen == list(range(scene.published)) for seen in (scene.first, scene.late, *more.values()))


@pytest.mark.parametrize("refused", [False, True])
def test_one_whose_interest_with_state_runs_at_its_own_node(refused: bool, tmp_path: Path) -> None:
    """Its events come with those of filters: what it missed is asked for as theirs is."""
    with nodes() as make:
        budget = Budget(parts=3) if refused else Budget()
        network = Network(listen="tcp/127.0.0.1:0", budget=budget)
        lab = make("lab", state=tmp_path / "lab.state", log=str(tmp_path / "lab.log"), network=network)
        source = lab.channel(CHANNEL, Count).source("s")
        seen: list[int] = []

        def begin() -> Node:
            placed = Network(connect=lab.endpoints[0], placement="auto" if refused else "destination")
            desk = make("desk", state=tmp_path / "desk.state", network=placed)
            _subscribe(desk, "stateful", "sink", seen, tmp_path)
            see(desk, lab)
            assert desk.ready(GUARD)
            return desk

        desk = begin()
        for n in range(10):
            source.publish(Count(n))
        eventually(lambda: len(seen) == 10, "all came")
        desk.close(drain=False, timeout=0.0)
        for n in range(10, 20):
            source.publish(Count(n))
        begin()
        for n in range(20, 30):
            source.publish(Count(n))
        eventually(lambda: 29 in seen, "the last came")
        assert seen == list(range(30))


class Held:
    """A handler that waits before one event until it is let go."""

    def __init__(self, *before: int) -> None:
        self.gates, self.seen = {n: threading.Event() for n in before}, list[int]()

    def __call__(self, event: Count) -> None:
        if event.n in self.gates:
            self.gates[event.n].wait(GUARD)
        self.seen.append(event.n)


@pytest.mark.parametrize("limit", [16, 400_000])
def test_one_that_was_paused_while_its_source_is_made_again_and_the_log_still_read(limit: int, tmp_path: Path) -> None:
    """The lane of the source's earlier life reads the log for a slow sink; what the paused one asks for is read by that
    of the next one: both would bring the same."""
    with nodes() as make:
        desk = make("desk", config=Config(queue=Queue(limit=400_000)), state=tmp_path / "desk.state")
        link = Queue(limit=64, policy="block")
        lab = make("lab", network=Network(connect=desk.endpoints[0], link=link), log=str(tmp_path / "lab.log"))
        make.together(desk, lab)
        slow, paused_one = Held(1, 20_000), Held(16_000)
        there = desk.channel(CHANNEL, Count)
        room = Queue(limit=limit)
        sink = there.subscribe(paused_one, dispatch="pool", name="paused", queue=room, delivery=DURABLE)
        there.subscribe(slow, dispatch="pool", name="slow", delivery=DURABLE)
        channel = lab.channel(CHANNEL, Count)
        source = channel.source("s")
        make.ready(desk)
        for n in range(1, 201):  # more than the lane takes: the rest is read from the log
            source.publish(Count(n))
        eventually(lambda: len(paused_one.seen) >= 16, "it has some")
        source.publish_many([Count(n) for n in range(201, MANY)])
        sink.pause()
        source.close()
        channel.source("s").publish(Count(MANY))
        slow.gates[1].set()
        eventually(lambda: len(slow.seen) >= 19_999, "the slow one is in the midst of it")
        sink.resume()
        eventually(lambda: len(paused_one.seen) >= 15_999, "it goes on")
        slow.gates[20_000].set()
        eventually(lambda: len(slow.seen) >= 30_000, "so does the slow one")
        paused_one.gates[16_000].set()
        for each in (slow, paused_one):
            eventually(lambda each=each: each.seen[-1] == MANY, "the last came")  # type: ignore[misc]
            assert each.seen == list(range(1, MANY + 1))
