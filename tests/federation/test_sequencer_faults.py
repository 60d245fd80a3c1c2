"""Sequencers that are frozen, killed and cut off, in processes of their own: all sinks have one and the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.effort import rounds
from tests.federation.processes import GUARD, World, world

CHANNEL = "test.count"
SEQUENCERS = ("left", "right")
SINKS = ("near", "far")
SETTINGS = {"lease": 1.0, "keep": 600.0}
ROUNDS = rounds(1, 3)
WHILE = 2000  # events for which one stays frozen that the others have noticed: some leases long


class Ordered:
    """Two nodes that sequence, two with a source and a sink each, and what becomes of every event."""

    def __init__(self, made: World) -> None:
        self.world = made
        for name in (*SINKS, *SEQUENCERS):
            made.start(name)
        first, *rest = SINKS + SEQUENCERS
        at = made[first]("open", name=first, network={"listen": "tcp/127.0.0.1:0", **SETTINGS})["endpoints"][0]
        for name in rest:
            made[name]("open", name=name, network={"connect": at, **SETTINGS})
        for name in SINKS:
            made[name]("peers", wanted=[other for other in (*SEQUENCERS, *SINKS) if other != name])
        for name in SEQUENCERS:
            assert made[name]("sequence", channel=CHANNEL) is True
            if name == SEQUENCERS[0]:
                assert made[name]("leads", channel=CHANNEL) is True
        for name in SINKS:
            assert made[name]("sink", channel=CHANNEL, name=name, path=self.log(name), order="total") is True
        for name in SINKS:
            published = made.path(f"{name}.published")
            assert made[name]("flow", channel=CHANNEL, source=name, maker=f"{name}-1", path=published, pace=2) is True
        self.flows()

    def log(self, name: str) -> str:
        return self.world.path(f"{name}.log")

    def flows(self) -> None:
        """Events of every source come to every sink."""
        wanted: dict[str, int] = {}
        for name in SINKS:
            wanted.update({maker: n + 50 for maker, n in self.world[name]("published").items()})
        for name in SINKS:
            came = self.world[name]("came", sink=name, wanted=wanted, timeout=GUARD)
            assert came is True, f"{name} waits for {wanted}, has {came}"

    def in_step(self) -> str:
        """Wait until one could go on from where the other is, which is the active one."""
        for _ in range(20):
            for leader, other in (SEQUENCERS, SEQUENCERS[::-1]):
                leads = self.world[leader]("leads", channel=CHANNEL, timeout=0.5) is True
                if not leads or self.world[other]("follows", channel=CHANNEL, timeout=5.0) is not True:
                    continue
                self.flows()
                if self.world[leader]("followed", channel=CHANNEL, timeout=0.0) is True:
                    return leader
        raise AssertionError("nobody leads whom another one follows")

    def freeze(self, name: str) -> None:
        """Until the others have noticed, and events come again."""
        self.world[name].stop()
        for sink in SINKS:
            assert self.world[sink]("alone", unwanted=[name]) is True
        self.flows()
        assert self.world[SINKS[0]]("more", sink=SINKS[0], count=WHILE) is True
        self.world[name].go_on()
        for sink in SINKS:
            assert self.world[sink]("peers", wanted=[name]) is True
        self.flows()

    def end(self) -> list[tuple[str, int]]:
        """What both sinks have seen, which is the same: all, once, in the order of each source, and of one order."""
        wanted: dict[str, int] = {}
        for name in SINKS:
            wanted.update(self.world[name]("stop"))
        for name in SINKS:
            came = self.world[name]("came", sink=name, wanted=wanted, timeout=GUARD)
            assert came is True, f"{name} waits for {wanted}, has {came}"
        seen = [_seen(Path(self.log(name))) for name in SINKS]
        for name, moves in zip(SINKS, seen, strict=True):
            assert len(set(moves)) == len(moves), f"{name}: doubled: {len(moves) - len(set(moves))}"
            for maker in wanted:
                numbers = [n for of, n in moves if of == maker]
                assert numbers == sorted(numbers), f"{name}: {maker} came out of order"
                lost = set(range(numbers[0], wanted[maker] + 1)).difference(numbers)
                assert not lost, f"{name}: lost of {maker}: {sorted(lost)[:20]}, {len(lost)} in all"
        common = [set(moves) for moves in seen]
        both = common[0] & common[1]
        orders = [[move for move in moves if move in both] for moves in seen]
        assert orders[0] == orders[1], "two sinks have two orders"
        assert len(both) >= len(orders[0]) > 0
        return orders[0]


def _seen(path: Path) -> list[tuple[str, int]]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(maker, int(n)) for _, _, maker, n, _, _ in rows]


@contextmanager
def ordered() -> Iterator[Ordered]:
    with world() as made:
        try:
            yield Ordered(made)
        except AssertionError as error:
            said = [f"{name}: {line}" for name in SEQUENCERS for line in made[name].log().splitlines()]
            raise AssertionError("\n".join([str(error), *(line for line in said if "Sequencer" in line)])) from error


@pytest.mark.timeout(600)
def test_a_frozen_standby_numbers_nothing_when_it_wakes() -> None:
    with ordered() as it:
        for _ in range(ROUNDS):
            it.freeze(SEQUENCERS[1])
        it.end()


@pytest.mark.timeout(600)
def test_a_frozen_active_one_is_replaced_and_knows_it() -> None:
    with ordered() as it:
        for _ in range(ROUNDS):
            it.freeze(it.in_step())
        it.end()


@pytest.mark.timeout(600)
def test_both_are_frozen_in_turn() -> None:
    with ordered() as it:
        for turn in range(2 * ROUNDS):
            it.in_step()
            it.freeze(SEQUENCERS[turn % 2])
        it.end()
