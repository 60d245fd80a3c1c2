"""Runs all tests, as a number of pytest processes of which a few run side by side. Exits 1 if any test fails.

All of them are forked from this one, which has loaded what nearly every test needs: that takes seconds of each else.
Many tests wait, for leases, for other processes, for Java; a core would else do nothing meanwhile. Files that share a
Spark session are in one process, which takes longest by far: it begins first, and the others stand back for it. Those
are shared out so that each has about as much to do, by what files cost when that was last written down (`--record`, in
tests/costs.json). A process that passes is a line, one that fails is shown whole, and at the end is what each file has
cost. Other arguments are for pytest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
COSTS = ROOT / "tests" / "costs.json"
SIDE_BY_SIDE = 3 + (os.cpu_count() or 2)  # most processes wait half of their time
BATCH = 60.0  # seconds that a process shall take: with longer ones, the last has the machine to itself for long
FORKS = sys.platform == "linux"
# What is loaded before pytest cannot be rewritten by it, and need not be.
OPTIONS = ("-p", "no:cacheprovider", "-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
SESSIONS = 1  # processes that have a Spark session: what runs in one for the first time takes twice as long
STAND_BACK = 3  # by which the others are nicer: half of its weight
NOTHING = 5  # pytest's exit code where no test was chosen
UNKNOWN = 3.0  # seconds that a file takes of which nothing is known
SHOWN = 1.0  # seconds of a file that has a line of its own
SESSION = re.compile(r"""\b(spark: Any|ansi: str)\b|usefixtures\("spark"\)""")  # all that share a session

Costs = dict[str, tuple[float, float]]  # by file: seconds of processor time, seconds in all


@dataclass
class Batch:
    """Files for one pytest process, and what became of it."""

    files: list[str] = field(default_factory=list)
    expected: float = 0.0
    session: bool = False
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
    pytest = [*OPTIONS, *(a for a in arguments if a != "--record")]
    known: Costs = json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {}
    batches = share_out(test_files(), known)
    print(f"{len(batches)} processes, {SIDE_BY_SIDE} at a time", flush=True)
    started, idle = time.monotonic(), idle_seconds()
    if FORKS:
        sys.path[0] = str(ROOT)  # as `python -m pytest` has it
        sys.dont_write_bytecode = False
        load()
    run_all(batches, pytest)
    costs = {name: cost for batch in batches for name, cost in batch.costs.items()}
    show(costs)
    failed = [batch for batch in batches if batch.failed]
    for batch in failed:
        print(f"FAILED: {batch.name}: {' '.join(batch.files)}")
    unused = (idle_seconds() - idle) / ((time.monotonic() - started) * (os.cpu_count() or 1))
    print(f"{unused:6.0%} of what the processors could have done meanwhile, for whomever, was not used")
    spent = round(time.monotonic() - started)
    print(f"all tests: {spent // 60}:{spent % 60:02} minutes, {'FAILED' if failed else 'passed'}")
    if record:
        rounded = {name: [round(each, 1) for each in costs[name]] for name in sorted(costs)}
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(cost)}" for name, cost in rounded.items())
        COSTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 1 if failed else 0


def idle_seconds() -> float:
    """That all processors together have had nothing to do, or have waited for a disk; 0 where it is not told."""
    if not FORKS:
        return 0.0
    fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


def test_files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def shares_session(name: str) -> bool:
    return SESSION.search((ROOT / name).read_text(encoding="utf-8")) is not None


def share_out(names: Iterable[str], known: Costs) -> list[Batch]:
    """Batches of files, the longest first; the first ones have all that share a session, one each."""

    def seconds(name: str) -> float:
        return known.get(name, (UNKNOWN, UNKNOWN))[1]

    longest = sorted(names, key=seconds, reverse=True)
    session = [name for name in longest if shares_session(name)]
    rest = [name for name in longest if name not in session]
    others = max(SIDE_BY_SIDE, round(sum(map(seconds, rest)) / BATCH))
    first = _even(session, SESSIONS, seconds)
    for batch in first:
        batch.session = True
    return [*first, *_even(rest, others, seconds)]


def _even(names: Iterable[str], count: int, seconds: Callable[[str], float]) -> list[Batch]:
    """So many batches, or fewer, each with about as much to do; the longest first."""
    batches = [Batch() for _ in range(count)]
    for name in names:
        least = min(batches, key=lambda batch: batch.expected)
        least.files.append(name)
        least.expected += seconds(name)
    return sorted((each for each in batches if each.files), key=lambda batch: batch.expected, reverse=True)


def run_all(batches: list[Batch], pytest: list[str]) -> None:
    """Without a thread: a fork has none but the one that makes it."""
    waiting, done = list(batches), 0
    running: dict[int, tuple[Batch, Path, float]] = {}
    folder = tempfile.mkdtemp(prefix="headwater-tests-")  # which no fork removes when it ends
    try:
        while waiting or running:
            while waiting and len(running) < SIDE_BY_SIDE:
                batch = waiting.pop(0)
                place = Path(folder) / str(len(waiting))
                place.mkdir()
                running[start(batch, pytest, place)] = batch, place, time.monotonic()
            pid, status = os.wait()
            if pid not in running:
                continue
            batch, place, started = running.pop(pid)
            finish(batch, place, os.waitstatus_to_exitcode(status), time.monotonic() - started)
            done += 1
            last = batch.output.strip().rpartition("\n")[2].strip("= ")
            print(f"{done:3}/{len(batches)}  {batch.seconds:5.0f} s  {batch.name}: {last}", flush=True)
            if batch.failed:
                print(batch.output, flush=True)
    finally:  # an interrupt ends them all
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def load() -> None:
    """What nearly every test needs. Plugins of pytest's are loaded by it."""
    import hypothesis.strategies  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    from tests.federation import nursery

    nursery.load()


def start(batch: Batch, pytest: list[str], place: Path) -> int:
    """The number of a process that runs a batch."""
    sys.stdout.flush()
    with (place / "output.txt").open("w", encoding="utf-8") as sink:
        given = environment(place / "costs.json")
        if not FORKS:
            command = [sys.executable, "-m", "pytest", *pytest, *batch.files]
            process = subprocess.Popen(command, cwd=ROOT, env=given, stdout=sink, stderr=subprocess.STDOUT)
            process.returncode = 0  # it is waited for here
            return process.pid
        pid = os.fork()
        if not pid:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
            os.environ.clear()
            os.environ.update(given)
            os.nice(0 if batch.session else STAND_BACK)
            _run([*pytest, *batch.files])
    return pid


def _run(arguments: list[str]) -> NoReturn:
    """Ends the process."""
    import pytest
    from tests.federation import nursery

    code = 1
    try:
        os.chdir(ROOT)
        nursery.prepare()
        code = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        nursery.end(code)


def finish(batch: Batch, place: Path, code: int, seconds: float) -> None:
    batch.code, batch.seconds = code, seconds
    batch.output = (place / "output.txt").read_text(encoding="utf-8", errors="replace")
    if (place / "costs.json").exists():
        batch.costs = json.loads((place / "costs.json").read_text(encoding="utf-8"))


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
