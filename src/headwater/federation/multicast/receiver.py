"""Multicast groups as this node hears them: which it has joined, and whose frames are whose."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, FederationError, FrameError
from headwater.federation.address_map import Group
from headwater.federation.multicast.datagram import Datagram, node_number
from headwater.federation.multicast.track import REPAIR_SECONDS, Track
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, Sent
from headwater.federation.wire.kinds import BATCH, BODY, EVENT, EVENTS, GROUP, REBODY, RETOLD

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.demand.demand import Demand
    from headwater.federation.multicast.groups import Groups
    from headwater.federation.peers.peer import Peer

log = logging.getLogger("headwater.federation")
MOST_UNPLACED, MOST_FRAMES_UNPLACED = 64, 64  # sources whose announcement frames may wait for, and how many of each
_SOURCE = struct.Struct("<I")
_EVENTS = (EVENT, RETOLD, BODY, REBODY, EVENTS, BATCH)


class Hearing:
    """Of one node: the groups that it has joined, for which peer and channel."""

    def __init__(self, groups: Groups) -> None:
        self._groups, self.context = groups, groups.context
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
        zoned = any(entry.zones is not None for entry in channel.entries.values() if entry.local)
        if not demand.plain or zoned or demand.promises or demand.routes:
            return None
        if demand.reliable and any(ad.log and ad.channel == channel.name for ad in peer.sources):
            return None  # what is missing after a restart comes from the log, over the link
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
            name = self.context.name
            log.error("node %s: what %s sends of %s is not heard: %s", name, peer.name, channel, error)

    def freeze(self, peer: Peer, channel: str, frozen: bool) -> None:
        """A peer is asked to send a channel in another way: what comes from the group meanwhile waits, for only the
        peer knows which frame was the last for this node; or it is not, after all."""
        for source in list(peer.remote_sources.values()):
            if source.channel.name == channel and (track := _track(source)) is not None:
                track.freeze(frozen)

    def hears(self, peer: Peer, channel: str) -> bool:
        """Whether a channel of a peer comes by a group."""
        return (peer.id, channel) in self._joined

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
        peers = self._groups.peers
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
        if peer is None or peer.incarnation != datagram.incarnation or self.context.closed:
            return
        for frame in datagram.frames:
            if frame[0] not in _EVENTS or len(frame) < 5:
                raise FrameError(f"multicast: expected events, found a frame of kind {frame[0]}")
            (sid,) = _SOURCE.unpack_from(frame, 1)
            source = peer.remote_sources.get(sid & ~GROUP)
            track = None if source is None else _track(source)
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
        if len(waiting) < MOST_FRAMES_UNPLACED:
            waiting.append(frame)
            if len(self._unplaced) > MOST_UNPLACED:
                self._unplaced.pop(next(iter(self._unplaced)), None)

    # ── what comes over the peer's link ──

    def message(self, peer: Peer, message: Any) -> None:
        """Frames of a group that were asked for again, or that no datagram can take."""
        source = peer.remote_sources.get(message.source & ~GROUP)
        if source is not None and (track := _track(source)) is not None:
            track.arrived(message, 0, asked=True)

    def announced(self, peer: Peer, source: RemoteSource, message: Announce) -> None:
        track = _track(source)
        if track is not None and track.begins(message.next - 1):
            return
        track = source.track = Track(self, peer, source, max(0, message.next - 1))
        for frame in self._unplaced.pop((peer.id, peer.incarnation, track.sid), ()):
            track.arrived(wire.decode(frame), len(frame))

    def sent(self, peer: Peer, message: Sent) -> None:
        for sid, number in message.numbers.items():
            source = peer.remote_sources.get(sid & ~GROUP)
            if source is not None and (track := _track(source)) is not None:
                track.told(number, message.totals.get(sid))

    def ends(self, peer: Peer, sid: int) -> None:
        """No more of a source comes by its group."""
        source = peer.remote_sources.get(sid & ~GROUP)
        track = None if source is None else _track(source)
        if track is not None:
            track.ends()

    def barrier_came(self, peer: Peer, channel: str, then: Callable[[], None]) -> None:
        """Something was said behind events of a channel: it counts once everything is here that was sent before."""
        sources = [each for each in list(peer.remote_sources.values()) if each.channel.name == channel]
        tracks = [track for each in sources if (track := _track(each)) is not None]
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
            self.context.scheduler.later(REPAIR_SECONDS, self._beat)

    def _beat(self) -> None:
        self._beating = False
        for track in list(self._behind):
            self._behind.discard(track)
            self.context.scheduler.work(track.look)


def _track(source: RemoteSource) -> Track | None:
    """What comes of a source from its group, if anything does."""
    return source.track if isinstance(source.track, Track) else None


__all__ = ["Hearing"]
