"""The owner's side: what other nodes may do with this node's objects.

A right is on the channel of a type's changes, `objects.TYPE`: who may `transact` there may create, change and destroy
objects of that type, who may `subscribe` may read them; an event of a channel takes the right to `advertise` there. A
transaction is queued with what it may touch, and that is looked at in its turn. What triggers cause by it is the
owner's own.

A ticket is known by the node that has sent it: nobody can ask for the outcome of another's transaction, or use up its
ticket before it comes.

What a node may have in line is bounded (`objects/shares.py`), and so is the time that new expressions of its
transactions may take, which are compiled here, before the turn (`budgets.py`). Beyond that it is told to come later.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import Busy, HeadwaterError, ObjectError
from headwater.federation.security.policy import Allow, Restrict, Verdict
from headwater.federation.wire.object_requests import (
    MOST_BUSY,
    MOST_OBJECTS,
    MOST_TYPES,
    MOST_WHY,
    PAGE_BYTES,
    CollectOutcome,
    ObjectPage,
    ObjectRow,
    ReadObjects,
    SubmitTransaction,
    TellTypes,
    TransactionIs,
    TypesAre,
)
from headwater.federation.wire.requests import pack_type
from headwater.objects.operations import (
    TICKET,
    Permits,
    Raise,
    Transaction,
    check_texts,
    pack_outcome,
    texts_in,
    unpack,
)

if TYPE_CHECKING:
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.objects.budgets import Budgets
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.security.policy import Action
    from headwater.objects.engine import Row
    from headwater.objects.line import Item

WAITING = 10_000  # outcomes of which is known that somebody waits


class ObjectServer:
    """Of one node. Requests come in threads of the network."""

    def __init__(self, objects: Objects, context: Context, budgets: Budgets) -> None:
        self._objects, self._context, self._budgets = objects, context, budgets
        self._lock = threading.Lock()
        self._waiting: dict[bytes, Item] = {}  # by ticket
        self.submitted = self.busy = 0

    # ── transactions ──

    def submit(self, caller: Caller, request: SubmitTransaction) -> TransactionIs:
        """It is in line, or who sends it is told to come later."""
        try:
            return self._submit(caller, request)
        except Busy as error:
            found = self.collect(caller, CollectOutcome(request.ticket))
            if found.known:
                return found  # it has run, and the answer to that was lost
            self.busy += 1
            return TransactionIs(False, b"", min(MOST_BUSY, error.after), str(error)[:MOST_WHY])

    def _submit(self, caller: Caller, request: SubmitTransaction) -> TransactionIs:
        """In line with what it may touch, and waited for a moment; Busy if its sender has its share there."""
        ticket = scoped(caller.peer.id, request.ticket)
        if not self._objects.engine.queue.is_waiting(ticket):
            self._objects.engine.queue.shares.check(caller.peer.id)  # before anything is done about it
        sent = unpack(request.transaction)
        check_texts(sent)
        transaction = msgspec.structs.replace(
            sent, ticket=ticket, caller=caller.peer.id, permits=self._permits(caller, sent)
        )
        if texts_in(transaction):
            with self._budgets.measured(caller.peer.id):
                self._objects.engine.prepare(transaction)
        item = self._objects.engine.submit(
            transaction, waits=not request.durable, told=lambda outcome: self._settled(ticket)
        )
        self.submitted += 1
        if request.durable:
            item.wait(self._patience(request.wait))
            return TransactionIs(item.settled)
        with self._lock:
            self._waiting[ticket] = item
            while len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]
        if item.settled:
            self._settled(ticket)
        return self._waited(item, request.wait)

    def _settled(self, ticket: bytes) -> None:
        """It has run: from now on the file knows its outcome."""
        with self._lock:
            self._waiting.pop(ticket, None)

    def _patience(self, seconds: float) -> float:
        """All who wait share it, since one thread answers all questions to this node: in turn, all are heard."""
        return seconds / max(1, len(self._waiting))

    def _permits(self, caller: Caller, transaction: Transaction) -> Permits:
        """What it may touch, by the policy as it is now."""
        channels = {each.channel for each in transaction.operations if isinstance(each, Raise) and not each.name}
        return Permits(
            tuple(self._allowed(caller, "transact")),
            tuple(self._allowed(caller, "subscribe")),
            tuple(sorted(each for each in channels if self._may(caller, "advertise", each))),
        )

    def _allowed(self, caller: Caller, action: Action) -> list[str]:
        """The types of objects with which it may do so."""
        types = list(self._objects.engine.types.items())
        return [name for name, each in types if self._may(caller, action, each.channel)]

    def _may(self, caller: Caller, action: Action, channel: str) -> bool:
        """A right that a policy restricts to some objects is none to all of a type."""
        return isinstance(self._context.decisions.decide(caller.principal, action, channel), Allow)

    def collect(self, caller: Caller, request: CollectOutcome) -> TransactionIs:
        ticket = scoped(caller.peer.id, request.ticket)
        with self._lock:
            item = self._waiting.get(ticket)
        if item is not None:
            return self._waited(item, request.wait)
        try:
            found = self._objects.outcome(ticket)
        except ObjectError:
            return TransactionIs(False)
        return TransactionIs(True, b"" if found is None else pack_outcome(found))

    def _waited(self, item: Item, seconds: float) -> TransactionIs:
        """Its outcome, if there is one after so many seconds."""
        outcome = item.wait(self._patience(seconds))
        return TransactionIs(True) if outcome is None else TransactionIs(True, pack_outcome(outcome))

    # ── reading ──

    def read(self, caller: Caller, request: ReadObjects) -> ObjectPage:
        """A page of objects: those that it may read, of a type that a policy restricts those whose creation, as they
        are now, it would have been told of."""
        with self._context.decisions.reading():
            verdicts = self._verdicts(caller)
            rows, after = self._objects.engine.page(request.pattern, request.after, verdicts, MOST_OBJECTS, PAGE_BYTES)
            shown = [row for row in rows if self._shows(verdicts[row[1]], row)]
            return ObjectPage([ObjectRow(*row) for row in shown], after)

    def _verdicts(self, caller: Caller) -> dict[str, Verdict]:
        """By type of objects that may be read, as far as they may."""
        decide = self._context.decisions.decide
        types = list(self._objects.engine.types.items())
        found = {name: decide(caller.principal, "subscribe", each.channel) for name, each in types}
        return {name: verdict for name, verdict in found.items() if verdict}

    def _shows(self, verdict: Verdict, row: Row) -> bool:
        """Whether a restriction passes the event that an object's creation would be."""
        if not isinstance(verdict, Restrict):
            return bool(verdict)
        path, name, record, turn, at = row
        found = self._objects.engine.types[name]
        now = found.type.decode(record)
        change = {"object": f"//{self._context.name}/{path}", "op": "created", "old": None, "new": now}
        change |= {"turn": turn, "step": 0, "position": 0, "member": None, "at": datetime.fromtimestamp(at / 1e6, UTC)}
        try:
            limit = verdict.interest
            fits = limit.type.record == found.change.record
            return (limit if fits else limit.on(found.change)).test(found.change.encode(change))
        except HeadwaterError:  # it cannot be said of objects of this type
            return False

    def tell(self, caller: Caller, request: TellTypes) -> TypesAre:
        names = list(self._verdicts(caller))[:MOST_TYPES]
        packed = {name: pack_type(self._objects.engine.types[name].type) for name in names}
        return TypesAre({name: data for name, data in packed.items() if data is not None})


def scoped(node: str, ticket: bytes) -> bytes:
    """The ticket of another node's transaction, as it is known here."""
    return blake2b(ticket, digest_size=TICKET, key=blake2b(node.encode(), digest_size=32).digest()).digest()


__all__ = ["ObjectServer", "scoped"]
