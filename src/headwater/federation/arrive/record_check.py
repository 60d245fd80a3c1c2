"""Records that come from other nodes are looked at before anybody relies on them.

Machine code reads nothing outside a record, whatever is in it; but what is no record of its type must not count as a
failure of the sinks that are to handle it, nor reach them as something else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.native.python.codec import fast_decoder
from headwater.types.layout import MAGIC, VERSION, Layout
from headwater.types.model import Record, Scalar

if TYPE_CHECKING:
    from headwater.types import EventType

Check = Callable[[Sequence[bytes]], list[int]]  # from records to the places of those that are none of the type


def check_of(type: EventType) -> Check:
    """For records of that type."""
    return _plain(type.record) if _is_plain(type.record) else _decoding(type)


def none_is(records: Sequence[bytes]) -> list[int]:
    """For what can be of no type."""
    return list(range(len(records)))


@lru_cache(maxsize=256)
def _is_plain(record: Record) -> bool:
    """Whether any bits after the header are an event: numbers, none of them missing."""
    return all(
        isinstance(field.type, Scalar) and field.type.is_number and not field.optional for field in record.fields
    )


@lru_cache(maxsize=256)
def _plain(record: Record) -> Check:
    size = Layout.of(record).size
    head = struct.pack("<IHHQ", size, MAGIC, VERSION, record.fingerprint)

    def check(records: Sequence[bytes]) -> list[int]:
        return [at for at, each in enumerate(records) if len(each) != size or not each.startswith(head)]

    return check


def _decoding(type: EventType) -> Check:
    decode = fast_decoder(type)

    def check(records: Sequence[bytes]) -> list[int]:
        try:
            for each in records:
                decode(each)
        except HeadwaterError:
            return [at for at, each in enumerate(records) if _fails(each)]
        return []

    def _fails(record: bytes) -> bool:
        try:
            decode(record)
        except HeadwaterError:
            return True
        return False

    return check
