"""The last events of sources in memory: a ring for each, and the backlog that reads them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.channel.backlog.contract import Reading, judge_of
from headwater.channel.backlog.stretch import Stretch, StretchJudge

if TYPE_CHECKING:
    from headwater.channel.backlog.contract import RememberedChannel
    from headwater.interest import Interest
    from headwater.types import EventType

STRETCH_EVENTS = 4096
MEANWHILE = 64  # slots that are copied beside those that are wanted, since more may come while they are counted

Slot = TypeVar("Slot", bound=tuple[Any, ...])
Event = tuple[int, int, Any]  # number, time, record


class Ring(deque[Slot]):
    """Slots in the order of their numbers, which are the first item of each. One thread at a time puts slots in; where
    a ring is bounded, the oldest gives way. Any thread may read."""

    def after(self, number: int) -> list[Slot]:
        """A copy of the slots with higher numbers, as far as they are still there."""
        found = self._end(number)
        return found[bisect_right(found, number, key=_number) :]

    def _end(self, number: int) -> list[Slot]:
        """The same with some before them, unless there are none. A copy of the end is two steps, and fails if something
        is put in between them; a copy of the whole is one, which nobody divides."""
        try:
            wanted = self[-1][0] - number + MEANWHILE
        except IndexError:
            return []
        while wanted < len(self):
            try:
                found = list(islice(reversed(self), max(1, wanted)))
            except RuntimeError:
                break
            if found and found[-1][0] <= number:
                found.reverse()
                return found
            wanted = 2 * max(1, wanted)
        return list(self)

    def release(self, number: int) -> list[Slot]:
        """Take out the slots up to this number: nobody wants them any more."""
        done: list[Slot] = []
        while self and self[0][0] <= number:
            done.append(self.popleft())
        return done


def _number(slot: tuple[Any, ...]) -> int:
    number: int = slot[0]
    return number


class EventRing(Ring[Event]):
    """The last events of one source. What it passes on for others may have holes, which are none: those events were
    not wanted here. It may also come again, after a link was replaced: a ring has each event once."""

    def __init__(self, events: int, base: int) -> None:
        super().__init__(maxlen=events)
        self.base = base  # the last event before all that were put in

    def put(self, event: Event) -> None:
        """One more, unless it has come again."""
        if not self or event[0] > self[-1][0]:
            self.append(event)

    def put_all(self, events: list[Event]) -> None:
        """Some more, ascending, but for those that have come again."""
        self.extend(events if not self else events[bisect_right(events, self[-1][0], key=_number) :])

    def begin_anew(self, number: int) -> None:
        """Events up to this one were not put in: what follows does not follow on what is here."""
        self.base = number
        self.clear()

    def copied(self, after: int) -> tuple[int, list[Event]]:
        """The events after this one that there are, and from which number on that is all of them."""
        found = self._end(after)
        at = bisect_right(found, after, key=_number)
        if at:
            return after + 1, found[at:]
        return found[0][0] if len(found) == self.maxlen else self.base + 1, found

    @property
    def last(self) -> int:
        try:
            return self[-1][0]
        except IndexError:
            return self.base


class Rings:
    """The backlog of a channel whose sources' last events are kept in memory (`Config(history=…)`): of those that are
    open, for a source that comes again begins anew."""

    remembers = True

    def __init__(self, channel: RememberedChannel) -> None:
        self._channel = channel

    def first(self, source: str) -> int:
        return self.copied(source, 0)[0]

    def last(self, source: str) -> int:
        ring = self._ring(source)
        return 0 if ring is None else ring.last

    def read(
        self, source: str, after: int = 0, upto: int | None = None, interest: Interest | StretchJudge | None = None
    ) -> Reading:
        first, events = self.copied(source, after)
        last = events[-1][0] if events else max(after, first - 1)
        upto = last if upto is None else min(upto, last)
        parts = Copied(events, first, after, upto, self._channel.type)
        return Reading(parts, after, upto, judge_of(interest, self._channel, source))

    def copied(self, source: str, after: int) -> tuple[int, list[Event]]:
        """As `EventRing.copied`."""
        ring = self._ring(source)
        return (1, []) if ring is None else ring.copied(after)

    def _ring(self, source: str) -> EventRing | None:
        found = self._channel.sources.get(source)
        return None if found is None else found.ring


class Copied:
    """Events that were copied from a ring, in stretches."""

    def __init__(self, events: list[Event], first: int, after: int, upto: int, type: EventType | None) -> None:
        self._events, self._upto, self._type = events[: bisect_right(events, upto, key=_number)], upto, type
        self.gap = (after + 1, min(first - 1, upto)) if after + 1 < first and upto > after else None

    def __iter__(self) -> Iterator[Stretch]:
        for start in range(0, len(self._events), STRETCH_EVENTS):
            end = start + STRETCH_EVENTS
            seqs, stamps, records = zip(*self._events[start:end], strict=True)
            upto = self._upto if end >= len(self._events) else seqs[-1]
            yield Stretch(upto, seqs, stamps, self._type, records=list(records))
