"""Barriers: a peer is told that its wishes are in force once gateways here have what they need for them."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from headwater.federation.scheduler import TICK_SECONDS

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.outgoing import Outgoing
    from headwater.federation.send.crossing import Crossing

GATEWAY_SECONDS = 2.0  # for which a node is kept waiting for what lies behind gateways
Gate = Callable[[str, tuple[tuple[str, ...], ...]], bool]


class Barriers:
    """Of one node. `gates`: whether all that lies behind a channel's sources here is ready, for what goes on to these
    federations."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.gates: list[Gate] = []

    def send_barrier(self, peer: Outgoing, crossing: Crossing) -> None:
        """Tell a peer that its wishes are in force: as soon as gateways here have what they need for them, but not
        later than a few seconds from now."""
        if not self.gates:
            peer.send_barrier(crossing)
            return
        version, end, name = crossing.version, monotonic() + GATEWAY_SECONDS, crossing.channel.name

        def look() -> None:
            if crossing.version != version or peer.crossings.get(name) is not crossing:
                return  # it wants something else by now
            late = self._context.closing or monotonic() > end
            if late or all(gate(name, crossing.routes) for gate in list(self.gates)):
                peer.send_barrier(crossing)
            else:
                self._context.scheduler.later(TICK_SECONDS / 4, look)

        self._context.scheduler.later(0.0, look)


__all__ = ["Barriers"]
