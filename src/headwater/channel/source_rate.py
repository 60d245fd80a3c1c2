"""The rate of a source: what it may publish, to whomever. More is shed before anybody looks at it, or has to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.time.clock import SystemClock
from headwater.channel.time.token_bucket import TokenBucket
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.options.rate import Rate
    from headwater.channel.time.clock import Clock

LOOK_SECONDS = 0.25  # after so long at most it is seen that a source is closed


class TimedNode(Protocol):
    """A node, as far as it has a clock."""

    @property
    def clock(self) -> Clock: ...
    @property
    def _timers(self) -> Any: ...


class SourceRate:
    """Any thread may publish. Time is that of the node's clock for measuring, which never goes back."""

    def __init__(self, rate: Rate, priority: int, node: TimedNode) -> None:
        self.rate, self._priority, self._node = rate, priority, node
        self.shed = 0
        self._bucket = TokenBucket(rate.packed())
        self._lock = threading.Lock()

    def take(self, events: int, closed: Callable[[], bool]) -> int:
        """How many of so many events may be published now. The others are shed, or, if they are to wait, at least one
        may, after a while; or all, if the source is closed meanwhile, which says so itself."""
        while True:
            taken, wait = self._try(events)
            if taken or not wait:
                return taken
            self._pause(wait / 1e9, closed)
            if closed():
                return events

    async def atake(self, closed: Callable[[], bool]) -> bool:
        """Whether one event may be published: the same in a coroutine, whose loop goes on."""
        while True:
            taken, wait = self._try(1)
            if taken or not wait:
                return bool(taken)
            changed = threading.Event()
            self._node._timers.call_after(wait / 1e9, changed.set)
            while not changed.is_set() and not closed():
                await asyncio.sleep(min(LOOK_SECONDS, wait / 1e9))
            if closed():
                return True

    def _try(self, events: int) -> tuple[int, int]:
        """How many may go now; and, if none may and they are to wait, for how many nanoseconds."""
        now = round(self._node.clock.now() * 1e9)
        with self._lock:
            taken = self._bucket.take(now, events, self._priority)
            if self.rate.waits:
                return taken, 0 if taken else max(1, self._bucket.wait(now, self._priority))
            self.shed += events - taken
            return taken, 0

    def _pause(self, seconds: float, closed: Callable[[], bool]) -> None:
        """Until then, by the node's clock: a timer says so, unless the clock is that of the machine. It may be that it
        is the thread of the timers that waits."""
        over = threading.Event()
        if isinstance(self._node.clock, SystemClock):
            while seconds > 0 and not closed():
                over.wait(min(seconds, LOOK_SECONDS))
                seconds -= LOOK_SECONDS
            return
        self._node._timers.call_after(seconds, over.set)
        while not over.wait(LOOK_SECONDS) and not closed():
            pass


__all__ = ["SourceRate"]
