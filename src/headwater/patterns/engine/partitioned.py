"""What engines over a table of partitions have in common: keys, room for partitions, rows in pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from headwater.late import np
from headwater.native.subset import Kernel, Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton
from headwater.patterns.engine import layout as at
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.keys import Keys
from headwater.patterns.engine.memory import Memory
from headwater.patterns.engine.partitions import next_due_partition, place_rows

ROWS_AT_ONCE = 1 << 12


class Partitioned:
    """`idling` says which partitions need not be kept, `taking` takes one row."""

    idling: Kernel
    taking: Kernel
    modules: tuple[str, ...]  # of the kernels

    def __init__(self, pattern: model.Pattern, automaton: Automaton, stride: int, mode: Mode) -> None:
        self.memory = Memory(mode, *self.modules)
        control = np.zeros(at.CONTROL, np.int64)
        self.memory["control"] = control
        self.limits, self.stride, self.given_up = pattern.limits, stride, 0
        self.keys = Keys(self.memory, pattern.key, pattern.limits.partitions)
        control[at.WINDOW_KIND], control[at.WINDOW] = window_of(pattern)
        control[at.BEGIN_ONCE] = pattern.begin == "first"
        control[at.STRIDE], control[at.NODES], control[at.LATEST] = stride, 1, at.LEAST
        control[at.ABSENT], control[at.FIRST] = signed(automaton.absent), signed(automaton.first)
        self.memory["parts"] = np.zeros(int(control[at.PARTITION_ROOM]) * stride, np.int64)
        self.memory["soonest"] = np.full(1, at.LEAST, np.int64)
        self._grow_parts()
        self.memory["rows"] = np.zeros(ROWS_AT_ONCE * at.ROW, np.int64)
        self.memory["wanted"] = np.zeros(ROWS_AT_ONCE * self.keys.words, np.int64)
        self.memory["marks"] = np.zeros(1, np.int64)

    @abstractmethod
    def _step(self, done: int, count: int) -> int:
        """Rows from one number to another; where room ran out."""

    @abstractmethod
    def _taken_out(self) -> list[Found]:
        """What was found since."""

    @abstractmethod
    def _room(self, found: list[Found]) -> None:
        """More of it."""

    @abstractmethod
    def _give_up(self, count: int, *, forget: bool) -> None:
        """The runs of so many partitions."""

    @abstractmethod
    def _let_go(self, partitions: list[int]) -> None:
        """Of their runs."""

    # ── partitions ──

    def _more_partitions(self) -> None:
        """By letting go of those that can match no more, or by growing, or by giving up the oldest."""
        count = self.keys.count
        idle = self.memory.call(self.idling, count)
        if idle * 4 >= count:
            self._forget(np.flatnonzero(self.memory["live"][:count] == 0))
        elif self.keys.grow():
            self._grow_parts()
        elif idle:
            self._forget(np.flatnonzero(self.memory["live"][:count] == 0))
        else:
            self._give_up(max(1, count // 8), forget=True)
        self.keys.renew(self._parts()[:, at.LIVE])

    def _grow_parts(self) -> None:
        """Room for as many partitions as there may be keys of now."""
        room = int(self.memory["control"][at.PARTITION_ROOM])
        self.memory.grow("parts", room * self.stride)
        self.memory["soonest"] = np.full((room >> at.BLOCK) + 1, at.LEAST, np.int64)  # nothing is known of them
        self.memory["control"][at.SOONEST] = at.LEAST

    def _due(self, until: int) -> Iterator[int]:
        """The partitions that have something due before a time."""
        if not self.memory.settled:
            self.memory.hurry(0)
        partition = self.memory.short(next_due_partition)(0, until)
        while partition >= 0:
            yield partition
            partition = self.memory.short(next_due_partition)(partition + 1, until)
        self.memory.short(next_due_partition)(0, until)  # so that it is known what is soonest now

    def _parts(self) -> Any:
        return self.memory["parts"][: self.keys.count * self.stride].reshape(-1, self.stride)

    def _forget(self, partitions: Any) -> None:
        parts = self._parts()
        gone = partitions[parts[partitions, at.LIVE] != 0]
        self.keys.forget(gone)
        self._let_go(gone.tolist())
        parts[gone, at.LIVE] = 0
        parts[gone, at.DUE] = at.MOST

    @property
    def crowded(self) -> bool:
        """Whether `trim` is worth its time."""
        return self.keys.crowded

    def trim(self, values: Any = None) -> None:
        """Let go of texts that nothing holds but `values` of rows that wait, whose numbers are changed in place. Words
        of keys that someone else holds are others afterwards."""
        live = self._parts()[:, at.LIVE].copy()
        self.keys.renumber(live)
        self.keys.renew(live)

    # ── rows ──

    def feed(self, rows: Any, keys: Any, values: Any = None) -> list[Found]:
        """Rows as words (partition, letter, event, time), the words of their keys and the values that runs remember,
        row by row."""
        found: list[Found] = []
        self.memory.hurry(len(rows))
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            count, words = len(part), self.keys.words
            self.memory["rows"][: part.size] = part.reshape(-1)
            self.memory["wanted"][: count * words] = keys[start * words : (start + count) * words]
            if values is not None:
                self.memory["values"][: count * values.shape[1]] = values[start : start + count].reshape(-1)
            placed = 0
            while placed < count:
                done, placed = placed, self.memory.call(place_rows, placed, count)
                while True:
                    done = self._step(done, placed)
                    found += self._taken_out()
                    if done == placed:
                        break
                    self._room(found)
                if placed < count:
                    self._more_partitions()
        return found

    def _written(self, size: int) -> tuple[list[int], list[int], list[int]]:
        """What a kernel has written out: matches of so many words each, and the events and labels of all of them, from
        where the next are written anew. Read by way of views, which numpy's arrays take longer for."""
        memory, control = self.memory, self._views[2]
        matches = memoryview(memory["matches"])[: control[at.MATCH_TOP] * size].tolist()
        out = memoryview(memory["out"])[: control[at.OUT_TOP]].tolist()
        control[at.MATCH_TOP] = control[at.OUT_TOP] = 0
        return matches, out[::2], out[1::2]

    def due(self) -> int | None:
        """A promise of an earlier time decides nothing; None if no promise does."""
        control = self._views[2]
        if control[at.WINDOW_KIND] != at.BY_TIME:
            return None
        if control[at.SOONEST] == at.LEAST:
            self.memory.short(next_due_partition)(0, at.LEAST + 1)  # nothing is known: now it is
        least: int = control[at.SOONEST]
        return None if least >= at.MOST else least + control[at.WINDOW] + 1

    def one(
        self, letter: int, event: int, time: int, words: Sequence[int], values: Sequence[int], found: list[Found]
    ) -> bool:
        """One row, as quickly as can be: whether its event is held now. What it made whole is put to `found`."""
        wanted, room, _ = self._views
        wanted[0] = words[0]
        if len(words) > 1:
            for k, word in enumerate(words):
                wanted[k] = word
        if values:
            for k, word in enumerate(values):
                room[k] = word
        came = (self.memory.quick or self._quick())(letter, event, time)
        if came < 0:
            row = np.array([[-1, letter, event, time]], np.int64)
            found += self.feed(row, np.array(words, np.int64), np.array([values], np.int64) if values else None)
            return True
        if came & at.LOOK:
            found += self._taken_out()
        return came & at.HELD != 0

    def _quick(self) -> Any:
        """The function that takes one row; kept where it will not soon be another."""
        self.memory.hurry(1)
        call = self.memory.short(self.taking)
        if self.memory.settled:
            self.memory.quick = call
        return call

    @cached_property
    def _views(self) -> tuple[Any, Any, Any]:
        """Where the key and the values of one row are put, and the control words; these arrays are never others."""
        return memoryview(self.memory["wanted"]), memoryview(self.memory["values"]), memoryview(self.memory["control"])

    @property
    def open(self) -> int:
        """Partitions with a key."""
        return int((self._parts()[:, at.LIVE] != 0).sum())

    @property
    def nodes(self) -> int:
        return int(self.memory["control"][at.NODES]) - 1


def window_of(pattern: model.Pattern) -> tuple[int, int]:
    """The kind of a pattern's window and how long it is, in microseconds or rows, as kernels have it."""
    window = pattern.window
    if window is None:
        return at.NO_WINDOW, 0
    if window.microseconds is not None:
        return at.BY_TIME, window.microseconds
    assert window.rows is not None
    return at.BY_ROWS, window.rows


def signed(word: int) -> int:
    """A set of up to 64 elements as an int64."""
    return word - (1 << 64) if word >= 1 << 63 else word
