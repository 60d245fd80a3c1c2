"""What waits in a lane between publisher and socket, and the numbers and times of what machine code has put there.

The fast path (channel/routing/fast_path.py) appends what costs least: a record's `bytes`, and before it, where events
in between are not wanted, the `int` of the last of those. Neither has a number or a time of its own: a record is the
event after what is before it, and has its time. Everything else is put in by Python:

    bytes          a record that follows on what is before it          by machine code only
    int            the number of an event that does not go             by machine code only
    Gap            the same with its time: it tells the time to records after it
    Numbered       an event with its number, its time, and perhaps a tag
    PendingRows    some rows of a batch
    ControlFrame   a frame that is ready: what is said of the source

`complete` gives what machine code has put in its numbers and times; `flood` and `gather` do the same for the frequent
cases in which there is nothing but events, without making an object for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import msgspec

from headwater.channel.routing.fast_path import SAMPLE_EVERY
from headwater.channel.routing.letter import Chunk, Marked, Rows
from headwater.channel.routing.limiter import rows_of
from headwater.federation.wire import frames as wire
from headwater.late import np

BYTES = 1 << 20  # bytes of records in a frame, about; a larger record has one of its own


class Numbered(msgspec.Struct, gc=False):
    """An event; `tag` is that of the interest that has passed or made it here, where it runs for the peer, else 0."""

    seq: int
    stamp: int
    record: bytes
    tag: int = 0


class PendingRows(msgspec.Struct):
    """Rows of a batch, for all filters together (tag 0) or for an interest that runs here."""

    chunk: Chunk
    tag: int = 0


class ControlFrame(msgspec.Struct, gc=False):
    """A frame that is ready, and counts as no event."""

    frame: bytes


class Gap(msgspec.Struct, gc=False):
    """An event that nobody wants, among some that are wanted: it tells the time."""

    seq: int
    stamp: int


Complete = Numbered | PendingRows | ControlFrame  # what needs nothing of what is before it
Pending = bytes | int | Gap | Complete
COMPLETE = frozenset((Numbered, PendingRows, ControlFrame))
RECORDS = frozenset((bytes, Numbered))


def complete(items: Sequence[Pending], seq: int, stamp: int) -> tuple[list[Complete], int]:
    """All that goes, with the numbers and times of records: they follow on what was before them, first on `seq`. And
    the number of the last."""
    made: list[Complete] = []
    for item in items:
        if isinstance(item, bytes):
            seq += 1
            made.append(Numbered(seq, stamp, item))
        elif isinstance(item, int):
            seq = item
        elif isinstance(item, Gap):
            seq, stamp = item.seq, item.stamp
        else:
            if isinstance(item, Numbered):
                seq, stamp = item.seq, item.stamp
            elif isinstance(item, PendingRows):
                seq = int(item.chunk.seqs[-1])
            made.append(item)
    return made, seq


def last_of(items: Sequence[Complete]) -> int:
    """The number of the last event among them, even if it is too large for a frame; 0 if none is."""
    for item in reversed(items):
        if isinstance(item, Numbered):
            return item.seq
        if isinstance(item, PendingRows):
            chunk = item.chunk
            whole = chunk.__class__ is Chunk and chunk.consecutive
            return int(chunk.first + len(chunk) - 1 if whole else chunk.seqs[-1])
    return 0


def gather(items: Sequence[Pending], seq: int, stamp: int) -> tuple[list[int], list[int], list[bytes], int] | None:
    """The same as numbers, times and records, if there is nothing but records that fit one frame together."""
    seqs: list[int] = []
    stamps: list[int] = []
    records: list[bytes] = []
    for item in items:
        if isinstance(item, bytes):
            seq += 1
            seqs.append(seq)
            stamps.append(stamp)
            records.append(item)
        elif isinstance(item, int):
            seq = item
        elif isinstance(item, Gap):
            seq, stamp = item.seq, item.stamp
        elif isinstance(item, Numbered) and not item.tag:
            seq, stamp = item.seq, item.stamp
            seqs.append(seq)
            stamps.append(stamp)
            records.append(item.record)
        else:
            return None
    if stamps and (not wire.spans(stamps[0], stamps[-1]) or sum(map(len, records)) > BYTES):
        return None
    return seqs, stamps, records, seq


def flood(items: Sequence[Pending], first: int, stamp: int) -> tuple[list[int], list[bytes]] | None:
    """The times and the records, if these are nothing but records one after the other, from number `first` on.

    Of every `SAMPLE_EVERY` events one is put in by Python: between two of those there are only records."""
    total = len(items)
    records: list[bytes] = []
    for item in items:
        if isinstance(item, bytes):
            records.append(item)
        elif isinstance(item, Numbered) and not item.tag:
            records.append(item.record)
        else:
            return None
    lead = min(-first % SAMPLE_EVERY, total)
    stamps = [stamp] * lead
    for at in range(lead, total, SAMPLE_EVERY):
        item = items[at]
        if not isinstance(item, Numbered) or item.seq != first + at:
            return None
        stamps += [item.stamp] * min(SAMPLE_EVERY, total - at)
    last = items[-1]  # after a gap there are no records but in these, so that this one tells
    if isinstance(last, Numbered) and last.seq != first + total - 1:
        return None
    if not wire.spans(stamps[0], stamps[-1]) or sum(map(len, records)) > BYTES:
        return None
    return stamps, records


def take(pending: list[Pending], lock: AbstractContextManager[object]) -> list[Pending]:
    """All that waits, taken out. What several interests want of one chunk is put in one after the other while `lock` is
    held, and comes out together: rows that are in two of these parts are to cross once."""
    n = len(pending)
    items = pending[:n]
    del pending[:n]
    if items and isinstance(last := items[-1], PendingRows):
        root = root_of(last.chunk)
        with lock:
            n = 0
            while n < len(pending) and isinstance(it := pending[n], PendingRows) and root_of(it.chunk) is root:
                n += 1
            items += pending[:n]
            del pending[:n]
    return items


def surplus(items: Sequence[Pending]) -> int:
    """Events in the chunks among them beyond one each."""
    return sum(len(item.chunk) - 1 for item in items if isinstance(item, PendingRows))


def newest_of(items: Sequence[Complete], excess: int) -> tuple[list[Complete], int]:
    """Items without the oldest events, so many; and how many these were."""
    rest: list[Complete] = []
    left = excess
    for item in items:
        if left <= 0 or isinstance(item, ControlFrame):  # what is said of the source is no event
            rest.append(item)
        elif isinstance(item, PendingRows) and len(item.chunk) > left:
            rest.append(PendingRows(_tail(item.chunk, left), item.tag))
            left = 0
        else:
            left -= len(item.chunk) if isinstance(item, PendingRows) else 1
    return rest, excess - left


def oldest_of(item: Pending, events: int) -> Pending:
    """Rows of a batch without the last, so that so many are left."""
    if not isinstance(item, PendingRows):
        return item
    chunk = item.chunk
    if isinstance(chunk, Marked):
        cut = slice(0, events)
        return PendingRows(Marked(chunk.origin, chunk.places[cut], chunk.records[cut], chunk.whole[cut]), item.tag)
    return PendingRows(rows_of(chunk, np.arange(events)), item.tag)


def _tail(chunk: Chunk, start: int) -> Chunk:
    """The rows of a chunk from there on, as a part of the same whole."""
    if isinstance(chunk, Marked):
        return chunk.tail(start)
    if isinstance(chunk, Rows):
        return Rows(chunk.origin, chunk.places, start, len(chunk))
    return Rows(chunk, np.arange(len(chunk)), start, len(chunk))


def root_of(chunk: Chunk) -> Chunk:
    """What a chunk is a part of: itself, if of nothing."""
    return chunk.origin if isinstance(chunk, Rows) else chunk


def union(parts: Sequence[Chunk]) -> Chunk:
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
