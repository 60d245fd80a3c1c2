"""Sources that are steered from another node: who may, within limits; and what it reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event
from headwater.errors import TransactionError
from headwater.security import Deny
from tests.federation.nodes import GUARD, Log, Nodes, nodes
from tests.federation.objects.plant import Plant, Rights


class Reading(Event, name="plant.Reading"):
    level: float


class Pump(Event):
    rate: float


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_another_node_steers_as_far_as_it_may(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    source: Any = plant.owner.channel("readings", Reading).source("pump", context=Pump(1.0))
    plant.objects.type("Pump", Pump, limits={"rate": (0.0, 3.0)})
    steering = plant.objects.steer("pump", source, type="Pump")
    over = Log()
    plant.desk.channel("readings", Reading, context=Pump).subscribe(over, "level > 10 * context.rate")
    make.ready(plant.desk)

    def sets(rate: float) -> int:
        with plant.remote.transaction() as t:
            t.update("pump", rate=rate)
        return t.outcome.turn  # type: ignore[no-any-return]

    source.publish(level=15.0)
    assert steering.until(sets(2.0), GUARD)
    source.publish(level=15.0)
    source.publish(level=25.0)
    with pytest.raises(
        TransactionError, match=r"operation 1: update //plant/pump: rate: expected 0\.0 to 3\.0, found 7"
    ):
        sets(7.0)
    rights.no[("transact", "objects.Pump")] = Deny("not yours")
    with pytest.raises(TransactionError, match="which it may not change"):
        sets(1.0)
    assert source.context["rate"] == 2.0 and plant.objects["pump.rate"] == 2.0
    rights.no.clear()
    assert steering.until(sets(0.5), GUARD)
    source.publish(level=6.0)
    over.wait(3)
    assert over.field("level") == [15.0, 25.0, 6.0]
