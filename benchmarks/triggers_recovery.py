"""How soon a node with many objects, and many transactions in its queue, runs the first of them.

python benchmarks/triggers_recovery.py [--quick]

The file is written as the engine writes it, in large transactions; then it is opened in a process that has nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headwater import Node
from headwater.objects import tables
from headwater.objects.operations import TICKET, Transaction, Update, pack
from headwater.store import NodeState
from headwater_studies.harness.benchmark import Report

TOGETHER = 10_000  # objects, or transactions, that are written together
BOUND = 5.0  # seconds, with all of them

_OPEN = """
import sys, threading
from time import perf_counter
from headwater import Node
start = perf_counter()
with Node("plant", state=sys.argv[1]) as node:
    queue = node.objects.engine.queue
    while not queue.turns and perf_counter() - start < 600:
        threading.Event().wait(0.001)
    print(perf_counter() - start)
    sys.stdout.flush()
    import os
    os._exit(0)
"""


def _write(path: Path, objects: int, queued: int) -> None:
    """A state with so many objects, and so many transactions that wait."""
    with Node("plant", state=path) as node:
        made = node.objects.type("Vehicle", "x: f64, y: f64, speed: f64")
        number = node.objects.engine.types.named("Vehicle").number
    record = made.encode({"x": 0.0, "y": 0.0, "speed": 1.0})
    with NodeState(path) as state:
        rows = state.tables(tables.OBJECTS)
        for first in range(0, objects, TOGETHER):
            with rows.transaction() as execute:
                for each in range(first, min(first + TOGETHER, objects)):
                    tables.create(execute, f"fleet/car{each:07}", number, record, 1, 0)
        for first in range(0, queued, TOGETHER):
            with rows.transaction() as execute:
                for each in range(first, min(first + TOGETHER, queued)):
                    ticket = os.urandom(TICKET)
                    update = Update(f"//plant/fleet/car{each % objects:07}", {"x": 1.0}, {}, True)
                    tables.queue_last(execute, ticket, pack(Transaction((update,), ticket)))


def _seconds(objects: int, queued: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        _write(path, objects, queued)
        run = subprocess.run([sys.executable, "-c", _OPEN, str(path)], check=True, capture_output=True, text=True)
        return float(run.stdout)


def recovery(report: Report, quick: bool) -> None:
    """From the opening of the node until the first turn has run."""
    least, most = ((100, 100), (1_000, 1_000)) if quick else ((100_000, 10_000), (1_000_000, 100_000))
    few, many = _seconds(*least), _seconds(*most)
    report.add(
        f"recovery: {most[0]:,} objects and {most[1]:,} queued, until the first runs",
        many,
        few,
        reach=f"at most {BOUND:g} s, linear",
        ok=many <= BOUND and many <= 15 * few,
        note=f"reference: {least[0]:,} objects and {least[1]:,} queued",
    )


def main() -> None:
    report = Report("triggers_recovery", "Recovery")
    recovery(report, "--quick" in sys.argv)
    report.finish()


if __name__ == "__main__":
    main()
