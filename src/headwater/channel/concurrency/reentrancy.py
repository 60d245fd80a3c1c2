"""Which mailboxes the calling thread is running just now: told from the stack when someone asks, so that nobody has to
note it for every event."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from types import CodeType
from typing import Any, Protocol


class Call(Protocol):
    """A handler that machine code is calling."""

    mailbox: Any
    thread: bytearray  # the eight bytes of the identity of the thread that calls it


# One for each handler being called in a publisher's thread, in all threads together, and one more: those called by
# machine code, of which nothing is on the stack, in front, and for each of the others None.
NEST: list[Call | None] = [None]
DEPTH = 40  # at so many, further ones wait their turn, so that a chain of handlers does not eat the stack

_RUNNERS: dict[CodeType, Callable[[dict[str, Any]], Any]] = {}


def runs(function: Any, mailbox: Callable[[dict[str, Any]], Any]) -> None:
    """While `function` is on the stack, a mailbox is being run: `mailbox` finds it among the function's variables."""
    _RUNNERS[function.__code__] = mailbox


def running() -> Iterator[Any]:
    """The mailboxes that the calling thread (or task) is running."""
    thread = get_ident()
    for call in NEST.copy():
        if call is not None and int.from_bytes(call.thread, sys.byteorder) == thread:
            yield call.mailbox
    frame = sys._getframe(1)
    while frame is not None:
        find = _RUNNERS.get(frame.f_code)
        if find is not None and (found := find(frame.f_locals)) is not None:
            yield found
        frame = frame.f_back  # type: ignore[assignment]


def in_handler() -> bool:
    """Whether the caller was called by a handler."""
    return next(running(), None) is not None
