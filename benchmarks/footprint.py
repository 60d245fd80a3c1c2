"""What Headwater costs before it does anything: the time of `import headwater`, what an installation takes on disk, and
the first event of a program, in time and in memory.

All of it is measured as a user meets it: in a new environment with what a plain `pip install .` puts there, by fresh
interpreters. The extras are then added to that environment one by one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from headwater_studies.harness.benchmark import Report

ROOT = Path(__file__).resolve().parent.parent
RUNS = 15  # fresh interpreters, of which the median counts
IMPORT_SECONDS = 0.3
BASE_MEGABYTES = 300.0
EXTRAS = ("federation", "arrow")  # added one after the other
PEERS = {"nats-py": "NATS", "paho-mqtt": "MQTT", "pyzmq": "ZeroMQ", "redis": "Redis", "pyarrow": "Arrow alone",
         "pyspark": "PySpark alone"}  # fmt: skip

TIMED = "from time import {clock} as t; a = t(); {code}; b = t(); print(b - a)"
MEMORY = "import re; print(re.search(r'Rss:\\s+(\\d+)', open('/proc/self/smaps_rollup').read())[1])"
FIRST = """
from headwater import Event, Node, f64
class Level(Event):
    level: f64
came = []
node = Node("lab")
levels = node.channel("a.level", Level)
levels.subscribe(came.append, "level * 2.0 > 1.0")
levels.source().publish(level=0.7)
assert len(came) == 1
"""
NODES = """
from time import perf_counter as t
from headwater import Node
Node("warm").close()
a = t(); local = Node("lab"); b = t()
times = [b - a]
try:
    Node("first", listen="tcp/127.0.0.1:0").close()
    a = t(); node = Node("second", listen="tcp/127.0.0.1:0"); b = t()
    times.append(b - a)
    node.close()
except ImportError:
    pass
local.close()
print(times)
"""


class Environment:
    """A new one, in a folder."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))
        self._empty = _on_disk(self.site)

    def install(self, what: str) -> None:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", what]
        subprocess.run(command, cwd=ROOT, check=True, env=_environment())

    @property
    def megabytes(self) -> float:
        """All that was installed, with its bytecode."""
        return (_on_disk(self.site) - self._empty) / 1e6

    def run(self, program: str) -> str:
        done = subprocess.run(
            [str(self.python), "-c", program], cwd="/", check=True, capture_output=True, text=True, env=_environment()
        )
        return done.stdout

    def seconds(self, code: str, clock: str = "perf_counter") -> float:
        """Of some code at the start of a fresh interpreter; once without counting, for the bytecode and the disk."""
        program = TIMED.format(code=code, clock=clock)
        self.run(program)
        return statistics.median(float(self.run(program)) for _ in range(RUNS))

    def resident(self, program: str) -> float:
        """Megabytes of memory after a program."""
        return statistics.median(float(self.run(f"{program}\n{MEMORY}")) for _ in range(3)) / 1024


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _on_disk(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _installed(package: str) -> float | None:
    """Megabytes of a package that is in this environment, without what it needs itself."""
    try:
        places = [Path(str(each.locate())) for each in files(package) or ()]
    except PackageNotFoundError:
        return None
    return sum(place.stat().st_size for place in places if place.exists()) / 1e6


def main() -> None:
    report = Report("footprint", "What Headwater costs before it does anything")
    with tempfile.TemporaryDirectory() as folder:
        base = Environment(Path(folder) / "base")
        base.install(".")
        size = base.megabytes
        arrow = _installed("pyarrow")
        report.add(
            "disk: pip install headwater; beside pyarrow", size, arrow, unit="MB",
            reach=f"at most {BASE_MEGABYTES:.0f} MB", ok=size <= BASE_MEGABYTES,
        )  # fmt: skip
        _times(report, base)
        for extra in EXTRAS:
            before = base.megabytes
            base.install(f".[{extra}]")
            after = base.megabytes
            note = f"{after:.0f} MB in all"
            report.add(f"disk: what headwater[{extra}] adds", after - before, size, unit="MB", note=note)
            if extra == "federation":
                local, listening = json.loads(base.run(NODES))
                report.add("a node that listens, once Zenoh is loaded; beside one alone", listening, local)
        for package, name in PEERS.items():
            if (found := _installed(package)) is not None:
                report.add(f"disk: {name} ({package}), without what it needs; beside the base", found, size, unit="MB")
    report.finish()


def _times(report: Report, base: Environment) -> None:
    bare = base.seconds("pass")
    ours = base.seconds("import headwater")
    numpy = base.seconds("import numpy")
    report.add(
        "import headwater; beside numpy, which it does not load", ours, numpy,
        reach=f"at most {IMPORT_SECONDS} s", ok=ours <= IMPORT_SECONDS,
    )  # fmt: skip
    names = base.seconds("from headwater import Event, Node")
    report.add(
        "from headwater import Event, Node; beside numpy", names, numpy,
        reach=f"at most {IMPORT_SECONDS} s", ok=names <= IMPORT_SECONDS,
    )  # fmt: skip
    programs = ("from headwater import Event, Node", "import numpy")
    busy, busy_numpy = (base.seconds(program, "process_time") for program in programs)
    report.add("the same, time of the processor: the machine may have more to do", busy, busy_numpy)
    first = base.seconds(f"exec({FIRST!r})")
    report.add("to the first event: import, node, filter in code, publish", first, ours)
    report.add("an interpreter that does nothing", bare)
    report.add("a node alone", json.loads(base.run(NODES))[0])
    if sys.platform == "linux":
        python = base.resident("pass")
        for name, program in (("import headwater", "import headwater"), ("with the first event", FIRST)):
            report.add(f"memory: {name}; beside Python alone", base.resident(program), python, unit="MB")


if __name__ == "__main__":
    main()
