"""Batches on the wire: rows of one source as an Arrow record batch message.

    BATCH   source u32, flags u8, tag u32, number u64, first seq u64, stamp i64, rows u32,
            rows u32 seq − first (unless CONTIGUOUS), one Arrow IPC record batch message

The schema does not travel: it is that of the source's event type. Nor do the dictionaries of enumerations, which the
event type says too; the message has the indices. Before Arrow sees a message its head is read here, to refuse buffers
that are compressed (a few bytes could ask for gigabytes; a frame is compressed as a whole, with a bound) or that lie
over one another. What it gives is checked in full, against Arrow's rules and the event type's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import and_
from typing import Any, NamedTuple

import msgspec

from headwater.errors import EncodeError, EvolutionError, FrameError
from headwater.federation.wire.arrow_messages import ROWS, head_of, rows_of
from headwater.federation.wire.kinds import (
    BATCH,
    CONTIGUOUS,
    MAX_FRAME,
    MAX_ROWS,
    MAX_SEQ,
    RESENT,
    U32,
    Data,
    check_columns,
    too_large,
    truncated,
)
from headwater.late import np, pa, pc
from headwater.types.arrow import record_from_schema
from headwater.types.conform import conform
from headwater.types.model import TIMESTAMP, Record, Scalar

HEAD_BYTES = 4096  # bytes of a head that is worth remembering
FEW_ROWS = 8192  # rows that are serialised without looking first whether they fit
_BATCH = struct.Struct("<IBIBIQQqI")  # with the prefix
_BODY = struct.Struct("<IBIQQqI")
_MARK = struct.Struct("<II")


class Batch(msgspec.Struct):
    """A decoded batch frame; `batch(schema)` reads the rows themselves."""

    source: int
    tag: int
    number: int  # of the frame on its lane
    first: int
    stamp: int  # nanoseconds
    rows: int
    steps: Any  # a u32 array: what is added to `first` for each row; None: they follow one another
    message: memoryview
    resent: bool = False

    @property
    def seqs(self) -> Any:
        """The sequence number of each row, an int64 array."""
        if self.steps is None:
            return np.arange(self.first, self.first + self.rows, dtype=np.int64)
        return self.steps + np.int64(self.first)

    @property
    def last(self) -> int:
        """The sequence number of the last row."""
        return self.first + (self.rows - 1 if self.steps is None else int(self.steps[-1]))

    def batch(self, schema: Any) -> Any:
        """The rows, as a RecordBatch with this schema (the one of the source's event type)."""
        known = _known(schema)
        record, prefix = known.record, known.prefix
        data = bytes(self.message)  # one copy: a frame lies anywhere in what was received, Arrow wants 8 bytes
        rows, whole = _check_message(data, known.present)
        if rows != self.rows:
            raise FrameError(f"batch: expected {self.rows:,} rows, found a record batch of {rows:,}")
        try:
            if prefix is None:
                batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
                if whole:  # it has the schema by now, and nulls where they may be
                    batch.validate(full=True)
                    return batch
            else:
                batch = pa.ipc.open_stream(pa.py_buffer(prefix + data)).read_next_batch()
            batch = conform(record, batch, check=True)
            _check_times(record, batch)
            return batch
        except (pa.ArrowException, EncodeError, EvolutionError, OSError, StopIteration, ValueError) as error:
            raise FrameError(f"batch: expected rows of {record.name}, found: {error}") from None


def _check_times(record: Record, batch: Any) -> None:
    """`conform` takes the times of a batch that fits as it is for good; those of another node may be any number."""
    for index, field in enumerate(record.fields):
        if field.type == TIMESTAMP:
            low, high = pc.min_max(batch.column(index).cast(pa.int64())).as_py().values()
            least, most = TIMESTAMP.range
            if low is not None and not least <= low <= high <= most:
                raise EncodeError(field.name, f"expected times in the years 1 to 9999, found {low} to {high} µs")


class _Known(NamedTuple):
    """The event type of a schema and, if it has enumerations, the beginning of an Arrow stream with the schema and
    the dictionaries, which only needs a record batch after it.

    `present`: of a type that only has plain fields, and no times, one byte for each, 0 where a null may be."""

    record: Record
    prefix: bytes | None
    present: bytes | None


_seen: dict[int, tuple[Any, _Known]] = {}  # by the schema's id, which is its own as long as it is kept here
_SEEN = 256


def _known(schema: Any) -> _Known:
    found = _seen.get(id(schema))
    if found is None:
        # Two schemas are equal to Arrow, and hash alike, even if the metadata of their fields says different members.
        found = schema, _of_schema(schema.serialize().to_pybytes())
        if len(_seen) >= _SEEN:
            _seen.clear()
        _seen[id(schema)] = found
    return found[1]


@lru_cache(maxsize=256)
def _of_schema(serial: bytes) -> _Known:
    schema = pa.ipc.read_schema(pa.py_buffer(serial))
    record = record_from_schema(schema)
    empty = conform(record, schema.empty_table())
    if not empty.schema.equals(schema, check_metadata=True):
        raise FrameError(f"batch: expected the Arrow schema of {record.name}, found another that only resembles it")
    if not any(_has_dictionary(field.type) for field in schema):
        return _Known(record, None, _plain(record))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(empty)
    whole = sink.getvalue().to_pybytes()
    return _Known(record, whole[: len(whole) - empty.serialize().size - 8], None)  # 8: the end of the stream


def _plain(record: Record) -> bytes | None:
    if not all(isinstance(field.type, Scalar) and field.type != TIMESTAMP for field in record.fields):
        return None
    return bytes(not field.optional for field in record.fields)


def _has_dictionary(type: Any) -> bool:
    if pa.types.is_dictionary(type):
        return True
    return any(_has_dictionary(type.field(i).type) for i in range(type.num_fields))


# ── encoding ──


def encode_batch(
    source: int,
    number: int,
    seqs: int | Sequence[int] | Any,
    stamp: int,
    batch: Any,
    tag: int = 0,
    *,
    resent: bool = False,
    plain: bool = False,
) -> bytes:
    """The frame of a RecordBatch that has its event type's schema. `seqs` is the first row's sequence number if they
    follow one another, otherwise one a row; `plain` says that the type has no enumerations, which saves looking.
    FrameError if it does not fit one frame: see `encode_batches`."""
    rows = int(batch.num_rows)
    if not 0 < rows <= MAX_ROWS:
        raise _too_many(rows)
    message = batch.serialize() if plain else _message(batch)
    return encode_message(source, number, seqs, stamp, rows, message, tag, resent=resent)


def _too_many(rows: int) -> FrameError:
    return FrameError(f"batch: expected 1 to {MAX_ROWS:,} rows in a frame, found {rows:,}; split the batch")


def encode_message(
    source: int,
    number: int,
    seqs: int | Sequence[int] | Any,
    stamp: int,
    rows: int,
    message: Any,
    tag: int = 0,
    *,
    resent: bool = False,
) -> bytes:
    """The same, given the Arrow message of a batch and the number of its rows."""
    steps = None if isinstance(seqs, int) else np.asarray(seqs, np.int64)
    first = seqs if isinstance(seqs, int) else int(steps[0]) if steps is not None and len(steps) else 0
    if not 0 < rows <= MAX_ROWS:
        raise _too_many(rows)
    if not 0 < first <= MAX_SEQ:
        raise FrameError(f"batch: expected a sequence number of 1 or more, found {first}")
    flags = (RESENT if resent else 0) | CONTIGUOUS
    middle = b""
    if steps is not None:
        if len(steps) != rows or not bool((steps[1:] > steps[:-1]).all()):
            raise FrameError(f"batch: expected {rows:,} increasing sequence numbers, one a row")
        far = int(steps[-1]) - first
        if far > U32:
            raise FrameError(f"batch: expected sequence numbers within {U32:,} of the first, found {far:,}; split it")
        if far != rows - 1:
            flags &= ~CONTIGUOUS
            middle = (steps - first).astype("<u4").tobytes()
    size = _BATCH.size - 4 + len(middle) + len(message)
    if size > MAX_FRAME:
        raise too_large("batch", size, MAX_FRAME)
    try:
        head = _BATCH.pack(size, BATCH, source, flags, tag, number, first, stamp, rows)
    except struct.error as error:
        raise FrameError(f"batch: a source, tag or stamp does not fit its place in a frame: {error}") from None
    return b"".join((head, middle, message))


def encode_batches(
    source: int,
    number: int,
    seqs: int | Sequence[int] | Any,
    stamp: int,
    batch: Any,
    tag: int = 0,
    *,
    resent: bool = False,
    plain: bool = False,
    limit: int = MAX_FRAME,
) -> list[bytes]:
    """As many frames as these rows need, numbered on from `number`: at most `limit` bytes each (kind and body).
    FrameError only if one row alone is too large."""
    rows = int(batch.num_rows)
    if plain and 0 < rows <= FEW_ROWS and pa.ipc.get_record_batch_size(batch) <= limit:  # as a rule they fit
        frame = encode_batch(source, number, seqs, stamp, batch, tag, resent=resent, plain=True)
        if len(frame) - 4 <= limit:
            return [frame]
    numbers = np.arange(seqs, seqs + rows, dtype=np.int64) if isinstance(seqs, int) else np.asarray(seqs, np.int64)
    made: list[bytes] = []
    waiting = [(0, rows)] if rows else []
    while waiting:
        start, end = waiting.pop()
        its, part = numbers[start:end], batch.slice(start, end - start)
        # What the rows take in memory, about: a whole batch is not serialised only to see that it is too large.
        fits = end - start <= MAX_ROWS and part.nbytes <= limit and int(its[-1]) - int(its[0]) <= U32
        frame = b""
        if fits or end - start == 1:
            frame = encode_batch(source, number, its, stamp, part, tag, resent=resent, plain=plain)
        if frame and len(frame) - 4 <= limit:
            made.append(frame)
            number += 1
        elif end - start > 1:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
        else:
            raise too_large("batch: one row", len(frame) - 4, limit)
    return made


def _message(batch: Any) -> Any:
    """The Arrow message of a batch, with the dictionaries that the reader puts there."""
    if any(_has_dictionary(field.type) for field in batch.schema):
        try:
            batch = conform(_known(batch.schema).record, batch)
        except (EncodeError, EvolutionError, pa.ArrowException) as error:
            raise FrameError(f"batch: expected rows of an event type, found: {error}") from None
    return batch.serialize()


# ── decoding ──


def decode_batch(data: Data, at: int) -> Batch:
    """The batch of a BATCH whose body begins at `at`."""
    check_columns("batch")
    source, flags, tag, number, first, stamp, rows = _BODY.unpack_from(data, at)
    at += _BODY.size
    if flags & ~(RESENT | CONTIGUOUS):
        raise FrameError(f"batch: expected known flags, found {flags:#x}; the peer may be of a newer version")
    if not (0 < first <= MAX_SEQ and number <= MAX_SEQ):
        raise FrameError(f"batch: expected a sequence number of 1 to 2**62, found {first} in frame {number}")
    if not 0 < rows <= MAX_ROWS:
        raise FrameError(f"batch: expected 1 to {MAX_ROWS:,} rows, found {rows:,}")
    steps = None
    if not flags & CONTIGUOUS:
        if len(data) - at < 4 * rows:
            raise truncated(f"batch: {rows} rows", at + 4 * rows, len(data))
        steps = np.frombuffer(data, "<u4", rows, at)
        if steps[0] or not bool((steps[1:] > steps[:-1]).all()):
            raise FrameError("batch: expected increasing sequence numbers, from that of the first row")
        at += 4 * rows
    message = memoryview(data)[at:]
    return Batch(source, tag, number, first, stamp, rows, steps, message, bool(flags & RESENT))


def _check_message(message: bytes, present: bytes | None) -> tuple[int, bool]:
    """The rows of an Arrow record batch message that may be given to Arrow; and whether it says that there are as many
    columns as in `present`, none with nulls where there must be none. (Arrow believes a message's counts of nulls, and
    checks those that are not 0.)"""
    if len(message) < 8:
        raise FrameError("batch: expected an Arrow message, found a broken beginning")
    mark, size = _MARK.unpack_from(message)
    head = message[8 : 8 + size]
    if mark != U32 or len(head) != size:
        raise FrameError("batch: expected an Arrow message, found a broken beginning")
    try:
        rows, body, nulls = _check_head(head) if size <= HEAD_BYTES else _check_head.__wrapped__(head)
    except FrameError as error:
        raise FrameError(f"batch: {error}") from None
    if body != len(message) - 8 - size:
        raise FrameError(f"batch: expected a body of {len(message) - 8 - size:,} bytes, found {body:,}")
    whole = present is not None and len(nulls) == len(present)
    return rows, whole and not any(map(and_, nulls, present or b""))


@lru_cache(maxsize=512)  # rows of one type and number have one head, byte for byte
def _check_head(whole: bytes) -> tuple[int, int, bytes]:
    """The rows of a message with this head, the length of its body, and for each column whether it has nulls."""
    head = memoryview(whole)
    kind, place, body = head_of(head)
    if kind != ROWS:
        raise FrameError("expected an Arrow record batch message, found another kind")
    rows = rows_of(head, place, body)
    if rows.compressed:
        raise FrameError("expected plain Arrow buffers, found compressed ones; compress the frame instead")
    return rows.rows, body, rows.nulls
