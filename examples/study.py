"""A study of one's own: a log and subscriptions, on Spark and live, with a report. Run it: `python examples/study.py`.

The same with the command, on the file that is written here: `headwater study office.toml`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from headwater import Event, Log, Node
from headwater.study.own import study
from headwater.study.own_page import page, summary
from headwater.study.report.files import write
from headwater.study.report.plain import plain
from headwater.testing import ManualClock


class Reading(Event, name="office.Reading"):
    room: str
    level: float


OFFICE = """
log = "events"                          # the folder of a log, beside this file
title = "A day in the office"

[[subscription]]
name = "loud in {room}"                 # one for each room
at = "desk"
where = "level > 0.7 and room = :room"
each = {param = "room", in = ["room 1", "room 2"]}

[[subscription]]
name = "rises"                          # with state, kept for each source
at = "desk"
where = "{ static double last = 0.0; int rose = input.level > last; last = input.level; return rose; }"

[[subscription]]
name = "percent"                        # a transformation: this is what crosses
at = "archive"
where = "{ output.percent = input.level * 100; return input.level >= 0.5; }"
output = "percent: f32"
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "office.toml").write_text(OFFICE)

        # 1. Two nodes record what their sources publish.
        for name in ("east", "west"):
            clock = ManualClock()
            with Node(name, clock=clock, log=Log(root / "events")) as node:
                source = node.channel("office.reading", Reading).source("meter")
                for i in range(600):
                    clock.advance(30)
                    source.publish(room=f"room {i % 3}", level=i * 7 % 10 / 10)

        # 2. On Spark, and played through a federation with the interests at the sources.
        result = study(root / "office.toml", say=lambda text: print(f"{text}", file=sys.stderr))
        for table in summary(result):
            print(plain(table), end="\n\n")
        print("live and Spark agree" if not result.differences else "live and Spark differ")

        # 3. One HTML file, with its tables as CSV and all of it as JSON beside it.
        path = write(page(result), result, root / "report")
        print(f"the report is {path.name}, {path.stat().st_size:,} bytes, with {len(page(result).tables())} tables")
