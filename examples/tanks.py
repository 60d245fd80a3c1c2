"""Tanks of two sides that meet in a minefield, which is laid while the game runs.

A minefield by itself wants every position within its borders: that is a question about one event. This asks about two:
a tank of each side, close to each other, both in the field. Run it: `python examples/tanks.py`."""

from __future__ import annotations

from typing import Any

from headwater import Event, Node, Source
from headwater.channel.patterns.subscription import Watch
from headwater.testing import ManualClock


class Moved(Event, name="game.Moved"):
    tank: str
    side: str
    x: int
    y: int


FIELD = "x > :left and x < :left + 10 and y > :bottom and y < :bottom + 10"
MEETING = f"""
    (red: game.moved{{side = 'red' and {FIELD}}} & blue: game.moved{{side = 'blue' and {FIELD}
        and abs(x - red.x) <= 2 and abs(y - red.y) <= 2}}) within 5 seconds
    measures red.tank as red, blue.tank as blue, blue.x as x, blue.y as y
"""
MOVES = (  # side, tank, and where it is a second later
    ("red", "rhino", 80, 75),
    ("blue", "bison", 95, 90),
    ("red", "rhino", 91, 75),
    ("blue", "bison", 98, 79),
    ("red", "raven", 97, 78),
    ("blue", "badger", 20, 21),
    ("red", "rhino", 22, 22),
)


def main() -> None:
    clock = ManualClock()
    with Node("world", clock=clock) as world:
        tanks = world.channel("game.moved", Moved).source("players")
        meetings = world.match(MEETING, params={"left": 90, "bottom": 70})
        seen = play(tanks, meetings, clock)

        # The next field is laid where nobody had planned it: the same pattern, with other borders.
        print("a new minefield, from event", *meetings.change(params={"left": 15, "bottom": 15}).values())
        seen += play(tanks, meetings, clock)
        print(f"{seen} meetings in {2 * len(MOVES)} moves")


def play(tanks: Source[Moved], meetings: Watch[Any], clock: ManualClock) -> int:
    """All moves, one a second; how often two met."""
    seen = 0
    for side, tank, x, y in MOVES:
        tanks.publish(tank=tank, side=side, x=x, y=y)
        clock.advance(1)
        while (found := meetings.poll()) is not None:
            print(f"{found.red} and {found.blue} meet among the mines at ({found.x}, {found.y})")
            seen += 1
    return seen


if __name__ == "__main__":
    main()
