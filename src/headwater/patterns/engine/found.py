"""What an engine hands over: matches as numbers, before anyone knows which events those are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Found:
    """`events` and `labels` from the first to the last. `time` is that of the last event, or the deadline until which
    something was absent, which is `deadline` then; `key` is that of the partition."""

    events: tuple[int, ...]
    labels: tuple[int, ...]
    time: int
    deadline: int | None
    key: tuple[Any, ...]
