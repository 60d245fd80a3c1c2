"""What holds for all tests; and what they cost, printed at the end."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says nothing: machines are busy, and the first one may compile.
settings.register_profile("headwater", settings(), deadline=None)
settings.load_profile("headwater")

COSTLY = 1.0  # seconds: files that cost less are summed up


class Costs:
    """Of each file: seconds of processor time, of processes it has started and ended too, and seconds in all. The first
    says what a test costs on any machine; the second, how much of it is waiting."""

    def __init__(self) -> None:
        self._files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        processor, clock = sum(os.times()[:4]), time.monotonic()
        result = yield
        cost = self._files[item.nodeid.partition("::")[0]]
        cost[0] += sum(os.times()[:4]) - processor
        cost[1] += time.monotonic() - clock
        return result

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
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


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "costs")
