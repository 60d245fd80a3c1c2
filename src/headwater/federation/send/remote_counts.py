"""What became of a peer's interests at the sources of a channel, each from the point on at which it was installed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from headwater.channel.routing.counts import Readings
from headwater.federation.wire.requests import Told

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.route import Entry, Flow, Lineup
    from headwater.federation.send.crossing import Crossing


class Counting:
    """Of one crossing. Nothing is counted for it while events flow: sources and matchers count anyway, and here is
    remembered what they had counted when an interest came. It is read as all counts are (`Readings`)."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing = crossing
        self._seen: dict[int, dict[Source, int]] = {}  # by tag: what each source had published before; of a point, one
        self._fresh: dict[int, bool] = {}  # tags that are to begin, and whether others have the same interest already
        self._undecided: dict[int, dict[Lineup, int]] = {}
        self._past: dict[int, int] = {}  # events of sources that are no more
        self._ended: WeakSet[Source] = WeakSet()  # those, while their flows may still be there

    def begins(self, tag: int, entry: Entry) -> None:
        """An interest is to be in force from the next start on."""
        self._fresh[tag] = bool(entry.members)

    def started(self) -> None:
        """Those that were to begin are in force from here."""
        fresh, self._fresh = self._fresh, {}
        if not fresh:
            return
        wishes, channel = self._crossing.wishes, self._crossing.channel
        seen = {flow.source: flow.seen for flow in self._flows()}
        for tag, known in fresh.items():
            if tag in wishes:
                entry = wishes[tag][0]
                self._seen[tag], self._past[tag] = seen, 0
                readings = Readings((entry,), still=True)
                counted = {each: each.judged(entry, readings).undecided for each in channel.lineups} if known else {}
                self._undecided[tag] = {lineup: number for lineup, number in counted.items() if number}

    def forget(self, tag: int) -> None:
        """An interest is withdrawn."""
        self._fresh.pop(tag, None)
        for known in (self._seen, self._undecided, self._past):
            known.pop(tag, None)

    def gone(self, source: Source) -> None:
        """A source is no more; what was evaluated there was."""
        flow = source.flows.get(self._crossing.channel)
        if flow is None or source in self._ended:
            return
        self._ended.add(source)
        for tag, seen in self._seen.items():
            if flow.lineup.consults(self._crossing.wishes[tag][0]):
                self._past[tag] += flow.seen - seen.get(source, 0)
        for seen in {id(each): each for each in self._seen.values()}.values():
            seen.pop(source, None)

    def told(self) -> Told:
        """All of it, as the peer may know it. The wiring's lock is held, and sources go on."""
        crossing = self._crossing
        crossed = sum(lane.passed for lane in crossing.active())
        if crossing.share is not None:
            crossed += crossing.share.crossed
        alone = len(crossing.wishes) == 1
        counts: dict[int, tuple[int, int, int, str, str]] = {}
        readings = Readings({entry for entry, _ in crossing.wishes.values()})
        for tag, (entry, member) in crossing.wishes.items():
            seen, undecided = self._seen.get(tag, {}), self._undecided.get(tag, {})
            flows = [flow for flow in self._flows() if flow.lineup.consults(entry)]
            evaluated = self._past.get(tag, 0)
            for flow in flows:
                evaluated += readings.flow(flow).seen + flow.base - seen.get(flow.source, 0)
            unclear, how, why = 0, "", ""
            for lineup in {flow.lineup for flow in flows}:
                unclear += lineup.judged(entry, readings).undecided - undecided.get(lineup, 0)
                how, why = lineup.why(entry)
            passed = member.passed if member.tag else crossed if alone else -1
            counts[tag] = evaluated, passed, unclear, how, why
        members = [(tag, member) for tag, (_, member) in crossing.wishes.items()]
        shed = {tag: member.limiter.shed for tag, member in members if member.limiter is not None}
        return Told(counts, crossed, shed, crossing.withheld + sum(member.withheld for _, member in members))

    def _flows(self) -> list[Flow]:
        channel = self._crossing.channel
        own = (flow for flow in channel.flows() if flow.source.local and flow.source.channel is channel)
        return [flow for flow in own if flow.source not in self._ended]
