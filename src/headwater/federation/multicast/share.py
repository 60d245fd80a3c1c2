"""A channel's way to its multicast group, and what each peer has of it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headwater.federation.multicast.lane import GroupLane, PacketLink
from headwater.federation.peers.description import describe
from headwater.federation.send.crossing import Crossing
from headwater.federation.transport.sender import Sender
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, Ends, Sent
from headwater.federation.wire.requests import pack_type

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.route import Entry
    from headwater.federation.address_map import Group
    from headwater.federation.multicast.groups import Groups
    from headwater.federation.multicast.sockets import Multicast
    from headwater.federation.peers.peer import Peer

FLIGHT_BYTES = 128 << 10  # bytes that a receiver's buffer is trusted to take before it has acknowledged them


class Outlet:
    """A group as lanes see it: in the place of a peer."""

    incarnation = 0
    quota = None
    present = True
    name: str
    budget: int

    def __init__(self, groups: Groups, multicast: Multicast, group: Group) -> None:
        self.groups, self.group = groups, group
        self.network, self.scheduler = groups.context.network, groups.context.scheduler
        self.name, self.budget = f"multicast group {group}", multicast.budget
        self.full: set[Any] = groups.context.node._full
        self.crossings: set[GroupCrossing] = set()
        self.building = threading.Lock()
        self.dirty: deque[GroupLane] = deque()
        self.ready: deque[tuple[GroupLane, int, bytes]] = deque()  # frames that have not gone out
        self.flight = 0  # bytes that went out and are not acknowledged
        self.link = PacketLink(multicast, group)
        self.sender = Sender(self._collect, f"{groups.context.name}-{group}")
        self.send_soon: Callable[..., None] = self.sender.send_soon
        self.sender.attach(self.link)

    def lanes(self) -> list[GroupLane]:
        return [lane for crossing in list(self.crossings) for lane in crossing.active()]

    def trim(self, lane: GroupLane) -> None:
        with self.building:
            lane.trim()

    def pump(self, seconds: float) -> bool:
        peers = {share.peer for crossing in list(self.crossings) for share in list(crossing.shares.values())}
        return any(peer.pump(seconds) for peer in peers)

    def introduce(self, lane: GroupLane) -> None:
        """All who share it are told of a source; what they get before that they cannot place."""
        if not lane.told:
            lane.told = True
            for share in list(lane.crossing.shares.values()):
                share.announce(lane)

    def _collect(self, budget: int) -> list[bytes]:
        """Frames of what waits, as many as may be on their way; called by one thread at a time."""
        frames: list[bytes] = []
        told: set[Peer] = set()
        with self.building:
            while self.dirty:
                lane = self.dirty.popleft()
                if not lane.told:
                    self.introduce(lane)
                    told.update(share.peer for share in lane.crossing.shares.values())
                lane.build([])
            size = 0
            while self.ready and size < budget and self.flight < FLIGHT_BYTES:
                lane, number, frame = self.ready.popleft()
                lane.launch(number)
                self.groups.soon(lane)
                self.weigh(lane)
                if len(frame) <= self.budget:
                    frames.append(frame)
                    size += len(frame)
                    continue
                for share in list(lane.crossing.shares.values()):
                    share.tell(frame, send_soon=False)
                    told.add(share.peer)
        for peer in told:
            peer.send_soon()
        return frames

    def weigh(self, lane: GroupLane) -> None:
        """How much of a lane is on its way to those who are there."""
        floor = min((share.acked.get(lane, 0) for share in lane.crossing.present()), default=lane.launched)
        offsets = lane.offsets
        flight = max(0, offsets.get(lane.launched, lane.made) - offsets.get(floor, lane.made))
        self.flight += flight - lane.flight
        lane.flight = flight


class GroupCrossing(Crossing):
    """A channel's way to its group."""

    peer: Outlet  # type: ignore[assignment]

    def __init__(self, outlet: Outlet, channel: Channel) -> None:
        super().__init__(outlet, channel)  # type: ignore[arg-type]
        self.shares: dict[str, Share] = {}  # by peer
        self.starting: Crossing | None = None  # of the peer whose wishes are put in force
        self.reliable = False
        self._held: Counter[Entry] = Counter()  # how many wishes of all peers each entry stands for
        outlet.crossings.add(self)

    def lane(self, source: Source) -> GroupLane | None:
        try:
            return self.lanes[source]  # type: ignore[return-value]
        except KeyError:
            own = source.local and source.channel is self.channel and not source.withdrawn
            lane = self.lanes[source] = GroupLane(self, source) if own else None
            if lane is not None:
                self.peer.groups.lanes[lane.sid] = lane
            return lane

    def active(self) -> list[GroupLane]:  # type: ignore[override]
        return [lane for lane in list(self.lanes.values()) if isinstance(lane, GroupLane)]

    def drop(self, lane: Any) -> None:
        pass  # it is dropped when all know that it has ended

    def hold(self, entry: Entry) -> bool:
        self._held[entry] += 1
        return self._held[entry] == 1

    def release(self, entry: Entry) -> bool:
        self._held[entry] -= 1
        if self._held[entry]:
            return False
        del self._held[entry]
        return True

    def started(self) -> None:
        if self.starting is not None:
            self.starting.started()

    def present(self) -> Iterable[Share]:
        return [share for share in list(self.shares.values()) if share.reliable and share.peer.gone is None]

    def waits(self, lane: GroupLane) -> bool:
        """Whether something is to be acknowledged by a peer that is there."""
        if not self.reliable or not lane.waiting:
            return False
        here = [share for share in self.present() if share.peer.link is not None or share.peer.present]
        return bool(here) and (bool(lane.pending) or any(share.acked.get(lane, 0) < lane.number for share in here))

    def settle(self, lane: GroupLane) -> None:
        """What all have acknowledged is not kept."""
        shares = [share for share in self.shares.values() if share.reliable]
        lane.acknowledged(min((share.acked.get(lane, 0) for share in shares), default=lane.number))
        self.peer.weigh(lane)


class Share:
    """A peer's part in a channel's group. Used under the outlet's lock, but for what says otherwise."""

    def __init__(self, crossing: Crossing, peer: Peer, group: GroupCrossing) -> None:
        self.crossing, self.peer, self.group = crossing, peer, group
        self.reliable = False
        self.open = False  # its peer may be told of sources: all from before it joined was sent
        self.acked: dict[GroupLane, int] = {}  # frames that it has done with, if it wants them reliably
        self.start: dict[GroupLane, int] = {}  # frames before it joined
        self.base: dict[GroupLane, int] = {}  # events before it joined
        self.announced: dict[GroupLane, None] = {}

    def begin(self, lanes: list[GroupLane], *, reliable: bool) -> None:
        """Its wishes hold from here, or others do; all lanes are empty."""
        for lane in lanes:
            if lane not in self.start:
                self.start[lane], self.base[lane] = lane.number, lane.entire
            if reliable and not self.reliable:
                self.acked[lane] = lane.number
                lane.offsets[lane.number] = lane.made
        self.reliable = reliable

    @property
    def crossed(self) -> int:
        """Events that went out since it joined; any thread may ask."""
        return sum(lane.passed - self.base.get(lane, 0) for lane in self.group.active())

    @property
    def address(self) -> str:
        return str(self.group.peer.group)

    def acknowledged(self, lane: GroupLane, number: int) -> None:
        if self.reliable and self.acked.get(lane, 0) < number <= lane.launched:
            self.acked[lane] = number
            self.group.settle(lane)

    def introduction(self, lane: GroupLane, first: int) -> bytes:
        ad, type = describe(lane.source), pack_type(lane.source.channel.type)
        return wire.encode_control(Announce(ad=ad, type=type, next=first, group=True))

    def progress(self, lanes: Iterable[GroupLane]) -> bytes:
        """How far these sources have come."""
        numbers = {lane.sid: lane.number for lane in lanes}
        totals = {lane.sid: max(0, lane.entire - self.base.get(lane, 0)) for lane in lanes}
        return wire.encode_control(Sent(numbers, totals))

    def announce(self, lane: GroupLane) -> None:
        if self.open and self.peer.link is not None:
            self.announced[lane] = None
            self.peer.control.append(self.introduction(lane, self.start.get(lane, 0) + 1))

    def before_barrier(self, frames: list[bytes]) -> None:
        """Called by whoever sends to the peer, before it is told that its wishes are in force: it gets to know every
        source, and how far they have come."""
        self.open = True
        for source in list(self.group.channel.sources.values()):
            if source.local:
                with source.lock:
                    lane = self.group.lane(source)
                if lane is not None and lane not in self.announced:
                    self.announced[lane] = None
                    frames.append(self.introduction(lane, self.start.get(lane, 0) + 1))
        lanes = list(self.announced)
        if lanes:
            frames.append(wire.encode_control(Sent({lane.sid: lane.number for lane in lanes})))

    def resume(self, positions: dict[int, int]) -> list[bytes]:
        """For a new link; its peer has these frames."""
        frames: list[bytes] = []
        if not self.open:
            return frames  # it is told with the barrier
        lanes = self.group.active()
        for lane in lanes:
            received = positions.get(lane.sid)
            if received is not None:
                self.acknowledged(lane, received)
            have = received if received is not None else self.start.get(lane, 0)
            first = lane.first_after(have) if self.reliable and have < lane.launched else have + 1
            frames.append(self.introduction(lane, first))
            frames += lane.after(have, lane.launched)
            frames.append(self.progress([lane]))
            if lane.ended:
                frames.append(wire.encode_control(Ends(lane.sid)))
            self.announced[lane] = None
            self.group.peer.weigh(lane)
        return frames

    def tell(self, frame: bytes, *, send_soon: bool = True) -> None:
        """Something over its peer's link; it is sent later, without the outlet's lock."""
        if self.peer.link is not None:
            self.peer.control.append(frame)
            if send_soon:
                self.peer.scheduler.later(0.0, self.peer.send_soon)

    def forget(self, lane: GroupLane) -> None:
        for known in (self.acked, self.start, self.base, self.announced):
            known.pop(lane, None)


__all__ = ["GroupCrossing", "Outlet", "Share"]
