"""What is written together: parts of it that fail alone, a disk that is full, and commits that are on the disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StoreError
from headwater.store import NodeState, RoomTables, Tables, durability
from headwater.testing import eventually
from tests.disk import full
from tests.effort import examples

THINGS = Tables("things", (("CREATE TABLE things (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",),))
ADD = "INSERT INTO things VALUES (?, ?)"
ALL = "SELECT name FROM things ORDER BY name"
LARGE = 4_000_000  # bytes: more than a connection keeps in memory before it writes


class Refused(Exception):
    pass


@pytest.fixture(params=["alone", "beside readers"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeState]:
    with NodeState(tmp_path / "lab.state") as state:
        state.tables(THINGS)
        if request.param == "beside readers":
            with state.reading():
                pass
        yield state


def names(state: NodeState) -> str:
    return "".join(name for (name,) in RoomTables(state).read(ALL))


# ── savepoints ──


def test_a_savepoint_that_fails_is_undone_alone(state: NodeState) -> None:
    with state.transaction() as write:
        write(ADD, ("a", b""))
        with write.savepoint():
            write(ADD, ("b", b""))
            with pytest.raises(Refused), write.savepoint():
                write(ADD, ("c", b""))
                with write.savepoint():
                    write(ADD, ("d", b""))
                raise Refused
            with pytest.raises(StoreError, match="UNIQUE constraint failed"), write.savepoint():
                write(ADD, ("e", b""))
                write(ADD, ("a", b""))
            write(ADD, ("f", b""))
        write(ADD, ("g", b""))
    assert names(state) == "abfg"


def test_a_transaction_that_fails_takes_its_savepoints_with_it(state: NodeState) -> None:
    with pytest.raises(Refused), state.transaction() as write:
        with write.savepoint():
            write(ADD, ("a", b""))
        raise Refused
    assert names(state) == ""
    for call in (lambda: write(ADD, ("b", b"")), lambda: write.savepoint().__enter__()):
        with pytest.raises(StoreError, match="expected a transaction that is open, found that it has ended"):
            call()
    with state.transaction() as write:
        pass
    with pytest.raises(StoreError, match="found that it has ended"):
        write(ADD, ("b", b""))
    assert names(state) == ""


TREES = st.recursive(
    st.integers(0, 99), lambda inner: st.tuples(st.booleans(), st.lists(inner, max_size=4)), max_leaves=20
)


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(TREES, max_size=5), st.booleans())
def test_what_holds_is_what_no_block_around_it_has_undone(trees: list[Any], end: bool) -> None:
    """Trees of savepoints: (whether it holds, what is in it), and leaves that are written."""

    def work(write: Any, inside: list[Any]) -> list[int]:
        held = list[int]()
        for each in inside:
            if isinstance(each, int):
                write("INSERT INTO things VALUES (hex(randomblob(16)), ?)", (each,))
                held.append(each)
                continue
            holds, below = each
            try:
                with write.savepoint():
                    more = work(write, below)
                    if not holds:
                        raise Refused
                held += more
            except Refused:
                pass
        return held

    with NodeState(":memory:") as state:
        tables, held = state.tables(THINGS), list[int]()
        try:
            with tables.transaction() as write:
                held = work(write, trees)
                if not end:
                    raise Refused
        except Refused:
            held = []
        assert sorted(value for (value,) in tables.read("SELECT value FROM things")) == sorted(held)


# ── a disk that is full ──


def test_a_full_disk_undoes_the_savepoint_or_everything_and_says_so(state: NodeState) -> None:
    """What does not fit into memory is written early: SQLite may undo the statement or all of it."""
    with full(), pytest.raises(StoreError, match=r"all of it was undone|cannot be .* written: .* full; nothing was"):  # noqa: SIM117
        with state.transaction() as write:
            write(ADD, ("a", b""))
            failures = 0
            for _ in range(2):
                try:
                    with write.savepoint():
                        write(ADD, ("b", bytes(LARGE)))
                        write(ADD, ("c", b""))
                except StoreError:
                    failures += 1
            write(ADD, ("d", b""))
    assert failures == 2 and names(state) == ""
    with state.transaction() as write:  # there is room again
        with write.savepoint():
            write(ADD, ("e", bytes(LARGE)))
        write(ADD, ("f", b""))
    assert names(state) == "ef"


def test_who_goes_on_after_all_was_undone_is_stopped_by_the_next_statement(state: NodeState) -> None:
    with pytest.raises(StoreError, match="transaction that is open, found that all of it was undone"):  # noqa: SIM117
        with state.transaction() as write:
            write(ADD, ("a", b""))
            with pytest.raises(StoreError), write.savepoint():
                write("ROLLBACK")  # as SQLite does where it cannot go on
                write("SAVEPOINT other")
                write("RELEASE other")
                write("RELEASE part")
            write(ADD, ("b", b""))
    with pytest.raises(StoreError, match="found that all of it was undone"), state.transaction() as write:
        with pytest.raises(StoreError):
            write("ROLLBACK; nonsense")
        with pytest.raises(StoreError), write.savepoint():
            write("ROLLBACK")
            raise Refused
    assert names(state) == ""


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_for_which_there_is_no_room_changes_nothing(state: NodeState, durable: bool) -> None:
    with state.transaction(durable=durable) as write:
        write(ADD, ("a", b""))
    with full(), pytest.raises(StoreError, match=r"cannot be read or written: .*nothing was changed"):  # noqa: SIM117
        with state.transaction(durable=durable) as write:
            with write.savepoint():
                write(ADD, ("b", b""))
            write("DELETE FROM things WHERE name = 'a'")
    assert names(state) == "a"
    with state.transaction(durable=durable) as write:
        write(ADD, ("c", b""))
    assert names(state) == "ac"


# ── on the disk ──


class Watched:
    """Every sync of a state's log, and what was in the file when it began; the first may be held up."""

    def __init__(self, path: Path, wait: bool = False) -> None:
        self.path, self.seen = path, list[int]()
        self.began, self.go_on = threading.Event(), threading.Event()
        if not wait:
            self.go_on.set()

    def __call__(self, descriptor: int) -> None:
        self.seen.append(os.fstat(descriptor).st_size)
        self.began.set()
        assert self.go_on.wait(60)
        os.fsync(descriptor)


def test_a_durable_commit_is_synced_and_others_are_not(state: NodeState, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Path(state.path))
    monkeypatch.setattr(durability, "sync", watched)
    log = Path(f"{state.path}-wal")
    for _ in range(3):
        state.commit("hall", "far", 1)
        with state.transaction() as write:
            write("DELETE FROM things")
    assert not watched.seen
    sizes = list[int]()
    for name in "abc":
        with state.transaction(durable=True) as write:
            write(ADD, (name, b""))
        sizes.append(log.stat().st_size)
    assert watched.seen == sizes  # each when all of it was in the file
    state.keep("key", b"")
    assert len(watched.seen) == 4
    with pytest.raises(Refused), state.transaction(durable=True) as write:
        write(ADD, ("d", b""))
        raise Refused
    assert len(watched.seen) == 4


def test_nobody_else_waits_for_a_sync_and_one_does_for_all(state: NodeState, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Path(state.path), wait=True)
    monkeypatch.setattr(durability, "sync", watched)
    returned = list[str]()

    def durably(name: str) -> None:
        with state.transaction(durable=True) as write:
            write(ADD, (name, b""))
        returned.append(name)

    first = threading.Thread(target=durably, args=("a",))
    first.start()
    assert watched.began.wait(60)
    state.commit("hall", "far", 1)  # while the disk is busy
    assert state.positions("hall") == {"far": 1} and names(state) == "a"
    others = [threading.Thread(target=durably, args=(name,)) for name in "bcdef"]
    for thread in others:
        thread.start()
    eventually(lambda: names(state) == "abcdef")
    state.commit("hall", "far", 2)  # after all of them: each waits for the disk now
    assert not returned
    watched.go_on.set()
    for thread in (first, *others):
        thread.join()
    assert sorted(returned) == list("abcdef") and len(watched.seen) == 2


def test_after_a_sync_that_failed_nothing_is_called_durable(state: NodeState, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(durability, "sync", broken)
        with pytest.raises(StoreError, match=r"it was written, but whether it is on the disk is unknown.*output error"):
            state.keep("key", b"1")
    with pytest.raises(StoreError, match=r"nothing can be made durable.*output error; nothing was changed; see to"):
        state.keep("key", b"2")
    with pytest.raises(StoreError, match="nothing can be made durable"), state.transaction(durable=True):
        raise AssertionError
    assert state.secret("key") == b"1"
    state.commit("hall", "far", 1)  # what needs no sync goes on
    state.close()
    with NodeState(state.path) as again:
        again.keep("key", b"3")
        assert again.positions("hall") == {"far": 1}


def test_who_waits_for_a_sync_when_it_is_closed_is_served(state: NodeState, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(Path(state.path), wait=True)
    monkeypatch.setattr(durability, "sync", watched)
    thread = threading.Thread(target=state.keep, args=("key", b"1"))
    thread.start()
    assert watched.began.wait(60)
    closing = threading.Thread(target=state.close)
    closing.start()
    watched.go_on.set()
    thread.join()
    closing.join()
    raw = sqlite3.connect(state.path)
    assert raw.execute("SELECT data FROM secrets").fetchall() == [(b"1",)]
    raw.close()


def test_in_memory_nothing_is_durable_and_nothing_fails() -> None:
    with NodeState(":memory:") as state:
        tables = state.tables(THINGS)
        with tables.transaction(durable=True) as write:
            write(ADD, ("a", b""))
        state.keep("key", b"1")
        assert names(state) == "a" and state.secret("key") == b"1"
