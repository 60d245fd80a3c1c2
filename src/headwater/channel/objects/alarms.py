"""What triggers wait for besides objects: the node's clock, and events of its channels, each run in the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import ClosedError
from headwater.objects.operations import Administer, Transaction
from headwater.objects.triggers.administration import due
from headwater.objects.triggers.deadlines import Deadline

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.subscription import Subscription
    from headwater.channel.time.clock import Clock
    from headwater.channel.time.timer_engine import Handle, Timers
    from headwater.types import EventType

EARLIEST = 0.001  # seconds: the clock of people and that of timers need not go alike


class AlarmNode(Protocol):
    """As much of a node as is needed here."""

    clock: Clock
    _timers: Timers

    def channel(self, name: str, type: Any = None) -> Channel[Any]:
        """The channel of that name."""
        ...


class Alarms:
    """Meets `Timer` and `Listening`. A deadline that was told is in the file until its turn has run: after a crash it
    is told again. Events of a channel are taken while the node runs."""

    def __init__(self, node: AlarmNode, submit: Callable[[Transaction], object]) -> None:
        self._node, self._submit = node, submit
        self._handles: dict[Deadline, Handle] = {}
        self._heard: dict[str, Subscription[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def at(self, deadline: Deadline, when: int | None) -> None:
        """Instead of what was said before."""
        with self._lock:
            before = self._handles.pop(deadline, None)
            if before is not None:
                before.cancel()
            if when is None or self._closed:
                return
            wait = max(EARLIEST, (when - self._node.clock.time()) / 1e6)
            self._handles[deadline] = self._node._timers.call_after(wait, lambda: self._due(deadline))

    def _due(self, deadline: Deadline) -> None:
        with self._lock:
            self._handles.pop(deadline, None)
        self._run(due(deadline))

    def _run(self, operation: Administer) -> None:
        with suppress(ClosedError):  # a deadline is told again in the next life
            self._submit(Transaction((operation,)))

    def hear(self, channel: str, type: EventType) -> None:
        """Have every event of a channel judged."""
        with self._lock:
            if channel in self._heard or self._closed:
                return

        def heard(event: Any) -> None:
            self._run(Administer("received", channel, type.encode(event)))

        subscription = self._node.channel(channel, type).subscribe(heard)
        with self._lock:
            self._heard[channel] = subscription

    def ignore(self, channel: str) -> None:
        """No trigger listens to it any more."""
        with self._lock:
            subscription = self._heard.pop(channel, None)
        if subscription is not None:
            subscription.cancel()

    def close(self) -> None:
        """Wait for nothing any more."""
        with self._lock:
            self._closed = True
            handles, self._handles = list(self._handles.values()), {}
            heard, self._heard = list(self._heard.values()), {}
        for handle in handles:
            handle.cancel()
        for subscription in heard:
            subscription.cancel()
