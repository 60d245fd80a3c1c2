"""A batch of events as a backtest sees it: its columns, the cell of each event, classes of equal events, and weights.

Whatever is summed up is a number of events and a number of bytes for each cell. `RowWeights` has these for the rows of
a batch, where each is one event; `ClassWeights` for classes, each of which is many events in many cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from headwater.late import np, pa, pc
from headwater.spark.backtest.sizes import heap_fields
from headwater.spark.log_columns import LOG_META
from headwater.spark.schema import from_spark_arrow
from headwater.spark.worker import runs
from headwater.types.model import Enum, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.spark.backtest.judging import Judge
    from headwater.spark.backtest.tally import Key, Tally

FEW = 512  # events, which are judged one by one
SHARE = 8  # events for each different value, or class, from which on it pays
MOST = 1 << 22  # combinations of values that a table is made for


@dataclass
class Chunk:
    """Rows of a log. `columns` are the events' own, `known` what the service knew of them (by the names of meta)."""

    columns: Mapping[str, Any]
    known: Mapping[str, Any]
    rows: int
    _batch: Any = field(default=None)

    @classmethod
    def of(cls, batch: Any, judge: Judge) -> Chunk:
        """From a batch with the columns of a log."""
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        return cls.from_columns(columns, batch.num_rows, judge)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], rows: int, judge: Judge) -> Chunk:
        known = {which: columns[name] for which, name in LOG_META.items() if name in columns}
        names = [name for name in judge.columns if name in columns and not pa.types.is_null(columns[name].type)]
        made = {name: columns[name] for name in names}
        for name in heap_fields(judge.record):
            type = judge.record.by_name[name].type
            if name in made and not isinstance(type, Scalar):  # so that its parts are where the type says
                one = Record("Part", (judge.record.by_name[name].__class__(name, type, True),))
                batch = pa.RecordBatch.from_arrays([made[name]], names=[name])
                made[name] = from_spark_arrow(batch, one).column(0)
        return cls(made, known, rows)

    def batch(self, judge: Judge) -> Any:
        """The rows as events of the type that the interests read."""
        if self._batch is None:
            self._batch = _batch({name: _decoded(c) for name, c in self.columns.items()}, self.rows, judge)
        return self._batch

    def meta(self, start: int = 0, end: int | None = None) -> dict[str, Any]:
        length = (self.rows if end is None else end) - start
        return {which: _decoded(column).slice(start, length) for which, column in self.known.items()}

    @cached_property
    def sources(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        """The stretches of sorted rows that are of one source: (start, end, node and name)."""
        columns = [self.known[which] for which in ("node", "source") if which in self.known]
        return [(start, end, tuple(c[start].as_py() for c in columns)) for start, end in runs(*columns)]

    def classes(
        self, judge: Judge, cell: Any, cells: int, sizes: Any, unfit: set[str]
    ) -> tuple[Any, ClassWeights] | None:
        """Classes of events that are equal in all fields that are read, as a batch with a row for each, and their
        weights; None where there are too many to gain by it. Fields that are found unfit are not tried again."""
        if self.rows < FEW or unfit:
            return None
        encoded: dict[str, Any] = {}
        total = 1
        for name in judge.read:
            if name not in self.columns:
                continue
            made = _encoded(self.columns[name], judge.record.by_name[name].type)
            if made is None or len(made.dictionary) > self.rows // SHARE:
                unfit.add(name)
                return None
            encoded[name] = made
            total *= len(made.dictionary) + 1
        if total > MOST:
            return None
        code: Any = None
        for made in encoded.values():
            mine = _codes(made)
            code = mine if code is None else code * (len(made.dictionary) + 1) + mine
        if code is None:
            code = np.zeros(self.rows, np.int64)
        if total * cells > 2 * self.rows:
            present = np.bincount(code, minlength=total) > 0
            chosen = np.flatnonzero(present)
            if len(chosen) * SHARE > 2 * self.rows or len(chosen) * cells > 4 * self.rows + FEW * cells:
                return None
            code = (np.cumsum(present) - 1)[code]
        else:
            chosen = np.arange(total)
        weights = ClassWeights.of(code, len(chosen), cell, cells, sizes)
        if len(chosen) == total:
            used = np.flatnonzero(weights.events.any(axis=1))
            chosen, weights = used, ClassWeights(weights.events[used], weights.bytes[used])
        return _batch(_values(encoded, chosen), len(chosen), judge), weights


def _batch(columns: Mapping[str, Any], rows: int, judge: Judge) -> Any:
    arrays = {name: columns[name] for name in judge.read if name in columns}
    if not arrays:
        arrays = {judge.narrow.fields[0].name: pa.nulls(rows)}
    return from_spark_arrow(pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)), judge.narrow)


def _decoded(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _encoded(array: Any, type: Type) -> Any:
    """As a dictionary, where equal values are surely judged alike: not floats, of which 0.0 and -0.0 are two."""
    if pa.types.is_dictionary(array.type):
        return array
    if not isinstance(type, Enum) and (not isinstance(type, Scalar) or type.is_float):
        return None
    if pa.types.is_floating(array.type) or pa.types.is_nested(array.type):
        return None
    return array.dictionary_encode()


def _codes(array: Any) -> Any:
    """The number of each value; what is missing has the number after the last."""
    indices = array.indices
    if indices.null_count:
        indices = pc.fill_null(indices, pa.scalar(len(array.dictionary), indices.type))
    return indices.to_numpy().astype(np.int64, copy=False)


def _values(encoded: Mapping[str, Any], chosen: Any) -> dict[str, Any]:
    """The values of classes by their codes."""
    made: dict[str, Any] = {}
    rest = chosen
    for name, array in reversed(list(encoded.items())):
        rest, digit = np.divmod(rest, len(array.dictionary) + 1)
        missing = digit == len(array.dictionary)
        made[name] = array.dictionary.take(pa.array(np.where(missing, 0, digit), mask=missing))
    return made


def cells_of(chunk: Chunk, tally: Tally) -> tuple[Any, list[Key]]:
    """The cell of each row (None: all have the first), and what the cells are."""
    nodes: list[str | None] = [None]
    cell: Any = None
    node = chunk.known.get("node")
    if node is not None:
        encoded = node if pa.types.is_dictionary(node.type) else node.dictionary_encode()
        nodes = encoded.dictionary.to_pylist()
        if encoded.null_count:
            nodes = [*nodes, None]
        if len(nodes) > 1:
            cell = _codes(encoded)
    time = chunk.known.get("time")
    if time is None or time.null_count == len(time):
        return cell, [(name, None) for name in nodes]
    micros = time.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    low, high = pc.min_max(micros).as_py().values()
    tally.see(low, high)
    if tally.width is None:
        return cell, [(name, None) for name in nodes]
    stretches, numbers = _stretches(micros, low, high, tally)
    if len(numbers) > 1:
        cell = stretches if cell is None else cell * len(numbers) + stretches
    return cell, [(name, number) for name in nodes for number in numbers]


def _stretches(micros: Any, low: int, high: int, tally: Tally) -> tuple[Any, Sequence[int | None]]:
    """Which stretch of time each row is in, from 0, and the numbers of these; times are from `low` to `high`."""
    width = tally.span(low, high)
    first, last = low // width, high // width
    numbers: list[int | None] = list(range(first, last + 1)) if last - first < 1 << 16 else []
    if not numbers:
        # Far apart, as where a clock was wrong: only those that there are.
        found = pc.fill_null(micros, low).to_numpy() // width
        present, stretches = np.unique(found, return_inverse=True)
        numbers = present.tolist()
    elif first == last and not micros.null_count:
        return None, numbers
    else:
        values = pc.fill_null(micros, low).to_numpy() if micros.null_count else micros.to_numpy()
        stretches = (values - first * width) // width
    if micros.null_count:
        stretches = np.where(micros.is_null().to_numpy(zero_copy_only=False), len(numbers), stretches)
        numbers = [*numbers, None]
    return stretches, numbers


# ── weights ──


class Weights(Protocol):
    """All results are (events, bytes), an int64 array each: by cell, or by span and cell."""

    def everything(self) -> tuple[Any, Any]: ...

    def spans(self, rows: Any, bounds: Any) -> tuple[Any, Any]:
        """Of stretches of `rows`, none of them empty: from one of `bounds` to the next."""
        ...

    def flagged(self, flags: Any) -> tuple[Any, Any]:
        """Of the rows that are true."""
        ...

    def sized(self, rows: Any, sizes: Any) -> tuple[Any, Any]:
        """Of these rows, each with a size of its own in place of the event's."""
        ...


@dataclass(frozen=True)
class RowWeights:
    """Each row is one event, in a cell (None: all in the one there is), of a size (an int: all of one)."""

    cell: Any
    cells: int
    sizes: Any
    rows: int

    def _sum(self, at: Any, cells: int, sizes: Any, rows: int) -> tuple[Any, Any]:
        if at is None:
            events = np.array([rows], np.int64)
            return events, events * sizes if isinstance(sizes, int) else np.array([sizes.sum()], np.int64)
        events = np.bincount(at, minlength=cells)
        if isinstance(sizes, int):
            return events, events * sizes
        return events, np.bincount(at, weights=sizes, minlength=cells).astype(np.int64)

    def _of(self, rows: Any) -> Any:
        return self.sizes if isinstance(self.sizes, int) else self.sizes[rows]

    def everything(self) -> tuple[Any, Any]:
        return self._sum(self.cell, self.cells, self.sizes, self.rows)

    def spans(self, rows: Any, bounds: Any) -> tuple[Any, Any]:
        counts = np.diff(bounds)
        sizes = self._of(rows)
        if self.cell is None:
            size = counts * sizes if isinstance(sizes, int) else np.add.reduceat(sizes, bounds[:-1])
            return counts[:, None], size[:, None]
        at = np.repeat(np.arange(len(counts)) * self.cells, counts) + self.cell[rows]
        events, size = self._sum(at, len(counts) * self.cells, sizes, len(rows))
        return events.reshape(-1, self.cells), size.reshape(-1, self.cells)

    def flagged(self, flags: Any) -> tuple[Any, Any]:
        rows = np.flatnonzero(flags)
        return self.sized(rows, self._of(rows))

    def sized(self, rows: Any, sizes: Any) -> tuple[Any, Any]:
        return self._sum(None if self.cell is None else self.cell[rows], self.cells, sizes, len(rows))


@dataclass(frozen=True)
class ClassWeights:
    """`events` and `bytes` have a row for each class and a column for each cell."""

    events: Any
    bytes: Any

    @classmethod
    def of(cls, code: Any, classes: int, cell: Any, cells: int, sizes: Any) -> ClassWeights:
        at = code if cell is None else code * cells + cell
        events = np.bincount(at, minlength=classes * cells)
        if isinstance(sizes, int):
            size = events * sizes
        else:
            size = np.bincount(at, weights=sizes, minlength=classes * cells).astype(np.int64)
        return cls(events.reshape(classes, cells), size.reshape(classes, cells))

    def everything(self) -> tuple[Any, Any]:
        return self.events.sum(axis=0), self.bytes.sum(axis=0)

    def spans(self, rows: Any, bounds: Any) -> tuple[Any, Any]:
        starts = bounds[:-1]
        return np.add.reduceat(self.events[rows], starts), np.add.reduceat(self.bytes[rows], starts)

    def flagged(self, flags: Any) -> tuple[Any, Any]:
        return self.events[flags].sum(axis=0), self.bytes[flags].sum(axis=0)

    def sized(self, rows: Any, sizes: Any) -> tuple[Any, Any]:
        events = self.events[rows]
        return events.sum(axis=0), (events * np.asarray(sizes).reshape(-1, 1)).sum(axis=0)


__all__ = ["Chunk", "ClassWeights", "RowWeights", "Weights", "cells_of"]
