"""How many columns of a terminal a text takes: two for characters of East Asian scripts and most emoji, none for marks.

By what Unicode says of each character (`unicodedata`). What several make together (a family of emoji, a flag) is
counted one by one, as terminals differ in what they draw.
"""

from __future__ import annotations

from functools import lru_cache
from unicodedata import category, east_asian_width

_NONE = ("Mn", "Me", "Cf")  # they are drawn over what is before them, or not at all


@lru_cache(4096)
def _width(character: str) -> int:
    if category(character) in _NONE:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def columns(text: str) -> int:
    """The columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def beginning(text: str, room: int) -> str:
    """As much of a text as there is room for, filled with a space where half a character is left out."""
    if text.isascii():
        return text[:room].ljust(room)
    taken = end = 0
    for character in text:
        width = _width(character)
        if taken + width > room:
            break
        taken += width
        end += 1
    return text[:end] + " " * (room - taken)


__all__ = ["beginning", "columns"]
