"""What the footer of a Parquet file says: enough to know what need not be read. Read once, since files never change."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.late import pa, pq
from headwater.store.log.layout import DAY_MICROSECONDS, day_of
from headwater.store.log.parquet_footer import Chunk, RowGroup, row_groups
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

KEPT = 4096  # footers that are remembered
LEAST, GREATEST = -(2**63), 2**63 - 1
_MICROSECONDS = {"us": 1, "ms": 1000, "s": 1_000_000}  # of a unit of time

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

    metadata: Any  # for Arrow, when it reads rows; nothing else of it is safe to look at if the file is damaged
    schema: pa.Schema
    row_groups: list[RowGroup]
    groups: list[Group]
    notes: dict[str, str]
    node: str | None = None
    segment: int | None = None
    sources: dict[str, Range] | None = None
    spans: dict[tuple[str, str], Range] | None = field(default=None)  # by node and source, once they are known

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


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
    """The footer of a Parquet file of a log: its groups with the range of nodes, sources, numbers and times of each.
    StoreError if it is none of ours."""
    try:
        found = row_groups(path)
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
    _check_kinds(path, schema)
    notes = {}
    for name, value in (metadata.metadata or {}).items():
        if name.startswith(b"headwater."):
            notes[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    try:
        groups = _groups(path, found, schema)
    except ValueError as error:
        raise StoreError(
            f"log file {os.fspath(path)!r}: expected bounds of its columns, found: {error}; `headwater log repair` "
            "sets such files aside"
        ) from error
    made = Footer(metadata, schema, found, groups, notes)
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


def _check_kinds(path: Path, schema: pa.Schema) -> None:
    """StoreError if what is logged of every event is of another kind than that of a log."""
    types = pa.types
    for name, expected, fits in (
        (NODE, "text", _is_text),
        (SOURCE, "text", _is_text),
        (SEQ, "whole numbers", types.is_integer),
        (TIME, "times", types.is_timestamp),
    ):
        if not fits(schema.field(name).type):
            raise StoreError(
                f"log file {os.fspath(path)!r}: expected {expected} in {name}, found: {schema.field(name).type}; "
                "`headwater log repair` sets such files aside"
            )


def _is_text(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        type = type.value_type
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _groups(path: Path, found: list[RowGroup], schema: pa.Schema) -> list[Group]:
    day = day_of(path.parent.name)
    least, most = TIMESTAMP_MIN, TIMESTAMP_MAX
    if day is not None:
        least, most = day * DAY_MICROSECONDS, (day + 1) * DAY_MICROSECONDS - 1
    return [
        Group(
            index,
            group.rows,
            _times(group.chunks.get(TIME), schema.field(TIME).type) or (least, most),
            _integers(group.chunks.get(SEQ), schema.field(SEQ).type) or (LEAST, GREATEST),
            _texts(group.chunks.get(NODE)),
            _texts(group.chunks.get(SOURCE)),
        )
        for index, group in enumerate(found)
    ]


def _integers(chunk: Chunk | None, type: pa.DataType) -> tuple[int, int] | None:
    if chunk is None or chunk.least is None or chunk.greatest is None:
        return None
    if len(chunk.least) not in (4, 8) or len(chunk.least) != len(chunk.greatest):
        raise ValueError(f"bounds of {chunk.path} of {len(chunk.least)} and {len(chunk.greatest)} bytes")
    signed = not pa.types.is_unsigned_integer(type)
    least, greatest = (int.from_bytes(each, "little", signed=signed) for each in (chunk.least, chunk.greatest))
    return least, greatest


def _times(chunk: Chunk | None, type: pa.DataType) -> tuple[int, int] | None:
    """In microseconds since 1970."""
    found = _integers(chunk, type) if pa.types.is_timestamp(type) else None
    if found is None:
        return None
    if type.unit == "ns":
        least, greatest = found[0] // 1000, -(-found[1] // 1000)
    else:
        least, greatest = (each * _MICROSECONDS[type.unit] for each in found)
    if not TIMESTAMP_MIN <= least <= greatest <= TIMESTAMP_MAX:
        raise ValueError(f"times from {least} to {greatest}, which are no times")
    return least, greatest


def _texts(chunk: Chunk | None) -> tuple[str, str] | None:
    if chunk is None or chunk.least is None or chunk.greatest is None:
        return None
    return chunk.least.decode(), chunk.greatest.decode()
