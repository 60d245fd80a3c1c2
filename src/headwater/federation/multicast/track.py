"""One source's frames from a multicast group: put in order, handed on, and asked for again where they are missing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import FrameError, HeadwaterError
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Repair
from headwater.federation.wire.kinds import GROUP

if TYPE_CHECKING:
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.multicast.receiver import Hearing
    from headwater.federation.peers.peer import Peer

REPAIR_SECONDS = 0.05  # after which what is missing is asked for again
# After which an acknowledgement does not wait for the next tick.
ACKNOWLEDGED_EVENTS, ACKNOWLEDGED_BYTES = 1024, 32 << 10
MOST_EARLY, MOST_EARLY_BYTES = 4096, 8 << 20  # frames of a source that may wait for one that is missing
MOST_HOLES = 32  # gaps that are asked for at once
RECENT_FRAMES = 4096  # frames whose events are remembered, to tell what was lost up to one of them


class Track:
    """One source's frames from its group. Whoever brings a frame hands on what is in order, unless somebody does so
    already; so events stay in order, and who reads a link never waits for who reads datagrams."""

    def __init__(self, hearing: Hearing, peer: Peer, source: RemoteSource, frame: int) -> None:
        self._hearing, self.peer, self.source = hearing, peer, source
        self.sid = source.sid | GROUP
        self.frame = self.acknowledged = frame  # the last that came in order
        self.sent = frame  # the last of which is known that it was sent
        self.unsaid = self._bytes = 0  # since the last acknowledgement
        self.over = self._frozen = False
        self._ends: deque[int] = deque()  # frames after which it is to end, and perhaps to begin again
        self._frames: deque[tuple[int, int]] = deque()  # number and last event of what is not acknowledged
        self._early: dict[int, tuple[Any, int]] = {}
        self._early_bytes = 0
        self._after: deque[tuple[int, Callable[[], None]]] = deque()  # what is to be done when a frame is here
        self._lock = threading.Lock()
        self._busy = self._detached = False
        self._handing = 0  # the frame that is being handed on
        self._asked, self._asked_to, self._since = 0.0, 0, 0.0
        self._came = self._missed = 0  # events
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_FRAMES)
        self._total: tuple[int, int] | None = None

    @property
    def reliable(self) -> bool:
        asked = self.peer.asked.get(self.source.channel.name)
        return asked is None or bool(asked.demand.reliable)

    # ── in ──

    def arrived(self, message: Any, size: int, *, asked: bool = False) -> None:
        """A frame, from wherever. If there is no room for it, it is asked for again when its time has come."""
        number = message.number
        with self._lock:
            if number <= self.frame or number in self._early:
                self.source.repeated += 1
                return
            full = len(self._early) >= MOST_EARLY or self._early_bytes > MOST_EARLY_BYTES
            if full and not asked and number != self.frame + 1:
                return
            self._early[number] = message, size
            self._early_bytes += size
            if self._busy:
                return
            self._busy = True
        self._drain()

    def hold(self, number: int, then: Callable[[], None]) -> bool:
        """Do something once this frame is here, and what was to be done before; False if this track is no more."""
        with self._lock:
            if self._detached:
                return False
            self._after.append((number, then))
            if self._busy:
                return True
            self._busy = True
        self._drain()
        return True

    def jump(self, frame: int) -> None:
        """What is missing up to this frame will not come."""
        with self._lock:
            if frame <= self.frame:
                return
            self._skip(frame)
            if self._busy:
                return
            self._busy = True
        self._drain()

    def _skip(self, frame: int) -> None:
        self.frame = frame
        for number in [number for number in self._early if number <= frame]:
            self._early_bytes -= self._early.pop(number)[1]

    def told(self, number: int, total: int | None) -> None:
        """How far the source has come."""
        with self._lock:
            if number > self.sent:
                self.sent, self._since = number, monotonic()
            if total is not None:
                self._total = number, total
            behind = self.frame < self.sent
        if behind:
            self._hearing.behind(self)
        self._count()

    def freeze(self, frozen: bool) -> None:
        """Hand on no more until it is known where it ends; or go on."""
        self._frozen = frozen
        if not frozen:
            self._again()

    def ends(self) -> None:
        """When all is here that was sent, no more will come."""
        self._ends.append(self.sent)
        self.hold(self.sent, self._end)

    def _end(self) -> None:
        self._ends.popleft()
        self.over = True

    def begins(self, frame: int) -> bool:
        """What comes next is after this frame; False if this track is no more."""
        if self._ends:
            return self.hold(0, partial(self._begin, frame))
        self.jump(frame)
        return not self._detached

    def _begin(self, frame: int) -> None:
        with self._lock:
            self.over = self._frozen = False
            if frame > self.frame:
                self._skip(frame)

    def _drain(self) -> None:
        try:
            self._drain_all()
        except BaseException:
            with self._lock:
                self._busy = False  # whatever it was, it must not hold up what comes next
            raise

    def _drain_all(self) -> None:
        """Hand on what is in order; by one thread at a time."""
        while True:
            with self._lock:
                then: Callable[[], None] | None = None
                found: tuple[Any, int] | None = None
                if self._after and (self._after[0][0] <= self.frame or self.over):
                    then = self._after.popleft()[1]
                elif self.over:
                    self._early.clear()
                    self._detached, self._busy = True, False
                    self.source.track = None
                    break
                elif self.frame >= self._ends[0] if self._ends else self._frozen:
                    self._busy = False  # what is early is of when it has begun again
                    break
                elif (found := self._early.get(self.frame + 1)) is None:
                    if self._early and not self.reliable:
                        self._skip(min(self._early) - 1)
                        continue
                    self._busy = False
                    break
            if then is not None:
                self._guarded(then)
            elif found is not None:
                if not self._has_room():
                    with self._lock:
                        self._busy = False
                    self._hearing.context.scheduler.later(
                        0.005, partial(self._hearing.context.scheduler.work, self._again)
                    )
                    return
                self._hand(*found)
        if self.over:
            self._finish()
        else:
            self.look()

    def _again(self) -> None:
        with self._lock:
            if self._busy or self._detached:
                return
            self._busy = True
        self._drain()

    def _has_room(self) -> bool:
        """Whether all sinks can take more; a full one must not hold up what is for others."""
        if not self.source._full:
            return True
        mailbox = self.source.full(None)
        if mailbox is not None and mailbox.inline:
            mailbox.dispatch()
            mailbox = self.source.full(None)
        return mailbox is None or self._hearing.context.closing

    def _hand(self, message: Any, size: int) -> None:
        """Hand one frame of the group to its source, in order. No lock is held while it is delivered; that it has come
        is noted whatever becomes of it."""
        number, source = message.number, self.source
        with self._lock:
            if number != self.frame + 1:
                return  # it was given up
            self.frame = self._handing = number
            del self._early[number]
            self._early_bytes -= size
        source.by_group, reliable, events, last = True, self.reliable, 0, None
        try:
            if isinstance(message, wire.Batch):
                events, last = message.rows, int(message.seqs[-1])
                source.deliver_batch(message)
            else:
                events, last = len(message.seqs), message.seqs[-1]
                source.deliver(message)
        except FrameError as error:
            self._hearing.context.offences.note(self.peer.id, str(error))
        finally:
            source.by_group = False
            with self._lock:
                self._handing = 0
                self._came += events
                self._recent.append((number, events))
                if reliable and last is not None:
                    self._frames.append((number, last))
        if reliable:
            self.unsaid += events
            self._bytes += size
            self.peer.unacknowledged.add(self)
            if self.unsaid >= ACKNOWLEDGED_EVENTS or self._bytes >= ACKNOWLEDGED_BYTES:
                self._bytes = 0
                self.peer.acknowledge([self])
            elif not self._hearing.context.scheduler.ticking:
                self._hearing.context.scheduler.tick_soon()

    def _guarded(self, then: Callable[[], None]) -> None:
        try:
            then()
        except HeadwaterError as error:
            self._hearing.context.offences.note(self.peer.id, str(error))

    def _finish(self) -> None:
        self._count()
        self.peer.acknowledge([self])
        if not self.source.linked:
            self.peer.withdrawn(self.source.sid)

    # ── what is missing ──

    def look(self) -> None:
        """Ask for what is missing, or give it up."""
        now = monotonic()
        with self._lock:
            if self._detached or self.source.closed or not (self._early or self.frame < self.sent):
                holes: list[tuple[int, int]] = []
                behind = False
            else:
                behind = True
                late = now - self._since >= REPAIR_SECONDS
                if not self.reliable:
                    if late and self.frame < self.sent and not self._busy:
                        self._skip(self.sent)
                        behind = False
                    holes = []
                elif self._asked_to > self.frame and now - self._asked < REPAIR_SECONDS:
                    holes = []
                else:
                    holes = self._holes(late)
                    if holes:
                        self._asked, self._asked_to = now, holes[-1][1]
            waiting = bool(self._after) and not self._busy and self._after[0][0] <= self.frame
        for after, upto in holes:
            self.peer.say(wire.encode_control(Repair(self.sid, after, upto)))
        if behind:
            self._hearing.behind(self)
        if waiting:
            self._again()
        self._count()

    def _holes(self, late: bool) -> list[tuple[int, int]]:
        """What is missing: after this frame, up to and with that. What may be on its way is waited for."""
        holes, before = [], self.frame
        for number in sorted(self._early):
            if number > before + 1:
                holes.append((before, number - 1))
                if len(holes) == MOST_HOLES:
                    return holes
            before = number
        if late and before < self.sent:
            holes.append((before, self.sent))
        return holes

    def _count(self) -> None:
        """What was lost up to the frame of which it is known how many events there were to come."""
        with self._lock:
            if self._total is None or self.frame < self._total[0] or 0 < self._handing <= self._total[0]:
                return
            number, total = self._total
            later = sum(events for each, events in self._recent if each > number)
            if len(self._recent) == RECENT_FRAMES and self._recent[0][0] > number:
                return
            missed = max(0, total - (self._came - later))
            self.source.missed += missed - self._missed
            self._missed, self._total = missed, None

    # ── what may be forgotten at the other end ──

    def settled(self) -> int:
        """The last frame that no sink of this node needs again; any thread may ask."""
        upto = self.source.upto() if self._frames else None
        with self._lock:
            frames, done = self._frames, self.acknowledged
            if not frames:
                return self._handing - 1 if self._handing else self.frame
            while upto is not None and frames and frames[0][1] <= upto:
                done = frames.popleft()[0]
            return done


__all__ = ["REPAIR_SECONDS", "Track"]
