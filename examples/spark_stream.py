"""From a channel through Spark into another channel: what is logged, what Spark reads, and what it publishes.

python examples/spark_stream.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from headwater import Event, Log, Node
from headwater.spark import session


class Reading(Event):
    sensor: str
    level: float


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="headwater-"))
    log, checkpoint = str(folder / "events"), str(folder / "checkpoint")

    with Node("hall", log=Log(log)) as node:
        channel = node.channel("lab.reading", Reading)
        for name in ("boiler", "pump"):
            source = channel.source(name)
            for at in range(100):
                source.publish(Reading(sensor=name, level=at / 100))
    print("200 readings are logged")

    spark = session("spark-stream", master="local[2]")
    readings = spark.read.format("headwater").option("log", log).option("channel", "lab.reading").load()
    print(f"a batch of all of them: {readings.count()}")

    def run(condition: str) -> None:
        """Everything there is, once; as a service, leave the trigger out."""
        loud = (
            spark.readStream.format("headwater")
            .option("log", log)
            .option("channel", "lab.reading")
            .option("where", condition)
            .option("maxEventsPerBatch", 60)
            .load()
        )
        query = (
            loud.selectExpr("sensor", "round(level * 100) AS percent")
            .writeStream.format("headwater")
            .option("log", log)
            .option("channel", "lab.alarm")
            .option("query", "alarms")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def alarms() -> int:
        published = spark.read.format("headwater").option("log", log).option("channel", "lab.alarm").load()
        return int(published.count())

    run("level > 0.9")
    print(f"published as alarms: {alarms()}")

    with Node("hall", log=Log(log)) as node:
        node.channel("lab.reading", Reading).source("boiler").publish(Reading(sensor="boiler", level=0.995))
    run("level > 0.9")
    print(f"after one more loud reading, and the same query again: {alarms()}")
    spark.stop()


if __name__ == "__main__":
    main()
