"""One source's events on their way to one peer: what waits to be sent, and what was sent and may have to go again.

A lane looks like a mailbox to publishers, so that one whose peer cannot keep up, or stays away, makes them wait, fail
or lose events as the policy of the link says. Its frames are numbered from 1 without gaps; the peer acknowledges them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.queues.bounded_queue import Waiters
from headwater.channel.routing.letter import Chunk
from headwater.errors import FrameError
from headwater.federation.send import pending as numbering
from headwater.federation.send.batch_rows import few_records, picked_frame, picker_of
from headwater.federation.send.catch_up import CatchUp
from headwater.federation.send.pending import BYTES, RECORDS, Item, Pause, root_of, union
from headwater.federation.wire import frames as wire
from headwater.late import asyncio, np
from headwater.native.python.row_picker import Picker
from headwater.types.model import Enum, walk

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.federation.send.crossing import Crossing

log = logging.getLogger("headwater.federation")
MEMORY = 4096  # frames of which it is remembered that they are no longer kept
ROWS = 8192  # rows in a frame at most
RUN = 4096  # events in a frame at most
LARGEST = wire.MAX_FRAME - 64  # bytes of a record that a frame can take
SMALL = 48  # rows of a batch up to which they travel as records: the frame of a batch has a few hundred bytes itself


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
        flow = source.flows.get(crossing.channel)  # none while it is only being made
        # The last event that is in a frame, and that was taken out to be put in one.
        self.sent = self.last = 0 if flow is None else flow.seen
        self.pending: list[Item] = []
        self.kept: deque[Kept] = deque()
        self._forgotten: deque[tuple[int, int]] = deque()  # number and events of frames that are kept no longer
        self._chunk_surplus = 0  # events in waiting chunks beyond one each
        # Of what was put in, and of what was taken out, so many were no events: numbers, which machine code counts as
        # well (`BypassSlots`), and pauses.
        self.gap_count, self._gaps_taken = bytearray(8), 0
        self._unsettled = 0  # events that were sent and not acknowledged
        self.passed = self.dropped = 0  # events put into frames, and lost before that
        self.announced = False  # on the present link
        self.dirty = False
        self.over = False  # more waits than may
        self._back = False  # some of what waits was taken out and put back
        self.tagging = False  # one event may be put in several times, with different tags
        self.ended = False
        self.behind: CatchUp | None = None  # while its events come from the log
        self.live = 0  # the last event before it began to send what the peer had missed
        self.again_asked = 0  # the last time that it was to begin again, by number, and from where
        self.restart: tuple[dict[int, int], dict[int, int]] | None = None
        self.weight = 1  # events that one call of `dispatch` stands for
        self._time = 0  # when frames were last made
        type = source.channel.type
        self.header = None if type is None else wire.header_of(type.record)
        self._plain = type is not None and not any(isinstance(each, Enum) for each in walk(type.record))
        self._applies_backpressure = self.queue.policy in ("block", "fail")
        self.waiters = Waiters(threading.Condition())

    @cached_property
    def _picker(self) -> Picker | None:
        return picker_of(self.source.channel.type)

    # ── in: under the source's lock ──

    def put(self, item: Item, n: int) -> None:
        if self.behind is not None and n and self.behind.closing is None:
            return  # it is in the log
        if len(self.pending) + self._chunk_surplus + self._unsettled + n > self.limit and not self._room(n):
            return
        if n > 1:
            self._chunk_surplus += n - 1
        self.pending.append(item)

    def pause(self, pause: Pause) -> None:
        """The same for what is no event."""
        self.count_gap()
        self.put(pause, 0)

    def date(self) -> None:
        """Records that machine code put in wait for a link: those that come now are not of the time of the first."""
        if self.pending and not self.ended:
            with self.source.lock:
                if self.pending and self.pending[-1].__class__ is bytes:
                    self.pause(Pause(self.source.flows[self.crossing.channel].seen, self.source._stamp()))

    def count_gap(self) -> None:
        """What was put in, or is about to be, is a gap and no event."""
        self.gap_count[:] = (int.from_bytes(self.gap_count, "little") + 1).to_bytes(8, "little")

    def _room(self, n: int) -> bool:
        """It is full, unless much of that is no events: whether this may still come in."""
        if self.waiting + n <= self.limit:
            return True
        if self.crossing.reliable and self._applies_backpressure:
            self.peer.full.add(self)
            return True  # the publisher was let in, or waits before its next event
        if self.queue.policy == "drop_newest":
            self.dropped += n
            return False
        self.over = True  # the oldest are dropped when it is no longer the source's lock that is held
        return True

    def dispatch(self) -> None:
        """Something was put in; no lock is held."""
        if self.over:
            self.peer.trim(self)
        if not self.dirty:
            self.dirty = True
            self.peer.dirty.append(self)
        self.peer.send_soon(self.weight)

    def dispatch_later(self) -> None:
        """The same where locks are held: by the scheduler's thread."""
        self.peer.scheduler.later(0.0, self.dispatch)

    def send_first(self) -> None:
        """Machine code has put in a record, and nothing else waits: send it at once if the link is idle."""
        self._time = self.source._stamp()  # of this one, and those that join it
        if self.dirty or self.over or not self.peer.sender.send_now(self._single_frame) or self.pending:
            self.dispatch()

    def _single_frame(self) -> bytes | None:
        """The frame of a record that waits alone."""
        peer, pending = self.peer, self.pending
        with peer.building:
            if peer.control or peer.dirty or peer.barriers_due or not (peer.resumed and self.announced):
                return None
            n = len(pending)
            if n == 2 and pending[0].__class__ is int:
                before = pending[0]
            elif n == 1:
                before = self.last
            else:
                return None
            record = pending[n - 1]
            if record.__class__ is not bytes or self.crossing.parked or len(record) > LARGEST:
                return None
            del pending[:n]
            self._gaps_taken += n - 1
            self.number += 1
            self.last = self.sent = seq = before + 1
            self._time = stamp = self.source._stamp()
            self.passed += 1
            frame = wire.encode_event(self.sid, self.number, seq, stamp, record, self.header)
            if self.crossing.reliable:
                self._unsettled += 1
                self.kept.append(Kept(self.number, seq, 1, frame))
            return frame

    # ── from the log, where the source has one: its lock is held ──

    largest = LARGEST

    def resume(self, after: dict[int, int], since: dict[int, int]) -> None:
        """Begin again after the events that the peer has, by tag; what is on its way goes to nobody."""
        self.kept.clear()
        self._forgotten.clear()
        said = [item for item in self.pending if item.__class__ is tuple and len(item) == 1]
        self.pending[:] = said
        self._chunk_surplus, self.newest, self._gaps_taken = 0, 0, int.from_bytes(self.gap_count, "little")
        self.settle(self._unsettled)
        self.peer.full.discard(self)
        self.live = self.crossing.rest(self.source)
        self.behind = CatchUp(self, after, since, self.live, again=True)
        self.behind.begun = True

    def begin_again(self) -> None:
        """The peer has asked for that; by whoever builds frames, before the lane is announced."""
        if self.restart is None:
            return
        with self.source.lock:
            (after, since), self.restart = self.restart, None
            self.resume(after, since)
            self.live = self.source.flows[self.crossing.channel].seen

    def follow(self, earlier: Lane) -> None:
        """Its source was closed and made again while what it had published before is read from the log: that goes
        first, and what it publishes now is read from there as well."""
        self.behind = CatchUp(self, {}, {}, self.crossing.rest(self.source), again=False)
        self.behind.begun, self.behind.follows = True, earlier

    def give_way(self) -> bool:
        """It is full: whether its publisher need not wait, since what comes now can be read from the log later."""
        source = self.source
        if source.log is None or self.crossing.share is not None or self.behind is not None:
            return self.behind is not None and self.behind.closing is None
        for entry, _ in self.crossing.wishes.values():
            if entry.interest is not None and entry.interest.stateful:
                return False  # its state has gone on
        self.behind = CatchUp(self, {}, {}, source.flows[self.crossing.channel].seen, again=False)
        self.peer.full.discard(self)
        return True

    def caught_up(self, seq: int) -> None:
        """All that was in the log is in frames: what is put in from now on follows on it."""
        self.behind = None
        self.last = self.sent = max(self.last, seq)
        self.crossing.caught_up(self)
        self.settle(0)

    def _read_on(self, frames: list[bytes]) -> bool:
        """Frames of what the log has next; whether what waits in the lane may follow."""
        behind = self.behind
        if behind is None:
            return True
        if behind.follows is not None and behind.follows.behind is not None:
            return False  # it is told when that is done
        if self._unsettled < self.limit and not behind.step(frames):
            self.peer.reading.append(self)
        return self.behind is None

    # ── as publishers see it ──

    @property
    def waiting(self) -> int:
        gaps = int.from_bytes(self.gap_count, "little") - self._gaps_taken
        return max(0, len(self.pending) - gaps) + self._chunk_surplus + self._unsettled + (self.behind is not None)

    @property
    def is_full(self) -> bool:
        if self.behind is not None and self.behind.closing is None:
            return False
        return self._applies_backpressure and self.crossing.reliable and not self.ended and self.waiting >= self.limit

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Until the condition holds; it is looked at whenever something was acknowledged. A thread that reads the link
        sees to the acknowledgements itself."""
        return self.waiters.wait(until, timeout, self.peer.pump)

    def change(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future of that loop which is done when there is more room."""
        return self.waiters.future(loop)

    def settle(self, events: int) -> None:
        """So many events that were sent need no room any more."""
        self._unsettled -= events
        if self.peer.full and not self.is_full:
            self.peer.full.discard(self)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        waiters = self.waiters
        if waiters.threads or waiters.futures:
            with waiters.condition:
                waiters.notify()

    # ── out: by whoever sends, one thread at a time ──

    def build(self, frames: list[bytes]) -> None:
        """Frames of all that waits, and, if that is to be reliable, kept."""
        self.dirty = False
        if self.behind is not None and self.behind.begun and not self._read_on(frames):
            return
        behind = self.behind  # if it is so now, what waits is from before that, and all of it is taken
        items = self._take()
        if behind is not None and not behind.begun:
            behind.begun = True
            self.peer.reading.append(self)
        if not items:
            return
        kinds = set(map(type, items))
        if kinds != {tuple}:
            plain = not (self.tagging or self._back)
            if plain and not kinds <= RECORDS and self._gather(items, frames):
                return
            if plain and kinds <= RECORDS:
                while items and (flood := self._flood(items[:RUN])) is not None:
                    first, stamps, records = flood
                    self.number += 1
                    frame = wire.encode_run_first(self.sid, self.number, first, stamps, records, header=self.header)
                    self.framed(first + len(records) - 1, len(records), frame, frames)
                    items = items[RUN:]
                if not items:
                    return
            items = self._complete(items)
        for last, events, frame in self._frames(items):
            self.framed(last, events, frame, frames)
        self.last = max(self.last, self.sent, numbering.last_of(items))  # what machine code puts in next follows on it
        self._back = False
        if self.ended and not self.kept and not self.pending and self.behind is None:
            self.crossing.drop(self)  # nobody has to acknowledge anything

    def framed(self, last: int, events: int, frame: bytes, frames: list[bytes]) -> None:
        self.passed += events
        self.sent = last
        frames.append(frame)
        if self.crossing.reliable and (events or not self.ended or frame[4] != wire.CONTROL):
            self._unsettled += events
            self.kept.append(Kept(self.number, last, events, frame))
        elif self.waiters.threads or self.waiters.futures:
            self.settle(0)

    def _take(self) -> list[Item]:
        pending = self.pending
        if self.tagging:
            with self.source.lock:  # so that an event's tags are all there
                items = pending[:]
                pending.clear()
        else:
            items = numbering.take(pending, self.source.lock)
            if pending and not self.dirty:  # put in meanwhile, and not told of if it was not the first in the list
                self.dirty = True
                self.peer.dirty.append(self)
        if self._chunk_surplus:
            with self.source.lock:
                self._chunk_surplus -= sum(
                    len(item[0]) - 1 for item in items if item.__class__ is tuple and len(item) == 2
                )
        self._take_gaps(items)
        return items

    def _take_gaps(self, items: list[Item]) -> None:
        if int.from_bytes(self.gap_count, "little") != self._gaps_taken:
            kinds = list(map(type, items))
            self._gaps_taken += kinds.count(int) + kinds.count(Pause)

    def _complete(self, items: list[Item]) -> list[Item]:
        """Where machine code has put records, their numbers and times: they follow on what was before them.

        Their time is that of the last event before them that Python has seen, one in 64, or of the last frames."""
        made, self.last = numbering.complete(items, self.last, self._before())
        return made

    def _before(self) -> int:
        """The time of what is before all that waits; the next time, this is."""
        now = self.source.channel.node._stamp()
        before, self._time = self._time or now, now
        return before

    def _flood(self, items: list[Item]) -> tuple[int, list[int], list[bytes]] | None:
        """The first number, the times and the records, if these are nothing but records one after the other."""
        first, time = self.last + 1, self._time
        found = numbering.flood(items, first, self._before())
        if found is None:
            self._time = time
            return None
        self.last += len(items)
        return first, *found

    def _gather(self, items: list[Item], frames: list[bytes]) -> bool:
        """Frames of records of which some are missing, if there is nothing else."""
        time = self._time
        found = numbering.gather(items, self.last, self._before())
        if found is None:
            self._time = time
            return False
        seqs, stamps, records, self.last = found
        for start in range(0, len(seqs), RUN):
            part = slice(start, start + RUN)
            self.number += 1
            frame = wire.encode_events(
                self.sid, self.number, seqs[part], stamps[part], records[part], header=self.header
            )
            self.framed(seqs[part][-1], len(seqs[part]), frame, frames)
        return True

    def _frames(self, items: list[Item]) -> Iterator[tuple[int, int, bytes]]:
        """(last seq, events, frame), numbered."""
        start, total = 0, len(items)
        while start < total:
            item = items[start]
            size = len(item)
            if size == 3 and not self.tagging:
                end = self._run_end(items, start, total)
                run = items[start:end]
                if len(run[0][2]) > LARGEST:
                    self.too_large(len(run[0][2]))
                    start = end
                    continue
                self.number += 1
                yield run[-1][0], end - start, wire.encode_run(self.sid, self.number, run, header=self.header)
                start = end
            elif size >= 3:
                end = start
                while end < total and len(items[end]) >= 3 and end - start < RUN:
                    end += 1
                if end < total and len(items[end]) >= 3:  # not between the tags of one event
                    while end - start > 1 and items[end][0] == items[end - 1][0]:
                        end -= 1
                yield from self._tagged(items[start:end])
                start = end
            elif size == 2:
                root = root_of(item[0])
                end = start + 1
                while end < total and len(items[end]) == 2 and root_of(items[end][0]) is root:
                    end += 1
                yield from self._chunks(items[start:end])
                start = end
            else:
                yield self.sent, 0, item[0]
                start += 1

    def _run_end(self, items: list[Item], start: int, total: int) -> int:
        """Where a frame must end that begins there."""
        end = min(total, start + RUN)
        size, base = 0, items[start][1]
        if end - start == total and len(items[start][2]) * total < BYTES // 4:
            alike = set(map(len, items)) == {3}
            stamps = [item[1] for item in items] if alike else []  # those that are passed on are of several clocks
            if (
                alike
                and wire.spans(base, min(stamps))
                and wire.spans(base, max(stamps))
                and sum([len(item[2]) for item in items]) <= BYTES
            ):
                return end
        for index in range(start, end):
            item = items[index]
            if len(item) != 3 or not wire.spans(base, item[1]):
                return index
            size += len(item[2])
            if size > BYTES:
                return max(index, start + 1)
        return end

    def too_large(self, size: int) -> None:
        """An event that no frame can take: it cannot cross, and it must not keep others from it."""
        self.dropped += 1
        log.error(
            "%s: an event of %d bytes cannot go to node %s, and is dropped: expected at most %d bytes; make it smaller",
            self.source,
            size,
            self.peer.name,
            LARGEST,
        )
        self.settle(0)

    def _tagged(self, items: list[Item]) -> Iterator[tuple[int, int, bytes]]:
        """Frames of events with their tags: what has the same number and record crosses once."""
        events: list[tuple[int, int, Any]] = []
        tags: list[tuple[int, ...]] = []
        for seq, stamp, record, *tag in items:
            its_tag = tag[0] if tag else 0
            if events and events[-1][0] == seq and events[-1][2] is record:
                tags[-1] = (*tags[-1], its_tag)
            else:
                events.append((seq, stamp, record))
                tags.append((its_tag,))
        seqs, stamps, records = zip(*events, strict=True)
        for start, end in wire.runs(seqs, stamps, records, tags, limit=BYTES, alone=True):
            part = slice(start, end)
            if sum(map(len, records[part])) > LARGEST:  # what one event has given
                self.too_large(sum(map(len, records[part])))
                continue
            self.number += 1
            frame = wire.encode_events(
                self.sid, self.number, seqs[part], stamps[part], records[part], tags[part], header=self.header
            )
            yield seqs[end - 1], end - start, frame

    def _chunks(self, items: list[Item]) -> Iterator[tuple[int, int, bytes]]:
        """Frames of what several interests have taken from one batch: each row crosses once, and once for each tag."""
        for tag in dict.fromkeys(tag for _, tag in items):
            parts = [chunk for chunk, of in items if of == tag]
            chunk = parts[0] if len(parts) == 1 else union(parts)
            if not self.peer.columns:
                yield from self._records(chunk, tag)
                continue
            rows, type = len(chunk), self.source.channel.type
            small = rows <= SMALL and type is not None and (tag == 0 or self.crossing.filters(tag))
            if small and (records := few_records(self._picker, type, chunk)) is not None:
                seqs = chunk.seqs
                numbers, stamps = seqs.tolist(), [chunk.stamp] * rows
                self.number += 1
                tags = None if tag == 0 else [(tag,)] * rows
                frame = wire.encode_events(self.sid, self.number, numbers, stamps, records, tags, header=self.header)
                yield int(seqs[-1]), rows, frame
                continue
            if tag == 0 and (made := picked_frame(self._picker, self.sid, self.number + 1, chunk)) is not None:
                self.number += 1
                yield made
                continue
            whole = chunk.__class__ is Chunk and chunk.consecutive
            for begin in range(0, rows, ROWS):
                part = chunk if rows <= ROWS else chunk.part(begin, min(begin + ROWS, rows))
                rows_of: Any = chunk.first + begin if whole else part.seqs
                last = chunk.first + begin + len(part) - 1 if whole else int(rows_of[-1])
                taken, plain = part.taken(), tag == 0 and self._plain
                frames = self._parts(self.number + 1, rows_of, chunk.stamp, taken, tag, plain)
                for index, frame in enumerate(frames):
                    self.number += 1
                    # All of a part are kept or acknowledged together: its last event tells.
                    yield last, len(part) if index == len(frames) - 1 else 0, frame

    def _records(self, chunk: Chunk, tag: int) -> Iterator[tuple[int, int, bytes]]:
        """Frames of the same for a peer that takes no columns: each row as a record."""
        type = self.crossing.type_of(tag)
        assert type is not None, "a channel without a type has no rows"
        for begin in range(0, len(chunk), RUN):
            part = chunk if len(chunk) <= RUN else chunk.part(begin, min(begin + RUN, len(chunk)))
            numbered = zip(part.seqs.tolist(), type.arrow_to_records(part.taken()), strict=True)
            yield from self._tagged([(seq, chunk.stamp, record, tag) for seq, record in numbered])

    def _parts(self, number: int, seqs: Any, stamp: int, rows: Any, tag: int, plain: bool) -> list[bytes]:
        """Frames of rows, numbered from there on; without those that no frame can take."""
        try:
            return wire.encode_batches(self.sid, number, seqs, stamp, rows, tag, plain=plain, limit=2 * BYTES)
        except FrameError:  # a row alone is larger
            total = rows.num_rows
        if total > 1:
            seqs, half = np.arange(seqs, seqs + total) if isinstance(seqs, int) else seqs, total // 2
            made = self._parts(number, seqs[:half], stamp, rows.slice(0, half), tag, plain)
            return made + self._parts(number + len(made), seqs[half:], stamp, rows.slice(half), tag, plain)
        try:
            return wire.encode_batches(self.sid, number, seqs, stamp, rows, tag, plain=plain)
        except FrameError:
            self.too_large(rows.nbytes)
            return []

    # ── what was sent ──

    def acknowledged(self, number: int) -> None:
        """The peer has done with all frames up to this one."""
        kept, done = self.kept, 0
        while kept and kept[0].number <= number:
            done += kept.popleft().events
        while self._forgotten and self._forgotten[0][0] <= number:
            self._forgotten.popleft()  # it had arrived
        if done:
            self.settle(done)
        if self.behind is not None:
            if not self.dirty and self._unsettled < self.limit:
                self.dispatch_later()
        elif self.ended and not kept and not self.pending:
            self.crossing.drop(self)

    def trim(self) -> None:
        """Drop the oldest, as the policy says, until there is room; the peer will be told of the gap."""
        self.over = False
        kept, freed, gone = self.kept, 0, 0
        while self.waiting - freed > self.limit and kept:  # what was sent is only lost if the link breaks now
            oldest = kept.popleft()
            self._forgotten.append((oldest.number, oldest.events))
            if len(self._forgotten) > MEMORY:  # a peer that never acknowledges: two are remembered as one
                _, events = self._forgotten.popleft()
                number, more = self._forgotten.popleft()
                self._forgotten.appendleft((number, events + more))
            freed += oldest.events
        self.settle(freed)
        if self.waiting > self.limit and self.pending:
            excess = self.waiting - self.limit
            rest, gone = numbering.newest_of(self._complete(self._take()), excess)
            with self.source.lock:
                self.count_gap()
                self.pending[:0] = [*rest, self.last]  # what was put in meanwhile follows on all that was taken out
                self._chunk_surplus += sum(len(item[0]) - 1 for item in rest if len(item) == 2)
            self._back = True  # they are before the last that was taken out
        self.dropped += gone

    def again(self, received: int | None, *, after: int | None = None) -> tuple[int, list[bytes]]:
        """For a new link: the number of the first frame to come, and what of the kept frames must go again.

        `received` is the last frame the peer has, which it may still lose if it is killed, so that it is kept until it
        is acknowledged; or, after a restart of the peer, `after`: the last event that its durable sinks have seen."""
        if after is not None:
            kept, done = self.kept, 0
            while kept and kept[0].last <= after:
                done += kept.popleft().events
            self.settle(done)
        self.dropped += sum(events for number, events in self._forgotten if received is None or number > received)
        self._forgotten.clear()
        missing = [each for each in self.kept if received is None or each.number > received]
        first = missing[0].number if missing else self.number + 1
        return first, [wire.resent(each.frame) for each in missing]

    def forget(self) -> None:
        """Nobody will ask for what was kept."""
        self.ended, self.behind = True, None
        self.kept.clear()
        self.pending.clear()
        self._chunk_surplus, self._gaps_taken = 0, int.from_bytes(self.gap_count, "little")
        self.settle(self._unsettled)
        self.peer.full.discard(self)
        self.crossing.drop(self)
        self._tell_waiters()
