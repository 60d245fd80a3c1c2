"""Events that several nodes want, sent once: the channels of this node that go to multicast groups.

    Groups         the sockets; which peers share which channel's group; repairs              (this file, as Outlet)
    GroupLane      one source's events, in frames that fit a datagram                         (grouplane.py)
    Hearing        what comes from groups, put in order, and what is missing asked for again  (grouptrack.py)

For each channel there is one crossing, whose member stands in the entries of all wishes of all peers that share it.
Its lanes number their frames once for all of them. Everything else goes over each peer's own link: the announcement of
a source, before its first frame; how far it has come, when it pauses; frames that are asked for again; those that no
datagram can take; acknowledgements.

The outlet's lock `building` is taken after the wiring's and before those of sources; links are stirred without it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.names import Pattern
from headwater.channel.wiring import Move
from headwater.errors import ClosedError, ConfigError, ConfigProblem
from headwater.federation import wire
from headwater.federation.crossing import Crossing
from headwater.federation.grouplane import GroupLane, PacketLink
from headwater.federation.grouptrack import Hearing
from headwater.federation.messages import Install, pack_type
from headwater.federation.multicast import Multicast
from headwater.federation.sender import Sender
from headwater.federation.wire_control import Announce, Ends, Sent
from headwater.federation.wire_kinds import GROUP

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.route import Entry
    from headwater.channel.source import Source
    from headwater.federation.address_map import Group
    from headwater.federation.engine import Engine
    from headwater.federation.network import Network
    from headwater.federation.peer import Peer

PAUSE = 0.05  # seconds after which peers are told how far a source that pauses has come
WINDOW = 128 << 10  # bytes that a receiver's buffer is trusted to take before it has acknowledged them


class Groups:
    """Of one node. `lose`, for tests: whether to drop a datagram that has come, told its counter."""

    def __init__(self, engine: Engine) -> None:
        network = engine.network
        assert network.multicast is not None
        check(network)
        self.engine, self.address_map = engine, network.multicast
        self.lose: Callable[[int], bool] | None = None
        self.multicast: Multicast | None = None
        self.hearing = Hearing(self)
        self.outlets: dict[Group, Outlet] = {}
        self.crossings: dict[Channel, GroupCrossing] = {}
        self.lanes: dict[int, GroupLane] = {}  # by sid
        # What peers have not acknowledged that left a group, and want the rest over their link: by peer and sid.
        self.rests: dict[tuple[str, int], deque[tuple[int, bytes]]] = {}
        self._beating = False

    def open(self) -> None:
        network = self.engine.network
        self.multicast = Multicast(
            self.address_map,  # type: ignore[arg-type]
            self.hearing.on_datagram,
            federation=network.federation,
            node=self.engine.id,
            incarnation=self.engine.incarnation,
            key=network.multicast_key,  # type: ignore[arg-type]
            interface=network.multicast_interface,
            accepts=self.hearing.accepts,
            lose=lambda counter: self.lose is not None and self.lose(counter),
        )

    def close(self) -> None:
        for outlet in list(self.outlets.values()):
            outlet.sender.close()
        if self.multicast is not None:
            self.multicast.close()

    def group(self, channel: str) -> Group | None:
        """Where a channel goes, if by multicast at all."""
        return self.address_map.group(channel)  # type: ignore[union-attr]

    # ── who shares what: under the wiring's lock ──

    def granted(self, crossing: Crossing, request: Install) -> GroupCrossing | None:
        """The crossing of the channel's group, if what a peer wants may go there."""
        channel, multicast = crossing.channel, self.multicast
        plain = not any(wish.tagged or wish.zones or wish.history or wish.sinks for wish in request.wishes)
        if not request.multicast or not request.wishes or not plain or request.promises or request.routes:
            return None
        group = self.group(channel.name)
        if multicast is None or group is None or crossing.parked or not self._for_all(channel.name):
            return None
        found = self.crossings.get(channel)
        if found is None:
            outlet = self.outlets.get(group)
            if outlet is None:
                outlet = self.outlets[group] = Outlet(self, multicast, group)
            found = self.crossings[channel] = GroupCrossing(outlet, channel)
        return found

    def _for_all(self, channel: str) -> bool:
        """Whether every node of the federation may subscribe: what is in a datagram is not hidden from any."""
        security = self.engine.security
        if security.rules is None:
            return not security.proves
        for rule in security.rules:
            if Pattern(rule.channel).matches(channel):
                if "subscribe" not in rule.may:
                    return False
                if "*" in rule.who:
                    return True
        return False

    def change(self, crossing: Crossing, group: GroupCrossing | None, moves: list[Move], todo: Callable[[], None]) -> None:
        """Put changed wishes of a peer in force, whose events come by a group from then on, or did so before."""
        share = crossing.share
        shared = group if group is not None else None if share is None else share.group
        assert shared is not None
        wiring, outlet = self.engine.node.wiring, shared.peer

        def point() -> None:
            self._at_point(crossing, shared, group is not None)
            todo()

        crossing.to_start = point
        with outlet.building:
            shared.starting = crossing
            try:
                if moves:
                    wiring.move(moves)
                if crossing.to_start is not None:
                    with wiring.still([crossing.channel]):
                        crossing.started()
            finally:
                shared.starting = None
        self._interest(outlet, crossing.peer)
        outlet.stir()
        crossing.peer.stir()

    def _at_point(self, crossing: Crossing, shared: GroupCrossing, stays: bool) -> None:
        """All sources stand still, and nobody builds: what was published so far is put into frames, for those who
        shared the group up to here."""
        share, peer = crossing.share, crossing.peer
        lanes = shared.active()
        for lane in lanes:
            lane.still = True
            try:
                lane.build([])
            finally:
                lane.still = False
        if stays:
            if share is None:
                share = crossing.share = shared.shares[peer.id] = Share(crossing, shared)
            share.begin(lanes, reliable=crossing.reliable)
        elif share is not None:
            crossing.share = None
            del shared.shares[peer.id]
            self._part(share, crossing)
        shared.reliable = any(each.reliable for each in shared.shares.values())
        for lane in lanes:
            shared.settle(lane)

    def _part(self, share: Share, crossing: Crossing) -> None:
        """A peer leaves: what it has not got goes over its link, before anything else of these sources."""
        peer = crossing.peer
        frames: list[bytes] = []
        for lane in share.announced:
            kept = [each for each in lane.kept if each.number > share.acked.get(lane, 0)] if share.reliable else []
            if crossing.wishes and kept:
                self.rests[peer.id, lane.sid] = deque((each.number, each.frame) for each in kept)
            frames += [each.frame for each in kept]
            frames.append(share.progress([lane]))
        if crossing.wishes:
            for source in list(crossing.channel.sources.values()):
                if source.local and (own := crossing.lane(source)) is not None and not own.announced:
                    frames.append(peer._announce(own, own.number + 1))
        frames += [wire.encode_control(Ends(lane.sid)) for lane in share.announced]
        if peer.link is not None:
            peer.control.extend(frames)

    def _interest(self, outlet: Outlet, peer: Peer) -> None:
        """Datagrams are sent only while there is somebody who wants them."""
        if self.multicast is not None:
            wants = peer.gone is None and any(peer.id in each.shares for each in outlet.crossings)
            with suppress(ClosedError):
                (self.multicast.interested if wants else self.multicast.uninterested)(outlet.group, peer.id)

    # ── peers ──

    def away(self, peer: Peer) -> None:
        """A peer is not there; what it wants reliably is kept for it."""
        for outlet in list(self.outlets.values()):
            self._interest(outlet, peer)
            with outlet.building:
                for lane in outlet.lanes():
                    outlet.weigh(lane)
            outlet.stir()

    def forget(self, peer: Peer) -> None:
        """A peer will not come back, or was started again."""
        for key in [key for key in self.rests if key[0] == peer.id]:
            self.rests.pop(key, None)
        if self.multicast is not None:
            self.multicast.forget(peer.id)

    def acknowledged(self, peer: Peer, sid: int, number: int) -> None:
        """A peer has done with all frames of a source up to this one."""
        rest = self.rests.get((peer.id, sid))
        if rest is not None:
            while rest and rest[0][0] <= number:
                rest.popleft()
            if not rest:
                self.rests.pop((peer.id, sid), None)
        lane = self.lanes.get(sid)
        share = None if lane is None else lane.crossing.shares.get(peer.id)
        if lane is not None and share is not None:
            with lane.crossing.peer.building:
                share.acknowledged(lane, number)
            lane.crossing.peer.stir()

    def repair(self, peer: Peer, sid: int, after: int, upto: int) -> None:
        """A peer misses frames."""
        lane = self.lanes.get(sid)
        share = None if lane is None else lane.crossing.shares.get(peer.id)
        if lane is None or share is None or not share.reliable:
            return
        with lane.crossing.peer.building:
            frames = lane.after(after, min(upto, lane.launched))
            if after < lane.launched and (first := lane.first_after(after)) > after + 1:
                frames.insert(0, share.introduction(lane, first))  # what was before that is lost
        if peer.link is not None and frames:
            peer.control.extend(frames)
            peer.stir()

    def resumed(self, peer: Peer, positions: dict[int, int]) -> tuple[list[bytes], list[bytes]]:
        """For a new link: what a peer is sent again of groups that it has left, before all else; and, after what else
        goes again, what it must be told of those that it shares."""
        rests, frames = list[bytes](), list[bytes]()
        known: set[int] = set()
        for crossing in list(peer.crossings.values()):
            share = crossing.share
            if share is not None:
                with share.group.peer.building:
                    frames += share.resume(positions)
                known.update(lane.sid for lane in share.announced)
                self._interest(share.group.peer, peer)
        for (node, sid), rest in list(self.rests.items()):
            if node == peer.id:
                if sid in positions:
                    rests += [frame for number, frame in rest if number > positions[sid]]
                else:
                    self.rests.pop((node, sid), None)  # it has got all of it, and the end
        frames += [wire.encode_control(Ends(sid)) for sid in positions if sid & GROUP and sid not in known]
        return rests, frames

    # ── sources ──

    def sources_gone(self, sources: Iterable[Source]) -> None:
        """Sources of this node are no more: what they have sent is still delivered."""
        for source in sources:
            lane = self.lanes.get(source.number | GROUP)
            if lane is not None and not lane.ended:
                lane.ended = True
                outlet = lane.crossing.peer
                with outlet.building:
                    outlet.introduce(lane)
                    lane.build([])
                    self._say(lane)
                    for share in list(lane.crossing.shares.values()):
                        if lane in share.announced:
                            share.tell(wire.encode_control(Ends(lane.sid)))
                outlet.stir()
                self.soon()
        for shared in list(self.crossings.values()):
            for source in [source for source, lane in list(shared.lanes.items()) if lane is None and source.withdrawn]:
                del shared.lanes[source]
            if shared.channel.closed and not shared.shares:
                del self.crossings[shared.channel]
                shared.peer.crossings.discard(shared)

    def moved(self, source: Source) -> None:
        """A source has gone to other zones; its lock is held."""
        lane = self.lanes.get(source.number | GROUP)
        for share in [] if lane is None else list(lane.crossing.shares.values()):
            if lane in share.announced:
                share.tell(share.introduction(lane, 0), stir=False)
                self.engine.later(0.0, share.peer.stir)

    # ── time ──

    def soon(self) -> None:
        """There is something to tell peers when sources pause."""
        if not self._beating:
            self._beating = True
            self.engine.later(PAUSE, self._beat)

    def _beat(self) -> None:
        self._beating = False
        now, more = monotonic(), False
        for lane in list(self.lanes.values()):
            outlet = lane.crossing.peer
            if lane.said < lane.number:
                if lane.launched < lane.number or now - lane.when < 0.8 * PAUSE:
                    more = True
                else:
                    with outlet.building:
                        self._say(lane)
            if lane.ended:
                if lane.kept or lane.launched < lane.number:
                    more = True
                else:
                    self._end(lane)
        if more and not self.engine.closed:
            self.soon()

    def _say(self, lane: GroupLane) -> None:
        """Tell peers how far a source has come, so that they notice what they miss."""
        lane.said = lane.number
        for share in list(lane.crossing.shares.values()):
            if lane in share.announced and not (share.reliable and share.acked.get(lane, 0) >= lane.number):
                share.tell(share.progress([lane]))

    def _end(self, lane: GroupLane) -> None:
        with lane.crossing.peer.building:
            self.lanes.pop(lane.sid, None)
            lane.crossing.lanes.pop(lane.source, None)
            for share in lane.crossing.shares.values():
                share.forget(lane)

    def flush(self, end: float) -> bool:
        """Until everything reliable is acknowledged by those who are there, or time is up; whether it is by all."""
        for lane in list(self.lanes.values()):
            while lane.crossing.waits(lane) and monotonic() < end:
                lane.wait(partial(_settled, lane), min(0.2, end - monotonic()))
        self.engine.until(lambda: not self.rests, max(0.0, end - monotonic()))
        return not self.rests and not any(lane.waiting for lane in self.lanes.values() if lane.crossing.reliable)

    def summary(self) -> dict[str, Any]:
        """For reports: datagrams and bytes, and by group the channels, and nodes that share them."""
        counters = None if self.multicast is None else self.multicast.counters
        names = ("sent", "bytes_out", "received", "bytes_in", "missed", "malformed", "forged", "strangers", "unsent")
        groups = {
            str(outlet.group): {
                "channels": sorted(each.channel.name for each in outlet.crossings if each.shares),
                "nodes": sorted({share.peer.name for each in outlet.crossings for share in each.shares.values()}),
                "sources": len(outlet.lanes()),
                "events": sum(lane.passed for lane in outlet.lanes()),
                "waiting": sum(lane.waiting for lane in outlet.lanes()),
                "dropped": sum(lane.dropped for lane in outlet.lanes()),
            }
            for outlet in list(self.outlets.values())
        }
        counts = {} if counters is None else {name: getattr(counters, name) for name in names}
        joined = [] if self.multicast is None else sorted(map(str, self.multicast.joined))
        return {"datagrams": counts, "sending": groups, "joined": joined}


class Outlet:
    """A group as lanes see it: in the place of a peer."""

    incarnation = 0

    def __init__(self, groups: Groups, multicast: Multicast, group: Group) -> None:
        self.groups, self.engine, self.network, self.group = groups, groups.engine, groups.engine.network, group
        self.name, self.budget = f"multicast group {group}", multicast.budget
        self.full: set[Any] = self.engine.node.full
        self.crossings: set[GroupCrossing] = set()
        self.building = threading.Lock()
        self.dirty: deque[GroupLane] = deque()
        self.ready: deque[tuple[GroupLane, int, bytes]] = deque()  # frames that have not gone out
        self.flight = 0  # bytes that went out and are not acknowledged
        self.link = PacketLink(multicast, group)
        self.sender = Sender(self._collect, f"{self.engine.node.name}-{group}")
        self.stir: Callable[..., None] = self.sender.stir
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
        stirred: set[Peer] = set()
        number = 0
        with self.building:
            while self.dirty:
                lane = self.dirty.popleft()
                if not lane.told:
                    self.introduce(lane)
                    stirred.update(share.peer for share in lane.crossing.shares.values())
                lane.build([])
            size = 0
            while self.ready and size < budget and self.flight < WINDOW:
                lane, number, frame = self.ready.popleft()
                lane.launch(number)
                self.weigh(lane)
                if len(frame) <= self.budget:
                    frames.append(frame)
                    size += len(frame)
                    continue
                for share in list(lane.crossing.shares.values()):
                    share.tell(frame, stir=False)
                    stirred.add(share.peer)
        for peer in stirred:
            peer.stir()
        if number:
            self.groups.soon()
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
        here = [share for share in self.present() if share.peer.link is not None]
        return bool(here) and (bool(lane.pending) or any(share.acked.get(lane, 0) < lane.number for share in here))

    def settle(self, lane: GroupLane) -> None:
        """What all have acknowledged is not kept."""
        shares = [share for share in self.shares.values() if share.reliable]
        lane.acknowledged(min((share.acked.get(lane, 0) for share in shares), default=lane.number))
        self.peer.weigh(lane)


class Share:
    """A peer's part in a channel's group. Used under the outlet's lock, but for what says otherwise."""

    def __init__(self, crossing: Crossing, group: GroupCrossing) -> None:
        self.crossing, self.peer, self.group = crossing, crossing.peer, group
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

    def acknowledged(self, lane: GroupLane, number: int) -> None:
        if self.reliable and self.acked.get(lane, 0) < number <= lane.launched:
            self.acked[lane] = number
            self.group.settle(lane)

    def introduction(self, lane: GroupLane, first: int) -> bytes:
        source = lane.source
        ad = self.peer.engine.describe(source)
        return wire.encode_control(Announce(ad=ad, type=pack_type(source.channel.type), next=first, group=True))

    def progress(self, lanes: Iterable[GroupLane]) -> bytes:
        """How far these sources have come."""
        numbers = {lane.sid: lane.number for lane in lanes}
        totals = {lane.sid: max(0, lane.entire - self.base.get(lane, 0)) for lane in lanes}
        return wire.encode_control(Sent(numbers, totals))

    def announce(self, lane: GroupLane) -> None:
        if self.open and self.peer.link is not None:
            self.announced[lane] = None
            self.peer.control.append(self.introduction(lane, self.start.get(lane, 0) + 1))

    def before_mark(self, frames: list[bytes]) -> None:
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
            return frames  # it is told with the mark
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

    def tell(self, frame: bytes, *, stir: bool = True) -> None:
        """Something over its peer's link; who stirs it without holding the outlet's lock does so later."""
        if self.peer.link is not None:
            self.peer.control.append(frame)
            if stir:
                self.peer.engine.later(0.0, self.peer.stir)

    def forget(self, lane: GroupLane) -> None:
        for known in (self.acked, self.start, self.base, self.announced):
            known.pop(lane, None)  # type: ignore[attr-defined]


def check(network: Network) -> None:
    """Datagrams prove, with a key, that a member of the federation sent them; they hide nothing from anybody."""
    from ipaddress import AddressValueError, IPv4Address

    security, problems = network.security, []
    try:
        beyond = not IPv4Address(network.multicast_interface).is_loopback
    except AddressValueError:
        beyond = False  # the sockets say what is wrong with it
    if beyond and security.authority is not None:
        problems.append(
            ConfigProblem(
                "Network: multicast",
                "loopback only, for there are certificates, and what they protect is not encrypted in datagrams",
                f"interface {network.multicast_interface}",
                "leave out multicast: events go over the direct streams",
            )
        )
    elif network.multicast_key is None and (beyond or security.proves):
        why = f"{network.multicast_interface} is not loopback" if beyond else "nodes must prove who they are here"
        problems.append(
            ConfigProblem(
                "Network: multicast_key",
                f"16 to 64 bytes that all nodes share, for {why}",
                "none",
                "make one with secrets.token_hex(32), give it to every node; or leave out multicast",
            )
        )
    if problems:
        raise ConfigError(problems)


def _settled(lane: GroupLane) -> bool:
    return not lane.crossing.waits(lane)


__all__ = ["GroupCrossing", "Groups", "Outlet", "Share", "check"]
