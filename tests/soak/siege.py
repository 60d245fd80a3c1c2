"""The federation of the faults, with certificates, an order, and enemies: faults and hostile peers at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.federation.faults import CHANNEL, LEAVES, SETTINGS, SOURCES, Faults, Outcome, Tally, count
from tests.federation.processes import GUARD, World
from tests.soak.enemies import Authority, Enemies

SEQUENCERS = ("east", "west")  # stopped and cut off, never killed
ORDERED = ("hall", *SEQUENCERS)  # nodes with a sink that takes the events in one order
ROUTED = "lake"  # a source whose events take Zenoh's path, where the insider hears them
FAILING = 97  # of so many events, the handler of one sink fails at one


class Siege(Faults):
    def __init__(self, made: World, seed: int, say: Callable[[str], object]) -> None:
        super().__init__(made, seed, say)
        self.authority = Authority(made.folder / "authority", ["inn", *LEAVES, *SEQUENCERS])
        self.enemies = Enemies(made, self.authority, random.Random(seed + 1))
        self.victims += SEQUENCERS
        self._ordered = False
        made.options = self.authority.options
        made.wires.without_streams(ROUTED)

    def open(self) -> None:
        super().open()
        self.world.open(*SEQUENCERS, seeds=["inn"], **SETTINGS)
        for name in SEQUENCERS:
            self.world[name]("sequence", channel=CHANNEL)
        for name in ORDERED:
            path = self.world.path(f"{name}-total.log")
            self.world[name]("sink", channel=CHANNEL, name=f"{name}-total", path=path, order="total")
        self.world["hall"]("fails", channel=CHANNEL, name="hall-failing", every=FAILING)
        self._ordered = True
        self.recovered()
        self.world.environment = self.enemies.clock
        self.enemies.begin()

    def close(self) -> None:
        self.enemies.close()

    def recovered(self) -> None:
        super().recovered()
        if not self._ordered:
            return
        wanted: dict[str, int] = {}
        for name in SOURCES:
            wanted.update({maker: n + 12 for maker, n in self.world[name]("published").items()})
        for name in ORDERED:
            came = self.world[name]("came", sink=f"{name}-total", wanted=wanted, timeout=GUARD)
            assert came is True, f"{name}-total waits for {wanted}, has {came}\n{self._state()}"

    def fault(self) -> None:
        """One, or two at the same time, while enemies are at it."""
        self.enemies.look(CHANNEL, *self._secrets())
        self.enemies.act()
        if self.random.random() < 0.2:
            self.freeze_sequencer()()
            self.recovered()
        else:
            super().fault()
        if self.order[-1].startswith("the router killed") or "the router" in self.order[-2:][0]:
            self.enemies.begin()

    def _state(self) -> str:
        lines = [super()._state()]
        for name in ORDERED:
            lines.append(f"order at {name}: {self.world[name]('sequencing', channel=CHANNEL)}")
            lines += [f"{name}: {line}" for line in self.world[name].said("Sequencer of")[-40:]]
        return "\n".join(lines)

    def freeze_sequencer(self) -> Callable[[], None]:
        """Until others have noticed: the one that stands by, mostly."""
        leads = {name: self.world[name]("leads", channel=CHANNEL, timeout=0.0) is True for name in SEQUENCERS}
        standby = [name for name in SEQUENCERS if not leads[name]] or [*SEQUENCERS]
        name = self.random.choice(standby if self.random.random() < 0.7 else [*SEQUENCERS])
        self._note("a sequencer frozen", name)
        self.world[name].stop()
        assert self.world["hall"]("alone", unwanted=[name], timeout=GUARD) is True, f"hall still sees {name}"
        return self.world[name].go_on

    def _secrets(self) -> list[str]:
        """What is only in events: who has made them."""
        return [f"{name}-{life}" for name in SOURCES for life in range(1, self.world.life(name) + 1)]

    def end(self, timeout: float = GUARD) -> Outcome:
        self.enemies.look(CHANNEL, *self._secrets())
        found = super().end(timeout)
        wanted: dict[str, int] = {}
        for name in SOURCES:
            wanted.update(self.world[name]("published"))
        tallies: dict[str, Tally] = dict(found.sinks)
        troubles = [*found.troubles, *self.enemies.troubles]
        logs = {name: Path(self.world.path(f"{name}-total.log")) for name in ORDERED}
        for name, log in logs.items():
            came = self.world[name]("came", sink=f"{name}-total", wanted=wanted, timeout=timeout)
            if came is not True:
                troubles.append(f"{name}-total waits for {wanted}, has {came}\n{self._state()}")
            tallies[f"{name}-total"] = count(log, 1, {**self.bounds, **wanted}, {**self.done, **wanted})
        troubles += _one_order(logs) + _skipped(logs)
        state, failed, got = self.world["hall"]("failed")
        self.enemies.counts["failures of a handler"] = failed
        if state != "open" or not failed or not got:
            troubles.append(f"a handler that fails now and then: {state}, {failed} failures, {got} events")
        for name in ORDERED:
            troubles += [f"{name}: {line}" for line in self.world[name]("crashes")]
        self.enemies.counts["messages that the insider heard"] = self.enemies.heard
        self.enemies.counts["events, or names of channels, that it could read"] = len(self.enemies.read)
        return Outcome(found.published, tallies, tuple(troubles))


def _skipped(logs: dict[str, Path]) -> list[str]:
    """Places that a sink has not seen, between two that it has: there are none, for it wants everything."""
    found = []
    for name, log in logs.items():
        places = [int(line.split()[1]) for line in log.read_text().splitlines()]
        gaps = [f"{one} to {other}" for one, other in pairwise(places) if other != one + 1]
        if gaps:
            found.append(f"{name}-total: {len(gaps)} times places do not follow on each other: {', '.join(gaps[:10])}")
    return found


def _one_order(logs: dict[str, Path]) -> list[str]:
    """What sinks have seen that is not in one and the same order."""
    seen = {}
    for name, log in logs.items():
        rows = (line.split() for line in log.read_text().splitlines())
        seen[name] = [(maker, n) for _, _, maker, n, _, _ in rows]
    common = set.intersection(*map(set, seen.values()))
    orders = {name: [each for each in moves if each in common] for name, moves in seen.items()}
    first = next(iter(orders.values()))
    return [
        f"{name}-total has another order than {next(iter(orders))}-total"
        for name, order in orders.items()
        if order != first
    ]
