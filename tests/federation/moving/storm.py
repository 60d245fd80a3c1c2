"""A storm: sinks, and whatever else moves, go from node to node at random, each in a process of its own, while nodes
are killed. Sources are logged and sinks durable: of what was published nothing is lost, and each sink has it in order;
what comes again says so.

Everything that happens follows from a seed, but for what the machine adds: where in the midst of something a process is
killed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.federation.processes import World

PAUSE = 0.02  # seconds between two bursts of a source
PACE = 2  # events in each
SOME = 5  # events that a sink is to have between two things that happen to it
KILLS = ("old", "new", "source", "another")  # who may be killed with a move
Say = Callable[[str], object]


class Movable(Protocol):
    """Something that is at one node at a time, and goes on at another."""

    name: str
    at: str  # the name of its node

    def settle(self, storm: Storm) -> None:
        """Wait until it works where it is."""
        ...

    def leave(self, storm: Storm) -> str:
        """It leaves its node: what the next one is told."""
        ...

    def arrive(self, storm: Storm, node: str, token: str) -> None:
        """It goes on there."""
        ...

    def come_back(self, storm: Storm) -> None:
        """Its node was killed, and is started again."""
        ...


@dataclass
class MovingSink:
    """A durable subscription to a channel with one source."""

    name: str
    at: str
    channel: str

    def begin(self, storm: Storm) -> None:
        """It is subscribed for the first time, or again under its name."""
        storm.world[self.at]("sink", channel=self.channel, name=self.name, path=storm.log(self.name), durable=True)

    come_back = begin

    def settle(self, storm: Storm) -> None:
        assert storm.world[self.at]("more", sink=self.name, count=SOME) is True, f"{self.name} has nothing at {self.at}"

    def leave(self, storm: Storm) -> str:
        return str(storm.world[self.at]("move", sink=self.name))

    def arrive(self, storm: Storm, node: str, token: str) -> None:
        storm.world[node]("resume", token=token, name=self.name, path=storm.log(self.name))
        self.at = node


@dataclass
class FixedSource:
    """A logged source that stays at its node, and goes on there when that is started again."""

    name: str
    at: str
    channel: str
    makers: list[str] = field(default_factory=list)  # one for each life of its process

    def begin(self, storm: Storm) -> None:
        self.makers.append(f"{self.name}.{storm.world.life(self.at)}")
        flow = {"channel": self.channel, "source": self.name, "maker": self.makers[-1], "pace": PACE, "pause": PAUSE}
        storm.world[self.at]("flow", path=storm.log(f"{self.name}.flow"), **flow)

    come_back = begin


@dataclass
class Storm:
    """Some nodes, with sources and movables at them in turn. `order` is what has happened, for people."""

    world: World
    seed: int
    sinks: int
    sources: int
    nodes: Sequence[str] = ("n0", "n1", "n2", "n3", "n4")
    more: list[Movable] = field(default_factory=list)  # besides the sinks
    say: Say = lambda text: None
    order: list[str] = field(default_factory=list)
    kills: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._opened: set[str] = set()
        self.flows = [FixedSource(f"s{k}", self.nodes[k % len(self.nodes)], f"test.c{k}") for k in range(self.sources)]
        self.readers = [
            MovingSink(f"k{j}", self.nodes[(j * 2 + 1) % len(self.nodes)], self.flows[j % self.sources].channel)
            for j in range(self.sinks)
        ]
        self.movables: list[Movable] = [*self.readers, *self.more]

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
        for reader in self.readers:
            reader.begin(self)
        for flow in self.flows:
            for node in {reader.at for reader in self.readers if reader.channel == flow.channel} - {flow.at}:
                assert self.world[node]("sees", channel=flow.channel, sources=[f"{flow.name}@{flow.at}"]) is True
        for node in self.nodes:
            assert self.world[node]("ready") is True

    def _open(self, name: str) -> None:
        seeds = [other for other in self.nodes[:2] if other in self._opened and other != name]
        self._opened.add(name)
        self.world.open(name, seeds=seeds, state=True, log={"channels": "test.**"})

    def step(self) -> None:
        """One of them moves; now and then somebody is killed between its leaving and its arriving, or after that."""
        it = self._chance.choice(self.movables)
        new = self._chance.choice([node for node in self.nodes if node != it.at])
        killed = self._chance.choice(KILLS) if self._chance.random() < 0.4 else None
        before = self._chance.random() < 0.5  # it arrives
        old = it.at
        self.order.append(f"{it.name}: {old} to {new}" + (f"; {killed} killed" if killed else ""))
        self.say(self.order[-1])
        it.settle(self)
        token = it.leave(self)
        victim = self._victim(killed, it, old, new)
        if victim is not None and before and victim != new:
            self._kill(victim, it)
        it.arrive(self, new, token)
        if victim is not None and not (before and victim != new):
            self._kill(victim)
        it.settle(self)

    def _victim(self, killed: str | None, it: Movable, old: str, new: str) -> str | None:
        if killed is None:
            return None
        if killed == "another":
            return self._chance.choice([node for node in self.nodes if node not in (old, new)])
        homes = [flow.at for flow in self.flows if flow.channel == getattr(it, "channel", "")]
        return {"old": old, "new": new, "source": homes[0] if homes else old}[killed]

    def _kill(self, name: str, leaving: Movable | None = None) -> None:
        """-9, and start it again with what it had, but for what has left it."""
        self.kills += 1
        self.world.kill(name)
        self.world.start(name)
        self._open(name)
        for flow in self.flows:
            if flow.at == name:
                flow.come_back(self)
        for it in self.movables:
            if it.at == name and it is not leaving:
                it.come_back(self)

    # ── what came of it ──

    def counted(self) -> tuple[int, int]:
        """Events that came to sinks, and those of them that said that they come again."""
        found = [line for each in self.readers for line in lines(Path(self.log(each.name)))]
        return len(found), sum(again for _, again in found)

    def end(self) -> list[str]:
        """All that sources have published is waited for; what is wrong with what the sinks got."""
        last: dict[str, dict[str, int]] = {}
        for flow in self.flows:
            published = self.world[flow.at]("stop")
            last[flow.channel] = {flow.makers[-1]: published[flow.makers[-1]]}
        problems: list[str] = []
        for reader in self.readers:
            came = self.world[reader.at]("came", sink=reader.name, wanted=last[reader.channel])
            if came is not True:
                problems.append(f"{reader.name} at {reader.at}: expected {last[reader.channel]}, found {came}")
            problems += [f"{reader.name} at {reader.at}: {what}" for what in wrong(Path(self.log(reader.name)))]
        return problems


def lines(path: Path) -> list[tuple[int, bool]]:
    """What a sink has written down: the number of each event in its source, and whether it says that it comes again."""
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(row[1]), row[5] == "1") for row in rows]


def wrong(path: Path) -> list[str]:
    """What is wrong with what a sink has written down of one source: each number follows on the one before, or has come
    before and says so."""
    rows = lines(path)
    found, highest = [], 0
    for number, again in rows:
        if highest and number > highest + 1:
            found.append(f"{number} came after {highest}: {number - highest - 1} events are missing, or came later")
        elif number <= highest and not again:
            found.append(f"{number} came after {highest}, and does not say that it comes again")
        highest = max(highest, number)
    return found if rows else ["nothing came"]


__all__ = ["FixedSource", "Movable", "MovingSink", "Storm", "wrong"]
