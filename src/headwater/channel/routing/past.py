"""The past of a channel, for sinks that come later: what its backlog has of each source, in one order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headwater.channel.backlog.stretch import Stretch, StretchJudge
from headwater.channel.routing.letter import Letter
from headwater.channel.routing.route import Entry, Flow

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource

WINDOW = 4096  # events that are read at first, where only the last are wanted
SHORT = 512  # events that are left to be judged while sources stand still, if that can be had
ROUNDS = 8  # times that it is tried to come so near to a source that goes on publishing

Turn = tuple[int, int, int, Letter]  # when, which source, its sequence number: letters in order of time


def own_flows(channel: RoutedChannel) -> list[Flow]:
    """Of the sources in this process that the channel has itself, or that it is derived from."""
    return [flow for flow in channel.flows() if flow.source.local]


def steps_to(flow: Flow, entry: Entry) -> list[tuple[Flow, Entry]]:
    """By which interests a source's events are judged, one after the other, before an entry of a flow has them: those
    of the channels that this one is derived from, and the last is its own."""
    found, channel = [(flow, entry)], flow.channel
    while channel is not flow.source.channel and channel.parent is not None and channel.stage_entry is not None:
        found.insert(0, (flow.source.flows[channel.parent], channel.stage_entry))
        channel = channel.parent
    return found


class Recollection:
    """What an interest would have passed of a channel's past, the last `wanted` (below 0: all), in order of time. Of a
    source that the channel is derived from that is only what is wanted `after` an event.

    Reading and judging takes its time: `ahead` does most of it while sources go on, so that there is little left for
    `all`, for which they stand still."""

    def __init__(
        self,
        channel: RoutedChannel,
        entry: Entry,
        wanted: int,
        after: Callable[[RoutedSource], int | None] = lambda source: None,
        since: Callable[[RoutedSource], int | None] = lambda source: None,
    ) -> None:
        """`after`: of a source of which all is wanted from there on, whatever else is; `since`: from where on the state
        of the interest counts, if that is before."""
        self._channel, self._entry, self._wanted, self._after, self._since = channel, entry, wanted, after, since
        self._parts: dict[Flow, _Past] = {}
        self._turns: list[Turn] = []
        self._latest: dict[RoutedSource, int] = {}

    def ahead(self) -> None:
        """Judge what there is, and what comes meanwhile. No lock is needed that publishers need."""
        for _ in range(ROUNDS):
            flows = self._flows()
            if all(part.behind() <= SHORT for _, part in flows) and self._parts:
                return
            self._add(flows)

    def all(self) -> list[Letter]:
        """All of it; the sources stand still."""
        flows = self._flows()
        self._add(flows)
        for _, part in flows:
            part.settle()
        there = {flow.source for flow, _ in flows}
        turns = self._turns
        if self._wanted >= 0 and all(part.wanted >= 0 for _, part in flows):
            turns = turns[-self._wanted :] if self._wanted else []
        return [turn[3] for turn in turns if turn[3].source in there]

    def _flows(self) -> list[tuple[Flow, _Past]]:
        found = []
        for flow in own_flows(self._channel):
            part = self._parts.get(flow)
            if part is None:
                after = self._after(flow.source)
                since = self._since(flow.source)
                wanted = self._wanted if flow.source.channel is self._channel else 0
                part = self._parts[flow] = _Past(flow, self._entry, wanted, after, since)
            found.append((flow, part))
        return found

    def _add(self, flows: list[tuple[Flow, _Past]]) -> None:
        """Where a clock has gone back, a source's events still come in their order: such an event counts as published
        with the one before it."""
        made: list[Turn] = []
        for flow, part in flows:
            source, latest = flow.source, self._latest.get(flow.source)
            for letter in part.more():
                latest = letter.stamp if latest is None else max(letter.stamp, latest)
                made.append((latest, source.number, letter.seq, letter))
            if latest is not None:
                self._latest[source] = latest
        made.sort()
        turns = self._turns
        tail = [turns.pop() for _ in range(len(turns) - bisect_left(turns, made[0]))] if made else []
        turns += sorted(tail + made) if tail else made
        if 0 < self._wanted < len(turns) - self._wanted and all(part.wanted >= 0 for _, part in flows):  # not each time
            del turns[: -self._wanted]


class _Step:
    """An interest on the way of one source's past: its own run, which begins after an event."""

    def __init__(self, flow: Flow, entry: Entry, after: int, since: int | None) -> None:
        source = flow.source
        self.flow, self.entry, self.since = flow, entry, after
        self.judge = StretchJudge(
            entry.here, source.name, source.node, clock=flow.channel.node.clock, context=source.context
        )
        if since is not None and since < after and self.judge.stateful:
            self.since = since  # what is before `after` is only remembered

    def __call__(self, stretch: Stretch) -> Stretch:
        return self.judge(stretch.after(self.since) if self.judge.stateful else stretch)


class _Past:
    """What an interest makes of one source's past. An interest with state sees the past before it sees what comes, so
    that it goes on from there; that of a derived channel, if it has seen nothing of the source yet. Else it runs beside
    that, with what both have seen."""

    def __init__(self, flow: Flow, entry: Entry, wanted: int, after: int | None, since: int | None) -> None:
        source = flow.source
        wanted = wanted if after is None else -1
        self._backlog, self._flow, self.wanted = source.channel.backlog, flow, wanted
        self._after = after or 0
        *stages, last = steps_to(flow, entry)
        self._steps = [_Step(*each, self._after, each[0].counts_since(each[1])) for each in stages]
        self._steps.append(_Step(*last, self._after, since))
        self._upto = min(step.since for step in self._steps)
        self._stateful = any(step.judge.stateful for step in self._steps)
        self._never = not wanted or any(step.flow.lineup.judges(step.entry) == "never" for step in self._steps)

    def behind(self) -> int:
        """About how many events there are since it was last asked for more."""
        return 0 if self._never else self._flow.source.seq - self._upto

    def more(self) -> list[Letter]:
        """What passes of the events since this was last asked for, up to the present; and of all before at first."""
        if self._never:
            return []
        if self._upto or self.wanted < 0 or self._stateful:
            passed, self._upto = self._stretch(self._upto, self._flow.source.seq)
            if self._after:
                passed = [letter for letter in passed if letter.seq > self._after]
        else:
            passed, self._upto = self._last()
        return passed if self.wanted < 0 else passed[-self.wanted :]

    def _last(self) -> tuple[list[Letter], int]:
        """Of the last events as many as are wanted, found from the end, and where that is."""
        source = self._flow.source
        end = upto = min(source.seq, self._backlog.last(source.key))  # what is being published is in the log already
        passed, window = list[Letter](), max(WINDOW, 2 * self.wanted)
        while end > 0 and len(passed) < self.wanted:
            start = max(0, end - window)
            passed = [*self._stretch(start, end)[0], *passed]
            end, window = start, 4 * window
        return passed, upto

    def _stretch(self, after: int, upto: int) -> tuple[list[Letter], int]:
        source, found = self._flow.source, list[Letter]()
        reading = self._backlog.read(source.key, after, upto)
        for part in reading:
            passed = part
            for step in self._steps:
                passed = step(passed)
            now, priority = perf_counter_ns(), source.priority
            found += [Letter(None, record, source, seq, stamp, now, priority) for seq, stamp, record in passed.events()]
        return found, reading.reached

    def settle(self) -> None:
        """The interest goes on here with what comes; the source stands still."""
        for step in [] if self._never else self._steps:
            runner = step.judge.runner if step.judge.stateful else None
            runs = step.flow is not self._flow and step.flow.counts_since(step.entry) is not None
            if runner is not None and not runs:
                step.flow.goes_on(step.entry, runner, step.since)
