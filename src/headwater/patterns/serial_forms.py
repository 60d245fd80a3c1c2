"""What the serial form of a pattern is read with: values as msgpack has them, each of the kind and size it must be."""

from __future__ import annotations

from typing import Any, NoReturn

from headwater.errors import SerialError

MAX_NAME = 255  # bytes of a channel's name are no more


def wrong(what: str) -> NoReturn:
    """Refuse the bytes, by what was expected of them."""
    raise SerialError(f"not the serial form of a pattern: expected {what}")


def list_of(x: Any, what: str, length: int | None = None, most: int = 65_536) -> list[Any]:
    """A list of so many parts, or of no more than that."""
    if x.__class__ is not list or len(x) > most or (length is not None and len(x) != length):
        wrong(what)
    return list(x)


def int_of(x: Any, what: str, low: int, high: int) -> int:
    """A whole number in a range."""
    if x.__class__ is not int or not low <= x <= high:
        wrong(f"{what} from {low} to {high}")
    return int(x)


def str_of(x: Any, what: str, most: int = MAX_NAME) -> str:
    """A text that is not empty."""
    if x.__class__ is not str or not 0 < len(x) <= most:
        wrong(f"{what} of 1 to {most} characters")
    return str(x)


def bool_of(x: Any) -> bool:
    """A truth value."""
    if x.__class__ is not bool:
        wrong("a truth value")
    return bool(x)
