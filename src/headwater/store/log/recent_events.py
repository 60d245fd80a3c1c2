"""The last events of one source of an open log, from the end of the file that is being written.

Who catches up near the end needs no snapshot: the writer knows where blocks begin (`Writer.marks`), and from the last
of these places on only the end is read, once, with nothing locked. It goes back until it has seen an event of the
source that is not wanted any more, or the very next one: numbers of a source increase in a file, so nothing of it is
missing then, here or in older files. Where that is further back than `MOST_BYTES`, or in another file, it has no
answer, and the log's reader is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from headwater.errors import StoreError
from headwater.late import np, pa
from headwater.store.log.schema import SEQ, TIME, microseconds
from headwater.store.log.wal import BLOCK, EVENT, HEAD, NANOS, ROWS, Segment

if TYPE_CHECKING:
    from headwater.store.log.wal_writer import Writer
    from headwater.types import EventType

MOST_EVENTS = 8192  # numbers behind the last, from which on it is not tried
MOST_BYTES = 512 << 10  # of the file's end that are looked through
LIKELY_BYTES = 64  # of an event in the file: so far back it begins to look, and then as far again

Blocks = list[int]  # kind, source, a, b, start and length of each, end to end, as `Segment` has them


class Run(NamedTuple):
    """Events in a row, with their times in nanoseconds: records as they were published, or rows of a batch."""

    seqs: Any
    stamps: Any
    records: list[bytes] | None
    rows: Any


class RecentEvents:
    """All events of a source with after < number <= upto, in their order; there is at least one number between."""

    def __init__(self, segments: Sequence[Segment], type: EventType | None, after: int, upto: int) -> None:
        self.type, self._segments, self._after, self._upto = type, segments, after, upto

    def __iter__(self) -> Iterator[Run]:
        """Runs of single events, as records, and what was appended as a batch, as rows."""
        seqs, stamps, records = list[int](), list[int](), list[bytes]()
        for segment in self._segments:
            index, data = segment._index, segment.data
            for at, (kind, _, first, last, _, stamp, start, length) in enumerate(index.tolist()):
                if last <= self._after or first > self._upto:
                    continue
                if kind == EVENT:
                    seqs.append(first)
                    stamps.append(stamp)
                    records.append(data[start : start + length])
                    continue
                if records:
                    yield Run(seqs, stamps, records, None)
                    seqs, stamps, records = [], [], []
                batch = self._batch(segment, at)
                if len(batch.seqs):  # its numbers may have a hole there
                    yield batch
        if records:
            yield Run(seqs, stamps, records, None)

    def _batch(self, segment: Segment, at: int) -> Run:
        """What is wanted of a block that is a batch."""
        try:
            numbers, times, rows = segment._columns(at)
        except (pa.ArrowException, ValueError) as error:
            raise StoreError(f"{segment.place}: expected a batch of events, found: {error}") from error
        low = int(np.searchsorted(numbers, self._after, "right"))
        high = int(np.searchsorted(numbers, self._upto, "right"))
        if self.type is None:
            records = rows.column("data").to_pylist()[low:high]
            return Run(numbers[low:high], times[low:high] * NANOS, records, None)
        return Run(numbers[low:high], times[low:high] * NANOS, None, rows.slice(low, high - low))

    def batch(self, rows: int) -> Any:
        """The first of them, at most so many, as a RecordBatch with number, time and fields; None if there are none."""
        found = next(iter(self), None)
        if found is None:
            return None
        seqs, stamps, fields = found.seqs[:rows], found.stamps[:rows], found.rows
        if found.records is None:
            fields = fields.slice(0, rows)
        elif self.type is None:
            fields = pa.RecordBatch.from_arrays([pa.array(found.records[:rows], pa.binary())], names=["data"])
        else:
            fields = self.type.records_to_arrow(found.records[:rows])
        times = microseconds(np.asarray(stamps, np.int64) // NANOS)
        names = [SEQ, TIME, *fields.schema.names]
        return pa.RecordBatch.from_arrays([pa.array(seqs, pa.int64()), times, *fields.columns], names=names)


def recent_events(writer: Writer, source: str, after: int, upto: int) -> RecentEvents | None:
    """The events of a source with after < number <= upto, which were all appended before this is called; None if the
    end of this file does not tell."""
    number, size = writer.names.get(source), writer.size
    marks = [mark for mark in list(writer.marks) if size - MOST_BYTES <= mark < size]
    if number is None:
        return None
    found: list[_Stretch] = []
    reached, end, step = False, size, (upto - after) * LIKELY_BYTES
    while marks:
        at = max(0, bisect_right(marks, end - step) - 1)
        segment = _blocks(writer, number, marks[at], end)
        if segment is None:
            return None
        found.append(segment)
        end, step = marks[at], 2 * step
        del marks[at:]
        index = segment._index
        if not len(index):
            continue
        reached = reached or int(index[-1, 3]) >= upto  # if not, the last that is wanted is in another file
        if not reached:
            return None
        if int(index[0, 2]) <= after + 1:
            return RecentEvents(found[::-1], writer.header.type, after, upto)
    return None


class _Stretch(Segment):
    """Blocks of one source between two marks of a file."""

    def __init__(self, writer: Writer, data: bytes, blocks: Blocks) -> None:
        super().__init__(writer.path, writer.header, data)
        self._found = blocks


def _blocks(writer: Writer, number: int, start: int, end: int) -> _Stretch | None:
    """The blocks of a source between two marks; None where the file has something else there, as when a write was
    just taken back."""
    data = writer.read(start, end)
    if data is None or len(data) != end - start:
        return None
    at, end, salt, unpack, found = 0, len(data), writer.salt, BLOCK.unpack_from, list[int]()
    view = memoryview(data)
    while at + HEAD <= end:
        crc, length, kind, its, a, b = unpack(data, at)
        stop = at + HEAD + (length + 7 & -8)
        if its == number and EVENT <= kind <= ROWS:
            if stop > end or crc32(view[at + 4 : stop], salt) != crc:
                return None
            found += (kind, its, a, b, at + HEAD, length)
        at = stop
    return _Stretch(writer, data, found) if at == end else None


__all__ = ["MOST_EVENTS", "RecentEvents", "Run", "recent_events"]
