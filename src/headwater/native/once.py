"""Things of which a process has exactly one, made when first needed, by whichever thread needs them first.

`functools.lru_cache` lets two threads make the same thing at once and keeps one of them: with machine code, the other
one's addresses would then lead nowhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):
    """Decorates a function without arguments: it runs once, and everyone gets its result. `made` has it then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self.made, self._lock = make, list[T](), threading.RLock()
        self.__doc__ = make.__doc__
        os.register_at_fork(after_in_child=self._forked)

    def __call__(self) -> T:
        if not self.made:
            with self._lock:
                if not self.made:
                    self.made.append(self._make())
        return self.made[0]

    def clear(self) -> None:
        """Forget the result, so that the next call makes it anew."""
        self.made.clear()

    def _forked(self) -> None:
        self._lock = threading.RLock()  # another thread may have held it
