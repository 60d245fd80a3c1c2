"""The share of each other node at an owner: transactions in line, and outcomes that are kept for it.

The line is one, in the order of arrival: what a node may have in it bounds how long others wait behind it. Who has its
share in line is told so (`Busy`), and may come again when something of it has run. Outcomes are kept for a time, for
which the same ticket runs once; of a node that has more than its share of them, the oldest go before that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.errors import Busy
from headwater.objects import tables

if TYPE_CHECKING:
    from headwater.store.migrations import Execute

IN_LINE = 1_000  # transactions of one other node that may wait for their turn,
IN_LINE_BYTES = 8 << 20  # and bytes of them
OUTCOMES = 100_000  # of one other node that are kept,
OUTCOME_BYTES = 64 << 20  # and bytes of them


class Line:
    """What each caller has in line; threads may share it."""

    def __init__(self, rows: Iterable[tuple[str, int, int]] = (), *, most: int = IN_LINE, size: int = IN_LINE_BYTES):
        self.most, self.size = most, size
        self._lock = threading.Lock()
        self._of: dict[str, tuple[int, int]] = {caller: (count, size) for caller, count, size in rows}

    def of(self, caller: str) -> tuple[int, int]:
        """How many a caller has there, and how many bytes."""
        return self._of.get(caller, (0, 0))

    def check(self, caller: str, size: int = 0) -> None:
        """Busy if one more, of that size, would be too many."""
        count, total = self.of(caller)
        if count >= self.most or (count and total + size > self.size):
            raise Busy(
                f"objects: expected at most {self.most:,} transactions and {self.size:,} bytes of one node in line, "
                f"found {count:,} and {total + size:,}; wait until some have run, and submit it again with its ticket"
            )

    def enter(self, caller: str, size: int) -> None:
        """One more; Busy if that is too many."""
        with self._lock:
            self.check(caller, size)
            count, total = self.of(caller)
            self._of[caller] = count + 1, total + size

    def leave(self, caller: str, size: int) -> None:
        """One of them has run, or never will."""
        with self._lock:
            count, total = self.of(caller)
            if count > 1:
                self._of[caller] = count - 1, max(0, total - size)
            else:
                self._of.pop(caller, None)

    def report(self) -> dict[str, int]:
        """How many of each other node are in line."""
        return {caller: count for caller, (count, _) in list(self._of.items())}


class Outcomes:
    """How many outcomes are kept of each caller; only the thread that runs turns is here."""

    def __init__(self, *, most: int = OUTCOMES, size: int = OUTCOME_BYTES) -> None:
        self.most, self.size = most, size
        self._of: dict[str, tuple[int, int]] = {}  # at most so many: some may have gone meanwhile

    def kept(self, execute: Execute, caller: str, size: int) -> None:
        """One more is kept; of too many the oldest go, some at once, so that they are seldom counted."""
        known = self._of.get(caller)
        count, total = tables.outcomes_of(execute, caller) if known is None else (known[0] + 1, known[1] + size)
        if count > self.most or total > self.size:
            tables.trim_outcomes(execute, caller, self.most - self.most // 10, self.size - self.size // 10)
            count, total = tables.outcomes_of(execute, caller)
        self._of[caller] = count, total


__all__ = ["IN_LINE", "IN_LINE_BYTES", "OUTCOMES", "OUTCOME_BYTES", "Line", "Outcomes"]
