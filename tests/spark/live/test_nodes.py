"""The logs of running nodes: `connect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater import HeadwaterError, Node, event_type
from headwater.federation.logs.client import LogClient
from headwater.interest import as_event_type
from headwater.spark import spark_schema
from headwater.spark.live.source import HeadwaterSource
from tests.spark.live.logs import CHANNEL

READING = event_type(as_event_type("level: i64").record)


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node("hall", listen="tcp/127.0.0.1:0", log=tmp_path_factory.mktemp("log")) as node:
        channel = node.channel(CHANNEL, READING)
        for name in ("a", "b"):
            channel.source(name).publish_many([{"level": at} for at in range(1, 1001)])
        yield node


def source(node: Node, **options: Any) -> HeadwaterSource:
    return HeadwaterSource(CaseInsensitiveDict({"connect": node.endpoints[0], "channel": CHANNEL, **options}))


def rows(reader: Any, parts: Any) -> list[tuple[str, int]]:
    return [
        (name, level)
        for part in parts
        for batch in reader.read(part)
        for name, level in zip(batch.column("event_source").to_pylist(), batch.column("level").to_pylist(), strict=True)
    ]


def test_only_what_passes_leaves_the_nodes(hall: Node) -> None:
    made = source(hall, where="level % 100 = 0", maxEventsPerBatch="600")
    stream = made.streamReader(made.schema())
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(600))
    assert first["seqs"] == {"hall": {"a": 300, "b": 300}}
    client = LogClient.shared((hall.endpoints[0],), federation=None, security=None)
    before = client.counts
    end = stream.latestOffset(first, ReadAllAvailable())
    assert rows(stream, stream.partitions(first, end)) == [(s, at) for s in "ab" for at in range(400, 1001, 100)]
    assert client.counts.rows - before.rows == 14 and client.counts.evaluated - before.evaluated == 1400


def test_a_batch_with_state(hall: Node) -> None:
    made = source(hall, where="{ static int n = 0; n = n + 1; return n % 250 == 0; }")
    reader = made.reader(made.schema())
    assert rows(reader, reader.partitions()) == [(s, at) for s in "ab" for at in (250, 500, 750, 1000)]


def test_a_channel_that_nobody_has(hall: Node) -> None:
    with pytest.raises(HeadwaterError, match=r"did you mean 'lab.reading'"):
        source(hall, channel="lab.raeding").schema()


def test_batches_are_published_to_sinks_once(hall: Node, tmp_path: Path) -> None:
    heard: list[int] = []
    channel = hall.channel("lab.alarm", READING)
    channel.subscribe(lambda event: heard.append(event.level))
    wanted = source(hall, channel="lab.alarm", query="alarms", staging=str(tmp_path), type="level: i64")
    for batch in (0, 0, 1):
        writer = wanted.streamWriter(spark_schema(READING.record), False)
        staged = writer.write(iter([pa.record_batch({"level": pa.array([batch, 10 + batch], pa.int64())})]))
        writer.commit([staged], batch)
    assert hall.until(lambda: len(heard) >= 4, 10)
    assert heard == [0, 10, 1, 11]


def test_spark_asks_the_nodes(spark: Any, hall: Node) -> None:
    frame = (
        spark.read.format("headwater").options(connect=hall.endpoints[0], channel=CHANNEL, where="level > 998").load()
    )
    assert sorted(row.level for row in frame.collect()) == [999, 999, 1000, 1000]
