"""`write` and `writeStream`: tasks stage Arrow files, and the driver publishes a batch when it is complete."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from headwater.errors import ChannelError, ConfigError, ConfigProblem, StoreError
from headwater.interest import as_event_type
from headwater.late import pa
from headwater.spark.live.options import WriteOptions
from headwater.spark.live.places import RAW, open_place
from headwater.spark.live.publisher import Publisher, publisher_name
from headwater.spark.live.ranges import patiently
from headwater.spark.live.row_shape import NAMES, arrow_of
from headwater.spark.live.staging import Staged, discard, stage, staged_batches, sweep
from headwater.spark.schema import from_spark_arrow
from headwater.store.log.location import local_folder
from headwater.store.log.settings import Log
from headwater.types import EventType, event_type
from headwater.types.model import Record


class _Writing:
    """What a batch write and a stream's sink have in common."""

    def __init__(self, options: WriteOptions, schema: Any, query: str, *, once: bool = False) -> None:
        """`once`: nobody will write under this name again, so nothing of it is kept but what was published."""
        self.options, self.query, self.once = options, query, once
        self.record, self.typed = _record(options, schema)
        self.staging = str(_staging(options) / publisher_name(query))
        # Columns that do not fit are reported here, on the driver, before a task starts.
        wanted = arrow_of(schema)
        empty = pa.Table.from_batches([], schema=wanted).select([n for n in wanted.names if n not in NAMES])
        from_spark_arrow(empty, self.record)

    def publish(self, messages: Sequence[Staged | None], batch: int | None) -> None:
        """Publish what the tasks have staged; with a number, nothing if it was published before."""
        staged = [message for message in messages if message is not None and message.path is not None]
        rows = sum(message.rows for message in staged)
        files = [message.path for message in staged if message.path is not None]
        place = self.options.place
        with Publisher(
            self.options.channel,
            query=self.query,
            type=event_type(self.record) if self.typed else bytes,
            log=_log(place.log, streaming=batch is not None) if place.log is not None else None,
            journal=Path(self.staging) / "journal" if place.log is None or self.once else None,
            connect=place.connect or None,
            federation=place.federation,
            security=place.security,
        ) as publisher:
            if batch is not None:
                publisher.publish(batch, staged_batches(files))
            else:
                # Another write of this name may have taken a later number meanwhile: then this one was not published.
                done = 0
                while done < rows:
                    found = publisher.publish(time.time_ns(), staged_batches(files))
                    done = found.rows + found.before
                log = publisher.node._logs.known(self.options.channel) if publisher.node._logs is not None else None
                if log is not None:  # perhaps nobody opens it again, so it comes to rest now
                    log.roll(wait=True)
        discard(files)
        if self.once:
            self.clear()
        sweep(Path(self.staging))

    def clear(self) -> None:
        """Leave nothing behind of a write that is over."""
        shutil.rmtree(self.staging, ignore_errors=True)


class HeadwaterWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`frame.write`: one batch, published at the end."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self.writing = _Writing(options, schema, options.query or uuid4().hex, once=options.query is None)

    def write(self, iterator: Iterator[Any]) -> Staged:
        return stage(Path(self.writing.staging), iterator, self.writing.record)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        self.writing.publish(messages, None)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        discard(message.path for message in messages if message is not None)
        if self.writing.once:
            self.writing.clear()


class HeadwaterStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`frame.writeStream`: a batch is published when Spark commits it, and only once if Spark repeats it."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        found = _query_id(options)
        if found is None and options.query is None:
            problem = ConfigProblem(
                "option query",
                "a name for this query, by which its batches are known after a restart",
                "none, and no checkpointLocation on a local file system",
                'add .option("query", "savings"); after a checkpoint was deleted, give another name',
            )
            raise ConfigError([problem])
        # A new checkpoint counts its batches from 0 again: they must not be taken for those of the old one.
        parts = [options.query, found if options.query is None or found is None else found[:8]]
        self.writing = _Writing(options, schema, "-".join(part for part in parts if part is not None))

    def write(self, iterator: Iterator[Any]) -> Staged:
        return stage(Path(self.writing.staging), iterator, self.writing.record)

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:
        self.writing.publish(messages, batchId)

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:
        discard(message.path for message in messages if message is not None)


def _log(folder: str, *, streaming: bool) -> Log:
    """A stream's batches are small and follow each other: each goes on with the tail of the one before."""
    return Log(folder, sync="publish", rest_seconds=0.0) if streaming else Log(folder, sync="publish")


def _staging(options: WriteOptions) -> Path:
    if options.staging is not None:
        return Path(options.staging)
    if options.place.log is not None:
        return Path(options.place.log) / ".spark" / options.channel
    assert options.checkpoint is not None
    return local_folder(options.checkpoint) / "headwater-staging"


def _query_id(options: WriteOptions) -> str | None:
    """The id that Spark gave a query, and keeps in its checkpoint: a new checkpoint counts its batches anew."""
    if options.checkpoint is None:
        return None
    try:
        return str(json.loads((local_folder(options.checkpoint) / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, StoreError):
        return None


def _record(options: WriteOptions, schema: Any) -> tuple[Record, bool]:
    """The channel's record and whether it has a type: as declared, as it is already, or as the columns say."""
    if options.type is not None:
        return as_event_type(options.type).record, True
    known = _known_type(options)
    if known is not None:
        return known[0].record, known[1]
    arrow = arrow_of(schema)
    fields = pa.schema([arrow.field(n) for n in arrow.names if n not in NAMES])
    return event_type(fields, name=options.channel).record, True


def _known_type(options: WriteOptions) -> tuple[EventType, bool] | None:
    """The type of a channel that there is already; None if there is none."""
    place, channel = options.place, options.channel
    if place.log is not None:
        from headwater.store.log.reader import channels

        root = Path(place.log)
        if not root.is_dir() or channel not in channels(root):
            return None
    else:
        try:
            patiently(lambda: open_place(place).sources(channel))
        except ChannelError:
            problem = ConfigProblem(
                "option type",
                "the type of the channel's events",
                f"none, and no node that has a log of {channel}",
                'declare it: .option("type", "level: f64, network: text")',
            )
            raise ConfigError([problem]) from None
    found = patiently(lambda: open_place(place).type(channel))
    return (found, True) if found is not None else (RAW, False)
