"""The data source through Spark Connect: part of `tests.spark.connect_script`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import event_type
from headwater.interest import as_event_type
from headwater.spark.live import register
from headwater.spark.log import events
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: i64").record)


def reads_streams_and_publishes(spark: Any, folder: Path) -> None:
    log = folder / "log"
    put(log, READING, [{"level": at} for at in range(10)])
    here = {"log": str(log), "channel": CHANNEL}
    assert spark.read.format("headwater").options(**here, where="level > 6").load().count() == 3
    register(spark)
    stream = spark.readStream.format("headwater").options(**here, where="level > 6", maxEventsPerBatch="9").load()
    query = (
        stream.selectExpr("level + 1 AS level")
        .writeStream.format("headwater")
        .options(log=str(log), channel="lab.loud", query="loud", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = events(spark, log, "lab.loud", tail=True)
    assert sorted(row.level for row in found.collect()) == [8, 9, 10]
