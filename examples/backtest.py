"""Subscriptions tried on recorded events before they are switched on. Run it: `python examples/backtest.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headwater import Event, Log, Node
from headwater.spark.backtest import backtest, load
from headwater.testing import ManualClock


class Sighting(Event, name="orl.Sighting"):
    badge: str
    network: str
    level: float


SUBSCRIPTIONS = """
channel = "orl.sighting"

[[subscription]]
name = "camera {network}"               # one for each network
at = "security"
where = "network = :network"
each = {param = "network", in = ["east", "west"]}

[[subscription]]
name = "visitors"
at = "security"
where = ":kinds[badge] = 'visitor'"     # the list of badges is a table
params = {kinds = {file = "badges.csv", key = "badge", value = "kind"}}

[[subscription]]
name = "weak batteries"
at = "workshop"
where = "level < 0.25"
"""

with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    (root / "badges.csv").write_text("badge,kind\nanna,staff\nben,visitor\ncleo,staff\n")
    (root / "subscriptions.toml").write_text(SUBSCRIPTIONS)

    # 1. Two nodes record what their sources publish.
    for name in ("east", "west"):
        clock = ManualClock()
        with Node(name, clock=clock, log=Log(root / "events")) as node:
            source = node.channel("orl.sighting", Sighting).source("hall")
            for i in range(900):
                clock.advance(10)
                source.publish(badge=("anna", "ben", "cleo")[i % 3], network=name, level=i % 10 / 10)

    # 2. What would these subscriptions have received, and what would have crossed? One pass over the log, in this
    #    process; for a large log give a Spark session (`headwater.spark.session()`) for None: the report is the same.
    report = backtest(None, root / "events", load(root / "subscriptions.toml"))
    print(report)

    # 3. And for programs: is the new rule worth switching on?
    visitors = report.subscription("visitors")
    print(f"visitors would receive {visitors.events} of {report.events} events, {visitors.bytes:,} bytes")
    saved = report.merged.saved(report.filtered)
    print(f"merging saves {saved:.0%} of what the subscriptions would take one by one")
