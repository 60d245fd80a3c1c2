"""Events into the staging folder, partitioned by day, with Spark's own Parquet writer, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.spark.ingest.lowering import ARRIVAL, BAD, BLANK, ELEMENTS, EMPTY, GOOD, HEADER, VERDICT, events, wanted
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.reader import AT, FILE, MASK, PIECE, ROWS
from headwater.store.log.layout import DAY_KEY

WRITERS = 64  # days open at a time in a task; beyond them Spark sorts
PAGE = 128 << 10  # bytes; every day that is open has a buffer for one
GROUP = 131_072  # rows
HALF = 32  # bits of one of two counts
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.maxConcurrentOutputFileWriters": str(WRITERS),
    "spark.sql.files.openCostInBytes": str(PIECE),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@contextmanager
def settings(spark: Any) -> Iterator[None]:
    """What the meaning of a mapping depends on, whatever the session has; it is put back afterwards."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    largest = spark.conf.get("spark.sql.files.maxPartitionBytes")
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        if _bytes(largest) < PIECE:
            spark.conf.set("spark.sql.files.maxPartitionBytes", str(PIECE))
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
        spark.conf.set("spark.sql.files.maxPartitionBytes", largest)


def _bytes(text: str) -> int:
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    text = text.strip().lower().removesuffix("b")
    return int(text[:-1]) * units[text[-1]] if text and text[-1] in units else int(text)


def metrics(mapping: IngestMapping) -> list[Any]:
    """What is counted of records while they pass."""
    from pyspark.sql import functions as F

    verdict = F.col(VERDICT)
    one, high = F.lit(1).cast("bigint"), F.lit(1 << HALF)
    # Two counts in a sum: every aggregate here takes its time for every record.
    made = [
        F.count(F.lit(1)).alias("all"),
        F.sum(F.when(verdict == BAD, one).when(verdict == BLANK, high)).alias("bad_blank"),
        F.sum(F.when(verdict == HEADER, one).when(verdict == EMPTY, high)).alias("header_empty"),
    ]
    if mapping.late.arrival is not None:
        latest = F.col("event_time") if "event_time" in _plain(mapping) else None
        for i, bound in enumerate(mapping.late.bounds):
            if latest is None:
                behind = F.exists(ELEMENTS, lambda e, b=bound: _behind(F.col(ARRIVAL), e["event_time"], b))
            else:
                behind = _behind(F.col(ARRIVAL), latest, bound)
            made.append(F.count_if((verdict == GOOD) & behind).alias(f"late{i}"))
    return made


def counted(metrics: Mapping[str, Any]) -> Counter[str]:
    """The counts of what was observed, by the names good, bad, blank, header, empty, late0 and so on."""
    found: Counter[str] = Counter({name: int(value or 0) for name, value in metrics.items() if name.startswith("late")})
    for names in ("bad_blank", "header_empty"):
        high, low = divmod(int(metrics[names] or 0), 1 << HALF)
        first, second = names.split("_")
        found[first], found[second] = low, high
    found["good"] = int(metrics["all"]) - sum(found[name] for name in ("bad", "blank", "header", "empty"))
    return found


def _behind(arrival: Any, time: Any, bound: float) -> Any:
    from pyspark.sql import functions as F

    return F.unix_micros(arrival) - F.unix_micros(time) > F.lit(int(bound * 1e6))


def _plain(mapping: IngestMapping) -> set[str]:
    return {each.name for each in wanted(mapping) if not each.elementary}


def numbered(mapping: IngestMapping, judged: Any, base: int, keep: tuple[str, ...] = ()) -> Any:
    """Events with all columns of the log, and the day; `keep` are further ones."""
    from pyspark.sql import functions as F

    frame = events(mapping, judged, (AT, *keep))
    at = F.col(AT)
    if mapping.explode is not None:
        at = F.shiftleft(F.shiftright(at, ROWS), ROWS).bitwiseOR(
            F.monotonically_increasing_id().bitwiseAND(F.lit(MASK))
        )
    return frame.select(
        F.lit(mapping.node).alias("event_node"),
        F.col("event_source"),
        (at + F.lit(base)).alias("event_seq"),
        F.col("event_time"),
        *(F.col(f"`{f.name}`") for f in mapping.record.fields),
        *keep,
        F.to_date("event_time").alias(DAY_KEY),
    )


def repeated(mapping: IngestMapping, numbered: Any) -> Any:
    """The events with `__again`: whether one like it came before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = mapping.duplicates.key or ("event_source", "event_time", *(f.name for f in mapping.record.fields))
    order = Window.partitionBy(*(F.col(f"`{name}`") for name in names)).orderBy("event_seq")
    return numbered.withColumn("__again", F.row_number().over(order) > 1)


def in_days(frame: Any) -> Any:
    """One day after the other in each task, so that one is open at a time: after a shuffle every task has all days."""
    return frame.sortWithinPartitions(DAY_KEY, "event_seq")


def write(frame: Any, path: Path) -> None:
    """Write events by day, in row groups of a size that Spark can skip by."""
    writer = frame.write.partitionBy(DAY_KEY).option("compression", "snappy").option("parquet.page.size", str(PAGE))
    writer.option("parquet.block.row.count.limit", str(GROUP)).option(
        "parquet.enable.dictionary#event_seq", "false"
    ).parquet(f"file://{path}")


__all__ = ["AT", "FILE", "in_days", "metrics", "numbered", "repeated", "settings", "write"]
