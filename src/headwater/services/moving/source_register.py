"""The register of sources that move: of each that may leave this node who may have it, and of each that came whence.

A source publishes at one place at a time. A token changes nothing: it goes on here until somebody claims it. Then its
node lets nothing more be published, writes for good who has it from which number on, and tells that one. The same one
may ask again, since an answer may be lost, and is told the same; another one is refused. What came here is written
before it publishes. So whoever is killed at whatever point, one node may publish, or the one that has claimed it may as
soon as it has asked again.

    open ──claim──▶ claimed ──(the source comes back here)──▶ over
      └──expiry──▶ over

`term` is how often a source has moved: what is of an earlier term is not taken for it any more, by anybody.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import SubscriptionError
from headwater.services.moving.register import (
    CLAIMANT,
    CLAIMED,
    MOST_OPEN,
    MOST_OVER,
    MOST_TAKEN,
    OPEN,
    OVER,
    digest_of,
)
from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.store import NodeState

SOURCE_MOVES = Tables(
    "source_moves",
    (
        (
            "CREATE TABLE source_moves (number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, "
            "channel TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, expires INTEGER NOT NULL, "
            "status TEXT NOT NULL, who TEXT NOT NULL DEFAULT '', claimant BLOB NOT NULL DEFAULT x'', "
            "home TEXT NOT NULL DEFAULT '', term INTEGER NOT NULL DEFAULT 0, upto INTEGER NOT NULL DEFAULT 0, "
            "stamp INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '')",
            "CREATE INDEX source_moves_by_source ON source_moves (channel, source, status)",
            # Sources that came: also those that have left since, whose part of the log is still known to be theirs.
            "CREATE TABLE source_arrivals (channel TEXT NOT NULL, source TEXT NOT NULL, home TEXT NOT NULL, "
            "term INTEGER NOT NULL, upto INTEGER NOT NULL, stamp INTEGER NOT NULL, deeds BLOB NOT NULL, "
            "PRIMARY KEY (channel, source))",
            "CREATE TABLE source_moves_taken (number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE)",
        ),
        (
            # Sources that are about to come, and may be here, for all that is known after a power cut.
            "CREATE TABLE source_claims (channel TEXT NOT NULL, source TEXT NOT NULL, digest BLOB NOT NULL, "
            "home TEXT NOT NULL, PRIMARY KEY (channel, source))",
        ),
    ),
)
_encode = msgspec.msgpack.Encoder().encode
_DEEDS = msgpack_decoder(list[bytes])


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a source was when it left: its last event and that one's time (ns), under which key sinks know it (nothing:
    it is not logged), and how often it had moved with this move."""

    home: str
    term: int
    upto: int
    stamp: int


@dataclass(frozen=True, slots=True)
class Terms:
    """Of a move: which source, who alone may claim it ("" for anybody), how it stands, and who has it."""

    channel: str
    source: str
    target: str
    status: str
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A source that has come here, after which event, with what proves that it may."""

    cut: Cut
    deeds: tuple[bytes, ...]


class SourceRegister:
    """Of one node, in its state. Threads may share it; each change is one transaction. That a source was claimed
    survives a power cut."""

    def __init__(self, state: NodeState) -> None:
        self._tables = state.tables(SOURCE_MOVES)
        kept = state.secret(CLAIMANT)
        if kept is None:
            kept = secrets.token_bytes(16)
            state.keep(CLAIMANT, kept)
        self.claimant: bytes = kept

    # ── where it was ──

    def begin(self, id: bytes, channel: str, source: str, target: str, expires: int, now: int) -> None:
        """A token is given out. Earlier ones that nobody has used are worth nothing from here on."""
        with self._tables.transaction(durable=True) as write:
            self._end_open(write, channel, source, "another token was made since; use that one", now)
            [(count,)] = write("SELECT count(*) FROM source_moves WHERE status <> ?", (OVER,))
            if count >= MOST_OPEN:
                raise SubscriptionError(
                    f"move: expected at most {MOST_OPEN:,} sources that have left a node, found as many"
                )
            write(
                "INSERT INTO source_moves (digest, channel, source, target, expires, status) VALUES (?, ?, ?, ?, ?, ?)",
                (digest_of(id), channel, source, target, expires, OPEN),
            )

    def _end_open(self, write: Any, channel: str, source: str, why: str, now: int) -> None:
        rows = write(
            "SELECT number FROM source_moves WHERE status = ? AND ((channel = ? AND source = ?) OR expires <= ?)",
            (OPEN, channel, source, now),
        )
        for (number,) in list(rows):
            _end(write, number, why)

    def terms(self, id: bytes) -> Terms | None:
        """Of the move that a token is for; None if there is none."""
        rows = self._tables.read(
            "SELECT channel, source, target, status, who, why FROM source_moves WHERE digest = ?", (digest_of(id),)
        )
        return Terms(*rows[0]) if rows else None

    def claimed(self, id: bytes, who: str, claimant: bytes) -> Cut | None:
        """Where the source was, if that one has it; None if nobody has. SubscriptionError if another one does, or the
        token is good no more."""
        rows = self._tables.read(
            "SELECT source, status, who, claimant, why, home, term, upto, stamp FROM source_moves WHERE digest = ?",
            (digest_of(id),),
        )
        if not rows:
            raise SubscriptionError("the token was never made here, or is long over")
        source, status, before, its, why, *cut = rows[0]
        if status == OVER:
            raise SubscriptionError(why)
        if status == OPEN:
            return None
        if (before, bytes(its)) != (who, claimant):
            raise SubscriptionError(f"the token was used: {before} goes on with {source!r}; have that one move it")
        return Cut(*cut)

    def check(self, id: bytes, now: int) -> None:
        """Raise if the token is too old to be claimed now."""
        rows = self._tables.read("SELECT expires, status FROM source_moves WHERE digest = ?", (digest_of(id),))
        if not rows or rows[0][1] != OPEN or now < rows[0][0]:
            return  # as a rule: nothing is written then
        problem = ""
        with self._tables.transaction(durable=True) as write:
            rows = list(
                write("SELECT number, source, expires, status FROM source_moves WHERE digest = ?", (digest_of(id),))
            )
            if rows and rows[0][3] == OPEN and now >= rows[0][2]:
                problem = f"the token has expired; {rows[0][1]!r} goes on where it was: have it moved again"
                _end(write, rows[0][0], problem)
        if problem:
            raise SubscriptionError(problem)

    def claim(self, id: bytes, who: str, claimant: bytes, cut: Cut) -> None:
        """Somebody goes on with the source, after this: nobody else will, and it not here."""
        with self._tables.transaction(durable=True) as write:
            rows = list(write("SELECT number, status, why FROM source_moves WHERE digest = ?", (digest_of(id),)))
            if not rows or rows[0][1] != OPEN:
                raise SubscriptionError(rows[0][2] if rows and rows[0][2] else "the token was used just now")
            write(
                "UPDATE source_moves SET status = ?, who = ?, claimant = ?, home = ?, term = ?, upto = ?, stamp = ? "
                "WHERE number = ?",
                (CLAIMED, who, claimant, cut.home, cut.term, cut.upto, cut.stamp, rows[0][0]),
            )

    def fence(self, channel: str, source: str) -> str | None:
        """Where a source of that name goes on, if that is not here."""
        rows = self._tables.read(
            "SELECT who FROM source_moves WHERE channel = ? AND source = ? AND status = ?", (channel, source, CLAIMED)
        )
        return str(rows[0][0]) if rows else None

    # ── where it goes ──

    def taken(self, id: bytes) -> bool:
        """Whether this node goes on with the source of a token already."""
        return bool(self._tables.read("SELECT 1 FROM source_moves_taken WHERE digest = ?", (digest_of(id),)))

    def claims(self, id: bytes, channel: str, source: str, home: str) -> None:
        """The source is about to be claimed: from here on it may be this node's. That survives a power cut, so that
        nothing which is published here is forgotten to be its own."""
        held = (digest_of(id), home)
        if self._tables.read(
            "SELECT digest, home FROM source_claims WHERE channel = ? AND source = ?", (channel, source)
        ) == [held]:
            return
        with self._tables.transaction(durable=True) as write:
            write("DELETE FROM source_claims WHERE channel = ? AND source = ?", (channel, source))
            write("INSERT INTO source_claims VALUES (?, ?, ?, ?)", (channel, source, *held))

    def refused(self, id: bytes) -> None:
        """It is another's: what was claimed is not given."""
        with self._tables.transaction() as write:
            write("DELETE FROM source_claims WHERE digest = ?", (digest_of(id),))

    def claiming(self, channel: str, source: str) -> str | None:
        """The key of a source of that name that may be this node's, and has not arrived; "" if it is not logged."""
        rows = self._tables.read("SELECT home FROM source_claims WHERE channel = ? AND source = ?", (channel, source))
        return str(rows[0][0]) if rows else None

    def take(self, id: bytes, channel: str, source: str, arrival: Arrival) -> None:
        """The source goes on here; moves of it from here are over. A power cut may take that back until `settle`: then
        it is still claimed, here too, and the same token brings it."""
        cut = arrival.cut
        with self._tables.transaction() as write:
            rows = write(
                "SELECT number FROM source_moves WHERE channel = ? AND source = ? AND status <> ?",
                (channel, source, OVER),
            )
            for (number,) in list(rows):
                _end(write, number, f"{source!r} has come back since")
            write("DELETE FROM source_claims WHERE channel = ? AND source = ?", (channel, source))
            write("DELETE FROM source_arrivals WHERE channel = ? AND source = ?", (channel, source))
            write(
                "INSERT INTO source_arrivals (channel, source, home, term, upto, stamp, deeds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (channel, source, cut.home, cut.term, cut.upto, cut.stamp, _encode(list(arrival.deeds))),
            )
            write("INSERT INTO source_moves_taken (digest) VALUES (?)", (digest_of(id),))
            write(
                "DELETE FROM source_moves_taken WHERE number <= (SELECT max(number) FROM source_moves_taken) - ?",
                (MOST_TAKEN,),
            )

    def settle(self) -> None:
        """All that was taken survives a power cut from here on."""
        with self._tables.transaction(durable=True) as write:
            write("DELETE FROM source_moves_taken WHERE number < 0")

    def arrival(self, channel: str, source: str) -> Arrival | None:
        """How a source of that name came here, if it did, be it here still or not."""
        rows = self._tables.read(
            "SELECT home, term, upto, stamp, deeds FROM source_arrivals WHERE channel = ? AND source = ?",
            (channel, source),
        )
        if not rows:
            return None
        *cut, deeds = rows[0]
        return Arrival(Cut(*cut), tuple(_DEEDS.decode(deeds)))

    def arrivals(self, channel: str) -> dict[str, Cut]:
        """Sources of a channel that came here, be they here still or not."""
        rows = self._tables.read(
            "SELECT source, home, term, upto, stamp FROM source_arrivals WHERE channel = ?", (channel,)
        )
        return {source: Cut(*cut) for source, *cut in rows}

    def left(self, channel: str) -> dict[str, int]:
        """Sources of a channel that go on elsewhere, with how often each had moved when it left."""
        statement = "SELECT source, term FROM source_moves WHERE channel = ? AND status = ?"
        return dict(self._tables.read(statement, (channel, CLAIMED)))

    # ── what there is ──

    def report(self) -> dict[str, Any]:
        """Sources for which there is a token that nobody has used, and where others have gone."""
        rows = self._tables.read(
            "SELECT channel, source, status, who FROM source_moves WHERE status <> ? ORDER BY number", (OVER,)
        )
        return {
            "may leave": [f"{channel}/{source}" for channel, source, status, _ in rows if status == OPEN],
            "moved": {f"{channel}/{source}": who for channel, source, status, who in rows if status == CLAIMED},
        }


def _end(write: Any, number: int, why: str) -> None:
    write("UPDATE source_moves SET status = ?, why = ? WHERE number = ?", (OVER, why, number))
    write(
        "DELETE FROM source_moves WHERE status = ? AND number <= (SELECT max(number) FROM source_moves) - ?",
        (OVER, MOST_OVER),
    )


__all__ = ["Arrival", "Cut", "SourceRegister", "Terms"]
