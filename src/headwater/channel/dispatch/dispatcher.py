"""Which thread hands events to their sinks: what a dispatcher and its items promise, and dispatching in place.

An item is a mailbox. Whoever makes an idle item ready gives it to the dispatcher, which runs it, in one thread at a
time, until it says that nothing more waits. The strategies: here (`InlineDispatcher`), threads in `pool.py`, an asyncio
loop in `event_loop.py`; a user picks one by a value of `options/config.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

log = logging.getLogger(__name__)

DEPTH = 8  # how deep items nest in one thread before they wait their turn
BUDGET = 64  # events that an item may deliver before others have their turn


class Dispatchable(Protocol):
    """Something with events to deliver: a mailbox."""

    @property
    def coroutine(self) -> bool:
        """Whether `arun` is to be used: the handler is a coroutine function."""

    def run(self, budget: int) -> bool:
        """Deliver up to `budget` events in the calling thread; True if more waits. Never raises."""

    async def arun(self, budget: int) -> bool:
        """The same for a coroutine handler, on an asyncio loop."""

    def urgency(self) -> tuple[int, float]:
        """Of the most urgent waiting event, the priority and the deadline (infinite for none).

        Asked at any time by any thread, also when nothing waits, and never under a lock of the dispatcher.
        """


@dataclass(frozen=True, slots=True)
class DispatchStatus:
    """What a dispatcher is doing."""

    strategy: str
    threads: int  # of its own, now
    waiting: int  # items that are ready and have no thread yet
    running: int  # items being run
    peak_threads: int
    peak_waiting: int
    lost: int  # items that were given up: made ready too late, or still waiting when the end came
    closed: bool

    def __str__(self) -> str:
        parts = [f"{self.strategy}{', closed' if self.closed else ''}"]
        if self.threads or self.peak_threads:
            parts.append(f"{self.threads} threads (at most {self.peak_threads} so far)")
        if self.running or self.waiting or self.peak_waiting:
            parts.append(f"{self.running} subscriptions served, {self.waiting} waiting (at most {self.peak_waiting})")
        if self.lost:
            parts.append(f"{self.lost} given up")
        return ", ".join(parts)


class Dispatcher(Protocol):
    """A strategy at work. Every method may be called from any thread, and from a handler."""

    @property
    def inline(self) -> bool:
        """Whether items run in the thread that makes them ready."""

    def ready(self, item: Dispatchable) -> None:
        """An idle item has something to do: from now on the dispatcher owns it, and runs it until it is idle again."""

    def urgent(self, item: Dispatchable) -> None:
        """An item that waits has got something more urgent."""

    def here(self) -> bool:
        """Whether the calling thread is one of its own, so that waiting for it would be waiting for oneself."""

    def stuck(self, *, waits: bool = False) -> bool:
        """Whether nobody would be left to run items if the calling thread waited now. Asked before waiting for room.

        With `waits`, a caller that is not stuck does wait, and calls `goes_on` afterwards.
        """

    def goes_on(self) -> None:
        """The calling thread waits no more."""

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        """End it: after everything ready has run (`drain`), or after what runs just now. True if it ended in time.

        What has not run when the time is up is given up. A handler may call this too: it does not wait for itself, nor
        for other handlers that do the same. Calling it again is harmless, and waits again.
        """

    def status(self) -> DispatchStatus: ...


class Phase(IntEnum):
    """How far the end has come."""

    OPEN = 0
    DRAINING = 1  # runs what is ready and what that makes ready
    ENDED = 2  # drained: takes nothing more
    ABORTED = 3  # gives up what it has, too


OPEN, DRAINING, ENDED, ABORTED = Phase  # looking up a member of an enumeration takes longer than the rest of a check


class _Here:
    """What one thread is doing."""

    __slots__ = ("depth", "later")

    def __init__(self) -> None:
        self.depth = 0
        self.later: deque[_Later] = deque()


class _Later:
    """An item put off, because the thread that made it ready was too deep in other items."""

    __slots__ = ("dispatcher", "item")

    def __init__(self, dispatcher: InlineDispatcher, item: Dispatchable) -> None:
        self.dispatcher, self.item = dispatcher, item


class _Local(threading.local):
    def __init__(self) -> None:
        self.here = _Here()


_local = _Local()  # of all inline dispatchers together: a chain of handlers may lead through several nodes


class InlineDispatcher:
    """Runs an item in the thread that makes it ready, before `ready` returns.

    Handlers that publish nest; at a depth of 8 items wait until the thread is out of the others again, so that a chain
    of handlers without end takes time and not the stack. They still run before the outermost `ready` returns.
    """

    inline = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._phase: Phase = OPEN
        # Who runs or puts off what, and in which thread. Changed without a lock, as single operations on a dict, so
        # that an event costs little; whoever closes sets the phase before looking here, and whoever leaves looks at the
        # phase after leaving, so one of the two sees the other.
        self._active: dict[object, _Here] = {}
        self._ended = threading.Condition()
        self._closers: list[_Here] = []
        self._lost = 0
        self._peak = 0

    def ready(self, item: Dispatchable) -> None:
        assert not item.coroutine, "a coroutine handler needs an asyncio loop"
        here = _local.here
        if here.depth >= DEPTH:
            self._put_off(item, here)
            return
        try:
            self._run(item, here, DRAINING)
        finally:
            if here.later and not here.depth:
                _catch_up(here)

    def _put_off(self, item: Dispatchable, here: _Here) -> None:
        later = _Later(self, item)
        self._active[later] = here
        if self._phase >= ENDED:
            self._lose()
            self._leave(later)
        else:
            here.later.append(later)
            self._peak = max(self._peak, len(here.later))

    def _run(self, item: Dispatchable, here: _Here, until: Phase) -> None:
        """Empty an item in the calling thread, and be counted as active meanwhile, so that a close can wait for it.
        From the phase after `until` on nothing is run any more: the item is lost."""
        active = self._active
        outer = here not in active
        if outer:
            active[here] = here
        here.depth += 1
        try:
            if self._phase > until:
                self._lose()
            else:
                while item.run(BUDGET):
                    if self._phase is ABORTED:
                        self._lose()
                        break
        except Exception:
            log.exception("an item of %s raised, which it must not: it is given up", self.name)
            self._lose()
        finally:
            here.depth -= 1
            if outer:
                del active[here]
                if self._phase is not OPEN:
                    self._tell()

    def _leave(self, later: _Later) -> None:
        del self._active[later]
        if self._phase is not OPEN:
            self._tell()

    def _tell(self) -> None:
        with self._ended:
            self._ended.notify_all()

    def _lose(self) -> None:
        with self._ended:
            self._lost += 1

    def urgent(self, item: Dispatchable) -> None:
        """Nothing waits here that could be put first."""

    def here(self) -> bool:
        return _local.here in self._active

    def stuck(self, *, waits: bool = False) -> bool:
        return any(later.dispatcher is self for later in _local.here.later)  # only this thread will come to those

    def goes_on(self) -> None:
        """Nobody counts those who wait."""

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        here, end = _local.here, timed(timeout)
        with self._ended:
            if not drain:
                self._phase = ABORTED
            elif self._phase is OPEN:
                self._phase = DRAINING
            self._closers.append(here)
            self._ended.notify_all()
            try:
                while self._ended.wait_for(lambda: not self._others(here), left(end)):
                    before, self._phase = self._phase, max(self._phase, ENDED)
                    if not self._others(here):
                        return True
                    self._phase = before  # an item was made ready in between
                self._phase = ABORTED
                return False
            finally:
                self._closers.remove(here)

    def _others(self, here: _Here) -> bool:
        return any(other is not here and other not in self._closers for other in list(self._active.values()))

    def status(self) -> DispatchStatus:
        active = list(self._active.items())
        waiting = sum(key is not here for key, here in active)
        return DispatchStatus(
            strategy="inline",
            threads=0,
            waiting=waiting,
            running=len(active) - waiting,
            peak_threads=0,
            peak_waiting=self._peak,
            lost=self._lost,
            closed=self._phase is not OPEN,
        )


def _catch_up(here: _Here) -> None:
    """Run what was put off in this thread, which has come out of everything else."""
    while here.later:
        later = here.later.popleft()
        try:
            # A handler of this thread may have drained and ended the dispatcher meanwhile: this was ready before.
            later.dispatcher._run(later.item, here, ENDED)
        finally:
            later.dispatcher._leave(later)


def timed(timeout: float | None) -> float | None:
    """The moment at which a timeout is over."""
    return None if timeout is None else time.monotonic() + timeout


def left(deadline: float | None) -> float | None:
    """The seconds until then."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
