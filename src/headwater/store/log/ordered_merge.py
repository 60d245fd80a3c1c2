"""Putting events of many files into one order, with no more in memory than overlaps.

A `Piece` is some rows that are read together, such as a row group, and a bound that none of its keys is below. Pieces
are read in the order of their bounds; whatever is below the bound of the next one is complete, and leaves in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.errors import StoreError
from headwater.late import np, pa
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME
from headwater.types.arrow import compact


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are read together: `load` gives them, in any order, and none has a key below `low`."""

    low: int
    load: Callable[[], pa.RecordBatch]


class _Open:
    """A piece that was read: its rows in order, and up to where they have left."""

    __slots__ = ("at", "batch", "keys")

    def __init__(self, batch: pa.RecordBatch, keys: Any) -> None:
        self.batch, self.keys, self.at = batch, keys, 0

    def below(self, bound: int | None) -> pa.RecordBatch | None:
        """The rows that have not left yet and whose keys are below the bound (None: all of them)."""
        end = len(self.keys) if bound is None else int(np.searchsorted(self.keys, bound, "left"))
        if end <= self.at:
            return None
        found = self.batch.slice(self.at, end - self.at)
        self.at = end
        return found


def by_time(pieces: Iterable[Piece], *, rows: int) -> Iterator[pa.RecordBatch]:
    """In order of time, node, source and sequence number. Bounds are in microseconds."""
    return _sweep(pieces, times, _order_by_time, rows)


def by_sequence(pieces: Iterable[Piece], *, rows: int) -> Iterator[pa.RecordBatch]:
    """In order of sequence number: for rows of one source."""
    return _sweep(pieces, sequence, lambda batch: np.argsort(sequence(batch), kind="stable"), rows)


def times(batch: pa.RecordBatch) -> Any:
    """The times of events, in microseconds, as a numpy array."""
    return batch.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)


def sequence(batch: pa.RecordBatch) -> Any:
    """The sequence numbers of events, as a numpy array."""
    return batch.column(SEQ).to_numpy(zero_copy_only=False)


def _sweep(
    pieces: Iterable[Piece], key: Callable[[Any], Any], order: Callable[[Any], Any], rows: int
) -> Iterator[pa.RecordBatch]:
    """Merge pieces by key: each is loaded when its range begins and let go when it ends, so that no more is in memory
    than overlaps."""
    waiting = sorted(pieces, key=lambda piece: piece.low, reverse=True)
    opened: list[_Open] = []
    gathered: list[pa.RecordBatch] = []  # complete and in order, but too few to hand out yet
    count = 0
    while waiting or opened:
        while waiting:  # all that begin at the same place
            piece = waiting.pop()
            batch = piece.load()
            if batch.num_rows:
                batch = arranged(batch, order)
                opened.append(_Open(batch, key(batch)))
            if waiting and waiting[-1].low > piece.low:
                break
        bound = waiting[-1].low if waiting else None
        parts = [part for each in opened if (part := each.below(bound)) is not None]
        opened = [each for each in opened if each.at < len(each.keys)]
        if not parts:
            continue
        found = parts[0] if len(parts) == 1 else arranged(joined(parts), order)
        gathered.append(found)
        count += found.num_rows
        if count >= rows:
            whole = joined(gathered)
            full = count // rows * rows
            for start in range(0, full, rows):
                yield whole.slice(start, rows)
            gathered, count = ([whole.slice(full)], count - full) if full < count else ([], 0)
    if gathered:
        yield joined(gathered)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    found = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(found) > 1:  # 32-bit offsets reach no further
        raise StoreError(
            "expected at most 2 GiB of text or bytes in events whose times overlap, found more; read fewer columns, or "
            "compact the log in smaller files"
        )
    return found[0] if found else batches[0].slice(0, 0)


def arranged(batch: pa.RecordBatch, order: Callable[[Any], Any]) -> pa.RecordBatch:
    """The rows in another order; the same object if they are in it already."""
    indices = order(batch)
    if len(indices) < 2 or (np.diff(indices) > 0).all():
        return batch
    return take(batch, indices)


def take(batch: pa.RecordBatch, indices: Any) -> pa.RecordBatch:
    """The rows of these numbers, in this order."""
    wanted = pa.array(indices)
    columns = [compact(column).take(wanted) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _order_by_time(batch: pa.RecordBatch) -> Any:
    """By time; who has the same time goes by node, source and sequence number."""
    when = times(batch)
    rising = np.diff(when)
    if len(when) < 2 or (rising > 0).all():
        return np.arange(len(when))
    return np.lexsort((sequence(batch), ranks(batch.column(SOURCE)), ranks(batch.column(NODE)), when))


def order_in_file(batch: pa.RecordBatch) -> Any:
    """By source and sequence number, as files are arranged."""
    return np.lexsort((sequence(batch), ranks(batch.column(SOURCE)), ranks(batch.column(NODE))))


def ranks(texts: Any) -> Any:
    """For each text the place of its value among all values there are, in the order of code points."""
    found = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    values = found.dictionary.to_pylist()
    place = {value: at for at, value in enumerate(sorted(set(values)))}
    table = np.array([place[value] for value in values], np.int32)
    return table[found.indices.to_numpy(zero_copy_only=False)] if len(values) else np.zeros(len(texts), np.int32)
