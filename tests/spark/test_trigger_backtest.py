"""Triggers tried on a log by Spark: the same firings, values and counts as this process finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater import Node
from headwater.spark import events
from headwater.spark.backtest import (
    AskedTrigger,
    TriggerBacktest,
    backtest_distributed,
    backtest_levels,
    backtest_triggers,
)
from headwater.testing import ManualClock
from tests.spark.backtest.recorded import record


def test_spark_finds_the_same(spark: Any, tmp_path: Path) -> None:
    asked = record(tmp_path, 3, rooms=4, turns=10)
    own = [each for each in asked if not each.inputs]  # each object by itself, on all cores
    apart = compared(spark, tmp_path / "log", own)
    assert apart.how == "each object by itself"
    assert sum(row.fired for row in apart.triggers) > 20
    name = max(own, key=lambda each: apart.trigger(each.name).messages.events).name
    told = apart.notifications(name).collect()
    assert len(told) == apart.trigger(name).messages.events > 0 and {row.trigger for row in told} == {name}


def test_dataframes_channels_and_what_there_was_before(spark: Any, tmp_path: Path) -> None:
    log, clock, middle = tmp_path / "log", ManualClock(), dict[str, Any]()
    for name in ("a", "b"):
        with Node(name, state=":memory:", log=log, clock=clock) as node:
            objects, quotes = node.objects, node.channel("quotes", "least: i64").source("s")
            objects.type("P", "x: i64, note: text?")
            objects.type("Q", "most: u64, tags: text[]")
            with objects.transaction() as t:
                t.create("p", "P", x=0)
                t.create("q", "Q", most=3, tags=["x"])
            if name == "a":
                middle = {each: objects.to_arrow(each) for each in ("P", "Q")}
            for x in (5, 2, 9, 4):
                clock.advance(1)
                with objects.transaction() as t:
                    t.update("p", x=x, event=True)
                    t.update("q", most=x + 1 if x > 4 else 3, event=x != 2)
                quotes.publish(least=x)
            node.flush()
    asked = [
        AskedTrigger(name="over", on="p", when="each", where="new.x > q.most", inputs={"q": ("q", "Q")}, notify=True),
        AskedTrigger(name="heard", on="channel quotes", when="each", where="new.least >= p", inputs={"p": "p.x"},
                     notify={"least": "new.least", "p": "p"}),
    ]  # fmt: skip
    found = compared(spark, log, asked, initial=middle)  # each node as a whole
    assert found.nodes == ("a", "b") and found.events > 8
    frames = {name: events(spark, log, name) for name in ("objects.P", "objects.Q", "quotes")}
    types = {"P": "x: i64, note: text?", "Q": "most: u64, tags: text[]", "quotes": "least: i64"}
    again = backtest_triggers(spark, frames, asked, initial=middle, types=types)
    assert again.triggers == found.triggers and again.notes == found.notes
    both = AskedTrigger(name="both", when="becomes", where="p.x + q.x > 8", inputs={"p": "//a/p", "q": "//b/p"})
    here, there = (backtest_distributed(engine, log, [both]) for engine in (None, spark))
    assert here.triggers == there.triggers and here.trigger("both").firings
    levels = {"fine": {"x": 1.0}, "coarse": {"x": 5.0}}
    one, other = (backtest_levels(engine, log, "*", type="P", levels=levels, delay="1 s") for engine in (None, spark))
    assert one.levels == other.levels and 2 < one.level("coarse").messages.events < one.level("fine").messages.events


def compared(spark: Any, log: Path, asked: Any, **more: Any) -> TriggerBacktest:
    """By Spark; it is as this process finds it."""
    here, there = (backtest_triggers(engine, log, asked, **more) for engine in (None, spark))
    assert replace(here, seconds=0, engine="", rows=None) == replace(there, seconds=0, engine="", rows=None)
    columns = ["node", "trigger", "object", "op", "turn", "vetoed", "values"]
    table = there.firings.selectExpr(*columns, "unix_micros(time) AS time").toArrow()
    own = here.firings.set_column(4, "time", here.firings["time"].cast("int64")).select([*columns, "time"])
    rows = [sorted(map(str, each.to_pylist())) for each in (own, table)]
    assert rows[0] == rows[1]
    return there
