"""The tables of a node's state in which triggers and all that they remember are kept.

triggers            by the order of installation
trigger_subscribers who asked for a trigger, by a name of theirs
trigger_variables   of a trigger and an object: whether its condition holds, and the value at the last firing
trigger_pasts       which histories are kept, of which object
trigger_values      what they have, in order
trigger_previous    of objects that are inputs: their values before the last change
trigger_deadlines   since when what is waited for has not happened
trigger_types       of channels and objects that triggers are about, which need not be there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.objects.triggers.history import Row
    from headwater.store.migrations import Execute

TRIGGERS = Tables(
    "triggers",
    (
        (
            "CREATE TABLE triggers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
            "fingerprint BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
            "CREATE TABLE trigger_subscribers (trigger INTEGER NOT NULL, who TEXT NOT NULL, "
            "PRIMARY KEY (trigger, who)) WITHOUT ROWID",
            "CREATE TABLE trigger_variables (trigger INTEGER NOT NULL, object TEXT NOT NULL, holds INTEGER NOT NULL, "
            "last BLOB, PRIMARY KEY (trigger, object)) WITHOUT ROWID",
            "CREATE TABLE trigger_pasts (id INTEGER PRIMARY KEY, object TEXT NOT NULL, kind BLOB NOT NULL, "
            "UNIQUE (object, kind))",
            "CREATE TABLE trigger_values (past INTEGER NOT NULL, number INTEGER NOT NULL, time INTEGER NOT NULL, "
            "value BLOB NOT NULL, PRIMARY KEY (past, number)) WITHOUT ROWID",
            "CREATE TABLE trigger_previous (object TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
            "CREATE TABLE trigger_deadlines (object TEXT NOT NULL, what TEXT NOT NULL, since INTEGER NOT NULL, "
            "PRIMARY KEY (object, what)) WITHOUT ROWID",
            "CREATE TABLE trigger_types (name TEXT PRIMARY KEY, form BLOB NOT NULL) WITHOUT ROWID",
        ),
    ),
)


# ── triggers ──


def triggers(execute: Execute) -> list[tuple[int, str, bytes]]:
    """Number, name and definition of all, in the order of installation."""
    return list(execute("SELECT id, name, body FROM triggers ORDER BY id"))


def add(execute: Execute, name: str, fingerprint: bytes, body: bytes) -> int:
    """Its number."""
    statement = "INSERT INTO triggers (name, fingerprint, body) VALUES (?, ?, ?) RETURNING id"
    return int(execute(statement, (name, fingerprint, body)).fetchone()[0])


def change(execute: Execute, number: int, fingerprint: bytes, body: bytes) -> None:
    """Another definition of one that is there."""
    execute("UPDATE triggers SET fingerprint = ?, body = ? WHERE id = ?", (fingerprint, body, number))


def remove(execute: Execute, number: int) -> None:
    """It is no more, nor is what it remembers by itself."""
    execute("DELETE FROM triggers WHERE id = ?", (number,))
    execute("DELETE FROM trigger_subscribers WHERE trigger = ?", (number,))
    execute("DELETE FROM trigger_variables WHERE trigger = ?", (number,))


def subscribers(execute: Execute) -> list[tuple[int, str]]:
    """Who asked for which trigger."""
    return list(execute("SELECT trigger, who FROM trigger_subscribers ORDER BY trigger, who"))


def subscribe(execute: Execute, number: int, who: str) -> None:
    """Someone asks for a trigger."""
    execute("INSERT OR IGNORE INTO trigger_subscribers (trigger, who) VALUES (?, ?)", (number, who))


def unsubscribe(execute: Execute, number: int, who: str) -> None:
    """Someone does not any more."""
    execute("DELETE FROM trigger_subscribers WHERE trigger = ? AND who = ?", (number, who))


# ── what they remember ──


def variables(execute: Execute) -> Iterator[tuple[int, str, int, bytes | None]]:
    """Trigger, object, whether it holds, and the value at the last firing."""
    yield from execute("SELECT trigger, object, holds, last FROM trigger_variables")


def write_variable(execute: Execute, key: tuple[int, str], value: tuple[bool, bytes | None] | None) -> None:
    """What a trigger remembers of an object; None: nothing any more."""
    if value is None:
        execute("DELETE FROM trigger_variables WHERE trigger = ? AND object = ?", key)
    else:
        execute("INSERT OR REPLACE INTO trigger_variables (trigger, object, holds, last) VALUES (?, ?, ?, ?)",
                (*key, int(value[0]), value[1]))  # fmt: skip


def pasts(execute: Execute) -> Iterator[tuple[int, str, bytes]]:
    """Number, object and kind of each history."""
    yield from list(execute("SELECT id, object, kind FROM trigger_pasts"))


def add_past(execute: Execute, object: str, kind: bytes) -> int:
    """Its number."""
    statement = "INSERT INTO trigger_pasts (object, kind) VALUES (?, ?) RETURNING id"
    return int(execute(statement, (object, kind)).fetchone()[0])


def remove_past(execute: Execute, number: int) -> None:
    """A history with all that it has."""
    execute("DELETE FROM trigger_values WHERE past = ?", (number,))
    execute("DELETE FROM trigger_pasts WHERE id = ?", (number,))


def values(execute: Execute, number: int) -> list[tuple[int, int, bytes]]:
    """What a history has, in order."""
    statement = "SELECT number, time, value FROM trigger_values WHERE past = ? ORDER BY number"
    return list(execute(statement, (number,)))


def write_values(execute: Execute, number: int, first: int, rows: Iterable[Row], pack: Any) -> None:
    """A history begins at `first`, and has these besides."""
    execute("DELETE FROM trigger_values WHERE past = ? AND number < ?", (number, first))
    for row in rows:
        execute("INSERT OR REPLACE INTO trigger_values (past, number, time, value) VALUES (?, ?, ?, ?)",
                (number, row.number, row.time, pack(row.value)))  # fmt: skip


def previous(execute: Execute) -> Iterator[tuple[str, bytes]]:
    """Values before the last change, by object."""
    yield from execute("SELECT object, record FROM trigger_previous")


def write_previous(execute: Execute, object: str, record: bytes | None) -> None:
    """The value before the last change; None: none."""
    if record is None:
        execute("DELETE FROM trigger_previous WHERE object = ?", (object,))
    else:
        execute("INSERT OR REPLACE INTO trigger_previous (object, record) VALUES (?, ?)", (object, record))


def deadlines(execute: Execute) -> Iterator[tuple[str, str, int]]:
    """Object, what is waited for, and since when."""
    yield from execute("SELECT object, what, since FROM trigger_deadlines")


def write_deadline(execute: Execute, key: tuple[str, str], since: int | None) -> None:
    """Since when something is waited for; None: it is not."""
    if since is None:
        execute("DELETE FROM trigger_deadlines WHERE object = ? AND what = ?", key)
    else:
        execute("INSERT OR REPLACE INTO trigger_deadlines (object, what, since) VALUES (?, ?, ?)", (*key, since))


def types(execute: Execute) -> list[tuple[str, bytes]]:
    """Channels and objects that triggers are about, and their types."""
    return list(execute("SELECT name, form FROM trigger_types"))


def keep_type(execute: Execute, name: str, form: bytes) -> None:
    """A trigger is about a channel, or an object, of this type."""
    execute("INSERT OR REPLACE INTO trigger_types (name, form) VALUES (?, ?)", (name, form))


def clashing(execute: Execute, name: str, fingerprint: bytes) -> list[int]:
    """Triggers of this name, or that are equal."""
    rows = execute("SELECT id FROM triggers WHERE name = ? OR fingerprint = ?", (name, fingerprint))
    return [number for (number,) in rows]
