"""Two versions of a filter on a log: Spark and this process say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Node
from headwater.errors import ExecutionError
from headwater.patterns import Pattern
from headwater.spark.backtest import compare

DOOR = "who: text?, level: f64"


def test_spark_and_this_process_agree(spark: Any, tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        sources = [node.channel("t.door", DOOR).source(name) for name in ("east", "west")]
        for n in range(60):
            sources[n % 2].publish(who=None if n % 7 == 0 else "cat" if n % 5 == 0 else "ann", level=n / 60)
    sides = Interest("level > 0.5 and who != 'cat'", DOOR), Interest("level > 0.25 and who != 'ann'", DOOR)
    here = compare(None, tmp_path, *sides, channel="t.door", examples=3)
    there = compare(spark, tmp_path, *sides, channel="t.door", examples=3)
    for name in ("events", "old_passed", "new_passed", "both", "only_old", "only_new"):
        assert getattr(here, name) == getattr(there, name), name
    assert here.only_old and here.only_new and len(there.examples_old) == len(here.examples_old) == 3
    assert {row["event_seq"] for row in there.examples_old} and str(there).splitlines()[0] == str(here).splitlines()[0]


def test_two_patterns_by_their_matches(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path) as node:
        door = node.channel("t.door", DOOR)
        source = door.source("east")
        for who in ("ann", "bob", "cat", "ann"):
            source.publish(who=who, level=0.5)
    types = {"t.door": DOOR}
    old = Pattern("a: t.door; b: t.door{who != a.who} within 1 hour", types)
    new = Pattern("a: t.door; b: t.door{who != a.who and who != 'cat'} within 1 hour", types)
    found = compare(None, tmp_path, old, new)
    assert (found.events, found.old_passed, found.new_passed) == (4, 5, 3) and not found.same
    assert (found.both, found.only_old, found.only_new) == (3, 2, 0) and "cat" in str(found.examples_old)
    assert compare(None, tmp_path, old, old).same


def test_what_cannot_be_compared_is_said(spark: Any, tmp_path: Path) -> None:
    half = Interest("{ output.level = input.level / 2; return 1; }", DOOR, output="level: f64")
    with pytest.raises(ExecutionError, match="expected two filters"):
        compare(spark, tmp_path, half, half, channel="t.door")
    with pytest.raises(ExecutionError, match="expected the folder of a log"):
        compare(None, 7, half, half)
