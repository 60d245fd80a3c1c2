"""The last events of each source, for sinks that come later and ask for the past: a bounded buffer in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.channel.letter import Chunk, Letter
from headwater.channel.route import Lineup, Ready
from headwater.channel.wiring import Move
from headwater.federation import wire
from headwater.federation.messages import Wish

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.crossing import Crossing
    from headwater.federation.engine import Engine

PAST = 1 << 31  # in a tag: this is of the past, for the interest of that tag alone


class Recorder:
    """A member of a channel's routes that keeps the last events of each of its own sources."""

    width = 0
    local = False
    lone = None
    quick = None

    def __init__(self, channel: Channel, events: int) -> None:
        self._channel, self._events = channel, events
        self._past: dict[Source, deque[tuple[int, int, bytes]]] = {}

    def accept(self, letter: Letter, ready: Ready) -> None:
        if letter.source.local and letter.source.channel is self._channel:
            self._of(letter.source).append((letter.seq, letter.stamp, letter.record))

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        type = self._channel.type
        if chunk.source.local and chunk.source.channel is self._channel and type is not None:
            last = chunk if n <= self._events else chunk.part(n - self._events, n)
            records = type.arrow_to_records(last.taken())
            stamp = chunk.stamp
            rows = zip(last.seqs.tolist(), records, strict=True)
            self._of(chunk.source).extend((seq, stamp, record) for seq, record in rows)

    def _of(self, source: Source) -> deque[tuple[int, int, bytes]]:
        found = self._past.get(source)
        if found is None:
            found = self._past[source] = deque(maxlen=self._events)
        return found

    def past(self, source: Source) -> list[tuple[int, int, bytes]]:
        return list(self._past.get(source, ()))

    def reaches(self, source: Source, record: bytes | None) -> Iterable[Any]:
        return ()

    def started(self) -> None:
        pass

    def ended(self) -> None:
        pass

    def joined(self, lineup: Lineup) -> None:
        pass

    def left(self, lineup: Lineup) -> None:
        pass


class History:
    """The recorders of a node's channels."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorders: dict[Channel, Recorder] = {}

    def record(self, channel: Channel) -> None:
        """From now on; the wiring's lock is held."""
        events = self._engine.network.history
        if events and channel not in self._recorders and channel.parent is None:
            recorder = self._recorders[channel] = Recorder(channel, events)
            wiring = self._engine.node.wiring
            wiring.move([Move(channel, wiring.entry(channel, None), recorder, joins=True)])

    def send(self, crossing: Crossing, wishes: list[Wish]) -> None:
        """What sources remember, to sinks that ask for it; their sources stand still."""
        recorder = self._recorders.get(crossing.channel)
        if recorder is None:
            return
        for source in list(crossing.channel.sources.values()):
            lane = crossing.lane(source)
            past = recorder.past(source) if lane is not None else []
            for wish in wishes:
                if not wish.history or not past or lane is None or wish.tag not in crossing.wishes:
                    continue
                entry = crossing.wishes[wish.tag][0]
                test = None if entry.interest is None else entry.interest.native()
                if test is not None and entry.interest is not None and entry.interest.output is not None:
                    continue  # its output begins with the first event that it sees
                chosen = [item for item in past if test is None or test.test(item[2])]
                if wish.history > 0:
                    chosen = chosen[-wish.history :]
                if chosen:
                    seqs, stamps, records = zip(*chosen, strict=True)
                    tags = [(PAST | wish.tag,)] * len(chosen)
                    lane.put((wire.encode_events(lane.sid, 0, seqs, stamps, records, tags),), 0)
                    crossing.peer.stir_later(lane)
