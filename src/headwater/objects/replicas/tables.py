"""The tables of a node's state in which it keeps which replicas there are of its objects, and what those have.

replicas          by number: what each is of, and the type of its objects
replica_holders   which nodes have a replica, and until when that is certain, in microseconds
replica_told      what the holders of a replica were told last of each object, and in which turn
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.store.state import RoomTables

REPLICAS = Tables(
    "replicas",
    (
        (
            "CREATE TABLE replicas (id INTEGER PRIMARY KEY, body BLOB NOT NULL, form BLOB NOT NULL)",
            "CREATE TABLE replica_holders (replica INTEGER NOT NULL, holder TEXT NOT NULL, until INTEGER NOT NULL, "
            "PRIMARY KEY (replica, holder)) WITHOUT ROWID",
            "CREATE TABLE replica_told (replica INTEGER NOT NULL, object TEXT NOT NULL, record BLOB NOT NULL, "
            "at INTEGER NOT NULL, turn INTEGER NOT NULL, still INTEGER NOT NULL, "
            "PRIMARY KEY (replica, object)) WITHOUT ROWID",
        ),
    ),
)
PAGE = 256  # rows that are read at once
LAST = "\U0010ffff"  # behind all that a path may have


def replicas(execute: Execute) -> list[tuple[int, bytes, bytes]]:
    """Number, definition and type of all."""
    return list(execute("SELECT id, body, form FROM replicas"))


def add(execute: Execute, number: int, body: bytes, form: bytes) -> None:
    """A replica, of which nobody was told anything yet."""
    execute("INSERT INTO replicas (id, body, form) VALUES (?, ?, ?)", (number, body, form))


def remove(execute: Execute, number: int) -> None:
    """It is no more, nor is what was told."""
    execute("DELETE FROM replicas WHERE id = ?", (number,))
    execute("DELETE FROM replica_holders WHERE replica = ?", (number,))
    execute("DELETE FROM replica_told WHERE replica = ?", (number,))


def holders(execute: Execute, number: int) -> dict[str, int]:
    """Who has it, and until when."""
    rows = execute("SELECT holder, until FROM replica_holders WHERE replica = ?", (number,))
    return dict(rows)


def hold(execute: Execute, number: int, holder: str, until: int) -> None:
    """A node has it until then."""
    execute(
        "INSERT OR REPLACE INTO replica_holders (replica, holder, until) VALUES (?, ?, ?)",
        (number, holder, until),
    )


def release(execute: Execute, number: int, holder: str) -> None:
    """A node has it no more."""
    execute("DELETE FROM replica_holders WHERE replica = ? AND holder = ?", (number, holder))


Row = tuple[str, bytes, int, int, int]  # an object's path, the record that was told, time, turn, and if it stays so


def told(execute: Execute, number: int) -> list[Row]:
    """Of each object, what was told last."""
    statement = "SELECT object, record, at, turn, still FROM replica_told WHERE replica = ?"
    return list(execute(statement, (number,)))


def tell(execute: Execute, number: int, row: Row) -> None:
    """An object is told as this."""
    execute(
        "INSERT OR REPLACE INTO replica_told (replica, object, record, at, turn, still) VALUES (?, ?, ?, ?, ?, ?)",
        (number, *row),
    )


def untell(execute: Execute, number: int, object: str) -> None:
    """An object is told to be no more."""
    execute("DELETE FROM replica_told WHERE replica = ? AND object = ?", (number, object))


def page(tables: RoomTables, number: int, after: str, most: int) -> list[Row]:
    """What was told, as it is committed, after a path."""
    statement = (
        "SELECT object, record, at, turn, still FROM replica_told "
        "WHERE replica = ? AND object > ? ORDER BY object LIMIT ?"
    )
    return list(tables.read(statement, (number, after, most)))


def is_held(tables: RoomTables, number: int, holder: str) -> bool:
    """Whether a node has it, as it is committed."""
    return bool(tables.read("SELECT 1 FROM replica_holders WHERE replica = ? AND holder = ?", (number, holder)))


def objects_from(execute: Execute, types: Sequence[int], prefix: str, after: str) -> list[str]:
    """Paths of objects of these types that begin so, after one of them, as many as a page has."""
    sign, start = (">", after) if after else (">=", prefix)
    numbers = ", ".join(str(int(each)) for each in types)
    rows = execute(
        f"SELECT name FROM objects WHERE name {sign} ? AND name < ? AND type IN ({numbers}) ORDER BY name LIMIT ?",
        (start, prefix + LAST, PAGE),
    )
    return [name for (name,) in rows]


__all__ = [
    "REPLICAS",
    "Row",
    "add",
    "hold",
    "holders",
    "is_held",
    "objects_from",
    "page",
    "release",
    "remove",
    "replicas",
    "tell",
    "told",
    "untell",
]
