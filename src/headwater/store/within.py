"""Positions in someone else's SQLite connection, so that they are written in the same transaction as its own data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import StoreError

TABLE = "headwater_positions"
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    "(sink TEXT NOT NULL, source TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (sink, source)) WITHOUT ROWID"
)
_WRITE = (
    f"INSERT INTO {TABLE} (sink, source, seq) VALUES (?, ?, ?) "
    "ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq"
)
_READ = f"SELECT seq FROM {TABLE} WHERE sink = ? AND source = ?"


class WithinConnection:
    """Positions of one sink, in table `headwater_positions` of a connection (of `sqlite3`, or one that behaves alike).

    `begin`, then the owner's own statements, then `commit` or `rollback`, all in one thread."""

    def __init__(self, connection: Any, sink: str) -> None:
        self._connection, self._sink = connection, sink
        try:
            self._must_be_free()
            connection.execute(_CREATE)
            self._end("COMMIT")
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(
                f"within: expected a connection on which table {TABLE} can be made, found: {error}; "
                "give one that may write"
            ) from error

    def positions(self) -> dict[str, int]:
        """By source key, the last event that the sink is done with."""
        return dict(self._rows(f"SELECT source, seq FROM {TABLE} WHERE sink = ?", self._sink))

    def begin(self, positions: Mapping[str, int]) -> None:
        """Start a transaction with these positions in it."""
        self._must_be_free()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._write(positions)
        except BaseException:
            self.rollback()
            raise

    def commit(self, positions: Mapping[str, int]) -> None:
        """End it. Its owner may have done so too: then it holds the positions, unless it was rolled back."""
        try:
            lost = {source: seq for source, seq in positions.items() if self._read(source) < seq}
            if lost and not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            self._write(lost)
            self._end("COMMIT")
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        """Undo it, if it has not ended yet."""
        self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        if self._connection.in_transaction:  # in words, since the methods do nothing where autocommit=True
            self._connection.execute(how)

    def _read(self, source: str) -> int:
        rows = self._rows(_READ, self._sink, source)
        return int(rows[0][0]) if rows else 0

    def _rows(self, statement: str, *values: object) -> list[Any]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # whatever the owner wants rows to be
        return list(cursor.execute(statement, values))

    def _write(self, positions: Mapping[str, int]) -> None:
        for source, seq in positions.items():
            self._connection.execute(_WRITE, (self._sink, source, seq))

    def _must_be_free(self) -> None:
        if getattr(self._connection, "autocommit", None) is False:  # then there is always a transaction
            raise StoreError(
                "within: expected a connection whose transactions begin when they are told to, found one with "
                "autocommit=False; leave that out, or use autocommit=True"
            )
        if self._connection.in_transaction:
            raise StoreError(
                f"within: expected a connection without an open transaction for sink {self._sink!r}, found one with; "
                "commit it, or give the subscription a connection of its own"
            )
