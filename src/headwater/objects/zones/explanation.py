"""A trigger over several owners, explained: who evaluates which part, where everybody may be, what it costs."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater.objects.zones.coordinator import SECOND, Coordinator
from headwater.objects.zones.peer import Peer
from headwater.objects.zones.ranges import Bounds, Range, show_range


def explain(coordinator: Coordinator) -> str:
    """What `explain` prints, for people: a paragraph on the whole, and one for each owner."""
    counts, unknown = coordinator.counts, coordinator.unknown_since
    state = {True: "holds", False: "does not hold", None: "is not known to hold"}[coordinator.holds]
    lines = [
        f"fires when it {'becomes true' if coordinator.when == 'becomes' else 'is true at an event'}; "
        f"{'safe zones' if coordinator.gives_zones else 'the simple scheme: every change crosses'}",
        f"decided through {_time(coordinator.decided)}: it {state}"
        + (f"; declared unknown since {_time(unknown)}" if unknown is not None else ""),
        f"{counts.messages:,} messages: {counts.received:,} of owners, {counts.sent:,} to them "
        f"({counts.zones:,} zones, {counts.questions:,} questions), {counts.saved:,} saved",
        f"fired {counts.fired:,} times; {counts.unknown / SECOND:g} s were unknown",
    ]
    for peer in coordinator.peers:
        lines += _owner(peer, coordinator.condition.owners[peer.name])
    return "\n".join(lines)


def _owner(peer: Peer, names: tuple[str, ...]) -> list[str]:
    """One owner: what it measures, the zone it has, and how often it will be left."""
    if not peer.linked:
        doing = "has not answered yet"
    elif peer.reporting:
        doing = f"reports every change, {SECOND * peer.pace.rate:.3g} a second"
    else:
        doing = f"is silent; messages expected: {_expected(peer)}"
    lines = [f"{peer.name} {doing}; heard through {_time(peer.heard)}"]
    for name, range in zip(names, peer.tail(), strict=True):
        lines.append(f"    {name}: {show_range(range)}")
    return lines


def _time(nanoseconds: int) -> str:
    """By the clock of the home, or of an owner; to be read."""
    return datetime.fromtimestamp(max(0, nanoseconds) // 1_000_000 / 1000, UTC).isoformat(" ", "milliseconds")


def _expected(peer: Peer) -> str:
    """How often its zone is left, if it moves on as it did: a walk by `s` in a unit of time leaves ±w after (w/s)²."""
    rates = [_leaving(range, peer.pace.spread(at)) for at, range in enumerate(peer.tail())]
    rate = SECOND * sum(rates)
    return f"one in {1 / rate:.3g} s" if rate else "none"


def _leaving(range: Range, spread: float) -> float:
    if not isinstance(range, Bounds) or not spread:
        return 0.0
    half = (range.high - range.low) / 2
    return (spread / half) ** 2 if half else 0.0
