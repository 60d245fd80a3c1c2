"""Who has a node's state open: one process; and within it one that writes, and any number who read meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import StoreError
from headwater.store import NodeState, Tables
from tests.disk import full
from tests.federation.nursery import Popen, run

THINGS = Tables("things", (("CREATE TABLE things (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",),))
ALL = "SELECT name, value FROM things ORDER BY name"
ADD = "INSERT INTO things VALUES (?, ?)"
KEY = "lab.0123abcd/1700000000000000000/3"


@contextmanager
def state_of(path: Path | str, **things: int) -> Iterator[NodeState]:
    with NodeState(path) as state:
        tables = state.tables(THINGS)
        for name, value in things.items():
            tables.write(ADD, (name, value))
        yield state


def shared(state: NodeState) -> None:
    with state.reading():
        pass


def elsewhere(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)


# ── reading ──


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "lab.state" if request.param == "file" else ":memory:"


def test_a_snapshot_sees_what_was_there_when_it_began(path: Path | str) -> None:
    with state_of(path, a=1) as state:
        tables = state.tables(THINGS)
        with state.reading() as read, tables.reading() as other:
            tables.write(ADD, ("b", 2))
            state.commit("hall", KEY, 1)
            assert read(ALL) == other(ALL) == [("a", 1)] and read("SELECT * FROM positions") == []
            assert tables.read(ALL) == [("a", 1), ("b", 2)] and state.positions("hall") == {KEY: 1}
            with state.reading() as later:
                assert later(ALL) == [("a", 1), ("b", 2)]
        with state.reading() as read:
            assert read("SELECT value FROM things WHERE name = ?", ("b",)) == [(2,)]


def test_nobody_waits_for_who_writes_or_reads(tmp_path: Path) -> None:
    with state_of(tmp_path / "s", a=1) as state:
        shared(state)
        with state.transaction() as write:
            write(ADD, ("b", 2))
            seen = list[Any]()

            def look() -> None:
                with state.reading() as read:
                    seen.extend(read(ALL))
                seen.extend(state._all(ALL))

            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        assert seen == [("a", 1)] * 2
        with state.reading() as read:
            rows = read.rows(ALL)
            assert next(rows) == ("a", 1)
            for number in range(5000):  # more than the log takes before it goes into the file
                state.commit("hall", KEY, number)
            assert next(rows) == ("b", 2)


def test_what_is_read_one_by_one_may_be_left_before_its_end(tmp_path: Path) -> None:
    with state_of(tmp_path / "s") as state:
        with state.transaction() as write:
            for number in range(1000):
                write(ADD, (f"{number:04}", number))
        for _ in range(3):
            with state.reading() as read:
                rows = read.rows(ALL)
                assert [next(rows)[1] for _ in range(300)] == list(range(300))
                assert sum(value for _, value in read.rows(ALL)) == 999 * 500
            with pytest.raises(StoreError, match="found it ended"):
                list(rows)
            state.tables(THINGS).write("UPDATE things SET value = value")  # who left holds on to nothing
        with state.reading() as read:
            assert read("SELECT count(*) FROM things") == [(1000,)]
        with pytest.raises(StoreError, match="expected a snapshot within its block, found it ended; take another"):
            read(ALL)


def test_who_reads_does_not_write(path: Path | str) -> None:
    with state_of(path, a=1) as state:
        with state.reading() as read:
            with pytest.raises(StoreError, match="it cannot be read: attempt to write a readonly database"):
                read("DELETE FROM things")
            with pytest.raises(StoreError, match="it cannot be read: no such table"):
                list(read.rows("SELECT * FROM missing"))
            with pytest.raises(StoreError, match=r"it cannot be read: .*surrogates"):
                read("SELECT ?", ("\ud800",))
            assert read(ALL) == [("a", 1)]
        with pytest.raises(ZeroDivisionError), state.reading():
            _ = 1 // 0
        with pytest.raises(StoreError, match="no such table"):
            state.tables(THINGS).read("SELECT * FROM missing")
        assert state.tables(THINGS).read(ALL) == [("a", 1)]


def test_within_a_transaction_its_own_thread_uses_that(path: Path | str) -> None:
    with state_of(path, a=1) as state:
        calls: list[Callable[[], object]] = [
            lambda: state.positions("hall"),
            lambda: state.keep("a", b""),
            lambda: state.reading().__enter__(),
            lambda: state.transaction().__enter__(),
        ]
        for _ in range(2):
            with state.transaction() as write:
                for call in calls:
                    with pytest.raises(StoreError, match="after the transaction of the same thread, found it within"):
                        call()
                assert write(ALL).fetchall() == [("a", 1)]
            shared(state)


def test_threads_read_while_others_write(tmp_path: Path) -> None:
    """Two values whose sum is always the same, whoever looks."""
    with state_of(tmp_path / "s", a=500, b=500) as state:
        wrong = list[Any]()
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                with state.reading() as read:
                    first, second = read("SELECT value FROM things WHERE name = 'a'"), read(ALL)
                if first != [second[0][1:]] or sum(value for _, value in second) != 1000:
                    wrong.append((first, second))

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(300):
            with state.transaction() as write:
                write("UPDATE things SET value = value - 1 WHERE name = 'a'")
                write("UPDATE things SET value = value + 1 WHERE name = 'b'")
            state.commit("hall", KEY, number)
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong and state.tables(THINGS).read(ALL) == [("a", 200), ("b", 800)]


def test_who_reads_when_it_is_closed_is_told_and_lets_go(tmp_path: Path) -> None:
    with state_of(tmp_path / "s", a=1, b=2) as state:
        with state.reading() as read:
            rows = read.rows(ALL)
            next(rows)
            state.close()
            for call in (lambda: read(ALL), lambda: next(read.rows(ALL)), lambda: state.positions("hall")):
                with pytest.raises(StoreError, match="expected it open, found it closed"):
                    call()
        with pytest.raises(StoreError, match="expected it open, found it closed"), state.reading():
            pass
    with state_of(tmp_path / "s", c=3) as state:
        assert len(state.tables(THINGS).read(ALL)) == 3


def test_there_is_room_for_who_reads_or_nothing_changes(tmp_path: Path) -> None:
    """The memory that connections share is a file: if it cannot be made, the one that writes goes on."""
    with state_of(tmp_path / "s", a=1) as state:
        with full(), pytest.raises(StoreError, match=r"state .*found: "), state.reading():
            pass
        assert state.tables(THINGS).read(ALL) == [("a", 1)]
        state.tables(THINGS).write(ADD, ("b", 2))
        with state.reading() as read:
            assert read(ALL) == [("a", 1), ("b", 2)]


def test_it_stays_the_same_file_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b%3f#?").mkdir()
    monkeypatch.chdir(tmp_path / "a b%3f#?")
    with state_of("lab.state", a=1) as state:
        monkeypatch.chdir(tmp_path)
        with state.reading() as read:
            assert read(ALL) == [("a", 1)]
    assert list(tmp_path.glob("lab*")) == []


def test_a_file_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    with state_of(tmp_path / "s", a=1) as state:
        (tmp_path / "s").unlink()
        for _ in range(2):
            with pytest.raises(StoreError), state.reading():
                pass
    assert not (tmp_path / "s").exists()


# ── whose it is ──


def refused(path: Path) -> None:
    with pytest.raises(StoreError, match="no other node has open, found it in use; close that node"):
        NodeState(path)
    program = "import sys\nfrom headwater.store import NodeState\nNodeState(sys.argv[1])"
    assert "found it in use" in elsewhere(program, path).stderr


@pytest.mark.parametrize("reading", [False, True])
def test_it_has_one_owner_by_whatever_name(tmp_path: Path, reading: bool) -> None:
    path, link, hard, lock = (tmp_path / name for name in ("lab", "link", "hard", "lab.lock"))
    with state_of(path, a=1) as state:
        link.symlink_to(path)
        hard.hardlink_to(path)
        if reading:
            shared(state)
        assert lock.stat().st_mode & 0o077 == 0
        for name in (path, link, hard):
            refused(name)
        lock.unlink()  # by somebody who tidies up
        refused(path)
        state.tables(THINGS).write(ADD, ("b", 2))
        with state.reading() as read:
            assert len(read(ALL)) == 2
    hard.unlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lab", "link"]  # and nothing is left beside it
    with state_of(link) as state:
        assert len(state.tables(THINGS).read(ALL)) == 2


def test_one_that_nobody_has_any_more_is_free(tmp_path: Path) -> None:
    state = NodeState(tmp_path / "s")
    shared(state)
    del state
    gc.collect()
    NodeState(tmp_path / "s").close()


# What releases did that had the file for themselves alone, statement for statement.
OLDER = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
for statement in '''
PRAGMA page_size = 1024
PRAGMA locking_mode = EXCLUSIVE
PRAGMA journal_mode = WAL
PRAGMA synchronous = NORMAL
PRAGMA wal_autocheckpoint = 4000
BEGIN EXCLUSIVE
SELECT count(*) FROM sqlite_master
'''.strip().splitlines():
    connection.execute(statement).fetchall()
"""
FILLED = """
CREATE TABLE rooms (room TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID
PRAGMA application_id = 1214609252
PRAGMA user_version = 2
CREATE TABLE secrets (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID
INSERT INTO rooms VALUES ('secrets', 1)
CREATE TABLE positions (sink TEXT NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, \
handed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (sink, source)) WITHOUT ROWID
INSERT INTO rooms VALUES ('positions', 1)
COMMIT
INSERT INTO secrets VALUES ('identity/lab', x'00ff')
INSERT INTO positions VALUES ('hall', 'far', 7, 9)
"""


@pytest.mark.parametrize("end", ["connection.close()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_file_of_an_older_release_opens_however_that_ended(tmp_path: Path, end: str) -> None:
    path = tmp_path / "lab.state"
    filled = f"for statement in {FILLED.strip().splitlines()!r}: connection.execute(statement)\n"
    elsewhere(OLDER + filled + end, path)
    assert path.exists() and (tmp_path / "lab.state-wal").exists() == ("SIGKILL" in end)
    for _ in range(2):
        with NodeState(path) as state:
            with state.reading() as read:
                assert read("SELECT sink, source, seq, handed FROM positions") == [("hall", "far", 7, 9)]
            assert state.secret("identity/lab") == b"\0\xff"
            state.commit("hall", "far", 6)


@pytest.mark.parametrize("reading", [False, True])
def test_an_older_release_does_not_get_it_meanwhile(tmp_path: Path, reading: bool) -> None:
    with state_of(tmp_path / "s", a=1) as state:
        if reading:
            shared(state)
        assert "database is locked" in elsewhere(OLDER, tmp_path / "s").stderr
        state.tables(THINGS).write(ADD, ("b", 2))
    assert elsewhere(OLDER, tmp_path / "s").returncode == 0


def test_an_older_release_that_has_it_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    NodeState(path).close()
    program = OLDER + "connection.execute('COMMIT')\nprint('open', flush=True)\nsys.stdin.read()"
    with Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        refused(path)
        other.communicate("")
    NodeState(path).close()


def test_another_program_may_look_but_not_stay(tmp_path: Path) -> None:
    """With any tool of SQLite's, while a node has it; who starts a node wants it alone."""
    with state_of(tmp_path / "s", a=1) as state:
        shared(state)
        look = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT * FROM things').fetchall())"
        assert elsewhere(look, tmp_path / "s").stdout == "[('a', 1)]\n"
    other = sqlite3.connect(tmp_path / "s", isolation_level=None)
    assert other.execute(ALL).fetchall() == [("a", 1)]
    refused(tmp_path / "s")
    other.close()
    NodeState(tmp_path / "s").close()


# ── forks, kills ──

FORKING = """
import os, sys
from headwater.errors import StoreError
from headwater.store import NodeState
state = NodeState(sys.argv[1])
with state.reading() as read, state.transaction() as write:
    write("INSERT INTO positions (sink, source, seq, handed) VALUES ('hall', 'far', 1, 0)")
    rows = read.rows("SELECT * FROM secrets")
    next(rows, None)
    child = os.fork()
    if child == 0:
        for call in (read, write, lambda it: state.reading().__enter__(), state.positions):
            try:
                call("DELETE FROM positions")
                os._exit(8)
            except StoreError:
                pass
        raise SystemExit(7)  # out of both blocks, and through the whole end of the interpreter
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    write("INSERT INTO positions (sink, source, seq, handed) VALUES ('hall', 'near', 2, 0)")
    assert read("SELECT * FROM positions") == []
for seq in range(2, 5000):
    state.commit("hall", "far", seq)
with state.reading() as read:
    assert read("SELECT seq FROM positions ORDER BY seq") == [(2,), (4999,)]
os._exit(0)
"""


def test_a_forked_process_leaves_readers_and_transactions_of_its_parent_alone(tmp_path: Path) -> None:
    ended = elsewhere(FORKING, tmp_path / "s")
    assert ended.returncode == 0, ended.stderr
    with NodeState(tmp_path / "s") as state:
        assert state.positions("hall") == {"far": 4999, "near": 2}


ORPHAN = """
import os, sys
from headwater.store import NodeState
state = NodeState(sys.argv[1])
with state.reading():
    pass
if os.fork() == 0:
    print(os.getpid(), flush=True)
    os.closerange(1, 3)
    sys.stdin.read()
    os._exit(0)
state.commit("hall", "far", 1)
sys.stdin.read()
"""


def test_a_child_that_outlives_its_parent_does_not_keep_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Popen(
        [sys.executable, "-c", ORPHAN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stdin is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        os.kill(child, 0)  # it is there
        with NodeState(path) as state, state.reading() as read:
            assert read("SELECT count(*) FROM positions") in ([(0,)], [(1,)])
        parent.stdin.close()
