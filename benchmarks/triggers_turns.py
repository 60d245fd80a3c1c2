"""Durable turns of one client beside SQLite alone, and of many clients that share a sync.

python benchmarks/triggers_turns.py [--quick]
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from headwater import Node
from headwater.store import NodeState
from headwater_studies.harness.benchmark import Report
from headwater_studies.objects.recorded_sql import beside_bare
from headwater_studies.objects.slow_sync import slow_sync

ROUNDS = 7
CLIENTS = 16
SYNC_SECONDS = 0.001


@contextmanager
def _plant(folder: Path) -> Iterator[Node]:
    """A node with an object for each client."""
    with Node("plant", state=folder / "state") as node:
        node.objects.type("Vehicle", "x: f64, y: f64, speed: f64")
        with node.objects.transaction() as t:
            for number in range(CLIENTS):
                t.create(f"car{number}", "Vehicle", x=0.0, y=0.0, speed=1.0)
        yield node


def _drive(node: Node, client: int, turns: int) -> None:
    """One update with event after the other, each when the one before is durable."""
    objects, name = node.objects, f"car{client}"
    for number in range(turns):
        with objects.transaction() as t:
            t.update(name, {"x": float(number)}, event=True)


def turns(report: Report, quick: bool) -> None:
    """One client; the bare replay does the statements of the same turns, with the same syncs."""
    count = 50 if quick else 1000

    @contextmanager
    def prepare(folder: Path) -> Iterator[tuple[NodeState, Callable[[], object]]]:
        with _plant(folder) as node:
            assert node.state is not None
            _drive(node, 0, 20)
            yield node.state, lambda: _drive(node, 0, count)

    with tempfile.TemporaryDirectory() as folder:
        ours, bare, recording = beside_bare(prepare, Path(folder), rounds=3 if quick else ROUNDS)
    ratio = bare / ours
    report.add(
        "durable turns, one update with event, one client",
        count / ours,
        count / bare,
        reach="at least 0.6× bare SQLite",
        ok=ratio >= 0.6,
        unit="/s",
        note=f"{len(recording.steps) / count:.1f} statements and {recording.syncs / count:.2f} syncs a turn",
    )


def clients(report: Report, quick: bool) -> None:
    """Where a sync takes 1 ms, made so: many clients, beside one."""
    count = 20 if quick else 300

    def rate(number: int) -> float:
        with tempfile.TemporaryDirectory() as folder, _plant(Path(folder)) as node, slow_sync(SYNC_SECONDS):
            threads = [threading.Thread(target=_drive, args=(node, client, count)) for client in range(number)]
            start = perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return number * count / (perf_counter() - start)

    pairs = sorted((rate(1), rate(CLIENTS)) for _ in range(1 if quick else ROUNDS))
    one, many = pairs[len(pairs) // 2]
    report.add(
        f"the same, {CLIENTS} clients beside one, a sync takes 1 ms (made so)",
        many,
        one,
        reach="at least 5× one client",
        ok=many >= 5 * one,
        unit="/s",
    )


def main() -> None:
    quick = "--quick" in sys.argv
    report = Report("triggers_turns", "Durable turns")
    turns(report, quick)
    clients(report, quick)
    report.finish()


if __name__ == "__main__":
    main()
