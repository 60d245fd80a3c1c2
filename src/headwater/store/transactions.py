"""What is written together, or not at all; and parts of it that may fail alone.

    with state.transaction(durable=True) as write:
        write("UPDATE objects SET value = ? WHERE name = ?", (value, name))
        try:
            with write.savepoint():
                write("INSERT INTO outbox VALUES (?, ?)", (seq, event))
                ...
        except Refused:
            ...  # what was written in the savepoint is undone, and nothing else

Where the disk is full or fails, SQLite may have to undo the whole transaction at once. Whoever holds on to it then
hears of it from every statement that follows, and from the end of the block: nothing is left half done.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Protocol

from headwater.errors import StoreError

ENDED = "it has ended"


class Writer(Protocol):
    """Whoever has the connection that writes, and keeps it to one thread meanwhile."""

    @property
    def _connection(self) -> sqlite3.Connection | None: ...


class Transaction:
    """Call it with each statement, in the thread that it was given to, until the end of its block."""

    __slots__ = ("_over", "_place", "_writer")

    def __init__(self, writer: Writer, place: str) -> None:
        self._writer, self._place = writer, place
        self._over: str | None = None  # why nothing can be written with it any more

    def __call__(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run a statement; if it alone fails, the others hold."""
        connection = self._writer._connection  # none in a process that was forked meanwhile
        if connection is None:
            raise closed(self._place)
        if self._over is not None:
            raise StoreError(f"{self._place}: expected a transaction that is open, found that {self._over}")
        try:
            return connection.execute(statement, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            if not connection.in_transaction:
                self._over = f"all of it was undone: {error}"
            raise unwritable(self._place, error) from error

    def savepoint(self) -> Savepoint:
        """A block that is undone if it raises, and nothing else with it. They may be nested."""
        return Savepoint(self)

    def commit(self) -> None:
        """At the end of the block."""
        self("COMMIT")
        self._over = ENDED

    def undo(self) -> None:
        """All of it, if that has not been done yet. A signal may have come when it was committed: then it stays so."""
        connection = self._writer._connection
        if connection is not None and connection.in_transaction:
            self._over = None
            self("ROLLBACK")
            self._over = "it has ended: it was undone"
        self._over = self._over or ENDED

    @property
    def committed(self) -> bool:
        """Whether it has come to its end, for who was interrupted by a signal."""
        return self._over is ENDED

    def _undo_to_savepoint(self) -> None:
        if self._over is not None:
            return  # there is nothing left of it
        try:
            self("ROLLBACK TO part")
            self("RELEASE part")
        except StoreError as error:  # it cannot be undone alone: then everything is
            self.undo()
            self._over = f"all of it was undone: {error}"
            raise


class Savepoint:
    """Part of a transaction, as `with` takes it. Of several with one name SQLite means the innermost."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        self._transaction("SAVEPOINT part")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._transaction("RELEASE part")
        else:
            self._transaction._undo_to_savepoint()


def unwritable(place: str, error: Exception) -> StoreError:
    """What SQLite says of a statement, which has changed nothing."""
    return StoreError(f"{place}: it cannot be read or written: {error}; nothing was changed")


def closed(place: str) -> StoreError:
    """What is not open any more can be neither read nor written."""
    return StoreError(f"{place}: expected it open, found it closed; open it again")


__all__ = ["Savepoint", "Transaction", "closed", "unwritable"]
