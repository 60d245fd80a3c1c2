"""Time put in order: what is decided, what is known not to be, and whom to ask about the rest.

From the last decided time on, the areas of all owners are laid side by side. Where the outcome is certain for all that
has been heard, time is decided. Where it would be certain if nothing were on its way, it is only expected; that is
enough as long as nothing is expected to happen. Where something is, or may be, the owners are asked.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from headwater.objects.zones.conditions import Condition, Verdict, judge
from headwater.objects.zones.peer import Peer
from headwater.objects.zones.ranges import ANYTHING, Anything, Area
from headwater.objects.zones.timeline import Segment

CACHED = 4  # rows of areas of which the verdict is remembered


class Stretch(NamedTuple):
    """Through `end`, beginning with `start`, the outcome is `holds`; None: nobody can know. `event`: it began so."""

    start: int
    end: int
    holds: Verdict
    event: bool
    areas: tuple[Area, ...]


class Doubt(NamedTuple):
    """At `time`, something may have happened of which these owners know more."""

    time: int
    peers: tuple[Peer, ...]


class Examination:
    """Looks at the times after the last one that is decided."""

    def __init__(self, condition: Condition, peers: Sequence[Peer], *, each: bool) -> None:
        self._condition = condition
        self._peers = peers
        self._each = each
        self._seen: tuple[int, Verdict] | None = None  # through when nothing was in doubt, and what held then
        self._cached = deque[tuple[tuple[Area, ...], Verdict]](maxlen=CACHED)

    def decided(self, after: int) -> Iterator[Stretch]:
        """What can be decided, stretch by stretch; it ends where something has to be heard first."""
        last = max(peer.heard for peer in self._peers)
        time = after + 1
        while time <= last:
            segments = [peer.at(time) for peer in self._peers]
            areas = tuple(_area(peer, segment) for peer, segment in zip(self._peers, segments, strict=True))
            verdict = self._verdict(areas, segments)
            if verdict is None and not all(segment is not None and segment.final for segment in segments):
                return
            end = self._end(time)
            event = any(segment is not None and segment.event and segment.start == time for segment in segments)
            yield Stretch(time, end, verdict, event, areas)
            time = end + 1

    def doubts(self, after: int, holds: Verdict) -> Iterator[Doubt]:
        """The times after what is decided at which it is expected to become true, or may, and who has to be heard
        before that is sure. `holds`: what is decided last. Times that were looked at are not looked at again."""
        if self._seen is not None and self._seen[0] >= after:
            after, holds = self._seen
        sure = True
        for time in self._changes(after):
            segments = [peer.at(time) for peer in self._peers]
            areas = tuple(
                peer.tail() if segment is None else segment.area
                for peer, segment in zip(self._peers, segments, strict=True)
            )
            expected = self._verdict(areas, segments)
            if expected is None or (expected and holds is not True):
                unsure = [p for p, at in zip(self._peers, segments, strict=True) if at is None or not at.final]
                sure = False
                if peers := tuple(unsure if expected is None else filter(_matters, unsure)):
                    yield Doubt(time, peers)
            elif sure:
                self._seen = time, expected
            holds = expected

    def revisit(self, time: int) -> None:
        """Something is known of that time that was not expected."""
        if self._seen is not None and time <= self._seen[0]:
            self._seen = None

    def blocked(self, after: int, down: Collection[Peer]) -> bool:
        """Whether the time after what is decided depends on these, of whom nothing is heard."""
        time, areas = after + 1, list[Area]()
        for peer in self._peers:
            segment = peer.at(time)
            areas.append(segment.area if segment else (ANYTHING,) * peer.width if peer in down else peer.tail())
        return judge(self._condition, tuple(chain.from_iterable(areas))) is None

    def _changes(self, after: int) -> Iterator[int]:
        times = {after + 1} | {
            time for peer in self._peers for time in chain(peer.timeline.starts_after(after), (peer.heard + 1,))
        }
        last = max(peer.heard for peer in self._peers)
        return (time for time in sorted(times) if after < time <= last)

    def _end(self, time: int) -> int:
        following = [after for peer in self._peers if (after := peer.timeline.next_after(time)) is not None]
        return min(following) - 1

    def _verdict(self, areas: tuple[Area, ...], segments: Sequence[Segment | None]) -> Verdict:
        if self._each and any(segment is not None and segment.merged and segment.event for segment in segments):
            return None  # how many events there were is not known any more
        return self._judge(areas)

    def _judge(self, areas: tuple[Area, ...]) -> Verdict:
        for known, verdict in self._cached:
            if all(map(operator.is_, known, areas)):
                return verdict
        verdict = judge(self._condition, tuple(chain.from_iterable(areas)))
        self._cached.append((areas, verdict))
        return verdict


def _area(peer: Peer, segment: Segment | None) -> Area:
    return (ANYTHING,) * peer.width if segment is None else segment.area


def _matters(peer: Peer) -> bool:
    """Whether the outcome depends on where it is, as far as is expected."""
    return not all(isinstance(range, Anything) for range in peer.tail())
