"""The tables of a node's state in which safe zones are kept, on both sides.

zone_watches  by home and key: what this node measures for triggers of other nodes, and where it stands
zone_last     the last stamp of a watch that has ended: those that follow begin after it
zone_homes    by trigger: what of a trigger over several nodes survives at its home
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.store.migrations import Execute

ZONES = Tables(
    "zones",
    (
        (
            "CREATE TABLE zone_watches (home TEXT NOT NULL, key BLOB NOT NULL, form BLOB NOT NULL, "
            "state BLOB NOT NULL, PRIMARY KEY (home, key)) WITHOUT ROWID",
            "CREATE TABLE zone_last (id INTEGER PRIMARY KEY CHECK (id = 1), stamp INTEGER NOT NULL)",
            "CREATE TABLE zone_homes (trigger INTEGER PRIMARY KEY, fingerprint BLOB NOT NULL, state BLOB NOT NULL)",
        ),
    ),
)


def watches(execute: Execute) -> list[tuple[str, bytes, bytes, bytes]]:
    """Home, key, form and state of each."""
    return list(execute("SELECT home, key, form, state FROM zone_watches"))


def add_watch(execute: Execute, home: str, key: bytes, form: bytes, state: bytes) -> None:
    """One more."""
    execute(
        "INSERT OR REPLACE INTO zone_watches (home, key, form, state) VALUES (?, ?, ?, ?)", (home, key, form, state)
    )


def keep_watch(execute: Execute, home: str, key: bytes, state: bytes) -> None:
    """Where it stands."""
    execute("UPDATE zone_watches SET state = ? WHERE home = ? AND key = ?", (state, home, key))


def end_watch(execute: Execute, home: str, key: bytes, stamp: int) -> None:
    """It is no more; no other begins before its last stamp."""
    execute("DELETE FROM zone_watches WHERE home = ? AND key = ?", (home, key))
    execute(
        "INSERT INTO zone_last (id, stamp) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET stamp = MAX(stamp, ?)",
        (stamp, stamp),
    )


def last_stamp(execute: Execute) -> int:
    """Of the watches that have ended."""
    found = execute("SELECT stamp FROM zone_last").fetchone()
    return 0 if found is None else int(found[0])


def homes(execute: Execute) -> list[tuple[int, bytes, bytes]]:
    """Trigger, its fingerprint and state, of each."""
    return list(execute("SELECT trigger, fingerprint, state FROM zone_homes"))


def keep_home(execute: Execute, trigger: int, fingerprint: bytes, state: bytes) -> None:
    """What survives of it."""
    execute(
        "INSERT OR REPLACE INTO zone_homes (trigger, fingerprint, state) VALUES (?, ?, ?)",
        (trigger, fingerprint, state),
    )


def end_home(execute: Execute, trigger: int) -> None:
    """It is no more."""
    execute("DELETE FROM zone_homes WHERE trigger = ?", (trigger,))
