"""What is promised: in decided time no firing is missed and none is false, all other time is declared unknown, and a
firing comes within three one-way delays. Held to an evaluator that sees everything, in all kinds of weather."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headwater.objects.zones.explanation import explain
from headwater.objects.zones.ranges import Value
from tests.effort import rounds
from tests.objects.zones.conditions import Opaque, Product, Weighted
from tests.objects.zones.world import Weather, World

CHANGES = 150
Values = tuple[Value, ...]

WEATHERS = {
    "calm": Weather(),
    "clocks apart": Weather(error=30),
    "lost and doubled": Weather(loss=0.15, double=0.2),
    "links down": Weather(split=0.03),
    "owners killed": Weather(crash=0.03),
    "home killed": Weather(home_crash=0.02),
    "everything": Weather(delay=40, loss=0.1, double=0.1, split=0.015, crash=0.015, home_crash=0.01, error=25),
}
PROMPT = ("calm", "clocks apart")  # where every message arrives


def walk(random: random.Random, values: Values) -> Values:
    """Numbers go a step, gates open or shut; now and then a number is missing."""

    def step(value: Value) -> Value:
        if isinstance(value, bool):
            return value if random.random() < 0.9 else not value
        if not isinstance(value, float):
            return random.uniform(-5, 5)
        return None if random.random() < 0.02 else value + random.choice((-1.0, 1.0))

    return tuple(map(step, values))


CONDITIONS: dict[str, tuple[Any, Values]] = {
    "sum": (Weighted({"a": 1, "b": 1, "c": -1}, 6.0), (0.0,)),
    "gates": (Weighted({"a": 1, "b": -1}, 2.0, gates=True), (True, 0.0)),
    "product": (Product(15.0), (2.0,)),
}


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_nothing_is_missed_and_nothing_is_false(condition: str, weather: str) -> None:
    """Every firing in decided time, no other, and in time where all messages arrive."""
    meaning, start = CONDITIONS[condition]
    for seed in range(rounds(2, 50)):
        world = World(seed, meaning, start, walk, WEATHERS[weather])
        world.run(CHANGES)
        world.check(prompt=weather in PROMPT)


@pytest.mark.parametrize("when", ["becomes", "each"])
@pytest.mark.parametrize("weather", ["calm", "everything"])
def test_the_simple_scheme_keeps_the_same_promise(weather: str, when: Any) -> None:
    """Every change crosses: for triggers of each event, and for conditions of which no box says anything."""
    for seed in range(rounds(1, 50)):
        world = World(seed, Opaque({"a": 1, "b": 1}, 4.0), (0.0,), walk, WEATHERS[weather], when=when)
        world.run(CHANGES)
        world.check(prompt=weather in PROMPT and when == "becomes")
        assert world.home is not None
        assert world.home.counts.zones == 0


def test_far_from_the_threshold_hardly_anything_crosses() -> None:
    """And who moves where it does not matter says nothing at all."""

    def drift(random: random.Random, values: Values) -> Values:
        return tuple(float(value or 0.0) + random.choice((-1.0, 1.0)) for value in values)

    world = World(1, Weighted({"a": 1, "b": 1, "c": 1}, 200.0), (0.0,), drift, Weather())
    world.run(600)
    assert world.check() == (0, 0)
    assert world.home is not None
    assert world.home.counts.messages < 40


def test_what_is_unknown_is_said_and_who_is_not_heard_of() -> None:
    """A link that stays down is named, with the time since when nothing is known."""
    world = World(3, Weighted({"a": 1, "b": 1}, 3.0), (0.0,), walk, Weather(split=0.2, down=3000))
    world.run(300)
    world.check()
    said = [happening for _, happening in world.told if type(happening).__name__ == "Unknown"]
    assert said and all("nothing is heard of" in one.why for one in said)  # type: ignore[union-attr]


def test_it_can_be_explained() -> None:
    """Who evaluates what, where everybody may be, and what it costs."""
    world = World(1, Weighted({"a": 1, "b": 1}, 300.0, gates=True), (True, 0.0), walk, Weather())
    world.run(100)
    assert world.home is not None
    text = explain(world.home)
    assert "fires when it becomes true; safe zones" in text
    assert "does not hold" in text
    assert "a is silent; messages expected" in text
    assert "    gate: " in text
