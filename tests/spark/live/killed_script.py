"""Run by `test_restart.py` in a process of its own, which is killed in the middle: a driver that copies a channel."""

from __future__ import annotations

import sys
from typing import Any

from headwater.spark import session
from tests.spark.live.logs import CHANNEL

COPY = "lab.copy"
AT_A_TIME = 10


def copy(spark: Any, log: str, out: str, *, limit: int, **trigger: Any) -> Any:
    """The query: of the events that pass, each is published once more."""
    events = spark.readStream.format("headwater").options(
        log=log, channel=CHANNEL, where="level % 3 != 0", maxEventsPerBatch=str(limit)
    ).load()  # fmt: skip
    writer = events.select("level").writeStream.format("headwater").options(log=out, channel=COPY, query="copy")
    return writer.option("checkpointLocation", f"{out}/checkpoint").trigger(**trigger).start()


def main(log: str, out: str) -> None:
    spark = session("headwater-killed", master="local[1]", **{"spark.driver.memory": "1g"})
    # Few at a time: it is to be in the middle when it is killed.
    copy(spark, log, out, limit=AT_A_TIME, processingTime="0 seconds").awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
