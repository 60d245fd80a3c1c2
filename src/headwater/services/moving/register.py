"""The register of moves: of each sink that has left a node, who may go on with it, and who does.

A sink is at one place at a time. Its node writes that it is on its way before it gives a token out; from then on the
name is fenced here. Whoever shows the token first gets it: that is written, for good, before it is told. The same one
may ask again, since an answer may be lost; another one is refused. What nobody has claimed in time is free to go on
here, and then the token is worth nothing: whether it is still open, this register alone decides, in one transaction
with whatever comes of it, and no clock but its own node's is asked.

    open ──claim──▶ claimed ──(the sink comes back here)──▶ over
      └──expiry, a subscription of that name, or resume() here──▶ over

Of a token only the digest is kept: who reads the file cannot take the sink.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import SubscriptionError
from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.store import NodeState

OPEN, CLAIMED, OVER = "open", "claimed", "over"
MOST_OVER = 1000  # moves that are over, of which it is remembered why
MOST_TAKEN = 100_000  # moves to here that are remembered, so that an old token does not set a sink back
MOST_OPEN = 10_000  # sinks that may be on their way, or gone, at one time
ID_BYTES = 32
CLAIMANT = "moving/claimant"  # the secret by which this state, and no other of that name, asks again

MOVES = Tables(
    "moves",
    (
        (
            "CREATE TABLE moves (number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, "
            "sink TEXT NOT NULL, channels TEXT NOT NULL, target TEXT NOT NULL, expires INTEGER NOT NULL, "
            "status TEXT NOT NULL, who TEXT NOT NULL DEFAULT '', claimant BLOB NOT NULL DEFAULT x'', "
            "why TEXT NOT NULL DEFAULT '')",
            "CREATE INDEX moves_by_sink ON moves (sink, status)",
            "CREATE TABLE moves_taken (number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, "
            "sink TEXT NOT NULL)",
        ),
    ),
)
_POSITION = (
    "INSERT INTO positions (sink, source, seq, handed, unsure) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "seq = max(seq, excluded.seq), handed = max(handed, excluded.handed)"
)


def digest_of(id: bytes) -> bytes:
    """What is kept of a token's number."""
    return hashlib.sha256(b"headwater move\0" + id).digest()


@dataclass(frozen=True, slots=True)
class Fence:
    """Why a sink of that name may not go on here, and until when (nanoseconds since 1970; 0: for good)."""

    why: str
    until: int = 0


class MoveRegister:
    """Of one node, in its state. Threads may share it; each change is one transaction. That a sink was claimed, or
    taken up, survives a power cut."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._tables = state.tables(MOVES)
        kept = state.secret(CLAIMANT)
        if kept is None:
            kept = secrets.token_bytes(16)
            state.keep(CLAIMANT, kept)
        self.claimant: bytes = kept

    # ── where it was ──

    def begin(self, id: bytes, sink: str, channels: Iterable[str], target: str, expires: int) -> None:
        """A sink leaves, with what it wants of these channels: from here on nobody has it until it is claimed. If a
        power cut takes this back, it has not left: what was given out is worth nothing then."""
        with self._tables.transaction() as write:
            rows = list(write("SELECT 1 FROM moves WHERE sink = ? AND status <> ?", (sink, OVER)))
            if rows:
                raise SubscriptionError(f"move: subscription {sink!r} is on its way, or gone, already")
            [(count,)] = write("SELECT count(*) FROM moves WHERE status <> ?", (OVER,))
            if count >= MOST_OPEN:
                raise SubscriptionError(
                    f"move: expected at most {MOST_OPEN:,} subscriptions that have left a node, found as many; forget "
                    "those that do not come back: node.forget_moved(name)"
                )
            write(
                "INSERT INTO moves (digest, sink, channels, target, expires, status) VALUES (?, ?, ?, ?, ?, ?)",
                (digest_of(id), sink, "\n".join(sorted(set(channels))), target, expires, OPEN),
            )

    def terms(self, id: bytes) -> tuple[str, list[str]] | None:
        """Who alone may claim a move, "" for anybody, and the channels that who does must be let subscribe to; None if
        there is no such move."""
        rows = self._tables.read("SELECT target, channels FROM moves WHERE digest = ?", (digest_of(id),))
        return (rows[0][0], rows[0][1].split("\n") if rows[0][1] else []) if rows else None

    def claim(self, id: bytes, who: str, claimant: bytes, now: int) -> str:
        """Somebody goes on with the sink, whose name this returns: nobody else will, and it not here. SubscriptionError
        says why not."""
        problem = ""
        with self._tables.transaction(durable=True) as write:
            rows = list(
                write(
                    "SELECT number, sink, expires, status, who, claimant, why FROM moves WHERE digest = ?",
                    (digest_of(id),),
                )
            )
            if not rows:
                raise SubscriptionError("the token was never made here, or is long over")
            number, sink, expires, status, before, its, why = rows[0]
            same = (before, bytes(its)) == (who, claimant)
            if status == OVER and (why or not same):
                raise SubscriptionError(why or f"{sink!r} has come back since")
            if status != OPEN:
                if not same:
                    raise SubscriptionError(
                        f"the token was used: {before} goes on with {sink!r}; have that one move it"
                    )
            elif now >= expires:
                problem = f"the token has expired; {sink!r} may go on where it was: have it moved again"
                _end(write, number, problem)
            else:
                write(
                    "UPDATE moves SET status = ?, who = ?, claimant = ? WHERE number = ?",
                    (CLAIMED, who, claimant, number),
                )
                _forget(write, sink)
        if problem:
            raise SubscriptionError(problem)
        return str(sink)

    def fence(self, sink: str) -> Fence | None:
        """Why a sink of that name may not go on here; None if it may."""
        rows = self._tables.read("SELECT status, who, expires FROM moves WHERE sink = ? AND status <> ?", (sink, OVER))
        if not rows:
            return None
        status, who, expires = rows[0]
        if status == OPEN:
            return Fence("it is on its way to another node", expires)
        return Fence(f"it has moved to {who}")

    def enter(self, sink: str, now: int) -> Fence | None:
        """A sink of that name is to go on here, as it was: None if it may, and then nobody can claim it any more."""
        if self.fence(sink) is None:  # as a rule: nothing is written then
            return None
        with self._tables.transaction(durable=True) as write:
            rows = list(write("SELECT number, status, expires FROM moves WHERE sink = ? AND status <> ?", (sink, OVER)))
            if rows and rows[0][1] == OPEN and now >= rows[0][2]:
                _end(write, rows[0][0], f"the token has expired; {sink!r} goes on where it was: have it moved again")
        return self.fence(sink)

    def forget(self, sink: str, why: str = "") -> bool:
        """The name may be used anew: what was moved goes on where it is, and whatever has not been claimed is not
        given out any more, and is told `why`. Whether there was anything to forget."""
        with self._tables.transaction(durable=True) as write:
            rows = list(write("SELECT number FROM moves WHERE sink = ? AND status <> ?", (sink, OVER)))
            for (number,) in rows:
                _end(write, number, why or f"its node has given {sink!r} up")
            if rows:
                _forget(write, sink)
        return bool(rows)

    def departed(self, channel: str) -> list[str]:
        """Sinks of a channel that are on their way, or gone."""
        rows = self._tables.read(
            "SELECT sink FROM moves WHERE status <> ? AND instr(char(10) || channels || char(10), ?)",
            (OVER, f"\n{channel}\n"),
        )
        return [str(sink) for (sink,) in rows]

    # ── where it goes ──

    def taken(self, id: bytes) -> str | None:
        """Under which name this node goes on with the sink already, if it does; SubscriptionError if it had, and has
        passed it on."""
        rows = self._tables.read("SELECT sink FROM moves_taken WHERE digest = ?", (digest_of(id),))
        if not rows:
            return None
        sink = str(rows[0][0])
        fence = self.fence(sink)
        if fence is not None:
            raise SubscriptionError(f"the token was used here before, and since then {fence.why}")
        return sink

    def namesake(self, sink: str, id: bytes) -> bool:
        """Whether this node has kept positions under that name which are not those of a sink that has left it: also one
        that is on its way, and that nobody has yet, by another token than this one."""
        rows = self._tables.read("SELECT digest, status FROM moves WHERE sink = ? AND status <> ?", (sink, OVER))
        if rows:
            return bool(rows[0][1] == OPEN and bytes(rows[0][0]) != digest_of(id))
        return sink in self._state.sinks()

    def take(
        self,
        id: bytes,
        sink: str,
        positions: Mapping[str, int],
        handed: Mapping[str, int],
        unsure: Collection[str] = (),
    ) -> None:
        """The sink goes on here, after these events of its sources; moves of it from here are over. A power cut may
        take that back until `settle`: then it is still claimed, and the same token brings it."""
        with self._tables.transaction() as write:
            # What comes may be another sink of that name: who has claimed the one that has left is answered as before.
            for number, status in list(
                write("SELECT number, status FROM moves WHERE sink = ? AND status <> ?", (sink, OVER))
            ):
                _end(write, number, "" if status == CLAIMED else f"{sink!r} has come back since")
            _forget(write, sink)
            for source in {*positions, *handed}:
                write(_POSITION, (sink, source, positions.get(source, 0), handed.get(source, 0), source in unsure))
            write("INSERT INTO moves_taken (digest, sink) VALUES (?, ?)", (digest_of(id), sink))

    def settle(self) -> None:
        """All that was taken survives a power cut from here on; nobody waits for it, so that very old ones go now."""
        with self._tables.transaction(durable=True) as write:
            write("DELETE FROM moves_taken WHERE number <= (SELECT max(number) FROM moves_taken) - ?", (MOST_TAKEN,))

    # ── what there is ──

    def report(self) -> dict[str, Any]:
        """Sinks that are on their way, and where others have gone."""
        rows = self._tables.read("SELECT sink, status, who FROM moves WHERE status <> ? ORDER BY number", (OVER,))
        return {
            "on their way": [sink for sink, status, _ in rows if status == OPEN],
            "moved": {sink: who for sink, status, who in rows if status == CLAIMED},
        }


def _end(write: Any, number: int, why: str) -> None:
    write("UPDATE moves SET status = ?, why = ? WHERE number = ?", (OVER, why, number))
    write("DELETE FROM moves WHERE status = ? AND number <= (SELECT max(number) FROM moves) - ?", (OVER, MOST_OVER))


def _forget(write: Any, sink: str) -> None:
    """Nothing is kept here of how far a sink is."""
    write("DELETE FROM positions WHERE sink = ?", (sink,))
    write("DELETE FROM open_sinks WHERE sink = ?", (sink,))


__all__ = ["Fence", "MoveRegister", "digest_of"]
