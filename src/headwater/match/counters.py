"""Counters of entries at addresses that never change, so that whoever still runs an old matching loses no count."""

from __future__ import annotations

from collections import deque
from typing import Any

from headwater.ir.interp import Fault
from headwater.late import np
from headwater.match import layout as w

PLAIN = w.N_FAULTS  # words of an entry that cannot fault
WHOLE = w.N_FAULTS + 4
_BLOCK = 1 << w.SLOT_BITS
_BLOCKS = 1 << (32 - w.SLOT_BITS)
KINDS = (Fault.OVERFLOW, Fault.DIVISION, Fault.INDEX, Fault.FUEL, Fault.MALFORMED)

Counted = tuple[int, dict[Fault, int]]


def increase(words: Any, at: int, by: int) -> None:
    """Add to a word in one step: `words[at] += by` is three, and another thread's count might be lost in between."""
    word = words[at : at + 1]
    np.add(word, np.uint64(by), out=word)


class Counters:
    """Slots of a few words each, by number. A slot is free again when no matching can count in it any more."""

    def __init__(self) -> None:
        self.table = np.zeros(_BLOCKS, np.uint64)
        self.unsplit = np.zeros(1, np.uint64)
        self._blocks: list[Any] = []
        self._used = _BLOCK
        self._free: dict[int, list[int]] = {PLAIN: [], WHOLE: []}
        self._leaving: deque[tuple[int, int, int]] = deque()  # matching, slot, size

    def take(self, size: int, *, split: bool) -> int:
        """A slot; `split`: what is undecided may not be told apart from what is rejected, for want of time."""
        free = self._free[size]
        slot = free.pop() if free else self._new(size)
        words = self._words(slot)
        words[:size] = 0
        words[w.N_WEIGHT] = 1
        words[w.N_BASE] = self.unsplit[0] if split else ~np.uint64(0)
        return slot

    def take_many(self, count: int, *, split: bool) -> Any:
        """Slots of entries that cannot fault."""
        parts = []
        while count:
            first = self._new(PLAIN)
            here = min(count, 1 + (_BLOCK - self._used) // PLAIN)
            self._used += (here - 1) * PLAIN
            parts.append(first + PLAIN * np.arange(here, dtype=np.uint32))
            self._words(first)[w.N_WEIGHT : here * PLAIN : PLAIN] = 1
            self._words(first)[w.N_BASE : here * PLAIN : PLAIN] = self.unsplit[0] if split else ~np.uint64(0)
            count -= here
        return np.concatenate(parts).astype(np.uint32) if parts else np.zeros(0, np.uint32)

    def _new(self, size: int) -> int:
        if self._used + size > _BLOCK:
            block = np.zeros(_BLOCK, np.uint64)
            self.table[len(self._blocks)] = block.ctypes.data
            self._blocks.append(block)
            self._used = 0
        slot = (len(self._blocks) - 1 << w.SLOT_BITS) + self._used
        self._used += size
        return slot

    def _words(self, slot: int) -> Any:
        return self._blocks[slot >> w.SLOT_BITS][slot & (_BLOCK - 1) :]

    def read(self, slot: int, size: int) -> Counted:
        """Undecided events, and events by fault."""
        words = self._words(slot)
        faults = {}
        if size == WHOLE:
            faults = {kind: n for i, kind in enumerate(KINDS[:4]) if (n := int(words[w.N_FAULTS + i]))}
        if malformed := int(words[w.N_MALFORMED]):
            faults[Fault.MALFORMED] = malformed
        return int(words[w.N_UNDECIDED]), faults

    def add(self, slot: int, faults: dict[Fault, int], totals: Any) -> None:
        """Count faults of many events."""
        words = self._words(slot)
        for kind, count in faults.items():
            bit = KINDS.index(kind)
            increase(words, w.N_MALFORMED if kind is Fault.MALFORMED else w.N_FAULTS + bit, count)
            increase(totals, 1 + bit, int(words[w.N_WEIGHT]) * count)

    def weigh(self, slot: int, weight: int) -> None:
        """How much an entry counts for in totals."""
        self._words(slot)[w.N_WEIGHT] = weight

    def split(self, slot: int) -> bool:
        return bool(self._words(slot)[w.N_BASE] != ~np.uint64(0))

    def unsplit_of(self, slot: int) -> int:
        base = self._words(slot)[w.N_BASE]
        return 0 if base == ~np.uint64(0) else int(self.unsplit[0]) - int(base)

    def leave(self, slot: int, size: int, matching: int) -> None:
        """Give up a slot that matchings up to this one may still count in."""
        self._leaving.append((matching, slot, size))

    def settle(self, oldest: int) -> None:
        """No matching before this one is in use."""
        while self._leaving and self._leaving[0][0] < oldest:
            _, slot, size = self._leaving.popleft()
            self._free[size].append(slot)

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._blocks)
