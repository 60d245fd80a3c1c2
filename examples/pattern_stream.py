"""A pattern over a stream on Spark: doors that were opened and not shut, found although nothing more happened.

python examples/pattern_stream.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headwater import Event, Log, Node
from headwater.patterns import Pattern
from headwater.spark import match, session

LEFT_OPEN = """
    opened: hall.door{state = 'open'}; without hall.door{state = 'shut'}
    within 200 ms partition by door measures opened.door as door
"""


class Door(Event):
    door: str
    state: str


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="headwater-"))
    log = str(folder / "events")

    with Node("hall", log=Log(log)) as node:
        channel = node.channel("hall.door", Door)
        one, other = channel.source("reader-1"), channel.source("reader-2")
        one.publish(Door(door="lab", state="open"))
        one.publish(Door(door="attic", state="open"))
        other.publish(Door(door="lab", state="shut"))

    spark = session("pattern-stream", master="local[2]")
    pattern = Pattern(LEFT_OPEN, {"hall.door": Door})
    doors = (
        spark.readStream.format("headwater")
        .option("log", log)
        .option("channel", "hall.door")
        .option("promises", "100 ms")  # so long after it was published, an event is in the log
        .load()
    )
    query = (
        match(doors, pattern, groups=1)
        .writeStream.format("headwater")
        .option("log", log)
        .option("channel", "hall.alarm")
        .option("query", "left-open")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)  # all that there is, once; as a service, leave it out
        .start()
    )
    query.awaitTermination()
    alarms = spark.read.format("headwater").option("log", log).option("channel", "hall.alarm").load().collect()
    print(f"left open: {', '.join(alarm.door for alarm in alarms)}")

    again = match(spark.read.format("headwater").option("log", log).option("channel", "hall.door").load(), pattern)
    same = {bytes(row.match.identity) for row in again.collect()} == {bytes(row.match.identity) for row in alarms}
    print(f"the same matches as over the log at rest: {same}")
    spark.stop()


if __name__ == "__main__":
    main()
