"""An update beside many triggers: those that do not depend on it, and those that all do.

python benchmarks/triggers_many.py [--quick]

What is compared is processor time of turns, each with one update with event, in the thread that submits and runs them;
syncs take no time here, made so. What is compiled in the background is compiled before.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import thread_time

from headwater import Node
from headwater.objects.operations import Transaction
from headwater.objects.triggers import definition
from headwater.objects.triggers.administration import installing
from headwater_studies.harness.benchmark import Report
from headwater_studies.objects.slow_sync import slow_sync

ROUNDS = 7
TOGETHER = 500  # triggers that are installed in one transaction


@contextmanager
def _plant(folder: str, triggers: Iterator[definition.Trigger]) -> Iterator[Node]:
    """A node with an object, and these triggers."""
    with Node("plant", state=Path(folder) / "state") as node, slow_sync(0):
        node.objects.type("Vehicle", "x: f64, y: f64, speed: f64")
        with node.objects.transaction() as t:
            t.create("car", "Vehicle", x=0.0, y=0.0, speed=1.0)
        while some := tuple(islice(triggers, TOGETHER)):
            node.objects.submit(Transaction(tuple(installing(each, each.name) for each in some)))
        yield node


def _trigger(number: int, on: str, where: str) -> definition.Trigger:
    return definition.trigger(
        f"t{number}", on=on, when="becomes", where=where, type="Vehicle", params={"d": float(number)}, node="plant",
        notify=True,
    )  # fmt: skip


def _seconds(node: Node, values: list[float]) -> float:
    """Processor time for a turn that gives `x` the next value."""
    objects = node.objects
    start = thread_time()
    for value in values:
        with objects.transaction() as t:
            t.update("car", {"x": value}, event=True)
    return (thread_time() - start) / len(values)


def flat(report: Report, quick: bool) -> None:
    """One update against few and many triggers of which one depends on it, and does not fire."""
    sizes = (10, 50, 100) if quick else (10, 1_000, 100_000)
    turns = [-1.0 - number for number in range(50 if quick else 500)]
    found: dict[int, float] = {}
    for size in sizes:
        names = ("car" if number == 1 else f"other/{number}" for number in range(1, size + 1))
        many = (_trigger(number, name, "new.x > :d") for number, name in enumerate(names, 1))
        with tempfile.TemporaryDirectory() as folder, _plant(folder, many) as node:
            _seconds(node, turns)
            gc.collect()
            found[size] = statistics.median(_seconds(node, turns) for _ in range(2 if quick else ROUNDS))
    least, most = found[sizes[0]], found[sizes[-1]]
    report.add(
        f"an update, {sizes[-1]:,} triggers, one depends on it, beside {sizes[0]}",
        most * 1e6,
        least * 1e6,
        reach="at most 1.5×",
        ok=most <= 1.5 * least,
        unit="µs",
        note="; ".join(f"{size:,}: {seconds * 1e6:.0f} µs" for size, seconds in found.items()) + " of a processor",
    )


def thresholds(report: Report, quick: bool) -> None:
    """Triggers that all depend on an update, with different thresholds; each time it crosses one of them, upwards: the
    lowest, so that no other holds, and one in the middle, so that half of them hold already."""
    size = 20 if quick else 1_000
    rounds = 1 if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder, _plant(folder, iter(())) as node:
        alone = statistics.median(_crossing(node, 1, size) for _ in range(rounds))
    many = (_trigger(number, "car", "new.x > :d") for number in range(1, size + 1))
    with tempfile.TemporaryDirectory() as folder, _plant(folder, many) as node:
        for at in (1, size // 2):
            _crossing(node, at, size)
        low, middle = (
            statistics.median(_crossing(node, at, size) - alone for _ in range(rounds)) for at in (1, size // 2)
        )
        assert node.objects.triggers["t1"].report()["fired"] >= size
    report.add(
        f"{size:,} triggers with other thresholds, one fires: beyond the update",
        low * 1e6,
        alone * 1e6,
        reach="at most 100 µs",
        ok=low <= 100e-6,
        unit="µs",
        note=f"{middle * 1e6:.0f} µs where half of them hold before and after",
    )


def _crossing(node: Node, threshold: int, turns: int) -> float:
    """Processor time for a turn that crosses it, without those that go back."""
    total = 0.0
    for _ in range(turns):
        total += _seconds(node, [threshold + 0.5])
        _seconds(node, [threshold - 0.5])
    return total / turns


def main() -> None:
    quick = "--quick" in sys.argv
    report = Report("triggers_many", "An update beside many triggers")
    flat(report, quick)
    thresholds(report, quick)
    report.finish()


if __name__ == "__main__":
    main()
