"""Run by `test_connect.py` in a process of its own: the data source through Spark Connect."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from headwater import event_type
from headwater.interest import as_event_type
from headwater.spark import session
from headwater.spark.live import register
from headwater.spark.log import events
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: i64").record)


def main(folder: Path) -> None:
    warnings.simplefilter("error")
    log = folder / "log"
    put(log, READING, [{"level": at} for at in range(10)])
    spark = session("headwater-connect-live", remote="local[2]", **{"spark.driver.memory": "1g"})
    assert "connect" in type(spark).__module__
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
    spark.stop()
    sys.stdout.write("agreed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
