"""What a node keeps of its named patterns in its state: how far each is with every source, and its partial matches.

A row has one snapshot, written in one transaction with the number of the last match that was published by then: who
goes on from there finds every later match again, and knows by the log of the result channel which of them were
published already. Some of those that are found again may not have been yet when the next snapshot is written: they are
kept too.

Sources that came after the snapshot was written are noted when their first event comes, so that what they published
before the next one is not missed after a kill.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.patterns.run.identity import SIZE
from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.store import NodeState

PATTERNS = Tables(
    "patterns",
    (
        (
            "CREATE TABLE patterns (name TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, params BLOB NOT NULL, "
            "since INTEGER NOT NULL, published INTEGER NOT NULL, had BLOB NOT NULL, digest BLOB NOT NULL, "
            "snapshot BLOB NOT NULL) "
            "WITHOUT ROWID",
            "CREATE TABLE pattern_sources (name TEXT NOT NULL, source TEXT NOT NULL, after INTEGER NOT NULL, "
            "PRIMARY KEY (name, source)) WITHOUT ROWID",
        ),
    ),
)
_DIGEST = 16  # bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one pattern. `since`: when its name was claimed, in microseconds; `published`: the number of the last match
    that was published by then; `had`: matches among these that are found again, since they were published in a life
    before; `params`: the values of its parameters, as bytes; `later`: sources that came after the snapshot, and the
    last number of each before the pattern heard it."""

    fingerprint: bytes
    params: bytes
    since: int
    published: int
    snapshot: bytes
    had: frozenset[bytes] = frozenset()
    later: dict[str, int] = field(default_factory=dict)


class KeptPatterns:
    """The table of a node's state; threads may share it. StoreError where the file cannot be read or written."""

    def __init__(self, state: NodeState) -> None:
        self._tables = state.tables(PATTERNS)

    def load(self, name: str) -> Kept | None:
        """What is kept of the pattern of that name; None if nothing is, or if what is there is not what was written."""
        rows = self._tables.read(
            "SELECT fingerprint, params, since, published, had, digest, snapshot FROM patterns WHERE name = ?", (name,)
        )
        if not rows:
            return None
        fingerprint, params, since, published, had, digest, snapshot = rows[0]
        if not isinstance(snapshot, bytes) or not isinstance(had, bytes) or _digest(snapshot + had) != digest:
            return None
        later = dict(self._tables.read("SELECT source, after FROM pattern_sources WHERE name = ?", (name,)))
        again = frozenset(had[at : at + SIZE] for at in range(0, len(had), SIZE))
        return Kept(fingerprint, params, since, published, snapshot, again, later)

    def keep(self, name: str, kept: Kept) -> None:
        """Write a snapshot in the place of the one before; what was noted of sources since is in it."""
        had = b"".join(sorted(kept.had))
        digest = _digest(kept.snapshot + had)
        row = (name, kept.fingerprint, kept.params, kept.since, kept.published, had, digest, kept.snapshot)
        with self._tables.transaction() as execute:
            execute("INSERT OR REPLACE INTO patterns VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            execute("DELETE FROM pattern_sources WHERE name = ?", (name,))
            for source, after in kept.later.items():
                execute("INSERT INTO pattern_sources VALUES (?, ?, ?)", (name, source, after))

    def came(self, name: str, source: str, after: int) -> None:
        """A source that is in no snapshot is heard for the first time: all after this number is the pattern's."""
        self._tables.write("INSERT OR IGNORE INTO pattern_sources VALUES (?, ?, ?)", (name, source, after))

    def forget(self, name: str) -> None:
        """The pattern is ended for good."""
        with self._tables.transaction() as execute:
            execute("DELETE FROM patterns WHERE name = ?", (name,))
            execute("DELETE FROM pattern_sources WHERE name = ?", (name,))

    def names(self) -> list[str]:
        """Of all patterns of which something is kept."""
        return [name for (name,) in self._tables.read("SELECT name FROM patterns ORDER BY name")]


def _digest(snapshot: bytes) -> bytes:
    return hashlib.blake2b(snapshot, digest_size=_DIGEST, person=b"hw-kept").digest()


__all__ = ["PATTERNS", "Kept", "KeptPatterns"]
