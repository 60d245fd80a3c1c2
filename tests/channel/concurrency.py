"""What the tests of the service at work share: every dispatch strategy ready to use, and waiting without sleeping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headwater import Channel, Event, Node, Subscription, i64
from headwater.channel.options.config import Dispatch
from headwater.dispatch import AsyncLoop, ByDeadline, ByPriority, Inline, Pool

GUARD = 120.0  # seconds, against hanging; nothing here takes long

STRATEGIES: dict[str, Dispatch] = {
    "inline": Inline(),
    "pool": Pool(maximum=3),
    "pool of one": Pool(maximum=1),
    "priority": ByPriority(maximum=3),
    "deadline": ByDeadline(maximum=3),
    "asyncio": AsyncLoop(),
    "coroutines": AsyncLoop(),
}
THREADED = ("pool", "pool of one", "priority", "deadline")
POLICIES = ("block", "drop_oldest", "drop_newest", "fail")


class Number(Event):
    n: i64
    maker: i64 = 0  # who published it


class Log:
    """A handler that keeps what it gets; a test, in one thread, can wait until it has enough."""

    def __init__(self, then: Callable[[Any], object] | None = None) -> None:
        self.events: list[Any] = []
        self.then = then
        self._wanted = 0
        self._reached = threading.Event()

    def __call__(self, event: Any) -> None:
        self.events.append(event)  # no lock: a stream of events must not keep the test from getting it
        if len(self.events) == self._wanted:
            self._reached.set()
        if self.then is not None:
            self.then(event)

    def wait(self, count: int) -> None:
        self._reached.clear()
        self._wanted = count
        if len(self.events) < count:
            assert self._reached.wait(GUARD), f"only {len(self.events)} of {count} came"

    @property
    def numbers(self) -> list[int]:
        return [event.n for event in self.events]

    def of(self, maker: int) -> list[int]:
        return [event.n for event in self.events if event.maker == maker]


class Flag:
    """Something that happens in another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self, *args: object) -> None:
        self._event.set()

    def wait(self, *args: object) -> None:
        assert self._event.wait(GUARD), "it never happened"

    @property
    def is_set(self) -> bool:
        return self._event.is_set()


@dataclass
class World:
    """A node, and one strategy to subscribe with."""

    node: Node
    strategy: str
    dispatch: Dispatch

    def channel(self, name: str = "numbers") -> Channel:
        return self.node.channel(name, Number)

    def subscribe(self, channel: Channel, handler: Callable[[Any], object], *args: Any, **options: Any) -> Subscription:
        return channel.subscribe(self.handler(handler), *args, dispatch=self.dispatch, **options)

    def handler(self, function: Callable[[Any], object]) -> Callable[[Any], object]:
        """The function as this strategy wants it."""
        if self.strategy != "coroutines":
            return function

        async def coroutine(event: Any) -> None:
            await asyncio.sleep(0)
            function(event)

        return coroutine

    @property
    def on_a_loop(self) -> bool:
        return isinstance(self.dispatch, AsyncLoop)


COMPILER = "headwater-compile"  # the one thread of the process that compiles interests; it is no node's


@contextmanager
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name != COMPILER] == []


@contextmanager
def loop_in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(GUARD)
        loop.close()


@contextmanager
def world(strategy: str, *, close: bool = True, **options: Any) -> Iterator[World]:
    """An open node, with a loop in a thread where the strategy needs one; closed at the end, and no thread is left."""
    with no_threads_left():
        dispatch = STRATEGIES[strategy]
        if isinstance(dispatch, AsyncLoop):
            with loop_in_a_thread() as loop:
                yield from _opened(strategy, AsyncLoop(loop=loop), close, options)
        else:
            yield from _opened(strategy, dispatch, close, options)


def _opened(strategy: str, dispatch: Dispatch, close: bool, options: dict[str, Any]) -> Iterator[World]:
    node = Node(**options)
    try:
        yield World(node, strategy, dispatch)
    except BaseException:
        node.close(drain=False, timeout=1.0)
        raise
    if close:
        node.close(timeout=GUARD)


class Threads:
    """Functions that run at the same time, in a thread each; `join` waits for all and raises what one raised."""

    def __init__(self, *functions: Callable[[], object]) -> None:
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, args=(function,)) for function in functions]
        for thread in self._threads:
            thread.start()

    def _guarded(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            self._failures.append(error)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(GUARD)
            assert not thread.is_alive(), "a thread hangs"
        if self._failures:
            raise self._failures[0]


def conserved(subscription: Subscription) -> bool:
    """Whether every event it took is accounted for; at rest."""
    counts = subscription.counts
    settled = counts.delivered + counts.dropped + counts.expired + counts.skipped + counts.queued
    return counts.passed == settled and counts.evaluated == counts.passed + counts.rejected + counts.undecided
