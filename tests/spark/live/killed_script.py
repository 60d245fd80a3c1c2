"""Run by `test_restart.py` in a process of its own, which is killed in the middle: a driver that copies a channel, and
one that watches doors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.errors import StreamingQueryException

from headwater.patterns.pattern import Pattern
from headwater.spark import match, session
from tests.spark.live.logs import CHANNEL

COPY, DOORS, ALARMS = "lab.copy", "lab.door", "lab.alarm"
AT_A_TIME = 10
ATTEMPTS = 5
DOOR = "door: i64, state: text"
# Nobody shut it: found when time has passed, at whatever node it might have been shut.
LEFT_OPEN = Pattern(
    "open: lab.door{state = 'open'}; without lab.door{state = 'shut'} within 4 minutes partition by door "
    "measures open.door as door",
    {DOORS: DOOR},
)


def copy(spark: Any, log: str, out: str, *, limit: int, **trigger: Any) -> Any:
    """The query: of the events that pass, each is published once more."""
    events = spark.readStream.format("headwater").options(
        log=log, channel=CHANNEL, where="level % 3 != 0", maxEventsPerBatch=str(limit)
    ).load()  # fmt: skip
    writer = events.select("level").writeStream.format("headwater").options(log=out, channel=COPY, query="copy")
    return writer.option("checkpointLocation", f"{out}/checkpoint").trigger(**trigger).start()


def watch(spark: Any, log: str, out: str, *, limit: int, **trigger: Any) -> Any:
    """The other: doors that are left open."""
    events = spark.readStream.format("headwater").options(
        log=log, channel=DOORS, promises="1 second", maxEventsPerBatch=str(limit)
    ).load()  # fmt: skip
    found = match(events, LEFT_OPEN, groups=2)
    writer = found.writeStream.format("headwater").options(log=out, channel=ALARMS, query="alarms")
    return writer.option("checkpointLocation", f"{out}/alarms").trigger(**trigger).start()


def insist(start: Callable[[], Any], running: Any = None) -> None:
    """Run a query to its end. On a machine that does much else, Python may take longer to start than Spark waits; then
    the query is started again, from its checkpoint."""
    for _ in range(ATTEMPTS):
        try:
            running = start() if running is None else running
            running.awaitTermination()
            return
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
            running = None
    raise AssertionError(f"Python did not start in {ATTEMPTS} attempts")


def main(log: str, out: str) -> None:
    spark = session("headwater-killed", master="local[1]", **{"spark.driver.memory": "1g"})
    # Few at a time: they are to be in the middle when they are killed.
    starts = [partial(run, spark, log, out, limit=AT_A_TIME, processingTime="0 seconds") for run in (watch, copy)]
    queries = [(start, start()) for start in starts]  # one after the other: Spark looks up a format once
    waiting = [threading.Thread(target=insist, args=query) for query in queries]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
