"""Trying subscriptions on recorded events: `backtest(spark, events, subscriptions)`.

One pass over the data, however many subscriptions there are. Of a log the workers read the Parquet files themselves, so
nothing goes through the JVM; a DataFrame's batches come from Spark. With an interest that has state, each source's
events are first brought together and into order. Without Spark, this process does for a log what the workers do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from headwater.errors import ExecutionError, StoreError
from headwater.late import pa
from headwater.spark.backtest import worker
from headwater.spark.backtest.job import Job, LogJob, Plan, problem
from headwater.spark.backtest.local import LocalLogJob
from headwater.spark.backtest.report import Backtest
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, checked, load
from headwater.spark.backtest.summary import report
from headwater.spark.backtest.tally import Tally
from headwater.spark.columns import bind_columns, bind_meta
from headwater.spark.log_columns import LOG_META, log_meta
from headwater.spark.schema import spark_schema, to_spark_arrow
from headwater.spark.sql_text import name as quoted
from headwater.store.log.layout import channels
from headwater.store.log.location import local_folder
from headwater.store.log.reader import ChannelReader
from headwater.store.log.snapshot import Snapshot
from headwater.types import EventType
from headwater.types.model import Field, Record

ROWS = 1 << 17  # of the batches that Spark hands over
_WIDTH = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def backtest(
    spark: Any,
    events: Any,
    subscriptions: str | os.PathLike[str] | Subscriptions | Iterable[Subscription],
    *,
    channel: str | None = None,
    type: Any = None,
    bucket: str = "auto",
    meta: Mapping[str, str] | None = None,
) -> Backtest:
    """What these subscriptions would have received of these events, and what would have crossed between nodes.

    `spark` is the session that does the work; with None this process does it, for a log, without Spark: the report
    is the same, and its `engine` says which it was.
    `events` is the folder of a log (with `channel`, where it has several and the subscriptions do not say), a
    `ChannelReader`, or a DataFrame (with `type`, where the subscriptions do not say it, and `meta` as for `where`).
    `subscriptions` is a file, or subscriptions made in code. `bucket` is how long the stretches of time are that
    the report has: "15m", "1h", "1d", "auto", or "none".
    """
    started = monotonic()
    width = bucket_width(bucket)
    given = _given(subscriptions)
    if isinstance(events, str | os.PathLike):
        events = ChannelReader(events, _channel(events, channel or given.channel))
    kind = _type(type, given)
    if isinstance(events, ChannelReader):
        with Snapshot(events.root, events.channel, nodes=events.nodes) as snapshot:
            job: Job
            if spark is None:
                job = LocalLogJob(events, snapshot, kind, given, width)
            else:
                job = _LogJob(spark, snapshot, kind, given, width)
            tally = job.run()
        where: str | None = events.channel
    else:
        if kind is None:
            raise problem("type", "the event type of the DataFrame's rows", "none", "give type=, or type in the file")
        if spark is None:
            spark = _session_of(events)
        job, where = _FrameJob(spark, events, kind, given, width, meta), channel or given.channel
        tally = job.run()
    seconds = monotonic() - started
    return report(
        tally,
        job.wanted,
        channel=where,
        type=job.type.name,
        seconds=seconds,
        engine=job.engine,
        notes=tuple(job.notes),
    )


def bucket_width(text: str) -> int | None:
    """Microseconds; 0 for "auto" and None for "none"."""
    if text in ("auto", "none"):
        return 0 if text == "auto" else None
    found = _WIDTH.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1]):
        raise problem("bucket", "auto, none, or a length such as 15m, 1h or 1d", repr(text))
    return int(found[1]) * _UNITS[found[2]]


def _given(subscriptions: Any) -> Subscriptions:
    if isinstance(subscriptions, Subscriptions):
        return subscriptions
    if isinstance(subscriptions, str | os.PathLike):
        return load(subscriptions)
    return checked(subscriptions)


def _channel(root: str | os.PathLike[str], named: str | None) -> str:
    if named is not None:
        return named
    if not local_folder(root).is_dir():
        raise StoreError(f"log {os.fspath(root)!r}: expected a folder with a log, found none; name another")
    found = channels(root)
    if len(found) != 1:
        raise problem("channel", f"one of {', '.join(found) or 'none'}", "none", "name the channel")
    return found[0]


def _session_of(frame: Any) -> Any:
    found = getattr(frame, "sparkSession", None)
    if found is None:
        expected = "the folder of a log, a ChannelReader, or a DataFrame of Spark"
        raise problem("events", expected, frame.__class__.__name__)
    return found


def _type(type: Any, given: Subscriptions) -> EventType | None:
    from headwater.interest import as_event_type

    return given.type if type is None else as_event_type(type)


class _OnSpark(Job):
    """What Spark's workers judge; `spark` is the session."""

    engine = "spark"
    spark: Any

    def collect(self, tally: Tally, frame: Any) -> Tally:
        for row in frame.collect():
            tally.absorb(bytes(row[0]))
        return tally

    def in_order(self, plan: Plan, frame: Any) -> Any:
        """A frame with the columns of a log: each source's rows in sequence order, in one task."""
        source = [column for column in (LOG_META["node"], LOG_META["source"]) if column in frame.columns]
        rows = frame.repartition(*source).sortWithinPartitions(*source, LOG_META["seq"])
        return rows.mapInArrow(_function(worker.of_sources, plan.package, self.width), worker.RESULT)


def _function(run: Callable[..., Any], package: bytes, width: int | None) -> Callable[[Any], Any]:
    def headwater_backtest(batches: Iterator[Any]) -> Iterator[Any]:
        yield from run(package, width, batches)

    return headwater_backtest


@contextmanager
def _large_batches(spark: Any) -> Iterator[None]:
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, str(ROWS))
    try:
        yield
    finally:
        spark.conf.set(key, before)


# ── a DataFrame ──


class _FrameJob(_OnSpark):
    def __init__(
        self,
        spark: Any,
        frame: Any,
        type: EventType,
        given: Subscriptions,
        width: int | None,
        meta: Mapping[str, str] | None,
    ) -> None:
        super().__init__(type, given, width)
        self.spark, self.frame = spark, frame
        taken = [field.name for field in type.record.fields if field.name in LOG_META.values()]
        if taken:
            raise ExecutionError(f"{type.name} has a field {taken[0]!r}, which is a column of logs; rename the field")
        self.meta = bind_meta(frame, log_meta(frame.columns) if meta is None else meta)

    def run(self) -> Tally:
        """Judge the rows of a DataFrame: in any order, or, with state, by source in the order of its events."""
        plan = self.plan()
        judge = plan.judge
        if judge.stateful:
            lacking = [which for which in ("source", "seq") if which not in self.meta]
            if lacking:
                raise ExecutionError(
                    "a subscription has state, which is kept per source in sequence order: expected meta columns for "
                    f"source and seq, found none for {' and '.join(lacking)}; give meta="
                )
        columns = bind_columns(self.frame, self.type.record, judge.columns)
        kept = self.meta if judge.needs_source else {w: c for w, c in self.meta.items() if w in ("node", "time")}
        picked = [f"{text} AS {quoted(LOG_META[which])}" for which, text in kept.items()]
        picked += [f"{text} AS {quoted(field)}" for field, text in columns.items()]
        rows = self.frame.selectExpr(*(picked or ["CAST(NULL AS INT) AS nothing"]))
        if "node" not in self.meta:
            self.notes.append("the nodes of sources are not known: all events count as of one")
        with _large_batches(self.spark):
            if judge.stateful:
                self.notes.append("interests with state: the events were brought into order per source")
                return self.collect(self.tally(plan), self.in_order(plan, rows))
            function = _function(worker.of_batches, plan.package, self.width)
            return self.collect(self.tally(plan), rows.mapInArrow(function, worker.RESULT))


# ── a log ──


class _LogJob(_OnSpark, LogJob):
    def __init__(
        self, spark: Any, snapshot: Snapshot, type: EventType | None, given: Subscriptions, width: int | None
    ) -> None:
        super().__init__(snapshot, type, given, width)
        self.spark = spark

    def judge_files(self, plan: Plan, tally: Tally) -> None:
        tasks = self.tasks(cores(self.spark))
        if tasks:
            function = _file_function(plan.package, self.width, tasks)
            ids = self.spark.range(0, len(tasks), 1, len(tasks))
            self.collect(tally, ids.mapInArrow(function, worker.RESULT))

    def judge_in_order(self, plan: Plan, tail: Sequence[Any]) -> Tally:
        with _large_batches(self.spark):
            return self._in_order(plan, tail)

    def _in_order(self, plan: Plan, tail: Sequence[Any]) -> Tally:
        """Judge a log by source, in the order of its events: what is at rest and the tail as one DataFrame."""
        fields = tuple(Field(f.name, f.type, True) for f in self.snapshot.table.fields.record.fields)
        of = {field.name: field for field in (*_KNOWN, *fields)}
        parts = []
        if self.rested:
            folder = str(self.snapshot.folder.path)
            names = [name for name in (*LOG_META.values(), *plan.judge.columns) if name in of]
            # The table's own schema: Spark does not merge those of files in which a field was narrower.
            schema = spark_schema(Record("Rested", tuple(of[name] for name in names)))
            reader = self.spark.read.option("basePath", folder).schema(schema)
            frame = reader.parquet(*[str(part.path) for part in self.rested])
            parts.append(frame.select(*[quoted(name) for name in names]))
        if tail:
            record = Record("Tail", tuple(of[name] for name in tail[0].schema.names))
            tables = [pa.Table.from_batches([to_spark_arrow(batch, record)]) for batch in tail]
            parts.append(self.spark.createDataFrame(pa.concat_tables(tables)))
        if not parts:
            return self.tally(plan)
        rows = parts[0]
        for more in parts[1:]:
            rows = rows.unionByName(more, allowMissingColumns=True)
        return self.collect(self.tally(plan), self.in_order(plan, rows))


def _known() -> tuple[Field, ...]:
    from headwater.ir.nodes import META_TYPES

    return tuple(Field(LOG_META[which], META_TYPES[which], True) for which in LOG_META)


_KNOWN = _known()


def _file_function(package: bytes, width: int | None, tasks: list[list[worker.Task]]) -> Callable[[Any], Any]:
    import msgspec

    packed = [msgspec.msgpack.encode(task) for task in tasks]

    def headwater_backtest(ids: Iterator[Any]) -> Iterator[Any]:
        yield from worker.of_files(package, width, packed, ids)

    return headwater_backtest


def cores(spark: Any) -> int:
    """How many tasks run at a time, as far as can be told."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so in more than one way
        return 8


__all__ = ["backtest", "bucket_width", "cores"]
