"""What holds for all tests; and what they cost, printed at the end."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tools.java_archive import options as java_options
from tools.spark_home import use as use_spark_home

from tests.effort import examples

os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
use_spark_home()

# How long an example takes, or to make one, says nothing: machines are busy, and the first one may compile.
settings.register_profile(
    "headwater",
    settings(),
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headwater")

COSTLY = 1.0  # seconds: files that cost less are summed up
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """What this process and all that descend from it have used."""
    return sum(os.times()[:4]) + sum(map(_of_family, _children("self")))


def _of_family(process: str) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended, or this system does not tell
        return 0.0
    return sum(map(int, fields[11:15])) / TICK + sum(map(_of_family, _children(process)))


def _children(process: str) -> list[str]:
    found: list[str] = []
    for each in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += each.read_text(encoding="utf-8").split()
    return found


class Costs:
    """Of each file: seconds of processor time, of processes it has started too, and seconds in all. The first says what
    a test costs on any machine; the second, how much of it is waiting. What goes on in processes that several files
    share (Java) counts for the file that runs meanwhile."""

    def __init__(self) -> None:
        self._files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._before = 0.0, 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        if not self._before[1]:
            self._before = processor_seconds(), time.monotonic()
        result = yield
        name = item.nodeid.partition("::")[0]
        if nextitem is None or nextitem.nodeid.partition("::")[0] != name:
            now = processor_seconds(), time.monotonic()
            cost = self._files[name]
            cost[0] += now[0] - self._before[0]
            cost[1] += now[1] - self._before[1]
            self._before = now
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if where := os.environ.get("HEADWATER_COSTS"):  # tools/run_tests.py shows those of all its processes
            Path(where).write_text(json.dumps(self._files), encoding="utf-8")
            return
        rows = sorted(self._files.items(), key=lambda row: -max(row[1]))
        shown = [row for row in rows if max(row[1]) >= COSTLY]
        if not shown:
            return
        terminalreporter.section("what each file costs: processor and clock, in seconds")
        for name, (processor, clock) in shown:
            terminalreporter.write_line(f"{processor:8.1f} {clock:8.1f}  {name}")
        rest = [row[1] for row in rows[len(shown) :]]
        terminalreporter.write_line(f"{sum(c for c, _ in rest):8.1f} {sum(c for _, c in rest):8.1f}  {len(rest)} more")
        both = [cost for _, cost in rows]
        terminalreporter.write_line(f"{sum(c for c, _ in both):8.1f} {sum(c for _, c in both):8.1f}  all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that are marked as too long for `make test` run where they are asked for."""
    if "soak" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_collection_finish() -> None:
    """Modules and tests are there to the end."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "costs")
