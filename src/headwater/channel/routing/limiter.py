"""What a rate lets pass of events, one by one and by batch, and how many it has shed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.letter import Chunk, Letter, Rows
from headwater.channel.time.token_bucket import Packed, TokenBucket
from headwater.late import np

if TYPE_CHECKING:
    from headwater.channel.options.expression import Expression
    from headwater.channel.options.rate import Rate

FIRST = 2**62  # the highest priority there is


class Limiter:
    """One bucket, which several sources may share: it has a lock of its own.

    Time is that of the events, which is the time at their source when they are published. `priority` says how urgent
    an event is; without it the priority of its source counts."""

    def __init__(self, rate: Packed, priority: Expression | None = None) -> None:
        self.rate, self.priority = rate, priority
        self.shed = 0
        self._bucket = TokenBucket(rate)
        self._age = rate[3]
        self._lock = threading.Lock()
        # Whether events of one batch may differ: then they are looked at one by one.
        self._by_event = bool(rate[2]) and priority is not None and priority.constant is None

    @classmethod
    def of(cls, rate: Rate, priority: Expression | None = None) -> Limiter:
        """For a rate that was given."""
        return cls(rate.packed(), priority)

    def anew(self) -> Limiter:
        """One more of the same rate, which is full."""
        return Limiter(self.rate, self.priority)

    def admits(self, letter: Letter, now: int | None = None) -> bool:
        """Whether an event may go; else it is shed, and counted. `now`, if it was published before, is the time."""
        return self.take(letter.stamp, self._urgency(letter.record, letter.priority), now=now) == 1

    def admitted(self, chunk: Chunk, records: Any, now: int | None = None) -> Chunk | None:
        """What of a batch may go, as a part of the same whole; None if nothing may. `records` gives the records of a
        chunk, if these are asked for."""
        n = len(chunk)
        if not self._by_event:
            taken = self.take(chunk.stamp, self._urgency(b"", chunk.priority), n, now=now)
            places = None if taken == n else np.arange(taken)
        else:
            passed = self.places(records(chunk), [chunk.stamp] * n, chunk.priority, now=now)
            places = None if len(passed) == n else np.array(passed, dtype=np.int64)
        if places is None:
            return chunk
        return rows_of(chunk, places) if len(places) else None

    def places(
        self, records: Sequence[bytes], stamps: Sequence[int], priority: int, *, now: int | None = None
    ) -> list[int]:
        """Which of these events may go, by their places; `priority` is that of their source."""
        return [
            at
            for at, (record, stamp) in enumerate(zip(records, stamps, strict=True))
            if self.take(stamp, self._urgency(record, priority), now=now)
        ]

    def take(self, stamp: int, priority: int, events: int = 1, *, now: int | None = None) -> int:
        """How many of so many events of that time may go; the others are shed."""
        with self._lock:
            if now is not None and self._age and now - stamp > self._age:
                taken = 0
            else:
                taken = self._bucket.take(stamp, events, priority)
            self.shed += events - taken
        return taken

    def wait(self, now: int, priority: int) -> int:
        """In how many nanoseconds an event may go; 0 if now."""
        with self._lock:
            return self._bucket.wait(now, priority)

    def spend(self, events: int) -> None:
        """So many have gone, whether they were within the rate or not."""
        with self._lock:
            self._bucket.spend(events)

    def count_shed(self, events: int) -> None:
        """So many more were shed by another of the same rate."""
        with self._lock:
            self.shed += events

    def old(self, stamp: int, now: int, events: int) -> bool:
        """Whether events of that time are too old; then they are shed."""
        if not self._age or now - stamp <= self._age:
            return False
        with self._lock:
            self.shed += events
        return True

    def _urgency(self, record: bytes, priority: int) -> int:
        if self.priority is None:
            return priority
        value = self.priority.value(record) if self.priority.constant is None else self.priority.constant
        return 0 if value is None else int(max(-FIRST, min(FIRST, value)))


def rows_of(chunk: Chunk, places: Any) -> Rows:
    """Some rows of a chunk, by their places in it, as a part of what it is a part of."""
    if isinstance(chunk, Rows):
        return Rows(chunk.origin, chunk.places[places], 0, len(places))
    return Rows(chunk, places, 0, len(places))


__all__ = ["Limiter", "rows_of"]
