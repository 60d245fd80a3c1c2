"""A channel's log as a DataFrame: what is at rest, read by Spark itself, and the tail through the data source."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from headwater.errors import ChannelError
from headwater.spark.log_columns import LOG_META

_DAY = f"date_from_unix_date(cast((us - pmod(us, {86_400_000_000})) div {86_400_000_000} as int))"


def events(spark: Any, log: str | os.PathLike[str], channel: str, *, tail: bool = False) -> Any:
    """The DataFrame of a channel's log: event_node, event_source, event_seq, event_time, the fields, and event_day.

    Without `tail` it is `spark.read.parquet` of what is at rest. With `tail`, what waits in write-ahead files is there
    too; the files are those of this moment, so use it before they are compacted or removed. For interests:
    `where(events(...), interest, meta=LOG_META)`.
    """
    from headwater.store.log.location import local_folder
    from headwater.store.log.reader import channels

    root = local_folder(log)
    if channel not in (known := channels(root)):
        raise ChannelError(f"log {os.fspath(log)!r}: expected a channel of it, found {channel!r}; it has {known}")
    return _with_tail(spark, root, channel) if tail else spark.read.parquet(str(root / _folder(root, channel)))


def _folder(root: Path, channel: str) -> Path:
    from headwater.store.log.layout import ChannelFolder

    return ChannelFolder.of(root, channel).path.relative_to(root)


def _with_tail(spark: Any, root: Path, channel: str) -> Any:
    """What is at rest by Spark's own reader, and what is not yet by ours, both as of one moment."""
    from headwater.store.log.snapshot import Snapshot

    folder = root / _folder(root, channel)
    paths: list[str] = []
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    with Snapshot(root, channel) as snapshot:  # one moment: what comes to rest later is read as the tail it is now
        for part in snapshot.parts:
            if part.at_rest:
                paths.append(str(part.path))
            for (node, source), (_, last, _) in part.spans().items():
                for bounds in (starts, ends) if part.at_rest else (ends,):
                    known = bounds.setdefault(node, {})
                    known[source] = max(last, known.get(source, 0))
    waiting = spark.read.format("headwater").options(
        log=str(root),
        channel=channel,
        startingOffsets=json.dumps(starts),
        endingOffsets=json.dumps(ends),
    ).load()  # fmt: skip
    waiting = waiting.selectExpr("*", "unix_micros(event_time) AS us").selectExpr(
        "* EXCEPT (us)", f"{_DAY} AS event_day"
    )
    if not paths:
        return waiting
    rested = spark.read.option("basePath", str(folder)).schema(waiting.schema).parquet(*paths)
    return rested.unionByName(waiting)


__all__ = ["LOG_META", "events"]
