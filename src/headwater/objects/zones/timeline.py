"""What is known of an owner's values over time: areas one after the other, without gaps, through what was heard."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.objects.zones.messages import Item
from headwater.objects.zones.ranges import Area, hull_of, is_exact

MAX_SEGMENTS = 4096  # that wait to be decided; more of them are put together, and known less exactly


class Segment(NamedTuple):
    """From `start` until the next one. `final`: nobody knows it more exactly. `event`: it began with one."""

    start: int
    area: Area
    final: bool
    event: bool = False
    merged: bool = False


class Timeline:
    """Segments of one owner, for the times that are not decided yet."""

    def __init__(self, start: int, area: Area) -> None:
        """Nothing is known at `start` itself, but that it is the beginning."""
        self._segments = [Segment(start, area, final=True)]
        self.heard = start

    def at(self, time: int) -> Segment:
        """What is known of a time that has been heard of."""
        return self._segments[self._index(time)]

    def next_after(self, time: int) -> int | None:
        """When what is known changes next: a segment begins, or nothing is heard of any more. None: after that."""
        following = self._index(time) + 1
        if following < len(self._segments):
            return self._segments[following].start
        return self.heard + 1 if time <= self.heard else None

    def starts_after(self, time: int) -> Iterator[int]:
        """When segments begin, after that time."""
        return (segment.start for segment in self._segments[bisect_right(self._segments, time, key=_start) :])

    def extend(self, through: int, area: Area, *, final: bool = False) -> None:
        """It was in this area from what had been heard through that time."""
        if through <= self.heard:
            return
        last, final = self._segments[-1], final or is_exact(area)
        if last.area != area or last.final != final:
            self._append(Segment(self.heard + 1, area, final))
        self.heard = through

    def change(self, stamp: int, area: Area, *, event: bool) -> None:
        """An exact value, from that stamp on, which is the latest that has been heard of."""
        if stamp > self.heard:
            self._append(Segment(stamp, area, final=True, event=event))
            self.heard = stamp

    def refine(self, since: int, through: int, items: Sequence[Item]) -> None:
        """What the owner itself remembers of the time from `since` through `through`: it knows best."""
        since = max(since, self._segments[0].start)
        if through < since:
            return
        before = self._segments[: bisect_right(self._segments, since - 1, key=_start)]
        after = list[Segment]()
        if through < self.heard:
            resumed = self._segments[self._index(through + 1)]
            after.append(resumed._replace(start=through + 1, event=resumed.event and resumed.start == through + 1))
            after += self._segments[bisect_right(self._segments, through + 1, key=_start) :]
        told = [item for item in items if item.start <= through]
        segments = [
            Segment(max(item.start, since), item.area, True, item.event and item.start >= since, item.merged)
            for item in told
        ]
        self._segments = [*before, *segments, *after]
        self.heard = max(self.heard, through)
        self._shorten()

    def forget(self, before: int) -> None:
        """Times before that are decided."""
        del self._segments[: self._index(before)]

    def _index(self, time: int) -> int:
        return max(0, bisect_right(self._segments, time, key=_start) - 1)

    def _append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._shorten()

    def _shorten(self) -> None:
        while len(self._segments) > MAX_SEGMENTS:
            first, second = self._segments[:2]
            area = hull_of((first.area, second.area))
            both = Segment(first.start, area, first.final and second.final, first.event or second.event, merged=True)
            self._segments[:2] = [both]


def _start(segment: Segment) -> int:
    return segment.start
