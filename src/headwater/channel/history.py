"""The last events of each source, for sinks that come later and ask for the past: a bounded buffer in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.letter import Chunk, Letter
from headwater.channel.route import Bystander, Entry, Flow, Ready

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source

Past = deque[tuple[int, int, Any]]  # sequence number, time, record


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
        own = [flow for flow in self._channel.flows() if flow.source.local and flow.source.channel is self._channel]
        letters = [letter for flow in own for letter in self.of(flow, entry, wanted)]
        letters.sort(key=lambda letter: (letter.stamp, letter.source.number, letter.seq))
        return letters if wanted < 0 else letters[-wanted:]

    def reaches(self, source: Source, record: bytes | None) -> Iterable[Any]:
        return ()
