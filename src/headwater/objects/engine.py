"""The objects of one node, put together: the world, its turns, their queue, and what leaves after them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any

from headwater.errors import ObjectError
from headwater.objects import tables
from headwater.objects.checker import Checker, Committed
from headwater.objects.execution import ChannelType, Execution, TurnMoment
from headwater.objects.limits import LIMITS, limits_of
from headwater.objects.line import Item
from headwater.objects.methods import Method, Methods
from headwater.objects.names import NamePattern, ObjectName, object_name
from headwater.objects.object_types import CHANNEL, ObjectType, ObjectTypes, change_type, member_of, plain_value
from headwater.objects.observers import Observed, Observer
from headwater.objects.operations import Outcome, Transaction
from headwater.objects.outbox import Outbox
from headwater.objects.queue import Queue
from headwater.objects.rates import RATES, Rate, Rates, rates_of
from headwater.objects.reactions import Outlets, Told
from headwater.objects.shares import Line
from headwater.objects.triggers import description
from headwater.objects.triggers.administration import Triggers
from headwater.objects.triggers.tables import TRIGGERS
from headwater.objects.turn import Cascades, Turns
from headwater.objects.world import World
from headwater.threads import Crashes

if TYPE_CHECKING:
    from headwater.objects.triggers.definition import Trigger
    from headwater.objects.triggers.installed import Installed
    from headwater.store import NodeState
    from headwater.store.migrations import Execute
    from headwater.types import EventType

Row = tuple[str, str, bytes, int, int]  # of an object: path, type, record, turn and time
LOOKED = 10_000  # objects that are looked at for one page
KEEP_SECONDS = 86_400.0  # for which the outcomes of transactions with a ticket are kept


@dataclass(frozen=True, slots=True)
class Kept:
    """An object as it was when it was read: its full name, type, value (an instance of its type's class), the number of
    the turn that has written it, and when, in microseconds since 1970 by its owner's clock."""

    name: str
    type: str
    value: Any
    turn: int
    at: int


class ObjectEngine:
    """All of it, over the state of a node; threads may share it."""

    def __init__(
        self,
        node: str,
        state: NodeState,
        outlets: Outlets,
        channel_type: ChannelType,
        *,
        crashes: Crashes | None = None,
        now: Callable[[], int] | None = None,
        cascades: Cascades | None = None,
        keep_seconds: float = KEEP_SECONDS,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`observers` see every change within its turn, also those of what was queued in a life before."""
        object_name("x", node)  # a node whose name has a / in it can own none
        if "/" in node:
            raise ObjectError(f"objects: expected a node without / in its name, found {node!r}; name it otherwise")
        self.node = node
        self._promised: dict[str, tuple[int, int]] = {}  # by channel: a time, and up to which number it is known then
        self._tables = state.tables(tables.OBJECTS, readers=True)
        state.tables(LIMITS)
        state.tables(RATES)
        self._now = now or (lambda: time_ns() // 1000)
        crashes = crashes or Crashes()
        with self._tables.transaction() as execute:
            self.types = ObjectTypes(execute)
            self.methods = Methods(tables.methods_of(execute))
            self.outbox = Outbox(self._tables, execute, outlets, crashes, node)
            last, shares = tables.last_queued(execute), Line(tables.queued_of(execute))
            for declared in self.types.values():
                self.outbox.retype(execute, declared.channel, declared.change)
        self._world = World(self.types, execute)
        self.triggers = Triggers(node, self._type_named, channel_type, self.methods)
        for observer in observers:
            observer.type_named, observer.numbers_of = self._type_named, self._numbers_of
        reactions = Observed(self.triggers, self.triggers.journal, observers)
        for each in (TRIGGERS, *(each.tables for each in observers if each.tables is not None)):
            state.tables(each)
        with self._tables.transaction() as execute:
            self._world.execute = execute
            moment = TurnMoment(node, 0, self._now(), self._world, self.outbox.stage)
            self.triggers.open(moment)
            reactions.open(moment)
            self.rates = Rates(execute, self.triggers.journal, moment.at)
        execution = Execution(node, self._world, self.methods, channel_type, reactions, self.rates)
        checker = Checker(self._world, execution)
        self._before = Checker(Committed(self.types, self._tables), execution)
        self.turns = Turns(
            node, self._world, execution, self.outbox, checker, reactions, self._now, cascades or Cascades()
        )
        self.queue = Queue(
            node,
            self.turns,
            self._begin,
            crashes,
            last=last,
            now=self._now,
            keep_seconds=keep_seconds,
            committed=self._committed,
            forget=self._forget,
            tidy=self.outbox.tidy,
            adopt=self._adopt,
            ready=lambda: not self.methods.missing,
            shares=shares,
        )

    def _begin(self) -> Any:
        return self._tables.transaction(durable=True)

    def _adopt(self, execute: Execute) -> None:
        self._world.execute = execute
        self.outbox.adopt(execute)

    def _committed(self) -> None:
        self._world.committed()
        self.outbox.committed()  # first: what follows may fail, and changes leave all the same
        self.turns.reactions.committed()
        self.turns.clock.settled()  # last: who is promised a time has been told all that was before it

    def _forget(self) -> None:
        self._world.forget()
        self.outbox.forget()
        self.turns.reactions.forget()

    def _numbers_of(self, type: EventType) -> list[int]:
        return [each.number for each in self.types.values() if each.type == type]

    def _type_named(self, name: str) -> EventType | None:
        found = self.types.get(name)
        return None if found is None else found.type

    def start(self) -> None:
        """Run what is queued, and send what has not left."""
        self.turns.reactions.committed()  # whoever has a clock learns what it is to wait for
        self.outbox.start()
        self.queue.start()

    # ── types and methods ──

    def declare(self, name: str, type: EventType, *, limits: Mapping[str, Any] | None = None) -> ObjectType:
        """A type under a name, durably. ObjectError if there are objects of that name and of another type. `limits` of
        its members are those that it has had, if none are given."""
        known = self.types.get(name)
        bounds = None if limits is None else limits_of(name, type, limits)
        same = known is not None and known.type == type and known.type.binding.cls is type.binding.cls
        if same and known is not None and (bounds is None or bounds == known.limits):
            return known

        def errand(execute: Execute) -> Callable[[], ObjectType]:
            made = self.types.declare(execute, name, type, bounds)
            self.outbox.announce(execute, CHANNEL + name, change_type(type))
            return made

        made: ObjectType = self.queue.between(errand)()
        self.queue.between(lambda _: self._world.forget())  # values that are held have the type as it was
        return made

    def limit_rates(
        self, type: str, given: Mapping[str, float], burst: float, relied_on: Callable[[str], bool]
    ) -> Mapping[str, Rate]:
        """How fast members of a type's objects may change, durably. ObjectError where somebody relies on less."""
        rates = rates_of(type, self.types.named(type).type, given, burst)

        def errand(execute: Execute) -> None:
            if self.rates.loosens(type, rates) and relied_on(type):
                raise ObjectError(
                    f"rates of type {type!r}: expected none that are looser while others hold replicas, which rely on "
                    "them, found some; have them closed first"
                )
            self.rates.keep(execute, type, rates)

        self.queue.between(errand)
        self.queue.between(lambda _: self.rates.declared(type, rates, self._now()))
        return rates

    def announce(self, channel: str, type: EventType) -> None:
        """Have the source of a channel open before anything leaves on it, so that other nodes can ask for it."""
        self.queue.between(lambda execute: self.outbox.announce(execute, channel, type))

    def method(self, type: str, function: Callable[..., Any], name: str, *, event: bool) -> Method:
        """A function that transactions may invoke."""
        made = Method(self.types.named(type), function, name, event=event)
        if self.methods.add(made):
            self.queue.between(lambda execute: tables.add_method(execute, type, name))
        self.queue.look()
        return made

    # ── transactions ──

    def submit(
        self, transaction: Transaction, *, waits: bool = True, told: Told | None = None, here: bool = False
    ) -> Item:
        """In line, in the order of arrival. `here`: by who would do nothing but wait, and may run it himself."""
        return self.queue.submit(transaction, waits=waits, told=told, here=here)

    def prepare(self, transaction: Transaction) -> None:
        """Have what it computes compiled before its turn, in the thread that has it; whatever is wrong with it is told
        in its turn, when objects may be others."""
        self._before.problems(transaction)

    def prepare_trigger(self, trigger: Trigger) -> Installed | None:
        """The same of a trigger that is to be installed: how it would be; None if it cannot."""
        return self.triggers.prepare(trigger, self._committed_type)

    def explain_trigger(self, trigger: Trigger) -> str:
        """A trigger in words that is not installed; HeadwaterError with all that is wrong with it."""
        made = self.triggers.checked(trigger, self._committed_type)
        return description.explain(made, self.triggers.channel(made), self.triggers)

    def _committed_type(self, object: str) -> EventType | None:
        row = tables.row_of(self._tables, object)
        return None if row is None else self.types.numbered(row[1]).type

    def count(self, pattern: str, most: int) -> int:
        """How many objects have names that fit; no more than so many are looked at."""
        wanted, found = NamePattern(pattern, self.node), 0
        for looked, row in enumerate(tables.rows_from(self._tables, wanted.prefix)):
            if looked >= most:
                break
            found += wanted.matches(row[0])
        return found

    def outcome(self, ticket: bytes) -> Outcome | None:
        """Of a transaction with a ticket; None while it waits."""
        return self.queue.outcome(self._tables, ticket)

    # ── reading ──

    def get(self, name: str) -> Kept | None:
        """An object as it is committed; None if there is none."""
        found = self._own(object_name(name, self.node))
        row = tables.row_of(self._tables, found.object)
        return None if row is None else self._kept(row)

    def value(self, name: str) -> Any:
        """The value of an object or member, plain; ObjectError if there is no such object."""
        found = self._own(object_name(name, self.node))
        row = tables.row_of(self._tables, found.object)
        if row is None:
            raise ObjectError(f"object {name!r}: expected one that exists, found none")
        type = self.types.numbered(row[1])
        member = type.member(found.member)
        return plain_value(member.type, member_of(type.type.decode_raw(row[2]), found.member))

    def listed(self, pattern: str = "**") -> Iterator[Kept]:
        """Objects whose names fit, by name, page by page: turns go on meanwhile."""
        wanted = NamePattern(pattern, self.node)
        self._must_be_own(wanted.node, pattern)
        for row in self._rows(wanted):
            yield self._kept(row)

    def _rows(self, wanted: NamePattern) -> Iterator[tables.Row]:
        if wanted.literal is not None:
            row = tables.row_of(self._tables, wanted.literal)
            return iter(() if row is None else (row,))
        return (row for row in tables.rows_from(self._tables, wanted.prefix) if wanted.matches(row[0]))

    def records(self, type: str, pattern: str = "**") -> Iterator[tuple[str, bytes, int, int]]:
        """Path, record, turn and time of objects of a type."""
        wanted, of = NamePattern(pattern, self.node), self.types.named(type)
        self._must_be_own(wanted.node, pattern)
        for name, number, record, turn, at in self._rows(wanted):
            if number == of.number:
                yield name, record, turn, at

    def page(self, pattern: str, after: str, types: Container[str], most: int, size: int) -> tuple[list[Row], str]:
        """Objects of these types whose names fit, after a path: path, type, record, turn and time, up to so many and
        so many bytes; and the path after which to go on, nothing at the end."""
        wanted = NamePattern(pattern, self.node)
        self._must_be_own(wanted.node, pattern)
        found: list[Row] = []
        for looked, (name, number, record, turn, at) in enumerate(tables.rows_from(self._tables, wanted.prefix, after)):
            type = self.types.numbered(number)
            if type.name in types and wanted.matches(name):
                found.append((name, type.name, record, turn, at))
                size -= len(record)
            if len(found) >= most or size <= 0 or looked >= LOOKED:
                return found, name
        return found, ""

    def member_path(self, name: str) -> tuple[str, ...]:
        """The attributes that lead from an instance to a member."""
        return object_name(name, self.node).members

    def _own(self, name: ObjectName) -> ObjectName:
        self._must_be_own(name.node, str(name))
        return name

    def _must_be_own(self, node: str, name: str) -> None:
        if node != self.node:
            raise ObjectError(f"object {name!r}: expected one of this node, //{self.node}/…, found one of {node!r}")

    def _kept(self, row: tables.Row) -> Kept:
        name, number, record, turn, at = row
        type = self.types.numbered(number)
        return Kept(f"//{self.node}/{name}", type.name, type.type.decode(record), turn, at)

    def __len__(self) -> int:
        return tables.count(self._tables)

    def come_to(self, channel: str, cap: Callable[[], int]) -> int | None:
        """A time, not after `cap`, so that all turns up to it are committed, none comes any more, and everything that
        they have to say on a channel has left; None if some of it has not. It holds also if the clock is set back."""
        if self.outbox.doubtful:  # nothing else may ever look
            self.queue.look_at_file()
        upto = self.turns.clock.promise(cap)
        given, sent = self.outbox.reached(channel)
        if sent >= given:
            return upto
        before, self._promised[channel] = self._promised.get(channel), (upto, given)
        if before is None or sent < before[1]:  # it goes on all the same, though there is always more to be sent
            if before is not None:
                self._promised[channel] = before
            return None
        return before[0]

    # ── the end ──

    @property
    def busy(self) -> bool:
        """Whether something is in line, or is to leave."""
        return self.queue.busy or self.outbox.busy

    def drain(self, timeout: float) -> None:
        """Until what is in line has run, and has left."""
        self.queue.drain(timeout)
        self.outbox.wait(timeout)

    def close(self) -> None:
        """End the threads; what is queued, or has not left, is in the file."""
        self.queue.close()
        self.outbox.stop(self._write)

    def _write(self, errand: Callable[[Execute], None]) -> None:
        with self._tables.transaction() as execute:
            errand(execute)

    def report(self) -> Mapping[str, Any]:
        """Counts, and how far everything is."""
        turns = self.turns
        return {
            **self.queue.report(),
            "types": len(self.types),
            "caused": turns.caused,
            "failed": turns.failed,
            "undone": turns.undone,
            "cut": turns.cuts,
            **self.outbox.report(),
        }


__all__ = ["KEEP_SECONDS", "Kept", "ObjectEngine"]
