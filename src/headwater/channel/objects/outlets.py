"""How changes, raised events and notices leave a node: as events of its channels, under the numbers of their turns.

Each channel has one source of them. Its last number is that of the log, where the channel is logged: what is in it has
left, whatever the state knows of that. So it leaves once, also after a kill.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import ObjectError

if TYPE_CHECKING:
    from headwater.channel.backlog.node_logs import NodeLogs
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.objects.reactions import Leaving
    from headwater.types import EventType

SOURCE = "objects"  # the name of the source in each channel


class HasChannels(Protocol):
    """As much of a node as is needed here."""

    _logs: NodeLogs | None

    def channel(self, name: str, type: Any = None) -> Channel[Any]:
        """The channel of that name."""
        ...

    def channels(self, pattern: str = "**") -> list[Channel[Any]]:
        """Channels whose names fit."""
        ...


class ChannelOutlets:
    """Meets `Outlets`. One thread sends; sources may be made by others."""

    def __init__(self, node: HasChannels) -> None:
        self._node = node
        self._sources: dict[str, Source[Any]] = {}
        self._opening = threading.Lock()

    def last(self, channel: str, type: EventType) -> int:
        """That of the log, where the channel is logged: it is opened if it is not. No lock of the node is taken, under
        which others may wait for the state."""
        logs = self._node._logs
        if logs is None or not logs.wants(channel):
            return 0
        found = logs.known(channel) or logs.opened(channel, type)
        return found.last(SOURCE)

    def open(self, channel: str, type: EventType, sent: int) -> int:
        """The last number that the source has, which goes on behind what was sent."""
        with self._opening:
            source = self._sources.get(channel)
            if source is None or source.type != type:
                if source is not None:
                    source.close()
                source = self._sources[channel] = self._node.channel(channel, type).source(SOURCE)
            with source.between():
                if source.seq < sent:
                    source._flow.skip(sent)
            return source.seq

    def send(self, leaving: Sequence[Leaving]) -> None:
        """Publish them, and no number twice."""
        source = self._sources[leaving[0].channel]
        decode = source.type.decode
        for each in leaving:
            if each.seq <= source.seq:
                continue  # it was sent when others failed
            if each.seq != source.seq + 1:
                raise ObjectError(f"{source}: expected number {source.seq + 1:,} next, found {each.seq:,}")
            source.publish(decode(each.record))

    def unheard(self, leaving: Leaving) -> bool:
        """Count it, if nobody takes what is published there, nor keeps it."""
        source = self._sources[leaving.channel]
        if source.log is not None or source.ring is not None or source.closed or len(source.flows) != 1:
            return False
        with source.lock:
            return source._flow.seen == leaving.seq - 1 and source._flow.pass_unheard()

    def type_of(self, channel: str) -> EventType | None:
        """That of a channel of the node."""
        found = next((each for each in self._node.channels(channel) if each.name == channel), None)
        return None if found is None else found.type


__all__ = ["SOURCE", "ChannelOutlets"]
