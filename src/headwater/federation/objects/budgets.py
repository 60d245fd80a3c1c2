"""What checking may cost: processor time that each other node may have this one spend on its expressions and triggers.

A text that was compiled before costs nothing; a new one from half a millisecond to some ten. It is measured, not
estimated, and taken from a budget that fills again: who writes values into texts, a new text each time, gets to its
end, and is told to use parameters.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, thread_time

from headwater.errors import Busy

SECONDS = 1.0  # of processor time that a node may use at once,
RATE = 0.05  # and by how much of it the budget fills again each second
NODES = 4096  # whose budgets are remembered; of others they are full


class Budgets:
    """Of all other nodes; threads may share it."""

    def __init__(
        self, seconds: float = SECONDS, rate: float = RATE, *, now: Callable[[], float] = monotonic, most: int = NODES
    ) -> None:
        self.seconds, self.rate = seconds, rate
        self._now, self._most = now, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # and when that was
        self._lock = threading.Lock()

    def left(self, node: str) -> float:
        """Seconds that it may use now; below 0: what the last check has taken beyond them."""
        left, at = self._left.get(node, (self.seconds, 0.0))
        return min(self.seconds, left + (self._now() - at) * self.rate)

    def check(self, node: str) -> None:
        """Busy if there is nothing left."""
        left = self.left(node)
        if left <= 0:
            raise Busy(
                f"objects: expected new expressions, triggers and replicas of one node to take {self.seconds:g} s of "
                f"processor time, and {self.rate:.0%} of it from then on, found {self.seconds - left:.2f} s used; use "
                "parameters (:name) instead of new texts, and submit it again later",
                min(10.0, 0.05 - left / self.rate),
            )

    def spend(self, node: str, seconds: float) -> None:
        """So much was used."""
        with self._lock:
            self._left[node] = self.left(node) - seconds, self._now()
            self._left.move_to_end(node)
            if len(self._left) > self._most:
                self._left.popitem(last=False)

    @contextmanager
    def measured(self, node: str) -> Iterator[None]:
        """A block whose processor time is the node's."""
        self.check(node)
        began = thread_time()
        try:
            yield
        finally:
            self.spend(node, thread_time() - began)


__all__ = ["RATE", "SECONDS", "Budgets"]
