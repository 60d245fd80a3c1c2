"""Raw files: what is good becomes events, in a table and in a log; what is not goes to the quarantine."""

from __future__ import annotations

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from weather import LOG, MAPPING, RAW

from headwater.spark.ingest import split

spark: Any = SparkSession.active()


@dp.temporary_view
def lines() -> Any:
    return spark.readStream.text(str(RAW)).selectExpr("value", "_metadata.file_name AS file")


@dp.table(comment="Records that could not be taken, each with its file, its text and the reason.")
def quarantine() -> Any:
    _, bad = split(spark.readStream.table("lines"), MAPPING, keep=("file",))
    return bad


@dp.table(comment="Readings of the files.")
def archived() -> Any:
    events, _ = split(spark.readStream.table("lines"), MAPPING)
    return events


# Publishing: each batch once, also if Spark repeats it. What reads this channel from the log sees new events.
dp.create_sink("archive", "headwater", {"log": str(LOG), "channel": MAPPING.channel, "query": "archive"})


@dp.append_flow(target="archive")
def publish() -> Any:
    return spark.readStream.table("archived")
