"""Patterns at one node: `node.match` and `node.pattern`, through the public API."""

from __future__ import annotations

from headwater import Node
from headwater.testing import ManualClock

TAILGATING = """
    a: hall.door(action = 'in'); b: hall.door{action = 'in' and who != a.who} within 2 seconds partition by door
    measures a.who as first, b.who as second
"""
DOOR = "who: text, action: text, door: u32"


def test_matches_are_delivered_to_a_handler_and_published_on_a_channel() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("hall.door", DOOR).source("east")
        seen: list[tuple[str, str]] = []
        node.match(TAILGATING, lambda found: seen.append((found.first, found.second)))
        node.pattern("security.tailgating", TAILGATING)
        events = node.channel("security.tailgating").subscribe("first == 'ann'")
        for who, number, seconds in (("ann", 1, 1), ("bob", 1, 1), ("cy", 2, 0), ("di", 1, 5), ("ed", 1, 0)):
            door.publish(who=who, action="in", door=number)
            clock.advance(seconds)
        assert seen == [("ann", "bob"), ("ann", "di"), ("bob", "di")]
        found = events.poll()
        assert found is not None and (found.first, found.second) == ("ann", "bob")
        assert events.poll().second == "di"  # type: ignore[union-attr]


def test_absence_is_found_by_the_clock_alone() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("door", "n: u32, open: bool").source()
        watch = node.match("o: door{open}; without door{not open} within 10 seconds measures o.n as n")
        door.publish(n=1, open=True)
        clock.advance(11)
        assert watch.poll().n == 1  # type: ignore[union-attr]
        door.publish(n=2, open=True)
        clock.advance(9)
        door.publish(n=3, open=False)
        clock.advance(60)
        assert watch.poll() is None
