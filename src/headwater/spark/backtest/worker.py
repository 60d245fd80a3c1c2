"""What runs in Spark's Python workers: batches of a log, or of a DataFrame, become sums.

    of_files(package, tasks, ids)      row groups of Parquet files, read here: nothing comes through the JVM
    of_batches(package, batches)       what Spark hands over
    of_sources(package, batches)       the same, sorted by source and sequence number: for interests with state

Each yields one Arrow batch with one row, the bytes of a `Tally`, however many events and subscriptions there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import StoreError
from headwater.late import np, pa, pq
from headwater.spark.backtest.chunk import Chunk, ClassWeights, RowWeights, Weights, cells_of
from headwater.spark.backtest.judging import Entry, Judge, fault_row
from headwater.spark.backtest.sizes import record_sizes
from headwater.spark.backtest.tally import Key, Tally
from headwater.spark.log_columns import LOG_META
from headwater.store.log.parquet_footer import row_groups
from headwater.types.layout import Layout
from headwater.types.model import TEXT

RESULT = "part binary"  # the schema of what is yielded
SLENDER = 4.0  # bytes a value takes in a file: below, its column is read as a dictionary


class Task(msgspec.Struct, array_like=True, frozen=True):
    """Some row groups of one file."""

    path: str
    groups: list[int]


_TASKS = msgpack_decoder(list[Task])


@lru_cache(maxsize=4)
def judge_of(package: bytes) -> Judge:
    """Read and compiled once in a worker process."""
    return Judge(package)


def of_files(package: bytes, width: int | None, tasks: Sequence[bytes], ids: Iterable[Any]) -> Iterator[Any]:
    """`ids` has the numbers of tasks in its first column; each of these is several `Task`, packed."""
    work = _Work(judge_of(package), width)
    for batch in ids:
        for number in batch.column(0).to_pylist():
            for task in _TASKS.decode(tasks[number]):
                for chunk in read(task, work.judge):
                    work.judge_chunk(chunk)
    yield work.result()


def of_chunks(judge: Judge, width: int | None, chunks: Iterable[Chunk], *, ordered: bool = False) -> bytes:
    """The same where the caller is: what it has in memory, or reads. `ordered`: sorted by source and number."""
    work = _Work(judge, width, ordered=ordered)
    for chunk in chunks:
        work.judge_chunk(chunk)
    return work.dumps()


def of_batches(package: bytes, width: int | None, batches: Iterable[Any]) -> Iterator[Any]:
    """What the subscriptions of a package make of these batches, in any order: one row of sums."""
    work = _Work(judge_of(package), width)
    for batch in batches:
        if batch.num_rows:
            work.judge_chunk(Chunk.of(batch, work.judge))
    yield work.result()


def of_sources(package: bytes, width: int | None, batches: Iterable[Any]) -> Iterator[Any]:
    """The same of whole sources in the order of their events, for interests with state."""
    work = _Work(judge_of(package), width, ordered=True)
    for batch in batches:
        if batch.num_rows:
            work.judge_chunk(Chunk.of(batch, work.judge))
    yield work.result()


def read(task: Task, judge: Judge) -> Iterator[Chunk]:
    """The row groups of a task, only the columns that are needed."""
    with _opened(task.path) as file:
        names = set(file.schema_arrow.names)
        slender = _slender(Path(task.path), judge, task.groups)
    wanted = [name for name in (*LOG_META.values(), *judge.columns) if name in names]
    if not judge.needs_source:
        wanted = [name for name in wanted if name not in (LOG_META["source"], LOG_META["seq"])]
    with _opened(task.path, slender) as file:
        for group in task.groups:
            table = _read(task.path, file, group, wanted)
            rows = file.metadata.row_group(group).num_rows
            columns = {name: _whole(table.column(name)) for name in table.column_names}
            if rows:
                yield Chunk.from_columns(columns, rows, judge)


def _opened(path: str, dictionaries: Sequence[str] = ()) -> Any:
    try:
        return pq.ParquetFile(path, read_dictionary=list(dictionaries), page_checksum_verification=True)
    except FileNotFoundError:
        raise StoreError(
            f"log file {path!r}: expected it as when the backtest began, found it gone: the log was compacted or old "
            "events deleted meanwhile, or this worker does not see the folder; run it again"
        ) from None


def _read(path: str, file: Any, group: int, columns: Sequence[str]) -> Any:
    try:
        return file.read_row_group(group, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"log file {path!r}: row group {group} cannot be read: {str(error).splitlines()[0]}; `headwater log "
            "verify` says what is wrong, `headwater log repair` keeps what can be read"
        ) from error


def _whole(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    made = column.combine_chunks()
    return made if isinstance(made, pa.Array) else made.chunk(0)


def _slender(path: Path, judge: Judge, groups: Sequence[int]) -> list[str]:
    """Columns of text whose values come again and again, as the size that they take says."""
    text = {name for name in judge.columns if judge.record.by_name[name].type == TEXT}
    made = [LOG_META["node"], LOG_META["source"]]
    if not groups:
        return made
    for chunk in row_groups(path)[groups[0]].chunks.values():
        if chunk.path in text and chunk.bytes < SLENDER * max(1, chunk.values):
            made.append(chunk.path)
    return made


class _Work:
    """One task."""

    def __init__(self, judge: Judge, width: int | None, *, ordered: bool = False) -> None:
        if judge.stateful and not ordered:
            raise AssertionError("interests with state are run per source, in order")
        self.judge, self.tally, self.ordered = judge, Tally(judge.items, width), ordered
        self._before = judge.rows.counts()  # a worker process is used for many tasks
        self._states: dict[int, Any] = {}
        self._unfit: set[str] = set()  # fields with too many different values to make classes of

    def result(self) -> Any:
        return pa.RecordBatch.from_arrays([pa.array([self.dumps()], pa.binary())], names=["part"])

    def dumps(self) -> bytes:
        undecided, faults = self.judge.rows.counts()
        numbers = [entry.number for entry in self.judge.matched]
        self.tally.undecided[numbers] += undecided - self._before[0]
        self.tally.faults[numbers] += faults - self._before[1]
        return self.tally.dumps()

    def judge_chunk(self, chunk: Chunk) -> None:
        judge = self.judge
        cell, keys = cells_of(chunk, self.tally)
        sizes = record_sizes(judge.layout, chunk.columns, chunk.rows)
        classes = None
        if judge.by_value:
            classes = chunk.classes(judge, cell, len(keys), sizes, self._unfit)
        if classes is None:
            self.tally.count("events", chunk.rows)
            Round(self, chunk, chunk.batch(judge), RowWeights(cell, len(keys), sizes, chunk.rows), keys).run()
        else:
            self.tally.count("classes", chunk.rows)
            batch, weights = classes
            Round(self, chunk, batch, weights, keys).run()

    def in_state(self, entry: Entry, chunk: Chunk, batch: Any) -> tuple[Any, Any, Any, list[int]]:
        """An interest with state on sorted rows, each source with a state of its own: which pass, which are undecided,
        the sizes of outputs, and faults."""
        flags, unsure, sizes = [], [], []
        faults = np.zeros(self.tally.faults.shape[1], np.int64)
        for start, end, native in self._natives(entry, chunk):
            part = batch.slice(start, end - start)
            result = native.run(part, meta=chunk.meta(start, end))
            flags.append(result.passed)
            unsure.append(result.selection.is_null().to_numpy(zero_copy_only=False))
            faults += fault_row(result.counts.faults)
            if result.output is not None:
                sizes.append(output_sizes(entry, result.output))
        whole = np.concatenate(sizes) if sizes else None
        return np.concatenate(flags), np.concatenate(unsure), whole, faults.tolist()

    def _natives(self, entry: Entry, chunk: Chunk) -> Iterator[tuple[int, int, Any]]:
        key = entry.number
        for start, end, source in chunk.sources:
            held = self._states.get(key)
            if held is None or held[0] != source:
                held = self._states[key] = (source, entry.runner())
            yield start, end, held[1]


class Round:
    """All subscriptions on one batch, whose rows are events or classes of events."""

    def __init__(self, work: _Work, chunk: Chunk, batch: Any, weights: Weights, keys: Sequence[Key]) -> None:
        self.work, self.chunk, self.batch, self.weights, self.keys = work, chunk, batch, weights, keys
        self.judge = work.judge
        self.of_classes = isinstance(weights, ClassWeights)
        shape = (self.judge.items.count, len(keys))
        self.events, self.bytes = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        sinks = range(len(self.judge.sinks))
        self.wants: dict[int, list[Any]] = {sink: [] for sink in sinks}  # rows that merged filters of the node want

    def run(self) -> None:
        items = self.judge.items
        everything = self.weights.everything()
        self.put(items.everything, everything)
        for entry in self.judge.always:
            self.put(items.first + entry.number, everything)
        self.match()
        for entry in self.judge.alone:
            self.alone(entry)
        self.cross(everything)
        for at, key in enumerate(self.keys):
            if self.events[0, at]:
                self.work.tally.add(key, self.events[:, at], self.bytes[:, at])

    def put(self, item: int, found: tuple[Any, Any]) -> None:
        self.events[item] += found[0]
        self.bytes[item] += found[1]

    # ── filters without state, together ──

    def match(self) -> None:
        judge = self.judge
        matching = judge.classes if self.of_classes else judge.rows
        rows, bounds, entries, odd = matching.match(self.batch)
        if len(entries):
            events, size = self.weights.spans(rows, bounds)
            self.events[judge.items.first + entries] += events
            self.bytes[judge.items.first + entries] += size
            for at, number in enumerate(entries.tolist()):
                self.wants[judge.entries[number].sink].append(rows[bounds[at] : bounds[at + 1]])
        if odd and self.of_classes:
            before = matching.known
            undecided, faults = matching.known = matching.counts()
            self.recount(undecided - before[0], faults - before[1])

    def recount(self, undecided: Any, faults: Any) -> None:
        """Of classes, what was undecided or faulted was counted once each: count it for every event."""
        for at in np.flatnonzero((undecided != 0) | (faults != 0).any(axis=1)).tolist():
            entry = self.judge.matched[at]
            program = self.judge.programs.get(entry.number)
            if program is None:
                program = self.judge.programs[entry.number] = entry.runner()
            self.uncertain(entry, program.run(self.batch), bool(faults[at].any()))

    def uncertain(self, entry: Entry, result: Any, faulty: bool) -> None:
        tally = self.work.tally
        unsure = result.selection.is_null().to_numpy(zero_copy_only=False)
        tally.undecided[entry.number] += int(self.weights.flagged(unsure)[0].sum())
        if faulty:
            if self.of_classes:  # native code counts faults by batch
                result = self.judge.programs[entry.number].run(self.chunk.batch(self.judge))
            tally.faults[entry.number] += fault_row(result.counts.faults)

    # ── the others, each by itself ──

    def alone(self, entry: Entry) -> None:
        judge, chunk = self.judge, self.chunk
        sizes = None
        if entry.program.stateful:
            flags, unsure, sizes, faults = self.work.in_state(entry, chunk, self.batch)
            self.work.tally.undecided[entry.number] += int(unsure.sum())
            self.work.tally.faults[entry.number] += faults
        else:
            program = judge.programs[entry.number]
            result = program.run(self.batch, meta=chunk.meta() if entry.meta else None)
            flags = result.passed
            if result.counts.undecided or result.counts.faults:
                self.uncertain(entry, result, bool(result.counts.faults))
            if result.output is not None:
                sizes = output_sizes(entry, result.output)
        found = self.weights.flagged(flags) if sizes is None else self.weights.sized(np.flatnonzero(flags), sizes)
        self.put(judge.items.first + entry.number, found)
        if entry.number not in judge.twins:
            self.put(judge.items.merged + entry.sink, found)

    # ── what crosses ──

    def cross(self, everything: tuple[Any, Any]) -> None:
        """Count what would cross between nodes: once to each node whose filters want it, and, by multicast, once for
        all of them."""
        judge, items, rows = self.judge, self.judge.items, self.batch.num_rows
        greedy = {entry.sink for entry in judge.always}
        anybody = np.zeros(rows, bool)
        # Events for sinks of their own node do not cross: for such a node, what all others want.
        here = {node for node, _ in self.keys}
        others = {sink: np.zeros(rows, bool) for sink, name in enumerate(judge.sinks) if name in here}
        for sink in range(len(judge.sinks)):
            wanted = _flags(self.wants[sink], rows, everywhere=sink in greedy)
            if wanted is None:
                continue
            self.put(items.merged + sink, everything if sink in greedy else self.weights.flagged(wanted))
            if sink in judge.streams:
                continue
            anybody |= wanted
            for other, flags in others.items():
                if other != sink:
                    flags |= wanted
        self.put(items.datagrams, self.weights.flagged(anybody))
        for sink, flags in others.items():
            own = [at for at, (node, _) in enumerate(self.keys) if node == judge.sinks[sink]]
            events, size = self.weights.flagged(flags)
            self.events[items.datagrams, own], self.bytes[items.datagrams, own] = events[own], size[own]


def _flags(parts: list[Any], rows: int, *, everywhere: bool = False) -> Any:
    if not parts and not everywhere:
        return None
    flags = np.full(rows, everywhere)
    for part in parts:
        flags[part] = True
    return flags


def output_sizes(entry: Entry, output: Any) -> Any:
    """The size of each output event's record."""
    assert entry.interest is not None and entry.interest.output is not None
    columns: Mapping[str, Any] = {name: output.column(name) for name in output.schema.names}
    made = record_sizes(Layout.of(entry.interest.output.record), columns, output.num_rows)
    return np.full(output.num_rows, made, np.int64) if isinstance(made, int) else made


__all__ = ["RESULT", "Task", "judge_of", "of_batches", "of_files", "of_sources", "read"]
