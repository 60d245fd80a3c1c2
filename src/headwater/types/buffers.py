"""Arrays and lists of plain numbers: to and from the bytes that lie in a record, by buffer where possible.

Nothing here names a field: a value that does not fit raises any exception, and the careful pass then finds out
where and why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

from headwater.late import np
from headwater.types.model import Scalar, Type

CODES = {
    "bool": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f32": "f",
    "f64": "d",
}

_INTS: frozenset[type] = frozenset({int})
_FLOATS: frozenset[type] = frozenset({int, float})
_BOOLS: frozenset[type] = frozenset({bool})


class Misfit(Exception):
    """A fast path cannot take this value or these bytes; the careful pass says why."""


def is_plain(type: Type) -> bool:
    """Whether an array or list of this element is a buffer of numbers."""
    return isinstance(type, Scalar) and type.name in CODES


@lru_cache(maxsize=64)
def numpy_dtype(type: Type) -> np.dtype[Any]:
    """The little-endian numpy type of a plain element, or of a timestamp (as int64)."""
    assert isinstance(type, Scalar)
    code = {"bool": "?", "timestamp": "q"}.get(type.name) or CODES[type.name]
    return np.dtype("<" + code)


def flatten(value: Any, shape: tuple[int, ...]) -> Sequence[Any]:
    """The elements of nested lists or tuples of exactly this shape, row-major."""
    if (type(value) is not list and type(value) is not tuple) or len(value) != shape[0]:
        raise Misfit
    flat: Sequence[Any] = value
    for n in shape[1:]:
        for row in flat:
            if (type(row) is not list and type(row) is not tuple) or len(row) != n:
                raise Misfit
        flat = list(chain.from_iterable(flat))
    return flat


def nest(flat: Iterable[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Elements, row-major, as nested tuples of a shape."""
    nested = tuple(flat)
    for n in reversed(shape[1:]):
        nested = tuple([nested[i : i + n] for i in range(0, len(nested), n)])
    return nested


def packer(element: Scalar, shape: tuple[int, ...] | None) -> Callable[[Any], bytes]:
    """A function from a sequence or buffer of numbers to their bytes; `shape` None is a list of any length."""
    dtype, code = numpy_dtype(element), CODES[element.name]
    allowed = _BOOLS if element.name == "bool" else _FLOATS if element.is_float else _INTS
    count = prod(shape) if shape is not None else None
    fixed = struct.Struct(f"<{count}{code}").pack if count is not None else None

    def pack(value: Any) -> bytes:
        if type(value) is list or type(value) is tuple:
            flat = flatten(value, shape) if shape is not None else value
            if not allowed.issuperset(map(type, flat)):
                raise Misfit
            if fixed is not None:
                return fixed(*flat)
            return struct.pack(f"<{len(flat)}{code}", *flat)
        if not isinstance(value, np.ndarray):
            value = np.asarray(memoryview(value))
        if value.dtype != dtype or (value.shape != shape if shape is not None else value.ndim != 1):
            raise Misfit
        return value.tobytes()  # type: ignore[no-any-return]

    return pack


def unpacker(element: Scalar) -> Callable[[bytes], list[Any]]:
    """A function from bytes to the numbers in them."""
    code = CODES[element.name]
    if element.name == "bool":

        def unpack_bools(data: bytes) -> list[Any]:
            if data.translate(None, b"\0\1"):
                raise Misfit
            return list(map(bool, data))

        return unpack_bools

    def unpack(data: bytes) -> list[Any]:
        return memoryview(data).cast(code).tolist()  # type: ignore[call-overload,no-any-return]

    return unpack
