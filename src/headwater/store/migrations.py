"""Tables of a node's state, as the rooms that own them declare them: numbered steps from nothing to what is there now.

    OBJECTS = Tables("objects", (
        ("CREATE TABLE objects (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",),   # version 1
        ("ALTER TABLE objects ADD COLUMN as_of INTEGER NOT NULL DEFAULT 0",),                   # version 2
    ))
    tables = state.tables(OBJECTS)      # makes them, or brings them up to date
    tables.write("INSERT INTO objects VALUES (?, ?, ?)", (name, value, now))

A step is never changed once it has been released: another one is added. It is some statements, one in each text, or a
function that is given one to execute them with, where data has to be moved. All steps that a room lacks are taken in
one transaction: a crash in the middle leaves the file as it was. Table `rooms` of the file says which version each has.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import StoreError

Execute = Callable[..., sqlite3.Cursor]
Step = Sequence[str] | Callable[[Execute], None]
ROOMS = "CREATE TABLE rooms (room TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID"


@dataclass(frozen=True, slots=True)
class Tables:
    """Of one room: step n leads from version n - 1 of them to version n."""

    room: str
    steps: tuple[Step, ...]

    @property
    def version(self) -> int:
        """The number of the newest migration."""
        return len(self.steps)


def bring_up_to_date(execute: Execute, tables: Tables, place: str) -> None:
    """Take the steps that a file lacks, within the transaction that is open; StoreError if it is newer than that."""
    rows = list(execute("SELECT version FROM rooms WHERE room = ?", (tables.room,)))
    version = rows[0][0] if rows else 0
    if not isinstance(version, int) or version < 0:
        raise StoreError(
            f"{place}: expected a version of the tables of {tables.room!r}, found {version!r}; the file is damaged: "
            "put back a copy of it, or name another file"
        )
    if version > tables.version:
        raise StoreError(
            f"{place}: expected tables of {tables.room!r} of version {tables.version} or older, found {version}, which "
            "a newer Headwater has written; use that one, or name another file"
        )
    for number in range(version, tables.version):
        _take(execute, tables.steps[number], f"{place}: step {number + 1} of the tables of {tables.room!r}")
    if version < tables.version:
        execute("INSERT OR REPLACE INTO rooms (room, version) VALUES (?, ?)", (tables.room, tables.version))


def adopt(execute: Execute, tables: Tables, version: int) -> None:
    """Say of tables that were there before rooms had versions which one they have."""
    execute("INSERT INTO rooms (room, version) VALUES (?, ?)", (tables.room, version))


def _take(execute: Execute, step: Step, place: str) -> None:
    try:
        if callable(step):
            step(execute)
        else:
            for statement in step:
                execute(statement)
    except (sqlite3.Error, StoreError) as error:
        raise StoreError(f"{place} cannot be taken, and so nothing was changed: {error}") from error


def check(tables: Any) -> Tables:
    """What a room gives as its tables."""
    if not isinstance(tables, Tables) or not tables.room or not tables.steps:
        raise StoreError(f"state: expected the tables of a room, Tables(room, steps), found {tables!r}")
    return tables


__all__ = ["ROOMS", "Execute", "Step", "Tables", "adopt", "bring_up_to_date", "check"]
