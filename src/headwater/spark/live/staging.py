"""Rows on their way out: each task puts its own in a file; a batch is published when all of its files are there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage

from headwater.errors import StoreError
from headwater.late import pa
from headwater.spark.schema import from_spark_arrow
from headwater.types.model import Record

_SUFFIX = ".arrow"
_FORGOTTEN = 24 * 3600.0  # seconds after which a file that no batch named is deleted


class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What one task has put aside: a file, or none if it had no rows."""

    def __init__(self, path: str | None, rows: int) -> None:
        self.path, self.rows = path, rows


def stage(folder: Path, batches: Iterable[Any], record: Record) -> Staged:
    """Put a task's rows in a file, as events of the channel's type."""
    path = folder / f"{uuid4().hex}{_SUFFIX}"
    writer: Any = None
    sink: Any = None
    rows = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            made = from_spark_arrow(batch.select([n for n in batch.schema.names if n in record.by_name]), record)
            if writer is None:
                folder.mkdir(parents=True, exist_ok=True)
                sink = path.open("wb")
                writer = pa.ipc.new_file(sink, made.schema)
            writer.write_batch(made)
            rows += made.num_rows
        if writer is not None:
            writer.close()
            sink.flush()
            os.fsync(sink.fileno())
    except BaseException:
        if sink is not None:
            sink.close()
            path.unlink(missing_ok=True)
        raise
    if sink is None:
        return Staged(None, 0)
    sink.close()
    return Staged(str(path), rows)


def staged_batches(paths: Iterable[str]) -> Iterator[Any]:
    """The rows of staged files, in the order of the files."""
    for path in paths:
        try:
            source = pa.memory_map(path)
        except FileNotFoundError:
            raise StoreError(
                f"staged rows: expected the file {path}, which a task wrote, found none; the folder in option staging "
                "must be one that driver and executors share, and nobody may clean it while the query runs"
            ) from None
        with source, pa.ipc.open_file(source) as reader:
            for at in range(reader.num_record_batches):
                yield reader.get_batch(at)


def discard(paths: Iterable[str | None]) -> None:
    """Remove files that a task has left."""
    for path in paths:
        if path is not None:
            Path(path).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Delete what tasks left that failed or were overtaken, long ago."""
    if not folder.is_dir():
        return
    before = time.time() - _FORGOTTEN
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            if path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue
