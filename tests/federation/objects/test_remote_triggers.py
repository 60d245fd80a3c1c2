"""Triggers that another node judges: only what they tell crosses, once for each node; and they see what they may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater import Event
from headwater.errors import FederationError, ObjectError
from headwater.federation.wire.object_requests import InstallTrigger, RemoveTrigger
from headwater.objects import result_of
from headwater.objects.triggers import definition
from headwater.security import Deny
from tests.federation.nodes import GUARD, Log, Nodes, nodes
from tests.federation.objects.plant import Plant, Rights
from tests.ports import free_endpoint


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def _soon() -> float:
    return monotonic() + GUARD


def levels(plant: Plant, *levels: float) -> None:
    for level in levels:
        with plant.objects.transaction() as t:
            t.update("tank", {"level": level}, event=True)


def tank(plant: Plant) -> None:
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
        t.create("secret", "Secret", key=7)


def test_it_is_judged_at_the_owner_and_only_what_it_tells_crosses(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tank(plant)
    high = plant.remote.trigger(
        "high", on="tank", when="becomes", where="new.level > :limit", notify={"level": "new.level"},
        params={"limit": 5.0},
    )  # fmt: skip
    first, second = Log[Any](), Log[Any]()
    high.subscribe(first)
    high.subscribe(second, "level > 8")
    make.ready(plant.desk)
    levels(plant, 1.0, 6.0, 7.0, 2.0, 9.0)
    assert [(event.object, event.level) for event in first.wait(2)] == [("//plant/tank", 6.0), ("//plant/tank", 9.0)]
    assert [event.level for event in second.wait(1)] == [9.0]
    source = plant.owner.channel(high.channel.name).sources
    assert [each.seq for each in source.values()] == [2]
    turn = high.change(params={"limit": 20.0})
    assert turn > 5
    levels(plant, 1.0, 10.0, 21.0)
    assert [event.level for event in first.wait(3)][2:] == [21.0]
    high.remove()
    high.remove()  # the answer to the first may be lost
    assert plant.objects.triggers == {}


def test_an_equal_one_of_the_same_node_is_that_one(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tank(plant)
    other: Any = make("other")
    make.together()
    about: dict[str, Any] = {"on": "tank", "when": "each", "where": "new.level > 5"}
    one, two = plant.remote.trigger("one", **about), plant.remote.trigger("two", **about)
    assert one.name == two.name
    theirs = other.objects_at("plant").trigger("one", **about)
    assert theirs.name != one.name
    with pytest.raises(FederationError, match="found another"):
        other.objects_at("plant")._ask(RemoveTrigger(one.name), _soon())
    assert set(plant.objects.triggers) == {one.name, theirs.name}


def test_it_survives_the_owner(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path, listen=free_endpoint())
    tank(plant)
    high = plant.remote.trigger("high", on="tank", when="each", where="new.level > 5", notify="new.level")
    told: Log[Event] = Log()
    high.subscribe(told)
    endpoint = plant.owner.endpoints[0]
    plant.owner.close()
    make.opened.remove(plant.owner)
    plant.options = {"listen": endpoint}
    plant.open()
    make.together()
    make.ready(plant.desk)
    levels(plant, 6.0)
    assert len(told.wait(1)) == 1


def test_it_does_nothing_and_sees_only_what_its_node_may(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    plant.owner.channel("alarms", "text: text")
    tank(plant)
    rights.no = {
        ("install", "objects.Secret"): Deny("no"),
        ("subscribe", "alarms"): Deny("no"),
    }
    refused: list[tuple[dict[str, Any], str]] = [
        ({"on": "secret"}, "type: "),
        ({"on": "secret", "type": "Tank"}, "another type"),
        ({"on": "created **", "type": "Secret"}, "type: "),
        ({"on": "channel alarms"}, "channel that it may subscribe to"),
        ({"on": "tank", "inputs": {"s": "secret"}, "where": "s.key > 1"}, "inputs: s"),
        ({"on": "every 50 ms"}, "at least 100 ms"),
        ({"on": "tank", "inputs": {"r": result_of("tank", "room")}, "where": "r > 1"}, "only its owner may have it"),
    ]
    for about, message in refused:
        with pytest.raises((FederationError, ObjectError), match=message):
            plant.remote.trigger("t", when="each", **about)
    acts = definition.trigger(
        "t", on="//plant/tank", when="each", type="Tank", do=[definition.Destroy("//plant/secret")], node="plant"
    )
    with pytest.raises(FederationError, match="do nothing else"):
        plant.remote._ask(InstallTrigger(definition.pack(acts)), _soon())
    for data in (b"", b"\xc1", b"\x80"):
        with pytest.raises(FederationError, match="refused"):
            plant.remote._ask(InstallTrigger(data), _soon())
    assert plant.objects.triggers == {} and "secret" in plant.objects


def test_another_node_is_told_of_its_own_triggers_and_of_what_it_may_inspect(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    tank(plant)
    plant.objects.trigger("open", on="tank", when="each", notify=True)
    plant.objects.trigger("hidden", on="tank", when="each", inputs={"s": "secret"}, where="s.key > 1", notify=True)
    mine = plant.remote.trigger("mine", on="tank", when="each", where="new.level > 5")
    rights.no = {("inspect", "objects.Secret"): Deny("no")}
    assert [each.name for each in plant.remote.triggers()] == [mine.name, "open"]
    assert "new.level > 5" in mine.explain() and "on //plant/tank" in plant.remote.explain("open")
    with pytest.raises(FederationError, match="may know of"):
        plant.remote.explain("hidden")
    rights.no = {("inspect", "objects.Tank"): Deny("no"), ("install", "objects.Secret"): Deny("no")}
    assert [each.name for each in plant.remote.triggers()] == [mine.name]
    with pytest.raises(FederationError, match="type: "):
        plant.remote.explain_trigger("t", on="secret", when="each", where="new.key > 1")


def test_an_input_that_is_of_another_type_by_now_is_missing(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tank(plant)
    with plant.objects.transaction() as t:
        t.create("limit", "Tank", level=5.0)
    high = plant.objects.trigger(
        "high", on="tank", when="each", inputs={"at": "limit"}, where="new.level > at.level", notify=True
    )
    told: Log[Event] = Log()
    high.subscribe(told)
    levels(plant, 6.0)
    with plant.objects.transaction() as t:
        t.destroy("limit")
        t.create("limit", "Secret", key=1)
    levels(plant, 7.0)
    with plant.objects.transaction() as t:
        t.destroy("limit")
        t.create("limit", "Tank", level=1.0)
    levels(plant, 8.0)
    assert len(told.wait(2)) == 2 and plant.objects.report()["failed"] == 0


def test_triggers_of_another_node_do_not_listen_to_each_other(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tank(plant)
    first = plant.remote.trigger("first", on="tank", when="each", notify={"level": "new.level"})
    with pytest.raises(FederationError, match="go round for ever"):
        plant.remote.trigger("second", on=f"channel {first.channel.name}", when="each", notify={"level": "new.level"})
