"""Patterns of a node that are about each other's matches: each waits for how far another has come, none goes on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headwater.channel.patterns.subscription import NamedPattern

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract


def remarks_on_cycle(node: NodeContract, made: NamedPattern) -> list[str]:
    """That a pattern waits for itself, by way of others or not. Those that have a patience go on after that."""
    found = _cycle(node, made)
    waiting = [each.name for each in found if each.pattern.model.patience is None]
    if not waiting:
        return []
    way = " waits for ".join(repr(each.name) for each in (*found, made))
    return [
        f"cycle: expected patterns that do not wait for their own matches, found that {way}: "
        f"{', '.join(waiting)} will never say anything; give each of them a patience, order them by arrival "
        "(order='arrival'), or have one of them be about the events that another is about"
    ]


def _cycle(node: NodeContract, made: NamedPattern) -> list[NamedPattern]:
    """The shortest way from a pattern back to it, each before what it waits for; nothing if there is none."""
    by_source = {
        each.source.number: each for each in list(node.subscriptions.values()) if isinstance(each, NamedPattern)
    }
    before: dict[NamedPattern, NamedPattern] = {}
    queue = deque([made])
    while queue:
        one = queue.popleft()
        for number in _matches_of(node, one):
            other = by_source.get(number)
            if other is made:
                way = [one]
                while way[-1] is not made:
                    way.append(before[way[-1]])
                return way[::-1]
            if other is not None and other not in before:
                before[other] = one
                queue.append(other)
    return []


def _matches_of(node: NodeContract, pattern: NamedPattern) -> list[int]:
    """The numbers of the sources of this node whose matches a pattern waits for: in order of arrival none is."""
    if not pattern._by_time:
        return []
    with node._wiring.lock:
        sources: list[Any] = [
            flow.source
            for attachment in pattern._inputs()
            for lineup in attachment.channel.lineups
            for flow in lineup.flows
        ]
    return [source.number for source in sources if source.local and source.come_to is not None]


__all__ = ["remarks_on_cycle"]
