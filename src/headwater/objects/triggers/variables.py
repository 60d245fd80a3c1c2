"""What a trigger remembers by itself: whether its condition holds, and the object as it was at the last firing.

Both are of a trigger and an object where the condition is about that object, else of the trigger as a whole (the object
is then the empty text). They are written when they change, and only then.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, NamedTuple

from headwater.objects.journal import Journal
from headwater.objects.triggers import tables

if TYPE_CHECKING:
    from headwater.errors import ObjectError
    from headwater.objects.triggers.shares import Shares
    from headwater.store.migrations import Execute

WHOLE = ""  # instead of an object, where a condition is one for the whole trigger


class Variable(NamedTuple):
    """Of a trigger and an object. `last` is a record."""

    holds: bool = False
    last: bytes | None = None


NOTHING = Variable()
_NONE: Set[int] = frozenset()


class Variables:
    """Those of all triggers: by object, and which objects each trigger remembers something of."""

    def __init__(self, journal: Journal, shares: Shares) -> None:
        self._journal, self._shares = journal, shares
        self._askers: dict[int, tuple[str]] = {}  # triggers of other nodes, in whose shares they are counted
        self._values: dict[str, dict[int, Variable]] = {}
        self._objects: dict[int, dict[str, None]] = {}
        self._holding: dict[str, set[int]] = {}
        self._dirty: dict[tuple[int, str], None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def ask(self, number: int, asker: str) -> None:
        """A trigger is of another node."""
        if asker:
            self._askers[number] = (asker,)

    def refused(self, number: int, object: str) -> ObjectError | None:
        """Why nothing more can be remembered of an object; None if it can be, or is already."""
        payers = self._askers.get(number)
        if payers is None or object in self._objects.get(number, ()):
            return None
        full = self._shares.full(payers)
        return self._shares.refusal(full, object or "all objects") if full else None

    def get(self, number: int, object: str) -> Variable:
        """What is remembered; that of nothing is not holding, and no last value."""
        found = self._values.get(object)
        return NOTHING if found is None else found.get(number, NOTHING)

    def holding(self, object: str) -> Set[int]:
        """The triggers whose condition holds of this object; it changes as they do."""
        return self._holding.get(object, _NONE)

    def put(self, number: int, object: str, value: Variable) -> None:
        """From now on."""
        before = self.get(number, object)
        if before != value:
            self._set(number, object, value)
            self._journal.did(lambda: self._set(number, object, before))

    def _set(self, number: int, object: str, value: Variable) -> None:
        self._dirty[number, object] = None  # also when it is taken back: the file may have either
        self._place(number, object, value)

    def _place(self, number: int, object: str, value: Variable) -> None:
        """In all that says where it is, and in the share of the node that it is for."""
        if value.holds:
            self._holding.setdefault(object, set()).add(number)
        elif object in self._holding:
            self._holding[object].discard(number)
            if not self._holding[object]:
                del self._holding[object]
        payers = self._askers.get(number)
        if payers is not None:
            there = object in self._objects.get(number, ())
            self._shares.place(payers, (value != NOTHING) - there)
        if value != NOTHING:
            self._values.setdefault(object, {})[number] = value
            self._objects.setdefault(number, {})[object] = None
            return
        if object in self._values:
            self._values[object].pop(number, None)
            if not self._values[object]:
                del self._values[object]
        if number in self._objects:
            self._objects[number].pop(object, None)
            if not self._objects[number]:
                del self._objects[number]

    def forget_holding(self, number: int) -> None:
        """A condition begins anew: of no object is it known to hold."""
        for object in list(self._objects.get(number, ())):
            self.put(number, object, self.get(number, object)._replace(holds=False))

    def forget_trigger(self, number: int) -> None:
        """It is no more."""
        for object in list(self._objects.get(number, ())):
            self.put(number, object, NOTHING)

    def forget_object(self, object: str) -> None:
        """It is no more: what is created under its name is another."""
        for number in list(self._values.get(object, ())):
            self.put(number, object, NOTHING)

    def write(self, execute: Execute) -> None:
        """What has changed since the last time."""
        for key in self._dirty:
            value = self.get(*key)
            tables.write_variable(execute, key, None if value == NOTHING else value)
        if self._dirty:
            written, self._dirty = self._dirty, {}
            self._journal.did(lambda: self._dirty.update(written))

    def load(self, execute: Execute) -> None:
        """What the file has."""
        for number, object, holds, last in tables.variables(execute):
            self._place(number, object, Variable(bool(holds), last))


__all__ = ["NOTHING", "WHOLE", "Variable", "Variables"]
