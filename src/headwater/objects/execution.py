"""One transaction: its operations, one after the other, on the world as it is. It is undone as a whole if one fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import EncodeError, HeadwaterError, ObjectError, StoreError
from headwater.objects.expressions import Named, record_of, texts_of
from headwater.objects.limits import check as check_limits
from headwater.objects.names import ObjectName, object_name
from headwater.objects.object_types import CHANNEL, CODES, ObjectType, member_of, plain_value, with_member
from headwater.objects.operations import (
    MAX_RESULTS,
    MAX_STEPS,
    MAX_TOUCHED,
    Administer,
    AnyOperation,
    Create,
    Destroy,
    Guard,
    Invoke,
    Put,
    Raise,
    Read,
    Transaction,
    Update,
    packed_size,
)
from headwater.objects.reactions import Moment, Notice, Occurrence, Op, Reactions
from headwater.objects.world import Value, World
from headwater.types.values import to_raw

if TYPE_CHECKING:
    from headwater.objects.methods import Methods
    from headwater.objects.rates import Rates
    from headwater.types import EventType
    from headwater.types.model import Type

ChannelType = Callable[[str], "EventType | None"]  # of a channel by its name; None if there is none
ALIAS = re.compile(r"[^\W\d]\w{0,63}")


class Refused(Exception):
    """An operation cannot be done: which one, counted from 1, and why."""

    def __init__(self, operation: int, text: str) -> None:
        super().__init__(text)
        self.operation, self.text = operation, text


class Execution:
    """Runs the transactions of one turn after the other. `moment` is the turn under way, with what it has so far."""

    def __init__(
        self, node: str, world: World, methods: Methods, channel_type: ChannelType, reactions: Reactions, rates: Rates
    ) -> None:
        self._node, self._world, self._methods, self.rates = node, world, methods, rates
        self._channel_type, self.reactions = channel_type, reactions

    def run(self, transaction: Transaction, moment: TurnMoment, depth: int) -> tuple[dict[str, Any], list[Occurrence]]:
        """Its results, and what has happened; Refused if an operation cannot be done."""
        run = _Run(self, self._world, transaction, moment, depth)
        for number, operation in enumerate(transaction.operations, 1):
            try:
                _STEPS[operation.__class__](run, operation)
            except StoreError:
                raise  # the file cannot be written: that is no fault of the operation
            except (HeadwaterError, RecursionError) as error:
                raise Refused(number, described(operation, error)) from error
        return run.results, run.occurrences

    def owned(self, text: str) -> ObjectName:
        """A name of an object of this node."""
        name = object_name(text, self._node)
        if name.node != self._node:
            raise ObjectError(f"expected an object of this node, //{self._node}/…, found one of {name.node!r}")
        return name

    def whole(self, text: str) -> str:
        """The path of an object of this node, not of a member."""
        name = object_name(text, self._node)
        if name.member or name.node != self._node:
            member = self.owned(text).member
            raise ObjectError(f"expected an object, found its member {member!r}")
        return name.object

    def method(self, type: ObjectType, name: str) -> Any:
        """One that is registered."""
        return self._methods.find(type, name)

    def channel_type(self, channel: str) -> EventType:
        """That of a channel, for an event of it."""
        if channel.startswith((CHANNEL, "headwater.")):
            raise ObjectError(
                f"expected a channel for events of programs, found {channel!r}, which a node itself fills"
            )
        found = self._channel_type(channel)
        if found is None:
            raise ObjectError(f"expected a channel with a type at this node, found {channel!r}; open it first")
        return found


def described(operation: AnyOperation, error: BaseException) -> str:
    """What is wrong with an operation, on one line."""
    about = operation.channel if isinstance(operation, Raise) and not operation.name else operation.name
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{operation.verb} {about[:120]}: {text}"


class TurnMoment(Moment):
    """The turn under way: the contract `Moment`, how many things have happened in it, and in which of its transactions
    they do."""

    __slots__ = ("_notify", "_world", "at", "brought", "count", "execute", "node", "step", "turn")

    node: str
    turn: int
    at: int
    execute: Any

    def __init__(self, node: str, turn: int, at: int, world: World, notify: Callable[[Notice], None]) -> None:
        self.node, self.turn, self.at, self.execute = node, turn, at, world.execute
        self.count = self.step = 0
        self.brought: list[Occurrence] = []  # by a clock or a channel, with the operation under way
        self._world, self._notify = world, notify

    def value(self, object: str) -> tuple[EventType, bytes, Mapping[str, Any]] | None:
        found = self._world.get(object)
        return None if found is None else (found.type.type, found.record, found.raw)

    def type_name(self, object: str) -> str | None:
        found = self._world.get(object)
        return None if found is None else found.type.name

    def notify(self, notice: Notice) -> None:
        self._notify(notice)

    def happened(self, object: str, type: EventType, op: str, old: bytes | None, new: bytes | None) -> None:
        """Something that no operation on an object has done: it is judged as if one had."""
        before, after = (None if each is None else type.decode_raw(each) for each in (old, new))
        self.brought.append(
            Occurrence(object, type, op, old, new, before, after, (), True, self.turn, self.at, self.count, 0)
        )
        self.count += 1


class _Run:
    """Of one transaction."""

    __slots__ = (
        "depth",
        "moment",
        "occurrences",
        "of",
        "params",
        "permits",
        "reads",
        "results",
        "size",
        "steps",
        "texts",
        "told",
        "touched",
        "world",
    )

    def __init__(self, of: Execution, world: World, transaction: Transaction, moment: TurnMoment, depth: int) -> None:
        self.of, self.world, self.moment, self.depth = of, world, moment, depth
        self.params: Mapping[str, Any] = transaction.params
        self.permits = transaction.permits
        self.texts = texts_of(transaction.permits is not None)
        self.steps = self.size = 0
        if self.params:
            self.size = sum(len(each) for each in self.params.values() if isinstance(each, (str, bytes)))
        self.reads: dict[str, Named] = {}
        self.results: dict[str, Any] = {}
        self.occurrences: list[Occurrence] = []
        self.touched = self.told = 0  # bytes, of a transaction of another node: many small operations may be about much

    # ── the operations ──

    def create(self, operation: Create) -> None:
        object = self.of.whole(operation.name)
        if self.permits is not None:
            self.permits.check_type(operation.type)
        if self.world.get(object) is not None:
            raise ObjectError("expected no such object, found one; destroy it first, or update it")
        type = self.world.types.named(operation.type)
        fields: dict[str, Any] = operation.value
        if operation.computed:
            made = {path: self.computed(text, type, path, None) for path, text in operation.computed.items()}
            fields = {**type_python(type, made), **fields}
        record = encoded(type, fields)
        value = Value(type, record, type.type.decode_raw(record))
        self.world.create(object, value, self.moment.turn, self.moment.at)
        self.happened(object, "created", None, value, (), True)

    def update(self, operation: Update) -> None:
        """All members are computed from the object as it is before any of them is set."""
        object = self.of.whole(operation.name)
        old = self.existing(object)
        type, record = old.type, old.type.type.record
        raw: Mapping[str, Any] = old.raw
        written: dict[str, Any] = {}
        for path, given in operation.value.items():
            member = type.member(path)
            if given is None and member.optional:
                written[path] = None
            else:
                try:
                    written[path] = to_raw(member.binding, given, path)
                except EncodeError as error:
                    raise ObjectError(str(error)) from None
        for path, text in operation.computed.items():
            written[path] = self.computed(text, type, path, old.raw)
        if len(written) > 1:
            check_apart(written)
        if "" in written:  # the object as a whole
            raw = written.pop("")
        for path, made in written.items():
            raw = with_member(raw, path, made, record)
        value = Value(type, type.type.encode(raw), raw)
        self.world.update(object, value, self.moment.turn, self.moment.at)
        self.happened(object, "updated", old, value, tuple(written), operation.event)

    def put(self, operation: Put) -> None:
        """An update, or where there is no such object, its creation, which is an event always."""
        found = self.world.get(self.of.whole(operation.name))
        if found is None:
            self.create(Create(operation.name, operation.type, operation.value, operation.computed))
            return
        if self.permits is not None:
            self.permits.check(found.type.name, "change")
        check_put(operation, found.type)
        self.update(Update(operation.name, operation.value, operation.computed, operation.event))

    def read(self, operation: Read) -> None:
        name = self.of.owned(operation.name)
        found = self.existing(name.object, "read")
        member = found.type.member(name.member)
        self.result(operation.alias, Named(member.type, member.optional, member_of(found.raw, name.member)))

    def invoke(self, operation: Invoke) -> None:
        """A method sees the object as it is in the transaction, and what it returns may be its new value."""
        object = self.of.whole(operation.name)
        old = self.existing(object)
        method = self.of.method(old.type, operation.method)
        given = dict(operation.value)
        if operation.computed:
            if method.takes is None:
                raise ObjectError(f"expected no arguments, found {', '.join(operation.computed)}")
            takes = ObjectType(0, method.name, method.takes)
            made = {
                each: self.computed(text, takes, each, old.raw, old.type) for each, text in operation.computed.items()
            }
            given.update(type_python(takes, made))
        found = method.call(old.type.type.decode(old.record), method.arguments(given))
        if method.changes:
            value = Value(old.type, old.type.type.encode(found), found)
            self.world.update(object, value, self.moment.turn, self.moment.at)
            self.happened(object, "updated", old, value, (), method.event)
        if operation.alias:
            if method.changes and self.permits is not None:
                self.permits.check(old.type.name, "read")  # its result is the object
            result = method.result
            if result is None:
                raise ObjectError(f"expected a method with a result for {operation.alias!r}, found one without")
            self.result(operation.alias, Named(result[0], result[1], found))

    def raise_(self, operation: Raise) -> None:
        if operation.name:
            if operation.value or operation.computed or operation.channel:
                raise ObjectError("expected an event about an object, or one of a channel with a value, found both")
            object = self.of.owned(operation.name)
            value = self.existing(object.object)
            value.type.member(object.member)
            self.happened(object.object, "raised", value, value, (object.member,) if object.member else (), True)
            return
        if self.permits is not None:
            self.permits.check_channel(operation.channel)
        type = self.of.channel_type(operation.channel)
        as_object = ObjectType(0, type.name, type)
        made = {path: self.computed(text, as_object, path, None) for path, text in operation.computed.items()}
        record = encoded(as_object, {**type_python(as_object, made), **operation.value})
        self.moment.notify(Notice(operation.channel, type, record))

    def destroy(self, operation: Destroy) -> None:
        object = self.of.whole(operation.name)
        old = self.existing(object)
        self.world.destroy(object)
        self.happened(object, "destroyed", old, None, (), True)

    def guard(self, operation: Guard) -> None:
        if not self.evaluated(operation.condition, self.reads, None):
            raise ObjectError("expected it to hold, found that it does not")

    def administer(self, operation: Administer) -> None:
        if self.permits is not None:
            raise ObjectError("expected an operation on objects, found one that only the owner may do")
        found = self.of.reactions.administer(operation, self.moment)
        self.occurrences += self.moment.brought
        self.moment.brought.clear()
        if operation.alias:
            self.check_alias(operation.alias)
            self.results[operation.alias] = found

    # ── what they have in common ──

    def existing(self, object: str, deed: str = "change") -> Value:
        """An object, which the transaction may read, or change."""
        found = self.world.get(object)
        if self.permits is not None:
            self.permits.check(None if found is None else found.type.name, deed)
        if found is None:
            raise ObjectError("expected an object of that name, found none; create it first")
        return found

    def check_alias(self, alias: str) -> None:
        if not ALIAS.fullmatch(alias):
            raise ObjectError(f"expected a name of 1 to 64 letters, digits and _ for what is read, found {alias!r}")
        if alias in self.results:
            raise ObjectError(f"expected another name for what is read, found {alias!r} in use")

    def result(self, alias: str, named: Named) -> None:
        """What later operations, and whoever has submitted it, may use."""
        self.check_alias(alias)
        self.reads[alias] = named
        found = self.results[alias] = plain_value(named.type, named.raw)
        if self.permits is not None:
            self.told += packed_size(found)
            if self.told > MAX_RESULTS:
                raise ObjectError(f"expected at most {MAX_RESULTS:,} bytes of results, found more; read fewer at once")

    def evaluated(self, text: str, names: dict[str, Named], target: Type | None) -> Any:
        """What a text is now. Those of one transaction of another node may take so much together, and no more."""
        made = self.texts.compiled(text, names, target, self.params)
        record = record_of(made.scope, names)
        if self.permits is not None:
            self.steps += made.steps(len(record) + self.size)
            if self.steps > MAX_STEPS:
                raise ObjectError(
                    f"expected values that take less than {MAX_STEPS // 1_000_000:,} ms to compute, all together, by "
                    "what the checker counts, found more; compute fewer at once, or from shorter texts"
                )
        return made.run(record)

    def computed(
        self, text: str, type: ObjectType, path: str, raw: Mapping[str, Any] | None, of: ObjectType | None = None
    ) -> Any:
        """The raw form of what a member becomes. The members of the object itself may be used, where it is there."""
        member = type.member(path)
        names: dict[str, Named] = self.reads
        if raw is not None:
            own = (of or type).type.record.fields
            names = {field.name: Named(field.type, field.optional, raw[field.name]) for field in own} | self.reads
        found = self.evaluated(text, names, member.type)
        if found is None and not member.optional:
            raise ObjectError(f"{path}: expected a value of {text!r}, found that it is missing")
        return found

    def happened(
        self, object: str, op: Op, old: Value | None, new: Value | None, members: tuple[str, ...], event: bool
    ) -> None:
        """Note it; with an event, the change leaves after the commit."""
        moment = self.moment
        type = (new or old).type  # type: ignore[union-attr]
        old_raw, new_raw = None if old is None else old.raw, None if new is None else new.raw
        if type.limits and new_raw is not None and op != "raised":
            check_limits(type.limits, new_raw)
        if self.of.rates.by_type:
            if op == "updated" and old_raw is not None and new_raw is not None:
                self.of.rates.check(type.name, object, old_raw, new_raw, moment.at)
            elif op == "created":
                self.of.rates.created(type.name, object, moment.at)
        if self.permits is not None:
            self.touched += sum(len(each.record) for each in (old, new) if each is not None)
            if self.touched > MAX_TOUCHED:
                raise ObjectError(f"expected to change at most {MAX_TOUCHED:,} bytes of objects, found more")
        self.occurrences.append(
            Occurrence(
                object,
                type.type,
                op,
                None if old is None else old.record,
                None if new is None else new.record,
                old_raw,
                new_raw,
                members,
                event,
                moment.turn,
                moment.at,
                moment.count,
                self.depth,
            )
        )
        moment.count += 1
        if event:
            change = {
                "object": f"//{moment.node}/{object}",
                "op": CODES[op],
                "old": old_raw,
                "new": new_raw,
                "turn": moment.turn,
                "at": moment.at,
                "step": moment.step,
                "position": moment.count - 1,
                "member": members[0] if op == "raised" and members else None,
            }
            moment.notify(Notice(type.channel, type.change, type.change.encode(change)))


def check_put(operation: Put, found: ObjectType) -> None:
    """What is put is an object of its type, or there is none of that name."""
    if found.name != operation.type:
        raise ObjectError(
            f"expected an object of type {operation.type!r}, or none, found one of type {found.name!r}; "
            "put it under another name"
        )


def check_apart(paths: Iterable[str]) -> None:
    """Of what is written at once, nothing is a part of something else."""
    for path in (known := set(paths)):
        parts = path.split(".") if path else []
        for end in range(len(parts)):
            whole = ".".join(parts[:end])
            if whole in known:
                raise ObjectError(f"expected members apart from each other, found {path!r} and {whole!r}, which has it")


def encoded(type: ObjectType, fields: Mapping[str, Any]) -> bytes:
    """The record of an object with these members; ObjectError names the one that does not fit."""
    try:
        return type.type.encode(dict(fields))
    except EncodeError as error:
        raise ObjectError(str(error)) from None


def type_python(type: ObjectType, made: Mapping[str, Any]) -> dict[str, Any]:
    """Computed members of a value that is made as a whole, as they are given otherwise."""
    for path in made:
        if "." in path:
            raise ObjectError(f"{path}: expected fields of {type.name}, found a part of one; compute it as a whole")
    return {path: plain_value(type.member(path).type, raw) for path, raw in made.items()}


_STEPS: dict[type, Callable[[_Run, Any], None]] = {
    Create: _Run.create,
    Update: _Run.update,
    Put: _Run.put,
    Read: _Run.read,
    Invoke: _Run.invoke,
    Raise: _Run.raise_,
    Destroy: _Run.destroy,
    Guard: _Run.guard,
    Administer: _Run.administer,
}

__all__ = ["ChannelType", "Execution", "Refused", "TurnMoment", "check_apart", "check_put", "described", "encoded"]
