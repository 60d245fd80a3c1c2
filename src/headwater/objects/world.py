"""The values of objects during a turn: read through a cache, and written in the turn's SQLite transaction.

Only the turn thread is here. What others read is what is committed, by connections of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.objects import tables

if TYPE_CHECKING:
    from headwater.objects.object_types import ObjectType, ObjectTypes
    from headwater.store.migrations import Execute

CACHED = 16_384  # objects that are kept decoded


class Value(NamedTuple):
    """An object's type, record, and the same decoded, which nobody may change."""

    type: ObjectType
    record: bytes
    raw: Mapping[str, Any]


class World:
    """The objects of a node; `execute` is of the SQLite transaction that is open."""

    def __init__(self, types: ObjectTypes, execute: Execute, *, cached: int = CACHED) -> None:
        self.types, self.execute, self._most = types, execute, cached
        self._cache: OrderedDict[str, Value] = OrderedDict()
        self._touched: list[str] = []  # since the last commit, in order

    def get(self, object: str) -> Value | None:
        """What it is now; None if there is no such object."""
        found = self._cache.get(object)
        if found is not None:
            self._cache.move_to_end(object)
            return found
        row = tables.value_of(self.execute, object)
        if row is None:
            return None
        type = self.types.numbered(row[0])
        return self._remember(object, Value(type, row[1], type.type.decode_raw(row[1])))

    def _remember(self, object: str, value: Value) -> Value:
        cache = self._cache
        cache[object] = value
        if len(cache) > self._most:
            cache.popitem(last=False)
        return value

    def create(self, object: str, value: Value, turn: int, at: int) -> None:
        """One that is not there."""
        self._touched.append(object)
        tables.create(self.execute, object, value.type.number, value.record, turn, at)
        self._remember(object, value)

    def update(self, object: str, value: Value, turn: int, at: int) -> None:
        """One that is there."""
        self._touched.append(object)
        tables.update(self.execute, object, value.record, turn, at)
        self._remember(object, value)

    def destroy(self, object: str) -> None:
        """One that is there."""
        self._touched.append(object)
        tables.destroy(self.execute, object)
        self._cache.pop(object, None)

    def mark(self) -> int:
        """Where it is, to be put back there."""
        return len(self._touched)

    def undo(self, mark: int) -> None:
        """What was written since was undone in the file: it is read anew."""
        for object in self._touched[mark:]:
            self._cache.pop(object, None)
        del self._touched[mark:]

    def committed(self) -> None:
        """Nothing will be undone that was written so far."""
        self._touched.clear()

    def forget(self) -> None:
        """Read everything anew: what was written was not committed, or types have changed."""
        self._cache.clear()
        self._touched.clear()


__all__ = ["CACHED", "Value", "World"]
