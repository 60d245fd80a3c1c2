"""What a replica says of a time is true, whatever happens: random changes, silent ones too, slow and cut links, clocks
that are set back, restarts; and no more crosses than has to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.objects.operations import Guard, Update
from tests.effort import examples
from tests.objects.replicas.world import Holder, World, driving, spec

NAMES = ("fleet/a", "fleet/b", "fleet/c", "yard/d")
NUMBERS = st.sampled_from([0.0, 0.4, 0.5, 0.6, 1.0, 1.1, -2.0, 1e9, 0.1 + 0.2])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), NUMBERS, NUMBERS, st.booleans()),
        st.tuples(st.just("label"), st.sampled_from(NAMES), st.sampled_from(["", "p"])),
        st.tuples(st.just("end"), st.sampled_from(NAMES)),
        st.tuples(st.just("fail"), st.sampled_from(NAMES)),
        st.tuples(st.just("both"), NUMBERS),
        st.tuples(st.just("time"), st.sampled_from([1, 1000, 700_000, 5_000_000, -3_000_000])),
        st.tuples(st.just("promise")),
        st.tuples(st.just("page")),
        st.tuples(st.just("cross"), st.integers(1, 6)),
        st.tuples(st.just("lose")),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)
SPECS = (
    spec(bound={"x": 0.5}),
    spec(bound={"x": 1.0, "v": 0.5}, members=("x",)),
    spec("fleet/**"),
    driving(0.5),
    driving(0.0),
)


def step(world: World, holders: list[Holder], what: Any) -> None:
    match what:
        case "put", name, x, v, event:
            world.put(name, x=x, v=v, event=event)
        case "label", name, label:
            world.put(name, label=label)
        case "end", name:
            if world.engine.get(name) is not None:
                world.end(name)
        case "fail", name:
            world.run(Update(name, {"x": 77.0}), Guard("false"))
        case "both", x:
            known = [name for name in NAMES[:2] if world.engine.get(name) is not None]
            world.run(*(Update(name, {"x": each}) for name in known for each in (x + 9.0, x)))
        case "time", micros:
            world.pass_time(micros)
        case "promise", *_:
            for holder in holders:
                holder.promise()
        case "page", *_:
            for holder in holders:
                holder.read()
        case "cross", most:
            for holder in holders:
                holder.cross(most)
        case "lose", *_:
            holders[0].at = len(world.wire.lines)  # what was on its way is gone, and it is known: begin anew
            holders[0].begin()
        case "restart", *_:
            world.restart()
            for holder in holders:
                holder.begin()


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_at_every_time_it_says_everything_was_within_its_bound(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "state")
        try:
            holders = [Holder(world, each) for each in SPECS]
            for what in steps:
                step(world, holders, what)
                for holder in holders:
                    holder.check()
            for holder in holders:
                if holder.copy.broken:
                    holder.begin()
                holder.settle()
                assert holder.copy.as_of is not None
                holder.check()
        finally:
            world.close()


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path / "state")
    yield made
    made.close()


def test_only_what_is_too_far_off_crosses(world: World) -> None:
    world.put("fleet/a", x=0.0)
    holder = Holder(world, spec(bound={"x": 0.5}))
    holder.settle()
    for x in range(100):
        world.put("fleet/a", x=x / 100)  # silently
        world.pass_time(1000)
    holder.settle()
    assert [told.at for _, told in world.wire.lines] and len(world.wire.lines) == 1
    assert holder.copy.told["fleet/a"].raw["x"] == pytest.approx(0.51)
    holder.check()
    assert holder.copy.as_of is not None and holder.copy.as_of >= world.now - 1


def test_a_turn_is_told_as_a_whole_and_what_it_comes_to_only(world: World) -> None:
    world.put("fleet/a", x=0.0)
    world.put("fleet/b", x=0.0)
    holder = Holder(world, spec(bound={"x": 0.5}))
    holder.settle()
    world.run(Update("fleet/a", {"x": 50.0}), Update("fleet/a", {"x": 0.1}), Update("fleet/b", {"x": 9.0}))
    assert [(told.object, told.more) for _, told in world.wire.lines] == [("fleet/b", 0)]
    world.run(Update("fleet/a", {"x": 5.0}), Update("fleet/b", {"x": 5.0}))
    before = holder.copy.as_of
    holder.cross(2)
    holder.check()
    assert holder.copy.told["fleet/a"].raw["x"] == 0.0  # half of a turn is nothing
    holder.settle()
    holder.check()
    assert holder.copy.told["fleet/a"].raw["x"] == 5.0 and holder.copy.as_of != before


def test_who_is_driving_as_said_is_not_told_of_and_who_stands_is_once(world: World) -> None:
    world.put("fleet/a", x=0.0, v=2.0)
    holder = Holder(world, driving(1.0))
    holder.settle()
    for second in range(1, 101):
        world.pass_time(250_000)
        world.put("fleet/a", x=second / 2)
    assert world.wire.lines == []
    holder.settle()
    holder.check()
    for _ in range(20):  # it stands still, and says nothing
        world.pass_time(250_000)
    assert [(told.object, told.still) for _, told in world.wire.lines] == [("fleet/a", True)]
    holder.settle()
    holder.check()
    assert holder.copy.value("fleet/a", world.now)["x"] == 50.0  # type: ignore[index]


def test_no_time_is_promised_that_the_model_has_gone_too_far_for(world: World) -> None:
    """The timer is late: until the correction is there, nothing is said of the time for which it was due."""
    world.put("fleet/a", x=0.0, v=1.0)
    holder = Holder(world, driving(1.0))
    holder.settle()
    began = world.truth["fleet/a"][0][0]
    world.now += 5_000_000  # and nobody is woken
    holder.settle()
    assert holder.copy.as_of is not None and holder.copy.as_of <= began + 1_000_001 + 10
    holder.check()
    world.pass_time(0)
    holder.settle()
    assert holder.copy.as_of >= world.now - 1
    holder.check()


def test_who_says_for_long_that_nobody_holds_it_ends_it(world: World) -> None:
    from headwater.objects.replicas.owner import holding, releasing

    one = spec(bound={"x": 0.5})
    world.put("fleet/a", x=0.0)
    holder = Holder(world, one)
    holder.settle()
    world.run(holding(one, "desk", 1_000_000))
    world.pass_time(2_000_000)
    world.put("fleet/a", x=5.0)
    assert world.replicas.held == {}
    holder.cross(9)
    assert "ended it" in holder.copy.broken
    holder.check()
    holder.begin()
    holder.settle()
    holder.check()
    assert holder.copy.told["fleet/a"].raw["x"] == 5.0
    world.run(releasing(one, "desk"))
    assert world.replicas.held == {} and tables_are_empty(world)


def tables_are_empty(world: World) -> bool:
    return not any(world.rows.read(f"SELECT * FROM {each}") for each in ("replicas", "replica_holders", "replica_told"))
