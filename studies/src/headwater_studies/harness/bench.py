"""What the studies share: processes, progress, rounds in which everybody takes a turn, and what a study hands back."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.result import Ratio, Section

Say = Callable[[str], None]


class Start(Protocol):
    """Starts a process that runs a module; see `headwater_studies.fleet.worker.workers`."""

    def __call__(self, module: str, *arguments: str, inside: Sequence[str] = ()) -> Worker: ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a part of a study hands back."""

    sections: tuple[Section, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    not_run: Mapping[str, str] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Found) -> Found:
        return Found(
            self.sections + other.sections,
            self.ratios + other.ratios,
            {**self.versions, **other.versions},
            {**self.not_run, **other.not_run},
            {**self.costs, **other.costs},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How a study is to be run. `quick`: as little as shows that everything works."""

    start: Start
    say: Say
    folder: Path  # for files of the run, gone afterwards
    quick: bool = False
    rounds: int = 3
    master: str = "local[*]"  # of Spark
    costs: Mapping[str, float] = field(default_factory=dict)  # what was measured before, by name

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def turns(self, what: str, runs: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Everybody's figure of every round, taking turns. A first round to warm up is not counted; a quick study has
        none."""
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(1 if self.quick else 0, self.rounds + 1):
            for name, run in runs.items():
                value = run()
                if number:
                    found[name].append(value)
            if number:
                figures = ", ".join(f"{name} {short(values[-1])}" for name, values in found.items())
                self.say(f"{what}, round {number} of {self.rounds}: {figures}")
        return found


Part = Callable[[Bench], Found]


# ── numbers of several rounds ──


def middle(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def short(value: float) -> str:
    """A time in seconds, or a number that is no time, as progress tells it."""
    return f"{value * 1e6:.1f} µs" if value < 1 else f"{value:,.0f}"


def between(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The spread of the rounds: the least and the most."""
    return f"{show(min(values))} to {show(max(values))}" if len(values) > 1 else "one round"


@dataclass(frozen=True, slots=True)
class Line:
    """The best line through points, and how well it fits them (1: exactly)."""

    slope: float
    start: float
    correlation: float


def regression(points: Sequence[tuple[float, float]]) -> Line:
    xs, ys = zip(*points, strict=True)
    slope, start = statistics.linear_regression(xs, ys)
    try:
        fits = statistics.correlation(xs, ys)
    except statistics.StatisticsError:  # all at one height
        fits = 1.0
    return Line(slope, start, fits)


# ── where it runs ──


def machine() -> dict[str, str]:
    """The machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {_distribution()}",
        "network": "loopback unless said otherwise",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)


def versions(*packages: str) -> dict[str, str]:
    """Of Python, ourselves and some installed packages; one that is not there is left out."""
    found = {"Python": platform.python_version()}
    for package in ("headwater", "eclipse-zenoh", "llvmlite", "pyarrow", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def now() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def pinned(*workers: Any) -> None:
    """Each of these processes on a core of its own, in turn."""
    cores = os.cpu_count() or 1
    for number, worker in enumerate(workers):
        worker.call("pin", core=number % cores)


def free(*workers: Any) -> None:
    for worker in workers:
        worker.call("pin", core=None)


def aloud(text: str) -> None:
    """Progress, for people."""
    sys.stderr.write(f"  … {text}\n")
    sys.stderr.flush()
