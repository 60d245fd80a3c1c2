"""What stands in line for its turn, and what shares a commit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.objects.operations import Transaction
    from headwater.objects.reactions import Told
    from headwater.store.migrations import Execute
    from headwater.store.transactions import Transaction as FileTransaction

log = logging.getLogger("headwater")


class Item:
    """A transaction in the queue. `number`: its place in the file, 0 if it is not there; `kept`: its outcome is."""

    __slots__ = ("_done", "errand", "kept", "number", "outcome", "ticket", "told", "transaction", "waits")

    def __init__(self, transaction: Transaction | None, *, waits: bool, kept: bool, number: int = 0) -> None:
        self.transaction, self.waits, self.kept, self.number = transaction, waits, kept, number
        self.ticket = b"" if transaction is None else transaction.ticket
        self.errand: Callable[[Execute], Any] | None = None  # something else that is done between two turns
        self.outcome: Any = None
        self.told: list[Told] = []
        self._done = threading.Lock()
        self._done.acquire()

    def accept(self) -> None:
        """It is durable: who does not wait for the outcome goes on."""
        if not self.waits and self._done.locked():
            self._done.release()

    def finish(self, outcome: Any) -> None:
        """What has become of it: an outcome, or why there is none. Again, it does what was left undone."""
        if self.outcome is None:
            self.outcome = outcome
        if self._done.locked():
            self._done.release()
        while self.told:
            told = self.told.pop(0)
            try:
                told(self.outcome)
            except Exception as error:  # others wait to be told too
                log.error("objects: who submitted a transaction could not be told: %s", error, exc_info=error)

    @property
    def settled(self) -> bool:
        """Whether who has submitted it may go on: it has run or, if that is enough, it is durable."""
        return not self._done.locked()

    def wait(self, timeout: float | None = None) -> Any:
        """The outcome, if there is one by then; without waiting for it, None as soon as it is durable. What was raised
        is raised."""
        if self._done.acquire(timeout=-1 if timeout is None else timeout):
            self._done.release()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Group:
    """Turns that share a commit: what ran, and what comes of it; and the transaction of the file that they are in."""

    __slots__ = ("accepted", "decoupled", "error", "outcomes", "ran", "transaction")

    def __init__(self) -> None:
        self.ran: list[Item] = []
        self.outcomes: list[Any] = []
        self.accepted: list[Item] = []
        self.decoupled: list[Item] = []
        self.transaction: FileTransaction | None = None
        self.error: BaseException | None = None


__all__ = ["Group", "Item"]
