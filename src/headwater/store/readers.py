"""Reading the state while it is written: each reader has a connection of its own, which sees the file as it was when it
began (SQLite's write-ahead log), so that nobody waits for anybody."""

from __future__ import annotations

import ctypes
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import StoreError
from headwater.store.transactions import closed

IDLE = 8  # connections that wait for the next reader; each has a cache and two descriptors
BUSY_SECONDS = 10.0  # to wait for a lock of SQLite's: those that a node's own connections take last for moments
CHUNK = 256  # rows that are fetched at a time by who asks for them one by one


class Readers:
    """Read-only connections of one file that is open elsewhere in this process; threads may share them."""

    def __init__(self, uri: str, place: str) -> None:
        self._uri, self._place = uri, place
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._lent: set[sqlite3.Connection] = set()
        self.closed = self.abandoned = False

    def all(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        """The rows that one statement selects."""
        connection = self._borrow()
        try:
            rows = connection.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            self._give_back(connection)
            raise unreadable(self._place, error) from error
        except BaseException:
            self._give_back(connection, sound=False)
            raise
        self._give_back(connection)
        return rows

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The file as it is now, for several statements."""
        connection = self._borrow()
        snapshot, sound = Snapshot(connection, self, self._place), False
        try:
            begin(connection, self._place)
            yield snapshot
            sound = True
        finally:
            sound = snapshot.end() and sound
            self._give_back(connection, sound)

    def close(self) -> None:
        """No more readers. Who still reads is told with its next statement or rows, and lets go of the file."""
        with self._lock:
            self.closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    def leave_to_parent(self) -> None:
        """In a process that was forked: nothing of them may be used, or even closed."""
        self._lock, self.closed, self.abandoned = threading.Lock(), True, True
        for connection in (*self._idle, *self._lent):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._idle, self._lent = [], set()

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            if self.closed:
                raise closed(self._place)
            connection = self._idle.pop() if self._idle else self._connected()
            self._lent.add(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection, sound: bool = True) -> None:
        with self._lock:
            if self.abandoned:
                return
            self._lent.discard(connection)
            if sound and not self.closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connected(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(
                self._uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise unreadable(self._place, error) from error


class Snapshot:
    """The state as it was at one moment: `read(statement, values)` gives the rows, `read.rows(…)` one after the other,
    for many. It does not see what is written meanwhile, and ends with the block that it was given to."""

    __slots__ = ("_connection", "_cursors", "_place", "_readers")

    def __init__(self, connection: sqlite3.Connection, readers: Readers | None, place: str) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._readers, self._place = readers, place
        self._cursors: list[sqlite3.Cursor] = []

    def __call__(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows that a statement selects."""
        try:
            return self._open().execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise unreadable(self._place, error) from error

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> Iterator[Any]:
        """The same, a few at a time: a million of them need no memory. As long as somebody reads, the file grows with
        what is written meanwhile."""
        try:
            cursor = self._open().execute(statement, values)
            self._cursors.append(cursor)
            while True:
                self._open()
                some = cursor.fetchmany(CHUNK)
                if not some:
                    break
                yield from some
            cursor.close()
            self._cursors.remove(cursor)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise unreadable(self._place, error) from error

    def end(self) -> bool:
        """Whether the connection is fit for the next reader."""
        connection, self._connection = self._connection, None
        if connection is None or (self._readers is not None and self._readers.abandoned):
            return False
        try:
            for cursor in self._cursors:  # one that is not at its end would hold on to the snapshot
                cursor.close()
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error:
            return False
        return True

    def _open(self) -> sqlite3.Connection:
        if self._readers is not None and self._readers.closed:
            raise closed(self._place)
        if self._connection is None:
            raise StoreError(f"{self._place}: expected a snapshot within its block, found it ended; take another")
        return self._connection


def begin(connection: sqlite3.Connection, place: str) -> None:
    """A transaction that sees the file as it is now, not only as it is when something is first read."""
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.Error as error:
        raise unreadable(place, error) from error


def unreadable(place: str, error: Exception) -> StoreError:
    """What SQLite says of it, with the place."""
    return StoreError(f"{place}: it cannot be read: {error}")


__all__ = ["BUSY_SECONDS", "Readers", "Snapshot", "begin", "unreadable"]
