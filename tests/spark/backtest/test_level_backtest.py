"""Levels of a replica tried on a log: what a plain look at all changes counts, and what was told while it was held."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater import Node
from headwater.errors import ConfigError
from headwater.logs import LogFiles
from headwater.objects import Linear
from headwater.spark.backtest import backtest_levels
from headwater.testing import ManualClock, eventually

LEVELS = {"exact": {"level": 0.0}, "fine": {"level": 0.5}, "coarse": {"level": 4.0}}
Change = tuple[int, str, float | None]


@pytest.fixture(scope="module")
def tanks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Change]]:
    """Three tanks whose levels wander about, one of which ends, and what each turn has left."""
    folder, clock, chance = tmp_path_factory.mktemp("tanks"), ManualClock(), random.Random(3)
    left: list[Change] = []
    with Node("plant", state=":memory:", log=folder / "log", clock=clock) as node:
        objects = node.objects
        objects.type("Tank", "level: f64, label: text?")
        levels = dict.fromkeys(("a", "b", "c"), 0.0)
        with objects.transaction() as t:
            for name in levels:
                t.create(f"hall/{name}", "Tank", level=0.0)
                left.append((clock.time(), name, 0.0))
        for _ in range(500):
            clock.advance(0.1)
            name = chance.choice(sorted(levels))
            levels[name] += chance.gauss(0, 0.4)
            with objects.transaction() as t:
                t.update(f"hall/{name}", level=1e6, event=True)  # what a turn does not leave behind
                t.update(f"hall/{name}", level=levels[name], event=True)
            left.append((clock.time(), name, levels[name]))
        with objects.transaction() as t:
            t.destroy("hall/c")
        left.append((clock.time(), "c", None))
        node.flush()
    return folder / "log", left


def plainly(left: list[Change], bound: float, delay: int) -> tuple[int, float, float]:
    """Messages, how far off what was told was at most, and what had arrived."""
    told: dict[str, list[tuple[int, float]]] = {}
    messages, met, seen = 0, 0.0, 0.0
    for at, name, value in left:
        known = told.setdefault(name, [])
        if value is None:
            messages += 1
            continue
        if not known or abs(known[-1][1] - value) > bound:
            known.append((at, value))
            messages += 1
        met = max(met, abs(known[-1][1] - value))
        arrived = [each for time, each in known if time + delay <= at]
        seen = max(seen, abs(arrived[-1] - value)) if arrived else seen
    return messages, met, seen


def test_messages_and_bounds_are_what_a_look_at_all_changes_finds(tanks: tuple[Path, list[Change]]) -> None:
    log, left = tanks
    found = backtest_levels(None, log, "hall/*", type="Tank", levels=LEVELS, delay="250 ms")
    assert found.changes == len(left)
    for name, bounds in LEVELS.items():
        row, (messages, met, seen) = found.level(name), plainly(left, bounds["level"], 250_000)
        assert row.messages.events == messages and row.corrections == 0
        assert row.met["level"].greatest == met <= bounds["level"] and row.seen["level"].greatest == seen
        assert row.met["level"].measured == len(left) - 1
    fine = found.level("fine").met["level"]
    assert fine.half is not None and fine.nine_tenths is not None and fine.half < fine.nine_tenths <= fine.bound
    assert found.level("coarse").share < 0.1 and "of the changes" in str(found)
    assert found.write_csv(log.parent / "csv")[0].read_text().count("\n") == 7


def test_at_each_level_it_is_what_was_told(tmp_path: Path) -> None:
    """Live, through a federation, with dead reckoning, and again over the log."""
    log, clock, chance = tmp_path / "log", ManualClock(), random.Random(8)
    model, bound = Linear({"x": "v"}), {"x": 3.0}
    with Node("plant", state=":memory:", log=log, clock=clock, listen="tcp/127.0.0.1:0") as plant:
        plant.objects.type("Train", "x: f64, v: f64")
        with Node("desk", connect=plant.endpoints[0]) as desk:
            desk.until(lambda: "plant" in desk.peers)
            held = desk.objects_at("plant").replica("line/*", type="Train", bound=bound, model=model)
            eventually(lambda: plant.objects.report()["replicas"]["replicas"] == 1)
            x = {"a": 0.0, "b": 50.0}
            with plant.objects.transaction() as t:
                for name, place in x.items():
                    t.create(f"line/{name}", "Train", x=place, v=1.0)
            for _ in range(40):
                for _ in range(chance.choice((1, 1, 2, 9))):
                    clock.advance(0.5)
                    plant.objects.submit(plant.objects.builder())  # what was due is before it in the line
                name = chance.choice(sorted(x))
                x[name] += chance.gauss(1, 2)
                with plant.objects.transaction() as t:
                    t.update(f"line/{name}", x=x[name], v=chance.choice((1.0, 1.0, 1.0, 0.5)), event=True)
            told = plant.objects.report()["replicas"]["told"]
            held.close()
        plant.flush()
    events = [row for batch in LogFiles(log).read("objects.Train.replicas") for row in batch.to_pylist()]
    found = backtest_levels(None, log, "line/*", type="Train", levels={"it": bound}, model=model)
    row = found.level("it")
    mine = [each for each in events if each["object"]]
    assert row.messages.events == len(mine) >= told > 10
    assert row.corrections == sum(each["still"] for each in mine) > 0
    assert row.met["x"].greatest <= 3.0


def test_what_is_wrong_is_told_at_once(tanks: tuple[Path, list[Change]]) -> None:
    log, _ = tanks
    with pytest.raises(ConfigError) as told:
        backtest_levels(None, log, "hall/*", type="Tank", levels={"a": {"lebel": 1.0}, "b": {"label": 1.0}})
    assert "'lebel'" in str(told.value) and "label: expected a number" in str(told.value)
    with pytest.raises(ConfigError, match="Tank"):
        backtest_levels(None, log, "hall/*", type="Tanks", levels=LEVELS)
    with pytest.raises(ConfigError, match="plant"):
        backtest_levels(None, log, "//moon/hall/*", type="Tank", levels=LEVELS)
