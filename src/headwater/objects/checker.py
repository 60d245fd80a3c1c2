"""A transaction against what is known: everything that is surely wrong with it, at once, each with its operation.

It is looked at as if it were done from here on: what it creates is there for what follows, and what it destroys is not.
Values that are not known yet, such as those that are read, are taken for what their types say.

A turn that was refused is looked at by it, to tell all problems at once. What comes from other nodes is looked at
before it is queued, over objects as they are committed (`Committed`): not to refuse it, for they may be others in its
turn, but to have its expressions compiled by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import EncodeError, HeadwaterError, ObjectError
from headwater.objects import tables
from headwater.objects.execution import ALIAS, Execution, check_apart, check_put, described, encoded, type_python
from headwater.objects.expressions import Named, texts_of
from headwater.objects.object_types import ObjectType
from headwater.objects.operations import (
    Administer,
    Create,
    Destroy,
    Guard,
    Invoke,
    Problem,
    Put,
    Raise,
    Read,
    Transaction,
    Update,
)
from headwater.objects.world import Value
from headwater.types.values import to_raw

if TYPE_CHECKING:
    from headwater.objects.object_types import ObjectTypes
    from headwater.store.state import RoomTables


class Objects(Protocol):
    """Who knows the types of objects."""

    types: ObjectTypes

    def get(self, object: str) -> Value | None:
        """One that is there; only its type is asked for."""
        ...


class Committed:
    """Objects as they are committed, for any thread."""

    def __init__(self, types: ObjectTypes, rows: RoomTables) -> None:
        self.types, self._rows = types, rows

    def get(self, object: str) -> Value | None:
        """Its type, and no value."""
        row = tables.row_of(self._rows, object)
        return None if row is None else Value(self.types.numbered(row[1]), row[2], {})


class Checker:
    """Looks at transactions, and changes nothing; in the turn thread, if it looks at objects of the turn."""

    def __init__(self, world: Objects, execution: Execution) -> None:
        self._world, self._execution = world, execution

    def problems(self, transaction: Transaction) -> list[Problem]:
        """One for each operation that cannot be done."""
        look = _Look(self._world, self._execution, transaction)
        found = []
        for number, operation in enumerate(transaction.operations, 1):
            try:
                _STEPS[operation.__class__](look, operation)
            except (HeadwaterError, RecursionError) as error:
                found.append(Problem(number, described(operation, error)))
        return found


class _Look:
    def __init__(self, world: Objects, execution: Execution, transaction: Transaction) -> None:
        self._world, self._execution = world, execution
        self._texts = texts_of(transaction.permits is not None)
        self._params: Mapping[str, Any] = transaction.params
        self._permits = transaction.permits
        self._there: dict[str, ObjectType | None] = {}  # what the transaction has made, or destroyed
        self._reads: dict[str, Named] = {}
        self._aliases: set[str] = set()

    def _type(self, object: str, deed: str = "change") -> ObjectType:
        if object in self._there:
            found = self._there[object]
        else:
            value = self._world.get(object)
            found = None if value is None else value.type
        if self._permits is not None:
            self._permits.check(None if found is None else found.name, deed)
        if found is None:
            raise ObjectError("expected an object of that name, found none; create it first")
        return found

    def create(self, operation: Create) -> None:
        object = self._execution.whole(operation.name)
        if self._permits is not None:
            self._permits.check_type(operation.type)
        there = self._there[object] if object in self._there else self._world.get(object)
        type = self._world.types.named(operation.type)
        self._there[object] = type
        if there is not None:
            raise ObjectError("expected no such object, found one; destroy it first, or update it")
        self._values(type, operation.value, operation.computed, None)

    def _values(
        self, type: ObjectType, value: Mapping[str, Any], computed: Mapping[str, str], own: ObjectType | None
    ) -> None:
        """Of something that is made as a whole."""
        for path, text in computed.items():
            self._computed(text, type, path, own)
        type_python(type, dict.fromkeys(computed))
        if not computed:
            encoded(type, value)
            return
        for name, given in value.items():
            self._fits(type, name, given)

    def _fits(self, type: ObjectType, path: str, given: Any) -> None:
        member = type.member(path)
        if given is None and member.optional:
            return
        try:
            to_raw(member.binding, given, path)
        except EncodeError as error:
            raise ObjectError(str(error)) from None

    def _computed(self, text: str, type: ObjectType, path: str, own: ObjectType | None) -> None:
        names = self._reads
        if own is not None:
            fields = own.type.record.fields
            names = {field.name: Named(field.type, field.optional, None) for field in fields} | self._reads
        target = type.member(path).type
        self._texts.compiled(text, names, target, self._params)

    def update(self, operation: Update) -> None:
        type = self._type(self._execution.whole(operation.name))
        for path, given in operation.value.items():
            self._fits(type, path, given)
        for path, text in operation.computed.items():
            self._computed(text, type, path, type)
        check_apart([*operation.value, *operation.computed])

    def put(self, operation: Put) -> None:
        object = self._execution.whole(operation.name)
        value = None if object in self._there else self._world.get(object)
        found = self._there.get(object, None if value is None else value.type)
        if found is None:
            self.create(Create(operation.name, operation.type, operation.value, operation.computed))
        else:
            self.update(Update(operation.name, operation.value, operation.computed, operation.event))
            check_put(operation, found)

    def read(self, operation: Read) -> None:
        self._alias(operation.alias)
        name = self._execution.owned(operation.name)
        member = self._type(name.object, "read").member(name.member)
        self._reads[operation.alias] = Named(member.type, member.optional, None)

    def _alias(self, alias: str) -> None:
        if not ALIAS.fullmatch(alias):
            raise ObjectError(f"expected a name of 1 to 64 letters, digits and _ for what is read, found {alias!r}")
        if alias in self._aliases:
            raise ObjectError(f"expected another name for what is read, found {alias!r} in use")
        self._aliases.add(alias)

    def invoke(self, operation: Invoke) -> None:
        type = self._type(self._execution.whole(operation.name))
        method = self._execution.method(type, operation.method)
        if operation.alias:
            self._alias(operation.alias)
            if method.result is None:
                raise ObjectError(f"expected a method with a result for {operation.alias!r}, found one without")
            type_, optional = method.result
            self._reads[operation.alias] = Named(type_, optional, None)
        if method.takes is None:
            method.arguments({**operation.value, **operation.computed})
        else:
            self._values(ObjectType(0, method.name, method.takes), operation.value, operation.computed, type)

    def raise_(self, operation: Raise) -> None:
        if operation.name:
            name = self._execution.owned(operation.name)
            self._type(name.object).member(name.member)
            if operation.value or operation.computed or operation.channel:
                raise ObjectError("expected an event about an object, or one of a channel with a value, found both")
            return
        if self._permits is not None:
            self._permits.check_channel(operation.channel)
        type = self._execution.channel_type(operation.channel)
        self._values(ObjectType(0, type.name, type), operation.value, operation.computed, None)

    def destroy(self, operation: Destroy) -> None:
        object = self._execution.whole(operation.name)
        self._type(object)
        self._there[object] = None

    def guard(self, operation: Guard) -> None:
        self._texts.compiled(operation.condition, self._reads, None, self._params)

    def administer(self, operation: Administer) -> None:
        if self._permits is not None:
            raise ObjectError("expected an operation on objects, found one that only the owner may do")
        if operation.alias:
            self._alias(operation.alias)


_STEPS: dict[type, Callable[[_Look, Any], None]] = {
    Create: _Look.create,
    Update: _Look.update,
    Put: _Look.put,
    Read: _Look.read,
    Invoke: _Look.invoke,
    Raise: _Look.raise_,
    Destroy: _Look.destroy,
    Guard: _Look.guard,
    Administer: _Look.administer,
}

__all__ = ["Checker", "Committed"]
