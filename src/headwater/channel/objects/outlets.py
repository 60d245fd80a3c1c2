"""How changes, raised events and notices leave a node: as events of its channels, under the numbers of their turns.

Each channel has one source of them. Its last number is that of the log, where the channel is logged: what is in it has
left, whatever the state knows of that. So it leaves once, also after a kill.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.objects.replicas import tells_time
from headwater.channel.queues.mailbox import dispatch_all
from headwater.errors import ObjectError

if TYPE_CHECKING:
    from headwater.channel.backlog.node_logs import NodeLogs
    from headwater.channel.channel import Channel
    from headwater.channel.queues.positions import Progress
    from headwater.channel.routing.route import Ready
    from headwater.channel.routing.wiring import Wiring
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription
    from headwater.objects.reactions import Leaving
    from headwater.types import EventType

SOURCE = "objects"  # the name of the source in each channel


class HasChannels(Protocol):
    """As much of a node as is needed here."""

    name: str
    subscriptions: dict[str, Subscription[Any]]
    _logs: NodeLogs | None
    _wiring: Wiring

    def channel(self, name: str, type: Any = None) -> Channel[Any]:
        """The channel of that name."""
        ...

    def channels(self, pattern: str = "**") -> list[Channel[Any]]:
        """Channels whose names fit."""
        ...

    def _add_source(self, channel: Channel[Any], name: str | None, **options: Any) -> Source[Any]: ...


class ChannelOutlets:
    """Meets `Outlets`. One thread sends; sources may be made by others."""

    def __init__(self, node: HasChannels, come_to: Callable[[str], tuple[int, int] | None]) -> None:
        """`come_to`: how far the time of a channel has come by which replicas are told."""
        self._node, self._come_to = node, come_to
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

    def open(self, channel: str, type: EventType, sent: int, again: int = 0) -> int:
        """The last number that the source has, which goes on behind what was sent. What is up to `again` may have left
        in a life before, and says so if it leaves once more."""
        ready: Ready = []
        with self._opening:
            source = self._sources.get(channel)
            if source is None or source.type != type:
                if source is not None:
                    source.close()
                # Durable sinks of this node keep how far they are with it, where it is logged.
                options: dict[str, Any] = dict.fromkeys(("type", "facts", "ask", "every"))
                made = self._node.channel(channel, type)
                source = self._node._add_source(made, SOURCE, **options, priority=0, ready=ready)
                self._sources[channel] = source
                if tells_time(channel):
                    source.come_to = partial(self._come_to, channel)
            with source.between():
                if source.seq < sent:
                    source._flow.skip(sent)
                source.again = max(source.again, again)
                found = source.seq
        for each in self._durable():
            each.note_beginnings()
        dispatch_all(ready)
        return found

    def ready(self, channel: str, type: EventType) -> None:
        """There is a source, so that a durable sink finds what it has missed of it."""
        found = self._sources.get(channel)
        if found is None or found.type != type:
            self.open(channel, type, 0)

    def _durable(self) -> list[Progress]:
        found = (each._progress for each in list(self._node.subscriptions.values()))
        return [each for each in found if each is not None]

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
