"""Gateways: two federations joined for some of their channels.

    with Node("a", listen=..., federation="dublin") as a, Node("b", connect=..., federation="cork") as b:
        gateway = Gateway(a, b, "ie.**", "level > 3")

Sinks of one side then get the events of sources of the other, as if those were at the gateway's node: there is a source
for each that is passed on, with the name, zones, numbers and times of the original. Federations may be joined in any
way: as a tree, a chain, a ring, with several gateways between the same two. Every event reaches every sink once: a
source is known by its origin wherever its events go, a node shows its sinks each event of an origin once, and no
gateway passes on what has come through the federation on its other side, or through `ttl` gateways already.

A gateway asks for events only while someone behind it wants them, and only for what is wanted, as far as filters say
so. A node that asks for events is told that they will come (`Node.ready`) once all gateways behind the source's node
are ready too, or after a few seconds.

Events of one origin come in the order of their source: where several gateways bring them, a node takes them by one way
at a time (`paths.py`), and goes on by another one, from after the last event that it has taken, when that is gone or
has fallen silent. Of two gateways with different filters, each brings its own in order. What a gateway has taken over
and not passed on is lost if it is killed; with a second one beside it, which passes on the same, it is not. A durable
sink behind two gateways that was killed may get events again of which it had one by the other gateway. Sinks and
patterns that go by time wait for what is on its way: a gateway promises what its origins have, once that is passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from time import monotonic
from typing import Any

from headwater.channel.names import Pattern
from headwater.errors import FederationError
from headwater.federation.arrive.relay import Relay
from headwater.federation.gateway.passage import Passage, federation_name
from headwater.federation.node import READY_SECONDS, Node

TTL = 8
_NUMBERS = count(1)


class Gateway:
    """Joins the federations of two nodes of this process for the channels that fit a pattern, or one of several.

    where, params   only events that pass this interest; it is checked against each channel's type
    ttl             how many gateways an event may pass on its way, this one included
    both            in both directions; else only from the federation of `a` to that of `b`

    It works until it, or one of the nodes, is closed. `refused` says which channels cannot be passed on, and why."""

    def __init__(
        self,
        a: Node,
        b: Node,
        channels: str | Iterable[str] = "**",
        where: Any = None,
        *,
        params: Mapping[str, object] | None = None,
        ttl: int = TTL,
        both: bool = True,
    ) -> None:
        names = [federation_name(node) for node in (a, b)]
        if names[0] == names[1]:
            raise FederationError(
                f"gateway: expected nodes of two federations, found both in {names[0]!r}; nodes of one federation "
                "reach each other without a gateway"
            )
        if isinstance(ttl, bool) or not isinstance(ttl, int) or not 1 <= ttl <= 255:
            raise FederationError(f"gateway: ttl: expected a number of gateways from 1 to 255, found {ttl!r}")
        patterns = [Pattern(text) for text in ([channels] if isinstance(channels, str) else channels)]
        if not patterns:
            raise FederationError("gateway: channels: expected a pattern of names, or several, found none")
        self.a, self.b, self.ttl = a, b, ttl
        number = next(_NUMBERS)
        self._ways = [
            Passage(f"gateway-{number}", first, second, patterns, where, params, ttl)
            for first, second in ([(a, b), (b, a)] if both else [(a, b)])
        ]
        for way in self._ways:
            way.start()

    @property
    def refused(self) -> dict[str, str]:
        """Channels that cannot be passed on, by name, and why."""
        return {name: why for way in self._ways for name, why in way.refused.items()}

    @property
    def passed(self) -> dict[str, int]:
        """By channel, how many events were passed on, in both directions."""
        found: dict[str, int] = {}
        for way in self._ways:
            for name, events in way.passed().items():
                found[name] = found.get(name, 0) + events
        return found

    def sources(self, node: Node) -> list[str]:
        """The sources that are passed on into the federation of a node, each as channel, name and origin."""
        return sorted(
            f"{relay.channel.name}/{relay.name} of {relay.origin}"
            for way in self._ways
            if way.there is node
            for relay in way.relays.values()
        )

    @property
    def taking(self) -> list[Relay]:
        """What it asks for: a subscription for each channel of which someone behind it wants something."""
        return [relay for way in self._ways for relay in list(way.taking.values())]

    def ready(self, timeout: float = READY_SECONDS) -> bool:
        """Wait until it has asked for everything that is wanted behind it, and that is in force; False if too late."""
        end = monotonic() + timeout
        return all(way.here.until(way.settled, max(0.0, end - monotonic())) for way in self._ways)

    @property
    def closed(self) -> bool:
        """Whether nothing is passed on any more, in either direction."""
        return all(way.over for way in self._ways)

    def close(self, *, timeout: float = 5.0) -> None:
        """End it: what it has taken over is passed on first, within so many seconds."""
        for way in self._ways:
            way.stop()
        for way in self._ways:
            way.join(timeout)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        arrow = "<->" if len(self._ways) == 2 else "->"
        return (
            f"<{'closed ' if self.closed else ''}Gateway {federation_name(self.a)} {arrow} {federation_name(self.b)}>"
        )


__all__ = ["Gateway"]
