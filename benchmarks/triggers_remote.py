"""A trigger's notification to a durable subscriber at another node, beside a durable event of the same size.

python benchmarks/triggers_remote.py [--quick]

One at a time: from the transaction that fires, or from `publish`, until the subscriber has it. The turn is on the disk
before its notification leaves; the event is on the disk when `publish` returns (a log that syncs each). Both nodes are
in this process, linked by loopback; both subscriptions keep their positions in the state of their node.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from headwater import Node, Reliable
from headwater.logs import Log
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
ROUNDS = 5
RELIABLE = Reliable(durable=True)


class _Arrival:
    """A handler, and who waits for it."""

    def __init__(self) -> None:
        self._come = threading.Semaphore(0)
        self.last: Any = None

    def __call__(self, event: Any) -> None:
        self.last = event
        self._come.release()

    def wait(self) -> None:
        assert self._come.acquire(timeout=GUARD), "expected that it arrives, found that it has not"


def _seconds(cause: Callable[[int], object], arrival: _Arrival, count: int) -> list[float]:
    """How long each takes to arrive."""
    found: list[float] = []
    for number in range(count):
        start = perf_counter()
        cause(number)
        arrival.wait()
        found.append(perf_counter() - start)
    return found


def notification(report: Report, quick: bool) -> None:
    """Both take turns, round by round; the median of all."""
    count, rounds = (10, 1) if quick else (200, ROUNDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = Log(folder / "log", channels="measured", sync="publish")
        with (
            Node("plant", state=folder / "plant", log=log, listen="tcp/127.0.0.1:0") as plant,
            Node("desk", state=folder / "desk", connect=plant.endpoints[0]) as desk,
        ):
            objects = plant.objects
            objects.type("Vehicle", "x: f64, y: f64, speed: f64")
            with objects.transaction() as t:
                t.create("car", "Vehicle", x=0.0, y=0.0, speed=1.0)
            trigger = objects.trigger("moved", on="car", when="each", where="new.x >= 0", notify={"x": "new.x"})
            type = trigger.channel.type
            source = plant.channel("measured", type).source()
            told, come = _Arrival(), _Arrival()
            desk.channel(trigger.channel.name, type).subscribe(told, name="told", delivery=RELIABLE)
            desk.channel("measured", type).subscribe(come, name="come", delivery=RELIABLE)

            def move(number: int) -> None:
                with objects.transaction() as t:
                    t.update("car", {"x": float(number)}, event=True)

            assert plant.until(lambda: "desk" in plant.peers, GUARD)
            assert desk.ready(GUARD)
            ours, theirs = list[float](), list[float]()
            _seconds(move, told, 3)
            event = told.last

            def publish(number: int) -> None:
                source.publish(event)

            _seconds(publish, come, 3)
            for _ in range(rounds):
                ours += _seconds(move, told, count)
                theirs += _seconds(publish, come, count)
    mine, other = statistics.median(ours), statistics.median(theirs)
    report.add(
        "notification, remote, durable, one at a time, beside a durable event",
        mine,
        other,
        reach="at most 2×",
        ok=mine <= 2 * other,
        note=f"it takes {mine / other:.2f}× as long",
    )


def main() -> None:
    report = Report("triggers_remote", "Notifications to another node")
    notification(report, "--quick" in sys.argv)
    report.finish()


if __name__ == "__main__":
    main()
