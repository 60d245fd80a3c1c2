"""Dispatching in threads of the service's own: a pool that grows and shrinks with its backlog, in three orders.

Items that are ready wait in one queue. In order of arrival each runs a while and goes to the end of the queue; by
priority or by deadline the most urgent item runs first, one event at a time, so that something more urgent never waits
for more than the events being handled. (What is never urgent enough may then wait as long as more urgent events come.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from headwater.channel.dispatch.dispatcher import (
    ABORTED,
    BUDGET,
    DRAINING,
    ENDED,
    OPEN,
    Dispatchable,
    DispatchStatus,
    Phase,
    left,
    timed,
)
from headwater.threads import Supervised

log = logging.getLogger(__name__)


class Order(Protocol):
    """The queue of ready items. Used under its dispatcher's lock, except `key`."""

    def key(self, item: Dispatchable) -> float:
        """Where the item belongs: smaller keys first."""

    def put(self, item: Dispatchable, key: float) -> None: ...

    def take(self) -> Dispatchable:
        """The first item. There is one."""

    def raise_(self, item: Dispatchable, key: float) -> None:
        """Move an item forward to `key`, if it is in the queue and not as far ahead already."""

    def clear(self) -> int:
        """Forget all; how many there were."""

    def __len__(self) -> int: ...


class Arrival:
    """First come, first served."""

    budget = BUDGET

    def __init__(self) -> None:
        self._items: deque[Dispatchable] = deque()

    def key(self, item: Dispatchable) -> float:
        return 0.0

    def put(self, item: Dispatchable, key: float) -> None:
        self._items.append(item)

    def take(self) -> Dispatchable:
        return self._items.popleft()

    def raise_(self, item: Dispatchable, key: float) -> None:
        """All are equal."""

    def clear(self) -> int:
        gone = len(self._items)
        self._items.clear()
        return gone

    def __len__(self) -> int:
        return len(self._items)


class Urgency:
    """The most urgent first, by a key; those equally urgent in order of arrival."""

    budget = 1

    def __init__(self, key: Callable[[tuple[int, float]], float]) -> None:
        self._of = key
        self._arrivals = count()
        self._heap: list[tuple[float, int, Dispatchable]] = []
        self._entries: dict[int, tuple[float, int, Dispatchable]] = {}  # by id(item); what else is in the heap is void

    def key(self, item: Dispatchable) -> float:
        return self._of(item.urgency())

    def put(self, item: Dispatchable, key: float) -> None:
        self._enter((key, next(self._arrivals), item))

    def _enter(self, entry: tuple[float, int, Dispatchable]) -> None:
        self._entries[id(entry[2])] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 64 + 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def take(self) -> Dispatchable:
        while True:
            entry = heappop(self._heap)
            if self._entries.get(id(entry[2])) is entry:
                del self._entries[id(entry[2])]
                return entry[2]

    def raise_(self, item: Dispatchable, key: float) -> None:
        entry = self._entries.get(id(item))
        if entry is not None and key < entry[0]:
            self._enter((key, entry[1], item))

    def clear(self) -> int:
        gone = len(self._entries)
        self._entries.clear()
        self._heap.clear()
        return gone

    def __len__(self) -> int:
        return len(self._entries)


def by_priority() -> Urgency:
    """Higher priorities first."""
    return Urgency(lambda urgency: -urgency[0])


def by_deadline() -> Urgency:
    """Earlier deadlines first."""
    return Urgency(lambda urgency: urgency[1])


class ThreadDispatcher:
    """Runs items in daemon threads, started when there is something to do and all gone after `close`.

    The backlog is what waits and no thread is about to take. Up to `minimum` threads are started for any backlog; above
    that the pool grows by one when the backlog is more than `high`, and a thread leaves when it has not been more than
    `low` for `idle` seconds. The last thread never leaves anything waiting.
    """

    inline = False

    def __init__(
        self,
        name: str,
        strategy: str,
        order: Arrival | Urgency,
        *,
        minimum: int,
        maximum: int,
        low: int,
        high: int,
        idle: float,
    ) -> None:
        self.name, self._strategy, self._order = name, strategy, order
        self._minimum, self._maximum, self._low, self._high, self._idle = minimum, maximum, low, high, idle
        self._lock = threading.Lock()  # never held while an item runs, nor while it says how urgent it is
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)  # for those who close
        self._phase: Phase = OPEN
        self._threads: set[threading.Thread] = set()
        self._leaving: list[threading.Thread] = []  # no longer at work, perhaps not quite gone
        self._spare = 0  # threads that wait for something to do, or are about to look
        self._running = 0
        self._closing = 0  # of those running, how many are in `close`
        self._blocked = 0  # and how many wait for room in a queue
        self._busy = time.monotonic()  # when the backlog was last seen above the low water mark
        self._numbers = count(1)
        self._peak_threads = self._peak_waiting = self._lost = 0

    # ── in ──

    def ready(self, item: Dispatchable) -> None:
        assert not item.coroutine, "a coroutine handler needs an asyncio loop"
        key = self._order.key(item)
        with self._lock:
            if self._phase >= ENDED:
                self._lost += 1
                return
            self._put(item, key)
        self._ask_again(item, key)

    def urgent(self, item: Dispatchable) -> None:
        key = self._order.key(item)
        with self._lock:
            self._order.raise_(item, key)

    def _ask_again(self, item: Dispatchable, key: float) -> None:
        """What came between asking for the key and queueing the item was announced in vain."""
        if (again := self._order.key(item)) < key:
            with self._lock:
                self._order.raise_(item, again)

    def _put(self, item: Dispatchable, key: float) -> None:
        self._order.put(item, key)
        waiting = len(self._order)
        self._peak_waiting = max(self._peak_waiting, waiting)
        if self._spare:
            self._work.notify()
        if self._phase is not OPEN:
            self._progress.notify_all()  # a handler that closes the dispatcher may take it
        backlog = waiting - self._spare
        if backlog > self._low:
            self._busy = time.monotonic()
        if backlog > 0:
            threads = len(self._threads)
            if threads < max(1, self._minimum) or (backlog > self._high and threads < self._maximum):
                self._grow()

    def _grow(self) -> None:
        thread = Supervised(self._serve, f"headwater-{self.name}-{next(self._numbers)}", again=lambda: True)
        self._threads.add(thread)  # first: what interrupts us (Ctrl-C) does not stop a thread that has started
        self._spare += 1
        try:
            thread.start()  # waits until the thread exists, not until it gets our lock
        except RuntimeError:
            self._threads.remove(thread)
            self._spare -= 1
            log.exception("%s: no thread could be started beside the %d at work", self.name, len(self._threads))
            return
        self._peak_threads = max(self._peak_threads, len(self._threads))

    # ── at work ──

    def _serve(self) -> None:
        while (item := self._take()) is not None:
            self._run(item, then_spare=1)

    def _take(self) -> Dispatchable | None:
        """The next item to run, or None when this thread is to leave."""
        with self._lock:
            while not self._over():
                waiting, threads = len(self._order), len(self._threads)
                spare = waiting - self._spare + 1 <= self._low and (not waiting or threads > 1)
                patience = self._busy + self._idle - time.monotonic() if threads > self._minimum and spare else None
                if patience is not None and patience <= 0:
                    break
                if waiting:
                    self._spare -= 1
                    self._running += 1
                    return self._order.take()
                self._work.wait(patience)
            self._spare -= 1
            if len(self._order):
                self._work.notify()  # this thread may have been woken for it
            self._leaving = [thread for thread in self._leaving if thread.is_alive()]
            self._threads.remove(threading.current_thread())
            self._leaving.append(threading.current_thread())
            self._progress.notify_all()
            return None

    def _run(self, item: Dispatchable, *, then_spare: int = 0) -> None:
        """Run an item a while, and queue it again if it has more. It is among those running when this is called."""
        more, key, failed = False, 0.0, False
        try:
            more = item.run(self._order.budget)
            key = self._order.key(item) if more else 0.0
        except BaseException:  # whatever it is, the thread goes on
            log.exception("an item of %s raised, which it must not: it is given up", self.name)
            more, failed = False, True
        with self._lock:
            self._running -= 1
            self._spare += then_spare
            queued = more and self._phase is not ABORTED
            if queued:
                self._put(item, key)
            elif more or failed:
                self._lost += 1
            if self._phase is not OPEN:
                self._progress.notify_all()
        if queued:
            self._ask_again(item, key)

    def _over(self) -> bool:
        """Whether there is nothing more to do, for good."""
        if self._phase is DRAINING and not self._running and not len(self._order):
            self._phase = ENDED
            self._work.notify_all()
        return self._phase >= ENDED

    # ── the end ──

    def here(self) -> bool:
        return threading.current_thread() in self._threads

    def stuck(self, *, waits: bool = False) -> bool:
        if not self.here():
            return False
        with self._lock:
            if len(self._order) > self._spare and len(self._threads) < self._maximum:
                self._grow()  # whatever the water marks say: what waits may be what the caller waits for
            if len(self._threads) - self._blocked <= 1:
                return True
            self._blocked += waits
            return False

    def goes_on(self) -> None:
        if self.here():
            with self._lock:
                self._blocked -= 1

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        """As `Dispatcher.close`. A thread of the pool that closes it does not wait for itself: it works on what is
        left, and the others are waited for."""
        end = timed(timeout)
        with self._lock:
            if not drain:
                self._abort()
            elif self._phase is OPEN:
                self._phase = DRAINING
            self._work.notify_all()
            if not self._threads and not self._over():
                self._grow()
            if own := self.here():
                in_time = self._close_from_within(end)
            else:
                in_time = self._progress.wait_for(lambda: not self._threads, left(end))
            # Not a moment later: what is made ready after that is for whoever closes next, and not to be given up.
            clean = self._phase is ABORTED or not len(self._order)
            if not in_time or not clean:
                self._abort()
            leaving = [] if own else list(self._leaving)
        for thread in leaving:
            thread.join(1.0)  # it has nothing left to do but to end
        return in_time and clean

    def _close_from_within(self, end: float | None) -> bool:
        """Help the others to come to the end, and wait for all that do not wait for the end as well.

        Under the lock, which is free while an item runs."""
        self._closing += 1
        self._progress.notify_all()
        try:
            while True:
                in_time = self._progress.wait_for(lambda: len(self._order) or self._running <= self._closing, left(end))
                if not len(self._order) or (end is not None and time.monotonic() >= end):
                    return bool(in_time) and not len(self._order)
                self._running += 1
                item = self._order.take()
                self._lock.release()
                try:
                    self._run(item)
                finally:
                    self._lock.acquire()
        finally:
            self._closing -= 1

    def _abort(self) -> None:
        self._phase = ABORTED
        self._lost += self._order.clear()
        self._work.notify_all()

    def status(self) -> DispatchStatus:
        with self._lock:
            return DispatchStatus(
                strategy=self._strategy,
                threads=len(self._threads),
                waiting=len(self._order),
                running=self._running,
                peak_threads=self._peak_threads,
                peak_waiting=self._peak_waiting,
                lost=self._lost,
                closed=self._phase is not OPEN,
            )
