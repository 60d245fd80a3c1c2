"""Offsets of a stream: the sequence number of each source up to which it was read.

An end offset also says what its range needs to be read again just as before: where sources begin that are new in it,
and the interest by which it is judged. In JSON:

    {"version": 1, "seqs": {"hall": {"door": 420}}, "begins": {...}, "ahead": {...}, "lost": {...}, "interest": "...",
     "turn": 12, "promised": {...}}

`begins`   the number after which the range of a source starts, where it is not where the range before ended
`ahead`    the last number seen of a source that the limit cut short: what is missing later was lost
`lost`     first and last number of what retention removed unread
`promised` the time of publication (microseconds) before which a source has nothing that was not read; null of one that
           is known and has promised nothing
`turn`     whose turn it is, where there are more sources than the limit has events
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import StoreError
from headwater.formats import OFFSET

VERSION = OFFSET
Key = tuple[str, str]  # node, source


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a range of a stream ends, by node and source, with what it needs to be read again: see above."""

    seqs: dict[Key, int] = field(default_factory=dict)
    begins: dict[Key, int] = field(default_factory=dict)
    ahead: dict[Key, int] = field(default_factory=dict)
    lost: dict[Key, list[int]] = field(default_factory=dict)
    interest: str | None = None
    turn: int = 0
    promised: dict[Key, int | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"version": VERSION, "seqs": _nested(self.seqs)}
        for name in ("begins", "ahead", "lost", "promised"):
            if getattr(self, name):
                made[name] = _nested(getattr(self, name))
        if self.interest is not None:
            made["interest"] = self.interest
        if self.turn:
            made["turn"] = self.turn
        return made

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offset:
        if found.get("version") != VERSION or not isinstance(found.get("seqs"), dict):
            raise StoreError(
                f"checkpoint: expected an offset of headwater, version {VERSION}, found {str(found)[:200]}; "
                "was it made by another format or a newer release? Use another checkpointLocation"
            )
        flat = {name: _flat(found.get(name, {})) for name in ("seqs", "begins", "ahead", "lost", "promised")}
        return cls(**flat, interest=found.get("interest"), turn=found.get("turn", 0))


def _nested(values: Mapping[Key, Any]) -> dict[str, dict[str, Any]]:
    """By node, then by source, in order of their names: equal offsets are equal texts."""
    made: dict[str, dict[str, Any]] = {}
    for (node, source), value in sorted(values.items()):
        made.setdefault(node, {})[source] = value
    return made


def _flat(values: Mapping[str, Mapping[str, Any]]) -> dict[Key, Any]:
    return {(node, source): value for node, sources in values.items() for source, value in sources.items()}


def flat_seqs(values: Mapping[str, Mapping[str, int]]) -> dict[Key, int]:
    """Sequence numbers from an option, by (node, source)."""
    return _flat(values)


def shares(limit: int, waiting: Mapping[Key, int], *, turn: int = 0) -> dict[Key, int]:
    """How many events each source may send, `limit` in all: equal parts, and what one does not need goes to others.

    Where there are more sources than events to share, `turn` says whose turn it is, so that all get one.
    """
    order = sorted(key for key, count in waiting.items() if count > 0)
    granted = dict.fromkeys(order, 0)
    left = limit
    hungry = order
    while hungry and left >= len(hungry):
        part = left // len(hungry)
        for key in hungry:
            more = min(part, waiting[key] - granted[key])
            granted[key] += more
            left -= more
        hungry = [key for key in hungry if granted[key] < waiting[key]]
    for at in range(min(left, len(hungry))):
        granted[hungry[(turn + at) % len(hungry)]] += 1
    return granted
