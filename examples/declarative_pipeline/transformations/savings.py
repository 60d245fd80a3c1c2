"""What the interest saves: what crosses from each source with it and without it."""

from __future__ import annotations

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from weather import FROST, Reading

from headwater.spark import declared, outcome

spark: Any = SparkSession.active()


@dp.materialized_view(comment="Per source: events that cross without the interest, with it, and what is saved.")
def savings() -> Any:
    readings = declared(spark.read.table("readings"), Reading, meta=("node", "source", "time"))
    judged = outcome(readings, FROST, name="passes")
    counted = judged.groupBy("event_node", "event_source").agg(
        F.count("*").alias("without"), F.count_if("passes").alias("with")
    )
    # Not withColumn: Spark would resolve the tables at once, and not see in which order to make them.
    return counted.select("*", F.round(100 - 100 * F.col("with") / F.col("without"), 1).alias("saved_percent"))
