"""Readings from the files and from the nodes' log together, and what interests find in them.

Spark lets nobody look at the columns of a table in a query function, so they are declared.
"""

from __future__ import annotations

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from weather import FALLING, FROST, LOG, Reading

from headwater.spark import declared, interest_options, where

spark: Any = SparkSession.active()


@dp.table(comment="Readings that the nodes' sources published: each run takes those that are new.")
def live() -> Any:
    return spark.readStream.format("headwater").option("log", str(LOG)).option("channel", "weather.live").load()


@dp.materialized_view(comment="All readings.")
def readings() -> Any:
    columns = ("event_node", "event_source", "event_time", *(field.name for field in FROST.type.record.fields))
    return spark.read.table("archived").select(*columns).union(spark.read.table("live").select(*columns))


@dp.materialized_view(comment="What a sink with this interest receives: a filter, run as a Spark Column.")
def frost() -> Any:
    return where(declared(spark.read.table("readings"), Reading, meta=("node", "source", "time")), FROST)


@dp.materialized_view(comment="A transformation with state, run where the events are, each source in its order.")
def falls() -> Any:
    log = spark.read.format("headwater").option("log", str(LOG)).option("channel", "weather.live")
    return log.options(**interest_options(FALLING)).load()
