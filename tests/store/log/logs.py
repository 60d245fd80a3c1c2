"""Logs made by hand for the tests of what reads them: files at rest and write-ahead files, by their layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.store.log import ordered_merge as merging
from headwater.store.log import schema
from headwater.store.log.layout import DAY_MICROSECONDS, ChannelFolder, log_id, make_folders
from headwater.store.log.rewrite import write_rested
from headwater.store.log.wal import Header
from headwater.store.log.wal_writer import Writer
from headwater.types import EventType, event_type
from headwater.types.declaration import parse_record

DAY0 = 20_000 * DAY_MICROSECONDS  # a day long over
CHANNEL = "ie.tcd.sighting"
TYPE = "badge: u32, level: f64, place: text?"

Row = tuple[str, str, int, int, dict[str, Any]]  # node, source, seq, time in microseconds, fields


def as_type(text: str) -> EventType:
    return event_type(parse_record(text))


@dataclass
class Logged:
    """A log, and a plain list of what is in it."""

    root: Path
    channel: str = CHANNEL
    type: EventType | None = field(default_factory=lambda: as_type(TYPE))
    rows: list[Row] = field(default_factory=list)
    segments: dict[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> ChannelFolder:
        return ChannelFolder.of(self.root, self.channel)

    def _admit(self) -> schema.Table:
        make_folders(self.folder.path)
        return schema.admit(self.folder, self.type)

    def _next(self, node: str) -> int:
        self.segments[node] = self.segments.get(node, 0) + 1
        return self.segments[node]

    def _fields(self, rows: list[Row]) -> Any:
        if self.type is None:
            return pa.record_batch({"data": pa.array([row[4]["data"] for row in rows], pa.binary())})
        return self.type.to_arrow([row[4] for row in rows])

    def batch(self, rows: list[Row]) -> Any:
        table = self._admit()
        nodes, sources = pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows])
        seqs, times = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
        return table.rows(nodes, sources, seqs, times, self._fields(rows))

    def rest(self, node: str, rows: list[Row], *, group: int = 0) -> list[Path]:
        """A segment at rest: a file for each day."""
        table, segment = self._admit(), self._next(node)
        made = []
        for day in sorted({row[3] // DAY_MICROSECONDS for row in rows}):
            path = self.folder.node(node).parquet(day, segment)
            make_folders(path.parent)
            own = self.batch([row for row in rows if row[3] // DAY_MICROSECONDS == day])
            own = merging.arranged(own, merging.order_in_file)
            step = group or max(1, own.num_rows)
            pieces = [own.slice(at, step) for at in range(0, own.num_rows, step)]
            write_rested(path, table.schema, pieces, node=node, segments=(segment, segment))
            made.append(path)
        self.rows += rows
        return made

    def tail(self, node: str, rows: list[Row], *, batched: bool = False) -> Path:
        """A segment that is not at rest."""
        self._admit()
        segment, folder = self._next(node), self.folder.node(node)
        make_folders(folder.path)
        header = Header(self.channel, node, segment, log_id(folder), self.type)
        writer = Writer.create(folder.wal(segment), header)
        for row in rows:
            if batched:
                seqs, times = np.array([row[2]], np.int64), np.array([row[3]], np.int64)
                writer.rows(row[1], seqs, times, header.rows.conform(self._fields([row])))
            else:
                record = row[4]["data"] if self.type is None else self.type.encode(row[4])
                writer.event(row[1], row[2], row[3] * 1000, record)
        writer.close()
        self.rows += rows
        return folder.wal(segment)

    def ordered(self) -> list[tuple[str, str, int, int]]:
        """The keys of all events, in the order of the time."""
        return sorted(((n, s, q, t) for n, s, q, t, _ in self.rows), key=lambda key: (key[3], *key[:3]))


def keys(batches: Any) -> list[tuple[str, str, int, int]]:
    found = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("event_node", "event_source", "event_seq")]
        found += list(zip(*columns, batch.column("event_time").cast(pa.int64()).to_pylist(), strict=True))
    return found


def sighting(node: str, source: str, seq: int, time: int, **fields: Any) -> Row:
    """An event whose fields follow from its number."""
    made = {"badge": seq % 7, "level": seq / 10, "place": None if seq % 3 == 0 else f"room {seq % 5}"}
    return node, source, seq, time, made | fields
