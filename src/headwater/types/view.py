"""Reading a record in place: each attribute decodes its own field and nothing else.

Every access is checked against the record's bounds, so a view of untrusted bytes raises `DecodeError` at worst.
Arrays and lists of numbers are read-only numpy views of the same memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, ClassVar, overload

from headwater.errors import DecodeError
from headwater.late import np
from headwater.types.binding import Binding
from headwater.types.buffers import CODES, is_plain, numpy_dtype
from headwater.types.check import check_header
from headwater.types.codegen import EPOCH, MICROSECOND
from headwater.types.layout import HEADER_SIZE, Layout, Slot, record_layout, size_align, stride
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

Bytes = bytes | memoryview
Read = Callable[[Bytes, int, str], Any]  # the record, where the value's slot is, and its name for messages

_SIZE = struct.Struct("<I").unpack_from
_REFERENCE = struct.Struct("<II").unpack_from
_CODE = struct.Struct("<i").unpack_from
_MICROS = struct.Struct("<q").unpack_from


class View:
    """A record, or a nested part of one, read in place. Attributes and `view["field name"]` are the fields."""

    __slots__ = ("_base", "_data")
    _binding: ClassVar[Binding]
    _fields: ClassVar[dict[str, Callable[[Any], Any]]]

    def __init__(self, data: Bytes, base: int) -> None:
        self._data, self._base = data, base

    def __getattr__(self, attr: str) -> Any:
        raise AttributeError(f"{self._binding.type} has no field {attr!r}")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name](self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._binding.attrs]

    def __repr__(self) -> str:
        return f"<view of {self._binding.type}: {', '.join(self._binding.attrs)}>"


class Elements(Sequence[Any]):
    """The elements of an array or list, each read when it is asked for."""

    __slots__ = ("_data", "_name", "_read", "_shape", "_start", "_type")

    def __init__(self, type: Type, read: Read, data: Bytes, start: int, shape: tuple[int, ...], name: str) -> None:
        self._type, self._read, self._data = type, read, data
        self._start, self._shape, self._name = start, shape, name

    def __len__(self) -> int:
        return self._shape[0]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        inner = self._shape[1:]
        start = self._start + at * stride(self._type) * prod(inner)
        if inner:
            return Elements(self._type, self._read, self._data, start, inner, self._name)
        return self._read(self._data, start, f"{self._name}[{at}]")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} elements of {self._type}>"


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def viewer(binding: Binding, layout: Layout) -> Callable[[bytes | bytearray | memoryview], View]:
    """A function that views one record; the header is checked at once, each field when it is read."""
    kind, header, least = _view_class(binding), layout.header, layout.size

    def view(data: bytes | bytearray | memoryview) -> View:
        readable = data if type(data) is bytes else memoryview(data).toreadonly().cast("B")
        size = len(readable)
        if size < least or readable[4:HEADER_SIZE] != header or _SIZE(readable)[0] != size:
            check_header(layout, readable)
        return kind(readable, HEADER_SIZE)

    return view


def _view_class(binding: Binding) -> type[View]:
    """The class of views of one record type, with a property for each field."""
    level = record_layout(binding.record)
    slots = zip(binding.parts, level.slots.values(), strict=True)
    getters = [_getter(_reader(part), slot) for part, slot in slots]
    body: dict[str, Any] = {"__slots__": (), "_binding": binding}
    body["_fields"] = dict(zip(level.slots, getters, strict=True))
    for attr, get in zip(binding.attrs, getters, strict=True):
        if attr not in body and not hasattr(View, attr):  # else by its name only: view["field name"]
            body[attr] = property(get)
    return type("View", (View,), body)


def _getter(read: Read, slot: Slot) -> Callable[[Any], Any]:
    name, offset = slot.name, slot.offset
    if slot.bit is None:
        return lambda view: read(view._data, view._base + offset, name)
    byte, mask = slot.bit // 8, 1 << slot.bit % 8

    def optional(view: Any) -> Any:
        data, base = view._data, view._base
        return read(data, base + offset, name) if data[base + byte] & mask else None

    return optional


def _reader(binding: Binding) -> Read:
    """A function that reads a value of this type."""
    type = binding.type
    match type:
        case Scalar(name="text"):
            return _text
        case Scalar(name="bytes"):
            return _bytes
        case Scalar(name="bool"):
            return _bool
        case Scalar(name="timestamp"):
            return _timestamp
        case Scalar(name=kind):
            unpack = struct.Struct("<" + CODES[kind]).unpack_from
            return lambda data, at, name: unpack(data, at)[0]
        case Enum(members=members):
            return _enum(type, {code: m for m, (_, code) in zip(binding.members, members, strict=True)})
        case Record():
            kind_of_view = _view_class(binding)
            return lambda data, at, name: kind_of_view(data, at)
        case Array(element=element, shape=shape, count=count):
            if is_plain(element):
                return lambda data, at, name: _numbers(element, data, at, count, name).reshape(shape)
            each = _reader(binding.parts[0])
            return lambda data, at, name: Elements(element, each, data, at, shape, name)
        case List(element=element):
            return _list(binding, element)


def _list(binding: Binding, element: Type) -> Read:
    step, align = stride(element), size_align(element)[1]
    each = None if is_plain(element) else _reader(binding.parts[0])

    def read(data: Bytes, at: int, name: str) -> Any:
        start, length = _reference(data, at, step, name, align)
        if each is None:
            return _numbers(element, data, start, length, name)
        return Elements(element, each, data, start, (length,), name)

    return read


def _enum(type: Enum, members: dict[int, Any]) -> Read:
    def read(data: Bytes, at: int, name: str) -> Any:
        (code,) = _CODE(data, at)
        try:
            return members[code]
        except KeyError:
            raise DecodeError(f"{name}: {code} is no code of enumeration {type.name}", at) from None

    return read


def _bytes(data: Bytes, at: int, name: str) -> bytes:
    start, length = _reference(data, at, 1, name)
    return bytes(data[start : start + length])


def _text(data: Bytes, at: int, name: str) -> str:
    start, length = _reference(data, at, 1, name)
    try:
        return str(data[start : start + length], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{name}: invalid UTF-8: {error.reason}", start + error.start) from None


def _bool(data: Bytes, at: int, name: str) -> bool:
    byte = data[at]
    if byte > 1:
        raise DecodeError(f"{name}: expected 0 or 1 for a bool, found {byte}", at)
    return byte == 1


def _timestamp(data: Bytes, at: int, name: str) -> Any:
    (micros,) = _MICROS(data, at)
    try:
        return EPOCH + micros * MICROSECOND
    except OverflowError:
        raise DecodeError(f"{name}: {micros} µs is no time in the years 1 to 9999", at) from None


def _numbers(element: Type, data: Bytes, start: int, count: int, name: str) -> np.ndarray[Any, Any]:
    if str(element) == "bool" and any(byte > 1 for byte in data[start : start + count]):
        raise DecodeError(f"{name}: expected 0 or 1 for each bool", start)
    if not count:
        return np.empty(0, numpy_dtype(element))
    return np.frombuffer(data, numpy_dtype(element), count, start)


def _reference(data: Bytes, at: int, step: int, name: str, align: int = 1) -> tuple[int, int]:
    offset, length = _REFERENCE(data, at)
    if offset % align or offset + length * step > len(data):
        raise DecodeError(f"{name}: offset {offset} with length {length} does not fit the record", at)
    return offset, length
