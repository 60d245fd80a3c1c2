"""Triggers tried on a log in this process: the same firings, with the same values, as when they were at work."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.cli import main
from headwater.errors import ConfigError, ObjectError
from headwater.objects import over, result_of
from headwater.spark.backtest import AskedTrigger, backtest_triggers, loads
from headwater.testing import ManualClock, Recorder
from tests.effort import rounds
from tests.spark.backtest.recorded import comparable, record, told


def test_what_would_have_fired_is_what_fired(tmp_path: Path) -> None:
    for seed in range(rounds(1, 10)):
        folder = tmp_path / str(seed)
        triggers = record(folder, seed, rooms=rounds(8, 30), turns=12)
        found = backtest_triggers(None, folder / "log", triggers)
        fired = 0
        for each in triggers:
            if each.veto:
                assert found.trigger(each.name).vetoed == 0  # what it refused is in no log
                continue
            live = told(folder, each.name)
            assert comparable(found.notifications(each.name).to_pylist()) == live, (seed, each)
            assert found.trigger(each.name).messages.events == len(live)
            fired += len(live)
        assert fired > 100 and not any("without an event" in note for note in found.notes)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A day at a desk: two types of objects, a channel, silent updates, and a snapshot of the middle of it."""
    folder, clock = tmp_path_factory.mktemp("desk"), ManualClock()
    with Node("desk", state=":memory:", log=folder / "log", clock=clock) as node:
        objects, quotes = node.objects, node.channel("quotes", "price: f64").source("s")
        objects.type("Stock", "price: f64, traded: i64")
        objects.type("Desk", "limit: f64")
        with objects.transaction() as t:
            t.create("stock/acme", "Stock", price=100.0, traded=0)
            t.create("desk", "Desk", limit=90.0)
        clock.advance(10)
        for price in (95.0, 85.0):
            with objects.transaction() as t:
                t.update("stock/acme", price=price, event=True)
            clock.advance(10)
        middle = {name: objects.to_arrow(name) for name in ("Stock", "Desk")}
        with objects.transaction() as t:
            t.update("desk", limit=70.0)  # nobody is told
        quotes.publish(price=60.0)
        with objects.transaction() as t:
            t.update("stock/acme", price=80.0, event=True)
        clock.advance(30)
        with objects.transaction() as t:  # both at once: each is judged when both are done
            t.update("stock/acme", price=75.0, event=True)
            t.update("desk", limit=76.0, event=True)
        node.flush()
    return {"log": folder / "log", "middle": middle, "folder": folder}


LOW = AskedTrigger(name="low", on="stock/acme", when="each", where="new.price < desk.limit", notify=["new.price"],
                   inputs={"desk": "desk"})  # fmt: skip


def prices(found: Any, name: str = "low") -> list[float]:
    return [json.loads(text)["price"] for text in found.firings["values"].to_pylist()]


def test_inputs_are_what_the_recording_knows_of_them(desk: dict[str, Any]) -> None:
    found = backtest_triggers(None, desk["log"], [LOW])
    # At 80.0 the limit was 70.0, by an update that nobody was told of: it is known from the next change on only.
    assert prices(found) == [85.0, 80.0, 75.0]
    assert any("1 changes show that their object was changed without an event" in note for note in found.notes)
    assert found.counts()["low"] == {"evaluated": 4, "fired": 3, "vetoed": 0, "failed": 0, "messages": 3,
                                     "bytes": found.trigger("low").messages.bytes}  # fmt: skip
    assert "each node as a whole" in found.how and "//desk/stock/acme updated, turn" in str(found)


def test_with_a_snapshot_it_begins_there(desk: dict[str, Any]) -> None:
    found = backtest_triggers(None, desk["log"], [LOW], initial=desk["middle"])
    assert prices(found) == [80.0, 75.0] and found.changes == 3
    stock = {"Stock": desk["middle"]["Stock"]}
    found = backtest_triggers(None, desk["log"], [LOW], initial=stock)
    assert prices(found) == [75.0]  # the limit is missing until its change
    assert any("first seen in a change" in note for note in found.notes)
    with pytest.raises(ConfigError, match="no such type of objects"):
        backtest_triggers(None, desk["log"], [LOW], initial={"Stocks": stock["Stock"]})


def test_time_goes_on_with_the_recording(desk: dict[str, Any]) -> None:
    asked = [
        AskedTrigger(name="quiet", on="unchanged 15 s stock/acme.price", when="each", notify={"x": "new.price"}),
        AskedTrigger(name="tick", on="every 20 s", when="becomes", where="p < 90", inputs={"p": "stock/acme.price"},
                     notify={"p": "p", "count": "new.count"}),
        AskedTrigger(name="quote", on="channel quotes", when="each", where="new.price < p.price", notify=["new.price"],
                     inputs={"p": ("stock/acme", "Stock")}),
    ]  # fmt: skip
    found = backtest_triggers(None, desk["log"], asked)
    begin = found.first
    assert begin is not None
    rows = [(row["trigger"], (row["time"] - begin).total_seconds(), row["turn"]) for row in found.firings.to_pylist()]
    # What is due at the moment of a change comes before it; nobody knows of a turn that only time began.
    assert rows == [("quote", 30.0, None), ("tick", 40.0, None), ("quiet", 45.0, None)]
    assert found.events == 1 and any("publication" in note for note in found.notes)
    assert found.notifications("tick").to_pylist()[0]["count"] == 1


def test_what_would_have_been_refused(desk: dict[str, Any]) -> None:
    asked = AskedTrigger(name="floor", on="stock/*", type="Stock", when="each", where="new.price < 81", veto="too low",
                         coupling="within")  # fmt: skip
    found = backtest_triggers(None, desk["log"], [asked])
    row = found.trigger("floor")
    assert (row.fired, row.vetoed, row.messages.events) == (2, 2, 0)
    assert found.firings["vetoed"].to_pylist() == [True, True] and "each object by itself" in found.how
    with pytest.raises(KeyError, match="notifies nobody"):
        found.notifications("floor")


def test_everything_that_is_wrong_is_told_at_once(desk: dict[str, Any]) -> None:
    asked = [
        AskedTrigger(name="a", on="stock/acme", when="each", where="new.prize > 1", notify=True),
        AskedTrigger(name="b", on="//moon/stock/acme", when="each", notify=True),
        AskedTrigger(name="c", on="stock/acme", when="sometimes", notify=True),
        AskedTrigger(name="c", on="stock/*", when="each", notify=True),
    ]
    with pytest.raises(ConfigError) as told_at_once:
        backtest_triggers(None, desk["log"], asked)
    text = str(told_at_once.value)
    assert "'sometimes'" in text and "moon" in text and "'c' again" in text
    with pytest.raises(ConfigError) as then:
        backtest_triggers(None, desk["log"], [asked[0], asked[3]])
    assert "prize" in str(then.value) and "type of this object is not known" in str(then.value)
    called = AskedTrigger(name="m", on="stock/acme", when="each", notify=True, where="left > 1",
                          inputs={"left": result_of("stock/acme", "left")})  # fmt: skip
    with pytest.raises(ConfigError, match="results of methods: left"):
        backtest_triggers(None, desk["log"], [called])
    with pytest.raises(ConfigError, match="at least one"):
        backtest_triggers(None, desk["log"], [])


def test_a_clock_that_would_never_end_is_refused(desk: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.objects.triggers.replay.MOST_TICKS", 1000)
    asked = AskedTrigger(name="busy", on="every 1 ms", when="each", where="p < 0", inputs={"p": "stock/acme.price"},
                         notify=True)  # fmt: skip
    with pytest.raises(ObjectError, match="at most 1,000 moments"):
        backtest_triggers(None, desk["log"], [asked])


def test_an_object_of_two_types_has_to_be_told_apart(tmp_path: Path) -> None:
    with Node("n", state=":memory:", log=tmp_path / "log") as node:
        for name in ("P", "Q"):
            node.objects.type(name, "x: i64")
            with node.objects.transaction() as t:
                t.create("a", name, x=1)
            with node.objects.transaction() as t:
                t.destroy("a")
        node.flush()
    asked = AskedTrigger(name="gone", on="destroyed a", when="each", notify={"x": "old.x"})
    with pytest.raises(ConfigError, match="one of P, Q"):
        backtest_triggers(None, tmp_path / "log", [asked])


def test_two_nodes_are_two_worlds(tmp_path: Path) -> None:
    for name, values in (("a", (1, 5)), ("b", (7, 2, 9))):
        with Node(name, state=":memory:", log=tmp_path / "log") as node:
            node.objects.type("P", "x: i64")
            with node.objects.transaction() as t:
                t.create("p", "P", x=0)
            for x in values:
                with node.objects.transaction() as t:
                    t.update("p", x=x, event=True)
            node.flush()
    asked = [AskedTrigger(name=name, on=f"{owner}p", when="becomes", where="new.x > 4", notify={"x": "new.x"})
             for name, owner in (("both", ""), ("one", "//b/"))]  # fmt: skip
    found = backtest_triggers(None, tmp_path / "log", asked)
    rows = [(row["node"], row["trigger"], row["values"]) for row in found.firings.to_pylist()]
    assert sorted(rows) == [("a", "both", '{"x":5}'), ("b", "both", '{"x":7}'), ("b", "both", '{"x":9}'),
                            ("b", "one", '{"x":7}'), ("b", "one", '{"x":9}')]  # fmt: skip


FILE = """
[[trigger]]
name = "jump"
on = "stock/acme.price"
when = "each"
where = "minute.max - minute.min > :most"
params = {most = 12}
history = {minute = {over = "new.price", within = "25 s"}}
notify = {high = "minute.max", low = "minute.min"}

[[trigger]]
name = "cheap"
on = ["stock/*"]
type = "Stock"
when = "becomes"
where = "new.price < d.limit"
inputs = {d = {name = "desk", type = "Desk"}}
"""


def test_the_command_tries_triggers_of_a_file(desk: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    file = desk["folder"] / "triggers.toml"
    file.write_text(FILE)
    tables = desk["folder"] / "tables"
    assert main(["backtest", str(file), str(desk["log"]), "--bucket", "15m", "--csv", str(tables)]) == 0
    shown = capsys.readouterr().out
    assert "high 100.0, low 85.0" in shown and "The last firings of cheap" in shown
    assert (tables / "triggers.csv").read_text().splitlines()[1].startswith("jump,4,2,0,0,2,")
    assert main(["backtest", str(file), str(desk["log"]), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["triggers"]
    assert [row["fired"] for row in told["triggers"]] == [2, 1] and told["changes"] == 7


def test_what_is_wrong_with_a_file_of_triggers_is_told_with_its_place() -> None:
    text = """
    [[trigger]]
    name = "a"
    when = "each"
    wehn = "each"
    history = {x = {over = "new.x"}, y = 3, z = {over = "new.x", was = "new.x"}}
    inputs = {p = 3}
    """
    with pytest.raises(ConfigError) as wrong:
        loads(text)
    for part in ("trigger 1 'a' on", "'wehn'", "history.x", "history.y", "history.z", "inputs.p"):
        assert part in str(wrong.value), part


def test_objects_of_other_types_that_fit_a_pattern_do_not_disturb(tmp_path: Path) -> None:
    clock = ManualClock()
    with Node("n", state=":memory:", log=tmp_path / "log", clock=clock) as node:
        objects = node.objects
        objects.type("P", "x: i64")
        objects.type("Q", "name: text")
        heard = Recorder[Any]()
        asked: dict[str, Any] = {"type": "P", "when": "becomes", "where": "h.max > 3", "notify": {"max": "h.max"},
                                 "history": {"h": over("new.x", "60 s")}}  # fmt: skip
        objects.trigger("high", on="room/*", **asked).subscribe(heard)
        objects.trigger("still", on="unchanged 60 s room/*.x", type="P", when="each", notify=True).subscribe(heard)
        one: dict[str, Any] = {"type": "P", "when": "becomes", "where": "p.x > 3", "inputs": {"p": ("room/p", "P")}}
        objects.trigger("whole", on="room/*.x", notify={"x": "p.x"}, **one).subscribe(heard)
        with objects.transaction() as t:
            t.create("room/p", "P", x=0)
            t.create("room/q", "Q", name="q")
        for x in (5, 6):
            with objects.transaction() as t:
                t.update("room/q", name=f"at {x}", event=True)
            with objects.transaction() as t:
                t.update("room/p", x=x, event=True)
        clock.advance(60)
        live = sorted((each.trigger, each.object) for each in heard.wait(3))
        node.flush()
    assert live == [("high", "//n/room/p"), ("still", "//n/room/p"), ("whole", "//n/room/p")]
    again = [AskedTrigger(name="high", on="room/*", **asked),
             AskedTrigger(name="whole", on="room/*.x", notify={"x": "p.x"}, **one)]  # fmt: skip
    found = backtest_triggers(None, tmp_path / "log", again)
    assert {name: row["fired"] for name, row in found.counts().items()} == {"high": 1, "whole": 1}
    assert found.width == timedelta(seconds=1)
