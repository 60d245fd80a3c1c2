"""The kernel language: a strict subset of Python over arrays of numbers, run by CPython and as machine code."""

from headwater.native.subset.checking import ARRAYS
from headwater.native.subset.kernel import Kernel, Mode, entry, kernel, prepare
from headwater.native.subset.numbers import (
    Arrays,
    bits,
    f64,
    f64s,
    float_of,
    i32s,
    i64,
    i64s,
    logical_shift,
    mul_overflows,
    trailing_zeros,
    u8s,
)

__all__ = [
    "ARRAYS",
    "Arrays",
    "Kernel",
    "Mode",
    "bits",
    "entry",
    "f64",
    "f64s",
    "float_of",
    "i32s",
    "i64",
    "i64s",
    "kernel",
    "logical_shift",
    "mul_overflows",
    "prepare",
    "trailing_zeros",
    "u8s",
]
