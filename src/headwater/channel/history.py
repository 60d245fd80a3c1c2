"""The past of sources, for sinks that come later and ask for it: from the log, or from a bounded buffer in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from headwater.channel.letter import Chunk, Letter
from headwater.channel.logs import Logged, read
from headwater.channel.route import Bystander, Entry, Flow, Ready
from headwater.native.record import uses_meta

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source

Past = deque[tuple[int, int, Any]]  # sequence number, time, record
WINDOW = 4096  # events that are read at first, where only the last are wanted


class Remembers(Protocol):
    """What knows the past of a channel's own sources."""

    def all(self, entry: Entry, wanted: int) -> list[Letter]:
        """What an interest would have passed of it, the last `wanted` (below 0: all), in order of time; the sources
        stand still."""
        ...


def own_flows(channel: Channel) -> list[Flow]:
    """Of the sources that the channel has itself, in this process."""
    return [flow for flow in channel.flows() if flow.source.local and flow.source.channel is channel]


def _in_time(letters: list[Letter], wanted: int) -> list[Letter]:
    """Letters, of each source in its order, in order of time. Where a clock has gone back, a source's events still
    come in their order: such an event counts as published with the one before it."""
    latest: dict[Source, int] = {}
    turns = []
    for at, letter in enumerate(letters):
        when = latest[letter.source] = max(letter.stamp, latest.get(letter.source, letter.stamp))
        turns.append((when, letter.source.number, letter.seq, at))
    turns.sort()
    letters = [letters[at] for *_, at in turns]
    return letters if wanted < 0 else letters[-wanted:] if wanted else []


class LogPast:
    """The past of a channel whose sources are logged: all that the log has of those that are open."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def all(self, entry: Entry, wanted: int) -> list[Letter]:
        """The same as of a Recorder."""
        return _in_time(
            [letter for flow in own_flows(self._channel) for letter in self._of(flow, entry, wanted)], wanted
        )

    def _of(self, flow: Flow, entry: Entry, wanted: int) -> list[Letter]:
        if not wanted or flow.source.log is None or flow.lineup.how(entry) == "never":
            return []
        stateful = entry.interest is not None and entry.interest.program.stateful
        end, passed = flow.seen, list[Letter]()
        window = end if wanted < 0 or stateful else max(WINDOW, 2 * wanted)
        while end > 0 and not 0 < wanted <= len(passed):
            start = max(0, end - window)
            passed = [*self._stretch(flow, entry, start, end), *passed]
            end, window = start, 4 * window
        return passed if wanted < 0 else passed[-wanted:]

    def _stretch(self, flow: Flow, entry: Entry, after: int, upto: int) -> list[Letter]:
        source, found = flow.source, list[Letter]()
        assert source.log is not None
        for part in read(source.log, self._channel, source.name, after, upto):
            now, priority = perf_counter_ns(), source.priority
            seqs, stamps, records = judged(flow, entry, part)
            rows = zip(seqs.tolist(), stamps.tolist(), records, strict=True)
            found += [Letter(None, record, source, seq, stamp, now, priority) for seq, stamp, record in rows]
        return found


def judged(flow: Flow, entry: Entry, part: Logged, native: Any = None) -> tuple[Any, Any, list[bytes]]:
    """What an interest passes of logged events, or makes of them: numbers, times and records. It runs as it would on
    events that come, with the state that it has at this source; or `native` runs."""
    type: Any = flow.channel.type
    if entry.interest is None:
        return part.seqs, part.stamps, part.records(type)
    if native is None:
        native = flow.past_native(entry)
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
    lone = None
    quick = None

    def __init__(self, channel: Channel, events: int) -> None:
        self._channel, self._events = channel, events
        self._past: dict[Source, Past] = {}

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

    def _of(self, source: Source) -> Past:
        found = self._past.get(source)
        if found is None:
            found = self._past[source] = deque(maxlen=self._events)
        return found

    def of(self, flow: Flow, entry: Entry, wanted: int) -> list[Letter]:
        """What an interest would have passed of a source's past, the last `wanted` (below 0: all); it stands still.

        An interest with state sees the past before it sees what comes, so that it goes on from there."""
        source = flow.source
        if flow.lineup.how(entry) == "never":
            return []
        test = None if entry.interest is None else flow.past_judge(entry)
        passed: list[Letter] = []
        for seq, stamp, record in self._past.get(source, ()):
            letter = Letter(None, record, source, seq, stamp, perf_counter_ns(), source.priority)
            out = letter if test is None else test(letter)
            if out is not None:
                passed.append(out)
        return passed if wanted < 0 else passed[-wanted:] if wanted else []

    def all(self, entry: Entry, wanted: int) -> list[Letter]:
        """The same of all the channel's own sources, in order of time."""
        return _in_time(
            [letter for flow in own_flows(self._channel) for letter in self.of(flow, entry, wanted)], wanted
        )

    def reaches(self, source: Source, record: bytes | None) -> Iterable[Any]:
        return ()
