"""The client's side: `node.objects_at("plant")`, the objects of another node.

    plant = node.objects_at("plant")
    with plant.transaction() as t:
        t.update("car", {"speed": 0.0}, event=True)
    plant["car"].speed

Every transaction has a ticket. One whose answer is lost is sent again with it, and runs once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, overload

from msgspec import structs

from headwater.channel.dispatch.thread_call import in_thread
from headwater.errors import Busy, ClosedError, FederationError, ObjectError, Unreachable
from headwater.federation.objects.remote_trigger import RemoteTrigger
from headwater.federation.objects.replica import Replica
from headwater.federation.objects.served import ServedReplica, ServedTrigger
from headwater.federation.wire.object_requests import (
    MAX_TRANSACTION,
    MOST_WAIT,
    CollectOutcome,
    ExplainTrigger,
    InstallTrigger,
    ReadObjects,
    SubmitTransaction,
    TellServices,
    TellTriggers,
    TellTypes,
    TransactionIs,
    TriggerRow,
)
from headwater.federation.wire.requests import unpack_type
from headwater.objects.builder import Submitted, TransactionBuilder
from headwater.objects.engine import Kept
from headwater.objects.names import NamePattern, object_name
from headwater.objects.object_types import CHANNEL, change_type
from headwater.objects.operations import TICKET, Outcome, Transaction, check_form, pack, unpack_outcome
from headwater.objects.replicas import quality
from headwater.objects.replicas.spec import replica_spec
from headwater.objects.triggers import definition
from headwater.objects.triggers.definition import Input

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.federation.context import Context
    from headwater.federation.objects.holds import Holds
    from headwater.federation.objects.served import LevelChange
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.object_requests import ServicesAre
    from headwater.federation.wire.requests import Request
    from headwater.objects.replicas.adaptation import Adaptive
    from headwater.objects.replicas.quality import QualityService
    from headwater.objects.replicas.spec import Linear, ReplicaSpec
    from headwater.objects.triggers.definition import Trigger, When
    from headwater.objects.triggers.history import History
    from headwater.types import EventType

TIMEOUT = 30.0  # seconds for which an owner is waited for
AGAIN_SECONDS = 0.1  # after which one that has not answered is asked again


class RemoteObjects:
    """The objects of another node, as this one may see and change them; threads may share it."""

    def __init__(
        self, owner: str, context: Context, peers: Peers, dialogue: Dialogue, holds: Holds | None = None
    ) -> None:
        """Without `holds` there are no replicas of them."""
        object_name("x", owner)
        self.owner = owner
        self._context, self._peers, self._dialogue = context, peers, dialogue
        self._holds = holds
        self._types: dict[str, EventType] = {}

    # ── transactions ──

    def transaction(self, *, ticket: bytes = b"", params: Mapping[str, Any] | None = None) -> Submitted:
        """As of one's own objects: submitted at the end of its block, and waited for."""
        return Submitted(self.owner, self.submit, self.submit_async, ticket=ticket, params=params)

    def builder(self, *, ticket: bytes = b"", params: Mapping[str, Any] | None = None) -> TransactionBuilder:
        """A transaction that is built now and submitted later."""
        return TransactionBuilder(self.owner, ticket=ticket, params=params)

    @overload
    def submit(
        self, transaction: Transaction | TransactionBuilder, *, wait: Literal[True] = True, timeout: float = TIMEOUT
    ) -> Outcome: ...
    @overload
    def submit(
        self, transaction: Transaction | TransactionBuilder, *, wait: Literal[False], timeout: float = TIMEOUT
    ) -> bytes: ...
    def submit(
        self, transaction: Transaction | TransactionBuilder, *, wait: bool = True, timeout: float = TIMEOUT
    ) -> Outcome | bytes:
        """Have its owner run it. With `wait`, its outcome; else its ticket, as soon as it is durable there. While the
        owner has as much of this node's in line as it takes on, it is waited for. Busy if that is so until the end;
        Unreachable if the owner has not answered in time: it may have run, and the same ticket again says what came of
        it."""
        if isinstance(transaction, TransactionBuilder):
            transaction = transaction.build()
        check_form(transaction)
        packed, ticket = pack(transaction), transaction.ticket or os.urandom(TICKET)
        if len(packed) > MAX_TRANSACTION:
            raise ObjectError(
                f"transaction: expected at most {MAX_TRANSACTION:,} bytes for another node, found {len(packed):,}; "
                "make several of it"
            )
        end = monotonic() + timeout
        submit = SubmitTransaction(packed, ticket, MOST_WAIT, not wait)
        found = self._ask(submit, end, ticket)
        while not (found.outcome if wait else found.known):
            if found.busy:
                self._wait(found, end, ticket)
            elif monotonic() >= end:
                raise self._late(ticket)
            # One that is not known was lost with its owner's process, before it had run.
            found = self._ask(CollectOutcome(ticket, MOST_WAIT) if found.known else submit, end, ticket)
        return unpack_outcome(found.outcome).check() if wait else ticket

    def _wait(self, found: TransactionIs, end: float, ticket: bytes) -> None:
        """The owner has enough to do for this node: until it is worth asking again, or Busy."""
        left = end - monotonic()
        if left <= 0 or found.busy > left:
            raise Busy(f"objects at {self.owner!r}: {found.why}; its ticket is {ticket.hex()}", found.busy)
        self._context.scheduler.until(lambda: self._context.node.closed, found.busy)

    async def submit_async(self, transaction: Transaction | TransactionBuilder, *, timeout: float = TIMEOUT) -> Outcome:
        """The same from a coroutine, without stopping the loop."""
        return await in_thread(lambda: self.submit(transaction, timeout=timeout))

    def outcome(self, ticket: bytes, *, timeout: float = TIMEOUT) -> Outcome | None:
        """What has become of a transaction of this node's; None while it waits. ObjectError if there is none."""
        if not isinstance(ticket, bytes) or len(ticket) != TICKET:
            raise ObjectError(f"outcome: expected a ticket, {TICKET} bytes, found {ticket!r}")
        found: TransactionIs = self._ask(CollectOutcome(ticket), monotonic() + timeout, ticket)
        if not found.known:
            raise ObjectError(f"outcome: expected a ticket that node {self.owner!r} knows of this node, found another")
        return unpack_outcome(found.outcome) if found.outcome else None

    # ── reading ──

    @property
    def types(self) -> dict[str, EventType]:
        """The types of its objects that this node may read, by name."""
        found = self._ask(TellTypes(), monotonic() + TIMEOUT)
        for name, data in found.types.items():
            type = unpack_type(data)
            if type is not None and self._types.get(name) != type:
                self._types[name] = type
        self._types = {name: type for name, type in self._types.items() if name in found.types}
        return dict(self._types)

    def list(self, pattern: str = "**") -> Iterator[Kept]:
        """Objects whose names fit, by name, as they are while this goes on."""
        after = ""
        while True:
            page = self._ask(ReadObjects(pattern, after), monotonic() + TIMEOUT)
            for row in page.rows:
                value = self._type(row.type).decode(row.record)
                yield Kept(f"//{self.owner}/{row.path}", row.type, value, row.turn, row.at)
            if not page.next or page.next <= after:
                return
            after = page.next

    def get(self, name: str) -> Kept | None:
        """An object as it is now; None if there is none that this node may read."""
        wanted = object_name(name, self.owner).whole
        self._must_be_owned(wanted.node, name)
        return next(self.list(str(wanted)), None)

    def __getitem__(self, name: str) -> Any:
        """The value of an object or member; KeyError if there is none that this node may read."""
        kept = self.get(name)
        if kept is None:
            raise KeyError(name)
        value = kept.value
        for field in object_name(name, self.owner).members:
            value = None if value is None else getattr(value, field)
        return value

    def changes(self, type: str) -> Channel[Any]:
        """The channel of the changes of a type's objects, here as at their owner; that of other owners too."""
        return self._context.node.channel(CHANNEL + type, change_type(self._type(type)))

    def _type(self, name: str) -> EventType:
        if name not in self._types and name not in self.types:
            raise ObjectError(f"type {name!r}: expected one of node {self.owner!r} that this node may read, found none")
        return self._types[name]

    def _must_be_owned(self, node: str, name: str) -> None:
        if node != self.owner:
            raise ObjectError(f"object {name!r}: expected one of //{self.owner}/…, found one of {node!r}")

    # ── triggers ──

    def trigger(
        self,
        name: str,
        *,
        on: str | Sequence[str],
        when: When,
        where: str = "",
        type: str = "",
        inputs: Mapping[str, str | tuple[str, str] | Input] | None = None,
        history: Mapping[str, History] | None = None,
        notify: bool | str | Sequence[str] | Mapping[str, str] = True,
        params: Mapping[str, Any] | None = None,
    ) -> RemoteTrigger:
        """Have the owner judge a trigger, and tell of it: as `trigger` of one's own objects, without an action. One
        notification crosses for this node, however many subscribe to it. An equal one of this node's is that one."""
        made = self._defined(
            name,
            on=on,
            when=when,
            where=where,
            type=type,
            inputs=inputs,
            history=history,
            notify=notify,
            params=params,
        )
        found = self._ask(InstallTrigger(definition.pack(made)), monotonic() + TIMEOUT)
        return RemoteTrigger(self._context, lambda request: self._ask(request, monotonic() + TIMEOUT), found)

    def _defined(self, name: str, **given: Any) -> Trigger:
        """With the types of all objects that it means, which the owner wants to be told."""
        made = definition.trigger(name, node=self.owner, **given)
        return structs.replace(made, type=made.type or self._type_listened(made), inputs=self._typed(made))

    def explain_trigger(self, name: str, *, on: str | Sequence[str], when: When, **more: Any) -> str:
        """What `trigger` with the same would have the owner install, in words; nothing is installed."""
        made = self._defined(name, on=on, when=when, **{"notify": True, **more})
        [row] = self._ask(ExplainTrigger(definition.pack(made)), monotonic() + TIMEOUT).rows
        return str(row.text)

    def triggers(self) -> Iterator[TriggerRow]:
        """Triggers there, by name, with their counts: those of this node, and those about what it may `inspect`."""
        after = ""
        while True:
            page = self._ask(TellTriggers("", after), monotonic() + TIMEOUT)
            yield from page.rows
            if not page.next or page.next <= after:
                return
            after = page.next

    def explain(self, trigger: str) -> str:
        """A trigger there in words: who decides which part, what it costs and remembers, and how it went."""
        [row] = self._ask(TellTriggers(trigger), monotonic() + TIMEOUT).rows
        return str(row.text)

    def _type_listened(self, trigger: Trigger) -> str:
        """That of the first object that it names."""
        names = [each.name for each in trigger.on if each.name and each.kind != "channel" and not each.is_pattern]
        found = self.get(names[0]) if names else None
        return "" if found is None else found.type

    def _typed(self, trigger: Trigger) -> dict[str, Input]:
        found = {}
        for key, given in trigger.inputs.items():
            kept = None if given.type or given.name.startswith("{") else self.get(given.name)
            found[key] = structs.replace(given, type=kept.type) if kept is not None else given
        return found

    # ── replicas ──

    def replica(
        self,
        pattern: str,
        *,
        type: str = "",
        bound: Mapping[str, float] | None = None,
        members: Iterable[str] = (),
        model: Linear | None = None,
    ) -> Replica:
        """Hold objects here, of a name or a pattern of names: at the time that it says (`as_of`) they differed from
        what it has by at most `bound`, member by member, and crossing is only what would be further off. Members
        without a bound are exact; with `members`, only those and the ones with a bound are kept in step. A `model` is
        what both sides take values to do meanwhile."""
        named = NamePattern(pattern, self.owner)
        self._must_be_owned(named.node, pattern)
        if not type and named.literal is not None:
            found = self.get(named.literal)
            type = "" if found is None else found.type
        if not type:
            raise ObjectError(
                f"replica of {pattern!r}: expected an object that exists, or the type of those that are meant, "
                "found neither; say type="
            )
        form = self._type(type)
        spec = replica_spec(pattern, type, form, node=self.owner, bound=bound, members=members, model=model)
        return self._hold(spec, form)

    def _hold(self, spec: ReplicaSpec, form: EventType) -> Replica:
        assert self._holds is not None
        return Replica(
            spec,
            form,
            self._context,
            self._holds,
            lambda request: self._ask(request, monotonic() + TIMEOUT),
            self._peer,
        )

    @property
    def services(self) -> dict[str, QualityService]:
        """Services with quality that the owner offers this node, by name."""
        found: ServicesAre = self._ask(TellServices(), monotonic() + TIMEOUT)
        made = [quality.unpack(body) for body in found.services]
        return {each.name: each for each in made}

    def service(
        self, name: str, level: str | Adaptive, *, on_level: Callable[[LevelChange], object] | None = None
    ) -> ServedReplica | ServedTrigger:
        """Objects of the owner as it offers them, at one of its levels; with `Adaptive(...)`, at the best that the link
        can carry. `on_level` is told of each change of that. One over a trigger is what that tells, at a level."""
        found: ServicesAre = self._ask(TellServices(name), monotonic() + TIMEOUT)
        if not found.services:
            raise ObjectError(
                f"service {name!r}: expected one that {self.owner!r} offers this node, found none; see services"
            )
        service = quality.unpack(found.services[0])
        if service.triggers:
            return ServedTrigger(service, level, self._context, found.channels)
        form = self._type(service.type)
        quality.check(service, form)
        return ServedReplica(service, level, self._context, lambda spec: self._hold(spec, form), on_level)

    # ── asking ──

    def _peer(self) -> Peer | None:
        there = [each for each in self._peers.everyone() if each.name == self.owner and each.gone is None]
        if len(there) > 1:
            raise FederationError(
                f"objects at {self.owner!r}: expected one node of that name, found {len(there)}: "
                f"{', '.join(sorted(each.id for each in there))}; name them otherwise"
            )
        return there[0] if there else None

    def _ask(self, request: Request, end: float, ticket: bytes = b"") -> Any:
        """The owner's answer; it is asked again until it has one, or it is too late."""
        while True:
            if self._context.node.closed:
                raise ClosedError(f"objects at {self.owner!r}: node {self._context.name!r} is closed")
            peer = self._peer()
            if peer is not None and peer.exchange is not None:
                try:
                    return self._dialogue.ask(peer, request, max(AGAIN_SECONDS, min(10.0, end - monotonic())))
                except Unreachable:
                    pass
            if monotonic() >= end:
                raise self._late(ticket)
            self._context.scheduler.until(lambda: False, min(AGAIN_SECONDS, max(0.0, end - monotonic())))

    def _late(self, ticket: bytes) -> Unreachable:
        text = f"objects at {self.owner!r}: expected an answer of that node, found none in time"
        if ticket:
            text += f"; the transaction may have run: submit it again with ticket {ticket.hex()}, and it runs once"
        return Unreachable(text)

    def __repr__(self) -> str:
        return f"<Objects of {self.owner}, as {self._context.name} sees them>"


__all__ = ["RemoteObjects"]
