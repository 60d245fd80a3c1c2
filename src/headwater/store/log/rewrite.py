"""Writing files at rest anew: for compaction and repair. A file is complete and on the disk before it gets its name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.late import pa, pq
from headwater.store.log.footers import Range
from headwater.store.log.layout import sync_file
from headwater.store.log.parquet_segment import ROW_GROUP, WRITING
from headwater.store.log.schema import NODE_KEY, SEGMENT_KEY, SEQ, SOURCE, SOURCES_KEY
from headwater.store.log.seal import seal
from headwater.store.log.snapshot import spans_of

SEGMENTS_KEY = b"headwater.segments"  # of a file that several became: the first and the last


def write_rested(
    path: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    node: str | None,
    segments: tuple[int, int] | None,
) -> dict[tuple[str, str], Range]:
    """Write a file of rows that are in order already; what it has of each source. It has its final name: hide it."""
    found: dict[tuple[str, str], Range] = {}
    try:
        names = schema.names
        sorting = [pq.SortingColumn(names.index(name)) for name in (SOURCE, SEQ)]
        with pq.ParquetWriter(path, schema, sorting_columns=sorting, **WRITING) as writer:
            for batch in batches:
                writer.write_batch(batch, row_group_size=ROW_GROUP)
                for key, (first, last, count) in spans_of(batch).items():
                    had = found.get(key, (first, last, 0))
                    found[key] = (min(first, had[0]), max(last, had[1]), had[2] + count)
            writer.add_key_value_metadata(_notes(found, node, segments))
        seal(path)
        sync_file(path)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return found


def _notes(
    found: dict[tuple[str, str], Range], node: str | None, segments: tuple[int, int] | None
) -> dict[bytes, bytes]:
    notes = {}
    if node is not None:
        notes[NODE_KEY] = node.encode("utf-8", "surrogatepass")
        sources = {source: list(span) for (_, source), span in sorted(found.items())}
        notes[SOURCES_KEY] = json.dumps(sources).encode()
    if segments is not None:
        notes[SEGMENT_KEY] = str(segments[1]).encode()
        if segments[0] != segments[1]:
            notes[SEGMENTS_KEY] = f"{segments[0]}-{segments[1]}".encode()
    return notes
