"""Write-ahead files as readers see them. One that is read again is read on from where it ended the last time."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.late import np, pa
from headwater.store.log import wal
from headwater.store.log.footers import Group, Range
from headwater.store.log.interest_scan import empty
from headwater.store.log.ordered_merge import joined
from headwater.store.log.schema import Table

KEPT = 8  # files that are remembered as they were
KEPT_BYTES = 256 << 20  # and of how many bytes in all

_known: OrderedDict[tuple[str, int], wal.Segment] = OrderedDict()
_lock = threading.Lock()


class Tail:
    """A write-ahead file as it was at one moment."""

    at_rest = False

    def __init__(self, path: Path, node: str, segment: int) -> None:
        """FileNotFoundError if it is gone."""
        self.path, self.node, self.segment = path, node, segment
        self._found = _sound(path)
        self.size = len(self._found.data)

    @cached_property
    def groups(self) -> list[Group]:
        """All of it, as one."""
        return _groups(self._found, self.node)

    def spans(self) -> dict[tuple[str, str], Range]:
        return {(self.node, source): found for source, found in self._found.spans.items()}

    def span(self, node: str, source: str) -> tuple[int, int] | None:
        found = self._found.spans.get(source) if node == self.node else None
        return None if found is None else found[:2]

    def load(
        self,
        table: Table,
        group: int,
        columns: Collection[str] | None,
        *,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
    ) -> pa.RecordBatch:
        names = [name for name in table.schema.names if columns is None or name in columns]
        found = list(self._found.batches(table, source=source, after=after, upto=upto))
        return joined([batch.select(names) for batch in found]) if found else empty(table.schema).select(names)


def _groups(found: wal.Segment, node: str) -> list[Group]:
    """A write-ahead file as one group, with the ranges that a row group of Parquet has."""
    index = found._index
    if found.header is None or not len(index):
        return []
    single = index[index[:, 0] != wal.ROWS]
    least, most = [], []
    if len(single):
        least.append(int(single[:, 5].min()) // 1000)
        most.append(int(single[:, 5].max()) // 1000)
    for count, start in index[index[:, 0] == wal.ROWS][:, [4, 6]].tolist():
        times = np.frombuffer(found.data, np.int64, count, start + 8 * count)
        least.append(int(times.min()))
        most.append(int(times.max()))
    sources = sorted(found.spans)
    return [
        Group(
            0,
            found.rows,
            (min(least), max(most)),
            (int(index[:, 2].min()), int(index[:, 3].max())),
            (node, node),
            (sources[0], sources[-1]),
        )
    ]


def _sound(path: Path) -> wal.Segment:
    """What is in a file, unless it is damaged."""
    for _ in range(3):  # what looks like damage may be a write under way that was just taken back
        found = _current(path)
        if not found.damage:
            return found
        with _lock:
            _known.clear()
    flaw = found.damage[0]
    raise StoreError(
        f"log {os.fspath(path)!r}: damaged at byte {flaw.offset:,} ({flaw.bytes:,} bytes): {flaw.why}; run `headwater "
        "log repair`, which keeps everything that can be read"
    )


def _current(path: Path) -> wal.Segment:
    status = path.stat()
    key = (os.fspath(path), status.st_ino)
    with _lock:
        before = _known.get(key)
    if before is not None and len(before.data) == status.st_size and before.torn is None:
        found = before
    elif before is not None and before.header is not None and not before.damage and status.st_size >= before.end:
        found = _read_on(path, before)
    else:
        found = wal.read(path)
    assert found.rows >= 0 and found.spans is not None  # worked out before other threads share it
    with _lock:
        _known[key] = found
        _known.move_to_end(key)
        while len(_known) > 1 and (len(_known) > KEPT or sum(len(each.data) for each in _known.values()) > KEPT_BYTES):
            _known.popitem(last=False)
    return found


def _read_on(path: Path, before: wal.Segment) -> wal.Segment:
    """The file as it is now, of which the beginning is known."""
    with pa.OSFile(os.fspath(path)) as file:
        data: Any = memoryview(file.read_buffer(file.size()))
    if len(data) < before.end or bytes(data[:64]) != bytes(before.data[:64]):
        return wal.read(path)
    more = wal.Segment(path, before.header, data)
    more.names = dict(before.names)
    wal._scan(more, before.end)
    more.__dict__["_index"] = np.concatenate([before._index, more._index])
    return more
