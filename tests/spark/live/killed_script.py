"""Run by `test_restart.py` in a process of its own, which is killed in the middle: a driver with two queries."""

from __future__ import annotations

import sys
from typing import Any

from headwater.spark import session
from tests.spark.live.logs import CHANNEL


def main(log: str, out: str, *, to_the_end: bool) -> None:
    spark = session("headwater-killed", master="local[2]", **{"spark.driver.memory": "1g"})

    def events() -> Any:
        return spark.readStream.format("headwater").options(
            log=log, channel=CHANNEL, where="level % 3 != 0", maxEventsPerBatch="40"
        ).load()  # fmt: skip

    def start(writer: Any, name: str) -> Any:
        writer = writer.option("checkpointLocation", f"{out}/checkpoint-{name}")
        # Slowly, at first: it is to be in the middle when it is killed.
        paced = writer.trigger(availableNow=True) if to_the_end else writer.trigger(processingTime="500 milliseconds")
        return paced.start()

    copies = events().select("level").writeStream.format("headwater").options(log=out, channel="lab.copy", query="copy")
    queries = [start(copies, "copies")]
    queries.append(start(events().writeStream.format("parquet").option("path", f"{out}/files"), "files"))
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], to_the_end=sys.argv[3] == "end")
