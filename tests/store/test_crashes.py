"""A process ends at each of its steps: what it has said holds, and nothing is there by halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import StoreError
from headwater.store import NodeState, RoomTables, Tables
from tests.effort import EFFORT
from tests.store import crashes
from tests.store.crashes import Life

OBJECTS = Tables(
    "objects",
    (
        ("CREATE TABLE objects (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",),
        ("CREATE TABLE outbox (seq INTEGER PRIMARY KEY, event TEXT NOT NULL)",),
    ),
)
TURNS = 2  # the second is durable
PADDING = "." * 700  # an event fills most of a page


class Refused(Exception):
    pass


def turn(tables: RoomTables, number: int) -> None:
    """Two objects change together, one transaction of it fails alone, and an event is numbered in it."""
    with tables.transaction(durable=number % 2 == 0) as write:
        with write.savepoint():
            write("INSERT OR REPLACE INTO objects VALUES ('a', ?)", (number,))
            try:
                with write.savepoint():
                    write("INSERT OR REPLACE INTO objects VALUES ('b', -1)")
                    write("INSERT INTO outbox (event) VALUES ('never')")
                    raise Refused
            except Refused:
                write("INSERT OR REPLACE INTO objects VALUES ('b', ?)", (10 * number,))
        write("INSERT INTO outbox (event) VALUES (?)", (f"turn {number}{PADDING}",))


def after(turns: int) -> tuple[list[Any], list[Any]]:
    """What must be there."""
    objects = [("a", turns), ("b", 10 * turns)] if turns else []
    return objects, [(number, f"turn {number}{PADDING}") for number in range(1, turns + 1)]


def found(tables: RoomTables) -> tuple[list[Any], list[Any]]:
    with tables.reading() as read:
        return read("SELECT * FROM objects ORDER BY name"), read("SELECT * FROM outbox ORDER BY seq")


class Turns:
    """Beside readers, as objects are."""

    @staticmethod
    def work(path: Path, life: Life) -> None:
        with NodeState(path) as state:
            tables = state.tables(OBJECTS)
            with tables.reading() as read:
                assert read("SELECT * FROM objects") == []
            life.begin()
            for number in range(1, TURNS + 1):
                turn(tables, number)
                life.said(number)

    @staticmethod
    def check(path: Path, said: list[Any]) -> None:
        with NodeState(path) as state:
            tables, done = state.tables(OBJECTS), len(said)
            there = found(tables)
            assert said == list(range(1, done + 1)) and there in (after(done), after(done + 1))
            turn(tables, len(there[1]) + 1)  # and it goes on
            assert found(tables) == after(len(there[1]) + 1)


class Opening:
    """From nothing to a file that is read: made, brought up to date, and opened again beside readers."""

    @staticmethod
    def work(path: Path, life: Life) -> None:
        life.begin()
        with NodeState(path) as state:
            state.keep("identity", b"key")
            life.said("kept")
            tables = state.tables(OBJECTS)
            turn(tables, 1)
            life.said("turn")
            assert found(tables) == after(1)

    @staticmethod
    def check(path: Path, said: list[Any]) -> None:
        with NodeState(path) as state:
            assert state.secret("identity") in ((b"key",) if "kept" in said else (None, b"key"))
            assert found(state.tables(OBJECTS)) in ((after(1),) if "turn" in said else (after(0), after(1)))


class Lies:
    """It says what is not so yet."""

    @staticmethod
    def work(path: Path, life: Life) -> None:
        with NodeState(path) as state:
            tables = state.tables(OBJECTS)
            life.begin()
            life.said(1)
            turn(tables, 1)

    check = Turns.check


@pytest.mark.parametrize(("scenario", "every"), [(Turns, 1), (Opening, 2)])
def test_what_was_said_holds_wherever_the_process_ends(scenario: type, every: int, tmp_path: Path) -> None:
    every = every if EFFORT == 1 else 1
    ended = crashes.everywhere(f"{__name__}:{scenario.__name__}", tmp_path, every=every)
    assert ended.steps > 20 and ended.writes > 15 and not ended.others


def test_who_says_it_too_early_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"ended at step 2, after \[1\] was said"):
        crashes.everywhere(f"{__name__}:Lies", tmp_path)


def test_a_file_that_was_left_is_nobodys(tmp_path: Path) -> None:
    """The lock beside it may be left as well; it means nothing."""
    (tmp_path / "s.lock").write_bytes(b"")
    with NodeState(tmp_path / "s") as state, pytest.raises(StoreError, match="found it in use"):
        NodeState(state.path)
