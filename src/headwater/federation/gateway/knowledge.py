"""Since when a gateway hears all that is wanted behind it, and when it has not: what sources that it passes on have
published meanwhile, nobody behind it can know of.

There is a gap when a node comes that has published something before it was asked, when one is started again, or has
forgotten what it was asked for, or is taken for gone for good, and when events were lost on the way. Who asks the
gateway's node for events is told with its barrier, and again with every gap, before the sources behind that are
withdrawn; what a source has promised is told on only once it is known since when its node is heard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.hearing import NEVER, Hearing
from headwater.federation.peers.barriers import Behind

if TYPE_CHECKING:
    from headwater.federation.arrive.relay import Relay
    from headwater.federation.node import Node


class Knowledge:
    """Of one direction of a gateway, for each channel of which something is taken. Changed by the gateway's thread."""

    def __init__(self, here: Node) -> None:
        self._here = here
        self._heard: dict[str, dict[str, Hearing]] = {}  # by channel and node
        self._lost: dict[str, int] = {}  # by channel
        self._since: dict[str, int] = {}  # by channel: before that not all is known, whoever is heard
        self._gap: dict[str, int] = {}  # by channel: when something was not heard, the last time

    def begin(self, name: str) -> None:
        """Something else is taken of a channel from now on; of this node's own sources, all that comes."""
        self._since[name] = max(self._since.get(name, 0), self._here._stamp())

    def leave(self, name: str) -> None:
        """Nothing of it is taken any more."""
        self._heard.pop(name, None)

    def is_heard(self, name: str, node: str, incarnation: int) -> bool:
        """Whether it is known since when what is wanted of a node's sources comes."""
        found = self._heard.get(name, {}).get(node)
        return found is not None and found.life[0] == incarnation

    def look(self, taking: dict[str, Relay]) -> None:
        """See who is heard by now, and who is not any more, and whether events were lost on the way."""
        for name, relay in taking.items():
            known = self._heard.setdefault(name, {})
            now = {each.node.id: each for each in self._hearings(relay)}
            for node, hearing in now.items():
                before = known.get(node)
                if before is not None and before.life == hearing.life and before.refused == hearing.refused:
                    continue
                if before is not None and before.life[:3] == hearing.life[:3]:  # of a gateway before this one
                    self._gap[name] = max(self._gap.get(name, 0), hearing.life[3])
                    known[node] = hearing
                    continue
                if before is not None or hearing.refused:
                    self._miss(name)
                if hearing.refused or hearing.in_force():
                    known[node] = hearing
                    if before is None and not hearing.first:
                        self._miss(name)
                else:
                    known.pop(node, None)
            for node in [each for each in known if each not in now]:
                gone: Any = known.pop(node)
                if gone.node.incarnation != gone.life[0] or not gone.node.parted:
                    self._miss(name, upto_now=True)
            lost = relay._failed + sum(getattr(each, "lost", 0) for each in self._sources(relay))
            if lost > self._lost.get(name, 0):
                self._miss(name, upto_now=True)
            self._lost[name] = lost

    def ends(self, names: Iterable[str]) -> None:
        """Nothing is passed on any more."""
        for name in names:
            self._miss(name, upto_now=True)

    def of(self, name: str, relay: Relay | None) -> Behind:
        """What is known of a channel."""
        gap, since = self._gap.get(name, 0), self._since.get(name, 0)
        hearings = [] if relay is None else self._hearings(relay)
        if any(each.refused for each in hearings):
            return Behind(NEVER, gap, refused=True)
        if any(not each.in_force() for each in hearings):
            return Behind(NEVER, gap)
        return Behind(max([since, *(each.since for each in hearings)]), gap)

    def _miss(self, name: str, *, upto_now: bool = False) -> None:
        self._gap[name] = max(self._gap.get(name, 0) + 1, self._here._stamp())
        if upto_now:
            self.begin(name)

    def _sources(self, relay: Relay) -> list[Any]:
        channels: list[Any] = [attachment.channel for attachment in list(relay._attachments.values())]
        return [source for channel in channels for source in list(channel.sources.values())]

    def _hearings(self, relay: Relay) -> list[Hearing]:
        return [
            hearing
            for attachment in list(relay._attachments.values())
            for hearing in self._here._hearings(attachment.channel, attachment.entry)
        ]


__all__ = ["Knowledge"]
