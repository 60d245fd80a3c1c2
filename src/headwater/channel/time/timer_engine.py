"""The timer engine of a node: functions that run once at a time, or over and over at a period.

    timers = Timers(clock, "node-1")
    timers.call_after(5.0, check)                     # once
    beat = timers.every(1.0, tick, priority=10)       # tick(due, missed), without drift
    beat.cancel()
    timers.close()

Of the timers that are due at one moment, those of higher priority run first. All of a node's timers run in one thread,
which exists only while there are timers; over a `ManualClock` there is no thread, and they run in `clock.advance`.
Functions should be quick: they delay the others, though never their due times.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from headwater.channel.time.clock import Clock, ManualClock, to_nanosecond
from headwater.errors import ClosedError
from headwater.threads import Supervised

log = logging.getLogger(__name__)

LINGER = 5.0  # seconds that the thread stays when there are no more timers
_serial = count()  # of all engines, so that timers of several nodes on one clock keep the order they were set in


class Handle:
    """A timer that was set; `cancel()` takes it back."""

    __slots__ = ("_engine", "_first", "_fn", "_turn", "due", "period", "priority", "serial")

    def __init__(
        self, engine: Timers, fn: Callable[..., object], due: float, period: float | None, priority: int
    ) -> None:
        self._engine = engine
        self._fn: Callable[..., object] | None = fn
        self._first = self.due = due
        self._turn = 0  # of a periodic timer: due = first + turn * period, so that no error adds up
        self.period = period
        self.priority = priority
        self.serial = next(_serial)

    @property
    def active(self) -> bool:
        """Whether it will run (again)."""
        return self._fn is not None

    def cancel(self) -> bool:
        """It runs no more. False if that was so already; a run that has begun in another thread goes on."""
        return self._engine._cancel(self)

    def _catch_up(self, now: float) -> int:
        """Move to the latest due time not after `now`; how many due times were passed over."""
        assert self.period is not None
        missed = 0
        if self._at(self._turn + 1) <= now:
            turn = max(self._turn, math.floor((now - self._first) / self.period))
            while self._at(turn) > now:  # the division may be a bit off either way
                turn -= 1
            while self._at(turn + 1) <= now:
                turn += 1
            missed, self._turn = turn - self._turn, turn
            self.due = self._at(turn)
        return missed

    def _next(self) -> None:
        self._turn += 1
        self.due = self._at(self._turn)

    def _at(self, turn: int) -> float:
        assert self.period is not None
        return to_nanosecond(self._first + turn * self.period)

    def __repr__(self) -> str:
        every = f" every {self.period} s" if self.period is not None else ""
        return f"<timer of {self._engine.name} due at {self.due}{every}{'' if self.active else ', done'}>"


class Timers:
    """The timers of one node. Every method may be called from any thread, and from a timer's own function."""

    def __init__(self, clock: Clock, name: str, *, on_error: Callable[[BaseException], object] | None = None) -> None:
        """`on_error` hears of every exception that a timer's function raises; it is logged as well."""
        self.clock, self.name, self.on_error = clock, name, on_error
        self._lock = threading.Lock()  # never held while a timer runs
        self._changed = threading.Condition(self._lock)
        self._waiting: list[tuple[float, int, Handle]] = []  # a heap by due time
        self._due: list[tuple[int, float, int, Handle]] = []  # a heap by rank: those whose time has come
        self._cancelled = 0  # entries of the two heaps that are no more than a memory
        self._closed = False
        self._thread: threading.Thread | None = None
        self._manual = clock if isinstance(clock, ManualClock) else None
        if self._manual is not None:
            self._manual.enter(self)

    # ── setting timers ──

    def call_at(self, when: float, fn: Callable[[], object], *, priority: int = 0) -> Handle:
        """Call `fn()` once, when the clock's `now()` reaches `when`; as soon as possible if it has."""
        return self._add(Handle(self, fn, to_nanosecond(_finite("when", when)), None, priority))

    def call_after(self, seconds: float, fn: Callable[[], object], *, priority: int = 0) -> Handle:
        """Call `fn()` once, so many seconds from now."""
        return self.call_at(self.clock.now() + _finite("seconds", seconds), fn, priority=priority)

    def every(
        self, period: float, fn: Callable[[float, int], object], *, priority: int = 0, first: float | None = None
    ) -> Handle:
        """Call `fn(due, missed)` at `first`, `first + period`, `first + 2 * period` and so on, until cancelled.

        `first` is a time of the clock: one period from now unless given. When calls come late, or `fn` takes longer
        than a period, the due times that have passed are one call: `due` is the latest of them and `missed` the number
        of the others.
        """
        if _finite("period", period) < 1e-9:
            raise ValueError(f"a timer's period must be a nanosecond or more, found {period!r} seconds")
        start = self.clock.now() + period if first is None else _finite("first", first)
        return self._add(Handle(self, fn, to_nanosecond(start), float(period), priority))

    def _add(self, handle: Handle) -> Handle:
        with self._lock:
            if self._closed:
                raise ClosedError(f"the timers of {self.name} are closed: no new ones can be set")
            try:
                self._push(handle)
            except RuntimeError:  # no thread could be started
                handle._fn = self._thread = None
                raise
        return handle

    def _push(self, handle: Handle) -> None:
        heappush(self._waiting, (handle.due, handle.serial, handle))
        if self._manual is None:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Supervised(self._serve, f"headwater-{self.name}-timers", again=lambda: not self._closed)
                self._thread.start()
            elif self._waiting[0][2] is handle:
                self._changed.notify_all()

    def _cancel(self, handle: Handle) -> bool:
        with self._lock:
            if handle._fn is None:
                return False
            handle._fn = None
            self._cancelled += 1  # at most: one that runs just now is in no heap
            if self._cancelled > 64 and self._cancelled * 2 > len(self._waiting) + len(self._due):
                self._waiting = [entry for entry in self._waiting if entry[-1].active]
                self._due = [entry for entry in self._due if entry[-1].active]
                heapify(self._waiting)
                heapify(self._due)
                self._cancelled = 0
            return True

    # ── running them ──

    def earliest(self) -> float | None:
        """When the next timer falls due."""
        with self._lock:
            return self._earliest()

    def first(self, now: float) -> tuple[int, float, int] | None:
        """The rank of the timer that is to run first at `now`, if one is due."""
        with self._lock:
            return self._due[0][:3] if self._collect(now) else None

    def fire(self, now: float) -> None:
        """Run that timer in the calling thread."""
        self._fire(now, Exception)

    def _earliest(self) -> float | None:
        _prune(self._waiting)
        _prune(self._due)
        return min((heap[0][-1].due for heap in (self._waiting, self._due) if heap), default=None)

    def _collect(self, now: float) -> bool:
        """Move what is due to the heap of due ones; whether there is any."""
        while self._waiting and self._waiting[0][0] <= now:
            handle = heappop(self._waiting)[2]
            if handle.active:
                heappush(self._due, (-handle.priority, handle.due, handle.serial, handle))
        _prune(self._due)
        return bool(self._due)

    def _fire(self, now: float, caught: type[BaseException]) -> None:
        """Call one timer that is due, with no lock held. One that repeats is put back afterwards, at the next time that
        is still to come: what was missed is told, not made up for."""
        with self._lock:
            if not self._collect(now):
                return
            handle = heappop(self._due)[3]
            fn, missed = handle._fn, 0
            if handle.period is None:
                handle._fn = None
            else:
                missed = handle._catch_up(now)
        assert fn is not None
        try:
            fn() if handle.period is None else fn(handle.due, missed)
        except caught as error:
            self._report(error, fn)
        finally:
            if handle.period is not None:
                with self._lock:
                    if self._closed:
                        handle._fn = None
                    elif handle.active:
                        handle._next()
                        self._push(handle)

    def _report(self, error: BaseException, fn: Callable[..., object]) -> None:
        log.error("a timer of %s raised: %r", self.name, fn, exc_info=error)
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:
                log.exception("the error hook of the timers of %s raised", self.name)

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                now = self.clock.now()
                if not self._collect(now):
                    due = self._earliest()
                    if due is not None:
                        self._changed.wait(min(due - now, threading.TIMEOUT_MAX))
                    elif not self._changed.wait(LINGER) and self._earliest() is None:
                        self._thread = None
                        return
                    continue
            self._fire(now, BaseException)

    # ── the end ──

    def close(self, *, timeout: float = 30.0) -> bool:
        """No timer starts to run after this.

        Waits for the one that runs just now, unless it is the caller; False if that takes longer than `timeout`.
        """
        with self._lock:
            self._closed = True
            for handle in self._handles():
                handle._fn = None
            self._waiting, self._due, self._cancelled = [], [], 0
            self._changed.notify_all()
            thread = self._thread
        if self._manual is not None:
            self._manual.leave(self)
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    @property
    def pending(self) -> int:
        """How many timers are set."""
        with self._lock:
            return sum(handle.active for handle in self._handles())

    def _handles(self) -> list[Handle]:
        return [entry[2] for entry in self._waiting] + [entry[3] for entry in self._due]

    def here(self) -> bool:
        """Whether the calling thread is the engine's own, so that waiting for it would be waiting for oneself."""
        return threading.current_thread() is self._thread


def _prune(heap: list[Any]) -> None:
    while heap and not heap[0][-1].active:
        heappop(heap)


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"a timer's {name} must be a finite number of seconds, found {value!r}")
    return value
