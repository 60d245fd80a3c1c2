"""Marks: what may go in the place of an event, where it need not be known what that was.

An interest whose output is a mark says of each event that it passes whether the event itself is to go, or the mark
alone: a mark's first field is `whole`. So what somebody wants whole and what they only have to know of come in one
stream, in its order. Patterns ask for such (`patterns/crossing/marks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.types.layout import HEADER_SIZE, Layout
from headwater.types.model import BOOL, Field, Record

if TYPE_CHECKING:
    from headwater.types.event_type import EventType

NAME = "headwater mark"  # of the type; no class has such a name
WHOLE = "whole"


def mark_type(fields: Sequence[Field]) -> Record:
    """The type of marks that have these fields as well."""
    return Record(NAME, (Field(WHOLE, BOOL), *fields))


@lru_cache(maxsize=256)
def whole_at(record: Record) -> int | None:
    """Which byte of a mark says whether the event itself goes in its place; None if the type is not that of marks."""
    if record.name != NAME or not record.fields or record.fields[0] != Field(WHOLE, BOOL):
        return None
    return HEADER_SIZE + Layout.of(record).slots[WHOLE].offset


def is_of(record: bytes, type: EventType) -> bool:
    """Whether a record says that it is of a type."""
    return record[4:HEADER_SIZE] == Layout.of(type.record).header


__all__ = ["NAME", "WHOLE", "is_of", "mark_type", "whole_at"]
