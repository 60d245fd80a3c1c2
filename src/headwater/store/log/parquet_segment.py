"""A segment comes to rest: from a write-ahead file to Parquet files, one for each day of its events.

The files are complete and on the disk before they get their names, and all of them have their names before the
write-ahead file goes. So this may end anywhere and be done again: names and contents follow from the segment alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.late import ds, np, pa, pq
from headwater.store.log import wal
from headwater.store.log.layout import (
    DAY_MICROSECONDS,
    AtRest,
    NodeFolder,
    hidden,
    parquet_segment,
    sync_file,
    sync_folder,
)
from headwater.store.log.schema import (
    NODE,
    NODE_KEY,
    SEGMENT_KEY,
    SEQ,
    SOURCE,
    SOURCES_KEY,
    TIME,
    read_table,
)
from headwater.store.log.seal import seal
from headwater.types.arrow import compact

ROW_GROUP = 131_072
Turn = Callable[[], AbstractContextManager[None]]  # while it is held, no file is taken away or exchanged
_FEW = 64  # changes of day in one batch, up to which slices are cheaper than sorting

WRITING: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "write_statistics": True,
    "write_page_index": True,
    "write_page_checksum": True,
    "store_schema": True,
    "version": "2.6",
}


def put_to_rest(
    folder: NodeFolder, segment: int, *, wait: float | None = None, given_up: Callable[[], bool] | None = None
) -> list[Path]:
    """Make the Parquet files of a segment and take its write-ahead file away; the files made or found.

    The segment must not be written any more. Doing it again after an interruption gives the same files. With `wait`, it
    is a StoreError if others have the channel's files alone for so many seconds; and so it is if they have when it is
    `given_up`.
    """
    turn = partial(folder.channel.shared, wait=wait, given_up=given_up)
    path = folder.wal(segment)
    found = wal.read(path)
    if found.damage:
        raise damaged(found)
    files: list[Path] = []
    if found.header is not None and found.rows:
        table = read_table(folder.channel)
        if table is None:
            raise StoreError(
                f"log {os.fspath(folder.channel.path)!r}: expected the table's schema in _common_metadata, found no "
                "such file; run headwater log repair"
            )
        sync_file(folder.channel.common_metadata)  # the segment may be one that nobody has synced
        for day, batches in sorted(_days(found.batches(table, ordered=True, rows=ROW_GROUP)).items()):
            files.append(_place(folder, segment, day, pa.Table.from_batches(batches, table.schema), turn))
    before = AtRest.read(folder.sources) or at_rest_by_files(folder, turn)
    sources = dict(before.sources or {})
    times = found.last_times
    for name, (_, last, _) in found.spans.items():
        if last >= sources.get(name, (0, 0))[0]:
            sources[name] = (last, times[name])
    # In this order: whatever ends the process in between, every event is in a file that counts, and in one only.
    AtRest(max(before.segment, segment), sources).write(folder.sources)
    path.unlink()
    sync_folder(folder.path)
    return files


def damaged(found: wal.Segment) -> StoreError:
    """What is said of a write-ahead file with damage before its end."""
    first, count = found.damage[0], len(found.damage)
    more = f", and {count - 1} more places" if count > 1 else ""
    return StoreError(
        f"log {os.fspath(found.path)!r}: expected whole blocks up to its end, found {first.bytes} bytes at "
        f"{first.offset} that are none, and whole ones after them ({first.why}){more}; run headwater log repair, "
        "which keeps all that can be read, and the damaged bytes beside it"
    )


def _days(batches: Iterator[Any]) -> dict[int, list[Any]]:
    """Batches by day of their events, in the order that they come."""
    made: dict[int, list[Any]] = {}
    for batch in batches:
        days = batch.column(TIME).view(pa.int64()).to_numpy() // DAY_MICROSECONDS
        cuts = np.flatnonzero(np.diff(days)) + 1
        if len(cuts) > _FEW:
            order = np.argsort(days, kind="stable")
            columns = [compact(column).take(pa.array(order)) for column in batch.columns]
            batch, days = pa.RecordBatch.from_arrays(columns, schema=batch.schema), days[order]
            cuts = np.flatnonzero(np.diff(days)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(days)], strict=True):
            made.setdefault(int(days[start]), []).append(batch.slice(start, stop - start))
    return made


def _place(folder: NodeFolder, segment: int, day: int, rows: Any, turn: Turn) -> Path:
    """A day's file, in its place."""
    target = folder.parquet(day, segment)
    metadata = {
        **rows.schema.metadata,
        NODE_KEY: folder.node.encode("utf-8", "surrogatepass"),
        SEGMENT_KEY: str(segment).encode(),
        SOURCES_KEY: json.dumps(spans_of(rows)).encode(),
    }
    if _is_there(target, metadata):
        return target
    temporary = hidden(folder.path / f"{target.parent.name}-{segment:08d}.parquet")
    try:
        write_parquet(temporary, rows.replace_schema_metadata(metadata))
        sync_file(temporary)
        with turn():
            if not target.parent.is_dir():
                target.parent.mkdir(exist_ok=True)
                sync_folder(target.parent.parent)
            temporary.rename(target)
            sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return target


def write_parquet(path: Path, rows: Any) -> None:
    """A table as a Parquet file like all of a log."""
    names = rows.schema.names
    sorting = [pq.SortingColumn(names.index(name)) for name in (SOURCE, SEQ)]
    with pq.ParquetWriter(os.fspath(path), rows.schema, sorting_columns=sorting, **WRITING) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP)
    seal(path)


def _is_there(path: Path, metadata: dict[bytes, bytes]) -> bool:
    """Whether a file of these events is in place already."""
    try:
        found = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return all(found.get(key) == metadata[key] for key in (NODE_KEY, SEGMENT_KEY, SOURCES_KEY))


def spans_of(rows: Any) -> dict[str, tuple[int, int, int]]:
    """Of each source in a table: first and last sequence number, and how many events."""
    found = rows.select([SOURCE, SEQ]).group_by(SOURCE).aggregate([(SEQ, "min"), (SEQ, "max"), (SEQ, "count")])
    columns = [found.column(f"{SEQ}_{what}").to_pylist() for what in ("min", "max", "count")]
    names = found.column(SOURCE).to_pylist()
    return dict(sorted(zip(names, zip(*columns, strict=True), strict=True)))


def at_rest_by_files(folder: NodeFolder, turn: Turn | None = None) -> AtRest:
    """What `sources.json` would say, from the files at rest: only when it is lost, since it takes a pass over them."""
    segment = last_segment(folder)
    with (turn or folder.channel.shared)():
        paths = [os.fspath(path) for _, path in folder.channel.parquet()]
        if not paths:
            return AtRest(segment, {})
        schema = pa.schema(
            [(NODE, pa.utf8()), (SOURCE, pa.utf8()), (SEQ, pa.int64()), (TIME, pa.timestamp("us", "UTC"))]
        )
        sources: dict[str, tuple[int, int]] = {}
        scan = ds.dataset(paths, schema=schema, format="parquet").scanner(
            columns=[SOURCE, SEQ, TIME], filter=ds.field(NODE) == folder.node
        )
        for batch in scan.to_batches():
            if not batch.num_rows:
                continue
            rows = pa.Table.from_batches([batch])
            last = rows.group_by(SOURCE).aggregate([(SEQ, "max")])
            ends = rows.join(last, keys=[SOURCE, SEQ], right_keys=[SOURCE, f"{SEQ}_max"], join_type="inner")
            for name, seq, time in zip(
                ends.column(SOURCE).to_pylist(),
                ends.column(SEQ).to_pylist(),
                ends.column(TIME).cast(pa.int64()).to_pylist(),
                strict=True,
            ):
                sources[name] = max(sources.get(name, (0, 0)), (seq, time))
    return AtRest(segment, sources)


def last_segment(folder: NodeFolder) -> int:
    """The greatest number of a segment of this node among the names of files at rest; 0 if there is none."""
    return max((of[1] for of in map(_segment_of, folder.channel.parquet()) if of and of[0] == folder.node), default=0)


def _segment_of(entry: tuple[int, Path]) -> tuple[str, int] | None:
    return parquet_segment(entry[1].name)


__all__ = ["ROW_GROUP", "at_rest_by_files", "damaged", "last_segment", "put_to_rest", "spans_of", "write_parquet"]
