"""A federation that judges a trigger over three nodes, while links are cut and nodes come and go, held to an evaluator
that sees what every owner has written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest
from headwater.objects.zones.split import Split
from tests.effort import rounds
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.objects.distributed import Fleet, Witness, decided

STEPS = 160
CONDITION = "a.x - b.x > c.x and a.armed"
OWNERS = {"a": "north", "b": "south", "c": "desk"}
TYPE = ", ".join(f"{name}: {{x: f64, y: f64, armed: bool, label: text?}}?" for name in OWNERS)


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def cut(fleet: Fleet, chance: random.Random) -> None:
    """A link between two nodes breaks; what was on its way is lost."""
    engine: Any = chance.choice(list(fleet.nodes.values()))._engine
    for peer in engine.everyone():
        if peer.link is not None:
            peer.link.close("it was cut")


def restart(fleet: Fleet, name: str) -> None:
    endpoint = fleet.nodes[name].endpoints[0]
    fleet.close(name)
    fleet.open(name, **({"listen": endpoint} if name == "desk" else {}))


@pytest.mark.parametrize("seed", range(rounds(1, 5)))
def test_it_fires_as_if_one_node_saw_everything(
    make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In decided time nothing is missed, nothing is false and nothing is told twice; in the end all is decided."""
    chance = random.Random(seed)
    witness = Witness(monkeypatch, Split(Interest(CONDITION, TYPE), OWNERS))
    fleet = Fleet(make, tmp_path)
    fleet.create("desk", x=2.0)
    trigger = fleet.install(where=CONDITION, inputs={key: f"//{node}/car" for key, node in OWNERS.items()}, notify=())
    decided(trigger, False)
    for step in range(STEPS):
        name = chance.choice(tuple(OWNERS.values()))
        happens = chance.random()
        if happens < 0.02:
            cut(fleet, chance)
        elif happens < 0.03 or step == 80:
            restart(fleet, name)
        elif happens < 0.1:
            fleet.move("north", armed=chance.random() < 0.7)
        else:
            x = fleet.nodes[name].objects["car.x"]
            fleet.move(name, x=x + chance.choice((-1.0, 1.0)), event=chance.random() < 0.8)
    fleet.move("north", x=100.0, armed=True)

    def is_over() -> bool:
        with fleet.desk.homes._lock:
            home = fleet.desk.homes.named("far")
            if home is None or home.waiting or home.starting or home.happenings:
                return False
            return bool(home.coordinator.unknown_since is None and home.coordinator.decided >= witness.last)

    eventually(is_over, "that all is decided", GUARD)
    assert witness.judge() > 0
    eventually(lambda: fleet.count == sum(type(each).__name__ == "Fired" for _, each in witness.told))
