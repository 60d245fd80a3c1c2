"""The events of a remote source in a channel of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.channel.routing.route import Flow, Lineup, Ready
from headwater.federation.wire.kinds import WHOLE

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.letter import Chunk, Letter
    from headwater.channel.routing.route import Entry
    from headwater.federation.arrive.remote_source import RemoteSource


class RemoteFlow(Flow):
    """A remote source's events in their channel. What runs at the source is not run again: its results are tagged."""

    __slots__ = ("tags",)

    def __init__(self, source: RemoteSource, channel: Channel, lineup: Lineup) -> None:
        super().__init__(source, channel, lineup)
        self.tags: dict[int, Entry] = source.demands.tags(channel.name)

    def _alone(self, entry: Entry, letter: Letter, ready: Ready) -> None:
        if self.source.elsewhere(entry):  # type: ignore[attr-defined]
            self._count_asked(entry, -1)
        else:
            super()._alone(entry, letter, ready)

    def _chunk_alone(self, entry: Entry, chunk: Chunk, ready: Ready) -> None:
        if self.source.elsewhere(entry):  # type: ignore[attr-defined]
            self._count_asked(entry, -len(chunk))
        else:
            super()._chunk_alone(entry, chunk, ready)

    def tagged(self, tag: int, letter: Letter, ready: Ready) -> None:
        """What an interest at the source has passed."""
        entry = self.tags.get(tag & ~WHOLE)
        if entry is not None:
            self._came(entry, 1)
            for member in entry.members:
                member.accept(letter, ready)

    def tagged_chunk(self, tag: int, chunk: Chunk, ready: Ready) -> None:
        entry = self.tags.get(tag & ~WHOLE)
        if entry is not None:
            self._came(entry, len(chunk))
            for member in entry.members:
                member.accept_chunk(chunk, len(chunk), ready)

    def _came(self, entry: Entry, events: int) -> None:
        """What was evaluated at the source counts here as far as it came here: it passed."""
        self._count_asked(entry, events)
        self._count_passed(entry, events)


__all__ = ["RemoteFlow"]
