"""A live stream into Spark with an interest of 1%: what leaves the node, against the same without an interest."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater import Log, Node
from headwater.interest import as_event_type
from headwater_studies.harness.benchmark import Report

TYPE = as_event_type("badge: u32, station: u32, level: f64, seen: timestamp")
CHANNEL = "bench.sighting"
EVENTS, SOURCES, BATCH = 1_000_000, 4, 10_000


def _serve(folder: str) -> None:
    """A node with a log, in a process of its own, until its input ends; then it says what it has sent."""
    random = np.random.default_rng(3)
    with Node("bench", listen="tcp/127.0.0.1:0", log=Log(folder, sync="roll")) as node:
        channel = node.channel(CHANNEL, TYPE)
        for number in range(SOURCES):
            source = channel.source(f"station-{number}")
            for start in range(0, EVENTS // SOURCES, BATCH):
                columns = [
                    pa.array(random.integers(0, 162, BATCH), pa.uint32()),
                    pa.array(np.full(BATCH, number), pa.uint32()),
                    pa.array(random.random(BATCH)),
                    pa.array(np.arange(start, start + BATCH), pa.timestamp("us", "UTC")),
                ]
                source.publish_many(pa.RecordBatch.from_arrays(columns, schema=TYPE.schema))
        print(node.endpoints[0], flush=True)
        for _ in sys.stdin:
            reads = node.log_reads
            print(json.dumps([reads.evaluated, reads.rows, reads.bytes]), flush=True)


def _read(spark: Any, endpoint: str, where: str | None, folder: Path) -> int:
    stream = spark.readStream.format("headwater").option("connect", endpoint).option("channel", CHANNEL)
    if where is not None:
        stream = stream.option("where", where)
    rows: list[int] = []
    query = (
        stream.load()
        .writeStream.foreachBatch(lambda frame, _: rows.append(frame.count()))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(rows)


def bench_live(report: Report, spark: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", str(Path(folder) / "log")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        try:
            endpoint = process.stdout.readline().strip()

            def sent() -> tuple[int, int, int]:
                process.stdin.write("sent\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                evaluated, rows, size = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                return evaluated, rows, size

            some = _read(spark, endpoint, "level < 0.01", Path(folder) / "some")
            _, rows, size = sent()
            everything = _read(spark, endpoint, None, Path(folder) / "all")
            _, all_rows, all_size = sent()
        finally:
            process.stdin.close()
            process.wait()
    assert everything == EVENTS and some == rows, (everything, some, rows)
    share = rows / (all_rows - rows)
    note = f"{some:,} of {EVENTS:,} events"
    report.add("stream into Spark, 1% interest: rows that leave the node", rows, all_rows - rows, ratio=share, unit="",
               reach="at most 2%", ok=share <= 0.02, note=note)  # fmt: skip
    share = size / (all_size - size)
    report.add("  bytes that leave the node", size, all_size - size, ratio=share, unit="B", reach="at most 2%",
               ok=share <= 0.02, note="a ratio below 1 is better here")  # fmt: skip


if __name__ == "__main__":
    _serve(sys.argv[2])
