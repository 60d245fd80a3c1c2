"""One source's events on their way to a multicast group: frames that fit a datagram, numbered once for all peers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, FrameError, LinkDown
from headwater.federation.send.lane import RUN, SMALL, Kept, Lane
from headwater.federation.send.pending import BYTES, RECORDS, Item, last_of, take, union
from headwater.federation.wire import frames as wire
from headwater.federation.wire.kinds import GROUP

if TYPE_CHECKING:
    from headwater.channel.source import Source
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
    def entire(self) -> int:
        """All events that were to go, up to the last frame."""
        return self.passed + self.dropped - self.trimmed

    def send_first(self) -> None:
        self._time = self.source._stamp()
        self.dispatch()  # frames for a group are made by its sender only, which knows how many may be on their way

    # ── out: under the lock of the outlet ──

    def build(self, frames: list[bytes]) -> None:
        """Frames of all that waits; they are handed to the outlet."""
        self.dirty = False
        items = self._take()
        if not items:
            return
        kinds = set(map(type, items))
        if kinds != {tuple}:
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
            items = self._complete(items)
        for last, events, frame in self._frames(items):
            self.framed(last, events, frame, frames)
        self.last = max(self.last, self.sent, last_of(items))
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

    def _take(self) -> list[Item]:
        pending = self.pending
        items = take(pending, nullcontext() if self.still else self.source.lock)
        if pending and not self.dirty:  # put in meanwhile, and not told of if it was not the first in the list
            self.dirty = True
            self.peer.dirty.append(self)
        if self._chunk_surplus:
            chunks = sum(len(item[0]) - 1 for item in items if item.__class__ is tuple and len(item) == 2)
            if self.still:
                self._chunk_surplus -= chunks
            else:
                with self.source.lock:
                    self._chunk_surplus -= chunks
        self._take_gaps(items)
        return items

    def _run_end(self, items: list[Item], start: int, total: int) -> int:
        end = min(total, start + RUN)
        size, base = HEAD_BYTES, items[start][1]
        for index in range(start, end):
            item = items[index]
            if len(item) != 3 or not wire.spans(base, item[1]):
                return index
            size += EVENT_BYTES + len(item[2])
            if size > self.room:
                return max(index, start + 1)
        return end

    def _chunks(self, items: list[Item]) -> Iterator[tuple[int, int, bytes]]:
        parts = [chunk for chunk, _ in items]
        chunk = parts[0] if len(parts) == 1 else union(parts)
        rows, type = len(chunk), self.source.channel.type
        for begin in range(0, rows, RUN):
            part = chunk if rows <= RUN else chunk.part(begin, min(begin + RUN, rows))
            if type is not None and (rows <= SMALL or self.room < BATCH_BYTES):
                yield from self._rows(type.arrow_to_records(part.taken()), part.seqs.tolist(), chunk.stamp)
            else:
                yield from self._batches(part, chunk.stamp)

    def _rows(self, records: list[bytes], seqs: list[int], stamp: int) -> Iterator[tuple[int, int, bytes]]:
        for start, end in cuts(records, self.room):
            self.number += 1
            part = slice(start, end)
            stamps = [stamp] * (end - start)
            frame = wire.encode_events(self.sid, self.number, seqs[part], stamps, records[part], header=self.header)
            yield seqs[end - 1], end - start, frame

    def _batches(self, part: Any, stamp: int) -> Iterator[tuple[int, int, bytes]]:
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
        return [each.frame for each in list(self.kept) if number < each.number <= upto]

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
