"""One source's events on their way to one peer: what waits to be sent, and what was sent and may have to go again.

A lane looks like a mailbox to publishers, so that one whose peer cannot keep up, or stays away, makes them wait, fail
or lose events as the policy of the link says. Its frames are numbered without gaps; the peer acknowledges them. The
first number follows on those of earlier lanes to that peer (`Destination.last_number`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, cast

from headwater.channel.backlog.ring import Ring
from headwater.channel.concurrency.bounded_queue import ABSENT, Waiters
from headwater.federation.send.catch_up import CatchUp
from headwater.federation.send.frame_builder import MAX_EVENTS, MAX_RECORD_BYTES, FrameBuilder
from headwater.federation.send.pending import (
    COMPLETE,
    RECORDS,
    Complete,
    ControlFrame,
    Gap,
    Pending,
    complete,
    flood,
    gather,
    last_of,
    newest_of,
    oldest_of,
    surplus,
    take,
)
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Beginning, Ends
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.send.crossing import Crossing

log = logging.getLogger("headwater.federation")
_BEGINNINGS = count(1)  # of a process, so that a later one of any lane has a higher number
FORGOTTEN_FRAMES = 4096  # of which it is remembered that they are no longer kept


class Kept(NamedTuple):
    """A frame that was sent, or is about to be, and is not acknowledged. One of the `past` has no number, so that
    nobody acknowledges it: it has come if the next one has, and has the number of that here."""

    number: int
    last: int  # seq of its last event
    events: int
    frame: bytes
    past: bool = False


class Lane(FrameBuilder):
    """A queue and its frames: under its source's lock something is put in, and one thread at a time takes it out."""

    inline = False
    dispatcher = None

    def __init__(self, crossing: Crossing, source: Source) -> None:
        super().__init__(source, crossing, self.too_large)
        self.crossing = crossing
        self.peer = crossing.peer
        self.queue = self.peer.network.link
        self.limit, self.name = self.queue.limit, f"the link to node {self.peer.name}"
        self.newest = 0  # the last event that was put in
        flow = source.flows.get(crossing.channel)  # none while it is only being made
        # The last event that is in a frame, and that was taken out to be put in one.
        self.sent = self.last = 0 if flow is None else flow.seen
        self.pending: list[Pending] = []
        self.kept: Ring[Kept] = Ring()  # frames after the peer's cursor: what it has acknowledged
        self._forgotten: deque[tuple[int, int]] = deque()  # number and events of frames that are kept no longer
        self._chunk_surplus = 0  # events in waiting chunks beyond one each
        # Of what was put in, and of what was taken out, so many were no events: numbers, which machine code counts as
        # well (`BypassSlots`), and `Gap`s.
        self.gap_count, self._gaps_taken = bytearray(8), 0
        self._unsettled = 0  # events that were sent and not acknowledged
        self.passed = self.dropped = 0  # events put into frames, and lost before that
        self.shed = 0  # events beyond what the peer may have
        # What the peer may have. What durable sinks are to find again, or the log has, waits for its turn.
        self.quota = crossing.quota
        self._patient = source.log is not None
        self._slowed = False  # it is to be looked at again when there is more
        self.announced = False  # on the present link
        # Of a logged source, until it is said: the last event before what the peer wants held. There is no later one
        # that a wish has passed, or there would have been a lane.
        self._point = None if source.log is None or flow is None else crossing.rest(source)
        self.dirty = False
        self.over = False  # more waits than may
        self._back = False  # some of what waits was taken out and put back
        self.ended = False
        self.forgotten = False  # nothing of it is wanted any more
        self.behind: CatchUp | None = None  # while its events come from the log
        self.live = 0  # the last event before it began to send what the peer had missed
        self.beginning: Beginning | None = None  # of a logged source: after which events all comes that is wanted
        self._released = 0  # the last event of frames that are kept no longer
        self.again_asked = 0  # the last time that it was to begin again, by number, and from where
        self.restart: tuple[dict[int, int], dict[int, int]] | None = None
        self.weight = 1  # events that one call of `dispatch` stands for
        self._time = 0  # when frames were last made
        self._applies_backpressure = self.queue.policy in ("block", "fail")
        self.waiters = Waiters(threading.Condition())

    # ── in: under the source's lock ──

    def put(self, item: Pending, n: int) -> None:
        """Queue something that counts as so many events, unless the policy of a full link is to drop it."""
        if self.behind is not None and n and self.behind.closing is None:
            return  # it is in the log
        if n and self.quota is not None and not self.waits_its_turn:
            taken = self.quota.take(self.source._stamp(), self.source.priority, n)
            self.shed += n - taken
            if not taken:
                return
            if taken < n:
                item, n = oldest_of(item, taken), taken
        if len(self.pending) + self._chunk_surplus + self._unsettled + n > self.limit and not self._room(n):
            return
        if n > 1:
            self._chunk_surplus += n - 1
        self.pending.append(item)

    @property
    def leaves_to_log(self) -> bool:
        """Whether what is put in now is not taken, since it is read from the log later."""
        return self.behind is not None and self.behind.closing is None

    @property
    def waits_its_turn(self) -> bool:
        """Whether what is beyond what the peer may have waits, and is not shed."""
        return bool(self.crossing.durable) or (self._patient and self.crossing.reliable)

    def put_gap(self, gap: Gap) -> None:
        """The same for what is no event."""
        self.count_gap()
        self.put(gap, 0)

    def date(self) -> None:
        """Records that machine code put in wait for a link: those that come now are not of the time of the first."""
        if self.pending and not self.ended:
            with self.source.lock:
                if self.pending and isinstance(self.pending[-1], bytes):
                    self.put_gap(Gap(self.source.flows[self.crossing.channel].seen, self.source._stamp()))

    def count_gap(self) -> None:
        """What was put in, or is about to be, is a gap and no event."""
        self.gap_count[:] = (int.from_bytes(self.gap_count, "little") + 1).to_bytes(8, "little")

    def _room(self, n: int) -> bool:
        """Called when the queue may be full. Applies the link's policy; True if the item may be queued."""
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
            if n == 2 and isinstance(gap := pending[0], int):
                before = gap
            elif n == 1:
                before = self.last
            else:
                return None
            record = pending[n - 1]
            if not isinstance(record, bytes) or self.crossing.parked or len(record) > MAX_RECORD_BYTES:
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

    largest = MAX_RECORD_BYTES

    def resume(self, after: dict[int, int], since: dict[int, int]) -> None:
        """Begin again after the events that the peer has, by tag; what is on its way goes to nobody, but for what is of
        the past, which nothing else would bring."""
        past = [each for each in self.kept if each.past]
        self.kept.clear()
        self.kept.extend(past)
        self._forgotten.clear()
        self.pending[:] = [item for item in self.pending if isinstance(item, ControlFrame)]
        self._chunk_surplus, self.newest, self._gaps_taken = 0, 0, int.from_bytes(self.gap_count, "little")
        self.settle(self._unsettled)
        self.peer.full.discard(self)
        self.live = self.crossing.rest(self.source)
        self.begins(after, self.live)
        self.behind = CatchUp(self, after, since, self.live, again=True)
        self.behind.begun = True

    def begins(self, after: dict[int, int], rest: int | None) -> None:
        """The peer is told after which events, by tag, all comes that it wants by now; `rest`: of other tags, if that
        is not where they came to hold. Its source's lock is held."""
        rest, wishes = self._point if rest is None else rest, self.crossing.wishes
        if rest is not None and self.crossing.reliable:
            streams = {tag: seq for tag, seq in after.items() if not tag or (tag in wishes and wishes[tag][1].tag)}
            self.beginning = Beginning(next(_BEGINNINGS), self.crossing.effective, rest, streams)
            self._released = max(self._released, min([rest, *streams.values()]))

    def begins_with_kept(self, after: int | None) -> int:
        """The peer was started again, and has what is kept for it: what its earlier process has acknowledged does not
        come again, though sinks there may have left it to the log. Not if it begins otherwise just now. `after`: where
        what is kept of an earlier life of its source begins, which goes before this; returns where both begin."""
        begins = self._released if after is None else min(after, self._released)
        if self.source.log is not None and self.beginning is None and not self.awaits:
            self.begins({}, begins)
        return begins

    def take_point(self) -> int | None:
        """From where on all that the peer wanted when the lane was made holds: said once, so that it owes something to
        interests that have passed nothing yet. A lane that reads the log leaves that to the barrier at its end."""
        point, self._point = self._point, None
        return point if self.behind is None and self.crossing.reliable else None

    def begin_again(self) -> None:
        """The peer has asked for that; by whoever builds frames, before the lane is announced."""
        if self.restart is None:
            return
        earlier = None if self.behind is None else self.behind.follows
        with self.source.lock:
            (after, since), self.restart = self.restart, None
            self.live = live = self.source.flows[self.crossing.channel].seen
            self.resume({tag: min(seq, live) for tag, seq in after.items()}, since)
            self.live = live
        if earlier is not None and earlier is not self:
            earlier.leave_to(self)

    def leave_to(self, later: Lane) -> None:
        """Its source was made again, and the lane of that one reads the log from where the peer is: what is left here
        goes that way, and two that read the same would bring it in any order. By whoever builds frames."""
        earlier = None if self.behind is None else self.behind.follows
        self.behind = None
        if self.announced:
            self.peer.control.append(self.end_frame())
        self.forget()
        if earlier is not None and earlier is not self:
            earlier.leave_to(later)

    def follow(self, earlier: Lane) -> None:
        """Its source was closed and made again while what it had published before is read from the log: that goes
        first, and what it publishes now is read from there as well."""
        self.behind = CatchUp(self, {}, {}, self.crossing.rest(self.source), again=False)
        self.behind.begun, self.behind.follows = True, earlier

    def await_word(self) -> None:
        """Its source has come from another node: what it publishes is read from the log, once the peer has said how far
        it is (`Again`)."""
        self.behind = CatchUp(self, {}, {}, self.crossing.rest(self.source), again=False)
        self.behind.begun, self.behind.follows = True, self

    @property
    def awaits(self) -> bool:
        """Whether the peer has not said yet how far it is."""
        return self.behind is not None and self.behind.follows is self

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
    def destination(self) -> tuple[str, int]:
        return (self.peer.name, self.peer.incarnation) if self.peer.present else ABSENT

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

    def build(self, frames: list[bytes], *, now: bool = False) -> None:
        """Frames of all that waits, and, if that is to be reliable, kept. What has to wait for its turn does so, unless
        something must go after it `now`."""
        quota = self.quota
        if quota is None or not self.waits_its_turn:
            self._build(frames)
            return
        self.dirty = False
        wait = 0 if now else quota.wait(self.source._stamp(), self.source.priority)
        if wait and (self.pending or self.behind is not None) and not self.ended:
            if not self._slowed:
                self._slowed = True
                self.peer.scheduler.later(wait / 1e9, self._its_turn)
            return
        before = self.passed
        self._build(frames)
        quota.spend(self.passed - before)

    def _its_turn(self) -> None:
        self._slowed = False
        self.dispatch()

    def _build(self, frames: list[bytes]) -> None:
        """Frames of all that waits: what the log has first, then what was put in, by the quickest way that its kinds
        allow."""
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
        if not kinds <= COMPLETE:
            plain = not (self.tagging or self._back)
            if plain and not kinds <= RECORDS and self._gather(items, frames):
                return
            if plain and kinds <= RECORDS:
                while items and (flood := self._flood(items[:MAX_EVENTS])) is not None:
                    first, stamps, records = flood
                    self.number += 1
                    frame = wire.encode_run_first(self.sid, self.number, first, stamps, records, header=self.header)
                    self.framed(first + len(records) - 1, len(records), frame, frames)
                    items = items[MAX_EVENTS:]
                if not items:
                    return
        whole = cast(list[Complete], items) if kinds <= COMPLETE else self._complete(items)
        for last, events, frame in self.frames_of(whole):
            self.framed(last, events, frame, frames)
        self.last = max(self.last, self.sent, last_of(whole))  # what machine code puts in next follows on it
        self._back = False
        if self.ended and not self.kept and not self.pending and self.behind is None:
            self.crossing.drop(self)  # nobody has to acknowledge anything

    def framed(self, last: int, events: int, frame: bytes, frames: list[bytes]) -> None:
        self.passed += events
        self.sent = last
        frames.append(frame)
        if self.crossing.reliable and (events or not self.ended or frame[4] != wire.CONTROL):
            self._unsettled += events
            past = not events and wire.is_past(frame)
            self.kept.append(Kept(self.number + past, last, events, frame, past))
        elif self.waiters.threads or self.waiters.futures:
            self.settle(0)

    def _take(self) -> list[Pending]:
        pending = self.pending
        if self.tagging:
            with self.source.lock:  # so that an event's tags are all there
                items = pending[:]
                pending.clear()
        else:
            items = take(pending, self.source.lock)
            if pending and not self.dirty:  # put in meanwhile, and not told of if it was not the first in the list
                self.dirty = True
                self.peer.dirty.append(self)
        if self._chunk_surplus:
            with self.source.lock:
                self._chunk_surplus -= surplus(items)
        self._take_gaps(items)
        return items

    def _take_gaps(self, items: list[Pending]) -> None:
        if int.from_bytes(self.gap_count, "little") != self._gaps_taken:
            kinds = list(map(type, items))
            self._gaps_taken += kinds.count(int) + kinds.count(Gap)

    def _complete(self, items: list[Pending]) -> list[Complete]:
        """Where machine code has put records, their numbers and times: they follow on what was before them.

        Their time is that of the last event before them that Python has seen, one in 64, or of the last frames."""
        made, self.last = complete(items, self.last, self._before())
        return made

    def _before(self) -> int:
        """The time of what is before all that waits; the next time, this is."""
        now = self.source.channel.node._stamp()
        before, self._time = self._time or now, now
        return before

    def _flood(self, items: list[Pending]) -> tuple[int, list[int], list[bytes]] | None:
        """The first number, the times and the records, if these are nothing but records one after the other."""
        first, time = self.last + 1, self._time
        found = flood(items, first, self._before())
        if found is None:
            self._time = time
            return None
        self.last += len(items)
        return first, *found

    def _gather(self, items: list[Pending], frames: list[bytes]) -> bool:
        """Frames of records of which some are missing, if there is nothing else."""
        time = self._time
        found = gather(items, self.last, self._before())
        if found is None:
            self._time = time
            return False
        seqs, stamps, records, self.last = found
        for start in range(0, len(seqs), MAX_EVENTS):
            part = slice(start, start + MAX_EVENTS)
            self.number += 1
            frame = wire.encode_events(
                self.sid, self.number, seqs[part], stamps[part], records[part], header=self.header
            )
            self.framed(seqs[part][-1], len(seqs[part]), frame, frames)
        return True

    def too_large(self, size: int, record: bytes | None) -> None:
        """An event that no frame can take: it cannot cross, and it must not keep others from it. Who publishes may want
        to know."""
        self.dropped += 1
        log.error(
            "%s: an event of %d bytes cannot go to node %s, and is dropped: expected at most %d bytes; make it smaller",
            self.source,
            size,
            self.peer.name,
            MAX_RECORD_BYTES,
        )
        if record is not None and (tell := self.source.uncrossable) is not None:
            scheduler, task = self.peer.scheduler, partial(tell, record, self.peer.name, MAX_RECORD_BYTES)
            scheduler.later(0.0, partial(scheduler.work, task, on=f"too large/{self.source.id}"))
        self.settle(0)

    # ── what was sent ──

    def acknowledged(self, number: int) -> None:
        """The peer has done with all frames up to this one."""
        kept, released = self.kept, list(self.kept.release(number))
        done = sum(each.events for each in released)
        if released:
            self._released = max(self._released, released[-1].last)
        while self._forgotten and self._forgotten[0][0] <= number:
            self._forgotten.popleft()  # it had arrived
        if done:
            self.settle(done)
        if self.behind is not None:
            if not self.dirty and self._unsettled < self.limit:
                self.dispatch_later()
        elif self.ended and not self.pending and (not kept or kept[0].number > self.number):
            self.crossing.drop(self)

    def forget_past(self) -> None:
        """The peer was started again: what sinks of its earlier process were to begin with goes to nobody."""
        others = [each for each in self.kept if not each.past]
        if len(others) < len(self.kept):
            self.kept.clear()
            self.kept.extend(others)
        with self.source.lock:
            if any(map(_of_the_past, self.pending)):
                self.pending[:] = [item for item in self.pending if not _of_the_past(item)]

    def trim(self) -> None:
        """Drop the oldest, as the policy says, until there is room; the peer will be told of the gap."""
        self.over = False
        kept, freed, gone = self.kept, 0, 0
        while self.waiting - freed > self.limit and kept:  # what was sent is only lost if the link breaks now
            oldest = kept.popleft()
            self._forgotten.append((oldest.number, oldest.events))
            if len(self._forgotten) > FORGOTTEN_FRAMES:  # a peer that never acknowledges: two are remembered as one
                _, events = self._forgotten.popleft()
                number, more = self._forgotten.popleft()
                self._forgotten.appendleft((number, events + more))
            freed += oldest.events
        self.settle(freed)
        if self.waiting > self.limit and self.pending:
            excess = self.waiting - self.limit
            rest, gone = newest_of(self._complete(self._take()), excess)
            with self.source.lock:
                self.count_gap()
                self.pending[:0] = [*rest, self.last]  # what was put in meanwhile follows on all that was taken out
                self._chunk_surplus += surplus(rest)
            self._back = True  # they are before the last that was taken out
        self.dropped += gone

    def again(self, received: int | None, *, after: int | None = None) -> tuple[int, list[bytes]]:
        """For a new link: the number of the first frame to come, and what of the kept frames must go again.

        `received` is the last frame the peer has, which it may still lose if it is killed, so that it is kept until it
        is acknowledged; or, after a restart of the peer, `after`: the last event that its durable sinks have seen."""
        if after is not None:
            kept, done = self.kept, 0
            while kept and kept[0].last <= after:
                self._released = max(self._released, kept[0].last)
                done += kept.popleft().events
            self.settle(done)
        self.dropped += sum(events for number, events in self._forgotten if received is None or number > received)
        self._forgotten.clear()
        missing = list(self.kept) if received is None else self.kept.after(received)
        first = missing[0].number if missing else self.number + 1
        return first, [each.frame if each.past else wire.resent(each.frame) for each in missing]

    def end_frame(self) -> bytes:
        """What the peer is told after its last event."""
        return wire.encode_control(Ends(self.sid, over=self.source.withdrawn))

    @property
    def is_elsewhere(self) -> bool:
        """Whether its source has left, and all that was published here went along: a peer that was started again has
        what it missed from there, and asks for nothing of it here."""
        source = self.source
        return source.withdrawn and source.moved_to is not None and source.log is not None

    def forget(self) -> None:
        """Nobody will ask for what was kept."""
        self.ended, self.forgotten, self.behind = True, True, None
        self.kept.clear()
        self.pending.clear()
        self._chunk_surplus, self._gaps_taken = 0, int.from_bytes(self.gap_count, "little")
        self.settle(self._unsettled)
        self.peer.full.discard(self)
        self.crossing.drop(self)
        self._tell_waiters()


def _of_the_past(item: Pending) -> bool:
    return isinstance(item, ControlFrame) and wire.is_past(item.frame)
