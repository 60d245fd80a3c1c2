"""Where Spark looks for `format("headwater")`: it imports every package whose name starts with pyspark_."""

from headwater.spark.live.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
