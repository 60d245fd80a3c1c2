"""What an Arrow message says of itself, read here before Arrow reads it: Arrow believes what it is told.

A few kilobytes can ask Arrow for gigabytes: buffers that unpack to any size, columns and texts that stand once in a
message and are referred to many times, rows of columns that have no bytes. So the heads of messages, which are
flatbuffers, are walked here first; each part is counted as often as it is referred to, and what our own senders never
make is refused.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headwater.errors import FrameError
from headwater.federation.wire.kinds import U32, Data
from headwater.late import np

SCHEMA, DICTIONARY, ROWS = 1, 2, 3  # kinds of messages in Arrow's Message.fbs
MAX_FIELDS = 8192  # of a schema, with those within others
MAX_DEPTH = 64  # of fields within fields

_MARK = struct.Struct("<II")
_KIND, _HEADER, _BODY_LENGTH, _NOTES = 1, 2, 3, 4  # places of a Message
_LENGTH, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = 0, 1, 2, 3, 4  # of a RecordBatch
_DATA, _DELTA = 1, 2  # of a DictionaryBatch
_FIELDS, _SCHEMA_NOTES = 1, 2  # of a Schema
_NAME, _TYPE_KIND, _TYPE, _CHILDREN, _FIELD_NOTES = 0, 2, 3, 5, 6  # of a Field
_KEY, _VALUE = 0, 1  # of a KeyValue
_ZONE = 1  # of a Timestamp
# Int, FloatingPoint, Binary, Utf8, Bool, Timestamp, List, Struct and FixedSizeList: what event types are made of.
_TIMESTAMP, _TYPES = 10, frozenset((2, 3, 4, 5, 6, 10, 12, 13, 16))


class Message(NamedTuple):
    """The head of a message, and where it ends."""

    kind: int
    head: memoryview
    at: int  # in the head: where what it is about begins
    body: int  # bytes that follow the head
    end: int  # of the head, in the data


class Rows(NamedTuple):
    """What a record batch, or the values of a dictionary, say of themselves."""

    rows: int
    most: int  # rows of the column that has most; lists have more elements than there are rows
    nulls: bytes  # for each column, 1 if it has some
    places: list[int]  # offset and length of each buffer, in turn
    compressed: bool


def message(data: Data, at: int = 0) -> Message | None:
    """The message that begins at a place; None at the end of a stream."""
    if len(data) - at < 8:
        raise FrameError("expected an Arrow message, found a broken beginning")
    mark, size = _MARK.unpack_from(data, at)
    if mark == U32 and not size:
        return None
    head = memoryview(data)[at + 8 : at + 8 + size]
    if mark != U32 or len(head) != size:
        raise FrameError("expected an Arrow message, found a broken beginning")
    kind, place, body = head_of(head)
    return Message(kind, head, place, body, at + 8 + size)


def head_of(head: memoryview) -> tuple[int, int, int]:
    """The kind of a message, where in its head its own part begins, and the bytes of its body."""
    try:
        table = _number("<I", head, 0)
        kind, place = _place(head, table, _KIND), _place(head, table, _HEADER)
        body = _long(head, _place(head, table, _BODY_LENGTH))
        if _place(head, table, _NOTES):
            raise FrameError("expected an Arrow message without metadata of its own, found some")
        if not kind or not place or body < 0:
            raise FrameError("expected an Arrow message, found one of no kind, or without a length")
        return _number("<B", head, kind), place + _number("<I", head, place), body
    except struct.error as error:
        raise FrameError(f"expected an Arrow message, found: {error}") from None


# ── rows ──


def rows_of(head: memoryview, at: int, body: int) -> Rows:
    """A record batch at a place of a head: its buffers lie in its body, and not over one another."""
    try:
        if _place(head, at, _VARIADIC):
            raise FrameError("expected columns that are no views, found some that are")
        places = _pairs(head, _place(head, at, _BUFFERS), "the places of Arrow's buffers")
        lengths = places[1::2]
        # More than the body has in total would mean that some lie over one another.
        if min(places, default=0) < 0 or sum(lengths) > body:
            raise FrameError(f"expected Arrow buffers of {body:,} bytes in total, found other sizes")
        nodes = _pairs(head, _place(head, at, _NODES), "the counts of Arrow's columns")
        rows = _long(head, _place(head, at, _LENGTH))
        nulls = bytes(map(bool, nodes[1::2]))
        compressed = bool(_place(head, at, _COMPRESSION))
        return Rows(rows, max(rows, *nodes[::2], 0), nulls, places, compressed)
    except struct.error as error:
        raise FrameError(f"expected an Arrow message, found: {error}") from None


def dictionary_of(head: memoryview, at: int, body: int) -> Rows:
    """The same of the values of a dictionary; one that is added to an earlier one is refused."""
    try:
        if (delta := _place(head, at, _DELTA)) and _number("<B", head, delta):
            raise FrameError("expected whole dictionaries, found an addition to one")
        values = _place(head, at, _DATA)
        if not values:
            raise FrameError("expected the values of a dictionary, found none")
        return rows_of(head, values + _number("<I", head, values), body)
    except struct.error as error:
        raise FrameError(f"expected an Arrow message, found: {error}") from None


def unpacked(rows: Rows, body: memoryview) -> int:
    """How many bytes the buffers of some rows take once they are unpacked, as they say themselves: Arrow makes room for
    that many, and takes no more."""
    if not rows.compressed:
        return sum(rows.places[1::2])
    total = 0
    for offset, length in zip(rows.places[::2], rows.places[1::2], strict=True):
        if not length:
            continue
        if length < 8 or offset + length > len(body):
            raise FrameError("expected compressed buffers that say how long they are, found one that does not")
        (size,) = struct.unpack_from("<q", body, offset)
        if size < -1:
            raise FrameError(f"expected compressed buffers that say how long they are, found {size}")
        total += length - 8 if size == -1 else size  # -1: it is not compressed after all
    return total


def _pairs(head: memoryview, at: int, what: str) -> list[int]:
    """A vector of two numbers of 64 bits each, one after another."""
    if not at:
        return []
    at += _number("<I", head, at)
    count = _number("<I", head, at)
    if 16 * count > len(head) - at - 4:
        raise FrameError(f"expected {what}, found the end of the message's head")
    found: list[int] = np.frombuffer(head, "<i8", 2 * count, at + 4).tolist()
    return found


# ── schemas ──


def check_schema(head: memoryview, at: int) -> int:
    """How many fields a schema has, with those within others. FrameError if they are too many, too deep, of kinds that
    event types are not made of, or if their texts are more than the whole head: then some are referred to twice."""
    try:
        return _Walk(head).schema(at)
    except struct.error as error:
        raise FrameError(f"expected an Arrow schema, found: {error}") from None


class _Walk:
    """A walk through a schema, which counts what Arrow would make of it."""

    def __init__(self, head: memoryview) -> None:
        self._head, self._fields, self._left = head, 0, len(head)

    def schema(self, at: int) -> int:
        waiting = [(field, 1) for field in self._vector(at, _FIELDS)]
        self._notes(at, _SCHEMA_NOTES)
        while waiting:
            field, depth = waiting.pop()
            self._fields += 1
            if self._fields > MAX_FIELDS or depth > MAX_DEPTH:
                raise FrameError(f"expected at most {MAX_FIELDS:,} fields, {MAX_DEPTH} within one another, found more")
            self._field(field)
            waiting += [(child, depth + 1) for child in self._vector(field, _CHILDREN)]
        return self._fields

    def _field(self, at: int) -> None:
        self._text(at, _NAME)
        self._notes(at, _FIELD_NOTES)
        place = _place(self._head, at, _TYPE_KIND)
        kind = _number("<B", self._head, place) if place else 0
        if kind not in _TYPES:
            raise FrameError(f"expected fields of types that events have, found Arrow's type number {kind}")
        if kind == _TIMESTAMP and (type := _place(self._head, at, _TYPE)):
            self._text(type + _number("<I", self._head, type), _ZONE)

    def _notes(self, at: int, slot: int) -> None:
        for note in self._vector(at, slot):
            self._text(note, _KEY)
            self._text(note, _VALUE)

    def _text(self, at: int, slot: int) -> None:
        if place := _place(self._head, at, slot):
            self._take(_number("<I", self._head, place + _number("<I", self._head, place)))

    def _vector(self, at: int, slot: int) -> list[int]:
        """The places of the tables that a vector refers to."""
        place = _place(self._head, at, slot)
        if not place:
            return []
        place += _number("<I", self._head, place)
        count = _number("<I", self._head, place)
        self._take(4 * count)
        return [each + _number("<I", self._head, each) for each in range(place + 4, place + 4 + 4 * count, 4)]

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise FrameError(
                f"expected a schema that says each thing once, found more than its {len(self._head):,} bytes"
            )


# ── flatbuffers ──


def _number(form: str, head: memoryview, at: int) -> int:
    if at < 0:
        raise FrameError("expected an Arrow message, found a place before its beginning")
    value: int = struct.unpack_from(form, head, at)[0]
    return value


def _long(head: memoryview, at: int) -> int:
    return _number("<q", head, at) if at else 0


def _place(head: memoryview, table: int, slot: int) -> int:
    """Where a flatbuffer table has one of its values; 0 if it has none."""
    names = table - _number("<i", head, table)
    if 6 + 2 * slot > _number("<H", head, names):
        return 0
    offset = _number("<H", head, names + 4 + 2 * slot)
    return table + offset if offset else 0


__all__ = [
    "DICTIONARY",
    "MAX_FIELDS",
    "ROWS",
    "SCHEMA",
    "Message",
    "Rows",
    "check_schema",
    "dictionary_of",
    "head_of",
    "message",
    "rows_of",
    "unpacked",
]
