"""What the footer of a Parquet file says of its row groups, read here.

Arrow reads footers as well, but what it finds wrong only when a part is looked at (a column that is of another kind
than in the schema, bounds with too few bytes) ends the process: its library raises what nobody catches. One changed
byte is enough. So Arrow is not asked for any of this; it is only asked to read rows, where it raises as it should.

A footer is written in the compact protocol of Thrift. What is of no interest here is stepped over.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headwater.store.log.seal import Damaged, footer_bytes

DEEPEST = 32  # parts within parts

_NUMBERS, _BINARY, _LIST, _STRUCT = (4, 5, 6), 8, 9, 12  # kinds of Thrift
_LISTS = (_LIST, 10)  # and sets

T = TypeVar("T")


@dataclass(slots=True)
class Chunk:
    """What a row group has of a column. `least` and `greatest` are as they are written, None if they are not."""

    path: str = ""
    kind: int = -1
    values: int = 0
    bytes: int = 0  # when it is not compressed
    nulls: int | None = None
    least: builtins.bytes | None = None
    greatest: builtins.bytes | None = None


@dataclass(slots=True)
class RowGroup:
    """One row group of a Parquet file, as its footer describes it."""

    rows: int = 0
    bytes: int = 0
    chunks: dict[str, Chunk] = field(default_factory=dict)  # by path: the names of a column and of what it is in
    kinds: list[int] = field(default_factory=list)  # of its chunks, in order


def row_groups(path: Path) -> list[RowGroup]:
    """Raises Damaged, or OSError."""
    try:
        return _file(_Reader(footer_bytes(path)))
    except IndexError:
        raise Damaged("its footer ends in the middle") from None


class _Reader:
    """Of Thrift's compact protocol. IndexError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self) -> int:
        found, self._at = _varint(self._data, self._at)
        return (found >> 1) ^ -(found & 1)

    def binary(self) -> bytes:
        count, at = _varint(self._data, self._at)
        self._at = at + count
        if self._at > len(self._data):
            raise IndexError
        return self._data[at : self._at]

    def texts(self) -> list[bytes]:
        count, kind, self._at = _elements(self._data, self._at)
        if count and kind != _BINARY:
            raise Damaged(f"a list of names in its footer has elements of kind {kind}")
        return [self.binary() for _ in range(count)]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and kind of each field of a struct; the caller takes or skips it before the next."""
        field = 0
        while byte := self._data[self._at]:
            self._at += 1
            field = field + (byte >> 4) if byte >> 4 else self.number()
            yield field, byte & 15
        self._at += 1

    def each(self, read: Callable[[_Reader], T]) -> Iterator[T]:
        """What is read of each struct of a list."""
        count, kind, self._at = _elements(self._data, self._at)
        if count and kind != _STRUCT:
            raise Damaged(f"a list in its footer has elements of kind {kind}")
        for _ in range(count):
            yield read(self)

    def skip(self, kind: int) -> None:
        self._at = _skip(self._data, self._at, kind, 0)
        if self._at > len(self._data):
            raise IndexError


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the next begins: most of a footer is stepped over, so this is written to be quick."""
    if kind <= 2:  # true and false have nothing behind them
        return at
    if kind == 3:
        return at + 1
    if kind <= 6:
        while data[at] & 0x80:
            at += 1
        return at + 1
    if kind == 7:
        return at + 8
    if kind == _BINARY:
        count, at = _varint(data, at)
        return at + count
    if depth > DEEPEST:
        raise Damaged("parts of its footer are too deep within each other")
    if kind == _STRUCT:
        while byte := data[at]:
            at += 1
            if byte < 0x10:
                while data[at] & 0x80:
                    at += 1
                at += 1
            at = _skip(data, at, byte & 15, depth + 1)
        return at + 1
    if kind not in _LISTS:
        raise Damaged(f"its footer has something of kind {kind}")
    count, inner, at = _elements(data, at)
    if inner <= 2:
        return at + count
    for _ in range(count):
        at = _skip(data, at, inner, depth + 1)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next begins."""
    found = data[at]
    at += 1
    if found < 0x80:
        return found, at
    found &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > 63:
            raise Damaged("a number in its footer has no end")


def _elements(data: bytes, at: int) -> tuple[int, int, int]:
    """How many elements a list has, of which kind, and where they begin."""
    byte = data[at]
    count, at = (byte >> 4, at + 1) if byte < 0xF0 else _varint(data, at + 1)
    if count > len(data) - at:
        raise IndexError
    return count, byte & 15, at


def _file(reader: _Reader) -> list[RowGroup]:
    kinds: list[int] = []
    groups: list[RowGroup] = []
    for number, kind in reader.fields():
        if number == 2 and kind == _LIST:
            kinds = [each for each in reader.each(_schema_element) if each is not None]
        elif number == 4 and kind == _LIST:
            groups = list(reader.each(_row_group))
        else:
            reader.skip(kind)
    for at, group in enumerate(groups):
        if group.kinds != kinds:
            raise Damaged(f"columns of the kinds {group.kinds} in row group {at}, in the schema {kinds}")
        if group.rows < 0 or group.bytes < 0:
            raise Damaged(f"row group {at} with {group.rows} rows and {group.bytes} bytes")
    return groups


def _schema_element(reader: _Reader) -> int | None:
    """The kind of a column; None for what has parts."""
    found: int | None = None
    for number, kind in reader.fields():
        if number == 1 and kind in _NUMBERS:
            found = reader.number()
        else:
            reader.skip(kind)
    return found


def _row_group(reader: _Reader) -> RowGroup:
    made = RowGroup()
    for number, kind in reader.fields():
        if number == 1 and kind == _LIST:
            chunks = list(reader.each(_column_chunk))
            made.kinds = [chunk.kind for chunk in chunks]
            made.chunks = {chunk.path: chunk for chunk in chunks}  # a column `a.b` and `b` in `a` have the same path
        elif number == 2 and kind in _NUMBERS:
            made.bytes = reader.number()
        elif number == 3 and kind in _NUMBERS:
            made.rows = reader.number()
        else:
            reader.skip(kind)
    return made


def _column_chunk(reader: _Reader) -> Chunk:
    made = Chunk()
    for number, kind in reader.fields():
        if number == 3 and kind == _STRUCT:
            _column_metadata(reader, made)
        else:
            reader.skip(kind)
    return made


def _column_metadata(reader: _Reader, made: Chunk) -> None:
    for number, kind in reader.fields():
        if number == 1 and kind in _NUMBERS:
            made.kind = reader.number()
        elif number == 3 and kind == _LIST:
            made.path = ".".join(_text(each) for each in reader.texts())
        elif number == 5 and kind in _NUMBERS:
            made.values = reader.number()
        elif number == 6 and kind in _NUMBERS:
            made.bytes = reader.number()
        elif number == 12 and kind == _STRUCT:
            _statistics(reader, made)
        else:
            reader.skip(kind)


def _statistics(reader: _Reader, made: Chunk) -> None:
    """Bounds as they were written before it was said how values are compared (fields 1 and 2) are none."""
    for number, kind in reader.fields():
        if number == 3 and kind in _NUMBERS:
            made.nulls = reader.number()
        elif number == 5 and kind == _BINARY:
            made.greatest = reader.binary()
        elif number == 6 and kind == _BINARY:
            made.least = reader.binary()
        else:
            reader.skip(kind)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damaged(f"the name of a column is {data!r}") from None


__all__ = ["Chunk", "Damaged", "RowGroup", "row_groups"]
