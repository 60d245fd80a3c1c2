"""What fills the rings of a channel's own sources, from which its backlog is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.channel.backlog.ring import EventRing
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Bystander, Ready

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource


class Recorder(Bystander):
    """A member of a channel's routes that puts events into the rings of the channel's own sources."""

    width = 0
    local = False
    bypass = None
    quick = None

    def __init__(self, channel: RoutedChannel, events: int) -> None:
        self._channel, self._events = channel, events

    def accept(self, letter: Letter, ready: Ready) -> None:
        source = letter.source
        if source.local and source.channel is self._channel:
            self._ring(source).put((letter.seq, letter.stamp, letter.record))

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        type, source = self._channel.type, chunk.source
        if source.local and source.channel is self._channel and type is not None:
            last = chunk if n <= self._events else chunk.part(n - self._events, n)
            rows = zip(last.seqs.tolist(), type.arrow_to_records(last.taken()), strict=True)
            self._ring(source).put_all([(seq, chunk.stamp, record) for seq, record in rows])

    def _ring(self, source: RoutedSource) -> EventRing:
        """It goes with its source."""
        found = source.ring
        if found is None:
            found = source.ring = EventRing(self._events, source.flows[self._channel].base)
        return found

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[Any]:
        return ()
