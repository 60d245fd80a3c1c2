"""The tables of a node's state that objects, the queue and the outbox are kept in. Nothing else here knows SQL.

object_types     by name, as serial forms
objects          by their path at the node
queued           transactions that were accepted, and not run yet, in the order of arrival
outcomes         of transactions with a ticket, for a while
                 (both with the other node that has sent them, nothing for the owner's own)
leaving_channels on which something leaves, and up to where that was sent
leaving          what leaves after the commit, by channel and number, until it was sent
turn_numbers     up to where numbers of turns may be in use
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.store import Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.store.migrations import Execute
    from headwater.store.state import RoomTables

OBJECTS = Tables(
    "objects",
    (
        (
            "CREATE TABLE object_types (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, form BLOB NOT NULL)",
            "CREATE TABLE objects (name TEXT PRIMARY KEY, type INTEGER NOT NULL, value BLOB NOT NULL, "
            "turn INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
            "CREATE TABLE queued (id INTEGER PRIMARY KEY, ticket BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
            "CREATE TABLE outcomes (id INTEGER PRIMARY KEY, ticket BLOB NOT NULL UNIQUE, until INTEGER NOT NULL, "
            "body BLOB NOT NULL)",
            "CREATE TABLE leaving_channels (id INTEGER PRIMARY KEY, channel TEXT NOT NULL UNIQUE, form BLOB NOT NULL, "
            "sent INTEGER NOT NULL)",
            "CREATE TABLE leaving (channel INTEGER NOT NULL, seq INTEGER NOT NULL, record BLOB NOT NULL, "
            "PRIMARY KEY (channel, seq)) WITHOUT ROWID",
            "CREATE TABLE object_methods (type TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (type, name)) "
            "WITHOUT ROWID",
            "CREATE TABLE turn_numbers (one INTEGER PRIMARY KEY CHECK (one = 1), reserved INTEGER NOT NULL)",
        ),
        (
            "ALTER TABLE queued ADD COLUMN caller TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE outcomes ADD COLUMN caller TEXT NOT NULL DEFAULT ''",
            "CREATE INDEX outcomes_of ON outcomes (caller, id) WHERE caller != ''",
        ),
    ),
)
TURNS_RESERVED = 4096  # numbers of turns that are reserved at once, so that few writes are about them
PAGE = 256  # rows that are read at once

# ── objects ──


def value_of(execute: Execute, object: str) -> tuple[int, bytes] | None:
    """The type and record of an object."""
    row: tuple[int, bytes] | None = execute("SELECT type, value FROM objects WHERE name = ?", (object,)).fetchone()
    return row


def create(execute: Execute, object: str, type: int, value: bytes, turn: int, at: int) -> None:
    """One that is not there."""
    execute("INSERT INTO objects (name, type, value, turn, at) VALUES (?, ?, ?, ?, ?)", (object, type, value, turn, at))


def update(execute: Execute, object: str, value: bytes, turn: int, at: int) -> None:
    """One that is there."""
    execute("UPDATE objects SET value = ?, turn = ?, at = ? WHERE name = ?", (value, turn, at, object))


def destroy(execute: Execute, object: str) -> None:
    """One that is there."""
    execute("DELETE FROM objects WHERE name = ?", (object,))


Row = tuple[str, int, bytes, int, int]  # an object's path, type, record, turn and time


def row_of(tables: RoomTables, object: str) -> Row | None:
    """An object as it is committed."""
    rows = tables.read("SELECT name, type, value, turn, at FROM objects WHERE name = ?", (object,))
    return rows[0] if rows else None


def rows_from(tables: RoomTables, prefix: str, after: str = "") -> Iterator[Row]:
    """Objects whose paths begin so, by name, page by page: what is changed meanwhile is seen, or not. Those up to a
    path that was seen before are left out."""
    sign, after = (">", after) if after >= prefix and after else (">=", prefix)
    statement = f"SELECT name, type, value, turn, at FROM objects WHERE name {sign} ? ORDER BY name LIMIT ?"
    while rows := tables.read(statement, (after, PAGE)):
        for row in rows:
            if not row[0].startswith(prefix):
                return
            yield row
        statement = "SELECT name, type, value, turn, at FROM objects WHERE name > ? ORDER BY name LIMIT ?"
        after = rows[-1][0]


def count(tables: RoomTables) -> int:
    """How many objects there are."""
    [[found]] = tables.read("SELECT count(*) FROM objects")
    return int(found)


# ── their types ──


def types_of(execute: Execute) -> list[tuple[int, str, bytes]]:
    """All of them."""
    return list(execute("SELECT id, name, form FROM object_types ORDER BY id"))


def add_type(execute: Execute, name: str, form: bytes) -> int:
    """Its number."""
    return int(execute("INSERT INTO object_types (name, form) VALUES (?, ?) RETURNING id", (name, form)).fetchone()[0])


def methods_of(execute: Execute) -> list[tuple[str, str]]:
    """Type and name of all methods that were registered."""
    return list(execute("SELECT type, name FROM object_methods"))


def add_method(execute: Execute, type: str, name: str) -> None:
    """A method is registered from now on."""
    execute("INSERT OR IGNORE INTO object_methods (type, name) VALUES (?, ?)", (type, name))


# ── the queue ──


def queue_last(execute: Execute, ticket: bytes, body: bytes, caller: str = "") -> int:
    """Accept one behind all others, unless that ticket is there: its number, or 0."""
    statement = "INSERT OR IGNORE INTO queued (ticket, body, caller) VALUES (?, ?, ?) RETURNING id"
    row = execute(statement, (ticket, body, caller)).fetchone()
    return row[0] if row else 0


def queued_of(execute: Execute) -> list[tuple[str, int, int]]:
    """Of each other node: how many are queued, and how many bytes."""
    statement = "SELECT caller, count(*), sum(length(body)) FROM queued WHERE caller != '' GROUP BY caller"
    return list(execute(statement))


def dequeue(execute: Execute, number: int) -> None:
    """It has run."""
    execute("DELETE FROM queued WHERE id = ?", (number,))


def is_queued(tables: RoomTables, ticket: bytes) -> bool:
    """Whether a transaction with this ticket is in the queue."""
    return bool(tables.read("SELECT 1 FROM queued WHERE ticket = ?", (ticket,)))


def queued_body(execute: Execute, number: int, ticket: bytes) -> bytes | None:
    """The transaction with this number and ticket; None if it is not there any more."""
    row = execute("SELECT body FROM queued WHERE id = ? AND ticket = ?", (number, ticket)).fetchone()
    return row[0] if row else None


def queued_after(execute: Execute, number: int, upto: int) -> list[tuple[int, bytes, bytes]]:
    """The next ones, as many as a page has."""
    return list(
        execute(
            "SELECT id, ticket, body FROM queued WHERE id > ? AND id <= ? ORDER BY id LIMIT ?", (number, upto, PAGE)
        )
    )


def last_queued(execute: Execute) -> int:
    """The number of the last one."""
    return int(execute("SELECT max(id) FROM queued").fetchone()[0] or 0)


def outcome_of(execute: Execute, ticket: bytes) -> bytes | None:
    """Of a transaction that has run."""
    row = execute("SELECT body FROM outcomes WHERE ticket = ?", (ticket,)).fetchone()
    return row[0] if row else None


def kept_outcome(tables: RoomTables, ticket: bytes) -> bytes | None:
    """The same, for who only reads."""
    rows = tables.read("SELECT body FROM outcomes WHERE ticket = ?", (ticket,))
    return rows[0][0] if rows else None


def keep_outcome(execute: Execute, ticket: bytes, until: int, body: bytes, caller: str = "") -> None:
    """Until so many seconds since 1970."""
    statement = "INSERT INTO outcomes (ticket, until, body, caller) VALUES (?, ?, ?, ?)"
    execute(statement, (ticket, until, body, caller))


def outcomes_of(execute: Execute, caller: str) -> tuple[int, int]:
    """How many are kept of another node, and how many bytes."""
    statement = "SELECT count(*), coalesce(sum(length(body)), 0) FROM outcomes WHERE caller = ? AND caller != ''"
    count, size = execute(statement, (caller,)).fetchone()
    return count, size


def trim_outcomes(execute: Execute, caller: str, most: int, size: int) -> None:
    """Keep the youngest of another node, so many and so many bytes at most."""
    statement = "SELECT id, length(body) FROM outcomes WHERE caller = ? AND caller != '' ORDER BY id DESC"
    for at, (number, length) in enumerate(execute(statement, (caller,))):
        size -= length
        if at >= most or size < 0:
            execute("DELETE FROM outcomes WHERE caller = ? AND caller != '' AND id <= ?", (caller, number))
            return


def forget_outcomes(execute: Execute, now: int, most: int) -> None:
    """Up to so many that were kept long enough: the oldest come first. It is looked no further where a page has none;
    some that are younger may be among the older, since clocks are set back."""
    last = younger = 0
    for number, until in execute("SELECT id, until FROM outcomes ORDER BY id LIMIT ?", (most,)):
        last, younger = (number, 0) if until <= now else (last, younger + 1)
        if younger == PAGE:
            break
    if last:
        execute("DELETE FROM outcomes WHERE id <= ? AND until <= ?", (last, now))


# ── what leaves ──


def channels_of(execute: Execute) -> list[tuple[int, str, bytes, int, int]]:
    """Number, name and type of each channel, up to where it was sent, and the last number given."""
    return list(
        execute(
            "SELECT id, channel, form, sent, max(sent, coalesce((SELECT max(seq) FROM leaving "
            "WHERE leaving.channel = leaving_channels.id), 0)) FROM leaving_channels ORDER BY id"
        )
    )


def add_channel(execute: Execute, channel: str, form: bytes) -> int:
    """Its number."""
    statement = "INSERT INTO leaving_channels (channel, form, sent) VALUES (?, ?, 0) RETURNING id"
    return int(execute(statement, (channel, form)).fetchone()[0])


def replace_channel(execute: Execute, number: int, form: bytes) -> None:
    """Another type of a channel: what leaves from now on is of that."""
    execute("UPDATE leaving_channels SET form = ? WHERE id = ?", (form, number))


def leave(execute: Execute, channel: int, seq: int, record: bytes) -> None:
    """Something that leaves after the commit."""
    execute("INSERT INTO leaving (channel, seq, record) VALUES (?, ?, ?)", (channel, seq, record))


def leaving_after(tables: RoomTables, channel: int, seq: int) -> list[tuple[int, bytes]]:
    """The next that leaves there, as much as a page has."""
    statement = "SELECT seq, record FROM leaving WHERE channel = ? AND seq > ? ORDER BY seq LIMIT ?"
    return list(tables.read(statement, (channel, seq, PAGE)))


def all_leaving(execute: Execute, channel: int, seq: int) -> list[tuple[int, bytes]]:
    """All that leaves there after a number."""
    statement = "SELECT seq, record FROM leaving WHERE channel = ? AND seq > ? ORDER BY seq"
    return list(execute(statement, (channel, seq)))


def replace_leaving(execute: Execute, channel: int, seq: int, record: bytes | None) -> None:
    """Another record under its number; None: nothing leaves under it."""
    if record is None:
        execute("DELETE FROM leaving WHERE channel = ? AND seq = ?", (channel, seq))
    else:
        execute("UPDATE leaving SET record = ? WHERE channel = ? AND seq = ?", (record, channel, seq))


def sent(execute: Execute, channel: int, seq: int) -> None:
    """Everything up to this number was sent, and need not be kept."""
    execute("UPDATE leaving_channels SET sent = ? WHERE id = ?", (seq, channel))
    execute("DELETE FROM leaving WHERE channel = ? AND seq <= ?", (channel, seq))


# ── turns ──


def reserve_turns(execute: Execute) -> tuple[int, int]:
    """Numbers of turns that nobody has had: the first, and the last."""
    row = execute("SELECT reserved FROM turn_numbers").fetchone()
    first = (row[0] if row else 0) + 1
    last = first + TURNS_RESERVED - 1
    execute("INSERT OR REPLACE INTO turn_numbers (one, reserved) VALUES (1, ?)", (last,))
    return first, last
