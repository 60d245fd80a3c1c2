"""A lane whose events come from the log: it reads on from there, as the peer takes them, until it has caught up.

That is so where a peer was away, or this node, and where the lane is full: then the publisher need not wait. What the
log has is judged by what the peer wants now. The point where the lane goes over to events as they are published is
exact: either no event was published since the log was read, with the source standing still; or, for what is short, the
lane takes events in again from a point on while it reads up to that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.channel.backlog.contract import Reading
from headwater.channel.backlog.stretch import Stretch, StretchJudge
from headwater.channel.routing.route import meet
from headwater.errors import HeadwaterError, StoreError
from headwater.federation.send.frame_builder import MAX_EVENTS
from headwater.federation.send.pending import BYTES
from headwater.federation.wire import frames as wire
from headwater.late import np, pa

if TYPE_CHECKING:
    from headwater.channel.routing.limiter import Limiter
    from headwater.channel.routing.route import Entry
    from headwater.federation.send.lane import Lane

log = logging.getLogger("headwater.federation")
NEARLY_EVENTS = 2048  # events behind, from which on new ones are taken in again
FIRST_EVENTS = 8  # in the first frame


class CatchUp:
    """Used by whoever builds the lane's frames, one thread at a time.

    `after` is by tag the last event that the peer has; of what it wants beside that, `rest`. `since` is by tag from
    where on the state of an interest counts. `again`: some of it may have come to an earlier process of the peer."""

    def __init__(self, lane: Lane, after: dict[int, int], since: dict[int, int], rest: int, *, again: bool) -> None:
        self.lane, self._after, self._since, self._rest, self._again = lane, after, since, rest, again
        self._source = lane.source
        self._channel = lane.crossing.channel
        self._flow = lane.source.flows[self._channel]
        self._judges: dict[Entry, StretchJudge] = {}
        self._limiters: dict[Limiter, Limiter] = {}
        self.begun = False  # what was put in before is sent
        self.follows: Lane | None = None  # the lane of an earlier source of that name, which has to catch up first
        self.closing: int | None = None  # the last event to read: the lane takes in those after it
        starts = [min(self._start(tag), self._since.get(tag, self._start(tag))) for tag in lane.crossing.wishes]
        self.at = min(starts, default=rest)  # the last event that was read
        self._parts: Iterator[Stretch] | None = None
        self._upto = 0
        self._frame_events = FIRST_EVENTS  # in the next frame, at most

    def _start(self, tag: int) -> int:
        found = self.lane.crossing.wishes.get(tag)
        alone = found is not None and found[1].tag != 0
        return self._after.get(tag if alone else 0, self._rest)  # all filters are one stream

    @property
    def _stateful(self) -> bool:
        """Whether an interest goes on with the state that it has at the end of the log."""
        wishes = list(self.lane.crossing.wishes.values())
        return any(entry.interest is not None and entry.interest.stateful for entry, _ in wishes)

    def step(self, frames: list[bytes]) -> bool:
        """Frames of some more events; whether that was all."""
        if self._parts is None and self._over(frames):
            return True
        part = self._next()
        if part is not None:
            self.at = part.upto
            self._judge(part, frames)
            return False
        self.at, self._parts = self._upto, None
        return self.closing is not None and self._end()

    def _over(self, frames: list[bytes]) -> bool:
        """Whether nothing is left to be read; else that has begun."""
        flow = self._flow
        self._upto = flow.seen
        if self._upto - self.at <= NEARLY_EVENTS:
            with self._source.lock:
                self._upto = flow.seen
                if self.at >= self._upto:
                    return self._end()
                if self._stateful:  # nobody publishes while the last few are judged
                    self._read()
                    while (part := self._next()) is not None:
                        self.at = part.upto
                        self._judge(part, frames)
                    self.at = self._upto
                    return self._end()
                self.closing = self._upto
        self._read()
        return False

    def _read(self) -> None:
        """Begin to read. What retention has removed since the peer had the events before it is lost to the peer."""
        try:
            self._parts = parts = self._channel.backlog.read(self._source.name, self.at, self._upto)
            gap = parts.gap
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            self._lost(error)
            self._parts = iter(())
            return
        if gap is not None:
            self._missing(*gap, "the log has them no longer")

    def _next(self) -> Stretch | None:
        """The next events to be read. Where the log cannot be read, they are lost to the peer, which is told."""
        parts = self._parts
        assert parts is not None
        try:
            found = next(parts, None)
            if found is None and isinstance(parts, Reading) and parts.upto < self._upto:
                raise StoreError(f"the log ends at event {parts.upto}")
            return found
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            self._lost(error)
            return None

    def _lost(self, error: Exception) -> None:
        self._missing(self.at + 1, self._upto, f"{type(error).__name__}: {error}")

    def _missing(self, first: int, last: int, why: str) -> None:
        """Events that the peer will not get, as far as it would want them."""
        self.lane.dropped += last - first + 1
        log.error("%s: events %d to %d cannot go to node %s: %s", self._source, first, last, self.lane.peer.name, why)

    def _end(self) -> bool:
        """The lane goes on by itself; interests with state go on from where they are."""
        for entry, judge in self._judges.items():
            if judge.stateful and judge.runner is not None:
                self._flow.goes_on(entry, judge.runner)
        self.lane.caught_up(self.at)
        return True

    # ── what the peer wants of it ──

    def _judge(self, part: Stretch, frames: list[bytes]) -> None:
        merged = np.zeros(len(part), bool)
        for tag, (entry, member) in list(self.lane.crossing.wishes.items()):
            if not meet(self._source.zones, entry.zones):
                continue
            start = self._start(tag)
            if member.tag:
                self._alone(tag, entry, member, start, part, frames)
            else:
                passed = np.zeros(len(part), bool)
                passed[self._judge_of(entry).places(part)] = True
                merged |= passed & (part.seqs > start)
        if merged.any():
            self._emit(0, part.take(np.flatnonzero(merged)), frames)

    def _alone(self, tag: int, entry: Entry, member: Any, start: int, part: Stretch, frames: list[bytes]) -> None:
        from_here = min(start, self._since.get(tag, start))
        new = self._judge_of(entry)(part.after(from_here)).after(start)
        if member.limiter is not None and len(new):
            new = self._within_rate(member.limiter, new)
        if len(new):
            member.passed += len(new)
            self.lane.tagging = True
            self._emit(tag, new, frames, None if new.type is not None else member.tag_of)

    def _within_rate(self, limiter: Limiter, new: Stretch) -> Stretch:
        """What of these the rate of a wish lets pass: by their own times, so that it is about the same as when they
        were published, and by their age now. It begins with a full burst, and what is published goes on without it."""
        mine = self._limiters.get(limiter)
        if mine is None:
            mine = self._limiters[limiter] = limiter.anew()
        before, now = mine.shed, self._source._stamp()
        places = mine.places(new.records, new.stamps.tolist(), self._source.priority, now=now)
        limiter.count_shed(mine.shed - before)
        return new.take(np.array(places, dtype=np.int64)) if len(places) < len(new) else new

    def _cuts(self, events: int) -> Iterator[tuple[int, int]]:
        """So many events in frames, the first ones small (slow start): the sinks there have waited, and go on with the
        first event when its frame is here."""
        start = 0
        while start < events:
            end = min(events, start + self._frame_events)
            yield start, end
            start, self._frame_events = end, min(MAX_EVENTS, self._frame_events * 8)

    def _judge_of(self, entry: Entry) -> StretchJudge:
        found = self._judges.get(entry)
        if found is None:
            source = self._source
            clock = self._channel.node.clock
            found = StretchJudge(entry.interest, source.name, source.node, clock=clock, context=source.context)
            self._judges[entry] = found
        return found

    def _emit(self, tag: int, part: Stretch, frames: list[bytes], tag_of: Callable[[bytes], int] | None = None) -> None:
        """Frames of what was read and judged, each kept until it is acknowledged like any other. `tag_of`: where it is
        of several types, what each record is tagged with."""
        lane, seqs, stamps, records = self.lane, part.seqs, part.stamps, part.records
        for start, end in self._cuts(len(records)):
            numbers, times, some = seqs[start:end].tolist(), stamps[start:end].tolist(), records[start:end]
            tags = None if not tag else [(tag,)] * len(some)
            if tag_of is not None:
                tags = [(tag_of(record),) for record in some]
            for first, last in wire.runs(numbers, times, some, tags, limit=BYTES, alone=True):
                cut = slice(first, last)
                if last - first == 1 and len(some[first]) > lane.largest:
                    lane.too_large(len(some[first]), some[first])
                    continue
                lane.number += 1
                frame = wire.encode_events(
                    lane.sid,
                    lane.number,
                    numbers[cut],
                    times[cut],
                    some[cut],
                    None if tags is None else tags[cut],
                    resent=self._again,
                    header=lane.header,
                )
                lane.framed(numbers[last - 1], last - first, frame, frames)
