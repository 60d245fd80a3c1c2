"""Equipment that leaves at night, though nobody has lent it: two channels, one pattern, and what it would have found.

Run it: `python examples/equipment_at_night.py`."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from headwater import Event, Node
from headwater.patterns import Pattern
from headwater.spark.backtest import AskedPattern, backtest_patterns
from headwater.testing import ManualClock


class Sighting(Event, name="building.Sighting"):
    tag: str
    room: str


class Loan(Event, name="building.Loan"):
    tag: str
    to: str


# Inside, then at the gate within ten minutes, in the dark; unless somebody has it on loan since it was seen inside.
LEAVES = """
    seen: building.sighting{room != 'gate'}
    -> without lent: building.loan
    -> gone: building.sighting{room = 'gate' and (hour(meta.time) >= 22 or hour(meta.time) < 6)}
    within 10 minutes partition by tag
    measures gone.tag as tag, seen.room as room
"""
BEGIN = datetime(2026, 5, 4, 21, 50, tzinfo=UTC)
EVENING = (  # seconds later, what, and of whom
    (0, "lab", "projector"),
    (120, "gate", "projector"),  # not yet ten
    (600, "lab", "oscilloscope"),
    (30, "store", "laptop"),
    (60, "loan to Ann", "laptop"),
    (60, "gate", "laptop"),  # lent to Ann
    (60, "gate", "oscilloscope"),
    (3600, "store", "drill"),
    (1200, "gate", "drill"),  # twenty minutes: it may have been anywhere
    (60, "lab", "drill"),
    (60, "gate", "drill"),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        clock = ManualClock(time=int(BEGIN.timestamp() * 1_000_000))
        with Node("building", clock=clock, log=log) as node:
            sightings = node.channel("building.sighting", Sighting).source("badges")
            loans = node.channel("building.loan", Loan).source("desk")

            # 1. What it is, before it runs.
            pattern = Pattern(LEAVES, {"building.sighting": Sighting, "building.loan": Loan})
            print(pattern.explain().picture)

            # 2. Live.
            watch = node.match(pattern)
            for seconds, place, tag in EVENING:
                clock.advance(seconds)
                if place.startswith("loan to "):
                    loans.publish(tag=tag, to=place.removeprefix("loan to "))
                else:
                    sightings.publish(tag=tag, room=place)
                while (found := watch.poll()) is not None:
                    print(f"{found.match.time:%H:%M} the {found.tag} of the {found.room} has left the building")

        # 3. And last night, from the log: the same.
        told = backtest_patterns(None, log, [AskedPattern(name="leaves", match=pattern, at="security")])
        row = told.pattern("leaves")
        print(f"the log says so {row.matches} times; {row.atoms.events} of {row.everything.events} events would cross")


if __name__ == "__main__":
    main()
