"""An operator over events of several channels, at work: with a mailbox and a clock of its own.

    Operator        what is done with events: pure logic, which knows no channels, threads or time
    OperatorStage   runs one: events wait in a mailbox, and are offered to it one at a time, no source's lock held
    Operated        a subscription whose events go through a stage             (correlation/subscription.py)
    Derivation      one whose results are published: a channel that is derived from several

Publishers put events into the stage's mailbox under the locks of their sources, which is quick; whoever holds the
mailbox's token offers them, in their order of arrival; should it not keep up, publishers wait. An operator that has to
act when nothing comes says when it is due: one timer of the node's serves it. Results leave in the order in which they
were made, under no lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Protocol

from headwater.errors import ClosedError

CLEAR = object()  # in the place of an event
ROOM = 1024  # events in a stage's mailbox: while one thread offers, others must not publish without end
# Takes a result, with the attachment and event that completed it, if one did; mailboxes that are to run go to the list.
Put = Callable[[Any, Any, Any, list[Any]], None]


class Operator(Protocol):
    """Offered one event at a time; it need not be locked. Times are seconds of the node's clock."""

    def offer(self, part: int, event: Any, now: float) -> Sequence[Any]:
        """An event of one of its inputs, by number: what that makes."""
        ...

    def due(self) -> float | None:
        """When it has to be looked at even if nothing comes; None: never."""
        ...

    def advance(self, now: float) -> Sequence[Any]:
        """So late it is: what that makes."""
        ...

    def clear(self) -> None:
        """Forget everything, as when the interests of its inputs change."""
        ...


class Owner(Protocol):
    """Whom a stage works for: it makes the mailbox, which calls `OperatorStage.offer`."""

    def _now(self) -> float: ...

    def _call_at(self, due: float, function: Callable[[], None]) -> Any:
        """Set a timer of the node's; ClosedError if it is closing."""
        ...

    def _handler_failed(self, error: BaseException, event: Any) -> None: ...


class OperatorStage:
    """Runs an operator for its owner; `put` takes the results."""

    mailbox: Any  # set by the owner

    def __init__(self, owner: Owner, operator: Operator, single: type, put: Put) -> None:
        self._owner, self.operator, self._put = owner, operator, put
        self._single, self._now = single, owner._now  # the class of what is one event, and no batch
        self.lock = threading.Lock()  # under which the operator runs, and nothing else of the user's
        self._results: deque[tuple[Any, Any, Any]] = deque()
        self._leaving = threading.Lock()  # held by who hands results on
        self._timer: Any = None
        self._due: float | None = None
        self._closed = False

    def accept(self, attachment: Any, letter: Any, n: int, ready: list[Any]) -> None:
        """An event, or a batch of n, under the lock of its source. (`mailbox.put_quick` does the same, if it can.)"""
        if self.mailbox.put((attachment, letter, n, 0, inf)):
            ready.append(self.mailbox)

    def offer(self, item: Any) -> None:
        """What waited in the mailbox; by who holds its token."""
        attachment, letter = item[:2]
        if letter is CLEAR:
            self._clear()
        elif letter.__class__ is self._single:
            self._offer_one(attachment, letter)
        else:  # a batch
            for each in letter.letters(attachment.form.have.arrow_to_records(letter.taken())):
                self._offer_one(attachment, each)
        if self._results:
            self._hand_on()

    def _offer_one(self, attachment: Any, letter: Any) -> None:
        operator = self.operator
        try:
            event = attachment.form.one(letter)
            with self.lock:
                for result in operator.offer(attachment.part, event, self._now()):
                    self._results.append((result, attachment, letter))
                if operator.due() != self._due:
                    self._arm()
        except Exception as error:  # the operator's fault, or what came was no event
            self._owner._handler_failed(error, letter)

    def _arm(self) -> None:
        """Have a timer go off when the operator is due; its lock is held."""
        due = None if self._closed else self.operator.due()
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, None
        if due is not None:
            try:
                self._timer = self._owner._call_at(due, self._tick)
            except ClosedError:  # the node is closing: time is over
                self._due = None

    def _tick(self) -> None:
        with self.lock:
            if self._closed:  # while it waited for the lock
                return
            self._due = self._timer = None
            for result in self.operator.advance(self._now()):
                self._results.append((result, None, None))
            self._arm()
        self._hand_on()

    def _hand_on(self) -> None:
        """Results leave, one thread at a time: who finds another at it leaves them to that one."""
        while self._results and self._leaving.acquire(blocking=False):
            ready: list[Any] = []
            try:
                while self._results:
                    self._put(*self._results.popleft(), ready)
            finally:
                self._leaving.release()
            for mailbox in ready:
                mailbox.dispatch()

    def clear(self, attachment: Any) -> None:
        """An interest has changed, at a point of its sources, which stand still: what came before counts no more, and
        what waits came before."""
        if self.mailbox.idle:
            self._clear()
        else:
            self.mailbox.put((attachment, CLEAR, 1, 0, inf))  # whoever runs it comes to that

    def _clear(self) -> None:
        with self.lock:
            self.operator.clear()
            self._arm()

    def close(self) -> None:
        """It does nothing by itself any more; what waits is still offered to it."""
        with self.lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._due = self._timer = None


__all__ = ["ROOM", "Operator", "OperatorStage", "Owner", "Put"]
