"""The end of a program that stays: Ctrl-C and SIGTERM ask for it, so that what is under way is finished first.

    with end_signals() as end:
        while not end.wait(1.0):
            ...
    # what was there for the signals before is there again

The first signal sets `end`, and nothing is interrupted. A second Ctrl-C does not wait any longer: it raises
KeyboardInterrupt, wherever the program is. Signals come to the main thread only: elsewhere nothing sets `end`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue


class End:
    """Whether the end has come; it stays. Unlike a `threading.Event`, this can be set in a handler of signals while its
    own thread is about to wait for it: no lock is taken."""

    def __init__(self) -> None:
        self._came = False
        self._waiting: SimpleQueue[None] = SimpleQueue()
        self.reading = False  # while something is waited for that nothing but an exception ends, such as a line

    def is_set(self) -> bool:
        return self._came

    def set(self) -> None:
        self._came = True
        self._waiting.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._came:
            try:
                self._waiting.get(timeout=timeout)
            except Empty:
                return self._came
            self._waiting.put(None)  # for others who wait
        return True


@contextmanager
def end_signals() -> Iterator[End]:
    """Set by Ctrl-C and SIGTERM, while it lasts and in the main thread."""
    end = End()

    def came(number: int, frame: object) -> None:
        again = end.is_set()
        end.set()
        if end.reading or (again and number == signal.SIGINT):
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield end
        return
    before = {number: signal.signal(number, came) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was set outside of Python


__all__ = ["End", "end_signals"]
