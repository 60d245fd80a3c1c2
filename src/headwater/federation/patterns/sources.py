"""Sources of other nodes, by the keys under which a pattern keeps how far it is with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.channel.queues.position_keys import key_of, logs_of

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.control import SourceAd

Points = dict[tuple[str, str, int], int]  # by node, channel and number of a source: the last event before a change


def position_key(peer: Peer, ad: SourceAd) -> str:
    """Under which a position in a source is kept: of one that is logged for good, else for this run of its node."""
    return (ad.home or key_of(peer.name, ad.log, ad.name)) if ad.log else f"{peer.id}/{peer.incarnation}/{ad.sid}"


def is_gone(position_key: str, peers: Iterable[Peer]) -> bool:
    """Whether the node that had a source is there, and says that it has it no more. Of a node that is not there nothing
    is known: it may have been killed, and come back with it."""
    known = [peer for peer in peers if peer.gone is None and peer.state is not None and peer.described]
    for peer in known:  # it may have moved: all of them are looked at first
        there = {f"{peer.id}/{peer.incarnation}/{ad.sid}" for ad in peer.sources}
        there |= {ad.home or key_of(peer.name, ad.log, ad.name) for ad in peer.sources if ad.log}
        if position_key in there:
            return False
    return any(position_key.startswith((f"{peer.id}/", logs_of(peer.name))) for peer in known)


class SourcePoints:
    """Up to which events the sources of other nodes were judged by what was asked of them before."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._in_force: Points = {}

    def began(self, channel: str) -> None:
        """What is asked of a channel is another from here on, and all nodes have taken that up: what they have said is
        noted before they are asked for anything else."""
        self._in_force = {at: seq for at, seq in self._in_force.items() if at[1] != channel}
        for peer in self._peers.everyone():
            asked = peer.asked.get(channel)
            if asked is not None:
                self._in_force.update({(peer.id, channel, sid): seq for sid, seq in asked.points.items()})

    def at_change(self, channel: str, ids: Mapping[str, int]) -> Points:
        """Of a channel's sources, the last event before a change took effect. `ids` has it by id, for those that were
        heard."""
        points: Points = {}
        for peer, ad in self._of(channel):
            source = peer.remote_sources.get(ad.sid)
            at = peer.id, channel, ad.sid
            here = None if source is None else ids.get(source.id)
            points[at] = self._in_force.get(at, 0) if here is None else here
        return points

    def by_now(self, channel: str) -> Points:
        """As far as a channel's sources have come; what comes later has a higher number."""
        points: Points = {}
        for peer, ad in self._of(channel):
            source, asked = peer.remote_sources.get(ad.sid), peer.asked.get(channel)
            here = 0
            if source is not None:
                with source.lock:  # what has come is in the mailboxes
                    here = source.seq
            points[peer.id, channel, ad.sid] = max(here, 0 if asked is None else asked.points.get(ad.sid, 0))
        return points

    def _of(self, channel: str) -> list[tuple[Peer, SourceAd]]:
        return [
            (peer, ad)
            for peer in self._peers.everyone()
            for ad in peer.sources
            if ad.channel == channel and not ad.origin
        ]

    def positions(self, points: Points) -> dict[str, int]:
        """By position key, for sources of which it is known from where on they are heard: a node that has refused what
        was asked of it, or a source that came since, says nothing of that."""
        found: dict[str, int] = {}
        for peer in self._peers.everyone():
            if peer.gone is not None:
                continue
            for ad in peer.sources:
                asked = peer.asked.get(ad.channel)
                seq = points.get((peer.id, ad.channel, ad.sid))
                if asked is None or asked.refused or seq is None or not (seq or ad.sid in asked.points):
                    continue
                found[position_key(peer, ad)] = seq
        return found


__all__ = ["Points", "SourcePoints", "is_gone", "position_key"]
