"""One source's events on their way to a multicast group: frames that fit a datagram, numbered once for all peers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from headwater.channel.concurrency.bounded_queue import UNKNOWN
from headwater.errors import ClosedError, FrameError, LinkDown
from headwater.federation.send.frame_builder import FEW_ROWS, MAX_EVENTS, Frame
from headwater.federation.send.lane import Kept, Lane
from headwater.federation.send.pending import (
    BYTES,
    COMPLETE,
    RECORDS,
    Complete,
    Numbered,
    Pending,
    PendingRows,
    last_of,
    surplus,
    take,
    union,
)
from headwater.federation.wire import frames as wire
from headwater.federation.wire.kinds import GROUP

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.address_map import Group
    from headwater.federation.multicast.share import GroupCrossing, Outlet
    from headwater.federation.multicast.sockets import Multicast

HEAD_BYTES = 48  # bytes of a frame of events beside what each event takes, at most
EVENT_BYTES = 12  # bytes an event of a run takes beside its record, at most
BATCH_BYTES = 8_192  # bytes in a frame from which on a batch is worth its own few hundred bytes
_LENGTH = struct.Struct("<I")


class GroupLane(Lane):
    """As any lane; but what was sent is kept until every peer of the group that wants it reliably has dealt with it."""

    crossing: GroupCrossing

    def __init__(self, crossing: GroupCrossing, source: Source) -> None:
        super().__init__(crossing, source)
        self.sid = source.number | GROUP
        outlet: Outlet = crossing.peer
        self.name = outlet.name
        self.room = outlet.budget - _LENGTH.size
        self.still = False  # its source stands still for the thread that builds
        self.launched = 0  # the last frame that has gone out
        self.when = 0.0  # and when
        self.said = 0  # the last frame that peers were told of
        self.made = 0  # bytes of all frames
        self.offsets: dict[int, int] = {0: 0}  # by frame, `made` after it; from the last that all have acknowledged on
        self.flight = 0  # bytes that went out and are not acknowledged by those who are there
        self.trimmed = 0  # of the events that were dropped, those that were in frames already
        self.told = False  # its peers know of it

    @property
    def destination(self) -> tuple[str, int]:
        return UNKNOWN

    @property
    def entire(self) -> int:
        """All events that were to go, up to the last frame."""
        return self.passed + self.dropped - self.trimmed

    def send_first(self) -> None:
        self._time = self.source._stamp()
        self.dispatch()  # frames for a group are made by its sender only, which knows how many may be on their way

    # ── out: under the lock of the outlet ──

    def build(self, frames: list[bytes], *, now: bool = False) -> None:
        """Frames of all that waits; they are handed to the outlet."""
        self.dirty = False
        items = self._take()
        if not items:
            return
        kinds = set(map(type, items))
        if not kinds <= COMPLETE:
            flood = self._flood(items) if kinds <= RECORDS and not self._back else None
            if flood is not None:
                first, stamps, records = flood
                for start, end in cuts(records, self.room):
                    self.number += 1
                    part = slice(start, end)
                    frame = wire.encode_run_first(
                        self.sid, self.number, first + start, stamps[part], records[part], header=self.header
                    )
                    self.framed(first + end - 1, end - start, frame, frames)
                return
        whole = cast(list[Complete], items) if kinds <= COMPLETE else self._complete(items)
        for last, events, frame in self.frames_of(whole):
            self.framed(last, events, frame, frames)
        self.last = max(self.last, self.sent, last_of(whole))
        self._back = False

    def give_way(self) -> bool:
        return False  # to a member of the group that needs it, what is missing goes over its link

    def framed(self, last: int, events: int, frame: bytes, frames: list[bytes]) -> None:
        self.passed += events
        self.sent = last
        self.made += len(frame)
        if self.crossing.reliable:
            self._unsettled += events
            self.kept.append(Kept(self.number, last, events, frame))
            self.offsets[self.number] = self.made
        else:
            self.offsets = {self.number: self.made}
            if self.waiters.threads or self.waiters.futures:
                self.settle(0)
        self.crossing.peer.ready.append((self, self.number, frame))

    def _take(self) -> list[Pending]:
        pending = self.pending
        items = take(pending, nullcontext() if self.still else self.source.lock)
        if pending and not self.dirty:  # put in meanwhile, and not told of if it was not the first in the list
            self.dirty = True
            self.peer.dirty.append(self)
        if self._chunk_surplus:
            chunks = surplus(items)
            if self.still:
                self._chunk_surplus -= chunks
            else:
                with self.source.lock:
                    self._chunk_surplus -= chunks
        self._take_gaps(items)
        return items

    def _single(self, items: Sequence[Complete]) -> Frame | None:
        return None  # what fits is up to the size of a datagram: see `_run`

    def _run(self, items: Sequence[Complete], start: int) -> list[Numbered]:
        run: list[Numbered] = []
        size = HEAD_BYTES
        for at in range(start, min(len(items), start + MAX_EVENTS)):
            item = items[at]
            if not isinstance(item, Numbered) or (run and not wire.spans(run[0].stamp, item.stamp)):
                break
            size += EVENT_BYTES + len(item.record)
            if run and size > self.room:
                break
            run.append(item)
        return run

    def _rows(self, items: Sequence[PendingRows]) -> Iterator[Frame]:
        parts = [item.chunk for item in items]
        chunk = parts[0] if len(parts) == 1 else union(parts)
        rows, type = len(chunk), self.source.channel.type
        for begin in range(0, rows, MAX_EVENTS):
            part = chunk if rows <= MAX_EVENTS else chunk.part(begin, min(begin + MAX_EVENTS, rows))
            if type is not None and (rows <= FEW_ROWS or self.room < BATCH_BYTES):
                yield from self._as_records(type.arrow_to_records(part.taken()), part.seqs.tolist(), chunk.stamp)
            else:
                yield from self._as_columns(part, chunk.stamp)

    def _as_records(self, records: list[bytes], seqs: list[int], stamp: int) -> Iterator[Frame]:
        for start, end in cuts(records, self.room):
            self.number += 1
            part = slice(start, end)
            stamps = [stamp] * (end - start)
            frame = wire.encode_events(self.sid, self.number, seqs[part], stamps, records[part], header=self.header)
            yield seqs[end - 1], end - start, frame

    def _as_columns(self, part: Any, stamp: int) -> Iterator[Frame]:
        rows, first = part.taken(), self.number + 1
        try:
            frames = wire.encode_batches(self.sid, first, part.seqs, stamp, rows, limit=self.room)
        except FrameError:  # a row that no datagram can take: all of it goes over the streams
            frames = wire.encode_batches(self.sid, first, part.seqs, stamp, rows, limit=2 * BYTES)
        for index, frame in enumerate(frames):
            self.number += 1
            yield int(part.seqs[-1]), len(part) if index == len(frames) - 1 else 0, frame

    def launch(self, number: int) -> None:
        """A frame goes out now."""
        self.launched, self.when = number, monotonic()

    # ── what was sent ──

    def acknowledged(self, number: int) -> None:
        super().acknowledged(number)
        offsets = self.offsets
        for each in list(offsets):  # in the order in which they were made
            if each >= number:
                break
            del offsets[each]

    def trim(self) -> None:
        before = self._unsettled
        super().trim()
        self.trimmed += before - self._unsettled
        self.dropped += sum(events for _, events in self._forgotten)  # who misses them cannot have them again
        self._forgotten.clear()

    def after(self, number: int, upto: int) -> list[bytes]:
        """Frames that are kept, after one and up to another that has gone out."""
        return [each.frame for each in self.kept.after(number) if each.number <= upto]

    def first_after(self, number: int) -> int:
        """The first frame after this one that can still be had."""
        kept = list(self.kept)
        first = kept[0].number if kept else self.launched + 1
        return max(number + 1, first)


class PacketLink:
    """Takes whole frames for a group and packs them into datagrams."""

    kind = "multicast"
    busy = False

    def __init__(self, multicast: Multicast, group: Group) -> None:
        self._multicast, self._group, self._budget = multicast, group, multicast.budget
        self.bytes_out = 0
        self.bytes_in = 0  # grows with acknowledgements: nobody is busy with what was sent before

    def write(self, data: bytes) -> bool:
        budget, end = self._budget, len(data)
        start = at = 0
        while at < end:
            size = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if at + size - start > budget and at > start:
                self._send(data[start:at])
                start = at
            at += size
        self._send(data if start == 0 else data[start:])
        self.bytes_out += end
        return True

    def _send(self, data: bytes) -> None:
        try:
            self._multicast.send(self._group, data)  # if it does not go out: as if it were lost
        except ClosedError as error:
            raise LinkDown(str(error)) from None

    def drain(self, timeout: float) -> bool:
        return True

    def close(self, reason: str) -> None:
        pass


def cuts(records: list[bytes], room: int) -> Iterator[tuple[int, int]]:
    """Where to cut a run of events so that each frame fits; a record that is too large has one of its own."""
    total = len(records)
    size = len(records[0])
    if all(len(record) == size for record in records):
        most = max(1, (room - HEAD_BYTES) // (EVENT_BYTES + size))
        bounds = [*range(0, total, most), total]
    else:
        bounds, used = [0], HEAD_BYTES
        for index, record in enumerate(records):
            used += EVENT_BYTES + len(record)
            if used > room and index > bounds[-1]:
                bounds.append(index)
                used = HEAD_BYTES + EVENT_BYTES + len(record)
        bounds.append(total)
    yield from pairwise(bounds)
