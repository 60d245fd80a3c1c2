"""The external queue: transactions in the order of arrival, run turn by turn, by one thread at a time.

That is a thread of its own; but who comes alone, finds nobody in line and would only wait runs his turn himself, since
to hand it over and back takes longer than the turn. A signal (Ctrl-C) may interrupt him anywhere: then the queue's own
thread, which none reaches, finds out what has become of it, and brings it to its end.

Who waits for the outcome is answered when it is committed. Who does not is answered when the transaction is durable:
because it has run already, or because it is in the file until its turn comes, also after a restart. Turns that wait at
the same time share a commit. The order is that of arrival, whoever waits and whoever does not.

A transaction with a ticket runs once: whoever comes with the same ticket gets the outcome of the first, also after a
restart, for as long as outcomes are kept.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import ClosedError, HeadwaterError, ObjectError, StoreError
from headwater.objects import tables
from headwater.objects.line import Group, Item
from headwater.objects.operations import (
    TICKET,
    Outcome,
    Transaction,
    check_form,
    pack,
    pack_outcome,
    unpack,
    unpack_outcome,
)
from headwater.objects.shares import Line, Outcomes
from headwater.threads import Crashes, Supervised

if TYPE_CHECKING:
    from headwater.objects.reactions import Told
    from headwater.objects.turn import Turns
    from headwater.store.migrations import Execute
    from headwater.store.state import RoomTables
    from headwater.store.transactions import Transaction as FileTransaction

log = logging.getLogger("headwater")
GROUP = 256  # turns that share a commit, at most
GROUP_SECONDS = 0.05  # after which those that came first are not kept waiting for others
BODIES = 8192  # transactions in the file that are held in memory too
READY_SECONDS = 10.0  # for which what was queued in a life before waits for the methods that there were then
RETRY_SECONDS = 0.5  # after which it is tried again to write, where that failed and nobody waits
CLOSE_SECONDS = 10.0  # that an end waits for the turn under way
FORGET_EVERY = 64  # commits between two looks for outcomes that were kept long enough


class Queue:
    """Of one node; threads may share it."""

    def __init__(
        self,
        name: str,
        turns: Turns,
        begin: Callable[[], AbstractContextManager[FileTransaction]],
        crashes: Crashes,
        *,
        last: int,
        now: Callable[[], int],
        keep_seconds: float,
        committed: Callable[[], None],
        forget: Callable[[], None],
        tidy: Callable[[Execute], None],
        adopt: Callable[[Execute], None],
        ready: Callable[[], bool] = lambda: True,
        shares: Line | None = None,
    ) -> None:
        self._name, self._turns, self._begin, self._now, self._keep = name, turns, begin, now, keep_seconds
        self._committed, self._forget, self._tidy, self._adopt = committed, forget, tidy, adopt
        self._ready, self._held_until = ready, monotonic() + READY_SECONDS if last else 0.0
        self._crashes = crashes
        self.shares, self.outcomes = shares or Line(), Outcomes()  # of other nodes
        self._lock = threading.Lock()  # that of `_wake`: where nobody is woken it is taken by itself, which is quicker
        self._wake = threading.Condition(self._lock)
        self._line: deque[Item] = deque()  # in the order of arrival
        self._old, self._upto = 0, last  # of a life before: where it is, and the last one
        self._page: deque[Item] = deque()  # of those, the next ones
        self._tickets: dict[bytes, Item] = {}  # of those in line
        self._closed = self._stopped = False
        self._runner = 0  # the thread that runs turns now
        self._group: Group | None = None  # that it runs, or has left to its end to the queue's own thread
        self._alone = False  # whether who came last has found nobody, and nobody came meanwhile
        self._commits = 0
        self._trouble = ""
        self._watched = 0  # how many wait until nothing is in line
        self.turns = self.groups = 0  # counts, for reports
        self._thread = Supervised(self._run, f"headwater-{name}-turns", crashes, again=lambda: not self._stopped)

    def start(self) -> None:
        """Begin with what was left from a life before."""
        self._thread.start()
        self._alone = True

    # ── submitting ──

    def submit(self, transaction: Transaction, *, waits: bool, told: Told | None = None, here: bool = False) -> Item:
        """In line; the item says what becomes of it. `here`: who submits it would do nothing but wait, and may be kept
        until it has run."""
        check_form(transaction)
        own = bool(transaction.ticket)
        if not own and not waits:
            transaction = msgspec.structs.replace(transaction, ticket=os.urandom(TICKET))
        item = Item(transaction, waits=waits, kept=own or not waits)
        size = len(pack(transaction)) if item.kept else 0  # what cannot be kept is refused at once
        if told is not None:
            item.told.append(told)
        mine = False
        try:
            with self._lock:
                self._must_be_open()
                if own:
                    known = self._tickets.get(transaction.ticket)
                    if known is not None:
                        return self._join(known, item)
                    self._share(item, transaction, size)
                    self._tickets[transaction.ticket] = item
                if here and self._is_free:
                    mine = True
                    self._runner = get_ident()
                    self._line.append(item)
                else:
                    self._put(item)
            if mine:
                self._run_group(1)
        except Exception as error:
            if not mine:
                raise
            self._crashes.note(self._thread.name, error)  # it is told by the item, too
        finally:
            if mine:
                self._runner = 0  # at once: a signal may come with each call
                self._hand_on()
        return item

    def _share(self, item: Item, transaction: Transaction, size: int) -> None:
        """One of another node takes a place of its share until it has run; Busy if there is none."""
        if transaction.permits is not None:
            self.shares.enter(transaction.caller, size)
            item.told.append(lambda _: self.shares.leave(transaction.caller, size))

    @property
    def _is_free(self) -> bool:
        """Whether nobody is in line, nobody runs a turn, and it has been so for a while."""
        return self._alone and not (self._runner or self._line or self._has_rest)

    @property
    def _has_rest(self) -> bool:
        """Whether something of a life before, or that was interrupted, comes before all that is in line."""
        return bool(self._old < self._upto or self._page or (self._group is not None and not self._runner))

    def _put(self, item: Item) -> None:
        self._line.append(item)
        self._wake.notify()

    def _hand_on(self) -> None:
        """Who has run his turn himself is done: others go on."""
        if self._line or self._stopped or self._watched or self._has_rest:
            with self._wake:
                self._wake.notify_all()

    def is_waiting(self, ticket: bytes) -> bool:
        """Whether a transaction with this ticket is in line."""
        return ticket in self._tickets

    def _join(self, known: Item, item: Item) -> Item:
        """The same ticket again, while the first is in line."""
        known.told.append(item.finish)
        if known.number:
            item.accept()
        return item

    def between(self, errand: Callable[[Execute], Any]) -> Any:
        """Have something done between two turns, in a transaction of the file: what it returns."""
        item = Item(None, waits=True, kept=False)
        item.errand = errand
        with self._wake:
            self._must_be_open()
            self._put(item)
        return item.wait()[0]

    def look_at_file(self) -> None:
        """Have a transaction of the file run soon in which nothing is done: after one that has failed, it is known then
        what has become of it. Nobody waits for it."""
        item = Item(None, waits=True, kept=False)
        item.errand = lambda execute: None
        with self._wake:
            if not self._closed and not self._line:
                self._put(item)

    def _must_be_open(self) -> None:
        if self._closed:
            raise ClosedError(f"objects: node {self._name!r} is closed; open another")
        if self._runner == get_ident():
            raise ObjectError(
                "objects: expected a transaction from outside, found one from within a turn, which it would wait for; "
                "have a method change its object only, and a trigger's action do the rest"
            )

    # ── the turn thread ──

    def look(self) -> None:
        """Something has changed that turns may have waited for."""
        with self._wake:
            self._wake.notify()

    def _held(self) -> bool:
        """Whether what was queued in a life before waits, and everything behind it: not all is there that it may need.
        It waits no longer than a while, since some of it may never be."""
        if self._held_until and (self._ready() or monotonic() >= self._held_until):
            self._held_until = 0.0
        return self._held_until > 0

    def _nothing_to_do(self) -> bool:
        if self._held():
            return not any(item.errand for item in self._line)
        return not (self._line or self._has_rest)

    def _rest(self) -> None:
        """Until there may be something to do. Who runs a turn himself says when he is done, unless a signal hinders."""
        if self._held_until:
            self._wake.wait(max(0.0, self._held_until - monotonic()))
            return
        if self._watched and not self._runner:
            self._wake.notify_all()
        self._wake.wait(RETRY_SECONDS if self._runner and self._line else None)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._stopped and (self._runner or self._nothing_to_do()):
                    self._rest()
                if self._stopped and (self._runner or self._group is None):
                    return
                self._runner = get_ident()
            try:
                if self._group is not None:
                    self._bring_to_its_end(self._group)
                else:
                    self._run_group(GROUP)
            finally:
                self._runner = 0

    def _run_group(self, most: int) -> None:
        """Some turns in one transaction of the file. If that fails nothing of it has happened."""
        group = self._group = Group()
        try:
            with self._begin() as execute:
                group.transaction = execute
                self._adopt(execute)
                self._run_some(execute, group, most)
                if self._line:
                    self._accept(execute, group.accepted)
                if self._turns.queued:
                    group.decoupled = self._decoupled(execute)
                self._tidy(execute)
                self._commits += 1
                if self._commits % FORGET_EVERY == 1:
                    # More than there can have come since: whatever came, they become fewer.
                    tables.forget_outcomes(execute, self._now() // 1_000_000, 2 * FORGET_EVERY * GROUP)
        except BaseException as error:
            group.error = error
            if isinstance(error, StoreError):
                self._failed(error, group)
                return
            if threading.current_thread() is self._thread:
                self._failed(error, group)
            raise  # else it may be a signal, after the commit or before: `_bring_to_its_end` looks
        self._finish(group)

    def _bring_to_its_end(self, group: Group) -> None:
        """A group whose thread was interrupted: if it was committed everybody is told, else it has not happened."""
        if group.transaction is None or not group.transaction.committed:
            self._failed(group.error if isinstance(group.error, Exception) else _interrupted(), group)
            return
        try:
            with self._begin():  # when this is on the disk, so is what was written before
                pass
        except StoreError as error:
            self._failed(error, group)
            return
        there = {id(item) for item in self._line}
        group.decoupled = [item for item in group.decoupled if id(item) not in there]
        self._finish(group)

    def _run_some(self, execute: Execute, group: Group, most: int) -> None:
        until = monotonic() + GROUP_SECONDS
        while len(group.ran) < most and (item := self._next(execute)) is not None:
            group.ran.append(item)
            group.outcomes.append(self._turn(execute, item))
            if most > 1 and monotonic() > until:
                return

    def _next(self, execute: Execute) -> Item | None:
        """Those of a life before come first; errands do not wait for them."""
        if self._held_until and self._held():
            with self._wake:
                found = next((item for item in self._line if item.errand), None)
                if found is not None:
                    self._line.remove(found)
            return found
        if not self._page and self._old < self._upto:
            for number, _, body in tables.queued_after(execute, self._old, self._upto):
                try:
                    item = Item(unpack(body), waits=False, kept=True, number=number)
                except ObjectError as error:
                    log.error("objects: transaction %d of the queue cannot be read, and is left out: %s", number, error)
                    tables.dequeue(execute, number)
                    continue
                self._leaves(item, len(body))
                self._page.append(item)
            self._old = self._page[-1].number if self._page else self._upto
        if self._page:
            return self._page.popleft()
        return self._line.popleft() if self._line else None

    def _leaves(self, item: Item, size: int) -> None:
        """One of a life before, which has its place in a share."""
        transaction = item.transaction
        if transaction is not None and transaction.permits is not None:
            caller = transaction.caller
            item.told.append(lambda _: self.shares.leave(caller, size))

    def _turn(self, execute: Execute, item: Item) -> Any:
        """An item's outcome, by running it, unless its ticket has run."""
        if item.errand is not None:
            mark = "SAVEPOINT errand_"
            execute(mark)
            try:
                found: Any = (item.errand(execute),)
            except StoreError:
                raise
            except HeadwaterError as error:
                execute("ROLLBACK TO errand_")
                found = error
            execute("RELEASE errand_")
            return found
        transaction = item.transaction
        if transaction is None:  # it is in the file only: since many wait, or to see whether it has run
            body = tables.queued_body(execute, item.number, item.ticket)
            if body is None:
                return unpack_outcome(tables.outcome_of(execute, item.ticket) or b"")
            transaction = unpack(body)
        if item.kept:
            body = tables.outcome_of(execute, transaction.ticket)
            if body is not None:  # those of a life before have run: it is not among them
                if item.number:
                    tables.dequeue(execute, item.number)
                return unpack_outcome(body)
        outcome = self._turns.run(transaction)
        self.turns += 1
        if item.kept:
            outcome.ticket = transaction.ticket
            until = int(self._now() / 1e6 + self._keep)
            caller, body = _other(transaction), pack_outcome(outcome)
            tables.keep_outcome(execute, transaction.ticket, until, body, caller)
            if caller:
                self.outcomes.kept(execute, caller, len(body))
        if item.number:
            tables.dequeue(execute, item.number)
        return outcome

    def _accept(self, execute: Execute, accepted: list[Item]) -> None:
        """Those that do not wait, and could not run yet, are in the file from now on."""
        with self._wake:
            rest = [item for item in self._line if not item.waits and not item.number]
        for item in rest:
            assert item.transaction is not None
            if tables.outcome_of(execute, item.ticket) is None:  # else it is found when its turn comes
                body = pack(item.transaction)
                item.number = tables.queue_last(execute, item.ticket, body, _other(item.transaction))
                if item.number:
                    accepted.append(item)

    def _decoupled(self, execute: Execute) -> list[Item]:
        """What triggers have put behind everything that is in line."""
        made = []
        for transaction in self._turns.queued:
            number = tables.queue_last(execute, transaction.ticket, pack(transaction))
            if number:
                made.append(Item(transaction, waits=False, kept=True, number=number))
        self._turns.queued.clear()
        return made

    def _finish(self, group: Group) -> None:
        """It is committed: tell everybody. If it is interrupted it may be done again."""
        self._trouble = ""
        try:
            self._committed()
        except Exception as error:  # it is committed all the same, and those that wait must hear of it
            log.error("objects: a commit could not be followed up: %s", error, exc_info=error)
        self.groups += 1
        with self._lock:
            if group.decoupled:
                self._line.extend(group.decoupled)
            many = len(self._line) > BODIES
            self._alone = len(group.ran) == 1 and not self._line
            for item in group.ran:
                if item.kept:
                    self._tickets.pop(item.ticket, None)
        for item in group.accepted:
            item.accept()
        if many:
            for item in (*group.accepted, *group.decoupled):
                item.transaction = None
        for item, outcome in zip(group.ran, group.outcomes, strict=True):
            item.finish(outcome)
        self._group = None

    def _failed(self, error: BaseException, group: Group) -> None:
        """Nothing of the group has happened: who waits is told, what is in the file stays there and is tried again."""
        self._forget()
        self._turns.queued.clear()
        self._turns.forget_numbers()
        for item in group.accepted:
            item.number = 0
        stays = isinstance(error, StoreError)
        again = [item for item in group.ran if item.number and stays]
        for item in again:
            item.transaction = None  # whether it has run, in spite of all, is in the file
        lost = [item for item in group.ran if not (item.number and stays)]
        with self._wake:
            for item in lost:
                self._tickets.pop(item.ticket, None)
            self._page.extendleft(reversed(again))
        self._group = None
        for item in lost:
            item.finish(error)
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.error("objects: a commit failed: %s", error)
        if not lost:
            with self._wake:
                if not self._stopped:
                    self._wake.wait(RETRY_SECONDS)

    # ── outcomes ──

    def outcome(self, rows: RoomTables, ticket: bytes) -> Outcome | None:
        """Of a transaction that has run, as long as it is kept; None if it waits. ObjectError if nobody knows it."""
        waits = ticket in self._tickets or tables.is_queued(rows, ticket)
        body = tables.kept_outcome(rows, ticket)
        if body is not None:
            return unpack_outcome(body)
        if waits:
            return None
        raise ObjectError(
            f"ticket {ticket.hex()}: expected that of a transaction of the last {self._keep:,.0f} s, found none"
        )

    # ── the end ──

    @property
    def busy(self) -> bool:
        """Whether anything is in line."""
        return bool(self._runner or self._line or self._has_rest) and not self._stopped

    @property
    def waiting(self) -> int:
        """How many are in line, without those of a life before."""
        return len(self._line) + len(self._page)

    def drain(self, timeout: float) -> bool:
        """Until everything in line has run; whether it has. What waits for methods goes on waiting in the file."""
        with self._wake:
            if self._held():
                return False
            self._watched += 1
            try:
                return self._wake.wait_for(lambda: not self.busy, timeout)
            finally:
                self._watched -= 1

    def close(self) -> None:
        """Take no more. What waits in the file is run in the next life."""
        with self._wake:
            self._closed = self._stopped = True
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._runner in (0, get_ident(), self._thread.ident), CLOSE_SECONDS)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)
        error = ClosedError(f"objects: node {self._name!r} was closed before this transaction ran; submit it again")
        left = [] if self._group is None or self._runner else self._group.ran
        for item in (*left, *self._page, *self._line):
            item.finish(error)
        self._line.clear()

    def report(self) -> dict[str, object]:
        """What it has done."""
        return {
            "turns": self.turns, "commits": self.groups, "waiting": self.waiting, "trouble": self._trouble,
            "waiting of others": self.shares.report(),
        }  # fmt: skip


def _other(transaction: Transaction) -> str:
    """The other node that has sent it; nothing if it is the owner's own."""
    return transaction.caller if transaction.permits is not None else ""


def _interrupted() -> ObjectError:
    return ObjectError(
        "objects: a signal has interrupted this transaction, and nothing of it was done; submit it again"
    )


__all__ = ["GROUP", "Queue"]
