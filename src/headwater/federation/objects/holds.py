"""Which replicas of other nodes' objects a node holds, for how many of its programs."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.federation.interests.requester import Requester


class Holds:
    """Which replicas the programs of one node hold, each of them possibly several times: their owner is told when the
    last one lets go."""

    def __init__(self, requester: Requester) -> None:
        """`requester`: who knows since when what is told is heard."""
        self.requester = requester
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()

    def take(self, number: int) -> None:
        """One more holds it."""
        with self._lock:
            self._counts[number] += 1

    def let_go(self, number: int) -> bool:
        """One holds it no more; whether that was the last."""
        with self._lock:
            self._counts[number] -= 1
            last = self._counts[number] <= 0
            if last:
                del self._counts[number]
            return last


__all__ = ["Holds"]
