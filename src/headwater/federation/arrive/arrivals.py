"""Sources of other nodes as they are announced here: checked, and entered in their channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import FederationError, SecurityError
from headwater.federation.arrive.deeds import Deeds
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.control_events import owns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.federation.arrive.log_positions import LogPositions
    from headwater.federation.arrive.paths import Origins
    from headwater.federation.arrive.upstream import Upstream
    from headwater.federation.context import Context
    from headwater.federation.demand.demand import Demands
    from headwater.federation.wire.control import SourceAd
    from headwater.types import EventType


class Arrivals:
    """Of one node: makes the remote sources of all peers."""

    def __init__(self, context: Context, demands: Demands, positions: LogPositions, origins: Origins) -> None:
        self._context = context
        self._demands, self._positions, self._origins = demands, positions, origins
        self._deeds = Deeds(context)

    def source(
        self, peer: Upstream, ad: SourceAd, type: EventType | None, deeds: Sequence[bytes] = ()
    ) -> RemoteSource | None:
        """A source of a peer, as it is announced on the link; None if nobody here has its channel. One that has moved
        there proves it by `deeds`, and takes the place of itself at earlier nodes."""
        node, decisions = self._context.node, self._context.decisions
        decision = None if peer.principal is None else decisions.decide(peer.principal, "advertise", ad.channel)
        if not decision:
            why = "it has not proven who it is" if decision is None else decision.why
            raise SecurityError(f"{peer.name} may not advertise {ad.channel}: {why}", "rule", peer.id)
        if owns(ad.channel):
            raise SecurityError(f"{ad.channel} is what this node says of itself: it has no others", "rule", peer.id)
        if ad.home:
            self._deeds.check(peer.name, ad, deeds)
        with self._context.wiring.lock:
            channel = next((each for each in node.channels() if each.name == ad.channel), None)
            if channel is None or node.closed:
                return None
            if (channel.type is None) != (type is None):
                raise FederationError(f"channel {ad.channel}: it has a type at one node and carries bytes at the other")
            source = RemoteSource(
                channel,
                peer,
                ad,
                type,
                demands=self._demands,
                positions=self._positions,
                origins=self._origins,
                offences=self._context.offences,
            )
            if source.key in channel.sources:  # a source of the same name that was closed, and is not gone yet
                source.key = f"{source.key}#{ad.sid}"
                source.id = f"{channel.name}/{source.key}"
            key = source.position_key or ""
            known = self._positions.of(key, channel.name).term if ad.log and not ad.origin else 0
            if ad.home and ad.term >= known:
                self._positions.supersede(channel, key, ad.term)
            self._context.wiring.advertise(source)
            if ad.term < known:  # it has moved since, and that is known here
                source.supersede()
        return source


__all__ = ["Arrivals"]
