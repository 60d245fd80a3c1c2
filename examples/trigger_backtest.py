"""A trigger, and a replica, tried on what was recorded first. Run it: `python examples/trigger_backtest.py`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from headwater import Node
from headwater.objects import over
from headwater.spark.backtest import AskedTrigger, backtest_levels, backtest_triggers
from headwater.testing import ManualClock, Recorder

with tempfile.TemporaryDirectory() as folder:
    root, clock = Path(folder), ManualClock()

    # 1. A month of a tank, as the log of its node has it: a change every hour. Nobody watched.
    with Node("plant", state=root / "plant.state", log=root / "events", clock=clock) as node:
        tanks = node.objects
        tanks.type("Tank", "level: f64, pump: bool")
        with tanks.transaction() as t:
            t.create("hall/north", "Tank", level=5.0, pump=True)
        for step in range(24 * 30):
            clock.advance(3600)
            level = 5 + 3 * math.sin(step / 50) + 0.8 * math.sin(step / 3)
            with tanks.transaction() as t:
                t.update("hall/north", level=round(level, 3), event=True)

    # 2. Which limit would have been right, and is it the level that matters, or how fast it rises? All are judged in
    #    one pass over the log, by the code that judges them at a node. For a large log give a Spark session for None.
    high = {"on": "hall/*", "type": "Tank", "when": "becomes", "where": "new.level > :limit", "notify": ["new.level"]}
    tried = [AskedTrigger(name=f"above-{limit}", params={"limit": float(limit)}, **high) for limit in (6, 7, 8)]
    tried.append(
        AskedTrigger(
            name="rising", on="hall/*", type="Tank", when="becomes", where="hours.last - hours.first > 1.2",
            history={"hours": over("new.level", "6 h")}, notify={"from": "hours.first", "to": "hours.last"},
        )
    )  # fmt: skip
    found = backtest_triggers(None, root / "events", tried, bucket="7d")
    print(found)
    for name, counts in found.counts().items():
        print(f"{name} would have told of it {counts['messages']} times")

    # 3. A desk elsewhere wants to have the level at hand: what would a replica have cost, and how far off was it?
    levels = {"fine": {"level": 0.25}, "coarse": {"level": 2.0}}
    for row in backtest_levels(None, root / "events", "hall/*", type="Tank", levels=levels, delay="200 ms").levels:
        off = row.met["level"]
        far = f"off by {off.half:.2g} or less half the time, {off.greatest:.2g} at most"
        print(f"{row.name}: {row.messages.events} messages of {off.measured}; {far}")

    # 4. It is installed as it was tried, and goes on where the recording ends.
    with Node("plant", state=root / "plant.state", log=root / "events", clock=clock) as node:
        heard = Recorder()
        node.objects.trigger("above-8", params={"limit": 8.0}, **high).subscribe(heard)
        with node.objects.transaction() as t:
            t.update("hall/north", level=8.4, event=True)
        print(f"live: {heard.wait(1)[0].level}")
