"""Calling from a coroutine what waits in a thread: the loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headwater.late import asyncio
from headwater.threads import Supervised

T = TypeVar("T")


async def in_thread(function: Callable[[], T], *, stop: Callable[[], object] | None = None) -> T:
    """What a function that may wait returns, called in a thread of its own, which is gone afterwards.

    If who awaits it is cancelled, the function goes on by itself; with `stop`, it is told so, and its end is waited
    for: nothing of it is left running."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # whoever waits hears of it
            loop.call_soon_threadsafe(_fail, done, error)
        else:
            loop.call_soon_threadsafe(_settle, done, result)

    thread = Supervised(run, "headwater-aside")
    thread.start()
    try:
        return await (done if stop is None else asyncio.shield(done))
    except asyncio.CancelledError:
        if stop is not None:
            stop()
            await _over(done)
        raise
    finally:
        if done.done() and not done.cancelled():
            thread.join()


async def _over(done: asyncio.Future[T]) -> None:
    """Until it is, however often who awaits it is cancelled."""
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            continue
    done.exception()  # which nobody is to hear of any more


def _settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def nothing() -> None:
    """A `stop` for what is not to be stopped: its end is waited for."""


__all__ = ["in_thread", "nothing"]
