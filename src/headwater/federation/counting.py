"""What became of a peer's interests at the sources of a channel, each from the point on at which it was installed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from headwater.federation.messages import Told

if TYPE_CHECKING:
    from headwater.channel.route import Flow, Lineup
    from headwater.channel.source import Source
    from headwater.federation.crossing import Crossing


class Counting:
    """Of one crossing. Nothing is counted for it while events flow: sources and matchers count anyway, and here is
    remembered what they had counted when an interest came. Used while the channel's sources stand still."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing = crossing
        self._seen: dict[int, dict[Source, int]] = {}  # by tag: what each source had published before
        self._undecided: dict[int, dict[Lineup, int]] = {}
        self._past: dict[int, int] = {}  # events of sources that are no more
        self._ended: WeakSet[Source] = WeakSet()  # those, while their flows may still be there

    def started(self) -> None:
        """Interests are in force from here, or not any more."""
        wishes, channel = self._crossing.wishes, self._crossing.channel
        for tag in [tag for tag in self._seen if tag not in wishes]:
            self.forget(tag)
        for tag, (entry, _) in wishes.items():
            if tag not in self._seen:
                self._seen[tag] = {flow.source: flow.seen for flow in self._flows()}
                self._undecided[tag] = {lineup: lineup.judged(entry).undecided for lineup in channel.lineups}
                self._past[tag] = 0

    def forget(self, tag: int) -> None:
        """An interest is withdrawn."""
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
                self._past[tag] += flow.seen - seen.pop(source, 0)

    def told(self) -> Told:
        """All of it, as the peer may know it."""
        crossing = self._crossing
        crossed = sum(lane.passed for lane in crossing.active())
        if crossing.share is not None:
            crossed += crossing.share.crossed
        alone = len(crossing.wishes) == 1
        counts: dict[int, tuple[int, int, int, str, str]] = {}
        for tag, (entry, member) in crossing.wishes.items():
            seen, undecided = self._seen.get(tag, {}), self._undecided.get(tag, {})
            flows = [flow for flow in self._flows() if flow.lineup.consults(entry)]
            evaluated = self._past.get(tag, 0) + sum(flow.seen - seen.get(flow.source, 0) for flow in flows)
            unclear, how, why = 0, "", ""
            for lineup in {flow.lineup for flow in flows}:
                unclear += lineup.judged(entry).undecided - undecided.get(lineup, 0)
                how, why = lineup.why(entry)
            passed = getattr(member, "passed", crossed if alone else -1)
            counts[tag] = evaluated, passed, unclear, how, why
        return Told(counts, crossed)

    def _flows(self) -> list[Flow]:
        channel = self._crossing.channel
        own = (flow for flow in channel.flows() if flow.source.local and flow.source.channel is channel)
        return [flow for flow in own if flow.source not in self._ended]
