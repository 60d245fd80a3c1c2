"""Records without their headers: what all records of an event type have in common need not travel with each.

A record begins with its size, and with what tells its event type (see `types.layout`). Both are known where it arrives:
the size from the frame, the event type from the announcement of its source. So frames carry what comes after that, the
*bodies*, wherever all records are of the source's type; those that an interest has made are of another, and go
without the header of that where each has a tag that says so; else they travel whole. The sender looks at each header
that it leaves away: what arrives is the same, byte for byte, whatever was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, overload

from headwater.errors import FrameError
from headwater.federation.wire.kinds import PREFIX, Data
from headwater.late import np
from headwater.types.layout import HEADER_SIZE, Layout
from headwater.types.model import Record

FEW_RECORDS = 4  # records up to which taking headers off one by one beats setting up arrays
SIZES_REMEMBERED = 256  # sizes of records whose headers are remembered
_header, _body = itemgetter(slice(HEADER_SIZE)), itemgetter(slice(HEADER_SIZE, None))


class Header(dict[int, bytes]):
    """By the size of a record of one event type, how it begins."""

    __slots__ = ("_tail",)

    def __init__(self, record: Record) -> None:
        self._tail = Layout.of(record).header

    def __missing__(self, size: int) -> bytes:
        made = PREFIX.pack(size) + self._tail
        if len(self) < SIZES_REMEMBERED:
            self[size] = made
        return made

    def off(self, records: Sequence[bytes], sizes: Sequence[int], alike: bool) -> list[bytes] | None:
        """The bodies of records of these sizes, perhaps all alike, in one or in several; None if not all are of the
        type."""
        count, size = len(records), sizes[0]
        if alike and count > FEW_RECORDS and size > HEADER_SIZE:
            rows = np.frombuffer(b"".join(records), _rows(size))
            return [rows["body"].tobytes()] if rows["head"].tobytes() == self[size] * count else None
        if list(map(_header, records)) != list(map(self.__getitem__, sizes)):
            return None
        return list(map(_body, records))


class Headers:
    """Of some records, for each that of its type."""

    __slots__ = ("_each",)

    def __init__(self, each: Sequence[Header]) -> None:
        self._each = each

    def off(self, records: Sequence[bytes], sizes: Sequence[int], alike: bool) -> list[bytes] | None:
        """See `Header.off`."""
        found = zip(records, sizes, self._each, strict=True)
        if any(record[:HEADER_SIZE] != header[size] for record, size, header in found):
            return None
        return list(map(_body, records))

    def on(self, bodies: Sequence[bytes]) -> list[bytes]:
        """The records that have these bodies."""
        found = zip(bodies, self._each, strict=True)
        return [header[HEADER_SIZE + len(body)] + body for body, header in found]


@lru_cache(maxsize=256)
def header_of(record: Record) -> Header:
    """The header of the records of an event type."""
    return Header(record)


class Block(Sequence[bytes]):
    """Many bodies of one size, which are not taken apart before their headers are there."""

    __slots__ = ("_count", "_data", "_size")

    def __init__(self, data: Data, size: int, count: int) -> None:
        self._data, self._size, self._count = data, size, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        size, data = self._size, self._data
        at = range(self._count)[index]
        if isinstance(at, int):
            return bytes(data[at * size : at * size + size])
        return [bytes(data[each * size : each * size + size]) for each in at]

    def records(self, header: Header) -> list[bytes]:
        """With their headers."""
        size, head = HEADER_SIZE + self._size, header[HEADER_SIZE + self._size]
        kind = _rows(size)
        rows = np.empty(self._count, kind)
        rows["head"] = np.frombuffer(head, kind["head"])
        rows["body"] = np.frombuffer(self._data, kind["body"])
        made: list[bytes] = rows.view(_whole(size)).tolist()
        return made


def dressed(bodies: Sequence[bytes], header: Header | None) -> list[bytes]:
    """Records of the event type with this header, of their bodies. FrameError if there is none."""
    if header is None:
        raise FrameError("events: records came without their headers, but their source has no event type")
    if bodies.__class__ is Block:
        return bodies.records(header)
    return [header[HEADER_SIZE + len(body)] + body for body in bodies]


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Parts of these sizes."""
    made, start = [], 0
    for end in accumulate(sizes):
        made.append(data[start:end])
        start = end
    return made


@lru_cache(maxsize=64)
def _rows(size: int) -> Any:
    return np.dtype([("head", f"V{HEADER_SIZE}"), ("body", f"V{size - HEADER_SIZE}")])


@lru_cache(maxsize=64)
def _whole(size: int) -> Any:
    return np.dtype(f"V{size}")
