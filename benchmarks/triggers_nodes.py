"""Messages of a trigger over two nodes, counted where they are sent and come: by safe zones and by the simple scheme.

python benchmarks/triggers_nodes.py [--quick]

Three nodes in this process, linked by loopback, each with a state: two walk at random, by durable turns, and the third
has two triggers over the same condition, `distance(…) > :d`, the threshold 200 steps away, one of each scheme. Both are
judged over the same walk. What they fire is held to the positions themselves.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwater import Node
from headwater.testing import eventually
from headwater_studies.harness.benchmark import Report

STEPS = 200
CHANGES = 10_000
GUARD = 60.0
REACH = 0.10


def _walk(nodes: dict[str, Node], places: dict[str, tuple[float, float]], limit: float, changes: int) -> int:
    """Steps of both in turn: how often the distance became more than the limit."""
    dice, holds, crossed = random.Random(7), False, 0
    for number in range(changes):
        name = ("north", "south")[number % 2]
        angle = dice.uniform(0, 2 * math.pi)
        x, y = places[name][0] + math.cos(angle), places[name][1] + math.sin(angle)
        places[name] = x, y
        with nodes[name].objects.transaction() as t:
            t.update("car", {"x": x, "y": y})
        beyond = math.dist(places["north"], places["south"]) > limit
        crossed += beyond and not holds
        holds = beyond
    return crossed


def messages(report: Report, quick: bool) -> None:
    """One walk for both schemes."""
    changes = 400 if quick else CHANGES
    places = {"north": (0.0, 0.0), "south": (300.0, 400.0)}
    with tempfile.TemporaryDirectory() as folder:
        desk = Node("desk", state=Path(folder) / "desk.state", listen="tcp/127.0.0.1:0")
        nodes = {"desk": desk}
        for name in places:
            nodes[name] = Node(name, state=Path(folder) / f"{name}.state", connect=desk.endpoints[0])
        try:
            _row(report, nodes, places, changes)
        finally:
            for node in nodes.values():
                node.close()


def _row(report: Report, nodes: dict[str, Node], places: dict[str, tuple[float, float]], changes: int) -> None:
    limit = 500.0 + STEPS / math.sqrt(2)
    desk = nodes["desk"]
    for name, (x, y) in places.items():
        nodes[name].objects.type("Car", "x: f64, y: f64")
        with nodes[name].objects.transaction() as t:
            t.create("car", "Car", x=x, y=y)
    assert desk.until(lambda: set(places) <= set(desk.peers), GUARD)
    made: dict[str, Any] = {
        scheme: desk.objects.trigger(
            scheme,
            when="becomes",
            where="distance(a.x, a.y, b.x, b.y) > :d",
            params={"d": limit},
            inputs={"a": "//north/car", "b": "//south/car"},
            notify=True,
            scheme=scheme,  # type: ignore[arg-type]
        )
        for scheme in ("zones", "simple")
    }
    for each in made.values():
        eventually(lambda each=each: each.holds is False, timeout=GUARD)  # type: ignore[misc]
    crossed = _walk(nodes, places, limit, changes)
    eventually(lambda: made["simple"].report()["changes"] >= changes, timeout=GUARD)
    eventually(lambda: all(each.report()["fired"] == crossed for each in made.values()), timeout=GUARD)
    zones, simple = (made[scheme].report() for scheme in ("zones", "simple"))
    share = zones["messages"] / simple["messages"]
    report.add(
        f"messages, distance of two nodes on loopback, {STEPS} steps away",
        zones["messages"],
        simple["messages"],
        ratio=share,
        unit="",
        reach=f"≤ {REACH:.2f}×",
        ok=share <= REACH,
        note=f"{changes} changes, fired {zones['fired']} of {crossed} times each",
    )


if __name__ == "__main__":
    found = Report("triggers_nodes", "Triggers over several nodes")
    messages(found, "--quick" in sys.argv)
    found.finish()
