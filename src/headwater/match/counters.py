"""Counters of entries at addresses that never change, so that whoever still runs an old matching loses no count.

Counters   of a matcher: slots of words, in blocks
Ledger      the counts of one source, in blocks of its own: read while that source, and nobody else, stands still
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from headwater.ir.interp import Fault
from headwater.late import np
from headwater.match import layout as w

PLAIN = w.N_FAULTS  # words of an entry that cannot fault
WHOLE = w.N_FAULTS + 4
_BLOCK = 1 << w.SLOT_BITS
KINDS = (Fault.OVERFLOW, Fault.DIVISION, Fault.INDEX, Fault.FUEL, Fault.MALFORMED)

Counted = tuple[int, dict[Fault, int]]


def increase(words: Any, at: int, by: int) -> None:
    """Add to a word in one step: `words[at] += by` is three, and another thread's count might be lost in between."""
    word = words[at : at + 1]
    np.add(word, np.uint64(by), out=word)


class Counters:
    """Slots of a few words each, by number. A slot is free again when no matching can count in it any more.

    Whoever judges events in a thread of its own counts in a `Ledger`, so that its counts are all of one moment if it
    stands still for that moment, whatever others do. Here is the sum of ledgers that have ended, and what nobody needs
    to tell apart: of entries that decide every event (`sure`) only records that are none are counted at all."""

    def __init__(self) -> None:
        self.table = np.zeros(16, np.uint64)  # addresses of blocks; exchanged for a longer one that begins the same
        self.unsplit = np.zeros(1, np.uint64)
        self.blocks: list[Any] = []
        self.own: dict[int, None] = {}  # numbers of those that each ledger has for itself
        self._open = {False: (0, _BLOCK), True: (0, _BLOCK)}  # the block to take from, and how much of it is used
        self._free: dict[tuple[int, bool], list[int]] = {}
        self._leaving: deque[tuple[int, int, int]] = deque()  # matching, slot, size
        self._ledgers: WeakSet[Ledger] = WeakSet()

    def take(self, size: int, *, split: bool, sure: bool = False) -> int:
        """A slot; `split`: what is undecided may not be told apart from what is rejected, for want of time."""
        free = self._free.get((size, not sure))
        again = bool(free)
        slot = free.pop() if free else self._new(size, not sure)
        words = self.words(slot)
        words[:size] = 0
        words[w.N_WEIGHT] = 1
        words[w.N_BASE] = self.unsplit[0] if split else ~np.uint64(0)
        if again and not sure:
            for ledger in self._ledgers:
                ledger.clear(slot, size)
        return slot

    def take_many(self, count: int, *, split: bool, sure: bool = False) -> Any:
        """Slots of entries that cannot fault."""
        parts = []
        while count:
            first = self._new(PLAIN, not sure)
            number, used = self._open[not sure]
            here = min(count, 1 + (_BLOCK - used) // PLAIN)
            self._open[not sure] = number, used + (here - 1) * PLAIN
            parts.append(first + PLAIN * np.arange(here, dtype=np.uint32))
            self.words(first)[w.N_WEIGHT : here * PLAIN : PLAIN] = 1
            self.words(first)[w.N_BASE : here * PLAIN : PLAIN] = self.unsplit[0] if split else ~np.uint64(0)
            count -= here
        return np.concatenate(parts).astype(np.uint32) if parts else np.zeros(0, np.uint32)

    def _new(self, size: int, own: bool) -> int:
        number, used = self._open[own]
        if used + size > _BLOCK:
            number, used = len(self.blocks), 0
            block = np.zeros(_BLOCK, np.uint64)
            if number == len(self.table):
                self.table = np.concatenate([self.table, np.zeros_like(self.table)])
            self.table[number] = block.ctypes.data
            if own:
                self.own[number] = None
            self.blocks.append(block)  # last: who counts the blocks finds all else there
        self._open[own] = number, used + size
        return (number << w.SLOT_BITS) + used

    def words(self, slot: int) -> Any:
        return self.blocks[slot >> w.SLOT_BITS][slot & (_BLOCK - 1) :]

    def ledger(self) -> Ledger:
        """For one who counts by itself from now on."""
        made = Ledger(self)
        self._ledgers.add(made)
        return made

    def absorb(self, ledger: Ledger) -> None:
        """A ledger has ended: what it counted is counted here."""
        self._ledgers.discard(ledger)
        for number, block in ledger.blocks.items():
            for at in np.flatnonzero(block).tolist():
                increase(self.blocks[number], at, int(block[at]))

    def read(self, slot: int, size: int, ledgers: Iterable[Ledger] = ()) -> Counted:
        """Undecided events, and events by fault: those counted here, and in these ledgers."""
        found = self.words(slot)[:size]
        for ledger in ledgers:
            block = ledger.blocks.get(slot >> w.SLOT_BITS)
            if block is not None:
                at = slot & (_BLOCK - 1)
                found = found + block[at : at + size]
        faults = {}
        if size == WHOLE:
            faults = {kind: n for i, kind in enumerate(KINDS[:4]) if (n := int(found[w.N_FAULTS + i]))}
        if malformed := int(found[w.N_MALFORMED]):
            faults[Fault.MALFORMED] = malformed
        return int(found[w.N_UNDECIDED]), faults

    def add(self, slot: int, faults: dict[Fault, int], totals: Any, ledger: Ledger | None = None) -> None:
        """Count faults of many events."""
        words, weight = self.words(slot), int(self.words(slot)[w.N_WEIGHT])
        if ledger is not None:
            words = ledger.words(slot)
        for kind, count in faults.items():
            bit = KINDS.index(kind)
            increase(words, w.N_MALFORMED if kind is Fault.MALFORMED else w.N_FAULTS + bit, count)
            increase(totals, 1 + bit, weight * count)

    def weigh(self, slot: int, weight: int) -> None:
        """How much an entry counts for in totals."""
        self.words(slot)[w.N_WEIGHT] = weight

    def split(self, slot: int) -> bool:
        return bool(self.words(slot)[w.N_BASE] != ~np.uint64(0))

    def unsplit_of(self, slot: int) -> int:
        base = self.words(slot)[w.N_BASE]
        return 0 if base == ~np.uint64(0) else int(self.unsplit[0]) - int(base)

    def leave(self, slot: int, size: int, matching: int) -> None:
        """Give up a slot that matchings up to this one may still count in."""
        self._leaving.append((matching, slot, size))

    def settle(self, oldest: int) -> None:
        """No matching before this one is in use."""
        while self._leaving and self._leaving[0][0] < oldest:
            _, slot, size = self._leaving.popleft()
            self._free.setdefault((size, slot >> w.SLOT_BITS in self.own), []).append(slot)

    @property
    def nbytes(self) -> int:
        own = [block for ledger in self._ledgers for block in ledger.blocks.values()]
        return sum(block.nbytes for block in (*self.blocks, *own))


class Ledger:
    """What one source has counted of the entries of a matcher: blocks of its own, made when something may be counted.

    Used by one thread at a time. A copy (`copy`) stays as it is."""

    def __init__(self, counters: Counters, blocks: dict[int, Any] | None = None) -> None:
        self._counters = counters
        self.blocks = blocks if blocks is not None else {}
        self._table: Any = None
        self._covers = -1  # how many blocks there were when the table was made

    def table(self) -> Any:
        """Where the kernels count: the addresses of all blocks, its own among them. Valid for matchings of before."""
        count = len(self._counters.blocks)
        if count != self._covers:
            table = self._counters.table[: max(1, count)].copy()
            for number in tuple(self._counters.own):
                if number < count:
                    table[number] = self._block(number).ctypes.data
            self._table, self._covers = table, count
        return self._table

    def _block(self, number: int) -> Any:
        found = self.blocks.get(number)
        if found is None:
            found = self.blocks[number] = np.zeros(_BLOCK, np.uint64)
        return found

    def words(self, slot: int) -> Any:
        """Where to count for an entry."""
        number = slot >> w.SLOT_BITS
        if number not in self._counters.own:
            return self._counters.words(slot)
        return self._block(number)[slot & (_BLOCK - 1) :]

    def clear(self, slot: int, size: int) -> None:
        """The slot is another entry's from now on."""
        block = self.blocks.get(slot >> w.SLOT_BITS)
        if block is not None:
            at = slot & (_BLOCK - 1)
            block[at : at + size] = 0

    def copy(self) -> Ledger:
        """As it is now; who counts in it stands still."""
        return Ledger(self._counters, {number: block.copy() for number, block in self.blocks.items() if block.any()})
