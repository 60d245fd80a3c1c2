"""A named pattern goes on after its process has ended, at whatever point: every match once, as if nothing had been."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Config, Log, Node, Patterns
from headwater.logs import LogFiles
from headwater.testing import ManualClock
from tests.effort import examples

TYPE = "k: i64, v: i64"
PATTERNS = {
    "sequence": "x: a{v = 1}; y: b{v = 2 and k = x.k} within 6 seconds measures x.k as k",
    "repetition": "x: a{v = 1} -> y: a{v = 0}+ -> z: b{v = 2} within 9 seconds partition by k measures count(y) as k",
    "absent": "x: a{v = 1}; without b{v = 2} within 4 seconds partition by k measures x.k as k",
    "past last": "x: a{v < 2}; y: a{v > 0} within 5 seconds after match past last measures y.k as k",
}


class World:
    """A node with log and state in a folder that is copied when it is killed: what is on the disk is what is left."""

    def __init__(self, root: Path, text: str) -> None:
        self.root, self.text, self.lives, self.clock = root, text, 0, ManualClock()
        self.open()

    @property
    def folder(self) -> Path:
        return self.root / str(self.lives)

    def open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = Config(patterns=Patterns(keep_events=1_000_000, keep_seconds=1_000_000))
        log = Log(self.folder / "log", rest_seconds=0)
        self.node = Node("lab", state=self.folder / "state", log=log, config=config, clock=self.clock)
        for name in "ab":
            self.node.channel(name, TYPE)
        self.made: Any = self.node.pattern("found", self.text)
        self.sources = {name: self.node.channel(name).source("east") for name in "ab"}

    def kill(self) -> None:
        """As if the process had ended just now."""
        before = self.folder
        self.lives += 1
        shutil.copytree(before, self.folder)
        self.node.close(drain=False, timeout=0)
        self.open()

    def do(self, action: tuple[str, int, int]) -> None:
        what, k, v = action
        if what == "kill":
            self.kill()
        elif what == "keep":
            self.made.keep()
        elif what == "close":
            self.node.close()
            self.open()
        elif what == "wait":
            self.clock.advance(v)
        else:
            self.sources[what].publish(k=k, v=v)
            self.clock.advance(1)

    def found(self) -> list[bytes]:
        """The identities of all matches that were ever published, as the log has them."""
        self.clock.advance(60)
        self.made.keep()
        self.node.close()
        reader = LogFiles(self.folder / "log")
        if "found" not in reader.channels():
            return []
        return [row["identity"] for batch in reader.read("found") for row in batch.column("match").to_pylist()]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(("a", "a", "b", "b", "keep", "wait")), st.integers(0, 1), st.integers(0, 2)), max_size=14
)


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=examples(4), report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
@given(ACTIONS, st.data())
def test_after_kills_every_match_is_there_once(
    name: str, tmp_path_factory: Any, actions: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    kills = data.draw(st.lists(st.tuples(st.integers(0, len(actions)), st.sampled_from(("kill", "close"))), max_size=3))
    troubled = list(actions)
    for at, how in sorted(kills, reverse=True):
        troubled.insert(at, (how, 0, 0))
    root = tmp_path_factory.mktemp("world")
    calm, other = World(root / "calm", PATTERNS[name]), World(root / "troubled", PATTERNS[name])
    for action in actions:
        calm.do(action)
    for action in troubled:
        other.do(action)
    expected = calm.found()
    assert len(set(expected)) == len(expected)
    assert sorted(other.found()) == sorted(expected)
