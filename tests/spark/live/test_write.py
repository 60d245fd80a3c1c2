"""`write` and `writeStream` to a channel, and the log as a DataFrame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.datasource import CaseInsensitiveDict

from headwater import HeadwaterError, event_type
from headwater.errors import EvolutionError
from headwater.interest import as_event_type
from headwater.spark import spark_schema
from headwater.spark.live.source import HeadwaterSource
from headwater.spark.log import events
from headwater.store.log import ChannelLog, Log
from headwater.store.log.log_folder import LogFiles
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: i64").record)


def levels(root: Path, channel: str) -> dict[str, list[int]]:
    """What the log has, by source."""
    log = LogFiles(root)
    return {
        span.source: [
            level
            for batch in log.read(channel, span.node, span.source, 0, None)
            for level in batch.column("level").to_pylist()
        ]
        for span in log.sources(channel)
    }


def sink(root: Path, schema: Any = None, *, streaming: bool = True, **options: Any) -> Any:
    source = HeadwaterSource(CaseInsensitiveDict({"log": str(root), "channel": CHANNEL, **options}))
    schema = schema if schema is not None else spark_schema(READING.record)
    return source.streamWriter(schema, False) if streaming else source.writer(schema, False)


def rows(*found: int) -> Any:
    return iter([pa.record_batch({"level": pa.array(found, pa.int64())})])


def checkpoint(path: Path, id: str) -> str:
    path.mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": id}))
    return str(path)


def test_a_batch_is_published_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    writer = sink(log, query="savings", checkpointLocation=checkpoint(tmp_path / "c1", "0123456789"))
    writer.commit([writer.write(rows(1, 2)), writer.write(rows()), writer.write(rows(3))], 0)
    again = sink(log, query="savings", checkpointLocation=str(tmp_path / "c1"))
    again.commit([again.write(rows(1, 2, 3))], 0)
    again.commit([again.write(rows(4)), None], 1)
    assert levels(log, CHANNEL) == {"spark-savings-01234567": [1, 2, 3, 4]}
    # Another checkpoint counts from 0 again, and is another query.
    other = sink(log, query="savings", checkpointLocation=checkpoint(tmp_path / "c2", "abcdefghij"))
    other.commit([other.write(rows(9))], 0)
    assert levels(log, CHANNEL)["spark-savings-abcdefgh"] == [9]
    assert not list(log.glob(".spark/**/*.arrow"))


def test_what_was_staged_for_nothing_is_removed(tmp_path: Path) -> None:
    writer = sink(tmp_path, query="q")
    staged = writer.write(rows(1))
    assert Path(staged.path).exists()
    writer.abort([staged, None], 0)
    assert not Path(staged.path).exists()


def test_a_batch_write_leaves_nothing_behind_and_is_at_rest(tmp_path: Path) -> None:
    for numbers in ((1, 2), ()):
        writer = sink(tmp_path, streaming=False)
        writer.commit([writer.write(rows(*numbers)), None])
    writer = sink(tmp_path, streaming=False)
    writer.abort([writer.write(rows(3)), None])
    assert list(levels(tmp_path, CHANNEL).values()) == [[1, 2]]
    assert not [path for name in (".spark", ".publishing") for path in tmp_path.glob(f"{name}/**/*") if path.is_file()]
    (rested,) = (tmp_path / CHANNEL).glob("event_day=*/*.parquet")
    assert pq.read_metadata(rested).num_rows == 2


def test_columns_that_do_not_fit_the_channel_are_told_on_the_driver(tmp_path: Path) -> None:
    put(tmp_path, READING, [{"level": 1}])
    for wrong in (T.StructType().add("level", "string"), T.StructType().add("lvl", "long")):
        with pytest.raises(EvolutionError, match="do not fit the event type"):
            sink(tmp_path, wrong, query="q")


@pytest.mark.parametrize(
    "options, says",
    [
        ({}, "option query: expected a name for this query"),
        ({"where": "level > 1"}, "option where: expected an option of a stream's sink"),
        ({"log": None, "connect": "tcp/localhost:1"}, "option staging: expected a folder that driver and executors"),
    ],
)
def test_wrong_options_of_a_sink(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    given = {"log": str(tmp_path), "channel": CHANNEL, **options}
    source = HeadwaterSource(CaseInsensitiveDict({k: v for k, v in given.items() if v is not None}))
    with pytest.raises(HeadwaterError) as caught:
        source.streamWriter(spark_schema(READING.record), False)
    assert says in str(caught.value)


def test_a_stream_from_channel_to_channel(spark: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    put(log, READING, [{"level": at} for at in range(1, 21)])

    def run() -> None:
        loud = spark.readStream.format("headwater").options(
            log=str(log), channel=CHANNEL, where="level > 5", maxEventsPerBatch="12"
        ).load()  # fmt: skip
        query = (
            loud.selectExpr("event_source AS of", "level * 10 AS level")
            .writeStream.format("headwater")
            .options(log=str(log), channel="lab.loud", query="loud", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    put(log, READING, [{"level": 21}], seqs=[21], segment=2)
    run()
    ((name, found),) = levels(log, "lab.loud").items()
    assert name.startswith("spark-loud-") and found == [at * 10 for at in range(6, 22)]


def test_a_batch_write(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(5).selectExpr("id AS level")
    for _ in range(2):
        frame.write.format("headwater").mode("append").options(log=str(tmp_path), channel=CHANNEL, query="q").save()
    assert [sorted(found) for found in levels(tmp_path, CHANNEL).values()] == [sorted([*range(5), *range(5)])]
    with pytest.raises(PySparkException, match="what was published stays published"):
        frame.write.format("headwater").mode("overwrite").options(log=str(tmp_path), channel=CHANNEL).save()


def test_the_log_as_a_frame_with_and_without_its_tail(spark: Any, tmp_path: Path) -> None:
    log = ChannelLog.open(Log(tmp_path), CHANNEL, "hall", READING)
    try:
        day = 86_400_000_000
        log.append_rows("a", [1, 2], [20_000 * day - 1, 20_000 * day], READING.to_arrow([{"level": 1}, {"level": 2}]))
        log.roll(wait=True)
        log.append_rows("a", [7], [20_001 * day], READING.to_arrow([{"level": 3}]))
        log.append_rows("b", [1], [-1], READING.to_arrow([{"level": 4}]))
        rested, all = events(spark, tmp_path, CHANNEL), events(spark, tmp_path, CHANNEL, tail=True)
        log.roll(wait=True)  # what comes to rest meanwhile is there once
    finally:
        log.close()
    assert sorted(row.level for row in rested.collect()) == [1, 2]
    assert sorted(rested.columns) == sorted(all.columns)
    found = {row.level: (row.event_source, row.event_seq, str(row.event_day)) for row in all.collect()}
    assert found == {
        1: ("a", 1, "2024-10-03"),
        2: ("a", 2, "2024-10-04"),
        3: ("a", 7, "2024-10-05"),
        4: ("b", 1, "1969-12-31"),
    }
