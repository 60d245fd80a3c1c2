"""The disk is full while a named pattern is kept: its matches come once, and it goes on by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Log, Node, Patterns
from headwater.logs import LogFiles
from headwater.testing import ManualClock
from tests.disk import full

TYPE = "k: i64, v: i64"
TEXT = "x: a{v = 1}; y: a{v = 2} within 1 hour partition by k measures x.k as k"
pytestmark = pytest.mark.filterwarnings("ignore::headwater.HeadwaterWarning")


class _Lab:
    """A node that keeps its patterns; of its channels it logs the one of matches, if any."""

    def __init__(self, folder: Path, clock: ManualClock, *, logs: bool) -> None:
        config = Config(patterns=Patterns(keep_events=1_000_000, keep_seconds=1_000_000))
        log = Log(folder / "log", channels="found", rest_seconds=0) if logs else None
        self.clock = clock
        self.node = Node("lab", state=folder / "state", log=log, config=config, clock=clock)
        self.source = self.node.channel("a", TYPE).source("east")
        self.made: Any = self.node.pattern("found", TEXT)
        self.got: list[int] = []
        self.node.channel("found").subscribe(lambda event: self.got.append(event.k))

    def publish(self, k: int, v: int) -> None:
        self.source.publish(k=k, v=v)
        self.clock.advance(1)


def test_matches_are_found_while_its_state_cannot_be_written(tmp_path: Path) -> None:
    clock = ManualClock()
    lab = _Lab(tmp_path, clock, logs=False)
    with lab.node:
        lab.publish(1, 1)
        lab.made.keep()
        written = lab.made.report().kept["written"]
        with full():
            lab.publish(2, 1)
            lab.publish(1, 2)
            lab.made.keep()
            kept = lab.made.report().kept
            assert kept["written"] == written and "it cannot be written" in kept["trouble"]
            assert "it cannot be written" in str(lab.made.report())
            clock.advance(5)  # in vain
            assert lab.made.report().kept["written"] == written
            lab.publish(2, 2)
            assert lab.got == [1, 2]
        clock.advance(2)  # there is room again
        kept = lab.made.report().kept
        assert kept["written"] > written and not kept["trouble"]
        lab.publish(3, 1)
    lab = _Lab(tmp_path, clock, logs=False)
    with lab.node:
        lab.publish(3, 2)
        lab.publish(1, 2)
        assert lab.got == [3, 1]


def test_matches_that_cannot_be_logged_wait_and_come_once(tmp_path: Path) -> None:
    clock = ManualClock()
    lab = _Lab(tmp_path, clock, logs=True)
    with lab.node:
        lab.publish(1, 1)
        lab.publish(1, 2)
        with full():
            lab.publish(2, 1)
            lab.publish(2, 2)
            lab.publish(1, 2)
            report = lab.made.report()
            assert lab.got == [1] and report.kept["unpublished"] == 2
            assert "StoreError" in str(report.trouble)
            assert lab.made._come_to() is None  # nobody is promised that none of them comes
        clock.advance(2)
        assert lab.got == [1, 2, 1] and lab.made.report().kept["unpublished"] == 0
        lab.publish(3, 1)
    lab = _Lab(tmp_path, clock, logs=True)
    with lab.node:
        lab.publish(3, 2)
    rows = [row for batch in LogFiles(tmp_path / "log").read("found") for row in batch.to_pylist()]
    assert [row["k"] for row in rows] == [1, 2, 1, 3]
    assert len({row["match"]["identity"] for row in rows}) == 4


def test_a_match_that_waits_when_the_node_ends_is_found_again(tmp_path: Path) -> None:
    clock = ManualClock()

    def lab() -> tuple[Node, Any, Any]:
        node = Node("lab", state=tmp_path / "state", log=Log(tmp_path / "log", rest_seconds=0), clock=clock)
        source = node.channel("a", TYPE).source("east")
        made = node.pattern("found", "x: a{v = 1}; without a{v = 2} within 10 seconds measures x.k as k")
        return node, source, made

    node, source, made = lab()
    source.publish(k=1, v=1)
    clock.advance(1)
    with full():
        clock.advance(20)
        assert made.report().kept["unpublished"] == 1
        node.close(drain=False)
    node, source, made = lab()
    with node:
        clock.advance(1)
        assert made.report().kept["unpublished"] == 0
    rows = [row for batch in LogFiles(tmp_path / "log").read("found") for row in batch.to_pylist()]
    assert [row["k"] for row in rows] == [1]
