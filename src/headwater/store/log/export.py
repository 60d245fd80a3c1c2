"""A channel's events out of a log into one file, in the order of time: Parquet, CSV, lines of JSON or Arrow."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal, get_args

from headwater.errors import StoreError
from headwater.interest import Interest
from headwater.late import pa, pq
from headwater.store.log.layout import hidden, sync_folder
from headwater.store.log.log_folder import judged
from headwater.store.log.parquet_segment import ROW_GROUP, WRITING
from headwater.store.log.reader import ChannelReader

Format = Literal["parquet", "csv", "jsonl", "arrow"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: dict[str, Format] = {
    ".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip


def export(
    root: str | os.PathLike[str],
    channel: str,
    target: str | os.PathLike[str],
    *,
    format: Format | None = None,
    where: Interest | None = None,
    since: int | None = None,
    until: int | None = None,
    sources: Collection[str] | None = None,
    columns: Collection[str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write a channel's events to a file, all or those that pass; how many there were.

    The `format` follows from the file's ending unless it is given. The file appears when it is complete. `where` may be
    a transformation: its output is written. `progress` is told events read."""
    path = Path(target)
    chosen = format_of(path, format)
    batches = events(
        ChannelReader(root, channel),
        where=where,
        since=since,
        until=until,
        sources=sources,
        columns=columns,
        progress=progress,
    )
    schema = next(batches)
    temporary = hidden(path)
    count = 0
    try:
        with _writer(chosen, temporary, schema) as write:
            for batch in batches:
                write(batch)
                count += batch.num_rows
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"export: expected to write {os.fspath(path)!r}, found: {error.strerror or error}; name another file"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def events(
    reader: ChannelReader,
    *,
    where: Interest | None = None,
    since: int | None = None,
    until: int | None = None,
    sources: Collection[str] | None = None,
    columns: Collection[str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Any]:
    """The schema, then batches in the order of time."""
    tell = progress or (lambda count: None)
    if where is None:
        schema = reader.schema
        wanted = schema.names if columns is None else list(columns)
        found = reader.merged(since=since, until=until, sources=sources, columns=wanted)
        yield pa.schema([schema.field(name) for name in wanted], metadata=schema.metadata)
        for batch in found:
            tell(batch.num_rows)
            yield batch
        return
    judge = judged(reader, where, columns)
    found = reader.merged(since=since, until=until, sources=sources, columns=judge.needs)
    yield judge.schema
    for batch in found:
        tell(batch.num_rows)
        passed = judge(batch)
        if passed.num_rows:
            yield passed


def format_of(path: Path, format: Format | None) -> Format:
    """The format that is meant."""
    if format is not None:
        if format not in FORMATS:
            raise StoreError(f"format: expected one of {', '.join(FORMATS)}, found {format!r}")
        return format
    found = ENDINGS.get(path.suffix.lower())
    if found is None:
        raise StoreError(
            f"export: expected a file that ends in {', '.join(ENDINGS)}, found {path.name!r}; or say which format"
        )
    return found


Write = Callable[[Any], object]  # of a RecordBatch


@contextmanager
def _writer(format: Format, path: Path, schema: pa.Schema) -> Iterator[Write]:
    if format == "parquet":
        with pq.ParquetWriter(path, schema, **WRITING) as writer:
            yield lambda batch: writer.write_batch(batch, row_group_size=ROW_GROUP)
    elif format == "arrow":
        options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as made:
            yield lambda batch: made.write_batch(batch.replace_schema_metadata(schema.metadata))
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            if format == "csv":
                rows = csv.writer(file, lineterminator="\n")
                rows.writerow(schema.names)
                yield lambda batch: rows.writerows(_cells(row) for row in plain_rows(batch))
            else:
                yield lambda batch: write_lines(file, batch)


def write_lines(file: IO[str] | io.TextIOBase, batch: pa.RecordBatch) -> None:
    """Rows as lines of JSON."""
    for row in plain_rows(batch):
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of what JSON knows: times are ISO 8601 text, bytes base64, and what is no number in JSON is text."""
    return [{name: plain(value) for name, value in row.items()} for row in batch.to_pylist()]


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def _cells(row: dict[str, Any]) -> list[Any]:
    """What has parts is JSON in a cell; what is missing is empty."""
    return [
        json.dumps(value, ensure_ascii=False)
        if isinstance(value, (list, dict))
        else str(value).lower()
        if isinstance(value, bool)
        else value
        for value in row.values()
    ]


__all__ = ["FORMATS", "Format", "events", "export", "format_of", "plain_rows", "write_lines"]
