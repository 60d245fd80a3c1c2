"""What kernels compute with: two kinds of numbers, arrays of four kinds, and the few functions Python has no sign for.

    i64    64 bits, two's complement: `+ - * - <<` wrap; `>>` shifts in the sign; shifts go by the amount modulo 64;
           `//` and `%` floor, by a positive constant only
    f64    IEEE 754, nothing reordered or fused; `/` by zero is an infinity or NaN, as in C and unlike in Python
    i64s, f64s, i32s, u8s   arrays: an element is read as i64 or f64; what is stored is cut to the element's width

The functions here are what CPython runs; the machine's are in `assembly.py`, and property tests compare them.
"""

from __future__ import annotations

import math
import struct
from typing import TypeAlias

i64: TypeAlias = int
f64: TypeAlias = float

BITS = 64
LEAST, MOST = -(1 << 63), (1 << 63) - 1
_NAN_BITS = 0x7FF8_0000_0000_0000


class _Integers:
    """An array whose elements are read as i64."""

    def __getitem__(self, index: int) -> int: ...  # type: ignore[empty-body]

    def __setitem__(self, index: int, value: int) -> None: ...


class i64s(_Integers):
    """64-bit integers."""


class i32s(_Integers):
    """32-bit integers, with a sign."""


class u8s(_Integers):
    """Bytes."""


class f64s:
    """Doubles."""

    def __getitem__(self, index: int) -> float: ...  # type: ignore[empty-body]

    def __setitem__(self, index: int, value: float) -> None: ...


class Arrays:
    """Arrays that kernels have in common. A subclass names them, each by an annotation; a kernel whose first parameter
    is one takes those of it that it uses, and those that kernels it hands it on to use."""


# ── functions of the language ──


def bits(x: float) -> int:
    """The bits of a double as an i64; of NaN always the same ones, whatever it came from."""
    return _NAN_BITS if x != x else int(struct.unpack("<q", struct.pack("<d", x))[0])


def float_of(x: int) -> float:
    """The double with these bits."""
    return float(struct.unpack("<d", struct.pack("<q", x))[0])


def logical_shift(x: int, by: int) -> int:
    """To the right, zeros coming in, by the amount modulo 64."""
    return wrap((x & ((1 << BITS) - 1)) >> (by & 63))


def trailing_zeros(x: int) -> int:
    """How many of the lowest bits are zero; 64 for 0."""
    return BITS if x == 0 else (x & -x).bit_length() - 1


def mul_overflows(a: int, b: int) -> int:
    """1 if the product does not fit."""
    return 0 if LEAST <= a * b <= MOST else 1


# ── what the operators mean where Python's own mean something else ──


def wrap(x: int) -> int:
    """The i64 that the lowest 64 bits of a number are."""
    return ((x - LEAST) & ((1 << BITS) - 1)) + LEAST


def wrap32(x: int) -> int:
    """The lower 32 bits as a signed number: what storing into an array of i32 keeps."""
    return ((x + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31)


def divide(a: float, b: float) -> float:
    """Division as processors do it: by zero it is infinite or NaN, where Python raises."""
    if b == 0.0:
        if a == 0.0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def truncated(x: float) -> int:
    """Toward zero; what does not fit becomes the nearest that does, NaN 0."""
    if x != x:
        return 0
    return LEAST if x <= -9.223372036854775808e18 else MOST if x >= 9.223372036854775808e18 else int(x)


def negative_index(index: int) -> int:
    """Refuse an index that Python would count from the end, and compiled code would read outside the array."""
    raise IndexError(f"index {index}: expected 0 or more")
