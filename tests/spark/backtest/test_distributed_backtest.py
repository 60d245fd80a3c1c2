"""Triggers over several nodes tried on their logs: what a look at everything finds, and fewer messages by zones."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.cli import main
from headwater.errors import ConfigError
from headwater.spark.backtest import AskedTrigger, backtest_distributed
from headwater.testing import ManualClock, Recorder, eventually

OWNERS = ("east", "north", "south")
TEXTS = {
    "apart": "abs(a.x - b.x) > 6",
    "far": "abs(a.x - b.x) > 40",
    "sum": "a.x + b.x + c.x > 9 and a.on and c.on",
    "product": "a.x * b.x > 20",
    "alone": "a.x > 4 and b.on",
}
READ = {"apart": "ab", "far": "ab", "sum": "abc", "product": "ab", "alone": "ab"}
Row = tuple[datetime, dict[str, dict[str, Any]]]


def asked(name: str, when: str = "becomes") -> AskedTrigger:
    inputs = {key: f"//{owner}/car" for key, owner in zip("abc", OWNERS, strict=True) if key in READ[name]}
    return AskedTrigger(name=name, when=when, where=TEXTS[name], inputs=inputs)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """Three cars that wander about, and what everything was after each change."""
    folder, clock, chance = tmp_path_factory.mktemp("cars"), ManualClock(), random.Random(5)
    nodes = {name: Node(name, state=":memory:", log=folder / "log", clock=clock) for name in OWNERS}
    cars: dict[str, dict[str, Any]] = {}
    rows: list[Row] = []
    for name, node in nodes.items():
        node.objects.type("Car", "x: f64, on: bool")
        clock.advance(0.3)
        with node.objects.transaction() as t:
            t.create("car", "Car", x=0.0, on=True)
        cars[name] = {"x": 0.0, "on": True}
        rows.append((datetime.fromtimestamp(clock.time() / 1e6, UTC), {key: dict(car) for key, car in cars.items()}))
    for _ in range(400):
        clock.advance(chance.choice((0.05, 0.2, 1.0, 7.0)))
        name = chance.choice(OWNERS)
        cars[name] = {"x": cars[name]["x"] + chance.gauss(0, 0.6), "on": chance.random() < 0.97}
        with nodes[name].objects.transaction() as t:
            t.update(
                "car", x=cars[name]["x"] + 99, event=True
            )  # what a transaction does not leave is nobody's business
            t.update("car", cars[name], event=True)
        rows.append((datetime.fromtimestamp(clock.time() / 1e6, UTC), {key: dict(car) for key, car in cars.items()}))
    for node in nodes.values():
        node.close()
    return folder / "log", rows


def expected(rows: list[Row], name: str) -> list[datetime]:
    """By looking at all of it."""
    found, before = [], False
    for time, cars in rows:
        mine = {key: cars[owner] for key, owner in zip("abc", OWNERS, strict=True) if owner in cars}
        holds = all(key in mine for key in READ[name]) and {
            "apart": lambda a, b, c: abs(a["x"] - b["x"]) > 6,
            "far": lambda a, b, c: abs(a["x"] - b["x"]) > 40,
            "sum": lambda a, b, c: a["x"] + b["x"] + c["x"] > 9 and a["on"] and c["on"],
            "product": lambda a, b, c: a["x"] * b["x"] > 20,
            "alone": lambda a, b, c: a["x"] > 4 and b["on"],
        }[name](*(mine.get(key) for key in "abc"))
        if holds and not before:
            found.append(time)
        before = holds
    return found


def test_it_fires_when_a_look_at_everything_finds_it_and_zones_save_messages(
    recorded: tuple[Path, list[Row]],
) -> None:
    log, rows = recorded
    found = backtest_distributed(None, log, [asked(name) for name in TEXTS], delay="30 ms")
    for name in TEXTS:
        row = found.trigger(name)
        assert [each["time"] for each in row.firings] == expected(rows, name), name
        assert all(timedelta(0) < each["known"] - each["time"] <= timedelta(milliseconds=91) for each in row.firings)
        assert row.zones is not None
    assert sum(len(row.firings) for row in found.triggers) > 10
    assert found.trigger("far").saved > 0.2 and "a.x > 4" in str(found.trigger("alone").decides)
    assert "fewer" in str(found) and found.to_dict()["delay"] == 0.03


def test_it_fires_when_it_did(tmp_path: Path) -> None:
    """Live, through a federation, and again over what was logged."""
    home = Node("home", state=tmp_path / "home.state", listen="tcp/127.0.0.1:0")
    cars = [Node(name, state=":memory:", log=tmp_path / "log", connect=home.endpoints[0])
            for name in ("north", "south")]  # fmt: skip
    try:
        for car in cars:
            car.objects.type("Car", "x: f64")
            with car.objects.transaction() as t:
                t.create("car", "Car", x=0.0)
        home.until(lambda: {"north", "south"} <= set(home.peers))
        words: dict[str, Any] = {"when": "becomes", "where": "abs(a.x - b.x) > 10",
                                 "inputs": {"a": "//north/car", "b": "//south/car"}}  # fmt: skip
        live = home.objects.trigger("apart", notify={"at": "new.time", "error": "new.error"}, **words)
        eventually(lambda: live.holds is False)
        heard = Recorder[Any]()
        live.subscribe(heard)
        for count, x in enumerate((3.0, 12.0, 1.0, 4.0, 20.0, 15.0, -5.0)):
            with cars[count % 2].objects.transaction() as t:
                t.update("car", x=x, event=True)
            true = abs(cars[0].objects["car.x"] - cars[1].objects["car.x"]) > 10
            eventually(lambda true=true: live.holds is true)  # else two changes could be of one moment of two clocks
        told = [each.at for each in heard.wait(3)]
    finally:
        for node in (*cars, home):
            node.close()
    row = backtest_distributed(None, tmp_path / "log", [AskedTrigger(name="apart", **words)]).trigger("apart")
    assert [each["time"] for each in row.firings] == told and len(told) == 3


def test_each_event_crosses(recorded: tuple[Path, list[Row]]) -> None:
    log, rows = recorded
    row = backtest_distributed(None, log, [asked("apart", "each")]).trigger("apart")
    assert row.zones is None and row.saved is None and any("every change crosses" in each for each in row.warnings)
    far = [cars for _, cars in rows if "north" in cars and abs(cars["east"]["x"] - cars["north"]["x"]) > 6]
    assert 0 < len(row.firings) <= 2 * len(far)
    assert row.simple.messages >= sum(row.changes.values())


FILE = """
[[trigger]]
name = "apart"
when = "becomes"
where = "abs(a.x - b.x) > :most"
params = {most = 6}
inputs = {a = "//east/car", b = {name = "//north/car", type = "Car"}}

[[trigger]]
name = "on"
on = "//east/car"
when = "becomes"
where = "not new.on"
"""


def test_the_command_tries_both_kinds(
    recorded: tuple[Path, list[Row]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, rows = recorded
    file = tmp_path / "triggers.toml"
    file.write_text(FILE)
    assert main(["backtest", str(file), str(log), "--delay", "5 ms", "--csv", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "5 ms from one to another" in shown and "The last firings of on:" in shown
    line = (tmp_path / "distributed.csv").read_text().splitlines()[1].split(",")
    assert line[0] == "apart" and int(line[2]) == len(expected(rows, "apart"))


def test_what_is_wrong_is_told_at_once(recorded: tuple[Path, list[Row]]) -> None:
    log, _ = recorded
    wrong = [
        AskedTrigger(name="a", when="becomes", where="a.x > b.z", inputs={"a": "//east/car", "b": "//north/car"}),
        AskedTrigger(name="b", when="becomes", where="a.x > 1", inputs={"a": "//moon/car"}),
    ]
    with pytest.raises(ConfigError) as told:
        backtest_distributed(None, log, wrong)
    assert "'z'" in str(told.value) and "//moon/car" in str(told.value) and "east, north, south" in str(told.value)
    with pytest.raises(ConfigError, match="such as 20 ms"):
        backtest_distributed(None, log, [asked("sum")], delay="soon")
