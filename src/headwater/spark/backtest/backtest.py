"""Trying subscriptions on recorded events: `backtest(spark, events, subscriptions)`.

One pass over the data, however many subscriptions there are. Of a log the workers read the Parquet files themselves, so
nothing goes through the JVM; a DataFrame's batches come from Spark. With an interest that has state, each source's
events are first brought together and into order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from headwater.errors import ConfigError, ConfigProblem, ExecutionError, StoreError
from headwater.spark.backtest import worker
from headwater.spark.backtest.chunk import Chunk
from headwater.spark.backtest.judging import Judge, pack
from headwater.spark.backtest.report import Backtest
from headwater.spark.backtest.subscriptions import Subscription, Subscriptions, Wanted, checked, load, resolve
from headwater.spark.backtest.summing import report
from headwater.spark.backtest.tally import Tally
from headwater.spark.columns import bind_columns, bind_meta
from headwater.spark.frame import LOG_META, log_meta
from headwater.spark.schema import spark_schema, to_spark_arrow
from headwater.spark.sql import name as quoted
from headwater.store.log.layout import channels
from headwater.store.log.opening import Rested, Snapshot
from headwater.store.log.reading import ChannelReader
from headwater.store.log.schema import BYTES_RECORD
from headwater.types import EventType, event_type
from headwater.types.model import Field, Record

TASKS = 4  # for each core, so that the last one to end is not waited for long
LEAST = 1 << 17  # events of a task
MOST = 1 << 24
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
            job: _Job = _LogJob(spark, snapshot, kind, given, width)
            tally = job.run()
        where: str | None = events.channel
    else:
        if kind is None:
            raise _problem("type", "the event type of the DataFrame's rows", "none", "give type=, or type in the file")
        job, where = _FrameJob(spark, events, kind, given, width, meta), channel or given.channel
        tally = job.run()
    seconds = monotonic() - started
    return report(tally, job.wanted, channel=where, type=job.type.name, seconds=seconds, notes=tuple(job.notes))


def bucket_width(text: str) -> int | None:
    """Microseconds; 0 for "auto" and None for "none"."""
    if text in ("auto", "none"):
        return 0 if text == "auto" else None
    found = _WIDTH.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1]):
        raise _problem("bucket", "auto, none, or a length such as 15m, 1h or 1d", repr(text))
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
    if not Path(root).is_dir():
        raise StoreError(f"log {os.fspath(root)!r}: expected a folder with a log, found none; name another")
    found = channels(root)
    if len(found) != 1:
        raise _problem("channel", f"one of {', '.join(found) or 'none'}", "none", "name the channel")
    return found[0]


def _type(type: Any, given: Subscriptions) -> EventType | None:
    from headwater.interest import as_event_type

    return given.type if type is None else as_event_type(type)


def _problem(place: str, expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError([ConfigProblem(f"backtest: {place}", expected, found, hint)])


@dataclass
class _Plan:
    """What is sent to the workers."""

    package: bytes
    judge: Judge


class _Job:
    """Makes the interests, sends them to the workers, and adds up what comes back."""

    def __init__(self, spark: Any, type: EventType, given: Subscriptions, width: int | None) -> None:
        if not len(given):
            raise _problem("subscriptions", "at least one", "none")
        self.spark, self.type, self.width = spark, type, width
        self.wanted: list[Wanted] = resolve(given, type)
        self.notes: list[str] = []

    def run(self) -> Tally:
        raise AssertionError

    def plan(self, lacking: Iterable[str] = ()) -> _Plan:
        package = pack(self.wanted, self.type.record, lacking=lacking)
        return _Plan(package, Judge(package))

    def tally(self, plan: _Plan) -> Tally:
        return Tally(plan.judge.items, self.width)

    def collect(self, tally: Tally, frame: Any) -> Tally:
        for row in frame.collect():
            tally.absorb(bytes(row[0]))
        return tally

    def in_order(self, plan: _Plan, frame: Any) -> Any:
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


class _FrameJob(_Job):
    def __init__(
        self,
        spark: Any,
        frame: Any,
        type: EventType,
        given: Subscriptions,
        width: int | None,
        meta: Mapping[str, str] | None,
    ) -> None:
        super().__init__(spark, type, given, width)
        self.frame = frame
        taken = [field.name for field in type.record.fields if field.name in LOG_META.values()]
        if taken:
            raise ExecutionError(f"{type.name} has a field {taken[0]!r}, which is a column of logs; rename the field")
        self.meta = bind_meta(frame, log_meta(frame.columns) if meta is None else meta)

    def run(self) -> Tally:
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


class _LogJob(_Job):
    def __init__(
        self, spark: Any, snapshot: Snapshot, type: EventType | None, given: Subscriptions, width: int | None
    ) -> None:
        kind = type or snapshot.table.type or event_type(BYTES_RECORD)
        super().__init__(spark, kind, given, width)
        self.snapshot = snapshot
        self.rested = [part for part in snapshot.parts if isinstance(part, Rested)]

    def run(self) -> Tally:
        lacking, perhaps = self._lacking()
        if lacking:
            self.notes.append(f"required fields that some events lack are missing there: {', '.join(lacking)}")
        plan = self.plan((*lacking, *perhaps))
        tail = list(self._tail(plan.judge))
        if tail:
            count = sum(batch.num_rows for batch in tail)
            self.notes.append(f"{count:,} of the events were not at rest yet")
        if plan.judge.stateful:
            self.notes.append("interests with state: the events were brought into order per source")
            with _large_batches(self.spark):
                return self._in_order(plan, tail)
        tally = self.tally(plan)
        if tail:  # it is small: at most what one segment of each node has
            chunks = (Chunk.of(batch, plan.judge) for batch in tail)
            tally.absorb(worker.of_chunks(plan.judge, self.width, chunks))
        tasks = spread([(str(part.path), [g.rows for g in part.groups]) for part in self.rested], cores(self.spark))
        if tasks:
            function = _file_function(plan.package, self.width, tasks)
            ids = self.spark.range(0, len(tasks), 1, len(tasks))
            self.collect(tally, ids.mapInArrow(function, worker.RESULT))
        return tally

    def _lacking(self) -> tuple[list[str], list[str]]:
        """Required fields that are null, or not there, in some file, as footers say; and those of which a footer does
        not say, because their statistics are of what is within them."""
        required = [field.name for field in self.type.record.fields if not field.optional]
        found: set[str] = set()
        inner: set[str] = set()
        for part in self.rested:
            metadata = part.footer.metadata
            found.update(name for name in required if name not in part.schema.names)
            at = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
            inner.update(path.split(".")[0] for path in at if "." in path)
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                for name in required:
                    if name in at and name not in found:
                        statistics = group.column(at[name]).statistics
                        if statistics is None or not statistics.has_null_count or statistics.null_count:
                            found.add(name)
        table = self.snapshot.table
        for tail in self.snapshot.parts:
            if not tail.at_rest:  # it has no footer, and may be of an older type than the newest
                found.update(name for name in required if name not in table.schema.names)
                for tailing in tail.groups:
                    batch = tail.load(table, tailing.index, required)
                    found.update(name for name in batch.schema.names if batch.column(name).null_count)
        return [n for n in required if n in found], [n for n in required if n in inner and n not in found]

    def _tail(self, judge: Judge) -> Iterator[Any]:
        columns = [*LOG_META.values(), *judge.columns]
        for part in self.snapshot.parts:
            if not part.at_rest:
                for group in part.groups:
                    batch = part.load(self.snapshot.table, group.index, columns)
                    if batch.num_rows:
                        yield batch

    def _in_order(self, plan: _Plan, tail: Sequence[Any]) -> Tally:
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


def spread(files: Sequence[tuple[str, Sequence[int]]], cores: int) -> list[list[worker.Task]]:
    """The row groups of files (the rows of each), in order, as tasks of about equal numbers of rows."""
    total = sum(sum(groups) for _, groups in files)
    target = min(MOST, max(LEAST, -(-total // (cores * TASKS))))
    tasks: list[list[worker.Task]] = []
    here: list[worker.Task] = []
    rows = 0
    for path, groups in files:
        chosen: list[int] = []
        for number, count in enumerate(groups):
            if not count:
                continue
            if rows and rows + count // 2 > target:
                if chosen:
                    here.append(worker.Task(path, chosen))
                tasks.append(here)
                here, chosen, rows = [], [], 0
            chosen.append(number)
            rows += count
        if chosen:
            here.append(worker.Task(path, chosen))
    if here:
        tasks.append(here)
    return tasks


__all__ = ["backtest", "bucket_width", "cores", "spread"]
