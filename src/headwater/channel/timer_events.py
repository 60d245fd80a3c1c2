"""Timers and deadlines: the passing of time as events on a channel."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from headwater.channel.channel import Channel
from headwater.channel.options.subscribe import check_label, check_priority, check_seconds, interest_for
from headwater.errors import ChannelError, ClosedError
from headwater.types import Event, event_type, timestamp, u64

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.source import Source
    from headwater.channel.subscription import Subscription

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Timeout(Event, name="headwater.Timeout"):
    """A moment that came: of a timer, or of a deadline that nothing met."""

    timer: str
    due: timestamp
    number: u64  # how many times it has fired, this one included
    missed: u64  # periods that were skipped because it was late


class Timer:
    """Publishes a Timeout on a channel, once or periodically, until it is cancelled."""

    def __init__(self, node: NodeContract, name: str, source: Source, priority: int) -> None:
        self.node, self.name, self.channel, self.priority = node, name, source.channel, priority
        self.fired = 0
        self._source = source
        self._handle: Any = None
        source.at_end = self._stop

    def _publish(self, due: float, missed: int) -> None:
        clock = self.node.clock
        self.fired += 1
        when = _EPOCH + timedelta(microseconds=clock.time() - round((clock.now() - due) * 1e6))
        try:
            self._source.publish(Timeout(self.name, when, self.fired, missed))
        except ClosedError:  # just now, in another thread
            self.fired -= 1

    def _stop(self) -> None:
        """Its source is withdrawn, by `cancel` or with its channel."""
        if self._handle is not None:
            self._handle.cancel()

    def _publish_last(self, due: float) -> None:
        """The one time of a timer that fires once; its source is then withdrawn."""
        try:
            self._publish(due, 0)
        finally:
            self._source.close()

    @property
    def active(self) -> bool:
        """Whether it will fire (again)."""
        return bool(self._handle.active)

    def cancel(self) -> None:
        """It fires no more, and its source is withdrawn."""
        self._source.close()

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self.channel.name}, fired {self.fired:,} times>"


class Deadline(Timer):
    """Publishes a Timeout when no event of an interest has come for some time."""

    def __init__(
        self, node: NodeContract, name: str, source: Source, priority: int, *, within: float, repeat: bool
    ) -> None:
        super().__init__(node, name, source, priority)
        self.within, self.repeat = within, repeat
        self._lock = threading.Lock()
        self._last = node.clock.now()
        self._silent = False  # it has fired, and waits for an event to begin anew
        self._over = False
        self.watch: Subscription | None = None  # what it listens with

    @property
    def active(self) -> bool:
        """Whether it will fire (again), as soon as there is silence for long enough."""
        return not self._over and not self.node.closed

    def start(self) -> None:
        """Begin to watch: an event is due `within` from the last one on."""
        if not self._over:
            with suppress(ClosedError):  # the node is closing
                self._handle = self.node._timers.call_at(self._last + self.within, self._look, priority=self.priority)

    def heard(self, event: Any) -> None:
        """An event came: the time begins anew."""
        with self._lock:
            self._last = self.node.clock.now()
            if self._silent:
                self._silent = False
                self.start()

    def _look(self) -> None:
        """The time may be over. Events only note when they came, so that they cost little; here it is looked at."""
        with self._lock:
            due = self._last + self.within
            if self.node.clock.now() < due:
                self.start()
                return
            self._silent = not self.repeat
            if self.repeat:
                self._last = due
                self.start()
        self._publish(due, 0)

    def _stop(self) -> None:
        """It listens no more as well."""
        with self._lock:
            self._over = True
            super()._stop()
        if self.watch is not None:
            self.watch.cancel()


class Timing:
    """The timers of a node."""

    def __init__(self, node: NodeContract) -> None:
        self.node = node
        self._numbers = count(1)

    def every(
        self, channel: str | Channel, period: float | timedelta, *, first: float | None, priority: int, name: str | None
    ) -> Timer:
        seconds = check_seconds("every: period", period)
        start = None if first is None else self.node.clock.now() + check_seconds("every: first", first, zero=True)
        timer: Timer = self._timer(Timer, channel, priority, name)
        timer._handle = self.node._timers.every(seconds, timer._publish, priority=priority, first=start)
        return timer

    def after(self, channel: str | Channel, delay: float | timedelta, *, priority: int, name: str | None) -> Timer:
        seconds = check_seconds("after: delay", delay, zero=True)
        timer: Timer = self._timer(Timer, channel, priority, name)
        due = self.node.clock.now() + seconds
        timer._handle = self.node._timers.call_at(due, lambda: timer._publish_last(due), priority=priority)
        return timer

    def deadline(
        self,
        channel: str | Channel,
        on: str | Channel,
        within: float | timedelta,
        where: Any,
        *,
        params: Mapping[str, object] | None,
        repeat: bool,
        priority: int,
        name: str | None,
    ) -> Deadline:
        """A timer that publishes when a channel has been silent for too long. It watches by a subscription of its own,
        and is given up if that cannot be made."""
        seconds = check_seconds("deadline: within", within)
        watched = self.node.channel(on) if isinstance(on, str) else on
        if watched.node is not self.node:
            raise ClosedError(f"channel {watched.name!r} belongs to another node")
        interest_for(watched, where, params)  # raises before anything is made
        deadline: Deadline = self._timer(Deadline, channel, priority, name, within=seconds, repeat=repeat)
        deadline.start()
        try:
            deadline.watch = watched.subscribe(
                deadline.heard, where, params=params, name=f"{deadline.name}-watch", dispatch="inline", queue=2**31 - 1
            )
        except Exception:
            deadline.cancel()
            raise
        return deadline

    def _timer(self, kind: Any, channel: str | Channel, priority: int, name: str | None, **more: Any) -> Any:
        check_label("timer", name)
        check_priority("timer", priority)
        if isinstance(channel, str):
            channel = self.node.channel(channel, Timeout)
        elif channel.type != event_type(Timeout):
            raise ChannelError(
                f"channel {channel.name!r}: expected type {Timeout.__event_name__}, found {channel.type}"
            )
        if channel.node is not self.node:
            raise ClosedError(f"channel {channel.name!r} belongs to another node")
        source = channel.source(name or f"{kind.__name__.lower()}-{next(self._numbers)}", priority=priority)
        return kind(self.node, source.name, source, priority, **more)
