"""Waiting for a condition at a node without a federation: nobody tells when something has happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic

from headwater.late import asyncio

SOON, LATER = 0.001, 0.1  # seconds after which a condition is looked at again: first, and at most


def _pauses(timeout: float) -> Iterator[float]:
    """How long to wait before each next look: a moment, then longer, and no longer than is left."""
    end, pause = monotonic() + timeout, SOON
    while (left := end - monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LATER)


def until(condition: Callable[[], bool], timeout: float) -> bool:
    """Whether it holds, at once or within so many seconds."""
    if condition():
        return True
    never = threading.Event()
    for pause in _pauses(timeout):
        never.wait(pause)
        if condition():
            return True
    return False


async def auntil(condition: Callable[[], bool], timeout: float) -> bool:
    """The same for a coroutine, whose loop goes on; the condition is looked at on that loop."""
    if condition():
        return True
    for pause in _pauses(timeout):
        await asyncio.sleep(pause)
        if condition():
            return True
    return False


__all__ = ["auntil", "until"]
