"""By which federations events go from a gateway to those who want them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.channel.routing.attachment import Stage
from headwater.federation.send.crossing import CrossingMember

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.channel.channel import Channel
    from headwater.channel.routing.route import Entry
    from headwater.federation.arrive.relay import Routes
    from headwater.interest import Interest


def wanted(
    channel: Channel, ahead: Iterable[Entry], source_side: str, sink_side: str
) -> tuple[list[Interest | None], set[frozenset[str]], bool]:
    """What is wanted of a channel on the side of the sinks (`ahead`: by those who are about to change that), and by
    whom: the federations on each way from here to someone who wants it; and whether someone of them goes by time."""
    wants: list[Interest | None] = []
    routes: set[frozenset[str]] = set()
    timed = False
    for entry in channel.entries.values():
        found, by_time = ways_to(entry, source_side, sink_side)
        if found:
            wants.append(entry.interest)
            routes |= found
            timed |= by_time
    if frozenset({sink_side}) in routes:
        wants += [entry.interest for entry in ahead]
    return wants, routes, timed


def ways_to(entry: Entry, source_side: str, sink_side: str) -> tuple[set[frozenset[str]], bool]:
    """The federations on each way to someone who wants what an interest passes, none of them through that of the
    sources; and whether one of those goes by time."""
    found: set[frozenset[str]] = set()
    direct, timed = frozenset({sink_side}), False
    for member in entry.members:
        onward: Routes | None = None
        by_time = False
        if isinstance(member, CrossingMember):
            onward, by_time = member.crossing.routes, member.crossing.promises
        elif member.subscription is not None:
            sink = member.subscription
            onward, by_time = sink._routes, sink._by_time or sink._promising
        elif isinstance(member, Stage):
            for each in member.channel.entries.values():
                ways, by_time = ways_to(each, source_side, sink_side)
                found |= ways
                timed |= by_time
        if onward is not None:
            behind = {direct.union(route) for route in onward if source_side not in route}
            ways = behind if onward else {direct}
            found |= ways
            timed |= by_time and bool(ways)
    return found, timed


__all__ = ["wanted", "ways_to"]
