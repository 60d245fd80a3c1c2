"""What a run finds: matches with their events, and counts of what became of events."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.patterns import model
from headwater.patterns.engine.found import Found
from headwater.patterns.run.events import Event, Events
from headwater.patterns.run.identity import identity_of
from headwater.types.model import TIMESTAMP_MAX


class Match:
    """`events` are labels with their events, from the first to the last; `time` is that of the last event, or the
    `deadline` until which something was absent; `key` is that of the partition. Events and identity are made when they
    are asked for: of most matches somebody wants little. `found` and `held` are for those who read many at once."""

    __slots__ = ("_events", "_identity", "_pattern", "deadline", "found", "held", "key")

    def __init__(self, pattern: model.Pattern, found: Found, held: Events) -> None:
        self._pattern, self.found, self.held = pattern, found, held
        self.deadline, self.key = found.deadline, found.key
        self._events: tuple[tuple[str, Event], ...] | None = None
        self._identity: bytes | None = None

    @property
    def events(self) -> tuple[tuple[str, Event], ...]:
        if self._events is None:
            elements, found = self._pattern.elements, self.found
            names = (elements[label].name for label in found.labels)
            self._events = tuple(zip(names, self.held.many(found.events), strict=True))
        return self._events

    @property
    def time(self) -> int:
        """A deadline after the last time that there is, of an event at the end of all times, is at that."""
        if self.deadline is not None:
            return min(self.deadline, TIMESTAMP_MAX)
        return self.held[self.found.events[-1]].time if self._events is None else self._events[-1][1].time

    @property
    def identity(self) -> bytes:
        if self._identity is None:
            self._identity = identity_of(self._pattern, self._pattern.fingerprint, self.events, self.deadline)
        return self._identity

    def __repr__(self) -> str:
        taken = ", ".join(f"{label}: {event.source}/{event.seq}" for label, event in self.events)
        return f"<Match at {self.time}: {taken}>"


@dataclass
class Counts:
    """Events by what became of them, and what was found and given up."""

    events: int = 0
    rows: int = 0
    timeless: int = 0
    keyless: int = 0
    late: int = 0
    matches: int = 0
    given_up: int = 0
    unskipped: int = 0
    contradicted: int = 0  # rows that came after it was no longer waited for them
    marks: int = 0  # events of which only their time and key came


__all__ = ["Counts", "Match"]
