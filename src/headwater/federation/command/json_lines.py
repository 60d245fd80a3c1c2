"""Events as lines of JSON, for the command line: as `types/plain.py` has them, and bytes as one base64 text a line."""

from __future__ import annotations

from typing import Any

from headwater.types import EventType
from headwater.types.model import BYTES
from headwater.types.plain import loads, object_in, shown, taken, to_json


def to_line(type: EventType | None, event: Any) -> str:
    """An event of this type (None: bytes) as one line."""
    return f'"{shown(BYTES, event)}"' if type is None else to_json(type, event)


def from_line(type: EventType | None, line: str | bytes) -> Any:
    """What a source of this type takes for a line; EncodeError if that is not JSON of the right form."""
    return taken(BYTES, loads(line)) if type is None else object_in(type, line)


__all__ = ["from_line", "to_line"]
