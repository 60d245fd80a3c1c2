"""Patterns tried on a log by Spark: the same counts, times and matches as this process finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater import Node
from headwater.spark.backtest import AskedPattern, backtest_patterns
from headwater.testing import ManualClock

ASKED = [
    AskedPattern(name="next", match="a: x{v > 1} -> b: x{v = 0} within 2 hours partition by k", at="desk"),
    AskedPattern(name="every", match="a: x{v > 2}; b: y{v > a.v} within 1 hour measures a.v as a, b.v as b", at="lab"),
]


def test_spark_finds_the_same(spark: Any, tmp_path: Path) -> None:
    clock = ManualClock()
    with Node("lab", log=tmp_path / "log", clock=clock) as node:
        x, y = (node.channel(name, "k: i64, v: i64").source(name) for name in "xy")
        for n in range(60):
            (x if n % 3 else y).publish(k=n % 2, v=(7 * n) % 5)
            clock.advance(420.0)
    here = backtest_patterns(None, tmp_path / "log", ASKED, bucket="1h")
    there = backtest_patterns(spark, tmp_path / "log", ASKED, bucket="1h")
    assert all(row.matches > 2 for row in here.patterns)
    for one, other in zip(here.patterns, there.patterns, strict=True):
        assert _ordered(one) == _ordered(other)
        assert replace(one, latest=(), bound=None, how="") == replace(other, latest=(), bound=None, how="")
    assert there.pattern("next").how.startswith("window functions") and there.engine == "spark"


def _ordered(row: Any) -> list[str]:
    return sorted(f"{each['time']} {sorted(each['result'].items(), key=str)}" for each in row.latest)
