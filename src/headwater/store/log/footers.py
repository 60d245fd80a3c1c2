"""What the footer of a Parquet file says: enough to know what need not be read. Read once, since files never change."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import StoreError
from headwater.store.log.layout import DAY_MICROSECONDS, day_of
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

KEPT = 4096  # footers that are remembered
LEAST, GREATEST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Range = tuple[int, int, int]  # the first and the last sequence number, and how many events


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are read together, and bounds of what is in them; text that is not known is None."""

    index: int
    rows: int
    times: tuple[int, int]
    seqs: tuple[int, int]
    nodes: tuple[str, str] | None
    sources: tuple[str, str] | None

    def may_have(self, node: str | None, source: str | None) -> bool:
        return _within(node, self.nodes) and _within(source, self.sources)

    def span(self) -> dict[tuple[str, str], Range] | None:
        """What it has of its source, if all its events are of one."""
        if self.nodes is None or self.sources is None or self.seqs[0] == LEAST:
            return None
        if self.nodes[0] != self.nodes[1] or self.sources[0] != self.sources[1]:
            return None
        return {(self.nodes[0], self.sources[0]): (*self.seqs, self.rows)}


def _within(text: str | None, bounds: tuple[str, str] | None) -> bool:
    return text is None or bounds is None or bounds[0] <= text <= bounds[1]


@dataclass(slots=True)
class Footer:
    """Of one file. `node`, `segment` and `sources` are what the writer has noted; files of others have none."""

    metadata: Any
    schema: pa.Schema
    groups: list[Group]
    notes: dict[str, str]
    node: str | None = None
    segment: int | None = None
    sources: dict[str, Range] | None = None
    spans: dict[tuple[str, str], Range] | None = field(default=None)  # by node and source, once they are known

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)


_known: OrderedDict[tuple[Any, ...], Footer] = OrderedDict()
_lock = threading.Lock()


def footer(path: Path) -> Footer:
    """The footer of a file; StoreError if it is no Parquet file of a log."""
    try:
        status = path.stat()
    except OSError as error:
        raise StoreError(f"log file {os.fspath(path)!r}: it cannot be read: {error.strerror}") from error
    key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
            return found
    found = _read(path)
    with _lock:
        _known[key] = found
        while len(_known) > KEPT:
            _known.popitem(last=False)
    return found


def _read(path: Path) -> Footer:
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException, ValueError) as error:  # a name in it may be no text
        raise StoreError(
            f"log file {os.fspath(path)!r}: expected a Parquet file, found: {str(error).splitlines()[0]}; `headwater "
            "log verify` says what is wrong with a log, `headwater log repair` sets such files aside"
        ) from error
    lacking = [name for name in (NODE, SOURCE, SEQ, TIME) if name not in schema.names]
    if lacking:
        raise StoreError(
            f"log file {os.fspath(path)!r}: expected the columns {NODE}, {SOURCE}, {SEQ} and {TIME}, found no "
            f"{', '.join(lacking)}; move the file out of the log"
        )
    notes = {}
    for name, value in (metadata.metadata or {}).items():
        if name.startswith(b"headwater."):
            notes[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    try:
        groups = _groups(path, metadata)
    except (OSError, pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"log file {os.fspath(path)!r}: expected bounds of its columns, found: {error}; `headwater log repair` "
            "sets such files aside"
        ) from error
    made = Footer(metadata, schema, groups, notes)
    made.node = notes.get("headwater.node")
    try:
        if "headwater.segment" in notes:
            made.segment = int(notes["headwater.segment"])
        if "headwater.sources" in notes:
            given = json.loads(notes["headwater.sources"])
            made.sources = {str(name): (int(a), int(b), int(n)) for name, (a, b, n) in given.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"log file {os.fspath(path)!r}: its notes are damaged: {error}; `headwater log repair` writes them anew"
        ) from error
    if made.node is not None and made.sources is not None:
        made.spans = {(made.node, name): found for name, found in made.sources.items()}
    return made


def _groups(path: Path, metadata: Any) -> list[Group]:
    day = day_of(path.parent.name)
    least, most = TIMESTAMP_MIN, TIMESTAMP_MAX
    if day is not None:
        least, most = day * DAY_MICROSECONDS, (day + 1) * DAY_MICROSECONDS - 1
    at = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    groups = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        times = _bounds(group, at.get(TIME))
        seqs = _bounds(group, at.get(SEQ))
        nodes, sources = _bounds(group, at.get(NODE)), _bounds(group, at.get(SOURCE))
        groups.append(
            Group(
                index,
                group.num_rows,
                (least, most) if times is None else (micros(times[0]), micros(times[1])),
                (LEAST, GREATEST) if seqs is None else (int(seqs[0]), int(seqs[1])),
                None if nodes is None else (str(nodes[0]), str(nodes[1])),
                None if sources is None else (str(sources[0]), str(sources[1])),
            )
        )
    return groups


def _bounds(group: Any, column: int | None) -> tuple[Any, Any] | None:
    if column is None:
        return None
    chunk = group.column(column)
    if not chunk.is_stats_set or not chunk.statistics.has_min_max:
        return None
    return chunk.statistics.min, chunk.statistics.max


def micros(when: Any) -> int:
    """A time of statistics in microseconds since 1970."""
    if isinstance(when, int):
        return when
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int((aware - _EPOCH) // _MICROSECOND)
