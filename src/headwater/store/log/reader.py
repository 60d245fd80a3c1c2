"""Reading a channel's log, from any process, while others write, compact or delete.

>>> reader = ChannelReader("events", "ie.tcd.sighting")                      # doctest: +SKIP
>>> for batch in reader.read(node="a", source="station-1", after=100):       # doctest: +SKIP
...     batch.column("event_seq"), batch.column("level")
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.late import np, pa, pc
from headwater.store.log import ordered_merge as merging
from headwater.store.log.footers import GREATEST, Group, Range
from headwater.store.log.interest_scan import check_columns
from headwater.store.log.layout import ChannelFolder, channels, day_of
from headwater.store.log.location import local_folder
from headwater.store.log.schema import META, NODE, SEQ, SOURCE, TIME, Table
from headwater.store.log.snapshot import Part, Snapshot, must_exist, table_of
from headwater.types import EventType

ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Span:
    """What a log has of one source: from its `first` to its `last` sequence number so many `events`, if that is known.

    Numbers increase but may have gaps."""

    node: str
    source: str
    first: int
    last: int
    events: int | None = None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a log: at rest, or (`at_rest` false) a write-ahead file. Times are in microseconds."""

    path: Path
    node: str | None  # None: of several nodes, or not noted
    segment: int | None
    day: int | None  # since 1970
    rows: int
    bytes: int
    groups: int
    first_time: int | None
    last_time: int | None
    at_rest: bool


class ChannelReader:
    """A channel's events in a log: those at rest and those in write-ahead files, each once.

    Each call sees what there is at that moment. `nodes`: only what these nodes have logged.
    """

    def __init__(self, root: str | os.PathLike[str], channel: str, *, nodes: Collection[str] | None = None) -> None:
        if isinstance(nodes, str):
            raise StoreError(f"nodes: expected several names, found the text {nodes!r}; give [{nodes!r}]")
        self.root, self.channel = local_folder(root), channel
        self.nodes = None if nodes is None else frozenset(nodes)
        self._folder = ChannelFolder.of(root, channel)
        must_exist(self._folder)
        table_of(self._folder)

    def _snapshot(self, matters: Any = lambda part: True, node: str | None = None) -> Snapshot:
        nodes = self.nodes
        if node is not None:
            nodes = frozenset((node,)) if nodes is None else nodes & {node}
        return Snapshot(self.root, self.channel, nodes=nodes, matters=matters)

    @property
    def table(self) -> Table:
        """Its table as it is now: it grows with the event type."""
        return table_of(self._folder)

    @property
    def type(self) -> EventType | None:
        """The newest event type; None for bytes."""
        return self.table.type

    @property
    def schema(self) -> pa.Schema:
        """The columns of every event, then the fields of all types the channel had, all of them nullable."""
        return self.table.schema

    # ── what there is ──

    def sources(self) -> list[Span]:
        """What there is of each source, by node and name."""
        found: dict[tuple[str, str], Range] = {}
        with self._snapshot() as snapshot:
            for part in snapshot.parts:
                for key, (first, last, count) in part.spans().items():
                    if self.nodes is not None and key[0] not in self.nodes:
                        continue
                    known = found.get(key)
                    if known is None:
                        found[key] = (first, last, count)
                    else:
                        found[key] = (min(first, known[0]), max(last, known[1]), known[2] + count)
        return [Span(*key, *found[key]) for key in sorted(found)]

    def count(self) -> int:
        """How many events there are."""
        return sum(span.events or 0 for span in self.sources())

    def files(self) -> list[FileInfo]:
        """Its files, those at rest first."""
        found = []
        with self._snapshot() as snapshot:
            for part in snapshot.parts:
                times = [group.times for group in part.groups]
                found.append(
                    FileInfo(
                        part.path,
                        part.node,
                        part.segment,
                        day_of(part.path.parent.name),
                        sum(group.rows for group in part.groups),
                        part.size,
                        len(part.groups),
                        min((low for low, _ in times), default=None),
                        max((high for _, high in times), default=None),
                        part.at_rest,
                    )
                )
        return found

    # ── events ──

    def read(
        self,
        *,
        node: str | None = None,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
        since: int | None = None,
        until: int | None = None,
        columns: Collection[str] | None = None,
        rows: int = ROWS,
    ) -> Scan:
        """Events as batches of at most so many rows; with node and source in the order of their numbers.

        after < event_seq <= upto; since <= event_time < until, in microseconds."""
        wanted = _Wanted(self, node, source, after, upto, since, until, columns, rows)
        return Scan(self._scan(wanted), wanted)

    def _scan(self, wanted: _Wanted) -> Generator[pa.RecordBatch, None, None]:
        with self._snapshot(wanted.file_matters, wanted.node) as snapshot:
            wanted.looked = True
            yield from _batches(snapshot, wanted)

    def by_source(
        self, snapshot: Snapshot, columns: Collection[str] | None = None, *, rows: int = ROWS
    ) -> Iterator[pa.RecordBatch]:
        """What a snapshot of this channel has, one source after another, by node and name, each in the order of its
        numbers; a batch is of one source."""
        for node, source in sorted({key for part in snapshot.parts for key in part.spans()}):
            if self.nodes is None or node in self.nodes:
                yield from _batches(snapshot, _Wanted(self, node, source, 0, None, None, None, columns, rows))

    def merged(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        sources: Collection[str] | None = None,
        columns: Collection[str] | None = None,
        rows: int = ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """All events in the order of time, node, source and number: since <= event_time < until, in microseconds.

        In memory are no more than the row groups whose times overlap."""
        wanted = _Wanted(self, None, None, 0, None, since, until, columns, rows, sources)
        return self._merged(wanted)

    def _merged(self, wanted: _Wanted) -> Iterator[pa.RecordBatch]:
        wanted.needed |= set(META)
        with self._snapshot(wanted.file_matters) as snapshot:
            pieces = [
                merging.Piece(
                    max(group.times[0], wanted.since if wanted.since is not None else group.times[0]),
                    lambda part=part, group=group: wanted.load(snapshot.table, part, group),  # type: ignore[misc]
                )
                for part in snapshot.parts
                for group, _ in wanted.groups(part)
            ]
            for batch in merging.by_time(pieces, rows=wanted.rows):
                yield batch.select(wanted.columns) if batch.schema.names != wanted.columns else batch

    def __repr__(self) -> str:
        return f"<ChannelReader of {self.channel} in {os.fspath(self.root)!r}>"


def channel_types(root: str | os.PathLike[str]) -> dict[str, EventType]:
    """The channels of a log, with the newest type of each; those of bytes have none and are left out."""
    if not local_folder(root).is_dir():
        raise StoreError(f"log {os.fspath(root)!r}: expected a folder with a log, found none; name another")
    found = {name: ChannelReader(root, name).type for name in channels(root)}
    return {name: type for name, type in found.items() if type is not None}


class Scan(Iterator[Any]):  # of RecordBatches
    """Batches of events, all of one moment: that at which the first of them was asked for."""

    def __init__(self, batches: Generator[pa.RecordBatch, None, None], wanted: _Wanted) -> None:
        self._batches, self._wanted = batches, wanted

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    @property
    def first(self) -> int | None:
        """Of a scan of one source, once it has begun: the number of the first event of it that the log had. None if it
        had none."""
        return self._wanted.first

    @property
    def removed(self) -> list[tuple[int, int]]:
        """Of a scan of one source, once it has begun: first and last number of what was asked for and lies before the
        first event that the log had. Retention has removed that, if it was ever there."""
        wanted, ends = self._wanted, self._wanted.upto
        if not wanted.looked or wanted.node is None or wanted.source is None:
            return []
        if wanted.first is not None:
            ends = wanted.first - 1 if ends is None else min(ends, wanted.first - 1)
        return [(wanted.after + 1, ends)] if ends is not None and ends > wanted.after else []

    def close(self) -> None:
        """Let go of its files."""
        self._batches.close()


class _Wanted:
    """Which events are asked for, and what of them."""

    def __init__(
        self,
        reader: ChannelReader,
        node: str | None,
        source: str | None,
        after: int,
        upto: int | None,
        since: int | None,
        until: int | None,
        columns: Collection[str] | None,
        rows: int,
        sources: Collection[str] | None = None,
    ) -> None:
        for name, value in (("after", after), ("upto", upto), ("since", since), ("until", until), ("rows", rows)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise StoreError(f"{name}: expected a whole number, found {value!r}")
        if rows < 1:
            raise StoreError(f"rows: expected 1 or more, found {rows}")
        if isinstance(columns, str):
            raise StoreError(f"columns: expected several names, found the text {columns!r}; give [{columns!r}]")
        self.nodes, self.node, self.source = reader.nodes, node, source
        self.sources = None if sources is None else frozenset(sources)
        self.after, self.upto, self.since, self.until, self.rows = after, upto, since, until, rows
        names = reader.schema.names
        self.columns = list(names) if columns is None else check_columns(list(columns), names)
        self.looked = False  # whether it is known what files there are, and so what comes
        self.first: int | None = None  # of the source, if it is one
        self.needed = set(self.columns)
        if node is not None or reader.nodes is not None:
            self.needed.add(NODE)
        if source is not None or sources is not None:
            self.needed.add(SOURCE)
        if after > 0 or upto is not None or (node is not None and source is not None):
            self.needed.add(SEQ)
        if since is not None or until is not None:
            self.needed.add(TIME)

    def file_matters(self, part: Part) -> bool:
        if self.node is not None and part.node is not None and part.node != self.node:
            return False
        if self.node is not None and self.source is not None and (span := part.span(self.node, self.source)):
            self.first = span[0] if self.first is None else min(self.first, span[0])
        return any(True for _ in self.groups(part))

    def groups(self, part: Part) -> Iterator[tuple[Group, int]]:
        """The row groups that may have such events, each with a number that none of theirs is below."""
        low, high = -GREATEST, GREATEST
        if self.node is not None and self.source is not None:
            span = part.span(self.node, self.source)
            if span is None:
                return
            low, high = span
        for group in part.groups:
            first, last = max(low, group.seqs[0]), min(high, group.seqs[1])
            if last <= self.after or (self.upto is not None and first > self.upto):
                continue
            if self.since is not None and group.times[1] < self.since:
                continue
            if self.until is not None and group.times[0] >= self.until:
                continue
            if group.may_have(self.node, self.source) and self._may_have_any(group):
                yield group, first

    def _may_have_any(self, group: Group) -> bool:
        return (self.sources is None or any(group.may_have(None, source) for source in self.sources)) and (
            self.nodes is None or any(group.may_have(node, None) for node in self.nodes)
        )

    def load(self, table: Table, part: Part, group: Group) -> pa.RecordBatch:
        """The events of a row group that are asked for, as rows of the table."""
        only = self.source if self.node is not None else None
        batch = part.load(table, group.index, self.needed, source=only, after=self.after, upto=self.upto)
        mask = self._mask(batch, group)
        return batch if mask is None else _filtered(batch, mask)

    def _mask(self, batch: pa.RecordBatch, group: Group) -> Any:
        """Which rows of a group are wanted; None: all. Tests that the group's range already answers are left out."""
        tests = []
        one_node, one_source = group.nodes == (self.node, self.node), group.sources == (self.source, self.source)
        if self.node is not None and not one_node:
            tests.append(pc.equal(batch.column(NODE), self.node))
        if self.nodes is not None and (group.nodes is None or group.nodes[0] != group.nodes[1]):
            tests.append(pc.is_in(batch.column(NODE), pa.array(sorted(self.nodes), pa.utf8())))
        if self.source is not None and not one_source:
            tests.append(pc.equal(batch.column(SOURCE), self.source))
        if self.sources is not None:
            tests.append(pc.is_in(batch.column(SOURCE), pa.array(sorted(self.sources), pa.utf8())))
        if group.seqs[0] <= self.after and self.after > 0:
            tests.append(pc.greater(batch.column(SEQ), self.after))
        if self.upto is not None and group.seqs[1] > self.upto:
            tests.append(pc.less_equal(batch.column(SEQ), self.upto))
        if self.since is not None and group.times[0] < self.since:
            tests.append(pc.greater_equal(batch.column(TIME).cast(pa.int64()), self.since))
        if self.until is not None and group.times[1] >= self.until:
            tests.append(pc.less(batch.column(TIME).cast(pa.int64()), self.until))
        if not tests:
            return None
        mask = tests[0]
        for test in tests[1:]:
            mask = pc.and_(mask, test)
        return mask


def _batches(snapshot: Snapshot, wanted: _Wanted) -> Iterator[pa.RecordBatch]:
    """What is asked for of a snapshot."""
    loads = [
        merging.Piece(low, lambda part=part, group=group: wanted.load(snapshot.table, part, group))  # type: ignore[misc]
        for part in snapshot.parts
        for group, low in wanted.groups(part)
    ]
    if wanted.node is not None and wanted.source is not None:
        found: Iterable[pa.RecordBatch] = merging.by_sequence(loads, rows=wanted.rows)
    else:
        found = (each.load() for each in loads)
    for batch in found:
        picked = batch.select(wanted.columns) if batch.schema.names != wanted.columns else batch
        for start in range(0, picked.num_rows, wanted.rows):
            yield picked.slice(start, wanted.rows)


def _filtered(batch: pa.RecordBatch, mask: Any) -> pa.RecordBatch:
    rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if len(rows) == batch.num_rows:
        return batch
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # one stretch, as of one source
        return batch.slice(int(rows[0]), len(rows))
    return merging.take(batch, rows)


__all__ = ["ChannelReader", "FileInfo", "Scan", "Span", "channel_types", "channels"]
