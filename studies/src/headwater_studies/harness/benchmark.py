"""What every benchmark shares: timing, a table for people, and a JSON file for programs.

A row says what was measured, ours and the reference *from the same run*, their ratio, what we want to reach and whether
we did. Machines are noisy: times move from run to run, ratios much less. Nothing here asserts.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

BUILD = Path("build") / "bench"  # where results go: `make bench-NAME` runs at the top of the repository


@dataclass(frozen=True)
class Row:
    case: str
    ours: float
    reference: float | None
    ratio: float | None
    reach: str
    ok: bool | None  # None: nothing to reach, printed for information
    unit: str = "s"
    note: str = ""


def times(function: Callable[[], object], *, repeat: int = 7, number: int | None = None) -> list[float]:
    """Seconds per call, `repeat` samples; `number` calls each, chosen so that a sample lasts about 20 ms."""
    function()
    if number is None:
        start = time.perf_counter()
        function()
        once = max(time.perf_counter() - start, 1e-7)
        number = max(1, int(0.02 / once))
    samples = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                function()
            samples.append((time.perf_counter() - start) / number)
    finally:
        gc.enable()
    return samples


def versus(*functions: Callable[[], object], repeat: int = 7, number: int | None = None) -> list[float]:
    """Median seconds per call of several functions, their samples interleaved so that noise hits all alike."""
    for function in functions:
        function()
    columns: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for column, function in zip(columns, functions, strict=True):
            column.append(min(times(function, repeat=1, number=number)))
    return [statistics.median(column) for column in columns]


def median_of(make: Callable[[], object], *, repeat: int) -> float:
    """Median seconds of something that must be done anew each time."""
    samples = []
    for _ in range(repeat):
        start = time.perf_counter()
        make()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit, for people."""
    if value is None:
        return "–"
    if unit != "s":
        return f"{value:,.3g} {unit}".strip()
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


class Report:
    """Collects rows, prints them as they come, and writes `build/bench/NAME.json` at the end."""

    def __init__(self, name: str, title: str) -> None:
        self.name, self.rows = name, list[Row]()
        print(f"{title}\n{platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
        print(f"{'case':<58} {'ours':>11} {'reference':>11} {'ratio':>8}  {'reach':<22} ok")
        print("-" * 118)

    def add(
        self,
        case: str,
        ours: float,
        reference: float | None = None,
        *,
        ratio: float | None = None,
        reach: str = "",
        ok: bool | None = None,
        unit: str = "s",
        note: str = "",
    ) -> None:
        """`ratio` defaults to reference / ours for times: above 1 we are faster."""
        if ratio is None and reference is not None and ours:
            ratio = reference / ours if unit == "s" else ours / reference
        self.rows.append(Row(case, ours, reference, ratio, reach, ok, unit, note))
        shown = f"{ratio:.2f}×" if ratio is not None else "–"
        mark = {True: "yes", False: "NO", None: "·"}[ok]
        print(
            f"{case:<58} {quantity(ours, unit):>11} {quantity(reference, unit):>11} {shown:>8}  {reach:<22} {mark}"
            + (f"   {note}" if note else ""),
            flush=True,
        )

    def finish(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        path = BUILD / f"{self.name}.json"
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1, ensure_ascii=False) + "\n")
        missed = [row.case for row in self.rows if row.ok is False]
        print(f"\nratio above 1: we are faster; written to {path}")
        if missed:
            print("not reached: " + "; ".join(missed), file=sys.stderr)
