"""Events that several nodes want, sent once: the channels of this node that go to multicast groups.

    Groups         the sockets; which peers share which channel's group; repairs              (this file)
    Share          what a peer has of a channel's group, which it shares with others          (share.py)
    GroupLane      one source's events, in frames that fit a datagram                         (lane.py)
    Hearing        what comes from groups                                                     (receiver.py)
    Track          one source's frames, put in order, and what is missing asked for again     (track.py)

For each channel there is one crossing, whose member stands in the entries of all wishes of all peers that share it.
Its lanes number their frames once for all of them. Everything else goes over each peer's own link: the announcement of
a source, before its first frame; how far it has come, when it pauses; frames that are asked for again; those that no
datagram can take; acknowledgements.

The outlet's lock `building` is taken after the wiring's and before those of sources; links are told to send without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.backlog.ring import Ring
from headwater.channel.routing.wiring import Move
from headwater.errors import ClosedError, ConfigError, ConfigProblem
from headwater.federation.multicast.receiver import Hearing
from headwater.federation.multicast.share import GroupCrossing, Outlet, Share
from headwater.federation.multicast.sockets import Multicast
from headwater.federation.send.pending import ControlFrame
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Ends
from headwater.federation.wire.kinds import GROUP
from headwater.federation.wire.requests import Install

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.address_map import Group
    from headwater.federation.context import Context
    from headwater.federation.multicast.lane import GroupLane
    from headwater.federation.network import Network
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.send.crossing import Crossing
    from headwater.federation.send.lane import Kept

MOST_UNREAD = 65_536  # frames that may wait for a peer's link
PROGRESS_SECONDS = 0.05  # after which peers are told how far a source that pauses has come


class Groups:
    """Of one node. `lose`, for tests: whether to drop a datagram that has come, told its counter."""

    def __init__(self, context: Context, peers: Peers) -> None:
        network = context.network
        assert network.multicast is not None
        check(network)
        self.context, self.peers, self.address_map = context, peers, network.multicast
        self.lose: Callable[[int], bool] | None = None
        self.multicast: Multicast | None = None
        self.hearing = Hearing(self)
        self.outlets: dict[Group, Outlet] = {}
        self.crossings: dict[Channel, GroupCrossing] = {}
        self.lanes: dict[int, GroupLane] = {}  # by sid
        # What peers have not acknowledged that left a group, and want the rest over their link: by peer and sid.
        self.rests: dict[tuple[str, int], Ring[Kept]] = {}
        self.unsaid: set[GroupLane] = set()  # of which peers are to be told how far they have come
        self._beating = self._withholds = False

    def open(self) -> None:
        network = self.context.network
        self.multicast = Multicast(
            self.address_map,  # type: ignore[arg-type]
            self.hearing.on_datagram,
            federation=network.federation,
            node=self.context.id,
            incarnation=self.context.incarnation,
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

    def granted(self, crossing: Crossing, request: Install, *, plain: bool) -> GroupCrossing | None:
        """The crossing of the channel's group, if what a peer wants may go there, being nothing but filters."""
        channel, multicast = crossing.channel, self.multicast
        if not request.multicast or not plain or request.promises or request.routes or not crossing.peer.columns:
            return None
        if crossing.quota is not None:
            return None  # what is in a datagram is for all of them
        group = self.group(channel.name)
        if multicast is None or group is None or crossing.parked or not self.for_all(channel.name):
            return None
        found = self.crossings.get(channel)
        if found is None:
            outlet = self.outlets.get(group)
            if outlet is None:
                outlet = self.outlets[group] = Outlet(self, multicast, group)
            found = self.crossings[channel] = GroupCrossing(outlet, channel)
        return found

    def for_all(self, channel: str) -> bool:
        """Whether every node of the federation may subscribe: what is in a datagram is not hidden from any."""
        return self.context.decisions.open_to_all("subscribe", channel)

    @contextmanager
    def withholding(self) -> Iterator[None]:
        """Who leaves a group meanwhile gets nothing more of what it has not got yet; the wiring's lock is held."""
        self._withholds = True
        try:
            yield
        finally:
            self._withholds = False

    def change(
        self,
        peer: Peer,
        crossing: Crossing,
        group: GroupCrossing | None,
        moves: list[Move],
        todo: Callable[[], None],
    ) -> None:
        """Put changed wishes of a peer in force, whose events come by a group from then on, or did so before."""
        share = _share(crossing)
        shared = group if group is not None else None if share is None else share.group
        assert shared is not None
        wiring, outlet = self.context.wiring, shared.peer

        def point() -> None:
            self._at_point(peer, crossing, shared, group is not None)
            todo()

        def started() -> None:
            """Where nobody joins, since others have what it wants already, a peer that leaves its link for the group
            begins there at the very point."""
            if crossing.to_start is not None:
                crossing.started()

        crossing.to_start = point
        with outlet.building:
            shared.starting = crossing
            try:
                if moves:
                    wiring.move(moves, at_point=started)
                if crossing.to_start is not None:
                    with wiring.still([crossing.channel]):
                        crossing.started()
            finally:
                shared.starting = None
        self._interest(outlet, peer)
        outlet.send_soon()
        peer.send_soon()

    def _at_point(self, peer: Peer, crossing: Crossing, shared: GroupCrossing, stays: bool) -> None:
        """All sources stand still, and nobody builds: what was published so far is put into frames, for those who
        shared the group up to here."""
        share = _share(crossing)
        lanes = shared.active()
        if self._withholds:
            self._discard(shared, lanes)
        for lane in lanes:
            lane.still = True
            try:
                lane.build([])
            finally:
                lane.still = False
        if stays:
            if share is None:
                share = crossing.share = shared.shares[peer.id] = Share(crossing, peer, shared)
            share.begin(lanes, reliable=crossing.reliable)
        elif share is not None:
            crossing.share = None
            del shared.shares[peer.id]
            self._part(share, peer, crossing)
        shared.reliable = any(each.reliable for each in shared.shares.values())
        for lane in lanes:
            shared.settle(lane)

    def _discard(self, shared: GroupCrossing, lanes: list[GroupLane]) -> None:
        """What waits for the group, or could be asked for again, goes to nobody."""
        outlet = shared.peer
        for lane in lanes:
            lane.pending[:] = [item for item in lane.pending if isinstance(item, ControlFrame)]
            lane._chunk_surplus, lane._gaps_taken = 0, int.from_bytes(lane.gap_count, "little")
            lane.kept.clear()
        mine, numbers = set(lanes), {lane.sid for lane in lanes}
        for key in [key for key in self.rests if key[1] in numbers]:
            self.rests.pop(key, None)
        left = [each for each in outlet.ready if each[0] not in mine]
        outlet.ready.clear()
        outlet.ready.extend(left)

    def _part(self, share: Share, peer: Peer, crossing: Crossing) -> None:
        """A peer leaves: what it has not got goes over its link, before anything else of these sources."""
        frames: list[bytes] = []
        for lane in share.announced:
            kept = lane.kept.after(share.acked.get(lane, 0)) if share.reliable and not self._withholds else []
            if crossing.wishes and kept:
                self.rests[peer.id, lane.sid] = Ring(kept)
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
            outlet.send_soon()

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
            rest.release(number)
            if not rest:
                self.rests.pop((peer.id, sid), None)
        lane = self.lanes.get(sid)
        share = None if lane is None else lane.crossing.shares.get(peer.id)
        if lane is not None and share is not None:
            with lane.crossing.peer.building:
                share.acknowledged(lane, number)
            lane.crossing.peer.link.bytes_in += 1
            lane.crossing.peer.send_soon()

    def repair(self, peer: Peer, sid: int, after: int, upto: int) -> None:
        """A peer misses frames."""
        lane = self.lanes.get(sid)
        share = None if lane is None else lane.crossing.shares.get(peer.id)
        rest = self.rests.get((peer.id, sid))
        if len(peer.control) > MOST_UNREAD // 2:
            return  # it does not take what it has asked for before
        if rest is not None and peer.link is not None:
            peer.control.extend([each.frame for each in rest.after(after) if each.number <= upto])
            peer.send_soon()
        if lane is None or share is None or not share.reliable:
            return
        with lane.crossing.peer.building:
            frames = lane.after(after, min(upto, lane.launched))
            if after < lane.launched and (first := lane.first_after(after)) > after + 1:
                frames.insert(0, share.introduction(lane, first))  # what was before that is lost
        if peer.link is not None and frames:
            peer.control.extend(frames)
            peer.send_soon()

    def resumed(self, peer: Peer, positions: dict[int, int]) -> tuple[list[bytes], list[bytes]]:
        """For a new link: what a peer is sent again of groups that it has left, before all else; and, after what else
        goes again, what it must be told of those that it shares."""
        rests, frames = list[bytes](), list[bytes]()
        known: set[int] = set()
        for crossing in list(peer.crossings.values()):
            share = _share(crossing)
            if share is not None:
                with share.group.peer.building:
                    frames += share.resume(positions)
                known.update(lane.sid for lane in share.announced)
                self._interest(share.group.peer, peer)
        for (node, sid), rest in list(self.rests.items()):
            if node == peer.id:
                if sid in positions:
                    rests += [each.frame for each in rest.after(positions[sid])]
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
                outlet.send_soon()
                self.soon(lane)
        for shared in list(self.crossings.values()):
            for source in [source for source, lane in list(shared.lanes.items()) if lane is None and source.withdrawn]:
                del shared.lanes[source]
            if shared.channel.closed and not shared.shares:
                del self.crossings[shared.channel]
                shared.peer.crossings.discard(shared)

    def sweep(self, channels: Iterable[Channel]) -> None:
        """Sources that have come and gone before anyone was told of them."""
        for channel in channels:
            shared = self.crossings.get(channel)
            if shared is not None:
                self.sources_gone([lane.source for lane in shared.active() if lane.source.withdrawn])

    def moved(self, source: Source) -> None:
        """A source has gone to other zones; its lock is held."""
        lane = self.lanes.get(source.number | GROUP)
        for share in [] if lane is None else list(lane.crossing.shares.values()):
            if lane in share.announced:
                share.tell(share.introduction(lane, 0), send_soon=False)
                self.context.scheduler.later(0.0, share.peer.send_soon)

    # ── time ──

    def soon(self, lane: GroupLane) -> None:
        """There is something to tell peers when a source pauses."""
        self.unsaid.add(lane)
        if not self._beating:
            self._beating = True
            self.context.scheduler.later(PROGRESS_SECONDS, self._beat)

    def _beat(self) -> None:
        self._beating = False
        now = monotonic()
        again: list[GroupLane] = []
        for lane in list(self.unsaid):
            self.unsaid.discard(lane)  # first: what goes out meanwhile puts it there again
            if lane.said < lane.number:
                if lane.launched < lane.number or now - lane.when < 0.8 * PROGRESS_SECONDS:
                    again.append(lane)
                    continue
                with lane.crossing.peer.building:
                    self._say(lane)
            if lane.ended and (lane.kept or lane.launched < lane.number):
                again.append(lane)
            elif lane.ended:
                self._end(lane)
        if not self.context.closed:
            for lane in again:
                self.soon(lane)

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

    def flush(self, end: float, given_up: threading.Event) -> bool:
        """Until everything reliable is acknowledged by those who are there, or time is up; whether it is by all."""
        for lane in list(self.lanes.values()):
            while lane.crossing.waits(lane) and monotonic() < end and not given_up.is_set():
                lane.wait(partial(_settled, lane), min(0.2, end - monotonic()))
        self.context.scheduler.until(lambda: not self.rests or given_up.is_set(), max(0.0, end - monotonic()))
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


def _share(crossing: Crossing) -> Share | None:
    """What a peer has of a channel's group, if its events come by that."""
    return crossing.share if isinstance(crossing.share, Share) else None


def _settled(lane: GroupLane) -> bool:
    return not lane.crossing.waits(lane)


__all__ = ["Groups", "check"]
