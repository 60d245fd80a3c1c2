"""Run by `test_cluster.py` in a process of its own, against the master it is told: the whole pipeline, end to end."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater import Interest
from headwater.spark import derive, events, session, where
from headwater.spark.backtest import Subscription, backtest
from headwater.spark.ingest import IngestMapping, ingest
from headwater.store.log import ChannelReader

CHANNEL = "lab.reading"
LINES = 3000
EXECUTORS = 2
MAPPING = {
    "format": "csv",
    "channel": CHANNEL,
    "type": {"name": "lab.Reading", "fields": "sensor: text, level: f64, zone: i32"},
    "node": "plant",
    "time": {"from": "at", "format": "epoch s"},
    "source": {"from": "sensor"},
}


def raw(folder: Path) -> int:
    """Files with a bad record in every hundred; how many records are good."""
    folder.mkdir()
    for number in range(3):
        with (folder / f"part-{number}.csv").open("w") as file:
            file.write("sensor,level,zone,at\n")
            for line in range(LINES):
                level = "?" if line % 100 == 7 else f"{line % 250 / 250}"
                file.write(f"s{line % 4},{level},{line % 3},{1_700_000_000 + line * 3 + number}\n")
    return 3 * (LINES - LINES // 100)


def main(master: str, folder: Path) -> None:
    # Two cores have no use for Spark's two hundred partitions, of which most would be empty.
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors, before anything runs
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.cores.max": "2",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    spark = session("headwater-cluster", master, **conf)
    good = raw(folder / "raw")
    log = folder / "events"
    report = ingest(spark, IngestMapping.of(**MAPPING), [folder / "raw"], log)
    assert (report.logged, report.quarantined) == (good, 3 * LINES - good), report
    bad = spark.read.parquet(str(log / CHANNEL / "_quarantine")).collect()
    assert len(bad) == 3 * LINES - good and all("level" in row.reason for row in bad)

    reader = ChannelReader(log, CHANNEL)
    rows = [row for batch in reader.read() for row in batch.to_pylist()]
    frame = events(spark, log, CHANNEL)
    loud = Interest("level > 0.9 and zone = 1", reader.type)
    expected = sum(row["level"] > 0.9 and row["zone"] == 1 for row in rows)
    assert where(frame, loud).count() == expected

    # An interest with state and output runs in the workers' Python, each source in its order.
    third = Interest(
        "{ static int n = 0; n = n + 1; output.level = input.level; output.n = n; return n % 3 == 0; }",
        reader.type,
        output="level: f64, n: i64",
    )
    sizes = {span.source: span.events for span in reader.sources()}
    assert derive(frame, third).count() == sum(size // 3 for size in sizes.values())

    found = backtest(
        spark,
        log,
        [Subscription(name="loud", where=loud), Subscription(name="all"), Subscription(name="third", where=third)],
        channel=CHANNEL,
    )
    counts = {row.name: row.events for row in found.subscriptions}
    assert counts == {"loud": expected, "all": good, "third": sum(size // 3 for size in sizes.values())}, counts

    live = (
        spark.read.format("headwater").options(log=str(log), channel=CHANNEL, where="level > 0.9 and zone = 1").load()
    )
    assert live.count() == expected
    there = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    assert there == EXECUTORS + 1, there  # and the driver
    spark.stop()
    sys.stdout.write(f"{good} logged, {expected} loud, on the cluster\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
