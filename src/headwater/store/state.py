"""A node's state in one SQLite file: its secrets, how far each of its durable sinks is with each source, and whatever
tables other rooms keep in it (`tables`; how they change from version to version: `migrations.py`).

A file belongs to one process at a time (`ownership.py`). What was written survives the end of the process at any
point. After a power cut the last moments may be missing, as if they had not happened yet, but for secrets and what was
to be durable (`durability.py`); the file is never left half written.

One connection writes. As long as nobody asks for more it has the file for itself, which is the fastest way; from the
first `reading()` on, or where a room wants it so, there are others beside it that only read (`readers.py`), and nobody
waits for them.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from headwater.errors import StoreError
from headwater.formats import STATE
from headwater.store.durability import Durability
from headwater.store.migrations import ROOMS, Tables, adopt, bring_up_to_date, check
from headwater.store.ownership import FileInUse, Ownership
from headwater.store.readers import BUSY_SECONDS, Readers, Snapshot, begin
from headwater.store.transactions import Transaction, closed, unwritable

VERSION = STATE  # 1 has secrets and positions only; from 2 on each room's tables have versions of their own
APPLICATION = 0x48657764  # says in the file's header whose it is
LAST = 2**63 - 1
MEMORY = ":memory:"

_PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA wal_autocheckpoint = 4000")
_LEAST_LOG = f"PRAGMA journal_size_limit = {1 << 26}"  # bytes to which it shrinks when a long reading has made it grow

SECRETS = Tables("secrets", (("CREATE TABLE secrets (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",),))
POSITIONS = Tables(
    "positions",
    (
        (
            "CREATE TABLE positions (sink TEXT NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL DEFAULT 0, "
            "handed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (sink, source)) WITHOUT ROWID",
        ),
        (
            "CREATE TABLE open_sinks (sink TEXT PRIMARY KEY, life INTEGER NOT NULL) WITHOUT ROWID",
            "INSERT INTO open_sinks SELECT DISTINCT sink, 0 FROM positions",  # how they have ended is not known
            "ALTER TABLE positions ADD COLUMN unsure INTEGER NOT NULL DEFAULT 0",
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
# The same where something is kept of the source: of what was forgotten meanwhile nothing is.
_COMMIT_KNOWN = "UPDATE positions SET seq = ?3 WHERE sink = ?1 AND source = ?2 AND seq < ?3"
_HAND_KNOWN = "UPDATE positions SET handed = ?3 WHERE sink = ?1 AND source = ?2 AND handed < ?3"


class NodeState:
    """Opened by `Node(state=path)`; threads may share it. `":memory:"` keeps nothing when the process ends.

    Positions are the sequence number of the last event of a source that a sink is done with. They never go back.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        found = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(found, str) or not found or "\0" in found:
            raise StoreError(f"state: expected the path of a file, or ':memory:', found {path!r}")
        self.path: str = found
        self._place = f"state {found!r}"
        self._file = None if found == MEMORY else os.path.realpath(found)  # wherever the process may go
        self._lock = threading.Lock()
        self._holder: int | None = None  # the thread that has a transaction
        self._connection: sqlite3.Connection | None = None
        self._readers: Readers | None = None
        self._unwritten: dict[str, dict[str, int]] = {}  # by sink, what was handed over and could not be written
        self._durability = Durability(self._file, self._place)
        self._ownership = self._own()
        try:
            self._connection = self._alone()
        except BaseException:
            self._disown()
            raise
        _OPEN.add(self)

    # ── opening ──

    def _own(self) -> Ownership | None:
        """A file that is there, and is nobody else's."""
        if self._file is None:
            return None
        try:
            # For the owner only: there are keys in it. Who finds it there must not open and close it besides SQLite,
            # since closing it would take away the locks that this process may have on it.
            with suppress(FileExistsError):
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            return Ownership(self._file)
        except FileInUse:
            raise self._in_use() from None
        except OSError as error:
            raise StoreError(
                f"{self._place}: expected a file that can be made there, found: {error.strerror}; "
                "make the folder, or name another"
            ) from error

    def _disown(self) -> None:
        ownership, self._ownership = self._ownership, None
        if ownership is not None:
            ownership.give_up()

    def _alone(self) -> sqlite3.Connection:
        """A connection that has the file for itself. Nobody else may look, so it needs no memory to share with others,
        and no locks: half the time of a small commit. It is refused while any other program has the file open."""
        connection = self._connected(wait=0)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _share(self) -> Readers | None:
        """Let others read beside the connection that writes, from now on; None for what is in memory, which has one."""
        if self._file is None or self._readers is not None:
            return self._readers
        with self._lock:
            if self._readers is None:
                self._running().close()  # nobody can come in between: the file stays this process's own
                self._connection = None
                self._durability.close()
                try:
                    self._connection = self._beside_others()
                except BaseException:
                    self._connection = self._alone()
                    raise
                self._readers = Readers(f"{Path(self._file).as_uri()}?mode=ro", self._place)
            return self._readers

    def _beside_others(self) -> sqlite3.Connection:
        """A connection that writes while others read."""
        connection = self._connected(wait=BUSY_SECONDS)
        try:
            for pragma in (*_PRAGMAS, _LEAST_LOG):
                connection.execute(pragma)
            connection.execute(
                "SELECT 1 FROM rooms"
            ).fetchall()  # from here on it has SQLite's lock: see `ownership.py`
        except sqlite3.Error as error:
            connection.close()
            raise self._unusable(error) from error
        return connection

    def _connected(self, wait: float) -> sqlite3.Connection:
        """To the file that was made or found, and to no other if that is gone."""
        uri = "file::memory:" if self._file is None else f"{Path(self._file).as_uri()}?mode=rw"
        try:
            return sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make an opened file this node's alone, and bring its tables up to date, in one transaction; StoreError if it
        is no state file, is in use, or is of a newer version."""
        execute = connection.execute
        try:
            execute("PRAGMA page_size = 1024")  # small, since one is written with each commit
            execute("PRAGMA locking_mode = EXCLUSIVE")
            for pragma in _PRAGMAS:
                execute(pragma)
            execute("BEGIN EXCLUSIVE")
            [[application]], [[version]] = execute("PRAGMA application_id"), execute("PRAGMA user_version")
            [[tables]] = execute("SELECT count(*) FROM sqlite_master")
            if application != APPLICATION and (application or version or tables):
                raise StoreError(
                    f"{self._place}: expected the state of a node, found another program's SQLite database; "
                    "name another file"
                )
            if version > VERSION:
                raise StoreError(
                    f"{self._place}: expected version {VERSION} or older, found {version}, which a newer "
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
                bring_up_to_date(execute, each, self._place)
            execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._in_use()
        return StoreError(
            f"{self._place}: expected the state of a node, found: {error}; "
            "correct that, or name another file (what a damaged one remembered is lost)"
        )

    def _in_use(self) -> StoreError:
        return StoreError(
            f"{self._place}: expected a file that no other node has open, found it in use; "
            "close that node, or name another file for this one"
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
        with self.transaction(durable=True) as write:
            write("INSERT OR REPLACE INTO secrets (name, data) VALUES (?, ?)", (name, bytes(data)))

    # ── positions ──

    def positions(self, sink: str) -> dict[str, int]:
        """By source key, the last event that the sink is done with; 0 where it is only known that it has begun."""
        statement = "SELECT source, seq FROM positions WHERE sink = ? AND (seq > 0 OR handed = 0)"
        return dict(self._all(statement, (sink,)))

    def handed(self, sink: str) -> dict[str, int]:
        """By source key, up to where events are known to have been handed to the sink: it may have seen them."""
        found, unwritten = self._all("SELECT source, handed FROM positions WHERE sink = ?", (sink,)), self._unwritten
        known = ((source, max(seq, unwritten.get(sink, {}).get(source, 0))) for source, seq in found)
        return {source: seq for source, seq in known if seq}

    def unsure(self, sink: str) -> set[str]:
        """Sources of which the first event after those may have been handed to it as well, by a process that was
        killed."""
        return {source for (source,) in self._all("SELECT source FROM positions WHERE sink = ? AND unsure", (sink,))}

    def sinks(self) -> list[str]:
        """The names of all sinks that have positions."""
        return [sink for (sink,) in self._all("SELECT DISTINCT sink FROM positions ORDER BY sink")]

    def commit(self, sink: str, source: str, seq: int) -> None:
        """The sink is done with all events of the source up to this one."""
        self._must_be("a sequence number", seq, isinstance(seq, int) and 0 <= seq <= LAST)
        with self._lock:
            self._run(_COMMIT, (sink, source, seq))

    def commit_all(self, sink: str, positions: Mapping[str, int], *, known: bool = False) -> None:
        """The same for several sources, all or none. `known`: of those only of which something is kept."""
        self._write_all(_COMMIT_KNOWN if known else _COMMIT, sink, positions)

    def hand_all(self, sink: str, positions: Mapping[str, int], *, known: bool = False) -> None:
        """All events of these sources up to these ones are handed to the sink, or have been."""
        self._write_all(_HAND_KNOWN if known else _HAND, sink, positions)

    def remember_handed(self, sink: str, positions: Mapping[str, int]) -> None:
        """The same where it cannot be written: it is known as long as this process lasts."""
        unwritten = self._unwritten.setdefault(sink, {})
        unwritten.update({source: max(seq, unwritten.get(source, 0)) for source, seq in positions.items()})

    def open_sink(self, sink: str, life: int, *, over: bool = False) -> None:
        """Events are handed to the sink from now on, in a life of this number; `over`: in one that had ended, and
        another may have begun since."""
        how = "IGNORE" if over else "REPLACE"
        with self._lock:
            self._run(f"INSERT OR {how} INTO open_sinks (sink, life) VALUES (?, ?)", (sink, life))

    def close_sink(self, sink: str, life: int, unsure: Collection[str] | None = None) -> None:
        """That life has ended, and all that it has handed over is written; another may have begun meanwhile. `unsure`:
        the sources of which it has handed over nothing that an earlier one may not have; None: that has not changed."""
        with self.transaction() as write:
            if unsure is not None:
                write("UPDATE positions SET unsure = 0 WHERE sink = ? AND unsure", (sink,))
                for source in unsure:
                    write("UPDATE positions SET unsure = 1 WHERE sink = ? AND source = ?", (sink, source))
            write("DELETE FROM open_sinks WHERE sink = ? AND life = ?", (sink, life))

    def is_open(self, sink: str) -> bool:
        """Whether events are handed to the sink by now, or were by a process that was killed."""
        return bool(self._all("SELECT 1 FROM open_sinks WHERE sink = ?", (sink,)))

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
                self._run("DELETE FROM open_sinks WHERE sink = ?", (sink,))
            else:
                self._run("DELETE FROM positions WHERE sink = ? AND source = ?", (sink, source))

    # ── tables of other rooms ──

    def tables(self, tables: Tables, *, readers: bool = False) -> RoomTables:
        """The tables of a room: made, or brought up to date, all or nothing. StoreError if the file's are newer. With
        `readers` nothing that is only read waits for a transaction, from now on."""
        check(tables)
        with self.transaction() as execute:
            bring_up_to_date(execute, tables, self._place)
        if readers:
            self._share()
        return RoomTables(self)

    # ── several statements ──

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Transaction]:
        """Statements that are done together, or not at all; nothing else is written meanwhile. Give each to what this
        gives; no other method may be used within it. `durable`: it survives a power cut, too, once the block has ended;
        readers may see it a moment earlier."""
        self._must_not_be_in_a_transaction()
        if durable:
            self._durability.must_be_possible()
        with self._lock:
            transaction = Transaction(self, self._place)
            try:
                self._begin()
                yield transaction
                transaction.commit()
            except BaseException:
                transaction.undo()
                raise
            finally:
                self._holder = None
            commit = self._durability.written() if durable else 0
        if durable:
            self._durability.reach(commit)

    def _begin(self) -> None:
        """A transaction of this thread, under the lock. One whose end a signal has interrupted is undone first."""
        if self._running().in_transaction:
            self._run("ROLLBACK")
        self._run("BEGIN IMMEDIATE")
        self._holder = threading.get_ident()

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """The state as it is now, for several statements that only read, while others write: `with state.reading() as
        read: read(statement, values)`. What is in memory is copied for it."""
        self._must_not_be_in_a_transaction()
        readers = self._share()
        if readers is not None:
            with readers.snapshot() as snapshot:
                yield snapshot
            return
        copy = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        try:
            with self._lock:
                self._running().backup(copy)
            copy.execute("PRAGMA query_only = ON")
            begin(copy, self._place)
            yield Snapshot(copy, None, self._place)
        finally:
            copy.close()

    # ── the end ──

    def close(self) -> None:
        """Let go of the file; closing it again does nothing."""
        _OPEN.discard(self)
        with self._lock:
            if self._readers is not None:
                self._readers.close()  # before the one that writes, which then tidies up
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            self._durability.close()
            self._disown()

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
            raise closed(self._place)
        try:
            return connection.execute(statement, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise unwritable(self._place, error) from error

    def _running(self) -> sqlite3.Connection:
        if self._connection is None:
            raise closed(self._place)
        return self._connection

    def _all(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        self._must_not_be_in_a_transaction()
        if self._readers is not None:
            return self._readers.all(statement, values)
        with self._lock:
            return self._run(statement, values).fetchall()

    def _must_not_be_in_a_transaction(self) -> None:
        """It would wait for itself, or not see what was just written."""
        if self._holder == threading.get_ident():
            raise StoreError(
                f"{self._place}: expected this after the transaction of the same thread, found it within; "
                "read and write with what the transaction has given"
            )

    def _must_be(self, expected: str, value: object, right: bool) -> None:
        if not right:
            raise StoreError(f"{self._place}: expected {expected}, found {value!r}")


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

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[Transaction]:
        """Several statements together: `with tables.transaction() as write: ...`; see `NodeState.transaction`."""
        return self._state.transaction(durable=durable)

    def reading(self) -> AbstractContextManager[Snapshot]:
        """Several statements that see the same, while others write; see `NodeState.reading`."""
        return self._state.reading()


# ── processes that are made by fork ──

_OPEN: WeakSet[NodeState] = WeakSet()


def _in_child() -> None:
    """The file is the parent's. The child must not even close it: that would tidy up under the parent's hands."""
    for state in list(_OPEN):
        connection, state._connection, state._lock = state._connection, None, threading.Lock()
        if connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        if state._readers is not None:
            state._readers.leave_to_parent()
        if state._ownership is not None:
            state._ownership.leave_to_parent()
        state._ownership = None
        state._durability.leave_to_parent()
    _OPEN.clear()


os.register_at_fork(after_in_child=_in_child)
