"""Names that an interest written in Python may use, so that editors and type checkers know them.

They are read from the function's source and never called.
"""

from __future__ import annotations

from datetime import datetime


class _Meta:
    """What the service knows of an event."""

    source: str
    node: str
    seq: int
    time: datetime

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"meta.{name} has a value only inside an interest, while an event is evaluated")


meta = _Meta()
