"""Dispatching on an asyncio loop: handlers run in the loop's thread, coroutine handlers as tasks.

Items may be made ready in any thread. A turn of the loop runs a few of them, a few events each, so that the loop stays
responsive to everything else that lives on it.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from contextlib import suppress

from headwater.channel.dispatch.dispatcher import (
    ABORTED,
    DRAINING,
    ENDED,
    OPEN,
    Dispatchable,
    DispatchStatus,
    Phase,
    left,
    timed,
)
from headwater.late import asyncio

log = logging.getLogger(__name__)

BUDGET = 16  # events of one item in a turn
TURN = 16  # items in a turn of the loop
RECHECK_SECONDS = 0.05  # seconds after which a thread that waits for the loop looks whether that is still there
GRACE = 1.0  # seconds that a loop may stand still before such a thread no longer counts on it


class LoopDispatcher:
    """Runs items on a loop that someone else owns and runs.

    If the owner closes the loop first, what was ready is given up: logged, and counted as lost.
    """

    inline = False

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.loop = name, loop
        self._context = contextvars.copy_context()  # handlers do not see the context of whoever publishes
        self._lock = threading.Lock()  # never held while an item runs
        self._progress = threading.Condition(self._lock)
        self._waiters: set[asyncio.Future[None]] = set()  # the same for coroutines
        self._phase: Phase = OPEN
        self._items: deque[Dispatchable] = deque()
        self._turn_due = False
        self._running = 0  # items being run, tasks included
        self._closing = 0  # of those, how many are in `close` or `aclose`
        self._tasks: set[asyncio.Task[bool]] = set()  # the loop itself holds them only weakly
        self._in_item = False  # whether the loop's thread is in an item that is no task
        self._lost = self._peak_waiting = 0
        self._told = False

    # ── in ──

    def ready(self, item: Dispatchable) -> None:
        with self._lock:
            if self._phase >= ENDED:
                self._lost += 1
                return
            self._items.append(item)
            self._peak_waiting = max(self._peak_waiting, len(self._items))
            call = not self._turn_due
            self._turn_due = True
        if call:
            self._call_turn()
        elif self.loop.is_closed():
            self._give_up()

    def _call_turn(self) -> None:
        call = self.loop.call_soon if self.here() else self.loop.call_soon_threadsafe
        try:
            call(self._turn, context=self._context)
        except RuntimeError:  # the loop is closed
            self._give_up()

    def _give_up(self) -> None:
        """The loop is closed: nothing will run any more."""
        with self._lock:
            lost = len(self._items) + self._running
            self._items.clear()
            self._tasks.clear()
            self._running = 0
            self._turn_due = False
            self._lost += lost
            told, self._told = self._told, True
            self._notify()
        if not told:
            log.error(
                "the asyncio loop of %s was closed before the node: its sinks get no more events. "
                "Close the node first, or open it on another loop",
                self.name,
            )

    def urgent(self, item: Dispatchable) -> None:
        """Items run in order of arrival."""

    def here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def stuck(self, *, waits: bool = False) -> bool:
        return self.here()

    def goes_on(self) -> None:
        """Nobody counts those who wait: the loop's own thread never does."""

    # ── at work, in the loop's thread ──

    def _turn(self) -> None:
        try:
            for _ in range(TURN):
                with self._lock:
                    if not self._items:
                        break
                    item = self._items.popleft()
                    self._running += 1
                if item.coroutine:
                    self._start(item)
                else:
                    self._run(item)
        finally:
            with self._lock:
                self._turn_due = call = bool(self._items)
            if call:
                self._call_turn()

    def _run(self, item: Dispatchable) -> None:
        more, failed = False, True
        self._in_item = True
        try:
            more = item.run(BUDGET)
            failed = False
        except Exception as error:
            self._log(error)
        finally:
            self._in_item = False
            self._done(item, more=more, failed=failed)

    def _start(self, item: Dispatchable) -> None:
        def done(task: asyncio.Task[bool]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._log(error)
            self._done(item, more=False, failed=task.cancelled() or error is not None or not task.result())

        task = self.loop.create_task(self._serve(item), name=f"headwater-{self.name}")
        self._tasks.add(task)
        task.add_done_callback(done)  # also runs if the task is cancelled before its first step

    async def _serve(self, item: Dispatchable) -> bool:
        """Whether the item has come to rest."""
        while await item.arun(BUDGET):
            if self._phase is ABORTED:
                return False
            await asyncio.sleep(0)
        return True

    def _log(self, error: BaseException) -> None:
        log.error("an item of %s raised, which it must not: it is given up", self.name, exc_info=error)

    def _done(self, item: Dispatchable, *, more: bool, failed: bool) -> None:
        with self._lock:
            self._running -= 1
            if more and self._phase is not ABORTED:
                self._items.append(item)  # the turn that we are in comes round again
            elif more or failed:
                self._lost += 1
            if self._phase is not OPEN:
                self._over()
                self._notify()

    # ── the end ──

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        """As every dispatcher's. In the loop's own thread it cannot wait for what the loop has still to do.

        There it says whether all is done already; if not, the loop comes to the end behind the caller, and what has not
        run after `timeout` is given up. `aclose` waits.
        """
        self._begin_end(drain=drain)
        if self.here():
            with self._lock:
                done = self._over(caller=self._within())
            if not done and timeout is not None:
                self.loop.call_later(timeout, self._abort)
            return done
        end = timed(timeout)
        still: float | None = None  # since when the loop stands still
        while True:
            with self._lock:
                if self._progress.wait_for(
                    self._over, min(RECHECK_SECONDS, RECHECK_SECONDS if end is None else left(end) or 0.0)
                ):
                    return True
            now = time.monotonic()
            still = None if self.loop.is_running() else (still or now)
            if self.loop.is_closed():
                self._give_up()
            elif (end is None or now < end) and (still is None or now - still < GRACE):
                continue
            self._abort()
            return False

    async def aclose(self, *, drain: bool, timeout: float | None) -> bool:
        """The same, to be awaited: on the loop, also by a handler, which does not wait for itself; or on any other."""
        if not self.here():
            return await asyncio.to_thread(self.close, drain=drain, timeout=timeout)
        self._begin_end(drain=drain)
        end, caller = timed(timeout), self._within()
        with self._lock:
            self._closing += caller
            self._notify()
        try:
            while True:
                with self._lock:
                    if self._over():
                        return True
                    waiter = self.loop.create_future()
                    self._waiters.add(waiter)
                try:
                    await asyncio.wait_for(waiter, left(end))
                except TimeoutError:
                    self._abort()
                    return False
                finally:
                    with self._lock:
                        self._waiters.discard(waiter)
        finally:
            with self._lock:
                self._closing -= caller

    def _begin_end(self, *, drain: bool) -> None:
        with self._lock:
            if not drain:
                self._phase = ABORTED
                self._lost += len(self._items)
                self._items.clear()
            elif self._phase is OPEN:
                self._phase = DRAINING
            self._notify()

    def _within(self) -> bool:
        """In the loop's thread: whether the caller is an item of ours."""
        return self._in_item or asyncio.current_task() in self._tasks

    def _over(self, *, caller: bool = False) -> bool:
        """Whether nothing waits, and nothing runs but those who close (and the caller, if it is an item)."""
        if self._phase is DRAINING and not self._items and not self._running:
            self._phase = ENDED
        return not self._items and self._running <= self._closing + caller

    def _abort(self) -> None:
        """The time is up: nothing more runs, and tasks are cancelled."""
        self._begin_end(drain=False)
        if self.here():
            self._cancel()
        else:
            with suppress(RuntimeError):  # the loop is closed, and so are its tasks
                self.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    def _notify(self) -> None:
        self._progress.notify_all()
        if self._waiters:
            if self.here():
                self._wake()
            else:
                with suppress(RuntimeError):  # the loop is closed: nobody waits there
                    self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def status(self) -> DispatchStatus:
        with self._lock:
            return DispatchStatus(
                strategy="asyncio",
                threads=0,
                waiting=len(self._items),
                running=self._running,
                peak_threads=0,
                peak_waiting=self._peak_waiting,
                lost=self._lost,
                closed=self._phase is not OPEN,
            )
