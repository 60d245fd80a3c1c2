"""How long policies hold of which nothing is heard: closed at once, or after a lease.

Nodes that must know the policies of channels ask their policy nodes again and again. An answer is good from when it was
asked for: a node that is kept from hearing of a revocation does not go on for longer than its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

# Without a lease: for so long an answer may be late while the policy node counts as being there.
PATIENCE_SECONDS = 10.0
LEAST_SECONDS, MOST_SECONDS = 0.25, 5.0  # between two questions


class Freshness:
    """Of one node. Thread-safe; `clock` in seconds."""

    def __init__(self, lease: float | None, clock: Callable[[], float] = monotonic) -> None:
        self.lease, self._clock = lease, clock
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}  # by policy node: when that was asked which has been answered
        self._there: set[str] = set()
        self._ever = False

    @property
    def period(self) -> float:
        """Seconds between two questions to a policy node."""
        return MOST_SECONDS if self.lease is None else min(MOST_SECONDS, max(LEAST_SECONDS, self.lease / 4))

    def heard(self, node: str, asked: float) -> None:
        """A policy node has answered what was asked at that time."""
        with self._lock:
            self._heard[node] = max(asked, self._heard.get(node, asked))
            self._there.add(node)
            self._ever = True

    def present(self, nodes: set[str]) -> None:
        """These policy nodes are there, as far as can be seen."""
        with self._lock:
            self._there &= nodes
            if self.lease is None:
                self._heard = {node: when for node, when in self._heard.items() if node in nodes}

    def why_not(self) -> str:
        """Why what is known does not hold any more; nothing if it does."""
        now = self._clock()
        with self._lock:
            if not self._ever:
                return "no policy node has been heard, and what is not known is closed"
            if self.lease is None:
                there = [when for node, when in self._heard.items() if node in self._there]
                if there and now - max(there) <= PATIENCE_SECONDS:
                    return ""
                return "no policy node is there, and without a lease nothing holds that cannot be asked for"
            age = now - max(self._heard.values())
            if age <= self.lease:
                return ""
            return f"no policy node was heard for {age:,.1f} s, and what was heard holds for {self.lease:,.1f} s"


__all__ = ["Freshness"]
