"""A node's state in one SQLite file: its secrets, how far each of its durable sinks is with each source, and whatever
tables other rooms keep in it (`tables`; how they change from version to version: `migrations.py`).

A file belongs to one process at a time: the operating system takes the lock away with the process, however that ends.
What was written survives the end of the process at any point. After a power cut the last moments may be missing, as if
they had not happened yet (secrets are on the disk when `keep` returns); the file is never left half written.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from weakref import WeakSet

from headwater.errors import StoreError
from headwater.formats import STATE
from headwater.store.migrations import ROOMS, Execute, Tables, adopt, bring_up_to_date, check

VERSION = STATE  # 1 has secrets and positions only; from 2 on each room's tables have versions of their own
APPLICATION = 0x48657764  # says in the file's header whose it is
LAST = 2**63 - 1

SECRETS = Tables("secrets", (("CREATE TABLE secrets (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",),))
POSITIONS = Tables(
    "positions",
    (
        (
            "CREATE TABLE positions (sink TEXT NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, "
            "handed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (sink, source)) WITHOUT ROWID",
        ),
    ),
)
_COMMIT = (
    "INSERT INTO positions (sink, source, seq) VALUES (?, ?, ?) "
    "ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq"
)
_HAND = (
    "INSERT INTO positions (sink, source, handed) VALUES (?, ?, ?) "
    "ON CONFLICT DO UPDATE SET handed = excluded.handed WHERE excluded.handed > handed"
)


class NodeState:
    """Opened by `Node(state=path)`; threads may share it. `":memory:"` keeps nothing when the process ends.

    Positions are the sequence number of the last event of a source that a sink is done with. They never go back.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        found = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(found, str) or not found or "\0" in found:
            raise StoreError(f"state: expected the path of a file, or ':memory:', found {path!r}")
        self.path: str = found
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        connection = self._open()
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        _OPEN.add(self)

    # ── opening ──

    def _open(self) -> sqlite3.Connection:
        if self.path != ":memory:":
            # For the owner only: there are keys in it. Who finds it there must not open and close it besides SQLite,
            # since closing it would take away the locks that this process may have on it.
            with suppress(FileExistsError):
                try:
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                except FileExistsError:
                    raise
                except OSError as error:
                    raise StoreError(
                        f"state {self.path!r}: expected a file that can be made there, found: {error.strerror}; "
                        "make the folder, or name another"
                    ) from error
        try:
            return sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make an opened file this node's alone, and bring its tables up to date, in one transaction; StoreError if it
        is no state file, is in use, or is of a newer version."""
        execute = connection.execute
        try:
            # Small pages, since one is written with each commit; no shared memory, since nobody else may look.
            execute("PRAGMA page_size = 1024")
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA journal_mode = WAL")
            execute("PRAGMA synchronous = NORMAL")
            execute("PRAGMA wal_autocheckpoint = 4000")
            execute("BEGIN EXCLUSIVE")
            [[application]], [[version]] = execute("PRAGMA application_id"), execute("PRAGMA user_version")
            [[tables]] = execute("SELECT count(*) FROM sqlite_master")
            if application != APPLICATION and (application or version or tables):
                raise StoreError(
                    f"state {self.path!r}: expected the state of a node, found another program's SQLite database; "
                    "name another file"
                )
            if version > VERSION:
                raise StoreError(
                    f"state {self.path!r}: expected version {VERSION} or older, found {version}, which a newer "
                    "Headwater has written; use that one, or name another file"
                )
            if version < VERSION:
                execute(ROOMS)
                if version == 1:
                    for each in (SECRETS, POSITIONS):
                        adopt(execute, each, 1)
                execute(f"PRAGMA application_id = {APPLICATION}")
                execute(f"PRAGMA user_version = {VERSION}")
            for each in (SECRETS, POSITIONS):
                bring_up_to_date(execute, each, f"state {self.path!r}")
            execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(
                f"state {self.path!r}: expected a file that no other node has open, found it in use; "
                "close that node, or name another file for this one"
            )
        return StoreError(
            f"state {self.path!r}: expected the state of a node, found: {error}; "
            "correct that, or name another file (what a damaged one remembered is lost)"
        )

    # ── secrets ──

    def secret(self, name: str) -> bytes | None:
        """What was kept under this name."""
        rows = self._all("SELECT data FROM secrets WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def keep(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """Keep something under a name, instead of what was there."""
        self._must_be("a secret", data, isinstance(data, (bytes, bytearray, memoryview)))
        self._must_be("a name", name, isinstance(name, str))
        with self._lock:
            self._run("PRAGMA synchronous = FULL")
            try:
                self._run("INSERT OR REPLACE INTO secrets (name, data) VALUES (?, ?)", (name, bytes(data)))
            finally:
                self._run("PRAGMA synchronous = NORMAL")

    # ── positions ──

    def positions(self, sink: str) -> dict[str, int]:
        """By source key, the last event that the sink is done with."""
        return dict(self._all("SELECT source, seq FROM positions WHERE sink = ? AND seq > 0", (sink,)))

    def handed(self, sink: str) -> dict[str, int]:
        """By source key, up to where events are known to have been handed to the sink: it may have seen them."""
        return dict(self._all("SELECT source, handed FROM positions WHERE sink = ? AND handed > 0", (sink,)))

    def sinks(self) -> list[str]:
        """The names of all sinks that have positions."""
        return [sink for (sink,) in self._all("SELECT DISTINCT sink FROM positions ORDER BY sink")]

    def commit(self, sink: str, source: str, seq: int) -> None:
        """The sink is done with all events of the source up to this one."""
        self._must_be("a sequence number", seq, isinstance(seq, int) and 0 <= seq <= LAST)
        with self._lock:
            self._run(_COMMIT, (sink, source, seq))

    def commit_all(self, sink: str, positions: Mapping[str, int]) -> None:
        """The same for several sources, all or none."""
        self._write_all(_COMMIT, sink, positions)

    def hand_all(self, sink: str, positions: Mapping[str, int]) -> None:
        """All events of these sources up to these ones are handed to the sink, or have been."""
        self._write_all(_HAND, sink, positions)

    def _write_all(self, statement: str, sink: str, positions: Mapping[str, int]) -> None:
        for seq in positions.values():
            self._must_be("a sequence number", seq, isinstance(seq, int) and 0 <= seq <= LAST)
        with self._lock:
            if len(positions) > 1:
                self._run("BEGIN")
            try:
                for source, seq in positions.items():
                    self._run(statement, (sink, source, seq))
                if len(positions) > 1:
                    self._run("COMMIT")
            except BaseException:
                if self._connection is not None and self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def forget(self, sink: str, source: str | None = None) -> None:
        """Forget how far a sink is, with all sources or with one."""
        with self._lock:
            if source is None:
                self._run("DELETE FROM positions WHERE sink = ?", (sink,))
            else:
                self._run("DELETE FROM positions WHERE sink = ? AND source = ?", (sink, source))

    # ── tables of other rooms ──

    def tables(self, tables: Tables) -> RoomTables:
        """The tables of a room: made, or brought up to date, all or nothing. StoreError if the file's are newer."""
        check(tables)
        with self.transaction() as execute:
            bring_up_to_date(execute, tables, f"state {self.path!r}")
        return RoomTables(self)

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Statements that are done together, or not at all; nothing else is written meanwhile. Give each to what this
        gives; no other method may be used within it."""
        with self._lock:
            self._run("BEGIN IMMEDIATE")
            try:
                yield self._run
                self._run("COMMIT")
            except BaseException:
                if self._connection is not None and self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    # ── the end ──

    def close(self) -> None:
        """Let go of the file; closing it again does nothing."""
        _OPEN.discard(self)
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._connection is None

    def __enter__(self) -> NodeState:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}NodeState {self.path!r}>"

    # ── statements ──

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Under the lock."""
        connection = self._connection
        if connection is None:
            raise StoreError(f"state {self.path!r}: expected it open, found it closed; open it again")
        try:
            return connection.execute(statement, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise StoreError(
                f"state {self.path!r}: it cannot be read or written: {error}; nothing was changed"
            ) from error

    def _all(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._lock:
            return self._run(statement, values).fetchall()

    def _must_be(self, expected: str, value: object, right: bool) -> None:
        if not right:
            raise StoreError(f"state {self.path!r}: expected {expected}, found {value!r}")


class RoomTables:
    """What a room reads and writes in the state; threads may share it."""

    __slots__ = ("_state",)

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows that a statement selects."""
        return self._state._all(statement, values)

    def write(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """One statement, by itself."""
        with self._state._lock:
            self._state._run(statement, values)

    def transaction(self) -> AbstractContextManager[Execute]:
        """Several statements together: `with tables.transaction() as execute: ...`."""
        return self._state.transaction()


# ── processes that are made by fork ──

_OPEN: WeakSet[NodeState] = WeakSet()


def _in_child() -> None:
    """The file is the parent's. The child must not even close it: that would tidy up under the parent's hands."""
    for state in list(_OPEN):
        connection, state._connection, state._lock = state._connection, None, threading.Lock()
        if connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _OPEN.clear()


os.register_at_fork(after_in_child=_in_child)
