"""What comes from multicast groups: put in order for each source, handed on, and asked for again where it is missing."""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, FederationError, FrameError, HeadwaterError
from headwater.federation import wire
from headwater.federation.address_map import Group
from headwater.federation.datagram import Datagram, node_number
from headwater.federation.wire_control import Announce, Mark, Repair, Sent
from headwater.federation.wire_kinds import BATCH, EVENT, EVENTS, GROUP, RETOLD

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.federation.demand import Demand
    from headwater.federation.groupcast import Groups
    from headwater.federation.peer import Peer
    from headwater.federation.standin import StandIn

log = logging.getLogger("headwater.federation")
PATIENCE = 0.05  # seconds after which what is missing is asked for again
PACE, BYTES = 1024, 32 << 10  # events and bytes after which an acknowledgement does not wait for the next tick
EARLY, EARLY_BYTES = 4096, 8 << 20  # frames of a source, and bytes of them, that may wait for one that is missing
UNPLACED, EACH = 1024, 64  # frames that may wait for the announcement of their source: of all, of one
HOLES = 32  # gaps that are asked for at once
RECENT = 4096  # frames whose events are remembered, to tell what was lost up to one of them
_SOURCE = struct.Struct("<I")
_EVENTS = (EVENT, RETOLD, EVENTS, BATCH)


class Hearing:
    """Of one node: the groups that it has joined, for which peer and channel."""

    def __init__(self, groups: Groups) -> None:
        self._groups, self._engine = groups, groups.engine
        self._joined: dict[tuple[str, str], Group] = {}  # by peer and channel
        self._lock = threading.Lock()
        self._numbers: dict[int, str] = {}  # ids of nodes by their numbers
        self._channels: dict[str, tuple[Any, dict[int, str]]] = {}  # by peer, of a state of it: channels of its sources
        self._unplaced: dict[tuple[str, int, int], list[memoryview]] = {}
        self._behind: set[Track] = set()
        self._beating = False

    # ── which groups ──

    def eligible(self, channel: Channel, peer: Peer, demand: Demand) -> Group | None:
        """The group by which events of a peer's sources could come; the wiring's lock is held."""
        if self._groups.multicast is None or peer.state is None or not peer.state.multicast or not demand.wishes:
            return None
        plain = not any(wish.tagged or wish.zones or wish.history or wish.sinks for wish in demand.wishes)
        zoned = any(entry.zones is not None for entry in channel.entries.values() if entry.local)
        if not plain or zoned or demand.promises or demand.routes:
            return None
        return self._groups.group(channel.name)

    def join(self, peer: Peer, channel: str, group: Group | None) -> None:
        """Hear a group for a channel of a peer, and no other; none if there is none."""
        multicast = self._groups.multicast
        if multicast is None:
            return
        with self._lock:
            key = peer.id, channel
            before = self._joined.get(key)
            if before == group:
                return
            try:
                if group is not None:
                    multicast.join(group)
                    self._joined[key] = group
                else:
                    self._joined.pop(key, None)
                if before is not None:
                    multicast.leave(before)
            except ClosedError:
                self._joined.pop(key, None)

    def told(self, peer: Peer, channel: str, group: str) -> None:
        """Where a peer sends a channel; nothing if over the link."""
        try:
            self.join(peer, channel, Group.parse(group) if group else None)
        except FederationError as error:
            log.error("node %s: what %s sends of %s is not heard: %s", self._engine.node.name, peer.name, channel, error)

    def forget(self, peer: Peer) -> None:
        """A peer is gone."""
        for node, channel in list(self._joined):
            if node == peer.id:
                self.join(peer, channel, None)
        for key in [key for key in list(self._unplaced) if key[0] == peer.id]:
            self._unplaced.pop(key, None)
        self._channels.pop(peer.id, None)

    # ── datagrams: in the thread that receives them ──

    def _peer(self, node: int) -> Peer | None:
        peers = self._engine.peers
        found = self._numbers.get(node)
        if found is None or found not in peers:
            self._numbers = {node_number(each): each for each in list(peers)}
            found = self._numbers.get(node)
        return None if found is None else peers.get(found)

    def accepts(self, node: int, incarnation: int) -> bool:
        """Whether a sender is known."""
        peer = self._peer(node)
        return peer is not None and peer.incarnation == incarnation and peer.state is not None

    def on_datagram(self, datagram: Datagram) -> None:
        peer = self._peer(datagram.node)
        if peer is None or peer.incarnation != datagram.incarnation or self._engine.closed:
            return
        for frame in datagram.frames:
            if frame[0] not in _EVENTS or len(frame) < 5:
                raise FrameError(f"multicast: expected events, found a frame of kind {frame[0]}")
            (sid,) = _SOURCE.unpack_from(frame, 1)
            source = peer.standins.get(sid & ~GROUP)
            track = None if source is None else source.track
            if not sid & GROUP:
                raise FrameError("multicast: expected frames of a group, found one of a link")
            if track is None:
                self._unknown(peer, sid, frame)
            else:
                track.arrived(wire.decode(frame), len(frame))

    def _unknown(self, peer: Peer, sid: int, frame: memoryview) -> None:
        """Of a channel that nobody here wants; or of a source whose announcement is on its way."""
        state, channels = self._channels.get(peer.id, (None, {}))
        if state is not peer.state:
            channels = {ad.sid: ad.channel for ad in peer.sources}
            self._channels[peer.id] = peer.state, channels
        channel = channels.get(sid & ~GROUP)
        if channel is not None and (peer.id, channel) not in self._joined:
            return
        waiting = self._unplaced.setdefault((peer.id, peer.incarnation, sid), [])
        if len(waiting) < EACH and sum(map(len, self._unplaced.values())) < UNPLACED:
            waiting.append(frame)

    # ── what comes over the peer's link ──

    def message(self, peer: Peer, message: Any) -> None:
        """Frames of a group that were asked for again, or that no datagram can take."""
        source = peer.standins.get(message.source & ~GROUP)
        if source is not None and source.track is not None:
            source.track.arrived(message, 0)

    def announced(self, peer: Peer, source: StandIn, message: Announce) -> None:
        track = source.track
        if track is not None:
            if track.ending:
                track.hold(0, partial(self.announced, peer, source, message))
            else:
                track.jump(message.next - 1)
            return
        track = source.track = Track(self, peer, source, max(0, message.next - 1))
        for frame in self._unplaced.pop((peer.id, peer.incarnation, track.sid), ()):
            track.arrived(wire.decode(frame), len(frame))

    def sent(self, peer: Peer, message: Sent) -> None:
        for sid, number in message.numbers.items():
            source = peer.standins.get(sid & ~GROUP)
            if source is not None and source.track is not None:
                source.track.told(number, message.totals.get(sid))

    def ends(self, peer: Peer, sid: int) -> None:
        """No more of a source comes by its group."""
        source = peer.standins.get(sid & ~GROUP)
        track = None if source is None else source.track
        if track is not None:
            track.ending = True
            track.hold(track.sent, track.end)

    def marked(self, peer: Peer, message: Mark, then: Callable[[], None]) -> None:
        """Wishes are in force, once everything is here that was sent before that."""
        tracks = [each.track for each in list(peer.standins.values()) if each.track and each.channel.name == message.channel]
        left, lock = [len(tracks)], threading.Lock()

        def here() -> None:
            with lock:
                left[0] -= 1
                last = left[0] == 0
            if last:
                then()

        if not tracks:
            then()
        for track in tracks:
            if not track.hold(track.sent, here):
                here()

    # ── time ──

    def behind(self, track: Track) -> None:
        """Something is missing, or on its way."""
        self._behind.add(track)
        if not self._beating:
            self._beating = True
            self._engine.later(PATIENCE, self._beat)

    def _beat(self) -> None:
        self._beating = False
        for track in list(self._behind):
            self._behind.discard(track)
            self._engine.work(track.look)


class Track:
    """One source's frames from its group. Whoever brings a frame hands on what is in order, unless somebody does already;
    so the events of a source stay in order, and who reads a link never waits for who reads datagrams."""

    def __init__(self, hearing: Hearing, peer: Peer, source: StandIn, frame: int) -> None:
        self._hearing, self.peer, self.source = hearing, peer, source
        self.sid = source.sid | GROUP
        self.frame = self.acknowledged = frame  # the last that came in order
        self.sent = frame  # the last of which is known that it was sent
        self.unsaid = self._bytes = 0  # since the last acknowledgement
        self.ending = self.over = False
        self._frames: deque[tuple[int, int]] = deque()  # number and last event of what is not acknowledged
        self._early: dict[int, tuple[Any, int]] = {}
        self._early_bytes = 0
        self._after: deque[tuple[int, Callable[[], None]]] = deque()  # what is to be done when a frame is here
        self._lock = threading.Lock()
        self._busy = self._detached = False
        self._handing = 0  # the frame that is being handed on
        self._asked, self._asked_to, self._since = 0.0, 0, 0.0
        self._came = self._missed = 0  # events
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self._total: tuple[int, int] | None = None

    @property
    def reliable(self) -> bool:
        asked = self.peer.asked.get(self.source.channel.name)
        return asked is None or bool(asked.demand.reliable)

    # ── in ──

    def arrived(self, message: Any, size: int) -> None:
        """A frame, from wherever."""
        number = message.number
        with self._lock:
            if number <= self.frame or number in self._early:
                self.source.repeated += 1
                return
            if len(self._early) >= EARLY or self._early_bytes > EARLY_BYTES:
                if number != self.frame + 1:
                    return  # it is asked for again
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

    def end(self) -> None:
        """No more will come."""
        self.over = True

    def _drain(self) -> None:
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
                    self._hearing._engine.later(0.005, partial(self._hearing._engine.work, self._again))
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
            mailbox.go()
            mailbox = self.source.full(None)
        return mailbox is None or self._hearing._engine.closing

    def _hand(self, message: Any, size: int) -> None:
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
            self._hearing._engine.offence(self.peer, str(error))
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
            self.peer.unacknowledged.add(self)  # type: ignore[arg-type]
            if self.unsaid >= PACE or self._bytes >= BYTES:
                self._bytes = 0
                self.peer.acknowledge([self])  # type: ignore[list-item]
            elif not self._hearing._engine.ticking:
                self._hearing._engine.tick_soon()

    def _guarded(self, then: Callable[[], None]) -> None:
        try:
            then()
        except HeadwaterError as error:
            self._hearing._engine.offence(self.peer, str(error))

    def _finish(self) -> None:
        self._count()
        self.peer.acknowledge([self])  # type: ignore[list-item]
        if not self.source.linked:
            self._hearing._engine.withdrawn(self.peer, self.source.sid)

    # ── what is missing ──

    def look(self) -> None:
        """Ask for what is missing, or give it up."""
        now = monotonic()
        with self._lock:
            if self._detached or self.source.closed or not (self._early or self.frame < self.sent):
                holes = []
                behind = False
            else:
                behind = True
                late = now - self._since >= PATIENCE
                if not self.reliable:
                    if late and self.frame < self.sent and not self._busy:
                        self._skip(self.sent)
                        behind = False
                    holes = []
                elif self._asked_to > self.frame and now - self._asked < PATIENCE:
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
                if len(holes) == HOLES:
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
            if len(self._recent) == RECENT and self._recent[0][0] > number:
                return
            missed = max(0, total - (self._came - later))
            self.source.missed += missed - self._missed
            self._missed, self._total = missed, None

    # ── what may be forgotten at the other end ──

    def settled(self) -> int:
        """The last frame that no sink of this node needs again."""
        frames = self._frames
        with self._lock:
            if not frames:
                return self._handing - 1 if self._handing else self.frame
        upto = self.source.upto()
        done = self.acknowledged
        while upto is not None and frames and frames[0][1] <= upto:
            done = frames.popleft()[0]
        return done


__all__ = ["Hearing", "Track"]
