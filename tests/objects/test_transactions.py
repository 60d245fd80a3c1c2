"""What a transaction does to objects, through `node.objects`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Queue
from headwater.channel.objects.service import Computed, Objects
from headwater.errors import ObjectError, ServiceError, TransactionError
from headwater.objects.operations import Guard, Update, check_texts, pack, unpack
from headwater.testing import Recorder, eventually

GUARD = 60.0  # seconds, against hanging


class Position(Event):
    x: float
    y: float


class Vehicle(Event):
    position: Position
    speed: float
    plate: str | None = None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node("plant", state=tmp_path / "plant.state") as made:
        made.objects.type("Vehicle", Vehicle)
        yield made


def car(objects: Objects, name: str = "car", **members: Any) -> str:
    with objects.transaction() as t:
        return t.create(name, "Vehicle", **{"position": Position(0.0, 0.0), "speed": 1.0, **members})


def test_objects_are_created_updated_read_and_destroyed(node: Node) -> None:
    objects = node.objects
    with objects.transaction() as t:
        name = t.create("fleet/car", "Vehicle", Vehicle(Position(1.0, 2.0), 3.0))
        t.update(name, {"position.x": 5.0, "plate": "HW 1"})
        t.read("fleet/car.position.x")
        t.read(name, as_="all")
    assert name == "//plant/fleet/car"
    assert t.results == {"x": 5.0, "all": {"position": {"x": 5.0, "y": 2.0}, "speed": 3.0, "plate": "HW 1"}}
    assert objects[name] == Vehicle(Position(5.0, 2.0), 3.0, "HW 1")
    assert objects["fleet/car.position.x"] == 5.0
    with objects.transaction() as t:
        t.update(name, plate=None)
    assert objects["fleet/car.plate"] is None
    with objects.transaction() as t:
        t.destroy(name)
    assert name not in objects
    assert len(objects) == 0


def test_later_operations_use_what_earlier_ones_read(node: Node) -> None:
    objects = node.objects
    car(objects), car(objects, "van", speed=7.0)
    with objects.transaction(params={"most": 100}) as t:
        fast = t.read("van.speed", as_="fast")
        t.only_if((fast > 5) & (fast < Computed(":most")))
        t.update("car", {"speed": fast * 2 - 1, "position.x": Computed("position.x + fast")})
        t.read("car.speed", as_="now")
        t.only_if("now == 13.0")
        t.create("bus", "Vehicle", position={"x": 0.0, "y": 0.0}, speed=-fast)
    assert t.results == {"fast": 7.0, "now": 13.0}
    assert objects["car"] == Vehicle(Position(7.0, 0.0), 13.0)
    assert objects["bus.speed"] == -7.0


def test_all_members_are_computed_before_any_is_set(node: Node) -> None:
    car(node.objects, position=Position(1.0, 2.0))
    with node.objects.transaction() as t:
        t.update("car", {"position.x": Computed("position.y"), "position.y": Computed("position.x")})
    assert node.objects["car.position"] == Position(2.0, 1.0)


def test_a_guard_that_does_not_hold_undoes_everything(node: Node) -> None:
    car(node.objects)
    refused = pytest.raises(TransactionError, match=r"operation 3: only if .*: expected it to hold")
    with refused as caught, node.objects.transaction() as t:
        t.update("car", speed=9.0)
        speed = t.read("car.speed")
        t.only_if(speed < 9)
    assert [each.operation for each in caught.value.problems] == [3]
    assert node.objects["car.speed"] == 1.0


def test_all_problems_are_told_at_once_each_with_its_operation(node: Node) -> None:
    car(node.objects)
    with pytest.raises(TransactionError) as caught, node.objects.transaction() as t:
        t.update("car", speed="fast")
        t.read("cart.speed")
        t.create("van", "Vehicel", speed=1.0)
        t.create("bus", "Vehicle", speed=1.0)
        t.update("bus", speed=2.0)
        t.only_if("sped > 1")
        t.create("car", "Vehicle", position=Position(0.0, 0.0), speed=1.0)
        t.update("car", {"position.z": 1.0})
        t.update("//other/car", speed=1.0)
        t.invoke("car", "fly")
        t.publish("nowhere", x=1)
        t.update("car", {"position": Position(1.0, 1.0), "position.x": 2.0})
        t.publish("objects.Vehicle", object="//plant/van")
    said = {each.operation: each.text for each in caught.value.problems}
    assert sorted(said) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13]
    assert "speed: expected a float or int, found str 'fast'" in said[1]
    assert "expected an object of that name, found none" in said[2]
    assert "did you mean 'Vehicle'?" in said[3]
    assert "position: expected record Position, found no such key" in said[4]
    assert "nothing was read as 'sped'" in said[6]
    assert "expected no such object, found one" in said[7]
    assert "Position has no 'z'" in said[8]
    assert "expected an object of this node" in said[9]
    assert "expected a method of Vehicle, found 'fly'" in said[10]
    assert "expected a channel with a type at this node, found 'nowhere'" in said[11]
    assert "found 'position.x' and 'position', which has it" in said[12]
    assert "which a node itself fills" in said[13]


def test_a_block_that_raises_submits_nothing(node: Node) -> None:
    with pytest.raises(RuntimeError), node.objects.transaction() as t:
        t.create("car", "Vehicle", position=Position(0.0, 0.0), speed=1.0)
        raise RuntimeError
    assert "car" not in node.objects
    with pytest.raises(ObjectError, match="not submitted"):
        assert t.results


def test_what_is_read_is_no_value_yet(node: Node) -> None:
    t = node.objects.builder()
    speed = t.read("car.speed")
    with pytest.raises(ObjectError, match="computes later"):
        assert speed > 1
    with pytest.raises(ObjectError, match="computes later"):
        assert speed == 1


def test_coroutines_submit_without_stopping_their_loop(node: Node) -> None:
    async def main() -> Any:
        async with node.objects.transaction() as t:
            t.create("car", "Vehicle", position=Position(0.0, 0.0), speed=1.0)
            t.read("car.speed")
        many = [node.objects.builder() for _ in range(20)]
        for each in many:
            each.update("car", speed=Computed("speed + 1"))
        await asyncio.gather(*(node.objects.submit_async(each) for each in many))
        return t.results

    assert asyncio.run(main()) == {"speed": 1.0}
    assert node.objects["car.speed"] == 21.0


def test_methods_are_typed_and_change_their_object(node: Node) -> None:
    objects = node.objects
    car(objects, speed=2.0)

    @objects.method("Vehicle", event=True)
    def advance(vehicle: Vehicle, seconds: float = 1.0) -> Vehicle:
        there = Position(vehicle.position.x + seconds * vehicle.speed, vehicle.position.y)
        return Vehicle(there, vehicle.speed, vehicle.plate)

    @objects.method("Vehicle")
    def reach(vehicle: Vehicle, seconds: float) -> float:
        return vehicle.speed * seconds

    @objects.method("Vehicle")
    def crash(vehicle: Vehicle) -> None:
        raise RuntimeError("a tree")

    with objects.transaction() as t:
        t.invoke("car", "advance", seconds=3.0)
        far = t.invoke("car", "reach", "far", seconds=Computed("position.x"))
        assert far is not None
        t.only_if(far > 10)
    assert t.results == {"far": 12.0}
    assert objects["car.position.x"] == 6.0
    for method, arguments, message in (
        ("crash", {}, "it raised RuntimeError: a tree"),
        ("reach", {"second": 1.0}, "second: reachArguments has no such field"),
        ("crash", {"how": 1}, "expected no arguments, found how"),
    ):
        with pytest.raises(TransactionError, match=message), objects.transaction() as t:
            t.update("car", speed=0.0)
            t.invoke("car", method, **arguments)
    assert objects["car.speed"] == 2.0
    with pytest.raises(ObjectError, match="expected annotations of all arguments"):
        objects.method("Vehicle", lambda vehicle, by: None, name="bad")


def test_a_method_cannot_wait_for_a_transaction_of_its_own(node: Node) -> None:
    car(node.objects)

    @node.objects.method("Vehicle")
    def again(vehicle: Vehicle) -> None:
        with node.objects.transaction() as t:
            t.destroy("car")

    with pytest.raises(TransactionError, match="from within a turn"), node.objects.transaction() as t:
        t.invoke("car", "again")
    assert "car" in node.objects


def test_changes_are_events_with_an_exact_number_each(node: Node) -> None:
    objects = node.objects
    seen: list[tuple[Any, Any]] = []
    with objects.changes("Vehicle").subscribe(lambda event, about: seen.append((event, about))):
        car(objects)
        with objects.transaction() as t:
            t.update("car", speed=2.0)
            t.update("car", speed=3.0, event=True)
            t.raise_event("car.position")
            t.destroy("car")
        eventually(lambda: len(seen) == 4)
    events = [event for event, _ in seen]
    assert [about.seq for _, about in seen] == [1, 2, 3, 4]
    assert [str(each.op.name) for each in events] == ["created", "updated", "raised", "destroyed"]
    assert [each.object for each in events] == ["//plant/car"] * 4
    assert (events[0].old, events[1].old.speed, events[1].new.speed, events[3].new) == (None, 2.0, 3.0, None)
    assert events[0].turn < events[1].turn == events[3].turn


def test_events_of_other_channels_leave_after_the_commit(node: Node) -> None:
    alarms = node.channel("alarms", "text: text, level: f64")
    seen: Recorder[Any] = Recorder()
    car(node.objects, speed=4.0)
    with alarms.subscribe(seen):
        with pytest.raises(TransactionError), node.objects.transaction() as t:
            t.publish("alarms", text="never", level=0.0)
            t.only_if("1 > 2")
        with node.objects.transaction() as t:
            speed = t.read("car.speed")
            t.publish("alarms", text="fast", level=speed / 2)
        [event] = seen.wait(1)
    assert (event.text, event.level) == ("fast", 2.0)


def test_one_object_is_watched(node: Node) -> None:
    car(node.objects), car(node.objects, "van")
    seen: Recorder[Any] = Recorder()
    with node.objects.watch("car", seen, "new.speed > 5"):
        for name, speed in (("car", 6.0), ("van", 7.0), ("car", 4.0), ("car", 8.0)):
            with node.objects.transaction() as t:
                t.update(name, speed=speed, event=True)
        seen.wait(2)
    assert [each.new.speed for each in seen.events] == [6.0, 8.0]


def test_a_handler_may_submit_and_wait(node: Node) -> None:
    objects = node.objects
    car(objects, "car"), car(objects, "shadow")

    def follow(change: Any) -> None:
        with objects.transaction() as t:
            t.update("shadow", speed=change.new.speed)

    with objects.watch("car", follow):
        with objects.transaction() as t:
            t.update("car", speed=5.0, event=True)
        eventually(lambda: objects["shadow.speed"] == 5.0)


def test_a_sink_that_takes_nothing_holds_up_no_turn_and_no_other_channel(node: Node) -> None:
    objects = node.objects
    objects.type("Lamp", "on: bool")
    full = objects.changes("Vehicle").subscribe(queue=Queue(limit=1, policy="fail"))  # nobody pulls
    seen: Recorder[Any] = Recorder()
    objects.changes("Lamp").subscribe(seen)
    for name in ("car", "van", "bus"):
        car(objects, name)
    with objects.transaction() as t:
        t.create("lamp", "Lamp", on=True)
    seen.wait(1)
    eventually(lambda: bool(objects.report()["unsent"]))
    assert [full.get(timeout=GUARD).object for _ in range(3)] == ["//plant/car", "//plant/van", "//plant/bus"]
    assert objects.engine.outbox.wait(GUARD)
    assert not objects.report()["unsent"]


def test_many_clients_share_commits_and_nothing_is_lost(node: Node) -> None:
    objects = node.objects
    car(objects)

    def client() -> None:
        for _ in range(20):
            with objects.transaction() as t:
                t.update("car", speed=Computed("speed + 1"))

    threads = [threading.Thread(target=client) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(GUARD)
    assert objects["car.speed"] == 161.0


def test_objects_are_listed_shown_and_exported(node: Node) -> None:
    objects = node.objects
    for number in range(300):
        car(objects, f"fleet/car{number:03}", speed=float(number))
    car(objects, "van")
    assert [each.name for each in objects.list("fleet/*")] == [f"//plant/fleet/car{n:03}" for n in range(300)]
    assert [each.name for each in objects.list("*")] == ["//plant/van"]
    assert len(list(objects.list())) == len(objects) == 301
    made = objects.to_arrow("Vehicle", "fleet/**")
    assert made.num_rows == 300
    assert made["speed"].to_pylist()[7] == 7.0
    assert made["object"][7].as_py() == "//plant/fleet/car007"
    assert objects.to_pandas("Vehicle").shape[0] == 301
    assert "//plant/van" in objects.show("van")


def test_types_are_declared_for_good(node: Node) -> None:
    car(node.objects)
    with pytest.raises(ObjectError, match="as it was declared"):
        node.objects.type("Vehicle", "speed: f64")
    node.objects.type("Lamp", "on: bool, watts: f64")
    node.objects.type("Lamp", "on: bool, watts: f64")
    with node.objects.transaction() as t:
        t.create("lamp", "Lamp", on=True, watts=60.0)
    assert node.objects["lamp.watts"] == 60.0
    assert sorted(node.objects.types) == ["Lamp", "Vehicle"]


def test_a_node_without_state_says_what_to_do() -> None:
    with Node("plain") as node, pytest.raises(ServiceError, match=r"state=\"plain\.state\""):
        assert node.objects


@pytest.mark.parametrize("name", ["", "a b", "a//b", "a/", ".x", "a.", "a..b", "//plant", "///x", "x" * 600, "a.1"])
def test_bad_names_are_refused(node: Node, name: str) -> None:
    with pytest.raises(ObjectError, match="expected"), node.objects.transaction() as t:
        t.destroy(name)


def test_a_transaction_crosses_as_bytes_and_others_are_refused(node: Node) -> None:
    t = node.objects.builder(params={"d": 1.5})
    t.create("car", "Vehicle", position=Position(0.0, 0.0), speed=1.0)
    t.update("car", speed=Computed("speed + :d"), event=True)
    made = t.build()
    assert unpack(pack(made)) == made
    for data in (b"", b"\x00", pack(made)[:-3], pack(made) + b"\x00", b"\x91" * 100_000, b"\xc1"):
        with pytest.raises(ObjectError, match="transaction: expected"):
            unpack(data)
    with pytest.raises(ObjectError, match=r"at most 1,000 computed values"):
        check_texts(type(made)((Update("//plant/car", {}, {"speed": "1"}),) * 1001))
    with pytest.raises(ObjectError, match=r"at most 16,384 characters of expressions"):
        check_texts(type(made)(tuple(Guard(f"{'1 + ' * 250}{n} > 0") for n in range(20))))
    for operation in (
        Update("//plant/car", {"": 1}),
        Update("//plant/car", {}, {"speed": "((" * 2000}),
        Update("//plant/car", {}, {"speed": "1 " * 5000}),
        Update("//plant/\ud800"),
        Update("//plant/car", {"speed": {"a": [1] * 3}}),
        Update("//plant/car", {"position": None}),
    ):
        with pytest.raises(ObjectError):
            node.objects.submit(type(made)((operation,)))
