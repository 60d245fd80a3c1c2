"""Sources that log and are killed: their log is known again, and reliable sinks get what they miss, each event once."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Event, Log, Network, Node, Queue, Reliable, i64
from headwater.federation.wire.control import SourceAd
from tests.effort import EFFORT, rounds
from tests.federation.nodes import GUARD, eventually, nodes, see
from tests.federation.nodes import Log as Seen
from tests.federation.processes import World, world

CHANNEL = "test.count"
AWAY = 6_000 if EFFORT == 1 else 20_000  # events that are published while a sink is cut off
ROLLING = {"roll_bytes": 16_384}
SINKS = {  # by name: what it wants, and which events these are, as far as their numbers tell
    "all": None,
    "third": "n % 3 == 0",
    "low": "level < 30",
    "fourth": "transformation",
}


class Count(Event, name="test.Count"):
    maker: str
    n: i64
    level: i64 = 0


def wanted(name: str, n: int) -> bool:
    match name:
        case "third":
            return n % 3 == 0
        case "low":
            return n * 7919 % 100 < 30
        case "fourth":
            return n % 4 == 0
    return True


class Life:
    """A source that is killed again and again, and what its sinks must have seen in the end."""

    def __init__(self, made: World, name: str, *, state: bool, many: bool = False, pace: int = 5) -> None:
        self.world, self.name, self.state, self.many, self.pace = made, name, state, many, pace
        self.done: dict[str, int] = {}

    @property
    def maker(self) -> str:
        return f"{self.name}-{self.world.life(self.name)}"

    @property
    def _path(self) -> str:
        return self.world.path(f"{self.name}.published")

    def open(self, *seeds: str) -> None:
        self.world.open(self.name, seeds=seeds, state=self.state, log=ROLLING, lease=1.0)

    def flow(self) -> None:
        made = {"maker": self.maker, "path": self._path, "pace": self.pace, "many": self.many}
        self.world[self.name]("flow", channel=CHANNEL, source=self.name, **made)

    def kill(self) -> None:
        maker = self.maker
        self.world.kill(self.name)
        self.done[maker] = int(Path(f"{self._path}.{maker}").read_text() or 0)

    def stop(self) -> dict[str, int]:
        """What it has published in this life, at least something: when the last of it has come, so has the rest."""
        made, maker = self.world[self.name], self.maker
        eventually(lambda: made("published")[maker] > 100, "some events", GUARD)
        published: dict[str, int] = made("stop")
        self.done.update(published)
        return published

    def check(self, sink: str, log: Path, *, from_the_first: bool = True) -> None:
        """Every event whose publish had returned came once, in order; perhaps one or a batch that was cut off too."""
        got: dict[str, list[int]] = {}
        for line in log.read_text().splitlines():
            _, _, maker, n, _, again = line.split()
            numbers = got.setdefault(maker, [])
            if maker.startswith(f"{self.name}-") and not (again == "1" and numbers[-1:] == [int(n)]):
                numbers.append(int(n))
        for maker, last in self.done.items():
            numbers = got.get(maker, [])
            begun = 1 if from_the_first or not maker.endswith("-1") else (numbers or [last + 1])[0]
            expected = [n for n in range(begun, max(last, numbers[-1] if numbers else 0) + 1) if wanted(sink, n)]
            assert numbers == expected, f"{sink} of {maker}, of {last}: {_difference(numbers, expected)}"


def _difference(got: list[int], expected: list[int]) -> str:
    missing, extra = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    twice = sorted(n for n in set(got) if got.count(n) > 1)
    return f"missing {missing[:10]}, not expected {extra[:10]}, twice {twice[:10]}, {len(got)} in all"


def subscribe(made: World, node: str, *, durable: bool = False) -> None:
    for name, where in SINKS.items():
        made[node]("sink", channel=CHANNEL, name=name, path=made.path(name), where=where, durable=durable)


def until_seen(made: World, node: str, published: dict[str, int]) -> None:
    for name in SINKS:
        last = {maker: next(n for n in range(end, -1, -1) if wanted(name, n)) for maker, end in published.items()}
        came = made[node]("came", sink=name, wanted=last)
        assert came is True, f"{name} waits for {last}, has {came}\n{made[node].log()}"


@pytest.mark.parametrize(("state", "many"), [(True, False), (False, True)], ids=["same key", "new key, batches"])
def test_a_killed_source_that_is_started_again_loses_nothing(state: bool, many: bool) -> None:
    with world() as made:
        source = Life(made, "hill", state=state, many=many, pace=40)
        for name in ("hall", "hill"):
            made.start(name)
        made.open("hall", lease=1.0)
        subscribe(made, "hall")
        for life in range(rounds(2, 3)):
            source.open("hall")
            source.flow()
            if life == 1:  # it may be that nobody has heard of it
                made["hall"]("more", sink="all", count=20, timeout=0.5)
            else:
                assert made["hall"]("came", sink="all", wanted={source.maker: 50}) is True
            source.kill()
        source.open("hall")
        source.flow()
        assert made["hall"]("came", sink="all", wanted={source.maker: 50}) is True
        until_seen(made, "hall", source.stop())
        for name in SINKS:
            source.check(name, Path(made.path(name)), from_the_first=False)
        assert made["hall"]("offences") == {}


@pytest.mark.parametrize("first", [1, 0], ids=["something came", "nothing came"])
def test_an_interest_goes_on_in_the_next_life_of_a_source_though_it_had_passed_nothing(first: int) -> None:
    """It held at the source since that was made: what it would have passed is owed to its sink, as to any other."""
    sinks = {"first": "level == 1", "fourth": "transformation"}
    with world() as made:
        for name in ("hall", "hill"):
            made.start(name)
        hall = made["hall"]

        def publish(maker: str, *numbers: int) -> None:
            made["hill"]("publish", source="hill", events=[{"maker": maker, "n": n, "level": first} for n in numbers])

        made.open("hall", lease=1.0)
        for name, where in sinks.items():
            hall("sink", channel=CHANNEL, name=name, path=made.path(name), where=where)
        for life in (1, 2):
            if life == 2:
                made.kill("hill")
                made.wires.cut("hall")  # nobody hears of what is published first
            made.open("hill", seeds=["hall"], log=ROLLING, lease=1.0)
            made["hill"]("channel", name=CHANNEL, type="count")
            if life == 1:  # they hold before the source is made
                made["hill"]("source", channel=CHANNEL, name="another")
                assert sum(made["hill"]("wishes", channel=CHANNEL, wanted=2).values()) == 2
            made["hill"]("source", channel=CHANNEL, name="hill")
            publish(f"hill-{life}", *((1,) if life == 1 else (4, 8)))
            if life == 1:
                assert hall("announced", channel=CHANNEL, sources=["hill@hill"]) is True
                assert hall("came", sink="first", wanted={"hill-1": first}) is True
        made.wires.heal("hall")
        assert sum(made["hill"]("wishes", channel=CHANNEL, wanted=2).values()) == 2
        publish("hill-2", 12)
        for name in ("fourth", *(["first"] if first else [])):
            assert hall("came", sink=name, wanted={"hill-2": 12}) is True
            lines = [line.split() for line in Path(made.path(name)).read_text().splitlines()]
            assert [int(n) for _, _, maker, n, _, _ in lines if maker == "hill-2"] == [4, 8, 12]


def test_killed_in_the_middle_of_catching_up() -> None:
    """The next life goes on from what has come, however far that was."""
    pick = random.Random(5)
    with world() as made:
        source = Life(made, "hill", state=False, pace=200)
        for name in ("hall", "hill"):
            made.start(name)
        made.open("hall", lease=1.0)
        subscribe(made, "hall")
        source.open("hall")
        source.flow()
        assert made["hall"]("came", sink="all", wanted={"hill-1": 100}) is True
        made.wires.cut("hall")
        assert made["hall"]("alone", unwanted=["hill"]) is True
        eventually(lambda: made["hill"]("published")["hill-1"] > AWAY, f"{AWAY:,} events", GUARD)
        for _ in range(rounds(2, 4)):
            source.kill()
            made.wires.heal("hall")
            source.open("hall")
            source.flow()
            if pick.random() < 0.7:
                made["hall"]("more", sink="all", count=pick.choice((1, 500, 5000)), timeout=5.0)
        until_seen(made, "hall", source.stop())
        for name in SINKS:
            source.check(name, Path(made.path(name)), from_the_first=False)


def test_a_durable_sink_is_killed_too() -> None:
    with world() as made:
        source = Life(made, "hill", state=False, pace=20)
        for name in ("inn", "desk", "hill"):
            made.start(name)
        made.open("inn", router=True, lease=1.0)
        made.open("desk", seeds=["inn"], state=True, lease=1.0)
        subscribe(made, "desk", durable=True)
        source.open("inn")
        source.flow()
        for name in SINKS:
            assert made["desk"]("more", sink=name, count=20) is True
        for first in ("desk", "hill") * EFFORT:
            made.kill("desk")
            source.kill()
            for name in (first, "hill" if first == "desk" else "desk"):
                if name == "hill":
                    source.open("inn")
                    source.flow()
                else:
                    made.open("desk", seeds=["inn"], state=True, lease=1.0)
                    subscribe(made, "desk", durable=True)
            assert made["desk"]("came", sink="all", wanted={source.maker: 50}) is True
        until_seen(made, "desk", source.stop())
        for name in SINKS:
            source.check(name, Path(made.path(name)), from_the_first=False)


def test_an_interest_with_state_goes_on_where_it_was() -> None:
    with world() as made:
        source = Life(made, "hill", state=True, pace=20)
        for name in ("hall", "hill"):
            made.start(name)
        made.open("hall", lease=1.0)
        made["hall"]("sink", channel=CHANNEL, name="state", path=made.path("state"), where="state")
        source.open("hall")
        source.flow()
        for _ in range(2):
            assert made["hall"]("more", sink="state", count=50) is True
            source.kill()
            source.open("hall")
            source.flow()
        assert made["hall"]("more", sink="state", count=50) is True
        source.stop()
        assert made["hill"]("flush") is True
        seqs = [int(line.split()[1]) for line in Path(made.path("state")).read_text().splitlines()]
        assert seqs == list(range(seqs[0], seqs[-1] + 1, 3))  # one in three, counted over all lives


# ── in one process ──


def counts(log: Seen) -> list[int]:
    return [event.n for event in log.events]


def test_a_full_lane_reads_the_log_and_nobody_waits(tmp_path: Path) -> None:
    """What the publisher would have to wait for is in the log: it is read from there when the sink goes on."""
    with nodes() as make:
        link = Queue(limit=64, policy="fail")
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", link=link), log=tmp_path)
        desk = make("desk", config=Config(queue=Queue(limit=16)))
        make.together()
        going, logs = threading.Event(), {"n % 2 == 0": Seen(), "level == 3": Seen()}

        def held(log: Seen) -> Any:
            def handle(event: Any) -> None:
                going.wait(GUARD)
                log(event)

            return handle

        channel = desk.channel(CHANNEL, Count)
        for where, log in logs.items():
            channel.subscribe(held(log), where, dispatch="pool")
        source = lab.channel(CHANNEL, Count).source("hill")
        make.ready(desk)
        for n in range(1, 4001):
            source.publish(maker="a", n=n, level=n % 10)
        source.publish_many([Count(maker="a", n=n, level=n % 10) for n in range(4001, 5001)])
        going.set()
        for n in range(5001, 6001):
            source.publish(maker="a", n=n, level=n % 10)
        logs["n % 2 == 0"].wait(3000)
        logs["level == 3"].wait(600)
        make.flush()
        assert counts(logs["n % 2 == 0"]) == list(range(2, 6001, 2))
        assert counts(logs["level == 3"]) == list(range(3, 6001, 10))


def test_history_of_a_source_that_was_started_again(tmp_path: Path) -> None:
    with nodes() as make:
        first = Node("lab", log=tmp_path)
        source = first.channel(CHANNEL, Count).source("hill")
        source.publish_many([Count(maker="a", n=n) for n in range(1, 5001)])
        first.close()
        lab = make("lab", log=tmp_path)
        desk = make("desk")
        make.together()
        source = lab.channel(CHANNEL, Count).source("hill")
        see(desk, lab)
        logs = {"all": Seen(), 10: Seen(), None: Seen()}
        channel = desk.channel(CHANNEL)
        for history, log in logs.items():
            channel.subscribe(log, "n % 5 == 0", history=history)
        make.ready(desk)
        source.publish(maker="a", n=5005)
        for log in logs.values():
            log.until(lambda events: bool(events) and events[-1].n == 5005)
        assert counts(logs["all"]) == list(range(5, 5006, 5))
        assert counts(logs[10]) == list(range(4955, 5006, 5))
        assert counts(logs[None]) == [5005]


def test_sinks_that_come_later_begin_with_the_present(tmp_path: Path) -> None:
    """How far earlier ones were does not concern them."""
    with nodes() as make:
        lab = make("lab", log=tmp_path)
        desk = make("desk")
        make.together()
        source = lab.channel(CHANNEL, Count).source("hill")
        see(desk, lab)
        channel = desk.channel(CHANNEL, Count)
        early = Seen()
        with channel.subscribe(early):
            make.ready(desk)
            source.publish(maker="a", n=1)
            early.wait(1)
            make.flush()
        assert lab.until(lambda: not any(peer.crossings.get(CHANNEL) for peer in lab._engine.everyone()))  # type: ignore[union-attr]
        source.publish(maker="a", n=2)
        late = Seen()
        channel.subscribe(late)
        make.ready(desk)
        source.publish(maker="a", n=3)
        late.wait(1)
        make.flush()
        assert (counts(early), counts(late)) == ([1], [3])


def test_positions_are_kept_by_log(tmp_path: Path) -> None:
    """A durable sink is known to a source that has another key now, and was closed in between."""
    with nodes() as make:
        hub = make("hub")
        logs: list[list[int]] = []

        def desk() -> Node:
            node = make("desk", state=tmp_path / "desk.state")
            seen: list[int] = []
            logs.append(seen)
            take = lambda event: seen.append(event.n)  # noqa: E731
            node.channel(CHANNEL, Count).subscribe(take, name="desk", delivery=Reliable(durable=True))
            return node

        for life in range(3):
            lab = make("lab", log=Log(tmp_path / "log", roll_bytes=4096))
            source = lab.channel(CHANNEL, Count).source("hill")
            assert source.seq == 200 * life
            node = desk()
            see(node, lab)
            assert node.ready(GUARD)
            for n in range(100):
                source.publish(maker="a", n=200 * life + n)
            eventually(lambda: bool(logs[-1]) and logs[-1][-1] % 200 == 99, "events")
            make.flush()
            node.close()
            for n in range(100, 200):  # nobody is there
                source.publish(maker="a", n=200 * life + n)
            lab.close()
        lab = make("lab", log=tmp_path / "log")
        lab.channel(CHANNEL, Count).source("hill")
        desk()
        eventually(lambda: bool(logs[-1]) and logs[-1][-1] == 599, "the rest")
        assert [n for seen in logs for n in seen] == list(range(600))
        assert hub.peers


def test_an_ad_says_which_log() -> None:
    assert SourceAd(1, "a", "b").log == ""
