"""A storm: sinks and sources go from node to node at random, some at the same time, each node in a process of its own,
while nodes are killed. Sources are logged and sinks durable: of what was published nothing is lost, each sink has it in
order, what comes again says so, and no number was given twice. Each source has a durable group as well, whose members
stay where they are: each event is handled by one of them, or again by another, which is told so.

Everything that happens follows from a seed, but for what the machine adds: where in the midst of something a process is
killed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from headwater.store.log import ChannelReader
from headwater.testing import eventually
from tests.federation.processes import World

PAUSE = 0.02  # seconds between two bursts of a source
PACE = 2  # events in each
SOME = 5  # events that a sink is to have, or a source to publish, between two things that happen to it
KILLS = ("old", "new", "source", "another")  # who may be killed with a move
MOMENTS = ("before", "during", "after")  # it arrives
EVERY = 7  # of some sinks: one event in so many is acknowledged
GROUP, MEMBERS = "workers", 2  # of each source
GROUP_SECONDS = 240.0  # against hanging
TOGETHER = (1, 1, 2, 3)  # how many move at the same time
Say = Callable[[str], object]


class Movable(Protocol):
    """Something that is at one node at a time, and goes on at another."""

    name: str
    at: str  # the name of its node
    channel: str

    def settle(self, storm: Storm) -> None:
        """Wait until it works where it is."""
        ...

    def leave(self, storm: Storm) -> str:
        """It leaves its node, or may from here on: what the next one is told."""
        ...

    def set_out(self, storm: Storm, node: str, token: str) -> None:
        """It is to go on there; the node's answer says when it does."""
        ...

    def come_back(self, storm: Storm) -> None:
        """Its node was killed, and is started again."""
        ...

    def come_back_leaving(self, storm: Storm) -> None:
        """The same, after it has left, or might have."""
        ...


@dataclass
class MovingSink:
    """A durable subscription to a channel with one source. With `every`, it acknowledges one event in so many."""

    name: str
    at: str
    channel: str
    every: int = 0

    def begin(self, storm: Storm) -> None:
        """It is subscribed for the first time, or again under its name."""
        path = storm.log(self.name)
        storm.world[self.at]("sink", channel=self.channel, name=self.name, path=path, durable=True, every=self.every)

    come_back = begin

    def settle(self, storm: Storm) -> None:
        assert storm.world[self.at]("more", sink=self.name, count=SOME) is True, f"{self.name} has nothing at {self.at}"

    def leave(self, storm: Storm) -> str:
        return str(storm.world[self.at]("move", sink=self.name))

    def set_out(self, storm: Storm, node: str, token: str) -> None:
        storm.world[node].start("resume", token=token, name=self.name, path=storm.log(self.name), every=self.every)

    def come_back_leaving(self, storm: Storm) -> None:
        """It does not."""


@dataclass
class MovingSource:
    """A logged source that publishes wherever it is."""

    name: str
    at: str
    channel: str
    makers: list[str] = field(default_factory=list)  # one for each place and life of its process: who publishes
    maker: str = ""  # that publishes now, or will when it has arrived

    def _flow(self, storm: Storm) -> dict[str, Any]:
        self.makers.append(f"{self.name}.{len(self.makers)}")
        return {"maker": self.makers[-1], "pace": PACE, "pause": PAUSE, "path": storm.log(self.name)}

    def begin(self, storm: Storm) -> None:
        """It is made for the first time, or again under its name."""
        storm.world[self.at]("flow", channel=self.channel, source=self.name, **self._flow(storm))
        self.maker = self.makers[-1]

    come_back = begin

    def settle(self, storm: Storm) -> None:
        found = storm.world[self.at]("publishes", maker=self.maker, count=SOME)
        assert found is True, f"{self.name} publishes nothing at {self.at}"

    def leave(self, storm: Storm) -> str:
        return str(storm.world[self.at]("move_source", maker=self.maker))

    def set_out(self, storm: Storm, node: str, token: str) -> None:
        storm.world[node].start("resume_source", token=token, **self._flow(storm))
        self.maker = self.makers[-1]

    def come_back_leaving(self, storm: Storm) -> None:
        """It goes on here until it is claimed; it may have been."""
        storm.world[self.at]("flow_if_here", channel=self.channel, source=self.name, **self._flow(storm))


@dataclass
class Member:
    """One of a durable group of a channel with one source; it does not move."""

    name: str
    at: str
    channel: str

    def begin(self, storm: Storm) -> None:
        """It is subscribed for the first time, or again."""
        path = storm.log(self.name)
        storm.world[self.at]("sink", channel=self.channel, name=self.name, path=path, durable=True, group=GROUP)


@dataclass
class Journey:
    """Something on its way to another node."""

    it: Movable
    new: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.it.name}: {self.it.at} to {self.new}"


@dataclass
class Storm:
    """Some nodes, with sources and sinks at them in turn. `order` is what has happened, for people; `waits` how long
    each kind of thing has taken at most, in seconds, and where in that order."""

    world: World
    seed: int
    sinks: int
    sources: int
    nodes: Sequence[str] = ("n0", "n1", "n2", "n3", "n4")
    say: Say = lambda text: None
    order: list[str] = field(default_factory=list)
    waits: dict[str, tuple[float, str]] = field(default_factory=dict)
    kills: int = 0
    moves: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._opened: set[str] = set()
        self.flows = [MovingSource(f"s{k}", self.nodes[k % len(self.nodes)], f"test.c{k}") for k in range(self.sources)]
        self.readers = [
            MovingSink(
                f"k{j}",
                self.nodes[(j * 2 + 1) % len(self.nodes)],
                self.flows[j % self.sources].channel,
                EVERY if j % 3 == 2 else 0,
            )
            for j in range(self.sinks)
        ]
        self.movables: list[Movable] = [*self.readers, *self.flows]
        self.members = [
            Member(f"w{k}.{j}", self.nodes[(k + 2 * j + 1) % len(self.nodes)], flow.channel)
            for k, flow in enumerate(self.flows)
            for j in range(MEMBERS)
        ]

    def log(self, name: str) -> str:
        return self.world.path(f"{name}.log")

    # ── what happens ──

    def open(self) -> None:
        for name in self.nodes:
            self.world.start(name)
        for name in self.nodes:
            self._open(name)
        for flow in self.flows:
            flow.begin(self)
        for reader in (*self.readers, *self.members):
            reader.begin(self)
        for flow in self.flows:
            for node in {each.at for each in (*self.readers, *self.members) if each.channel == flow.channel} - {
                flow.at
            }:
                assert self.world[node]("sees", channel=flow.channel, sources=[f"{flow.name}@{flow.at}"]) is True
        for node in self.nodes:
            ready = self.world[node]("ready")
            assert ready is True, f"{node} is not ready: {ready}"

    def _open(self, name: str) -> None:
        seeds = [other for other in self.nodes[:2] if other in self._opened and other != name]
        self._opened.add(name)
        self.world.open(name, seeds=seeds, state=True, log={"channels": "test.**"})

    def step(self) -> None:
        """Some of them move; now and then somebody is killed before they arrive, meanwhile, or after that."""
        journeys = self._journeys()
        killed = self._chance.choice(KILLS) if self._chance.random() < 0.4 else None
        moment = self._chance.choice(MOMENTS)
        victim = self._victim(killed, journeys)
        self.order.append(", ".join(map(str, journeys)) + (f"; {victim} killed {moment}" if victim else ""))
        self.say(self.order[-1])
        self._settle(journeys, "settled before")
        with self._timed("leaving"):
            for each in journeys:
                each.token = each.it.leave(self)
        if victim is not None and moment == "before":
            self._kill(victim, journeys)
        with self._timed("arriving" if victim is None else f"arriving, one killed {moment}"):
            for each in journeys:
                each.it.set_out(self, each.new, each.token)
            if victim is not None and moment == "during":
                self._kill(victim, journeys, answers=True)
            for each in journeys:
                assert self.world[each.new].answer() is True
                each.it.at = each.new
        if victim is not None and moment == "after":
            self._kill(victim)
        self._settle(journeys, "settled" if victim is None else f"settled, one killed {moment}")
        self.moves += len(journeys)

    def _journeys(self) -> list[Journey]:
        """Some that move together: now and then a source and its sinks, which may change places."""
        chosen = self._chance.sample(self.movables, min(self._chance.choice(TOGETHER), len(self.movables)))
        if len(chosen) > 1 and self._chance.random() < 0.5:
            flow = next(each for each in self.flows if each.channel == chosen[0].channel)
            chosen = list({each.name: each for each in (flow, *chosen)}.values())
        return [Journey(it, self._chance.choice([node for node in self.nodes if node != it.at])) for it in chosen]

    def _settle(self, journeys: Sequence[Journey], what: str) -> None:
        with self._timed(what):
            for each in sorted(journeys, key=lambda each: isinstance(each.it, MovingSink)):  # sources first
                each.it.settle(self)

    def _victim(self, killed: str | None, journeys: Sequence[Journey]) -> str | None:
        if killed is None:
            return None
        it, new = journeys[0].it, journeys[0].new
        if killed == "another":
            return self._chance.choice([node for node in self.nodes if node not in (it.at, new)])
        home = next(flow.at for flow in self.flows if flow.channel == it.channel)
        return {"old": it.at, "new": new, "source": home}[killed]

    def _kill(self, name: str, leaving: Sequence[Journey] = (), *, answers: bool = False) -> None:
        """-9, and start it again with what it had, but for what has left it. If it was to answer, it is asked again."""
        self.kills += 1
        self.world.kill(name)
        self.world.start(name)
        self._open(name)
        for member in self.members:
            if member.at == name:
                member.begin(self)
        moving = {each.it.name for each in leaving}
        back = [it for it in self.movables if it.at == name]
        self._chance.shuffle(back)
        for it in back:
            if it.name in moving:
                it.come_back_leaving(self)
            else:
                it.come_back(self)
        for each in leaving if answers else ():
            if each.new == name:
                each.it.set_out(self, name, each.token)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = monotonic()
        yield
        spent = monotonic() - begun
        if spent > self.waits.get(what, (0.0, ""))[0]:
            self.waits[what] = spent, f"{len(self.order)}: {self.order[-1]}"

    # ── what came of it ──

    def counted(self) -> tuple[int, int]:
        """Events that came to sinks, and those of them that said that they come again."""
        found = [line for each in self.readers for line in lines(Path(self.log(each.name)))]
        return len(found), sum(line.again for line in found)

    def wrong_so_far(self) -> list[str]:
        """What is wrong with what has come to sinks until now."""
        had = ((each, Path(self.log(each.name))) for each in self.readers)
        return [f"{each.name} at {each.at}: {what}" for each, path in had if lines(path) for what in wrong(path)]

    def end(self) -> list[str]:
        """All that sources have published is waited for; what is wrong with what the sinks got, or the logs have."""
        last: dict[str, dict[str, int]] = {}
        for flow in self.flows:
            published = self.world[flow.at]("stop")
            last[flow.channel] = {flow.maker: published[flow.maker]}
        problems: list[str] = []
        for reader in self.readers:
            came = self.world[reader.at]("came", sink=reader.name, wanted=last[reader.channel])
            if came is not True:
                problems.append(f"{reader.name} at {reader.at}: expected {last[reader.channel]}, found {came}")
            problems += [f"{reader.name} at {reader.at}: {what}" for what in wrong(Path(self.log(reader.name)))]
            new = marked_though_new(Path(self.log(reader.name)))
            if len(new) > self.kills:  # one for each kill of its node: nobody knows of that one
                problems.append(
                    f"{reader.name} at {reader.at}: {len(new)} said to come again, and were new: {new[:10]}"
                )
        for flow in self.flows:
            problems += self._wrong_with(flow)
            problems += self._wrong_with_group(flow)
        return problems

    def _wrong_with_group(self, flow: MovingSource) -> list[str]:
        """From where it began on, each number was handled, by one who was not told that it came again, or by such."""
        end = max(row["event_seq"] for batch in self._logged(flow).read() for row in batch.to_pylist())
        paths = [Path(self.log(each.name)) for each in self.members if each.channel == flow.channel]

        def handled() -> list[Line]:
            return [line for path in paths for line in lines(path)]

        def missing() -> set[int]:
            found = {line.seq for line in handled()}
            return set(range(min(found, default=1), end + 1)) - found

        try:
            eventually(lambda: not missing(), "all is handled", GROUP_SECONDS)
        except AssertionError:
            return [f"{flow.name}: its group has not handled {len(missing())} of {end:,}: {sorted(missing())[:10]}"]
        first = Counter(line.seq for line in handled() if not line.again)
        twice = [seq for seq, times in first.items() if times > 1]
        return [f"{flow.name}: its group has handled {twice[:10]} twice, and nobody was told"] if twice else []

    def _logged(self, flow: MovingSource) -> ChannelReader:
        return ChannelReader(self.world.path("events"), flow.channel)

    def _wrong_with(self, flow: MovingSource) -> list[str]:
        """The log of all nodes together has each number once, and all for which `publish` has returned; sinks have
        under each number what the log has."""
        rows = [row for batch in self._logged(flow).read() for row in batch.to_pylist()]
        logged = {row["event_seq"]: (row["maker"], row["n"]) for row in rows}
        found = [] if len(logged) == len(rows) else [f"{flow.name}: {len(rows) - len(logged)} numbers are logged twice"]
        if sorted(logged) != list(range(1, len(logged) + 1)):
            found.append(f"{flow.name}: its numbers do not follow on each other in the log")
        for maker in flow.makers:
            done = Path(f"{self.log(flow.name)}.{maker}")
            published = int(done.read_text() or 0) if done.exists() else 0
            numbers = sorted(n for its, n in logged.values() if its == maker)
            if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < published:
                found.append(f"{flow.name}: {maker} has published {published:,}, found {len(numbers):,} in the log")
        for sink in (each for each in self.readers if each.channel == flow.channel):
            other = [line for line in lines(Path(self.log(sink.name))) if logged.get(line.seq) != (line.maker, line.n)]
            found += [f"{sink.name}: {line} came, and the log has {logged.get(line.seq)}" for line in other[:3]]
        return found


@dataclass(frozen=True)
class Line:
    """An event that a sink has written down: its number, who published it, as which, whether it says to come again."""

    seq: int
    maker: str
    n: int
    again: bool


def lines(path: Path) -> list[Line]:
    """What a sink has written down."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [Line(int(row[1]), row[2], int(row[3]), row[5] == "1") for row in rows]


def wrong(path: Path) -> list[str]:
    """What is wrong with what a sink has written down of one source: each number follows on the one before, or has come
    before and says so."""
    rows = lines(path)
    found, highest = [], 0
    for row in rows:
        if highest and row.seq > highest + 1:
            found.append(f"{row.seq} came after {highest}: {row.seq - highest - 1} events are missing, or came later")
        elif row.seq <= highest and not row.again:
            found.append(f"{row.seq} came after {highest}, and does not say that it comes again")
        highest = max(highest, row.seq)
    return found if rows else ["nothing came"]


def marked_though_new(path: Path) -> list[int]:
    """Events that say to come again, and had not come before."""
    found, highest = [], 0
    for row in lines(path):
        if row.again and row.seq > highest:
            found.append(row.seq)
        highest = max(highest, row.seq)
    return found


__all__ = ["Movable", "MovingSink", "MovingSource", "Storm", "wrong"]
