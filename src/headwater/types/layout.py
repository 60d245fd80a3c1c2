"""The record layout: where each field of an event lies in the bytes that travel.

Everything is little-endian and every offset is from byte 0 of the record unless said otherwise. A record is

    header (16 bytes) | fixed part | heap | zero padding to a multiple of 8

Header::

    0   u32   total size in bytes, header and padding included
    4   u16   magic 0x5748 ("HW")
    6   u16   layout version, 1
    8   u64   fingerprint of the Record

Fixed part. The top record's starts at byte 16. Each record level, the top one and every nested one, is laid
out alike: first the presence bitmap, one bit for each *optional* field of this level in declaration order
(bit k is bit k % 8 of byte k // 8; 1 = present), ceil(n / 8) bytes and none without optional fields; then
the fields in declaration order, each at its natural alignment. The alignment of a level is the greatest of
its fields (at least 1) and its size is padded to it. A nested record lies inline. The fixed part of the top
record is padded to 8.

    type                      size                                       alignment
    bool                      1, the byte 0 or 1                         1
    iN uN fN                  N / 8                                      N / 8
    timestamp                 8, i64 microseconds since 1970 UTC         8
    enumeration               4, i32 code of the member                  4
    text, bytes               8, a reference                             4
    list                      8, a reference                             4
    array                     count × stride, row-major, inline          of its element
    record                    of its level                               of its level

The stride of an element is its size padded to its alignment. A reference is u32 offset, then u32 length:
bytes for text (UTF-8) and bytes, elements for a list. Elements of arrays and lists are never missing.

Heap. The items follow the fixed part in field order, depth first: a list's elements first, then, element
after element, what those refer to, then the next field. Each is aligned to its elements (text and bytes to
1) and starts at the first place that is. An empty text, bytes or list has offset 0 and length 0 and no
item.

A missing optional field has presence bit 0 and a slot of zeros. All padding is zero. So the encoding is
canonical: equal events have equal bytes (but for the payload of a NaN), and records laid end to end stay
aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headwater.errors import TypeDeclarationError
from headwater.formats import RECORD
from headwater.types.model import BYTES, TEXT, Array, Enum, List, Record, Scalar, Type, walk

HEADER_SIZE = 16
MAGIC = 0x5748
VERSION = RECORD
MAX_DEPTH = 16  # of types within types
MAX_SIZE = (1 << 31) - 8  # of a whole record; offsets stay positive in 32 signed bits

_SCALAR_SIZES = {"bool": 1, "timestamp": 8}


@dataclass(frozen=True, slots=True)
class Slot:
    """One field's place. `offset` is from the start of its record level (the top level starts at byte 16);
    `bit` is its presence bit, None for a required field; `size` does not count padding after it."""

    name: str
    offset: int
    bit: int | None
    type: Type
    size: int


@dataclass(frozen=True)
class RecordLayout:
    """One record level: its padded size, alignment, bytes of presence bitmap, and slots by field name."""

    size: int
    align: int
    bitmap_bytes: int
    slots: dict[str, Slot]


@dataclass(frozen=True)
class Layout:
    """The whole layout of an event type. `size` is where the fixed part ends and the heap begins."""

    record: Record
    level: RecordLayout
    size: int

    @classmethod
    def of(cls, record: Record) -> Layout:
        """The layout of a record type; computed once per type."""
        return _layout(record)

    @property
    def slots(self) -> dict[str, Slot]:
        """Where each field is, by name."""
        return self.level.slots

    @property
    def fixed(self) -> bool:
        """Whether every record of this type has the same size: nothing in it needs the heap."""
        return not any(isinstance(t, List) or t in (TEXT, BYTES) for t in walk(self.record))

    @property
    def header(self) -> bytes:
        """Bytes 4 to 16 of every record of this type: magic, version, fingerprint."""
        head = MAGIC.to_bytes(2, "little") + VERSION.to_bytes(2, "little")
        return head + self.record.fingerprint.to_bytes(8, "little")


def align_up(offset: int, align: int) -> int:
    """The first multiple of `align` (a power of two) at or after `offset`."""
    return (offset + align - 1) & -align


def size_align(type: Type) -> tuple[int, int]:
    """Size and alignment of a type's slot."""
    match type:
        case Scalar(name="text" | "bytes") | List():
            return 8, 4
        case Scalar(name=name):
            size = _SCALAR_SIZES.get(name) or type.bits // 8
            return size, size
        case Enum():
            return 4, 4
        case Array(element=element, count=count):
            return count * stride(element), size_align(element)[1]
        case Record():
            level = record_layout(type)
            return level.size, level.align


def stride(element: Type) -> int:
    """Distance between two neighbouring elements of an array or list."""
    size, align = size_align(element)
    return align_up(size, align)


def depth(type: Type) -> int:
    """How deep types are nested in this one: 1 for a scalar."""
    match type:
        case Array(element=element) | List(element=element):
            return 1 + depth(element)
        case Record(fields=fields):
            return 1 + max((depth(field.type) for field in fields), default=0)
        case _:
            return 1


@lru_cache(maxsize=4096)
def record_layout(record: Record) -> RecordLayout:
    """The layout of one record level; offsets are from its own start."""
    if not record.fields:
        raise TypeDeclarationError(f"{record.name}: expected at least one field, found none")
    bitmap_bytes = (sum(field.optional for field in record.fields) + 7) // 8
    slots: dict[str, Slot] = {}
    offset, greatest, bit = bitmap_bytes, 1, 0
    for field in record.fields:
        size, align = size_align(field.type)
        offset = align_up(offset, align)
        slots[field.name] = Slot(field.name, offset, bit if field.optional else None, field.type, size)
        bit += field.optional
        offset += size
        greatest = max(greatest, align)
        if offset > MAX_SIZE:
            raise TypeDeclarationError(
                f"{record.name}.{field.name}: the fixed part would take more than {MAX_SIZE} bytes; "
                "use a list, or a smaller array"
            )
    return RecordLayout(align_up(offset, greatest), greatest, bitmap_bytes, slots)


@lru_cache(maxsize=4096)
def _layout(record: Record) -> Layout:
    if (found := depth(record)) > MAX_DEPTH:
        raise TypeDeclarationError(f"{record.name}: expected types nested at most {MAX_DEPTH} deep, found {found}")
    level = record_layout(record)
    return Layout(record, level, HEADER_SIZE + align_up(level.size, 8))
