"""One source's events on their way to one peer: what waits to be sent, and what was sent and may have to go again.

A lane looks like a mailbox to publishers, so that one whose peer cannot keep up, or stays away, makes them wait, fail
or lose events as the policy of the link says. Its frames are numbered from 1 without gaps; the peer acknowledges them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headwater.channel.letter import Chunk, Rows
from headwater.federation import wire

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.federation.crossing import Crossing

LOOK = 1.0  # seconds after which who waits looks again
RUN = 4096  # events in a frame at most
BYTES = 1 << 20  # bytes of records in a frame, about
SMALL = 256  # rows of a batch up to which they travel as records: the frame of a batch has a few hundred bytes itself

# What waits: (seq, stamp, record), with a tag as a fourth where an interest ran here for the peer; (chunk, tag); or
# (frame,), one that is ready.
Item = Any


class Kept(NamedTuple):
    """A frame that was sent, or is about to be, and is not acknowledged."""

    number: int
    last: int  # seq of its last event
    events: int
    frame: bytes


class Lane:
    """Used under its source's lock to put something in, and by one thread at a time to take it out."""

    inline = False
    dispatcher = None

    def __init__(self, crossing: Crossing, source: Source) -> None:
        self.crossing, self.source, self.sid = crossing, source, source.number
        self.peer = crossing.peer
        self.queue = self.peer.network.link
        self.limit, self.name = self.queue.limit, f"the link to node {self.peer.name}"
        self.newest = 0  # the last event that was put in
        self.number = 0  # of the last frame
        self.sent = source.seq  # the last event that is in a frame
        self.pending: list[Item] = []
        self.kept: deque[Kept] = deque()
        self.accepted = self.settled = 0  # events taken in; of them those sent (best effort), acknowledged, or dropped
        self.dropped = 0
        self.passed = 0
        self.announced = False  # on the present link
        self.dirty = False
        self.over = False  # more waits than may
        self.tagging = False  # one event may be put in several times, with different tags
        self.ended = False
        self._gaps: list[tuple[int, int, int]] = []
        self._presses = self.queue.policy in ("block", "fail")
        self._changed = threading.Condition()
        self._waiters = 0
        self._calls: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    # ── in: under the source's lock ──

    def put(self, item: Item, n: int) -> None:
        waiting = self.accepted - self.settled
        if waiting + n > self.limit and not self._room(n):
            return
        self.accepted += n
        self.passed += n
        self.pending.append(item)

    def _room(self, n: int) -> bool:
        """It is full: whether this may still come in."""
        if self.crossing.reliable and self._presses:
            self.peer.full.add(self)  # it looks like a mailbox to publishers
            return True  # the publisher was let in, or waits before its next event
        if self.queue.policy == "drop_newest" or not (self.crossing.reliable or self.peer.link is not None):
            self.dropped += n
            self.passed += n
            return False
        self.over = True  # the oldest are dropped when it is no longer the source's lock that is held
        return True

    def go(self) -> None:
        """Something was put in; no lock is held."""
        if self.over:
            self.peer.trim(self)
        if not self.dirty:
            self.dirty = True
            self.peer.dirty.append(self)
        self.peer.stir()

    # ── as publishers see it ──

    @property
    def waiting(self) -> int:
        return self.accepted - self.settled

    @property
    def is_full(self) -> bool:
        return self._presses and self.crossing.reliable and not self.ended and self.waiting >= self.limit

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Until the condition holds; it is looked at whenever something was acknowledged."""
        end = None if timeout is None else monotonic() + timeout
        with self._changed:
            self._waiters += 1
            try:
                while not until():
                    left = LOOK if end is None else min(LOOK, end - monotonic())
                    if left <= 0:
                        return False
                    self._changed.release()
                    try:
                        pumped = self.peer.pump(left)
                    finally:
                        self._changed.acquire()
                    if not pumped and not until():
                        self._changed.wait(left)
                return True
            finally:
                self._waiters -= 1

    def change(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future of that loop which is done when there is more room."""
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            self._calls = [(other, theirs) for other, theirs in self._calls if not theirs.done()]
            self._calls.append((loop, future))
        return future

    def settle(self, events: int) -> None:
        """So many events need no room any more."""
        self.settled += events
        if self.peer.full and not self.is_full:
            self.peer.full.discard(self)
        if self._waiters or self._calls:
            with self._changed:
                self._changed.notify_all()
                calls, self._calls = self._calls, []
            for loop, future in calls:
                with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, future)

    # ── out: by whoever sends, one thread at a time ──

    def build(self, frames: list[bytes]) -> None:
        """Frames of all that waits, and, if that is to be reliable, kept."""
        self.dirty = False
        items = self._take()
        reliable = self.crossing.reliable
        for last, events, put, frame in self._frames(items):
            if put > events:  # several interests wanted the same
                self.settle(put - events)
            if reliable:
                self.kept.append(Kept(self.number, last, events, frame))
            else:
                self.settle(events)
            self.sent = last
            frames.append(frame)

    def _take(self) -> list[Item]:
        pending = self.pending
        if not self.tagging:
            n = len(pending)
            items = pending[:n]
            del pending[:n]
            return items
        with self.source.lock:  # so that an event's tags are all there
            items = pending[:]
            pending.clear()
            return items

    def _frames(self, items: list[Item]) -> Iterator[tuple[int, int, int, bytes]]:
        """(last seq, events, how often they were put in, frame), numbered."""
        start, total = 0, len(items)
        while start < total:
            item = items[start]
            size = len(item)
            if size == 3 and not self.tagging:
                end = self._run_end(items, start, total)
                self.number += 1
                run = items[start:end]
                yield run[-1][0], end - start, end - start, wire.encode_run(self.sid, self.number, run)
                start = end
            elif size >= 3:
                end = start
                while end < total and len(items[end]) >= 3 and end - start < RUN:
                    end += 1
                if end < total and len(items[end]) >= 3:  # not between the tags of one event
                    while end - start > 1 and items[end][0] == items[end - 1][0]:
                        end -= 1
                yield self._tagged(items[start:end])
                start = end
            elif size == 2:
                root = _root(item[0])
                end = start + 1
                while end < total and len(items[end]) == 2 and _root(items[end][0]) is root:
                    end += 1
                yield from self._chunks(items[start:end])
                start = end
            else:
                yield self.sent, 0, 0, item[0]
                start += 1

    def _run_end(self, items: list[Item], start: int, total: int) -> int:
        """Where a frame must end that begins there."""
        end = min(total, start + RUN)
        size, base = 0, items[start][1]
        if end - start == total and len(items[start][2]) * total < BYTES // 4:
            last = items[end - 1]
            if len(last) == 3 and wire.spans(base, last[1]) and set(map(len, items)) == {3}:
                return end
        for index in range(start, end):
            item = items[index]
            if len(item) != 3 or not wire.spans(base, item[1]):
                return index
            size += len(item[2])
            if size > BYTES:
                return index + 1
        return end

    def _tagged(self, items: list[Item]) -> tuple[int, int, int, bytes]:
        """A frame of events with their tags: what has the same number and record crosses once."""
        events: list[tuple[int, int, Any]] = []
        tags: list[tuple[int, ...]] = []
        for seq, stamp, record, *tag in items:
            mark = tag[0] if tag else 0
            if events and events[-1][0] == seq and events[-1][2] is record:
                tags[-1] = (*tags[-1], mark)
            else:
                events.append((seq, stamp, record))
                tags.append((mark,))
        self.number += 1
        seqs, stamps, records = zip(*events, strict=True)
        frame = wire.encode_events(self.sid, self.number, seqs, stamps, records, tags)
        return events[-1][0], len(events), len(items), frame

    def _chunks(self, items: list[Item]) -> Iterator[tuple[int, int, int, bytes]]:
        """Frames of what several interests have taken from one batch: each row crosses once, and once for each tag."""
        for tag in dict.fromkeys(tag for _, tag in items):
            parts = [chunk for chunk, of in items if of == tag]
            given = sum(map(len, parts))
            chunk = parts[0] if len(parts) == 1 else _union(parts)
            rows, seqs = len(chunk), chunk.seqs
            if rows <= SMALL and self.source.channel.type is not None and (tag == 0 or self.crossing.filters(tag)):
                records = self.source.channel.type.arrow_to_records(chunk.taken())
                numbers, stamps = seqs.tolist(), [chunk.stamp] * rows
                self.number += 1
                tags = None if tag == 0 else [(tag,)] * rows
                frame = wire.encode_events(self.sid, self.number, numbers, stamps, records, tags)
                yield int(seqs[-1]), rows, given, frame
                continue
            for begin in range(0, rows, RUN):
                part = chunk if rows <= RUN else chunk.part(begin, min(begin + RUN, rows))
                self.number += 1
                frame = wire.encode_batch(self.sid, self.number, part.seqs, chunk.stamp, part.taken(), tag)
                yield int(part.seqs[-1]), len(part), given if begin == 0 else 0, frame

    # ── what was sent ──

    def acknowledged(self, number: int) -> None:
        """The peer has done with all frames up to this one."""
        kept, done = self.kept, 0
        while kept and kept[0].number <= number:
            done += kept.popleft().events
        if done:
            self.settle(done)

    def trim(self) -> None:
        """Drop the oldest, as the policy says, until there is room; the peer will be told of the gap."""
        self.over = False
        gone, kept = 0, self.kept
        while self.waiting - gone > self.limit and kept:
            gone += kept.popleft().events
        excess = self.waiting - gone - self.limit
        if excess > 0:
            for item in self._take_oldest(excess):
                gone += 1 if len(item) != 2 else len(item[0])
        if gone:
            self.dropped += gone
            self.settle(gone)

    def _take_oldest(self, excess: int) -> list[Item]:
        items = self.pending[:excess]
        del self.pending[:excess]
        return items

    def again(self, received: int | None, *, after: int | None = None) -> tuple[int, list[bytes]]:
        """For a new link: the number of the first frame to come, and what of the kept frames must go again.

        `received` is the last frame the peer has; or, after a restart of the peer, `after`: the last event that its
        durable sinks have seen."""
        if received is not None:
            self.acknowledged(received)
        elif after is not None:
            kept, done = self.kept, 0
            while kept and kept[0].last <= after:
                done += kept.popleft().events
            self.settle(done)
        again = [wire.resent(each.frame) for each in self.kept]
        first = self.kept[0].number if self.kept else self.number + 1
        return first, again

    def forget(self) -> None:
        """Nobody will ask for what was kept."""
        gone = sum(each.events for each in self.kept) + (self.waiting if not self.kept else 0)
        self.kept.clear()
        self.pending.clear()
        self.ended = True
        self.settle(max(0, min(gone, self.waiting)))
        self.peer.full.discard(self)
        with self._changed:
            self._changed.notify_all()


def _root(chunk: Chunk) -> Chunk:
    return chunk._of if isinstance(chunk, Rows) else chunk


def _union(parts: list[Chunk]) -> Chunk:
    """Parts of one chunk, or the whole, as one: each row once, in order."""
    root = _root(parts[0])
    if any(part is root for part in parts):
        return root
    rows = np.unique(np.concatenate([part._rows[part._start : part._end] for part in parts if isinstance(part, Rows)]))
    return Rows(root, rows, 0, len(rows))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
