"""Whether values of the input are what their types say, in generated code: the counterpart of `types.check`.

A record that came from outside may hold a time in no year, a text that is not UTF-8, the code of no member, a boolean
that is 2, and something in the gaps between its fields. A filter looks past that; an output that takes it over would be
an invalid event, so each such value sets `bad`.
"""

from __future__ import annotations

from headwater.native.emit import Fn
from headwater.native.kernels.runtime import SIGNATURES
from headwater.types.layout import record_layout, stride
from headwater.types.model import BOOL, TEXT, TIMESTAMP, Array, Enum, Record, Scalar, Type


def is_checked(type: Type) -> bool:
    """Whether the bytes of a value, apart from what they refer to, may be no value of the type."""
    match type:
        case Array(element=element):
            return is_checked(element)
        case Scalar():
            return type in (BOOL, TIMESTAMP)
        case Enum():
            return True
        case Record(fields=fields):
            return bool(_gaps(type)) or any(field.optional or is_checked(field.type) for field in fields)
        case _:
            return False


class Validity:
    """Writes checks into a function; `bad` is the address of an i1 that they set."""

    def __init__(self, fn: Fn, bad: str) -> None:
        self.fn, self.bad = fn, bad
        self.is_utf8 = fn.module.declare(SIGNATURES["hw_utf8"], "hw_utf8")
        self.is_zero = fn.module.declare(SIGNATURES["hw_zero"], "hw_zero")

    def expect(self, good: str) -> None:
        fn = self.fn
        fn.store("i1", fn.or_(fn.load("i1", self.bad), fn.not_(good)), self.bad)

    def text(self, type: Type, start: str, length: str) -> None:
        if type == TEXT:
            self.expect(self.fn.v(f"call i1 {self.is_utf8}(ptr {start}, i64 {length})"))

    def zeros(self, start: str, size: int) -> None:
        self.expect(self.fn.v(f"call i1 {self.is_zero}(ptr {start}, i64 {size})"))

    def value(self, type: Type, at: str) -> None:
        """A scalar, enumeration or array of them, as a record has it."""
        fn = self.fn
        if isinstance(type, Array):
            size, element = stride(type.element), type.element
            if is_checked(element):
                fn.loop(str(type.count), lambda i: self.value(element, fn.gep(at, fn.v(f"mul i64 {i}, {size}"))))
        elif isinstance(type, Enum):
            self.expect(self._is_member(type, fn.load("i32", at)))
        elif type == BOOL:
            self.expect(fn.v(f"icmp ult i8 {fn.load('i8', at)}, 2"))
        elif type == TIMESTAMP:
            least, greatest = TIMESTAMP.range
            past = fn.v(f"sub i64 {fn.load('i64', at)}, {least}")
            self.expect(fn.v(f"icmp ule i64 {past}, {greatest - least}"))

    def _is_member(self, type: Enum, code: str) -> str:
        """Codes that follow each other are compared as a range."""
        fn, found = self.fn, "false"
        for first, count in _ranges(sorted(code for _, code in type.members)):
            past = fn.v(f"sub i32 {code}, {first}")
            found = fn.or_(found, fn.v(f"icmp ult i32 {past}, {count}"))
        return found

    def gaps(self, record: Record, at: str) -> None:
        """One level of a record: zeros between its fields, in bits of no field, and in place of what is missing."""
        fn, level = self.fn, record_layout(record)
        for start, size in _gaps(record):
            self.zeros(fn.gep(at, start), size)
        unused = level.bitmap_bytes * 8 - sum(field.optional for field in record.fields)
        if unused:
            byte = fn.load("i8", fn.gep(at, level.bitmap_bytes - 1))
            self.expect(fn.v(f"icmp ult i8 {byte}, {1 << 8 - unused}"))
        for slot in level.slots.values():
            if slot.bit is not None:
                bits = fn.load("i8", fn.gep(at, slot.bit // 8))
                gone = fn.v(f"icmp eq i8 {fn.v(f'and i8 {bits}, {1 << slot.bit % 8}')}, 0")
                fn.branch(gone, lambda slot=slot: self.zeros(fn.gep(at, slot.offset), slot.size))  # type: ignore[misc]


def _ranges(codes: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in codes:
        if found and code == found[-1][0] + found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((code, 1))
    return found


def _gaps(record: Record) -> list[tuple[int, int]]:
    """Bytes of one level, and the padding of elements after it, that belong to no field: start and size."""
    level = record_layout(record)
    found, filled = [], level.bitmap_bytes
    for slot in level.slots.values():
        if slot.offset > filled:
            found.append((filled, slot.offset - filled))
        filled = slot.offset + slot.size
    if stride(record) > filled:
        found.append((filled, stride(record) - filled))
    return found
