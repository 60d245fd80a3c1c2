"""The tables of a node's state in which its library is kept.

library_entries   what was published here, or fetched to be used here, by name and version
library_owners    whose a name is: who has published it first, as this node knows
library_shelf     code that others have asked this node's sources to run by name
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.services.library.entry import LibraryEntry
    from headwater.store import NodeState

LIBRARY = Tables(
    "library",
    (
        (
            "CREATE TABLE library_entries (name TEXT NOT NULL, version INTEGER NOT NULL, published INTEGER NOT NULL, "
            "owner TEXT NOT NULL, document BLOB NOT NULL, code BLOB NOT NULL, withdrawn TEXT, "
            "withdrawal BLOB NOT NULL, PRIMARY KEY (name, version)) WITHOUT ROWID",
            "CREATE TABLE library_owners (name TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID",
            "CREATE TABLE library_shelf (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, "
            "version INTEGER NOT NULL, fingerprint BLOB NOT NULL, owner TEXT NOT NULL, document BLOB NOT NULL, "
            "code BLOB NOT NULL, UNIQUE (name, version, fingerprint))",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """A row: an entry as it was kept, not read yet."""

    owner: str
    document: bytes
    code: bytes
    published: bool = False
    withdrawn: str | None = None
    withdrawal: bytes = b""


class LibraryTables:
    """Threads may share it. StoreError where the file cannot be read or written."""

    def __init__(self, state: NodeState) -> None:
        self._tables = state.tables(LIBRARY)

    def entries(self) -> list[KeptEntry]:
        """All entries, by name and version."""
        rows = self._tables.read(
            "SELECT owner, document, code, published, withdrawn, withdrawal FROM library_entries ORDER BY name, version"
        )
        return [
            KeptEntry(owner, document, code, bool(published), withdrawn, withdrawal)
            for owner, document, code, published, withdrawn, withdrawal in rows
        ]

    def owners(self) -> dict[str, str]:
        """Whose each name is."""
        return dict(self._tables.read("SELECT name, owner FROM library_owners"))

    def keep(self, entry: LibraryEntry, *, published: bool) -> None:
        """An entry and the owner of its name, together; on the disk when this returns, if it was published here."""
        row = (
            entry.name, entry.version, int(published), entry.owner, entry.document, entry.code, entry.withdrawn,
            entry.withdrawal,
        )  # fmt: skip
        with self._tables.transaction(durable=published) as execute:
            execute("INSERT OR REPLACE INTO library_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            execute("INSERT OR IGNORE INTO library_owners VALUES (?, ?)", (entry.name, entry.owner))

    def remove(self, name: str, version: int) -> None:
        """An entry is not kept any more; the owner of its name is."""
        self._tables.write("DELETE FROM library_entries WHERE name = ? AND version = ?", (name, version))

    def forget(self, name: str) -> None:
        """All entries of a name, and whose it was."""
        with self._tables.transaction(durable=True) as execute:
            execute("DELETE FROM library_entries WHERE name = ?", (name,))
            execute("DELETE FROM library_owners WHERE name = ?", (name,))

    def shelf(self) -> list[KeptEntry]:
        """Code that was asked for by name, in the order in which it came."""
        rows = self._tables.read("SELECT owner, document, code FROM library_shelf ORDER BY id")
        return [KeptEntry(*row) for row in rows]

    def put(self, entry: LibraryEntry) -> None:
        """Code that was asked for by name."""
        self._tables.write(
            "INSERT OR IGNORE INTO library_shelf (name, version, fingerprint, owner, document, code) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (entry.name, entry.version, entry.fingerprint, entry.owner, entry.document, entry.code),
        )

    def drop(self, entry: LibraryEntry) -> None:
        """There is no room for it any more."""
        self._tables.write(
            "DELETE FROM library_shelf WHERE name = ? AND version = ? AND fingerprint = ?",
            (entry.name, entry.version, entry.fingerprint),
        )


__all__ = ["LIBRARY", "KeptEntry", "LibraryTables"]
