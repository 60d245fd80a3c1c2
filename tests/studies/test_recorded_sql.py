"""What was written is recorded, and SQLite alone leaves the same file, with the same syncs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headwater.store import NodeState, Tables, durability
from headwater_studies.objects.recorded_sql import Recording, beside_bare
from headwater_studies.objects.slow_sync import slow_sync

THINGS = Tables("things", (("CREATE TABLE things (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",),))


def work(state: NodeState, rounds: int = 3) -> None:
    tables = state.tables(THINGS)
    for number in range(rounds):
        with tables.transaction(durable=number % 2 == 0) as write:
            write("INSERT OR REPLACE INTO things VALUES (?, ?)", (f"a{number}", bytes(number)))
            with pytest.raises(ZeroDivisionError), write.savepoint():
                write("DELETE FROM things")
                _ = 1 // 0
        state.commit("hall", "far", number)


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("reading", [False, True])
def test_a_replay_leaves_the_same_file(tmp_path: Path, reading: bool) -> None:
    with NodeState(tmp_path / "state") as state:
        work(state, 1)
        if reading:
            with state.reading():
                pass
        connection, sync = state._connection, durability.sync
        with Recording(state, tmp_path) as recording:
            work(state)
        assert state._connection is connection and durability.sync is sync
    assert recording.pragmas["locking_mode"] == ("normal" if reading else "exclusive")
    assert recording.syncs == 2 and recording.commits == 4  # one of them found the tables as they should be
    synced = list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durability, "sync", lambda log: synced.append(os.fstat(log).st_size))
        assert recording.replay(tmp_path / "bare") > 0
    assert len(synced) == 2 and 0 < synced[0] < synced[1]
    assert content(tmp_path / "bare" / "state") == content(tmp_path / "state")


def test_ours_and_bare_take_turns_on_files_of_their_own(tmp_path: Path) -> None:
    @contextmanager
    def prepare(folder: Path) -> Iterator[tuple[NodeState, Callable[[], object]]]:
        with NodeState(folder / "state") as state:
            yield state, lambda: work(state)

    ours, bare, recording = beside_bare(prepare, tmp_path, rounds=2)
    assert ours > 0 and bare > 0 and recording.syncs == 2
    files = [content(path / "state") for path in tmp_path.iterdir() if path.is_dir()]
    assert len(files) == 5 and all(each == files[0] for each in files)


def test_a_slow_sync_is_a_sleep_and_ends_with_its_block(tmp_path: Path) -> None:
    sync = durability.sync
    with NodeState(tmp_path / "state") as state:
        with slow_sync(0.0):
            assert durability.sync is not sync
            state.keep("key", b"1")
        assert durability.sync is sync
        state.keep("key", b"2")
        assert state.secret("key") == b"2"
