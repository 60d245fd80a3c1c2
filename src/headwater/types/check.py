"""The careful check of untrusted bytes: is this exactly one record of this type, laid out as `layout.py` says?

It walks the layout in plain steps, reads nothing outside the bytes, allocates nothing that they do not justify
(each byte of the heap belongs to one item), and names the field and byte offset of the first fault.
"""

from __future__ import annotations

import struct

from headwater.errors import DecodeError
from headwater.types.layout import (
    HEADER_SIZE,
    MAGIC,
    VERSION,
    Layout,
    align_up,
    record_layout,
    size_align,
    stride,
)
from headwater.types.model import Array, Enum, List, Record, Scalar, Type


def check_header(layout: Layout, data: bytes | memoryview) -> None:
    """Size, magic, version, fingerprint and total size; nothing after the header."""
    if len(data) < HEADER_SIZE:
        raise DecodeError(f"too short for a record: expected {HEADER_SIZE} bytes of header, found {len(data)}", 0)
    total, magic, version, fingerprint = struct.unpack_from("<IHHQ", data)
    if magic != MAGIC:
        raise DecodeError(f"not a Headwater record: expected magic {MAGIC:#06x}, found {magic:#06x}", 4)
    if version != VERSION:
        raise DecodeError(f"expected layout version {VERSION}, found {version}", 6)
    record = layout.record
    if fingerprint != record.fingerprint:
        raise DecodeError(
            f"a record of another event type: expected fingerprint {record.fingerprint:#018x} of {record.name}, "
            f"found {fingerprint:#018x}; convert it with an evolution plan",
            8,
        )
    if total != len(data):
        raise DecodeError(f"expected {total} bytes as the header says, found {len(data)}", 0)
    if total < layout.size:
        raise DecodeError(f"expected at least {layout.size} bytes for {record.name}, found {total}", 0)


def validate(layout: Layout, data: bytes) -> None:
    """Raise `DecodeError` unless `data` is exactly one well-formed record."""
    check_header(layout, data)
    walk = _Walk(data, layout.size)
    walk.record(layout.record, HEADER_SIZE, "")
    walk.zeros(HEADER_SIZE + layout.level.size, layout.size, "", "padding after the fixed part")
    end = align_up(walk.position, 8)
    if end != len(data):
        raise DecodeError(f"expected {end} bytes in all, found {len(data)}", walk.position)
    walk.zeros(walk.position, end, "", "padding at the end")


class _Walk:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.heap = position
        self.position = position  # where the next item of the heap must begin, before alignment

    def fail(self, path: str, message: str, offset: int) -> DecodeError:
        return DecodeError(f"{path}: {message}" if path else message, offset)

    def zeros(self, start: int, end: int, path: str, what: str) -> None:
        for offset in range(start, min(end, len(self.data))):
            if self.data[offset]:
                raise self.fail(path, f"expected zeros in the {what}", offset)

    def record(self, record: Record, base: int, path: str) -> None:
        level = record_layout(record)
        optional = sum(field.optional for field in record.fields)
        for bit in range(optional, level.bitmap_bytes * 8):
            if self.data[base + bit // 8] >> bit % 8 & 1:
                raise self.fail(path, "a presence bit is set that belongs to no field", base + bit // 8)
        filled = base + level.bitmap_bytes
        for slot in level.slots.values():
            where = f"{path}.{slot.name}" if path else slot.name
            start = base + slot.offset
            self.zeros(filled, start, where, "padding before the field")
            filled = start + slot.size
            if slot.bit is not None and not self.data[base + slot.bit // 8] >> slot.bit % 8 & 1:
                self.zeros(start, filled, where, "slot of a missing field")
            else:
                self.value(slot.type, start, where)
        self.zeros(filled, base + level.size, path, "padding after the fields")

    def value(self, type: Type, at: int, path: str) -> None:
        """Check one value of a record that came from elsewhere: references stay inside, text is UTF-8, what else has
        limits is within them."""
        match type:
            case Scalar(name="bool"):
                if self.data[at] > 1:
                    raise self.fail(path, f"expected 0 or 1 for a bool, found {self.data[at]}", at)
            case Scalar(name="timestamp"):
                (micros,) = struct.unpack_from("<q", self.data, at)
                low, high = type.range
                if not low <= micros <= high:
                    raise self.fail(path, f"expected a time in the years 1 to 9999, found {micros} µs", at)
            case Scalar(name="text" | "bytes" as name):
                start, end = self.item(at, 1, 1, path)
                if name == "text":
                    try:
                        self.data[start:end].decode()
                    except UnicodeDecodeError as error:
                        raise self.fail(path, f"invalid UTF-8: {error.reason}", start + error.start) from None
            case Scalar():
                pass
            case Enum(name=name):
                (code,) = struct.unpack_from("<i", self.data, at)
                if type.name_of(code) is None:
                    raise self.fail(path, f"{code} is no code of enumeration {name}", at)
            case Record():
                self.record(type, at, path)
            case Array(element=element, count=count):
                self.elements(element, at, count, path)
            case List(element=element):
                start, end = self.item(at, stride(element), size_align(element)[1], path)
                self.elements(element, start, (end - start) // stride(element), path)

    def elements(self, element: Type, start: int, count: int, path: str) -> None:
        if isinstance(element, Scalar) and element.is_number:
            return
        step = stride(element)
        for i in range(count):
            self.value(element, start + i * step, f"{path}[{i}]")

    def item(self, at: int, step: int, align: int, path: str) -> tuple[int, int]:
        """The start and end of what a reference points at, after checking that it lies where it must."""
        offset, length = struct.unpack_from("<II", self.data, at)
        if not length:
            if offset:
                raise self.fail(path, f"expected offset 0 with length 0, found {offset}", at)
            return 0, 0
        end = offset + length * step
        if offset < self.heap:
            raise self.fail(path, f"offset {offset} lies in the header or fixed part", at)
        if end > len(self.data):
            raise self.fail(path, f"length {length} from {offset} ends beyond the record's {len(self.data)}", at + 4)
        if offset % align:
            raise self.fail(path, f"offset {offset} is not a multiple of {align}", at)
        expected = align_up(self.position, align)
        if offset != expected:
            raise self.fail(path, f"expected the item at {expected} (items follow each other), found {offset}", at)
        self.zeros(self.position, offset, path, "padding before the item")
        self.position = end
        return offset, end
