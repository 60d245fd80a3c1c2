"""What goes to another node: lanes of sources, frames beside the events, and barriers: wishes are in force."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import FrameError
from headwater.federation.peers.description import describe
from headwater.federation.peers.record import PeerRecord
from headwater.federation.send.crossing import Crossing
from headwater.federation.send.pending import ControlFrame
from headwater.federation.transport.sender import Sender
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, Barrier, Ends
from headwater.federation.wire.kinds import GROUP
from headwater.federation.wire.requests import pack_type

if TYPE_CHECKING:
    from headwater.federation.peers.parts import Parts
    from headwater.federation.send.lane import Lane
    from headwater.federation.transport.link import Link

MOST_UNREAD = 65_536  # frames beside the events that may wait for a node
MOST_UNREAD_BYTES = 64 << 20  # the same, when it asks for more
COMPRESS_BYTES = 512  # from which on frames are worth compressing


class FrameMaker(Protocol):
    """With whom something waits for a peer, beside the events of lanes."""

    dirty: bool  # it is to be asked

    def frames(self) -> list[bytes]:
        """What waits, as frames; `building` is held. It is not dirty then."""
        ...


class Outgoing(PeerRecord):
    """The half of a peer that sends. `building` is held while frames are made of what waits."""

    def __init__(self, parts: Parts, node: str, incarnation: int) -> None:
        super().__init__(node, incarnation)
        assert parts.registrar is not None and parts.attendance is not None and parts.requests is not None
        self._parts, self._context = parts, parts.context
        self.registrar, self.attendance = parts.registrar, parts.attendance
        self.requests, self.groups = parts.requests, parts.groups
        self.network, self.scheduler = parts.context.network, parts.context.scheduler
        self.link: Link | None = None
        self.resumed = False  # the other end has said what it has: events may go
        self.building = threading.Lock()
        self.control: deque[bytes] = deque()
        self.beside: deque[FrameMaker] = deque()  # of whom frames are made, beside the events, when it is time to send
        self.dirty: deque[Lane] = deque()
        self.barriers_due: deque[Crossing] = deque()
        self.behind_due: list[tuple[Crossing, bytes]] = []  # frames that go behind what was published before
        self.reading: list[Lane] = []  # lanes that go on reading the log when others had their turn
        self.sender = Sender(self._collect, f"{parts.context.name}-{self.name}", parts.pulse)
        self.send_soon: Callable[..., None] = self.sender.send_soon
        self.full: set[Any] = parts.context.node._full
        self.crossings: dict[str, Crossing] = {}
        self.memory = new_memory()  # in which they are kept: another one as soon as this node gives one up by itself
        self.unwanted: dict[str, int] = {}  # by channel of which it wants nothing more, the version of that question
        self.by_sid: dict[int, Lane] = {}
        self.last_number = 0

    def lanes(self) -> Iterable[Lane]:
        for crossing in list(self.crossings.values()):
            yield from crossing.active()

    def date(self) -> None:
        """See to it that what waits for the link has about the time at which it was published."""
        for lane in self.lanes():
            lane.date()

    def _collect(self, budget: int) -> list[bytes]:
        """Frames of what waits; called by one thread at a time."""
        frames: list[bytes] = []
        control, dirty = self.control, self.dirty
        with self.building:
            while control:
                frames.append(control.popleft())
            while self.beside:
                frames += self.beside.popleft().frames()
            if not self.resumed:
                return frames
            # What a barrier will say is settled before lanes are looked at: a question that is answered meanwhile puts
            # what it owes into them first, and then has its version; so no barrier of that overtakes it.
            due = dict.fromkeys(self.barriers_due.popleft() for _ in range(len(self.barriers_due)))
            barriers_due = [(crossing, crossing.version, crossing.points) for crossing in due]
            while dirty:
                lane = dirty.popleft()
                if lane.crossing.parked or lane.forgotten:  # what was kept goes first; nothing goes of one that is over
                    lane.dirty = False
                    continue
                if not lane.announced:
                    frames.append(self._announce(lane, lane.number + 1))
                lane.build(frames)
            for crossing, version, points in barriers_due:
                if crossing.parked:
                    continue
                if crossing.waits_for_log():
                    continue
                self._flush_before_barrier(crossing, frames)
                frames.append(self._barrier(crossing, version, points))
            self.behind_due = [each for each in self.behind_due if not self._has_gone_behind(*each, frames)]
            more = bool(self.reading)
            while self.reading:
                self.add_dirty(self.reading.pop())
        if more or self.barriers_due:
            self.send_soon()  # the flusher sees to it: this thread is at it already
        if self.network.compress != "none" and self.columns:
            frames = [_compressed(frame, self.network.compress) for frame in frames]
        return frames

    def _announce(self, lane: Lane, first: int) -> bytes:
        lane.announced = True
        lane.begin_again()
        return self.introduction(lane, first, lane.take_point())

    def introduction(self, lane: Lane, first: int, point: int | None = None) -> bytes:
        """What the peer is told of a lane's source."""
        source = lane.source
        type = source.channel.type
        ad = describe(source)
        return wire.encode_control(
            Announce(
                ad=ad,
                type=pack_type(type),
                next=first,
                dropped=lane.dropped + lane.shed,
                window=lane.limit,
                live=lane.live,
                again=lane.again_asked,
                point=point,
                deeds=list(source.deeds),
                begins=lane.beginning,
            )
        )

    def _flush_before_barrier(self, crossing: Crossing, frames: list[bytes]) -> None:
        """All that was put in before the wishes held, also by those who have not said so yet; and the other end gets to
        know every source, so that it can say from where on they hold."""
        if crossing.share is not None:
            for before in crossing.active():
                if before.pending and before.announced:
                    before.build(frames, now=True)
            crossing.share.before_barrier(frames)
            return
        for source in list(crossing.channel.sources.values()):
            if not source.local:
                continue
            with source.lock:
                lane = crossing.lane(source)
            if lane is not None and not lane.ended:
                if not lane.announced:
                    frames.append(self._announce(lane, lane.number + 1))
                if lane.pending:
                    lane.build(frames, now=True)

    def _has_gone_behind(self, crossing: Crossing, frame: bytes, frames: list[bytes]) -> bool:
        """Whether a frame needs no further turn: it goes now, or nothing of that channel goes there any more."""
        if self.crossings.get(crossing.channel.name) is not crossing:
            return True
        if crossing.parked or crossing.waits_for_log():
            return False
        self._flush_before_barrier(crossing, frames)
        frames.append(frame)
        return True

    def say_behind(self, crossing: Crossing, frame: bytes) -> None:
        """A frame behind all events of a channel that were published before."""
        with self.building:
            self.behind_due.append((crossing, frame))
        self.send_soon()

    def _barrier(self, crossing: Crossing, version: int, points: dict[int, int]) -> bytes:
        """That the wishes of a version are in force, after these points; all from before them is in frames."""
        crossing.told = version
        since, gap, _ = self._parts.barriers.behind(crossing.channel.name)
        return self._barrier_of(crossing, points, since, gap)

    def _barrier_of(self, crossing: Crossing, points: dict[int, int], since: int, gap: int) -> bytes:
        crossing.behind = since, gap
        first, since = crossing.first and not since, max(since, crossing.since)
        return wire.encode_control(Barrier(crossing.channel.name, crossing.told, points, since, first, gap))

    def tell_gap(self, crossing: Crossing, since: int, gap: int) -> None:
        """Tell the peer, before anything else, that it was not told all that gateways here should have passed on: also
        while its barrier is still to come over this link, for sources may end before that."""
        self.say(self._barrier_of(crossing, {}, since, gap))

    def add_dirty(self, lane: Lane) -> None:
        """A lane has something to send: it goes with what is sent next, after `send_soon`."""
        if not lane.dirty:
            lane.dirty = True
            self.dirty.append(lane)

    def send_barrier(self, crossing: Crossing) -> None:
        """Tell the peer, after all that went before, that its wishes of this version are in force."""
        if crossing.told == crossing.version:
            return  # it was told with the link, which has come up just now
        self.barriers_due.append(crossing)
        self.send_soon()

    def say(self, frame: bytes) -> None:
        """A frame beside the events."""
        link = self.link
        if link is not None:
            self.control.append(frame)
            self.send_soon()
            if len(self.control) > MOST_UNREAD:
                link.close("it does not take the answers to what it asks")

    def carry(self, maker: FrameMaker, *, gathered: bool = False) -> None:
        """Have frames made of what waits with somebody, when it is time to send: at once, if it has `gathered` there
        already; over the next link, if there is none now."""
        if not maker.dirty:
            maker.dirty = True
            self.beside.append(maker)
        if self.link is not None:
            if gathered:
                self.sender.send_gathered()
            else:
                self.send_soon()

    def trim(self, lane: Lane) -> None:
        with self.building:
            lane.trim()

    def end_lane(self, lane: Lane) -> None:
        """A source is no more: what it has sent is still delivered, then the peer forgets it."""
        lane.ended = True
        if lane.crossing.parked and lane.is_elsewhere:
            lane.forget()
        elif lane.announced or lane.pending or lane.behind:
            lane.put(ControlFrame(lane.end_frame()), 0)
            lane.dispatch()
        elif not lane.kept:  # else the next link ends it
            lane.crossing.drop(lane)

    def on_resume(self, positions: dict[int, int], link: Link, memory: int = 0) -> None:
        """The other end says which frames of each source it has: the rest goes again, then all that waits."""
        if len(self.control) > MOST_UNREAD // 2 or sum(map(len, list(self.control))) > MOST_UNREAD_BYTES:
            raise FrameError("it asks again and again for what it does not take")
        groups = self.groups
        rests, shared = ([], []) if groups is None else groups.resumed(self, positions)
        again_due: list[Crossing] = []
        with self.building:
            if self.link is not link:
                return  # another has taken its place, over which it is said again
            self.control.extend(rests)
            for crossing in list(self.crossings.values()):
                if crossing.parked:
                    continue
                for lane in crossing.active():
                    lane.begin_again()
                    came = positions.get(lane.sid, 0)
                    if came > lane.number:  # what it has is of an earlier lane, which was given up here
                        self.control.append(wire.encode_control(Ends(lane.sid)))
                        came = 0
                    first, again = lane.again(came)
                    if again or lane.pending or lane.behind or not lane.ended:
                        self.control.append(self._announce(lane, first))
                        self.control.extend(again)
                    if lane.ended and not lane.pending and not lane.behind:
                        self.control.append(lane.end_frame())
                    if lane.pending or lane.behind:
                        self.add_dirty(lane)
                if crossing.due:
                    if crossing.behind[1]:
                        self.control.append(self._barrier_of(crossing, {}, *crossing.behind))  # before sources end
                    crossing.told = 0
                    again_due.append(crossing)
            for sid in positions:  # it has ended, and that was lost with a link
                if not sid & GROUP and sid not in self.by_sid:
                    self.control.append(wire.encode_control(Ends(sid)))
            self.control.extend(shared)
            self.resumed, self.memory_there = True, memory
        self.scheduler.later(0.0, partial(self.requests.confirm, self))
        for crossing in again_due:
            self._parts.barriers.send_barrier(self, crossing)
        self.send_soon()


def new_memory() -> int:
    """A number that no other memory has, of any process."""
    return 1 + secrets.randbits(48)


def _compressed(frame: bytes, codec: Any) -> bytes:
    return wire.compress(frame, codec) if len(frame) >= COMPRESS_BYTES else frame


__all__ = ["FrameMaker", "Outgoing", "new_memory"]
