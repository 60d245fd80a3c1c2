"""What the operators and functions that cannot fault compute, on values that are there."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any


def compare(op: str, x: Any, y: Any) -> bool:
    """Two values that are there; text by its UTF-8 bytes, NaN unequal to everything."""
    if isinstance(x, str):
        x, y = x.encode(), y.encode()
    match op:
        case "eq":
            return bool(x == y)
        case "ne":
            return bool(x != y)
        case "lt":
            return bool(x < y)
        case "le":
            return bool(x <= y)
        case "gt":
            return bool(x > y)
        case _:
            return bool(x >= y)


def least(x: Any, y: Any) -> Any:
    """The lesser of two; NaN if one of them is."""
    return x if x != x else y if y != y or y < x else x


def greatest(x: Any, y: Any) -> Any:
    """The greater of two; NaN if one of them is."""
    return x if x != x else y if y != y or y > x else x


def to_double(x: int) -> float:
    """The nearest float."""
    return float(x)  # CPython rounds to nearest even


def round_f32(x: float) -> float:
    """To the nearest float32; too large becomes infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _ascii(x: str, change: Callable[[str], str]) -> str:
    return "".join(change(c) if c.isascii() else c for c in x)


def like(text: str, pattern: str) -> bool:
    """SQL's LIKE: % any run, _ one code point, backslash takes the next character as itself, and is itself at the
    end."""
    tokens: list[str | None] = []  # a character, "" for %, None for _
    escaped = False
    for c in pattern:
        if escaped or c not in "%_\\":
            tokens.append(c)
            escaped = False
        elif c == "\\":
            escaped = True
        else:
            tokens.append("" if c == "%" else None)
    if escaped:
        tokens.append("\\")
    reached = {0}  # positions of the text that the tokens so far can end at
    for token in tokens:
        if token == "":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and token in (None, text[at])}
    return len(text) in reached


def _civil(micros: int) -> tuple[int, int, int]:
    """Year, month, day of the proleptic Gregorian calendar, from days counted in 400-year eras from March."""
    days = micros // 86_400_000_000 + 719_468
    era, day = divmod(days, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (
        year + era * 400 + (1 if month >= 10 else 0),
        month + 3 if month < 10 else month - 9,
        of_year - (153 * month + 2) // 5 + 1,
    )


def _distance(*xs: float) -> float:
    half = len(xs) // 2
    total = 0.0
    for a, b in zip(xs[:half], xs[half:], strict=True):
        total = total + (a - b) * (a - b)
    return math.sqrt(total)


@cache
def _c_mathematics() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # no glibc: it has to be looked for, on some systems by other programs, which takes its time
        from ctypes.util import find_library

        return ctypes.CDLL(find_library("m"))


@cache
def libm(name: str) -> Any:
    """The machine's own C function, so that native code can call the very same one."""
    function = getattr(_c_mathematics(), name)
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * (2 if name == "pow" else 1)
    return function


PLAIN: dict[str, Callable[..., Any]] = {
    "floor": lambda x: x if not math.isfinite(x) else math.copysign(float(math.floor(x)), x),
    "ceil": lambda x: x if not math.isfinite(x) else math.copysign(float(math.ceil(x)), x),
    "sqrt": lambda x: math.nan if x != x or x < 0 else math.sqrt(x),
    "is_nan": lambda x: x != x,
    "distance": _distance,
    "distance3": _distance,
    "length": len,
    "byte_length": lambda x: len(x.encode() if isinstance(x, str) else x),
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda text, part: part in text,
    "like": like,
    "lower": lambda x: _ascii(x, str.lower),
    "upper": lambda x: _ascii(x, str.upper),
    "year": lambda t: _civil(t)[0],
    "month": lambda t: _civil(t)[1],
    "day": lambda t: _civil(t)[2],
    "hour": lambda t: t // 3_600_000_000 % 24,
    "minute": lambda t: t // 60_000_000 % 60,
    "second": lambda t: t // 1_000_000 % 60,
    "weekday": lambda t: (t // 86_400_000_000 + 3) % 7,
    "micros": lambda t: t,
    "code": lambda code: code,
}


def _of_c(name: str) -> Callable[..., Any]:
    """A function of libm, which is opened when one is first called."""
    return lambda *xs: libm(name)(*xs)


PLAIN |= {name: _of_c(name) for name in ("pow", "exp", "log", "sin", "cos")}
