"""A bounded queue as publishers see it: where their events wait, and how to wait for room there.

There are two: the mailbox of a subscription, and the lane of a source to another node. Both go into the node's set of
full queues while they make publishers wait, or fail, and both are told to `dispatch` when they have taken something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.options.config import Queue

RECHECK_SECONDS = 1.0  # a notification can be lost to Ctrl-C: who waits looks again this often


HERE = ("", 0)
ABSENT = ("", -1)
UNKNOWN = ("", -2)


class BoundedQueue(Protocol):
    """What a publisher needs of where its events wait."""

    @property
    def destination(self) -> tuple[str, int]:
        """The node that its events go to, and which run of it; or HERE, if they stay; ABSENT, if that one is not there
        now; UNKNOWN, if they go to several."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def queue(self) -> Queue:
        """Its limit and policy."""
        ...

    @property
    def inline(self) -> bool:
        """Whether it is emptied in the publisher's thread."""
        ...

    @property
    def dispatcher(self) -> Any:
        """Who empties it, where that is a strategy of this node; else None."""
        ...

    @property
    def waiting(self) -> int:
        """Events that wait."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait, or fail."""
        ...

    def dispatch(self) -> None:
        """Something was put in: have it delivered. Called when no lock is held."""
        ...

    def give_way(self) -> bool:
        """It is full, and its publisher about to wait, between two events: whether there is another way for those."""
        ...

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Block until the condition holds; it is looked at whenever the queue changes. False if it took longer."""
        ...

    def change(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future of that loop which is done when the queue changes next."""
        ...


class Waiters:
    """Threads and coroutines that wait for a queue to change.

    `condition` has the lock under which it changes; `on_change` is called under it when someone comes to wait, or does
    no more."""

    __slots__ = ("_on_change", "condition", "futures", "threads")

    def __init__(self, condition: threading.Condition, on_change: Callable[[], None] = lambda: None) -> None:
        self.condition, self._on_change = condition, on_change
        self.threads = 0
        self.futures: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def wait(
        self, until: Callable[[], bool], timeout: float | None, meanwhile: Callable[[float], bool] | None = None
    ) -> bool:
        """Until the condition holds; False if that takes longer. `meanwhile` is called, without the lock, with the
        seconds that there are: for a thread that must see itself to what it waits for. It says whether it did."""
        end = None if timeout is None else monotonic() + timeout
        with self.condition:
            self.threads += 1
            self._on_change()
            try:
                while not until():
                    left = RECHECK_SECONDS if end is None else min(RECHECK_SECONDS, end - monotonic())
                    if left <= 0:
                        return False
                    if meanwhile is not None:
                        self.condition.release()
                        try:
                            did = meanwhile(left)
                        finally:
                            self.condition.acquire()
                        if did or until():
                            continue
                        left = left if end is None else min(left, end - monotonic())
                    self.condition.wait(left)
                return True
            finally:
                self.threads -= 1
                self._on_change()

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """One of that loop, which is done at the next change. Who waits no more cancels it."""
        future: asyncio.Future[None] = loop.create_future()
        with self.condition:
            self.futures = [(other, theirs) for other, theirs in self.futures if not theirs.done()]
            self.futures.append((loop, future))
            self._on_change()
        return future

    def notify(self) -> None:
        """There was a change; called under the lock."""
        if self.threads:
            self.condition.notify_all()
        if self.futures:
            futures, self.futures = self.futures, []
            for loop, future in futures:
                with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
