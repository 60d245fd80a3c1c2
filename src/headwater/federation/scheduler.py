"""The node's scheduler: one timer thread, a pool for blocking network calls, and a condition variable for `until`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.federation.worker_pool import Workers
from headwater.late import asyncio
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.threads import Crashes

TICK_SECONDS = 0.02  # between acknowledgements
BEAT_SECONDS = 0.05  # between promises of idle sources
RECHECK_SECONDS = 0.1  # after which a condition that somebody waits for is looked at again in any case


def _yes() -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Routine:
    """Something that is done again and again: at most once in so many seconds, and only while it is wanted."""

    seconds: float
    task: Callable[[], object]
    wanted: Callable[[], bool]
    due: float = 0.0


class Scheduler:
    """`later`, `every` and `work` have something done, `changed` tells those who wait in `until`.

    `closed` says whether it is to end. `ticking`: whether somebody has asked for a tick (`tick_soon`)."""

    def __init__(self, name: str, crashes: Crashes, closed: Callable[[], bool]) -> None:
        self._name, self._crashes, self._closed = name, crashes, closed
        self.ticking = False
        self.watchers: list[Callable[[], None]] = []  # told whenever something has changed: quick, and without waiting
        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._happened = 0
        self._loops: set[Callable[[], object]] = set()  # those of coroutines that wait, to be woken
        self._wake = threading.Event()
        self._tasks: list[tuple[float, Callable[[], object]]] = []
        self._routines: list[_Routine] = []
        self._workers = Workers(f"headwater-{name}-federation")
        self._keeper = Supervised(self._keep, f"headwater-{name}-keeper", crashes, again=lambda: not closed())

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        """End it; its threads are gone then, but for who calls this, and what still waits for the network."""
        self._wake.set()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()
        self._workers.stop()

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def later(self, seconds: float, task: Callable[[], object]) -> None:
        """Have the keeper do something."""
        with self._lock:
            self._tasks.append((monotonic() + seconds, task))
        self._wake.set()

    def every(self, seconds: float, task: Callable[[], object], *, wanted: Callable[[], bool] = _yes) -> None:
        """Have the timer thread do something again and again, in the order in which that was asked for; before
        `start`. It wakes up for it only while it is `wanted`."""
        self._routines.append(_Routine(seconds, task, wanted))

    def tick_soon(self) -> None:
        """Have the routine of ticks done once, within TICK seconds."""
        self.ticking = True
        self._wake.set()

    def _keep(self) -> None:
        """The timer thread: everything that has to wait or come again."""
        while not self._closed():
            now = monotonic()
            with self._lock:
                due = [task for at, task in self._tasks if at <= now]
                self._tasks = [(at, task) for at, task in self._tasks if at > now]
                first = min((at for at, _ in self._tasks), default=now + 1.0)
            for task in due:
                self.guarded(task)
            for each in self._routines:
                if now >= each.due and each.wanted():
                    each.due = now + each.seconds
                    self.guarded(each.task)
            first = min([first, *(each.due for each in self._routines if each.wanted())])
            if not due:
                self._wake.wait(max(0.0, first - monotonic()))
            self._wake.clear()

    def guarded(self, task: Callable[..., Any], *args: Any) -> None:
        try:
            task(*args)
        except BaseException as error:  # one failure must not end the keeper, and must be seen
            if not self._closed():
                self._crashes.note(f"headwater-{self._name}: {_named(task)}", error)

    def changed(self) -> None:
        """Something that someone may be waiting for has happened."""
        self.nudge()
        self.watched()

    def nudge(self) -> None:
        """Who waits is to look again."""
        with self._news:
            self._happened += 1
            self._news.notify_all()
            loops = tuple(self._loops) if self._loops else ()
        for wake in loops:
            wake()

    def watched(self) -> None:
        for watch in list(self.watchers):
            watch()

    def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds; it is looked at whenever something happens in the federation."""
        end = monotonic() + timeout
        while True:
            happened = self._happened
            if condition():  # with no lock held: it may take others
                return True
            left = end - monotonic()
            if left <= 0:
                return False
            with self._news:
                if self._happened == happened:
                    self._news.wait(min(left, RECHECK_SECONDS))

    async def auntil(self, condition: Callable[[], bool], timeout: float) -> bool:
        """The same for a coroutine, whose loop goes on; the condition is looked at on that loop."""
        loop, news, end = asyncio.get_running_loop(), asyncio.Event(), monotonic() + timeout

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(news.set)

        with self._news:
            self._loops.add(wake)
        try:
            while True:
                news.clear()
                if condition():
                    return True
                left = end - monotonic()
                if left <= 0:
                    return False
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), min(left, RECHECK_SECONDS))
        finally:
            with self._news:
                self._loops.discard(wake)

    def work(self, task: Callable[..., Any], *args: Any, on: str = "") -> bool:
        """Do something that may wait for the network: `on` is the node that it waits for. Whether it will be done."""
        with suppress(RuntimeError):
            self._workers.submit(on, partial(self.guarded, task, *args))
            return True
        return False  # it is closed


def _named(task: Callable[..., Any]) -> str:
    """What a task is, for people."""
    found = getattr(task, "func", task)  # of a partial
    return str(getattr(found, "__qualname__", type(found).__name__))
