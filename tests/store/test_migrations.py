"""Tables of a node's state: rooms declare them in numbered steps, and a file gets those that it lacks, all or none."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import StoreError
from headwater.store import NodeState, Tables
from headwater.store.state import VERSION
from tests.federation.nursery import run

OF_VERSION_1 = Path(__file__).parent / "state_of_version_1.sqlite"  # as it was written when there were no others
KEY = "lab.0123abcd/1700000000000000000/3"
FIRST = ("CREATE TABLE things (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",)
SECOND = ("ALTER TABLE things ADD COLUMN unit TEXT NOT NULL DEFAULT 'm'", "CREATE INDEX by_value ON things (value)")


def doubled(execute: Callable[..., Any]) -> None:
    for name, value in execute("SELECT name, value FROM things").fetchall():
        execute("UPDATE things SET value = ? WHERE name = ?", (2 * value, name))


def raw(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(statement).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def test_a_file_of_version_1_opens_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    shutil.copy(OF_VERSION_1, path)
    assert raw(path, "PRAGMA user_version") == [(1,)]
    for _ in range(2):
        with NodeState(path) as state:
            assert state.secret("identity/lab") == b"a key of the node"
            assert state.positions("hall") == {KEY: 7, "other": 2**63 - 1}
            assert state.positions("door") == {"other": 4} and state.handed("door") == {"other": 9}
            state.commit("door", "other", 3)  # it does not go back
            state.commit("again", "other", 1)
    assert raw(path, "PRAGMA user_version") == [(VERSION,)]
    assert raw(path, "SELECT room, version FROM rooms") == [("positions", 2), ("secrets", 1)]


def test_a_new_file_is_as_one_that_was_brought_up_to_date(tmp_path: Path) -> None:
    shutil.copy(OF_VERSION_1, tmp_path / "old")
    shapes = []
    for name in ("old", "new"):
        NodeState(tmp_path / name).close()
        rows = raw(tmp_path / name, "SELECT name, sql FROM sqlite_master ORDER BY name")
        shapes.append([(each, " ".join(sql.replace("(", " ( ").replace(")", " ) ").split())) for each, sql in rows])
    assert shapes[0] == shapes[1]


def test_a_room_has_tables_of_its_own_that_grow_by_steps(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        tables = state.tables(Tables("things", (FIRST,)))
        tables.write("INSERT INTO things VALUES (?, ?)", ("a", 1))
        with tables.transaction() as execute:
            execute("INSERT INTO things VALUES (?, ?)", ("b", 2))
            execute("INSERT INTO things VALUES (?, ?)", ("c", 3))
        assert state.tables(Tables("things", (FIRST,))).read("SELECT count(*) FROM things") == [(3,)]
    with NodeState(path) as state:
        tables = state.tables(Tables("things", (FIRST, SECOND, doubled)))
        assert tables.read("SELECT * FROM things") == [("a", 2, "m"), ("b", 4, "m"), ("c", 6, "m")]
    with NodeState(path) as state:  # a room that is not used any more is left alone, and its steps are not taken again
        state.commit("hall", KEY, 1)
    with NodeState(path) as state:
        tables = state.tables(Tables("things", (FIRST, SECOND, doubled)))
        assert tables.read("SELECT value FROM things") == [(2,), (4,), (6,)]


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        state.tables(Tables("things", (FIRST, SECOND)))
        state.commit("hall", KEY, 1)
    with NodeState(path) as state:
        with pytest.raises(StoreError, match="tables of 'things' of version 1 or older, found 2, which a newer Head"):
            state.tables(Tables("things", (FIRST,)))
        assert state.positions("hall") == {KEY: 1}
    raw(path, "UPDATE rooms SET version = 9 WHERE room = 'positions'")
    with pytest.raises(
        StoreError, match=r"lab\.state.*tables of 'positions' of version 2 or older, found 9.*name anoth"
    ):
        NodeState(path)


@pytest.mark.parametrize("broken", [("CREATE TABLE things (name TEXT)",), ("nonsense",), lambda execute: execute("x")])
def test_a_step_that_fails_changes_nothing(tmp_path: Path, broken: Any) -> None:
    path = tmp_path / "lab.state"
    with NodeState(path) as state:
        state.tables(Tables("things", (FIRST,))).write("INSERT INTO things VALUES ('a', 1)")
        with pytest.raises(StoreError, match="step 3 of the tables of 'things' cannot be taken, and so nothing was"):
            state.tables(Tables("things", (FIRST, SECOND, broken)))
        tables = state.tables(Tables("things", (FIRST,)))  # it is as it was
        assert tables.read("SELECT * FROM things") == [("a", 1)]
        state.commit("hall", KEY, 1)
        assert state.tables(Tables("things", (FIRST, SECOND))).read("SELECT unit FROM things") == [("m",)]


def test_what_raises_within_a_transaction_is_undone() -> None:
    with NodeState(":memory:") as state:
        tables = state.tables(Tables("things", (FIRST,)))
        with pytest.raises(ZeroDivisionError), tables.transaction() as execute:
            execute("INSERT INTO things VALUES ('a', 1)")
            _ = 1 // 0
        assert tables.read("SELECT * FROM things") == []


def test_threads_share_the_tables_of_a_room() -> None:
    with NodeState(":memory:") as state:
        tables = state.tables(Tables("things", (FIRST,)))
        tables.write("INSERT INTO things VALUES ('a', 0)")

        def work() -> None:
            for seq in range(1, 101):
                with tables.transaction() as execute:
                    [(value,)] = execute("SELECT value FROM things").fetchall()
                    execute("UPDATE things SET value = ?", (value + 1,))
                state.commit("hall", KEY, seq)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert tables.read("SELECT value FROM things") == [(400,)] and state.positions("hall") == {KEY: 100}


@pytest.mark.parametrize("tables", [None, "things", Tables("things", ()), Tables("", (FIRST,))])
def test_what_are_no_tables_is_refused(tables: Any) -> None:
    with NodeState(":memory:") as state, pytest.raises(StoreError, match="expected the tables of a room"):
        state.tables(tables)


KILLED = """
import os, signal, sys
import sqlite3
from headwater.store import NodeState, Tables, state
path, point = sys.argv[1], int(sys.argv[2])
taken = 0

class Watched(sqlite3.Connection):
    def execute(self, statement, *args):
        global taken
        taken += 1
        if taken == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(statement, *args)

connect = sqlite3.connect
state.sqlite3.connect = lambda *args, **options: connect(*args, factory=Watched, **options)
first = ("CREATE TABLE things (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",)
second = ("ALTER TABLE things ADD COLUMN unit TEXT NOT NULL DEFAULT 'm'", "CREATE INDEX by_value ON things (value)")
with NodeState(path) as opened:
    opened.tables(Tables("things", (first, second)))
print(taken)
"""


def test_a_kill_in_the_middle_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Before each statement of all that leads from version 1 to the newest, with tables of a room added."""

    def migrate(path: Path, point: int) -> subprocess.CompletedProcess[str]:
        shutil.copy(OF_VERSION_1, path)
        command = [sys.executable, "-c", KILLED, str(path), str(point)]
        return run(command, capture_output=True, text=True)

    whole = migrate(tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    statements = int(whole.stdout)
    assert statements > 20
    seen = set()
    for point in range(6, statements + 1, 3):
        path = tmp_path / str(point)
        assert migrate(path, point).returncode == -9
        [(version,)] = raw(path, "PRAGMA user_version")
        tables = {name for (name,) in raw(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
        shape = version, "rooms" in tables, "things" in tables
        seen.add(shape)
        assert shape in {(1, False, False), (VERSION, True, False), (VERSION, True, True)}
        with NodeState(path) as state:
            assert state.secret("identity/lab") == b"a key of the node" and state.positions("hall")[KEY] == 7
            assert state.tables(Tables("things", (FIRST, SECOND))).read("SELECT unit FROM things") == []
    assert {(1, False, False), (VERSION, True, False)} <= seen


@pytest.mark.parametrize("version", ["-1", "'x'", "1.5"])
def test_a_version_that_is_none_is_damage(tmp_path: Path, version: str) -> None:
    path = tmp_path / "state"
    NodeState(path).close()
    raw(path, f"UPDATE rooms SET version = {version} WHERE room = 'positions'")
    with pytest.raises(StoreError, match=r"expected a version of the tables of 'positions', found .*damaged"):
        NodeState(path)
