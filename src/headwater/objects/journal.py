"""The journal of a turn: what triggers and observers remember, as one place from which a turn can be taken back.

A turn changes what is remembered as it goes: that a condition holds, the value at the last firing, values of a history.
If the turn, or a part of it, is rolled back, so is this: `mark()` before, `back_to(mark)` after. Each change notes how
to undo it; `settled()` forgets that once the turn is in the file. What is to be written is what is dirty: it is asked
for once, at the end of the turn, so that what changes ten times is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Journal:
    """How to undo what was done since the last commit, newest last."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def did(self, undo: Callable[[], object]) -> None:
        """Something was changed; this undoes it."""
        self._undo.append(undo)

    def mark(self) -> int:
        """A point to go back to, until `settled`."""
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        """As it was at that point."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def settled(self) -> None:
        """What was done is in the file, and stays."""
        self._undo.clear()


class Kept(Generic[K, V]):
    """Values by key that a journal can take back, and which of them the file does not have yet."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._values: dict[K, V] = {}
        self._dirty: dict[K, None] = {}

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return self._values.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[K]:
        """All keys, as they are now."""
        return list(self._values)

    def put(self, key: K, value: V | None) -> None:
        """A new value; None: none any more."""
        before = self._values.get(key)
        if before == value and type(before) is type(value):
            return
        self._set(key, value)
        self._journal.did(lambda: self._set(key, before))

    def load(self, key: K, value: V) -> None:
        """What the file has, when it is opened."""
        self._values[key] = value

    def _set(self, key: K, value: V | None) -> None:
        self._dirty[key] = None  # also when it is taken back: the file may have either
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def dirty(self) -> Iterator[tuple[K, V | None]]:
        """What the file is to have instead of what it has; None: nothing."""
        for key in self._dirty:
            yield key, self._values.get(key)

    def settled(self) -> None:
        """The file has it all, unless that is undone."""
        if self._dirty:
            written, self._dirty = self._dirty, {}
            self._journal.did(lambda: self._dirty.update(written))
