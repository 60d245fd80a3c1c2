"""Events on the wire: runs of one source's events, and the short form for one event.

    EVENT    source u32, number u32, seq u32, stamp i64, record
    EVENTS   source u32, flags u8, number u64, first seq u64, base stamp i64, count u32,
             and if there are several: count u32 seq − first (unless CONTIGUOUS), count u32 stamp − base (unless
             TOGETHER), u32 lengths (one if UNIFORM); if TAGGED: count u16 numbers of tags, the tags u32; the records
    BODY     as EVENT, of a record without its header; so are all of an EVENTS if BARE, and their lengths (if TAGGED,
             each without the header of the type that its first tag says)

`number` counts the frames of one lane, so that a gap is always noticed. Sequence numbers increase; in a tagged run one
may repeat, because one event may give several results. Which form is used is the encoder's choice: `decode` makes
`Events` of all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import msgspec

from headwater.errors import FrameError
from headwater.federation.wire.headerless import Block, Header, Headers, cut, dressed
from headwater.federation.wire.kinds import (
    BARE,
    BATCH,
    BODY,
    COMPRESSED,
    CONTIGUOUS,
    EVENT,
    EVENTS,
    MAX_BASE,
    MAX_FRAME,
    MAX_RUN,
    MAX_SEQ,
    MAX_TAGS,
    PAST,
    REBODY,
    RESENT,
    RETOLD,
    TAGGED,
    TOGETHER,
    U32,
    UNIFORM,
    Data,
    too_large,
    truncated,
)
from headwater.late import np
from headwater.types.layout import HEADER_SIZE

Tags = Sequence[tuple[int, ...]]

FEW_EVENTS = 32  # up to here plain Python beats setting up arrays

_EVENT = struct.Struct("<IBIIIq")  # with the prefix
_EVENT_BODY = struct.Struct("<IIIq")
_EVENTS = struct.Struct("<IBIBQQqI")  # with the prefix
_EVENTS_BODY = struct.Struct("<IBQQqI")
_pack_event = _EVENT.pack
_unpack_event = _EVENT_BODY.unpack_from
_EVENT_EXTRA = _EVENT.size - 4
_MAX_RECORD = MAX_FRAME - _EVENT_EXTRA
_RECORD_AT = _EVENT_BODY.size
EVENT_AT = 1 + _RECORD_AT  # where the record begins in an EVENT, with its kind
event_head = _EVENT_BODY.unpack_from  # source, number, sequence number, stamp
_NUMBER_AT = 10  # in EVENTS, with the prefix: after the kind, the source and the flags
_HALF = U32 // 2
_FLAGS = RESENT | TAGGED | UNIFORM | CONTIGUOUS | TOGETHER | BARE
_AGAIN = {EVENT: bytes((RETOLD,)), BODY: bytes((REBODY,))}
_SIZED = 12  # bytes an event of a run takes beside its record, at most
_HEAD = _EVENTS.size - 4


class Events(msgspec.Struct, gc=False):
    """A decoded run of events. `seqs`, `stamps` and `records` are equally long; `tags` is None if there are none.

    `bare`: they came without their headers, which `dress` puts back."""

    source: int
    number: int  # of the frame on its lane
    seqs: Sequence[int]
    stamps: Sequence[int]  # nanoseconds
    records: Sequence[bytes]
    tags: list[tuple[int, ...]] | None = None
    resent: bool = False
    bare: bool = False

    @property
    def of_the_past(self) -> bool:
        """Whether it is a frame of remembered events, as it should be: three tags, see `PAST`."""
        return self.tags is not None and all(len(tags) == 3 and min(tags) >= PAST for tags in self.tags)

    def dress(self, header: Header | Headers | None) -> None:
        """Put the headers back on: those of the source's event type, None if it has none; or for each its own."""
        if self.bare:
            self.records = header.on(self.records) if isinstance(header, Headers) else dressed(self.records, header)
            self.bare = False


# ── encoding ──


def encode_event(source: int, number: int, seq: int, stamp: int, record: bytes, header: Header | None = None) -> bytes:
    """The frame of one event: the quickest way. With the header of the source's event type it goes without that."""
    size = len(record)
    if 0 < seq <= U32 and 0 <= number <= U32 and size <= _MAX_RECORD:
        try:
            if header is not None and record[:HEADER_SIZE] == header[size]:
                head = _pack_event(size + (_EVENT_EXTRA - HEADER_SIZE), BODY, source, number, seq, stamp)
                return head + record[HEADER_SIZE:]
            return _pack_event(size + _EVENT_EXTRA, EVENT, source, number, seq, stamp) + record
        except struct.error as error:
            raise _unfit(error) from None
    return _encode(source, number, (seq,), (stamp,), (record,), None, False, header)


def encode_events(
    source: int,
    number: int,
    seqs: Sequence[int],
    stamps: Sequence[int],
    records: Sequence[bytes],
    tags: Tags | None = None,
    *,
    resent: bool = False,
    header: Header | Headers | None = None,
) -> bytes:
    """The frame of a run of events, with its prefix. FrameError if it does not fit one frame: see `runs`.

    With the header of the source's event type they go without that, if it is that of all records; so they do with those
    of the types that their tags say."""
    if len(records) == 1 and not isinstance(header, Headers) and tags is None and not resent:
        return encode_event(source, number, seqs[0], stamps[0], records[0], header)
    return _encode(source, number, seqs, stamps, records, tags, resent, header)


def encode_run_first(
    source: int,
    number: int,
    first: int,
    stamps: Sequence[int],
    records: Sequence[bytes],
    *,
    resent: bool = False,
    header: Header | None = None,
) -> bytes:
    """As `encode_events`, of events whose sequence numbers follow one another from `first`."""
    if len(records) == 1 and not resent:
        return encode_event(source, number, first, stamps[0], records[0], header)
    return _encode(source, number, range(first, first + len(records)), stamps, records, None, resent, header)


def resent(frame: bytes) -> bytes:
    """A frame as it is sent again: its events are marked. Frames of other kinds are as they were."""
    kind = frame[4]
    if kind & COMPRESSED:
        raise FrameError("resent: expected a frame that is not compressed; compress it afterwards")
    if kind in _AGAIN:
        return b"".join((frame[:4], _AGAIN[kind], frame[5:]))
    if kind in (EVENTS, BATCH):  # in both the flags follow the source
        return b"".join((frame[:9], bytes((frame[9] | RESENT,)), frame[10:]))
    return frame


def is_past(frame: bytes) -> bool:
    """Whether a frame, with its prefix, is one of remembered events: these have no number on their lane."""
    return frame[4] == EVENTS and frame[_NUMBER_AT : _NUMBER_AT + 8] == bytes(8)


def spans(base: int, stamp: int) -> bool:
    """Whether this stamp may be in one run with another. It holds of a run if it holds of each and the first."""
    return -_HALF <= stamp - base <= _HALF


def runs(
    seqs: Sequence[int],
    stamps: Sequence[int],
    records: Sequence[bytes],
    tags: Tags | None = None,
    *,
    limit: int = MAX_FRAME,
    alone: bool = False,
) -> Iterator[tuple[int, int]]:
    """Where to cut events so that each part fits one frame: (start, end) of each. What one event gave stays together,
    so that a frame never ends between two results of the same event. If that is larger than the limit it is a
    FrameError, or (`alone`) a part of its own, of which the caller has to see whether it fits."""
    count = len(records)
    if not count:
        return
    spread = max(stamps) - min(stamps)
    size = _HEAD + _SIZED * count + sum(map(len, records))
    if tags is None and count <= MAX_RUN and spread <= U32 and seqs[-1] - seqs[0] <= U32 and size <= limit:
        yield 0, count
        return
    start = 0
    while start < count:
        end = _cut(start, seqs, stamps, records, tags, limit, alone)
        yield start, end
        start = end


def _cut(
    start: int,
    seqs: Sequence[int],
    stamps: Sequence[int],
    records: Sequence[bytes],
    tags: Tags | None,
    limit: int,
    alone: bool,
) -> int:
    """How far a run may reach from here."""
    first, low, high = seqs[start], stamps[start], stamps[start]
    payload, tagged, last = 0, 0, start
    for index in range(start, len(records)):
        seq, stamp, count = seqs[index], stamps[index], index - start + 1
        if count > 1 and seq != seqs[index - 1]:
            last = index  # the run may end before this event
        low, high = min(low, stamp), max(high, stamp)
        payload += len(records[index])
        if tags is not None:
            tagged += len(tags[index])
            payload += 2 + 4 * len(tags[index])
        size = _HEAD + payload + (_SIZED * count if count > 1 else 0)
        fits = size <= limit or (alone and last == start)
        if fits and high - low <= U32 and seq - first <= U32 and count <= MAX_RUN and tagged <= MAX_TAGS:
            continue
        if last == start:
            raise too_large(f"events: what event {seq} gave", size, limit)
        return last
    return len(records)


def _encode(
    source: int,
    number: int,
    seqs: Sequence[int],
    stamps: Sequence[int],
    records: Sequence[bytes],
    tags: Tags | None,
    resent: bool,
    header: Header | Headers | None,
) -> bytes:
    """The frame of a run, whatever is in it: checked, and in the shortest of the forms (see the top of this module)."""
    count = len(records)
    if not 0 < count <= MAX_RUN:
        raise FrameError(f"events: expected 1 to {MAX_RUN:,} events in a frame, found {count:,}; split the run")
    if len(seqs) != count or len(stamps) != count or (tags is not None and len(tags) != count):
        raise FrameError(f"events: expected {count} sequence numbers, stamps and tags, one a record")
    flags = (RESENT if resent else 0) | (TAGGED if tags is not None else 0)
    first = seqs[0]
    if not 0 < first <= MAX_SEQ:
        raise FrameError(f"events: expected a sequence number of 1 or more, found {first}")
    parts: list[bytes] = [b""]
    try:
        lengths = list(map(len, records))
        alike, payload, less = lengths.count(lengths[0]) == count, sum(lengths), 0
        bodies = None if header is None or payload > MAX_FRAME else header.off(records, lengths, alike)
        if bodies is not None:
            records, flags, less = bodies, flags | BARE, HEADER_SIZE
        if count == 1:
            base = stamps[0]
        else:
            flags, base = _differences(flags, first, seqs, stamps, parts)
            if alike:
                flags |= UNIFORM
                parts.append(struct.pack("<I", lengths[0] - less))
            else:
                parts.append(struct.pack(f"<{count}I", *[length - less for length in lengths]))
        if tags is not None:
            flat = list(chain.from_iterable(tags))
            if len(flat) > MAX_TAGS:
                raise FrameError(
                    f"events: expected at most {MAX_TAGS:,} tags in a frame, found {len(flat):,}; split it"
                )
            parts.append(struct.pack(f"<{count}H{len(flat)}I", *map(len, tags), *flat))
        size = _HEAD + sum(map(len, parts)) + payload - less * count
        if size > MAX_FRAME:
            raise too_large("events", size, MAX_FRAME)
        parts[0] = _EVENTS.pack(size, EVENTS, source, flags, number, first, base, count)
        parts.extend(records)
        return b"".join(parts)
    except (struct.error, OverflowError) as error:
        raise _unfit(error) from None


def _differences(
    flags: int, first: int, seqs: Sequence[int], stamps: Sequence[int], parts: list[bytes]
) -> tuple[int, int]:
    """Add the differences of several events; the flags with what was found, and the base stamp."""
    count = len(seqs)
    if isinstance(seqs, range):
        flags |= CONTIGUOUS
    elif count <= FEW_EVENTS:
        steps = [seq - first for seq in seqs]
        distinct = sorted(set(steps))
        if distinct != steps and not (flags & TAGGED and sorted(steps) == steps):
            raise _unordered()
        if distinct == steps and steps[-1] == count - 1:
            flags |= CONTIGUOUS
        else:
            parts.append(struct.pack(f"<{count}I", *steps))
    else:
        numbers = np.fromiter(seqs, np.int64, count)
        numbers -= first
        increasing = bool((numbers[1:] > numbers[:-1]).all())
        if not increasing and not (flags & TAGGED and bool((numbers[1:] >= numbers[:-1]).all())):
            raise _unordered()
        if increasing and numbers[-1] == count - 1:
            flags |= CONTIGUOUS
        elif numbers[-1] > U32:
            raise _far("sequence numbers", int(numbers[-1]))
        else:
            parts.append(numbers.astype("<u4").tobytes())
    base = stamps[0]
    if base == stamps[-1] and stamps.count(base) == count:
        flags |= TOGETHER
    elif count <= FEW_EVENTS:
        base = min(stamps)
        parts.append(struct.pack(f"<{count}I", *[stamp - base for stamp in stamps]))
    else:
        times = np.fromiter(stamps, np.int64, count)
        base, high = int(times.min()), int(times.max())
        if high - base > U32:
            raise _far("stamps", high - base)
        times -= base
        parts.append(times.astype("<u4").tobytes())
    if base > MAX_BASE:
        raise _far("stamps", base)
    return flags, base


def _unordered() -> FrameError:
    return FrameError("events: expected increasing sequence numbers in a run; one lane sends them in order")


def _far(what: str, found: int) -> FrameError:
    return FrameError(f"events: expected {what} within {U32:,} of the first of a run, found {found:,}; split the run")


def _unfit(error: Exception) -> FrameError:
    return FrameError(f"events: a source, sequence number, stamp or tag does not fit its place in a frame: {error}")


# ── decoding ──


def decode_event(data: Data, at: int, resent: bool, bare: bool = False) -> Events:
    """The event of an EVENT, or (`bare`) a BODY, whose body begins at `at`."""
    source, number, seq, stamp = _unpack_event(data, at)
    if not seq:
        raise FrameError(f"event: expected a sequence number of 1 or more, found 0 in frame {number}")
    return Events(source, number, [seq], [stamp], [bytes(data[at + _RECORD_AT :])], None, resent, bare)


def decode_events(data: Data, at: int) -> Events:
    """The events of an EVENTS whose body begins at `at`."""
    source, flags, number, first, base, count = _EVENTS_BODY.unpack_from(data, at)
    at += _EVENTS_BODY.size
    if flags & ~_FLAGS:
        raise FrameError(f"events: expected known flags, found {flags:#x}; the peer may be of a newer version")
    if not (0 < first <= MAX_SEQ and number <= MAX_SEQ):
        raise FrameError(f"events: expected a sequence number of 1 to 2**62, found {first} in frame {number}")
    if not 0 < count <= MAX_RUN:
        raise FrameError(f"events: expected 1 to {MAX_RUN:,} events, found {count:,}")
    resent, bare = bool(flags & RESENT), bool(flags & BARE)
    tags: list[tuple[int, ...]] | None = None
    if count == 1:
        if flags & TAGGED:
            tags, at = _tags(data, at, 1)
        return Events(source, number, [first], [base], [bytes(data[at:])], tags, resent, bare)
    if base > MAX_BASE:
        raise FrameError(f"events: expected stamps within 64 bits, found a base of {base}")
    row = 4 * count
    need = at + (0 if flags & TOGETHER else row) + (0 if flags & CONTIGUOUS else row) + (4 if flags & UNIFORM else row)
    if len(data) < need:
        raise truncated(f"events: {count} events", need, len(data))
    seqs: Sequence[int]
    if flags & CONTIGUOUS:
        seqs = range(first, first + count)
    else:
        seqs = _seqs(data, at, count, first, bool(flags & TAGGED))
        at += row
    stamps: list[int]
    if flags & TOGETHER:
        stamps = [base] * count
        at -= row
    elif count <= FEW_EVENTS:
        stamps = [base + delta for delta in struct.unpack_from(f"<{count}I", data, at)]
    else:
        stamps = (np.frombuffer(data, "<u4", count, at) + np.int64(base)).tolist()
    at += row
    lengths_at = at
    at += 4 if flags & UNIFORM else row
    if flags & TAGGED:
        tags, at = _tags(data, at, count)
    records = (_uniform if flags & UNIFORM else _various)(data, lengths_at, at, count, bare)
    return Events(source, number, seqs, stamps, records, tags, resent, bare)


def _seqs(data: Data, at: int, count: int, first: int, tagged: bool) -> list[int]:
    made: list[int]
    if count <= FEW_EVENTS:
        steps = struct.unpack_from(f"<{count}I", data, at)
        ordered = sorted(steps if tagged else set(steps))
        good = not steps[0] and ordered == list(steps)
        made = [first + step for step in ordered]
    else:
        numbers = np.frombuffer(data, "<u4", count, at)
        later, before = numbers[1:], numbers[:-1]
        good = not numbers[0] and bool(((later >= before) if tagged else (later > before)).all())
        made = (numbers + np.int64(first)).tolist()
    if not good:
        raise FrameError("events: expected increasing sequence numbers, from that of the first event")
    return made


def _tags(data: Data, at: int, count: int) -> tuple[list[tuple[int, ...]], int]:
    """The tags of each record, and where they end."""
    counts = struct.unpack_from(f"<{count}H", data, at)
    at += 2 * count
    total = sum(counts)
    if total > MAX_TAGS:
        raise FrameError(f"events: expected at most {MAX_TAGS:,} tags in a frame, found {total:,}")
    flat = struct.unpack_from(f"<{total}I", data, at)
    at += 4 * total
    rest, each = iter(flat), counts[0]
    if each and counts.count(each) == count:
        return list(zip(*[rest] * each, strict=True)), at
    return [tuple(islice(rest, n)) for n in counts], at


def _uniform(data: Data, lengths_at: int, at: int, count: int, bare: bool) -> Sequence[bytes]:
    (size,) = struct.unpack_from("<I", data, lengths_at)
    if len(data) - at != size * count:
        raise FrameError(
            f"events: expected {count:,} records of {size:,} bytes to the end of the frame, found {len(data) - at:,}"
        )
    if not size:
        return [b""] * count
    if count <= FEW_EVENTS:
        body = bytes(data[at:])
        return [body[start : start + size] for start in range(0, len(body), size)]
    if bare:
        return Block(memoryview(data)[at:], size, count)
    made: list[bytes] = np.frombuffer(data, f"V{size}", count, at).tolist()
    return made


def _various(data: Data, lengths_at: int, at: int, count: int, bare: bool) -> Sequence[bytes]:
    lengths = struct.unpack_from(f"<{count}I", data, lengths_at)
    if len(data) - at != sum(lengths):
        raise FrameError(
            f"events: expected {sum(lengths):,} bytes of records to the end of the frame, found {len(data) - at:,}"
        )
    return cut(bytes(data[at:]), lengths)
