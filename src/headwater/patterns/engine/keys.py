"""Partitions by key: numbers as words, texts by the number each was given, and the table that finds a partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np, pc
from headwater.patterns.engine.layout import FREE, KEY_WORDS, PARTITION_ROOM, PARTITIONS, TABLE_SIZE
from headwater.patterns.engine.memory import Memory
from headwater.patterns.engine.partitions import rehash
from headwater.types import EventType
from headwater.types.model import BYTES, TEXT, Enum, Scalar

SMALLEST = 256  # partitions


class Keys:
    """The key of each partition. `wanted` has keys of rows, as words."""

    def __init__(self, memory: Memory, key: EventType | None, limit: int) -> None:
        self.memory, self.limit = memory, limit
        self.fields = [] if key is None else [(field.name, field.type) for field in key.record.fields]
        self.words = max(1, len(self.fields))
        self._plain = all(_is_plain(type) for _, type in self.fields)  # a word is its value
        self.texts: dict[Any, int] = {}
        self.values: list[Any] = []
        self.others: Any = ()  # keys that are held elsewhere than in the table
        memory["table"] = np.zeros(2 * SMALLEST, np.int64)
        room = min(SMALLEST, limit)
        memory["keys"] = np.zeros(room * self.words, np.int64)
        memory["free"] = np.zeros(room, np.int64)
        memory["wanted"] = np.zeros(self.words, np.int64)
        memory["live"] = np.zeros(room, np.int64)
        control = memory["control"]
        control[TABLE_SIZE], control[PARTITION_ROOM], control[KEY_WORDS] = 2 * SMALLEST, room, self.words

    @property
    def count(self) -> int:
        """Partitions that there were at once, those let go included."""
        return int(self.memory["control"][PARTITIONS])

    # ── words ──

    def of_text(self, value: Any) -> int:
        found = self.texts.get(value)
        if found is None:
            found = self.texts[value] = len(self.values)
            self.values.append(value)
        return found

    def of_record(self, raw: Any) -> tuple[int, ...]:
        """The words of one key, as the interpreter has it."""
        words = [0] * self.words
        for at, (name, type) in enumerate(self.fields):
            value = raw[name]
            if type in (TEXT, BYTES):
                words[at] = self.of_text(value)
            elif isinstance(value, float):
                words[at] = int(np.array([value + 0.0]).view(np.int64)[0])
            else:
                words[at] = _signed(int(value))
        return tuple(words)

    def of_values(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        """The words of what `value` gave."""
        return self.of_record({name: value for (name, _), value in zip(self.fields, values, strict=True)})

    def of_batch(self, batch: Any) -> Any:
        """The words of the keys of a RecordBatch, row by row."""
        words = np.zeros((batch.num_rows, self.words), np.int64)
        for at, (name, type) in enumerate(self.fields):
            column = batch.column(name)
            if type in (TEXT, BYTES):
                encoded = pc.dictionary_encode(column)
                numbers = np.array([self.of_text(value) for value in encoded.dictionary.to_pylist()], np.int64)
                words[:, at] = numbers[encoded.indices.to_numpy(zero_copy_only=False)] if len(numbers) else 0
            else:
                words[:, at] = words_of(column, type)
        return words.reshape(-1)

    def value(self, partition: int) -> tuple[Any, ...]:
        """The key of a partition, as values."""
        row = self.memory["keys"][partition * self.words : (partition + 1) * self.words]
        return self.values_of(row.tolist())

    def values_of(self, words: Iterable[int]) -> tuple[Any, ...]:
        """The values that words of a key stand for."""
        if self._plain:
            return tuple(words) if self.fields else ()
        found = []
        for word, (_, type) in zip(words, self.fields, strict=False):
            if type in (TEXT, BYTES):
                found.append(self.values[word])
            elif isinstance(type, Scalar) and type.is_float:
                found.append(float(np.array([word], np.int64).view(np.float64)[0]))
            elif str(type) == "bool":
                found.append(bool(word))
            else:
                found.append(word & ((1 << 64) - 1) if str(type) == "u64" else word)
        return tuple(found)

    # ── partitions ──

    def grow(self) -> bool:
        """Room for twice as many, up to the limit; False if there is none."""
        memory, control = self.memory, self.memory["control"]
        room = int(control[PARTITION_ROOM])
        if room >= self.limit:
            return False
        more = min(self.limit, 2 * room)
        memory.grow("keys", more * self.words)
        memory.grow("free", more)
        memory.grow("live", more)
        control[PARTITION_ROOM] = more
        return True

    def forget(self, partitions: Any) -> None:
        """Their numbers are free to be given to others; `renew` has to follow."""
        control, count = self.memory["control"], len(partitions)
        free = int(control[FREE])
        self.memory["free"][free : free + count] = partitions
        control[FREE] = free + count

    def renew(self, live: Any) -> None:
        """Have the live partitions in the table, and no others."""
        memory, control = self.memory, self.memory["control"]
        size = 2 * SMALLEST
        while size < 2 * int(control[PARTITION_ROOM]):
            size *= 2
        if len(memory["table"]) != size:
            memory["table"] = np.zeros(size, np.int64)
            control[TABLE_SIZE] = size
        memory["live"][: len(live)] = live
        memory.call(rehash, len(live))

    @property
    def crowded(self) -> bool:
        """Whether there are many more texts than keys can have."""
        return len(self.values) > SMALLEST + 4 * self.words * max(self.count, len(self.others))

    def renumber(self, live: Any) -> None:
        """Let go of texts that are in no live key. Words that someone else holds are others afterwards."""
        at = [k for k, (_, type) in enumerate(self.fields) if type in (TEXT, BYTES)]
        if not self.values or not self.count:
            self.values, self.texts = [], {}
            return
        words = self.memory["keys"][: self.count * self.words].reshape(-1, self.words)
        words[np.flatnonzero(live == 0)] = 0
        held, places = np.unique(words[:, at], return_inverse=True)
        self.values = [self.values[word] for word in held.tolist()]
        self.texts = {value: number for number, value in enumerate(self.values)}
        words[:, at] = places.reshape(-1, len(at))

    def dump(self) -> list[Any]:
        count = self.count
        return [count, int(self.memory["control"][FREE]), self.values, self.memory.dump(
            {"keys": count * self.words, "free": int(self.memory["control"][FREE])}
        )]  # fmt: skip

    def load(self, found: list[Any]) -> None:
        """Take keys from a snapshot. Its bytes may come from elsewhere: numbers that would lead kernels outside their
        arrays are refused here."""
        count, free, values, arrays = found
        control = self.memory["control"]
        if not (0 <= count <= self.limit and 0 <= free <= count):
            raise ExecutionError(f"snapshot: expected at most {self.limit:,} partitions, found {count}")
        self.values = list(values)
        self.texts = {value: at for at, value in enumerate(self.values)}
        while int(control[PARTITION_ROOM]) < count:
            self.grow()
        self.memory.load("keys", arrays["keys"], count * self.words)
        self.memory.load("free", arrays["free"], count)
        self.memory.grow("keys", int(control[PARTITION_ROOM]) * self.words)
        self.memory.grow("free", int(control[PARTITION_ROOM]))
        control[PARTITIONS], control[FREE] = count, free
        gone = self.memory["free"][:free]
        words = self.memory["keys"][: count * self.words].reshape(-1, self.words)
        texts = [at for at, (_, type) in enumerate(self.fields) if type in (TEXT, BYTES)]
        named = words[:, texts]
        if len(self.texts) < len(self.values) or (named < 0).any() or (named >= max(1, len(self.values))).any():
            raise ExecutionError("snapshot: expected keys of its own texts, found others")
        if (gone < 0).any() or (gone >= count).any() or len(np.unique(gone)) < free:
            raise ExecutionError("snapshot: expected partitions that were let go, found others")


def _is_plain(type: Any) -> bool:
    return isinstance(type, Enum) or str(type) in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "timestamp")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def words_of(column: Any, type: Any, *, zero: bool = True) -> Any:
    """A column of numbers without gaps, as words; `zero`: -0.0 becomes 0.0."""
    if isinstance(type, Scalar) and type.is_float:
        found = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return (found + 0.0 if zero else found).view(np.int64)
    kind = str(column.type)
    if kind.startswith("timestamp"):
        return column.cast("int64").to_numpy(zero_copy_only=False)
    if isinstance(type, Enum):
        codes = np.array([type.code_of(name) for name in column.dictionary.to_pylist()] or [0], np.int64)
        return codes[column.indices.to_numpy(zero_copy_only=False)]
    found = column.to_numpy(zero_copy_only=False)
    return found.view(np.int64) if found.dtype == np.uint64 else found.astype(np.int64)


__all__ = ["Keys", "words_of"]
