"""What a node keeps of its named patterns: whole or not at all, and nothing of another."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headwater.channel.patterns.kept import PATTERNS, Kept, KeptPatterns
from headwater.store import NodeState

FIRST = Kept(b"f" * 16, b"\x80", 17, 3, b"state", frozenset((b"m" * 16, b"n" * 16)), {"log/lab/1/east": 0})


def test_a_snapshot_takes_the_place_of_the_one_before_and_of_what_was_noted_since(tmp_path: Path) -> None:
    with NodeState(tmp_path / "state") as state:
        kept = KeptPatterns(state)
        assert kept.load("p") is None and kept.names() == []
        kept.keep("p", FIRST)
        kept.came("p", "log/lab/1/west", 4)
        kept.came("p", "log/lab/1/west", 9)  # the first is what counts
    with NodeState(tmp_path / "state") as state:
        kept = KeptPatterns(state)
        found = kept.load("p")
        assert found is not None and found.snapshot == b"state" and (found.since, found.published) == (17, 3)
        assert found.later == {"log/lab/1/east": 0, "log/lab/1/west": 4}
        kept.keep("p", Kept(b"f" * 16, b"\x80", 17, 8, b"another"))
        assert kept.load("p") == Kept(b"f" * 16, b"\x80", 17, 8, b"another")
        kept.forget("p")
        assert kept.load("p") is None


def test_what_is_not_as_it_was_written_is_not_taken(tmp_path: Path) -> None:
    with NodeState(tmp_path / "state") as state:
        KeptPatterns(state).keep("p", FIRST)
    file = sqlite3.connect(tmp_path / "state")
    file.execute("UPDATE patterns SET snapshot = X'00'")
    file.commit()
    file.close()
    with NodeState(tmp_path / "state") as state:
        assert KeptPatterns(state).load("p") is None
        assert state.tables(PATTERNS).read("SELECT version FROM rooms WHERE room = 'patterns'") == [(1,)]
