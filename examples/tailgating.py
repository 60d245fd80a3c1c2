"""Two badges, one door, two seconds: somebody let somebody else in. Found live, and published as events of their own.

Run it: `python examples/tailgating.py`."""

from __future__ import annotations

from headwater import Event, Node
from headwater.testing import ManualClock

TAILGATING = """
    a: hall.door{action = 'in'}; b: hall.door{action = 'in' and who != a.who}
    within :seconds partition by door
    measures a.who as first, b.who as second, b.door as door
"""


class Passage(Event, name="building.Passage"):
    who: str
    door: int
    action: str


def main() -> None:
    clock = ManualClock()  # so that the example need not wait
    with Node("building", clock=clock) as node:
        doors = node.channel("hall.door", Passage).source("readers")

        # 1. A pattern with a name: its matches are events of a channel, for whoever is interested in them.
        tailgating = node.pattern("security.tailgating", TAILGATING, params={"seconds": 2})
        alarms = node.channel("security.tailgating").subscribe("door != 9")  # nobody minds at the kitchen's

        # 2. A morning at the doors.
        for who, door, action, pause in (
            ("Ann", 1, "in", 1.0),
            ("Bob", 1, "in", 0.5),  # right behind Ann
            ("Cleo", 2, "in", 5.0),  # another door
            ("Dan", 2, "in", 0.5),  # much later
            ("Dan", 2, "out", 0.5),
            ("Eve", 9, "in", 0.1),
            ("Fay", 9, "in", 9.0),
        ):
            doors.publish(who=who, door=door, action=action)
            clock.advance(pause)
        while (alarm := alarms.poll()) is not None:
            print(f"{alarm.second} came in behind {alarm.first} at door {alarm.door}")

        # 3. Stricter, from an exact point of each source on; what was half matched is dropped.
        points = tailgating.change(params={"seconds": 10})
        print("ten seconds from event", points["hall.door/readers"], "on")
        doors.publish(who="Gus", door=3, action="in")
        clock.advance(8.0)
        doors.publish(who="Hal", door=3, action="in")
        clock.advance(1.0)
        late = alarms.poll()
        print(f"{late.second} came in behind {late.first}, {late.match.time:%H:%M:%S} by the clock")

        # 4. What is going on.
        report = tailgating.report()
        print(f"{report.counts.evaluated} passages, {report.events} of interest, {report.matches} matches")


if __name__ == "__main__":
    main()
