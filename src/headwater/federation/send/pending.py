"""What waits in a lane, and the numbers and times of what machine code has put there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from headwater.channel.routing.fast_path import SAMPLE_EVERY
from headwater.channel.routing.letter import Chunk, Rows
from headwater.federation.wire import frames as wire
from headwater.late import np

BYTES = 1 << 20  # bytes of records in a frame, about; a larger record has one of its own

# What waits: (seq, stamp, record), with a tag as a fourth where an interest ran here for the peer; (chunk, tag);
# (frame,), one that is ready; or, from machine code, a record that follows on what is before it, which may be the
# number of an event that does not go, or a `Pause`.
Item = Any
RECORDS = {bytes, tuple}


class Pause(NamedTuple):
    """An event that nobody wants, among some that are wanted: it tells the time."""

    seq: int
    stamp: int
    record: None = None


def complete(items: list[Item], seq: int, stamp: int) -> tuple[list[Item], int]:
    """All that goes, with the numbers and times of records: they follow on what was before them, first on `seq`. And
    the number of the last."""
    made: list[Item] = []
    for item in items:
        if item.__class__ is bytes:
            seq += 1
            made.append((seq, stamp, item))
        elif item.__class__ is int:
            seq = item
        else:
            if len(item) >= 3:
                seq, stamp = item[0], item[1]
                if item.__class__ is Pause:
                    continue
            elif len(item) == 2:
                seq = int(item[0].seqs[-1])
            made.append(item)
    return made, seq


def last_of(items: list[Item]) -> int:
    """The number of the last event among items that have theirs, even if it is too large for a frame; 0 if none is."""
    for item in reversed(items):
        if len(item) >= 3:
            return int(item[0])
        if len(item) == 2:
            chunk = item[0]
            whole = chunk.__class__ is Chunk and chunk.consecutive
            return int(chunk.first + len(chunk) - 1 if whole else chunk.seqs[-1])
    return 0


def gather(items: list[Item], seq: int, stamp: int) -> tuple[list[int], list[int], list[bytes], int] | None:
    """The same as numbers, times and records, if there is nothing but records that fit one frame together."""
    seqs: list[int] = []
    stamps: list[int] = []
    records: list[bytes] = []
    for item in items:
        if item.__class__ is bytes:
            seq += 1
            seqs.append(seq)
            stamps.append(stamp)
            records.append(item)
        elif item.__class__ is int:
            seq = item
        elif len(item) == 3:
            seq, stamp, record = item
            if record is not None:
                seqs.append(seq)
                stamps.append(stamp)
                records.append(record)
        else:
            return None
    if stamps and (not wire.spans(stamps[0], stamps[-1]) or sum(map(len, records)) > BYTES):
        return None
    return seqs, stamps, records, seq


def flood(items: list[Item], first: int, stamp: int) -> tuple[list[int], list[bytes]] | None:
    """The times and the records, if these are nothing but records one after the other, from number `first` on."""
    total = len(items)
    tuples = [item for item in items if item.__class__ is tuple]
    if any(len(item) != 3 for item in tuples):
        return None
    records = [item if item.__class__ is bytes else item[2] for item in items]
    lead = min(-first % SAMPLE_EVERY, total)
    stamps = [stamp] * lead
    for at in range(lead, total, SAMPLE_EVERY):
        item = items[at]
        if item.__class__ is not tuple or len(item) != 3 or item[0] != first + at:
            return None
        stamps += [item[1]] * min(SAMPLE_EVERY, total - at)
    last = items[-1]  # after a gap there are no records but in tuples, so that this one tells
    if last.__class__ is tuple and last[0] != first + total - 1:
        return None
    if not wire.spans(stamps[0], stamps[-1]) or sum(map(len, records)) > BYTES:
        return None
    return stamps, records


def take(pending: list[Item], lock: AbstractContextManager[object]) -> list[Item]:
    """All that waits, taken out. What several interests want of one chunk is put in one after the other while `lock` is
    held, and comes out together: rows that are in two of these parts are to cross once."""
    n = len(pending)
    items = pending[:n]
    del pending[:n]
    if items and _is_chunk(items[-1]):
        root = root_of(items[-1][0])
        with lock:
            n = next(
                (at for at, it in enumerate(pending) if not _is_chunk(it) or root_of(it[0]) is not root), len(pending)
            )
            items += pending[:n]
            del pending[:n]
    return items


def _is_chunk(item: Item) -> bool:
    return item.__class__ is tuple and len(item) == 2


def newest_of(items: list[Item], excess: int) -> tuple[list[Item], int]:
    """Items without the oldest events, so many; and how many these were."""
    rest: list[Item] = []
    left = excess
    for item in items:
        n = len(item[0]) if len(item) == 2 else 1
        if left <= 0 or len(item) == 1:  # what is said of the source is no event
            rest.append(item)
        elif n > left:
            rest.append((_tail(item[0], left), item[1]))
            left = 0
        else:
            left -= n
    return rest, excess - left


def _tail(chunk: Chunk, start: int) -> Chunk:
    """The rows of a chunk from there on, as a part of the same whole."""
    if isinstance(chunk, Rows):
        return Rows(chunk.origin, chunk.places, start, len(chunk))
    return Rows(chunk, np.arange(len(chunk)), start, len(chunk))


def root_of(chunk: Chunk) -> Chunk:
    return chunk._of if isinstance(chunk, Rows) else chunk


def union(parts: list[Chunk]) -> Chunk:
    """Parts of one chunk, or the whole, as one: each row once, in order."""
    root = root_of(parts[0])
    if any(part is root for part in parts):
        return root
    rows = np.concatenate([part.places for part in parts if isinstance(part, Rows)])
    rows.sort()
    new = rows[1:] != rows[:-1]
    if not new.all():
        rows = np.concatenate((rows[:1], rows[1:][new]))
    return Rows(root, rows, 0, len(rows))
