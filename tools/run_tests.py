"""Runs all tests, as a number of pytest processes of which a few run side by side. Exits 1 if any test fails.

Many tests wait, for leases, for other processes, for Java; a core would else do nothing meanwhile. Files that share a
Spark session are in two processes; the others are shared out so that each process has about as much to do, by what they
cost when that was last written down (`--record`, in tests/costs.json). The longest begin first. A process that passes
is a line, one that fails is shown whole, and at the end is what each file has cost. Other arguments are for pytest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COSTS = ROOT / "tests" / "costs.json"
SIDE_BY_SIDE = 2 + (os.cpu_count() or 2)  # most processes wait half of their time
BATCH = 120.0  # seconds that a process shall take
SESSIONS = 2  # processes that have a Spark session: starting one takes a quarter of a minute
NOTHING = 5  # pytest's exit code where no test was chosen
UNKNOWN = 3.0  # seconds that a file takes of which nothing is known
SHOWN = 1.0  # seconds of a file that has a line of its own
SESSION = re.compile(r"""\b(spark: Any|ansi: str)\b|usefixtures\("spark"\)""")  # all that share a session

# What the one has run the other need not run again.
TOGETHER = (("tests/studies/test_growth.py", "tests/studies/test_model.py"),)

Costs = dict[str, tuple[float, float]]  # by file: seconds of processor time, seconds in all


@dataclass
class Batch:
    """Files for one pytest process, and what became of it."""

    files: list[str] = field(default_factory=list)
    expected: float = 0.0
    code: int = -1
    seconds: float = 0.0
    output: str = ""
    costs: Costs = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.code not in (0, NOTHING)

    @property
    def name(self) -> str:
        longest = self.files[0].removeprefix("tests/")
        return longest if len(self.files) == 1 else f"{longest} and {len(self.files) - 1} more"


def main(arguments: list[str]) -> int:
    record = "--record" in arguments
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(a for a in arguments if a != "--record")]
    known: Costs = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    batches = share_out(test_files(), known)
    print(f"{len(batches)} processes, {SIDE_BY_SIDE} at a time", flush=True)
    started = time.monotonic()
    run_all(batches, pytest)
    costs = {name: cost for batch in batches for name, cost in batch.costs.items()}
    show(costs)
    failed = [batch for batch in batches if batch.failed]
    for batch in failed:
        print(f"FAILED: {batch.name}: {' '.join(batch.files)}")
    spent = round(time.monotonic() - started)
    print(f"all tests: {spent // 60}:{spent % 60:02} minutes, {'FAILED' if failed else 'passed'}")
    if record:
        rounded = {name: [round(each, 1) for each in costs[name]] for name in sorted(costs)}
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(cost)}" for name, cost in rounded.items())
        COSTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 1 if failed else 0


def test_files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def shares_session(name: str) -> bool:
    return SESSION.search((ROOT / name).read_text(encoding="utf-8")) is not None


def share_out(names: Iterable[str], known: Costs) -> list[Batch]:
    """Batches of files, the longest first; the first ones have all that share a session, one each."""

    def seconds(name: str) -> float:
        return known.get(name, (UNKNOWN, UNKNOWN))[1]

    units = sorted(kept_together(names), key=lambda unit: sum(map(seconds, unit)), reverse=True)
    session = [unit for unit in units if any(map(shares_session, unit))]
    rest = [unit for unit in units if unit not in session]
    others = max(SIDE_BY_SIDE, round(sum(seconds(name) for unit in rest for name in unit) / BATCH))
    return [*_even(session, SESSIONS, seconds), *_even(rest, others, seconds)]


def kept_together(names: Iterable[str]) -> list[list[str]]:
    """Each file alone, but for those that are to be in one process."""
    left = set(names)
    units = [[name for name in some if name in left] for some in TOGETHER]
    left -= {name for unit in units for name in unit}
    return [unit for unit in units if unit] + [[name] for name in sorted(left)]


def _even(units: Iterable[list[str]], count: int, seconds: Callable[[str], float]) -> list[Batch]:
    """So many batches, or fewer, each with about as much to do; the longest first."""
    batches = [Batch() for _ in range(count)]
    for unit in units:
        least = min(batches, key=lambda batch: batch.expected)
        least.files += unit
        least.expected += sum(map(seconds, unit))
    return sorted((each for each in batches if each.files), key=lambda batch: batch.expected, reverse=True)


def run_all(batches: list[Batch], pytest: list[str]) -> None:
    waiting, lock = list(batches), threading.Lock()
    running: set[subprocess.Popen[str]] = set()
    done = 0

    def work() -> None:
        nonlocal done
        while True:
            with lock:
                if not waiting:
                    return
                batch = waiting.pop(0)
            run(batch, pytest, running)
            with lock:
                done += 1
                last = batch.output.strip().rpartition("\n")[2].strip("= ")
                print(f"{done:3}/{len(batches)}  {batch.seconds:5.0f} s  {batch.name}: {last}", flush=True)
                if batch.failed:
                    print(batch.output, flush=True)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(SIDE_BY_SIDE)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    finally:  # an interrupt ends them all
        waiting.clear()
        for process in list(running):
            process.terminate()


def run(batch: Batch, pytest: list[str], running: set[subprocess.Popen[str]]) -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-tests-") as folder:
        costs, output = Path(folder) / "costs.json", Path(folder) / "output.txt"
        with output.open("w", encoding="utf-8") as sink:
            process = subprocess.Popen(
                [*pytest, *batch.files],
                cwd=ROOT,
                env=environment(costs),
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.add(process)
            batch.code = process.wait()
            running.discard(process)
        batch.output = output.read_text(encoding="utf-8", errors="replace")
        batch.seconds = time.monotonic() - started
        if costs.exists():
            batch.costs = json.loads(costs.read_text(encoding="utf-8"))


def environment(costs: Path) -> dict[str, str]:
    """Modules of the tests are kept compiled: a hundred processes load some of them."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, "HEADWATER_COSTS": str(costs)}


def show(costs: Costs) -> None:
    print("what each file costs: processor and clock, in seconds")
    rows = sorted(costs.items(), key=lambda row: -max(row[1]))
    shown = [row for row in rows if max(row[1]) >= SHOWN]
    for name, cost in shown:
        print(f"{cost[0]:8.1f} {cost[1]:8.1f}  {name}")
    rest = [cost for _, cost in rows[len(shown) :]]
    for what, some in ((f"{len(rest)} more", rest), ("all", list(costs.values()))):
        print(f"{sum(cost[0] for cost in some):8.1f} {sum(cost[1] for cost in some):8.1f}  {what}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
