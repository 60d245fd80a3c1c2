"""The data source "headwater": channels as batch and streaming DataFrames, and DataFrames published to channels.

    spark.read.format("headwater").option("log", "events").option("channel", "ie.tcd.sighting").load()
    spark.readStream.format("headwater")...load()
    frame.writeStream.format("headwater")...start()

Spark finds the format by itself where Headwater is installed; `register(spark)` registers it by hand.
"""

from headwater.spark.live.packing import interest_options
from headwater.spark.live.register import register

__all__ = ["interest_options", "register"]
