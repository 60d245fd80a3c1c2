"""A lane whose events come from the log: it reads on from there, as the peer takes them, until it has caught up.

That is so where a peer was away, or this node, and where the lane is full: then the publisher need not wait. What the
log has is judged by what the peer wants now. The point where the lane goes over to events as they are published is
exact: either no event was published since the log was read, with the source standing still; or, for what is short, the
lane takes events in again from a point on while it reads up to that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.node_logs import Logged, read
from headwater.channel.routing.past import judged
from headwater.channel.routing.route import meet
from headwater.errors import HeadwaterError
from headwater.federation.send.frame_builder import MAX_EVENTS
from headwater.federation.send.pending import BYTES
from headwater.federation.wire import frames as wire
from headwater.late import np, pa

if TYPE_CHECKING:
    from headwater.channel.routing.route import Entry
    from headwater.federation.send.lane import Lane
    from headwater.native.program import Native

log = logging.getLogger("headwater.federation")
NEARLY_EVENTS = 2048  # events behind, from which on new ones are taken in again


class CatchUp:
    """Used by whoever builds the lane's frames, one thread at a time.

    `after` is by tag the last event that the peer has; of what it wants beside that, `rest`. `since` is by tag from
    where on the state of an interest counts. `again`: some of it may have come to an earlier process of the peer."""

    def __init__(self, lane: Lane, after: dict[int, int], since: dict[int, int], rest: int, *, again: bool) -> None:
        self.lane, self._after, self._since, self._rest, self._again = lane, after, since, rest, again
        self._source = lane.source
        self._channel = lane.crossing.channel
        self._flow = lane.source.flows[self._channel]
        self._runners: dict[Entry, Native] = {}
        self.begun = False  # what was put in before is sent
        self.follows: Lane | None = None  # the lane of an earlier source of that name, which has to catch up first
        self.closing: int | None = None  # the last event to read: the lane takes in those after it
        starts = [min(self._start(tag), self._since.get(tag, self._start(tag))) for tag in lane.crossing.wishes]
        self.at = min(starts, default=rest)  # the last event that was read
        self._parts: Iterator[Logged] | None = None
        self._upto = 0

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
            self.at = int(part.seqs[-1])
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
                        self._judge(part, frames)
                    self.at = self._upto
                    return self._end()
                self.closing = self._upto
        self._read()
        return False

    def _read(self) -> None:
        log = self._source.log
        assert log is not None
        self._parts = read(log, self._channel, self._source.name, self.at, self._upto)

    def _next(self) -> Logged | None:
        """The next events to be read. Where the log cannot be read, they are lost to the peer, which is told."""
        assert self._parts is not None
        try:
            return next(self._parts, None)
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            self.lane.dropped += self._upto - self.at
            found = f"{type(error).__name__}: {error}"
            log.error("%s: events %d to %d cannot go to node %s: %s", self._source, self.at + 1, self._upto,
                      self.lane.peer.name, found)  # fmt: skip
            return None

    def _end(self) -> bool:
        """The lane goes on by itself; interests with state go on from where they are."""
        for entry, native in self._runners.items():
            if entry.interest is not None and entry.interest.stateful:
                self._flow.goes_on(entry, native)
        self.lane.caught_up(self.at)
        return True

    # ── what the peer wants of it ──

    def _judge(self, part: Logged, frames: list[bytes]) -> None:
        merged = np.zeros(len(part), bool)
        for tag, (entry, member) in list(self.lane.crossing.wishes.items()):
            if not meet(self._source.zones, entry.zones):
                continue
            start = self._start(tag)
            if member.tag:
                self._alone(tag, entry, member, start, part, frames)
            else:
                merged |= self._passes(entry, part) & (part.seqs > start)
        if merged.any():
            rows = np.flatnonzero(merged)
            self._emit(0, *_rows(part, rows, self._channel.type), frames)

    def _passes(self, entry: Entry, part: Logged) -> Any:
        if entry.interest is None:
            return np.ones(len(part), bool)
        return self._native(entry).batch(part.batch).selection.fill_null(False).to_numpy(zero_copy_only=False)

    def _alone(self, tag: int, entry: Entry, member: Any, start: int, part: Logged, frames: list[bytes]) -> None:
        from_here = min(start, self._since.get(tag, start))
        first = int(np.searchsorted(part.seqs, from_here, "right"))
        if first == len(part):
            return
        whole = part if not first else Logged(part.seqs[first:], part.stamps[first:], part.batch.slice(first), None)
        native = None if entry.interest is None else self._native(entry)
        seqs, stamps, records = judged(self._flow, entry, whole, native)
        new = int(np.searchsorted(seqs, start, "right"))
        if new < len(seqs):
            member.passed += len(seqs) - new
            self.lane.tagging = True
            self._emit(tag, seqs[new:], stamps[new:], records[new:], frames)

    def _native(self, entry: Entry) -> Native:
        found = self._runners.get(entry)
        if found is None:
            assert entry.interest is not None
            found = self._runners[entry] = entry.interest.start(self._channel.node.clock)
        return found

    def _emit(self, tag: int, seqs: Any, stamps: Any, records: list[bytes], frames: list[bytes]) -> None:
        """Frames of what was read and judged, each kept until it is acknowledged like any other."""
        lane = self.lane
        for start in range(0, len(records), MAX_EVENTS):
            end = start + MAX_EVENTS
            numbers, times, some = seqs[start:end].tolist(), stamps[start:end].tolist(), records[start:end]
            tags = None if not tag else [(tag,)] * len(some)
            for first, last in wire.runs(numbers, times, some, tags, limit=BYTES, alone=True):
                cut = slice(first, last)
                if last - first == 1 and len(some[first]) > lane.largest:
                    lane.too_large(len(some[first]))
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


def _rows(part: Logged, rows: Any, type: Any) -> tuple[Any, Any, list[bytes]]:
    if len(rows) == len(part):
        return part.seqs, part.stamps, part.records(type)
    if part.data is not None:
        return part.seqs[rows], part.stamps[rows], [part.data[row] for row in rows.tolist()]
    return part.seqs[rows], part.stamps[rows], type.arrow_to_records(part.batch.take(rows))
