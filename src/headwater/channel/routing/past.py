"""The past of sources, for sinks that come later and ask for it: from the log, or from a bounded buffer in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.node_logs import Logged, read
from headwater.channel.routing.route import Bystander, Entry, Flow, Ready
from headwater.late import np, pa
from headwater.native.record import uses_meta

if TYPE_CHECKING:
    from headwater.channel.routing.contract import Recalled, Remembers, RoutedChannel, RoutedSource

Past = deque[tuple[int, int, Any]]  # sequence number, time, record
WINDOW = 4096  # events that are read at first, where only the last are wanted


SHORT = 512  # events that are left to be judged while sources stand still, if that can be had
ROUNDS = 8  # times that it is tried to come so near to a source that goes on publishing

Turn = tuple[int, int, int, Letter]  # when, which source, its sequence number: letters in order of time


def own_flows(channel: RoutedChannel) -> list[Flow]:
    """Of the sources that the channel has itself, in this process."""
    return [flow for flow in channel.flows() if flow.source.local and flow.source.channel is channel]


class Recollection:
    """What an interest would have passed of a channel's past, the last `wanted` (below 0: all), in order of time.

    Reading and judging takes its time: `ahead` does most of it while sources go on, so that there is little left for
    `all`, for which they stand still."""

    def __init__(self, channel: RoutedChannel, remembers: Remembers, entry: Entry, wanted: int) -> None:
        self._channel, self._remembers, self._entry, self._wanted = channel, remembers, entry, wanted
        self._parts: dict[Flow, Recalled] = {}
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
        turns = self._turns if self._wanted < 0 else self._turns[-self._wanted :] if self._wanted else []
        return [turn[3] for turn in turns if turn[3].source in there]

    def _flows(self) -> list[tuple[Flow, Recalled]]:
        found = []
        for flow in own_flows(self._channel):
            part = self._parts.get(flow)
            if part is None:
                part = self._parts[flow] = self._remembers.of(flow, self._entry, self._wanted)
            found.append((flow, part))
        return found

    def _add(self, flows: list[tuple[Flow, Recalled]]) -> None:
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
        if 0 < self._wanted < len(turns) - self._wanted:  # not each time
            del turns[: -self._wanted]


class LogPast:
    """The past of a channel whose sources are logged: all that the log has of those that are open."""

    def __init__(self, channel: RoutedChannel) -> None:
        self._channel = channel

    def of(self, flow: Flow, entry: Entry, wanted: int) -> Recalled:
        if not wanted or flow.source.log is None or flow.lineup.judges(entry) == "never":
            return Nothing()
        return _FromLog(self._channel, flow, entry, wanted)


class Nothing:
    """Of a source that remembers nothing, or nothing that an interest could pass."""

    def more(self) -> list[Letter]:
        return []

    def behind(self) -> int:
        return 0

    def settle(self) -> None:
        pass


class _FromLog:
    """Of a source that is logged: its lock is needed only for `settle`."""

    def __init__(self, channel: RoutedChannel, flow: Flow, entry: Entry, wanted: int) -> None:
        self._channel, self._flow, self._entry, self._wanted = channel, flow, entry, wanted
        self._native = None if entry.interest is None else entry.interest.start(flow.channel.node.clock)
        self._stateful = entry.interest is not None and entry.interest.stateful
        self._upto = 0

    def behind(self) -> int:
        return self._flow.seen - self._upto

    def more(self) -> list[Letter]:
        end = self._flow.seen
        if self._upto or self._wanted < 0 or self._stateful:
            passed = self._stretch(self._upto, end)
        else:
            passed = self._last(end)
        self._upto = end
        return passed if self._wanted < 0 else passed[-self._wanted :]

    def _last(self, end: int) -> list[Letter]:
        """Of the last events as many as are wanted, found from the end."""
        passed, window = list[Letter](), max(WINDOW, 2 * self._wanted)
        while end > 0 and len(passed) < self._wanted:
            start = max(0, end - window)
            passed = [*self._stretch(start, end), *passed]
            end, window = start, 4 * window
        return passed

    def _stretch(self, after: int, upto: int) -> list[Letter]:
        source, found = self._flow.source, list[Letter]()
        assert source.log is not None
        for part in read(source.log, self._channel, source.name, after, upto):
            now, priority = perf_counter_ns(), source.priority
            seqs, stamps, records = judged(self._flow, self._entry, part, self._native)
            rows = zip(seqs.tolist(), stamps.tolist(), records, strict=True)
            found += [Letter(None, record, source, seq, stamp, now, priority) for seq, stamp, record in rows]
        return found

    def settle(self) -> None:
        if self._stateful and self._native is not None:
            self._flow.goes_on(self._entry, self._native)


def judged(flow: Flow, entry: Entry, part: Logged, native: Any) -> tuple[Any, Any, list[bytes]]:
    """What an interest passes of logged events, or makes of them: numbers, times and records. `native` runs as it would
    on events that come."""
    type: Any = flow.channel.type
    if entry.interest is None:
        return part.seqs, part.stamps, part.records(type)
    meta = None
    if uses_meta(native.program):
        numbers, times = pa.array(part.seqs), pa.array(part.stamps // 1000)
        meta = {"source": flow.source.name, "node": flow.source.node, "seq": numbers, "time": times}
    result = native.batch(part.batch, meta=meta)
    rows = np.flatnonzero(result.selection.fill_null(False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return part.seqs[:0], part.stamps[:0], []
    if result.output is not None and entry.interest.output is not None:
        records = entry.interest.output.arrow_to_records(result.output)
    else:
        records = type.arrow_to_records(part.batch if len(rows) == len(part) else part.batch.take(rows))
    return part.seqs[rows], part.stamps[rows], records


class Recorder(Bystander):
    """A member of a channel's routes that keeps the last events of each of the channel's own sources."""

    width = 0
    local = False
    bypass = None
    quick = None

    def __init__(self, channel: RoutedChannel, events: int) -> None:
        self._channel, self._events = channel, events
        self._past: dict[RoutedSource, Past] = {}

    def accept(self, letter: Letter, ready: Ready) -> None:
        source = letter.source
        if source.local and source.channel is self._channel:
            self._of(source).append((letter.seq, letter.stamp, letter.record))

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        type, source = self._channel.type, chunk.source
        if source.local and source.channel is self._channel and type is not None:
            last = chunk if n <= self._events else chunk.part(n - self._events, n)
            rows = zip(last.seqs.tolist(), type.arrow_to_records(last.taken()), strict=True)
            self._of(source).extend((seq, chunk.stamp, record) for seq, record in rows)

    def _of(self, source: RoutedSource) -> Past:
        found = self._past.get(source)
        if found is None:
            found = self._past[source] = deque(maxlen=self._events)
        return found

    def past(self, source: RoutedSource) -> list[tuple[int, int, Any]]:
        """What it has of a source now. Copying is one step, which no publisher divides."""
        return list(self._past.get(source, ()))

    def of(self, flow: Flow, entry: Entry, wanted: int) -> Recalled:
        return Nothing() if not wanted or flow.lineup.judges(entry) == "never" else _Remembered(self, flow, entry)

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[Any]:
        return ()


class _Remembered:
    """Of a source whose last events are kept in memory. An interest with state sees the past before it sees what comes,
    so that it goes on from there."""

    def __init__(self, recorder: Recorder, flow: Flow, entry: Entry) -> None:
        self._recorder, self._flow, self._entry = recorder, flow, entry
        self._native = None if entry.interest is None else entry.interest.start(flow.channel.node.clock)
        self._upto = 0

    def behind(self) -> int:
        return self._flow.seen - self._upto

    def more(self) -> list[Letter]:
        source, past = self._flow.source, self._recorder.past(self._flow.source)
        passed: list[Letter] = []
        start = bisect_right(past, self._upto, key=_seq)
        test = None if self._native is None else self._flow.past_judge(self._entry, self._native)
        for seq, stamp, record in past[start:]:
            letter = Letter(None, record, source, seq, stamp, perf_counter_ns(), source.priority)
            out = letter if test is None else test(letter)
            if out is not None:
                passed.append(out)
        if past:
            self._upto = past[-1][0]
        return passed

    def settle(self) -> None:
        interest = self._entry.interest
        if interest is not None and interest.stateful and self._native is not None:
            self._flow.goes_on(self._entry, self._native)


def _seq(kept: tuple[int, int, Any]) -> int:
    return kept[0]
