"""Reading a record in place: each attribute decodes its own field and nothing else.

Every access is checked against the record's bounds, so a view of untrusted bytes raises `DecodeError` at worst.
Arrays and lists of numbers are read-only numpy views of the same memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from headwater.errors import DecodeError
from headwater.types.binding import Binding
from headwater.types.buffers import CODES, is_plain, numpy_dtype
from headwater.types.check import check_header
from headwater.types.codegen import EPOCH, MICROSECOND
from headwater.types.layout import HEADER_SIZE, Layout, record_layout, size_align, stride
from headwater.types.model import Array, Enum, List, Record, Scalar, Type


class View:
    """A record, or a nested part of one, read in place. Attributes and `view["field name"]` are the fields."""

    __slots__ = ("_base", "_binding", "_data")

    def __init__(self, binding: Binding, data: bytes | memoryview, base: int) -> None:
        self._binding, self._data, self._base = binding, data, base

    def __getattr__(self, attr: str) -> Any:
        binding = self._binding
        try:
            index = binding.attrs.index(attr)
        except ValueError:
            raise AttributeError(f"{binding.type} has no field {attr!r}") from None
        return self[binding.record.fields[index].name]

    def __getitem__(self, name: str) -> Any:
        binding, base = self._binding, self._base
        slot = record_layout(binding.record).slots[name]
        if slot.bit is not None and not self._data[base + slot.bit // 8] >> slot.bit % 8 & 1:
            return None
        part = binding.parts[list(binding.record.by_name).index(name)]
        return _read(part, self._data, base + slot.offset, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._binding.attrs]

    def __repr__(self) -> str:
        return f"<view of {self._binding.type}: {', '.join(self._binding.attrs)}>"


class Elements(Sequence[Any]):
    """The elements of an array or list, each read when it is asked for."""

    __slots__ = ("_binding", "_data", "_name", "_shape", "_start")

    def __init__(
        self, binding: Binding, data: bytes | memoryview, start: int, shape: tuple[int, ...], name: str
    ) -> None:
        self._binding, self._data, self._start, self._shape, self._name = binding, data, start, shape, name

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
        step = stride(self._binding.type) * int(np.prod(inner, dtype=np.int64))
        start = self._start + at * step
        if inner:
            return Elements(self._binding, self._data, start, inner, self._name)
        return _read(self._binding, self._data, start, f"{self._name}[{at}]")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} elements of {self._binding.type}>"


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def view(binding: Binding, layout: Layout, data: bytes | bytearray | memoryview) -> View:
    """A view of one record; the header is checked now, each field when it is read."""
    readable = memoryview(data).toreadonly().cast("B")
    check_header(layout, readable)
    return View(binding, readable, HEADER_SIZE)


def _read(binding: Binding, data: bytes | memoryview, at: int, name: str) -> Any:
    type = binding.type
    match type:
        case Scalar(name="text" | "bytes" as kind):
            start, length = _reference(data, at, 1, name)
            item = bytes(data[start : start + length])
            try:
                return item.decode() if kind == "text" else item
            except UnicodeDecodeError as error:
                raise DecodeError(f"{name}: invalid UTF-8: {error.reason}", start + error.start) from None
        case Scalar(name="bool"):
            if data[at] > 1:
                raise DecodeError(f"{name}: expected 0 or 1 for a bool, found {data[at]}", at)
            return data[at] == 1
        case Scalar(name="timestamp"):
            (micros,) = struct.unpack_from("<q", data, at)
            try:
                return EPOCH + micros * MICROSECOND
            except OverflowError:
                raise DecodeError(f"{name}: {micros} µs is no time in the years 1 to 9999", at) from None
        case Scalar(name=kind):
            return struct.unpack_from("<" + CODES[kind], data, at)[0]
        case Enum(members=members):
            (code,) = struct.unpack_from("<i", data, at)
            for member, (_, known) in zip(binding.members, members, strict=True):
                if known == code:
                    return member
            raise DecodeError(f"{name}: {code} is no code of enumeration {type.name}", at)
        case Record():
            return View(binding, data, at)
        case Array(element=element, shape=shape, count=count):
            if is_plain(element):
                return _numbers(element, data, at, count, name).reshape(shape)
            return Elements(binding.parts[0], data, at, shape, name)
        case List(element=element):
            start, length = _reference(data, at, stride(element), name, size_align(element)[1])
            if is_plain(element):
                return _numbers(element, data, start, length, name)
            return Elements(binding.parts[0], data, start, (length,), name)


def _numbers(element: Type, data: bytes | memoryview, start: int, count: int, name: str) -> np.ndarray[Any, Any]:
    if str(element) == "bool" and any(byte > 1 for byte in data[start : start + count]):
        raise DecodeError(f"{name}: expected 0 or 1 for each bool", start)
    if not count:
        return np.empty(0, numpy_dtype(element))
    return np.frombuffer(data, numpy_dtype(element), count, start)


def _reference(data: bytes | memoryview, at: int, step: int, name: str, align: int = 1) -> tuple[int, int]:
    offset, length = struct.unpack_from("<II", data, at)
    if offset % align or offset + length * step > len(data):
        raise DecodeError(f"{name}: offset {offset} with length {length} does not fit the record", at)
    return offset, length
