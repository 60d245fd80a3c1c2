"""The values that a run holds open: so that one which goes on from a snapshot knows what to ask its sources for.

An event that is not a possible beginning matters only with a value that an earlier event of the same match has bound
(`patterns/crossing/bindings.py`). Such events are held by partial matches, or wait for their turn; so a snapshot, which
has both, says which values are open. What waits may have been bound a moment ago: it is not known whether the sources
had been asked for that yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.ir.interp import EventContext
from headwater.patterns.crossing.bindings import Bindings, Opener
from headwater.patterns.crossing.open_values import Values, together
from headwater.patterns.run.events import Event, record_of

if TYPE_CHECKING:
    from headwater.patterns.run.runner import Runner


@dataclass(frozen=True)
class HeldValues:
    """`open`: bound by events of partial matches. `waiting`: by events that wait for their turn, and by no others; what
    came of them since may be missing. `seen`: by source and number, the times of the events that wait."""

    open: Values = field(default_factory=dict)
    waiting: Values = field(default_factory=dict)
    seen: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def all(self) -> Values:
        """What is to be asked for."""
        return together(self.open, self.waiting)


def held_values(found: Bindings, runner: Runner) -> HeldValues:
    """Of a run, while nobody feeds it."""
    in_runs, waiting, between = runner.held()
    opener = Opener(found)
    open = _bound(opener, runner, in_runs, first=False)
    fresh = {
        name: {value: time for value, time in times.items() if value not in open.get(name, {})}
        for name, times in _bound(opener, runner, waiting, first=True).items()
    }
    seen = {(f"{each.channel}/{each.source}@{each.node}", each.seq): each.time for each in (*waiting, *between)}
    return HeldValues(open, {name: times for name, times in fresh.items() if times}, seen)


def _bound(opener: Opener, runner: Runner, events: Iterable[Event], *, first: bool) -> Values:
    """What events have bound; each with the time at which that was `first`, or else last."""
    found: Values = {}
    for event in events:
        record = record_of(runner.channels[event.channel], event)
        meta = EventContext(
            event.source, event.node, event.seq, event.time if event.published is None else event.published
        )
        for name, value in opener(event.channel, record, meta).items():
            times = found.setdefault(name, {})
            before = times.get(value, event.time)
            times[value] = min(before, event.time) if first else max(before, event.time)
    return found


__all__ = ["HeldValues", "held_values"]
