"""Replicas of another node's objects: within their bounds at the time they say, through cut links, restarts and kills;
and only for those who may see them."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater import Node
from headwater.errors import FederationError, ObjectError, StoreError
from headwater.federation.wire.object_requests import HoldReplica, ReadReplica
from headwater.logs import LogFiles
from headwater.objects.replicas import spec as specs
from headwater.objects.replicas.adaptation import Adaptive
from headwater.security import Deny
from tests.disk import full
from tests.effort import rounds
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.nursery import Popen
from tests.federation.objects.plant import Plant, Rights
from tests.ports import free_endpoint


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def tanks(plant: Plant) -> None:
    with plant.objects.transaction() as t:
        t.create("hall/a", "Tank", level=1.0)
        t.create("hall/b", "Tank", level=2.0)
        t.create("yard", "Tank", level=3.0)
        t.create("secret", "Secret", key=7)


def set_level(plant: Plant, name: str, level: float) -> int:
    with plant.objects.transaction() as t:
        t.update(name, level=level)  # silently
    assert t.outcome is not None
    return int(t.outcome.at)


def cut(node: Any) -> None:
    for peer in node._engine.everyone():
        if (link := peer.link) is not None:
            peer.link_down(link, "it is cut")


def test_it_is_within_its_bound_at_the_time_it_says_and_little_crosses(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tanks(plant)
    one = plant.remote.replica("hall/*", type="Tank", bound={"level": 0.5})
    two = plant.remote.replica("hall/*", type="Tank", bound={"level": 0.5})
    assert one.ready(GUARD) and two.ready(GUARD)
    told = Log[Any]()
    one.subscribe(told, "value.level > 5")
    make.ready(plant.desk)
    assert [(each.name, each.value.level) for each in one] == [("//plant/hall/a", 1.0), ("//plant/hall/b", 2.0)]
    for step in range(1, 6):
        set_level(plant, "hall/a", 1.0 + step / 10)
    at = set_level(plant, "yard", 50.0)
    assert one.until(at, GUARD) and one["hall/a"].value.level == 1.0
    at = set_level(plant, "hall/a", 6.0)
    assert one.until(at, GUARD) and two.until(at, GUARD)
    assert one["hall/a"].value.level == two["//plant/hall/a"].value.level == 6.0 == told.wait(1)[0].value.level
    source = next(iter(plant.owner.channel("objects.Tank.replicas").sources.values()))
    assert source.seq == 1  # for both, of seven changes
    assert plant.objects.report()["replicas"] == {"replicas": 1, "told": 1, "spared": 5}
    with plant.objects.transaction() as t:
        t.create("hall/c", "Tank", level=0.0)
        t.destroy("hall/a")
    assert one.until(t.outcome.at, GUARD) and {each.name for each in one} == {"//plant/hall/b", "//plant/hall/c"}
    assert one.get("hall/a") is None and one.state == "live" and one.bound == {"level": 0.5}
    quiet = one.as_of
    assert one.until(quiet + 100_000, GUARD)  # nothing happens, and it is known that it does not
    two.close()
    assert plant.objects.report()["replicas"]["replicas"] == 1  # by the node, of which another program goes on
    one.close()
    assert plant.objects.report()["replicas"]["replicas"] == 0 and one.state == "closed"


def test_what_it_has_stays_while_its_owner_is_away_and_goes_on_when_that_is_back(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path, listen=free_endpoint())
    tanks(plant)
    one = plant.remote.replica("yard", bound={"level": 0.5})
    assert one.ready(GUARD)
    cut(plant.desk)
    at = set_level(plant, "yard", 10.0)
    assert one.until(at, GUARD) and one.value.level == 10.0
    endpoint = plant.owner.endpoints[0]
    plant.owner.close()
    make.opened.remove(plant.owner)
    eventually(lambda: one.state.startswith("unknown"), timeout=GUARD)
    stays = one.as_of
    assert one.value.level == 10.0 and stays is not None
    plant.options = {"listen": endpoint}
    plant.open()
    at = set_level(plant, "yard", 20.0)
    assert one.until(at, GUARD) and one.value.level == 20.0 and one.as_of > stays
    eventually(lambda: one.state == "live", timeout=GUARD)


def test_what_could_not_be_written_was_not_and_time_goes_on(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tanks(plant)
    one = plant.remote.replica("yard", bound={"level": 0.5})
    assert one.ready(GUARD)
    with full(), pytest.raises(StoreError):
        set_level(plant, "yard", 10.0)
    assert one.until(plant.owner.clock.time(), GUARD) and one["yard"].value.level == 3.0  # though nothing happens
    at = set_level(plant, "yard", 3.4)
    assert one.until(at, GUARD) and one["yard"].value.level == 3.0
    at = set_level(plant, "yard", 10.0)
    assert one.until(at, GUARD) and one["yard"].value.level == 10.0


def test_who_may_not_see_objects_gets_no_replica_of_them(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    tanks(plant)
    rights.no["subscribe", "objects.Secret"] = Deny("secret")
    with pytest.raises(ObjectError, match="Secret"):
        plant.remote.replica("secret", type="Secret")
    form = plant.objects.types["Secret"]
    ask = lambda request: plant.remote._ask(request, monotonic() + GUARD)  # noqa: E731
    sly = specs.pack(specs.replica_spec("**", "Secret", form, node="plant"))
    with pytest.raises(FederationError, match="expected a type that it may read, found 'Secret'"):
        ask(HoldReplica(sly))
    rights.no.clear()
    rights.no["subscribe", "objects.Tank.replicas"] = Deny("no")
    with pytest.raises(FederationError, match="expected a type that it may read, found 'Tank'"):
        plant.remote.replica("yard")
    rights.no.clear()
    held = specs.replica_spec("**", "Tank", plant.objects.types["Tank"], node="plant")
    other: Any = make("other")
    make.together()
    one = other.objects_at("plant").replica("**", type="Tank")
    assert one.ready(GUARD) and len(one) == 3
    with pytest.raises(FederationError, match="expected one that this node holds, found none"):
        ask(ReadReplica(held.number))  # of which it knows the number, and which it may hold, and does not
    with pytest.raises(FederationError, match="no_such"):
        ask(HoldReplica(specs.pack(specs.ReplicaSpec("//plant/**", "Tank", {"no_such": 1.0}))))
    with pytest.raises(FederationError, match="expected objects of //plant"):
        ask(HoldReplica(specs.pack(specs.ReplicaSpec("//desk/**", "Tank"))))


def test_all_that_is_wrong_is_said_at_once(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tanks(plant)
    with pytest.raises(ObjectError) as found:
        plant.remote.replica("yard", bound={"levle": 1, "label": 0.5, "level": -1}, members=("lable",))
    said = str(found.value)
    assert all(each in said for each in ("'levle'", "label: expected a number", "level: expected", "'lable'")), said
    with pytest.raises(ObjectError, match="say type="):
        plant.remote.replica("hall/*")
    with pytest.raises(ObjectError, match="does not end as"):
        plant.objects.type("Tank.replicas", "x: f64")


def test_what_others_publish_there_is_nothing_of_the_owners(make: Nodes, tmp_path: Path) -> None:
    """An insider with the right to advertise on the channel tells of the same replica, under the same name."""
    plant = Plant(make, tmp_path)
    tanks(plant)
    one = plant.remote.replica("yard", bound={"level": 0.5})
    assert one.ready(GUARD)
    liar: Any = make("liar")
    channel = liar.channel("objects.Tank.replicas", plant.owner.channel("objects.Tank.replicas").type)
    lies = channel.source("objects")
    heard = Log[Any]()
    one.subscribe(heard)
    make.together()
    make.ready(plant.desk)
    lies.publish(
        replica=one.spec.number, object="yard", value={"level": 99.0, "label": None}, still=False, at=one.as_of + 1,
        turn=10**6, after=0, more=0,
    )  # fmt: skip
    heard.wait(1)
    at = set_level(plant, "yard", 4.0)
    assert one.until(at, GUARD) and one.value.level == 4.0


def test_how_far_it_is_off_now_is_known_only_where_the_owner_keeps_to_a_rate(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    tanks(plant)
    one = plant.remote.replica("yard", bound={"level": 0.5})
    assert one.ready(GUARD) and one.bound_now(clock_error=0.1) is None
    one.close()
    plant.objects.limit_rates("Tank", {"level": 2.0}, burst=0.5)
    two = plant.remote.replica("yard", bound={"level": 0.5})
    eventually(lambda: two.bound_now(clock_error=0.1) is not None, timeout=GUARD)
    found = two.bound_now(clock_error=0.1)
    assert found is not None and found["level"] >= 0.5 + 2.0 * (0.5 + 0.1)
    assert two.bound_now(clock_error=5.0)["level"] >= found["level"] + 2.0 * 4
    with pytest.raises(ObjectError, match="while others hold replicas"):
        plant.objects.limit_rates("Tank", {"level": 3.0}, burst=0.5)
    plant.objects.limit_rates("Tank", {"level": 1.0}, burst=0.5)  # stricter
    two.close()
    plant.objects.limit_rates("Tank", {})


def test_a_service_is_had_by_name_and_level_and_equal_levels_are_one(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    tanks(plant)
    levels = {"near": {"level": 0.1}, "far": {"level": 10.0}}
    plant.objects.service("levels", "hall/*", type="Tank", levels=levels)
    assert list(plant.remote.services["levels"].levels) == ["near", "far"]
    told: list[Any] = []
    far = plant.remote.service("levels", "far", on_level=told.append)
    other: Any = make("other")
    make.together()
    same = other.objects_at("plant").service("levels", "far")
    assert far.ready(GUARD) and same.ready(GUARD) and len(far) == 2
    assert plant.objects.report()["replicas"]["replicas"] == 1 and far.bound == {"level": 10.0}
    at = set_level(plant, "hall/a", 5.0)
    assert far.until(at, GUARD) and far["hall/a"].value.level == 1.0
    far.change("near")
    assert far.level == "near" and [(each.before, each.level) for each in told] == [("far", "near")]
    assert far["hall/a"].value.level == 5.0 and same["hall/a"].value.level == 1.0
    assert plant.objects.report()["replicas"]["replicas"] == 2
    with pytest.raises(ObjectError, match="expected one of its levels, found 'fra'; did you mean 'far'"):
        far.change("fra")
    with pytest.raises(ObjectError, match="service 'position': expected one that 'plant' offers"):
        plant.remote.service("position", "far")
    rights.no["subscribe", "objects.Tank"] = Deny("no")
    with pytest.raises(ObjectError, match="expected one that 'plant' offers this node, found none"):
        plant.remote.service("levels", "far")
    with pytest.raises(ObjectError) as found:
        plant.objects.service("bad", "hall/*", type="Tank", levels={"a": {"level": 2.0}, "b": {"levle": 1.0}})
    assert "level 'b'" in str(found.value) and "levle" in str(found.value)
    plant.objects.withdraw_service("levels")
    assert plant.objects.services == {}


def test_a_service_over_a_trigger_of_several_owners_has_levels_too(make: Nodes, tmp_path: Path) -> None:
    rights = Rights()
    plant = Plant(make, tmp_path, security={"policy": rights})
    tanks(plant)
    other: Any = make("other", state=tmp_path / "other.state")
    other.objects.type("Tank", "level: f64, label: text?")
    with other.objects.transaction() as t:
        t.create("tank", "Tank", level=3.0)
    make.together()
    apart: dict[str, Any] = {
        "inputs": {"a": "//plant/yard", "b": "//other/tank"}, "when": "becomes", "where": "abs(a.level - b.level) > :d",
        "notify": {"apart": "abs(a.level - b.level)"},
    }  # fmt: skip
    plant.objects.trigger_service("apart", levels={"near": {"d": 1.0}, "far": {"d": 10.0}}, **apart)
    assert plant.remote.services["apart"].levels == {"near": {"d": 1.0}, "far": {"d": 10.0}}
    near, far = plant.remote.service("apart", "near"), plant.remote.service("apart", "far")
    one, two = Log[Any](), Log[Any]()
    near.subscribe(one)
    far.subscribe(two)
    make.ready(plant.desk)
    with other.objects.transaction() as t:
        t.update("tank", level=8.0, event=True)
    assert one.wait(1)[0].apart == 5.0
    with other.objects.transaction() as t:
        t.update("tank", level=20.0, event=True)
    assert two.wait(1)[0].apart == 17.0 and len(one.events) == 1
    with pytest.raises(ObjectError, match="expected one of its levels, found 'nera'"):
        plant.remote.service("apart", "nera")
    with pytest.raises(ObjectError, match="since it is over a trigger"):
        plant.remote.service("apart", Adaptive())
    with pytest.raises(ObjectError) as found:
        plant.objects.trigger_service("no name", levels={}, when="each", on="yard", params={"d": 1.0})
    assert all(each in str(found.value) for each in ("name: ", "levels: ", "params: ", "notify: "))
    rights.no["subscribe", near.channel.name] = Deny("no")
    assert "apart" not in plant.remote.services
    plant.objects.withdraw_service("apart")
    assert plant.objects.triggers == {}


def test_an_adaptive_level_follows_what_is_measured_of_the_link(make: Nodes, tmp_path: Path) -> None:
    """The link brings more bytes than the node wants of it: the level gets worse, and better when that is over."""
    plant = Plant(make, tmp_path)
    tanks(plant)
    plant.objects.service("levels", "**", type="Tank", levels={"near": {"level": 0.0}, "far": {"level": 1e9}})
    told: list[Any] = []
    wanted = Adaptive(bandwidth=20_000.0, calm=0.5, delay=1000.0)
    one = plant.remote.service("levels", wanted, on_level=told.append)
    assert one.ready(GUARD) and one.level == "near"
    steps = count(1)

    def drive() -> bool:
        step = next(steps)
        with plant.objects.transaction() as t:
            for name in ("yard", "hall/a", "hall/b"):
                t.update(name, level=float(step), label="x" * 10_000)
        return bool(told)

    assert plant.desk.until(drive, GUARD) and one.level == "far", told
    assert "bytes came in a second" in told[0].why
    assert plant.desk.until(lambda: len(told) > 1, GUARD) and told[1].level == "near"
    one.close()
    assert plant.objects.report()["replicas"]["replicas"] == 0


def test_an_owner_that_is_killed_again_and_again_says_nothing_wrong(tmp_path: Path) -> None:
    endpoint = free_endpoint()
    command = [sys.executable, "-m", "tests.federation.objects.depot", str(tmp_path), endpoint]
    seen: list[tuple[int, float]] = []
    with Node("desk", connect=endpoint) as desk:
        replica: Any = None
        for _ in range(rounds(2, 4)):
            with Popen(command, stdout=subprocess.PIPE, text=True) as depot:
                try:
                    assert depot.stdout is not None and depot.stdout.readline() == "open\n"
                    if replica is None:
                        assert desk.until(lambda: "depot" in desk.peers, GUARD)
                        replica = desk.objects_at("depot").replica("fleet/car", bound={"x": 2.0})
                    enough, before = len(seen) + 8, seen[-1][0] if seen else 0

                    def looked(held: Any = replica, enough: int = enough, before: int = before) -> bool:
                        with suppress(ObjectError):
                            found = held["fleet/car"]
                            if found.as_of > max(before, seen[-1][0] if seen else 0):
                                seen.append((found.as_of, found.value.x))
                        return len(seen) >= enough

                    assert desk.until(looked, GUARD), replica.state
                finally:
                    depot.kill()
    truth = [
        (int(row["at"].timestamp() * 1e6 + 0.5), row["new"]["x"])
        for batch in LogFiles(tmp_path / "log").read("objects.Car", "depot", "objects")
        for row in batch.to_pylist()
    ]
    times = [at for at, _ in truth]
    assert times == sorted(times) and len(seen) >= 16
    for at, x in seen:
        assert abs(x - truth[bisect_right(times, at) - 1][1]) <= 2.0, (at, x)
    assert len({x for _, x in seen}) < len(seen)  # it was told of less than was looked at
