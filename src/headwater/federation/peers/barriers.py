"""Barriers: a peer is told that its wishes are in force once gateways here have what they need for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.routing.hearing import NEVER, Hearing
from headwater.federation.scheduler import TICK_SECONDS

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.outgoing import Outgoing
    from headwater.federation.send.crossing import Crossing

GATEWAY_SECONDS = 2.0  # for which a node is kept waiting for what lies behind gateways
HERE = ""  # in the place of another node
Gate = Callable[[str, tuple[tuple[str, ...], ...]], bool]


class Behind(NamedTuple):
    """What gateways at a node know of the sources of a channel that they pass on."""

    since: int = 0  # nanoseconds: since then all that is wanted comes; NEVER if that is not known
    gap: int = 0  # when something did not, the last time
    refused: bool = False  # nothing of some of it will


def _all(known: Sequence[Behind]) -> Behind:
    return Behind(
        max(each.since for each in known), max(each.gap for each in known), any(each.refused for each in known)
    )


class _Gateways:
    """Those of this node, in the place of another node."""

    id = name = "gateways"
    incarnation = 0
    gone = None
    parted = described = True
    sources: tuple[Any, ...] = ()

    def log(self, channel: str) -> str:
        return ""

    def gap(self, channel: str) -> tuple[int, int]:
        return 0, 0  # they stay, whatever becomes of them


class Barriers:
    """Of one node. `gates`: whether all that lies behind a channel's sources here is ready, for what goes on to these
    federations. `passages`: what is known of that."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.gates: list[Gate] = []
        self.passages: list[Callable[[str], Behind]] = []
        self._past: dict[str, Behind] = {}  # by channel: the same, of gateways that are no more

    def behind(self, channel: str) -> Behind:
        """What all gateways here know of a channel."""
        return _all([self._past.get(channel, Behind()), *(passage(channel) for passage in list(self.passages))])

    def hearings(self, channel: Any) -> list[Hearing]:
        """The same for sinks of this node, beside what is heard of others."""
        since, gap, refused = self.behind(channel.name)
        if not since and not gap:  # nothing was ever passed on
            return []
        life, name = (0, 0, 0, gap), f"{channel.name}@gateways"
        return [
            Hearing(HERE, name, _Gateways(), life, since if since < NEVER else 0, False, refused, lambda: since < NEVER)
        ]

    def leave(self, passage: Callable[[str], Behind], channels: Iterable[str]) -> None:
        """A gateway is no more."""
        for name in channels:
            self._past[name] = _all([self._past.get(name, Behind()), passage(name)])
        with suppress(ValueError):
            self.passages.remove(passage)

    def renew(self, peers: Iterable[Outgoing], channel: str, *, settled: bool) -> None:
        """Tell who was told since when all is heard, that it was not meanwhile; or, once gateways have `settled`, since
        when it is, if that was not known."""
        now = self.behind(channel)
        for peer in peers:
            crossing = peer.crossings.get(channel)
            if crossing is None:
                continue
            since, gap = crossing.behind
            if now.gap > gap or (settled and since >= NEVER > now.since):
                peer.tell_gap(crossing, now.since if settled or since < NEVER else NEVER, now.gap)

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


__all__ = ["Barriers", "Behind"]
