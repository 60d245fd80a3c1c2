"""The write-ahead file of a segment: what is written before `publish` returns.

    header   magic (8 bytes), u32 length, u32 crc, u64 crc of these 16 bytes, then that many bytes of JSON:
             channel, node, segment, id and type
    blocks   u32 crc, u32 length, u8 kind, 3 zeros, u32 source, i64 a, i64 b, then that many bytes, then zeros to 8

    kind        source            a             b              bytes
    1 source    its new index     0             0              the source's name
    2 event     index             seq           stamp (ns)     the record
    3 batch     index             first seq     stamp (ns)     i64 rows, then an Arrow IPC message
    4 rows      index             rows          0              i64 seqs, i64 times (µs), then an Arrow IPC message

A message is a RecordBatch of the type's schema, or, if the type has an enumeration, a stream with one.

Everything is little-endian and every block begins at a multiple of 8. The crc is of all that follows it in the block
and begins with a number of the segment's own, so that a block copied into an event's bytes is none. A block that is
short or whose crc is off is torn, if no whole block follows it: the process or the power ended while it was written,
and nobody was told that it is logged. If one does follow, the file is damaged.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from headwater.errors import HeadwaterError, StoreError
from headwater.formats import WRITE_AHEAD
from headwater.late import np, pa
from headwater.store.log.schema import BYTES_RECORD, Table, constant, type_from_text, type_text
from headwater.types import EventType, event_type
from headwater.types.columns import packed_to_batch
from headwater.types.model import Enum, walk

MAGIC = b"HWWAL\r\n" + bytes([WRITE_AHEAD])
SOURCE, EVENT, BATCH, ROWS = 1, 2, 3, 4
HEAD = 32  # bytes of a block before its payload
MAX_PAYLOAD = (1 << 32) - 64
NANOS = 1000  # in a microsecond

_PREFIX = struct.Struct("<8sIIQ")
BLOCK = struct.Struct("<IIB3xIqq")
_ENOUGH = 4 << 30  # bytes that are looked through for a block after a bad one


@dataclass(frozen=True, slots=True)
class Header:
    """Whose events these are."""

    channel: str
    node: str
    segment: int
    id: str
    type: EventType | None

    @property
    def salt(self) -> int:
        """Where the crc of a block begins."""
        return crc32(f"{self.id}/{self.segment}".encode())

    @property
    def rows(self) -> EventType:
        """The type of the events as rows: that of the channel, or one field `data`."""
        return self.type if self.type is not None else event_type(BYTES_RECORD)

    def to_bytes(self) -> bytes:
        known = {"channel": self.channel, "node": self.node, "segment": self.segment, "id": self.id}
        text = json.dumps({**known, "type": type_text(self.type).decode()}).encode()
        text += b" " * (-len(text) % 8)
        prefix = struct.pack("<8sII", MAGIC, len(text), crc32(text))
        return prefix + struct.pack("<Q", crc32(prefix)) + text


@dataclass(frozen=True, slots=True)
class Flaw:
    """Bytes of a file that are no block."""

    offset: int
    bytes: int
    why: str


def has_enum(type: EventType) -> bool:
    """Whether a type has an enumeration in it."""
    return any(isinstance(part, Enum) for part in walk(type.record))


# ── reading ──


class Segment:
    """What a write-ahead file had when it was read: everything whole in it, and what is not.

    `torn` is what was being written last, `damage` what is wrong before whole blocks. `header` is None if even that is
    torn. `end` is where the last whole block ends. `data` holds the file's bytes.
    """

    def __init__(self, path: Path, header: Header | None, data: Any) -> None:
        self.path = path
        self.header = header
        self.data = data
        self.end = 0
        self.torn: Flaw | None = None
        self.damage: list[Flaw] = []
        self.names: dict[int, str] = {}  # of sources, by index
        self._found: list[int] = []  # of each block of events kind, source, a, b, start and length, end to end

    # ── what is there ──

    @property
    def place(self) -> str:
        return f"log {os.fspath(self.path)!r}"

    @cached_property
    def _index(self) -> Any:
        """A row for each block of events: kind, source, first seq, last seq, rows, stamp, start, length."""
        found = np.array(self._found, np.int64).reshape(-1, 6)
        made = np.empty((len(found), 8), np.int64)
        made[:, :2], made[:, 6:] = found[:, :2], found[:, 4:]
        made[:, 2] = made[:, 3] = found[:, 2]
        made[:, 4], made[:, 5] = 1, found[:, 3]
        self._found = []
        for at in np.flatnonzero(made[:, 0] != EVENT):
            kind, _, a, _, start, _ = found[at].tolist()
            if kind == BATCH:
                count = int.from_bytes(self.data[start : start + 8], "little")
                made[at, 3], made[at, 4] = a + count - 1, count
            else:
                seqs = np.frombuffer(self.data, np.int64, a, start)
                made[at, 2], made[at, 3], made[at, 4] = seqs[0], seqs[-1], a
        return made

    @property
    def rows(self) -> int:
        """How many events there are."""
        return int(self._index[:, 4].sum())

    @cached_property
    def _by_source(self) -> tuple[Any, Any, Any]:
        """The blocks in order of source, where each source begins there, and its index."""
        order = np.argsort(self._index[:, 1], kind="stable")
        numbers, starts = np.unique(self._index[order, 1], return_index=True)
        return order, starts, numbers

    @cached_property
    def spans(self) -> dict[str, tuple[int, int, int]]:
        """Of each source the first and last sequence number, and how many events."""
        order, starts, numbers = self._by_source
        if not len(order):
            return {}
        index = self._index[order]
        firsts, lasts = np.minimum.reduceat(index[:, 2], starts), np.maximum.reduceat(index[:, 3], starts)
        counts = np.add.reduceat(index[:, 4], starts)
        names = [self.names[number] for number in numbers.tolist()]
        return dict(zip(names, zip(firsts.tolist(), lasts.tolist(), counts.tolist(), strict=True), strict=True))

    @cached_property
    def last_times(self) -> dict[str, int]:
        """Of each source the last event's time, in microseconds."""
        order, starts, numbers = self._by_source
        made = {}
        for number, at in zip(
            numbers.tolist(), order[[*(starts[1:] - 1), -1]].tolist() if len(order) else (), strict=True
        ):
            kind, _, _, _, rows, stamp, start, _ = self._index[at].tolist()
            times = np.frombuffer(self.data, np.int64, rows, start + 8 * rows) if kind == ROWS else None
            made[self.names[number]] = int(times[-1]) if times is not None else stamp // NANOS
        return made

    # ── the events ──

    def batches(
        self, table: Table, *, source: str | None = None, after: int = 0, upto: int | None = None,
        ordered: bool = False, rows: int = 65536,
    ) -> Iterator[Any]:  # fmt: skip
        """The events as RecordBatches of a table's schema, at most `rows` in each: those of one source or all, with
        `after` < seq <= `upto`, in the order they were written, or `ordered` by source and sequence number."""
        if self.header is None:
            return
        index = self._index
        chosen = np.arange(len(index))
        if source is not None:
            number = next((n for n, name in self.names.items() if name == source), -1)
            chosen = chosen[index[:, 1] == number]
        if after or upto is not None:
            fits = index[chosen, 3] > after
            chosen = chosen[fits if upto is None else fits & (index[chosen, 2] <= upto)]
        if ordered:
            ranks = np.zeros(max(self.names, default=0) + 1, np.int64)
            for rank, number in enumerate(sorted(self.names, key=self.names.__getitem__)):
                ranks[number] = rank
            chosen = chosen[np.argsort(ranks[index[chosen, 1]], kind="stable")]
        try:
            yield from self._chosen(table, chosen, after, upto, rows)
        except (HeadwaterError, pa.ArrowException, ValueError) as error:
            raise StoreError(f"{self.place}: expected events of {self.header.rows.name}, found: {error}") from error

    def _chosen(self, table: Table, chosen: Any, after: int, upto: int | None, rows: int) -> Iterator[Any]:
        """The chosen blocks as batches of the table's columns, in the order in which they were written."""
        assert self.header is not None
        index, node = self._index, self.header.node
        names = pa.array([self.names.get(n, "") for n in range(max(self.names, default=0) + 1)], pa.utf8())
        single = index[chosen, 0] == EVENT
        # Runs of single events are gathered; each batch stands for itself.
        cuts: Any = np.flatnonzero(~(single[1:] & single[:-1])) + 1
        for run in np.split(chosen, cuts):
            if len(run) == 0:
                continue
            if index[run[0], 0] == EVENT:
                for at in range(0, len(run), rows):
                    part = index[run[at : at + rows]]
                    sources = names.take(pa.array(part[:, 1]))
                    fields = self._records(part)
                    yield table.rows(constant(node, len(part)), sources, part[:, 2], part[:, 5] // NANOS, fields)
                continue
            seqs, times, fields = self._columns(int(run[0]))
            low = int(np.searchsorted(seqs, after, "right"))
            high = len(seqs) if upto is None else int(np.searchsorted(seqs, upto, "right"))
            name = self.names[int(index[run[0], 1])]
            for at in range(low, high, rows):
                to = min(at + rows, high)
                yield table.batch(node, name, seqs[at:to], times[at:to], fields.slice(at, to - at))

    def _records(self, part: Any) -> Any:
        """Single events as a batch of their type."""
        assert self.header is not None
        starts, sizes = part[:, 6], part[:, 7]
        words = sizes + 7 >> 3
        ends = np.cumsum(words)
        source = np.arange(ends[-1]) + np.repeat((starts >> 3) - ends + words, words)
        blob = np.frombuffer(self.data, np.uint64, len(self.data) >> 3)[source].view(np.uint8)
        if self.header.type is not None:
            return packed_to_batch(self.header.type.layout, blob, sizes)
        offsets = np.zeros(len(part) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if offsets[-1] >= 1 << 31:
            raise ValueError("more than 2 GiB in one batch")
        if (sizes & 7).any():  # without the zeros between them
            padded = np.repeat(8 * (ends - words) - offsets[:-1], sizes)
            blob = blob[np.arange(offsets[-1]) + padded]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(blob)]
        column = pa.Array.from_buffers(pa.binary(), len(part), buffers)
        return pa.RecordBatch.from_arrays([column], schema=self.header.rows.schema)

    def _columns(self, at: int) -> tuple[Any, Any, Any]:
        """Sequence numbers, times and fields of a block that is a batch."""
        assert self.header is not None
        kind, _, first, _, count, stamp, start, length = self._index[at].tolist()
        stop = start + length
        if kind == BATCH:
            seqs = np.arange(first, first + count)
            times = np.full(count, stamp // NANOS)
            start += 8
        else:
            seqs = np.frombuffer(self.data, np.int64, count, start)
            times = np.frombuffer(self.data, np.int64, count, start + 8 * count)
            start += 16 * count
        message, rows = pa.py_buffer(self.data[start:stop]), self.header.rows
        if has_enum(rows):
            fields = pa.ipc.open_stream(message).read_next_batch()
        else:
            fields = pa.ipc.read_record_batch(message, rows.schema)
        if fields.num_rows != count:
            raise ValueError(f"{fields.num_rows} rows where {count} were said to be")
        return seqs, times, fields


def read(path: Path, *, instead: Header | None = None) -> Segment:
    """Everything in a write-ahead file, whoever is writing it meanwhile. `instead` is the header to go by if the
    file's own is damaged, which is a `StoreError` otherwise."""
    with pa.OSFile(os.fspath(path)) as file:
        data = memoryview(file.read_buffer(file.size()))
    header, start, flaw = _read_header(path, data)
    segment = Segment(path, header, data)
    if header is None and flaw is None:
        segment.torn = Flaw(0, len(data), "the file ends within its header") if len(data) else Flaw(0, 0, "it is empty")
        return segment
    if flaw is not None:
        if instead is None:
            raise StoreError(
                f"log {os.fspath(path)!r}: expected a write-ahead file, found: {flaw.why}; run headwater log repair"
            )
        segment.damage.append(flaw)
        segment.header = instead
    _scan(segment, start)
    return segment


def _read_header(path: Path, data: memoryview) -> tuple[Header | None, int, Flaw | None]:
    """The header and where the blocks begin; neither a header nor a flaw if the file ends too early."""
    if len(data) < _PREFIX.size:
        return (None, 0, None) if MAGIC.startswith(data[:8]) or not any(data) else (None, 0, _foreign(data))
    magic, length, crc, check = _PREFIX.unpack_from(data)
    if crc32(data[:16]) != check or magic != MAGIC:
        if len(data) < 1 << 20 and not any(data):
            return None, 0, None  # its size was on the disk before its bytes
        return None, 0, _foreign(data) if magic != MAGIC else Flaw(0, _PREFIX.size, "its header is damaged")
    start = _PREFIX.size + length
    if start > len(data):
        return None, 0, None
    text = bytes(data[_PREFIX.size : start])
    if crc32(text) == crc:
        try:
            found = json.loads(text)
            type = type_from_text(found["type"].encode(), f"log {os.fspath(path)!r}")
            return Header(found["channel"], found["node"], found["segment"], found["id"], type), start, None
        except (ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
            return None, start, Flaw(0, start, f"its header cannot be understood: {error}")
    if start == len(data):
        return None, 0, None  # written but for some of its bytes, and nothing after it
    return None, 0, Flaw(0, min(start, len(data)), "its header is damaged")


def _foreign(data: memoryview) -> Flaw:
    return Flaw(0, min(8, len(data)), f"it begins with {bytes(data[:8])!r}, not with {MAGIC!r}")


def _scan(segment: Segment, at: int) -> None:
    """Find the blocks."""
    assert segment.header is not None
    data, end, salt = segment.data, len(segment.data), segment.header.salt
    unpack, names, found = BLOCK.unpack_from, segment.names, segment._found
    if segment.damage:
        at = _next_block(data, 0, end, salt)
        segment.damage[0] = Flaw(0, at, segment.damage[0].why)
    segment.end = at
    while at < end:
        why = "it is short"
        if end - at >= HEAD:
            crc, length, kind, source, a, b = unpack(data, at)
            stop = at + HEAD + (length + 7 & -8)
            if stop <= end:
                if crc32(data[at + 4 : stop], salt) == crc:
                    at += HEAD
                    if kind == SOURCE:
                        names[source] = str(data[at : at + length], "utf-8", "surrogatepass")
                    elif source in names and EVENT <= kind <= ROWS:
                        found += (kind, source, a, b, at, length)
                    else:
                        segment.damage.append(Flaw(at - HEAD, stop - at + HEAD, f"a source {source} without a name"))
                    segment.end = at = stop
                    continue
                why = "its checksum is off"
        after = _next_block(data, at + 8, end, salt)
        if after == end:
            segment.torn = Flaw(at, end - at, f"the last block is torn: {why}")
            return
        segment.damage.append(Flaw(at, after - at, f"a block is damaged: {why}"))
        at = after


def _next_block(data: memoryview, at: int, end: int, salt: int) -> int:
    """Where the next whole block begins, or the end. If that cannot be told with reasonable effort, the next place
    that looks like one: so that what may be damage is never taken for a torn end."""
    at += -at % 8
    count = (end - at - HEAD) // 8 + 1
    if count <= 0:
        return end
    words = np.frombuffer(data, np.uint32, 2 * (count + 1), at)
    kinds, lengths = words[2::2], words[1:-1:2].astype(np.int64)
    room = end - at - HEAD - 8 * np.arange(count)
    spent = 0
    for candidate in np.flatnonzero((kinds >= SOURCE) & (kinds <= ROWS) & (lengths <= room)).tolist():
        start = at + 8 * candidate
        crc, length, *_ = BLOCK.unpack_from(data, start)
        stop = start + HEAD + (length + 7 & -8)
        spent += stop - start
        if spent > _ENOUGH or (stop <= end and crc32(data[start + 4 : stop], salt) == crc):
            return start
    return end
