"""`spark.readStream.format("headwater")`: offsets, admission, restarts, retention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater import event_type
from headwater.errors import EvolutionError, ExecutionError, StoreError
from headwater.interest import as_event_type
from headwater.spark.live.offsets import Offset, shares
from headwater.spark.live.source import HeadwaterSource
from headwater.spark.live.stream import HeadwaterStreamReader
from tests.effort import examples
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: i64").record)


def events(*levels: int) -> list[dict[str, int]]:
    return [{"level": level} for level in levels]


def reader(root: Path, **options: Any) -> HeadwaterStreamReader:
    """What Spark makes on the driver of a streaming query."""
    source = HeadwaterSource(CaseInsensitiveDict({"log": str(root), "channel": CHANNEL, **options}))
    found = source.streamReader(source.schema())
    assert isinstance(found, HeadwaterStreamReader)
    return found


def rows(reader: HeadwaterStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """What the tasks of a batch read."""
    found: list[tuple[str, int]] = []
    for part in reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))):
        for batch in reader.read(part):
            found += zip(batch.column("event_source").to_pylist(), batch.column("event_seq").to_pylist(), strict=True)
    return found


def seqs(offset: dict[str, Any]) -> dict[str, Any]:
    return dict(offset["seqs"].get("hall", {}))


# ── offsets ──


@given(
    st.integers(1, 50),
    st.dictionaries(st.tuples(st.just("n"), st.text("abcdef", max_size=3)), st.integers(0, 40), max_size=8),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=examples(200))
def test_shares_are_fair(limit: int, waiting: dict[tuple[str, str], int], turn: int) -> None:
    found = shares(limit, waiting, turn=turn)
    assert sum(found.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= count <= waiting[key] for key, count in found.items())
    short = [count for key, count in found.items() if count < waiting[key]]
    assert not short or max(found.values()) <= min(short) + 1


def test_offsets_survive_json() -> None:
    offset = Offset({("n", "a"): 3, ("m", "b"): 4}, {("n", "a"): 0}, {("m", "b"): 9}, {("n", "a"): [1, 2]}, "xyz", 7)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    with pytest.raises(StoreError, match="expected an offset of headwater"):
        Offset.from_json({"partition-1": 7})


def test_the_limit_is_shared_and_gaps_do_not_count(tmp_path: Path) -> None:
    put(tmp_path, READING, events(*range(100)), source="a")
    put(tmp_path, READING, events(*range(10)), source="b", seqs=range(7, 1007, 100))
    stream = reader(tmp_path, maxEventsPerBatch="12")
    assert stream.getDefaultReadLimit() == ReadMaxRows(12)
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(12))
    assert seqs(first) == {"a": 6, "b": 507}
    assert rows(stream, start, first) == [("a", at) for at in range(1, 7)] + [("b", at) for at in range(7, 607, 100)]
    second = stream.latestOffset(first, ReadMaxRows(12))
    assert seqs(second) == {"a": 12, "b": 907}
    third = stream.latestOffset(second, ReadAllAvailable())
    assert seqs(third) == {"a": 100, "b": 907}
    assert stream.latestOffset(third, ReadMaxRows(12)) == third


@pytest.mark.parametrize("step", [1, 2, 5, 10])
def test_every_source_has_its_turn(tmp_path: Path, step: int) -> None:
    """Whatever gaps their numbers have, and however much one of them has."""
    numbers = range(step, 9 * step, step)
    for source in "abcde":
        put(tmp_path, READING, events(*numbers), source=source, seqs=numbers)
    stream = reader(tmp_path, maxEventsPerBatch="2")
    offset, seen = stream.initialOffset(), []
    for _ in range(5):
        end = stream.latestOffset(offset, ReadMaxRows(2))
        seen += rows(stream, offset, end)
        offset = json.loads(json.dumps(end))
    assert sorted(seen) == [(source, seq) for source in "abcde" for seq in numbers[:2]]


def test_a_source_that_gets_all_it_has_does_not_take_the_turn_of_others(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2, 3), source="b")
    stream = reader(tmp_path, maxEventsPerBatch="1")
    offset, seen = stream.initialOffset(), []
    for number in range(1, 5):
        put(tmp_path, READING, events(number), source="a", seqs=[number], segment=number)
        end = stream.latestOffset(offset, ReadMaxRows(1))
        seen += rows(stream, offset, end)
        offset = end
    assert sorted(seen) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_a_source_whose_turn_never_came_is_missed_when_it_is_removed(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2), source="a")
    (path,) = put(tmp_path, READING, events(1), source="b")
    stream = reader(tmp_path, maxEventsPerBatch="1")
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(1))
    assert seqs(first) == {"a": 1}
    path.unlink()
    with pytest.raises(StoreError, match="hall/b: 1 to 1"):
        stream.latestOffset(first, ReadMaxRows(1))


@pytest.mark.parametrize("options", [{}, {"where": "level > 0"}])
def test_a_field_that_widens_while_the_query_runs(tmp_path: Path, options: dict[str, str]) -> None:
    narrow = event_type(as_event_type("level: i32").record)
    put(tmp_path, narrow, events(1))
    stream = reader(tmp_path, **options)
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    put(tmp_path, READING, events(2, 2**40), seqs=[2, 3], segment=2)
    second = stream.latestOffset(first, ReadAllAvailable())
    with pytest.raises(EvolutionError, match=r"its type has changed(.|\n)*load it again"):
        rows(stream, first, second)
    assert rows(reader(tmp_path, **options), first, second) == [("a", 2), ("a", 3)]


def test_new_sources_become_partitions_and_new_types_do_not_disturb(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2), seqs=[4, 9])
    stream = reader(tmp_path)
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    wider = event_type(as_event_type("level: i64, more: text").record)
    put(tmp_path, wider, [{"level": 3, "more": "x"}], source="late", seqs=[50])
    second = stream.latestOffset(first, ReadAllAvailable())
    assert rows(stream, first, second) == [("late", 50)]
    assert second["begins"] == {"hall": {"late": 49}}


def test_where_a_stream_starts(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2, 3), source="a")
    put(tmp_path, READING, events(1, 2, 3), source="b")
    assert seqs(reader(tmp_path, startingOffsets="latest").initialOffset()) == {"a": 3, "b": 3}
    stream = reader(tmp_path, startingOffsets='{"hall": {"a": 2}}')
    start = stream.initialOffset()
    assert rows(stream, start, stream.latestOffset(start, ReadAllAvailable())) == [
        ("a", 3),
        *(("b", n) for n in (1, 2, 3)),
    ]


def test_available_now_stops_at_what_there_was(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2))
    stream = reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    put(tmp_path, READING, events(3), seqs=[3], segment=2)
    put(tmp_path, READING, events(3), source="late")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert seqs(end) == {"a": 2}
    assert stream.latestOffset(end, ReadAllAvailable()) == end


# ── interests ──


def test_a_planned_range_is_judged_by_the_interest_it_was_planned_with(tmp_path: Path) -> None:
    put(tmp_path, READING, events(*range(1, 11)))
    old = reader(tmp_path, where="level > :n", params='{"n": 8}')
    start = old.initialOffset()
    planned = old.latestOffset(start, ReadMaxRows(9))
    new = reader(tmp_path, where="level % 2 == 0")
    assert rows(new, start, planned) == [("a", 9)]
    later = new.latestOffset(planned, ReadAllAvailable())
    assert rows(new, planned, later) == [("a", 10)]
    assert new.latestOffset(later, ReadAllAvailable()) == later  # another interest alone is no new data
    everything = reader(tmp_path)
    assert len(rows(everything, start, planned)) == 1


def test_another_output_cannot_finish_a_planned_range(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2, 3))
    old = reader(tmp_path, where="{ output.twice = input.level * 2; return 1; }", output="twice: i64")
    start = old.initialOffset()
    planned = old.latestOffset(start, ReadAllAvailable())
    with pytest.raises(ExecutionError, match="gives other columns than the one asked for now"):
        reader(tmp_path).partitions(start, planned)


def test_an_interest_with_state_is_refused(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1))
    with pytest.raises(ExecutionError, match=r"this interest has state.*as a batch with spark.read"):
        reader(tmp_path, where="{ static int n = 0; n = n + 1; return n % 3 == 0; }")


# ── retention ──


def test_events_that_were_removed_unread_are_an_error_or_reported(tmp_path: Path) -> None:
    (first,) = put(tmp_path, READING, events(1, 2, 3))
    (second,) = put(tmp_path, READING, events(4, 5, 6), seqs=[4, 5, 6], segment=2)
    put(tmp_path, READING, events(7), seqs=[7], segment=3)
    stream = reader(tmp_path)
    start = stream.initialOffset()
    read = stream.latestOffset(start, ReadMaxRows(2))
    first.unlink()
    second.unlink()
    with pytest.raises(StoreError, match=r"removed events.*hall/a: 3 to 6.*failOnDataLoss"):
        stream.latestOffset(read, ReadAllAvailable())
    with pytest.raises(StoreError, match=r"removed events.*hall/a: 1 to 2"):
        reader(tmp_path).partitions(start, read)
    careless = reader(tmp_path, failOnDataLoss="false")
    end = careless.latestOffset(read, ReadAllAvailable())
    assert rows(careless, read, end) == [("a", 7)]
    assert end["lost"] == {"hall": {"a": [3, 6]}}
    assert "lost" not in careless.latestOffset({**end, "seqs": {"hall": {"a": 6}}}, ReadAllAvailable())


@pytest.mark.parametrize("where", [None, "level > 0"])
@pytest.mark.parametrize("gone", ["some", "all"])
def test_what_retention_removes_between_planning_and_reading(
    tmp_path: Path, gone: str, where: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it was said, with failOnDataLoss too: the rest was read, and the batch committed."""
    (first,) = put(tmp_path, READING, events(1, 2, 3))
    (second,) = put(tmp_path, READING, events(4, 5, 6), seqs=[4, 5, 6], segment=2)
    options = {} if where is None else {"where": where}
    stream, careless = reader(tmp_path, **options), reader(tmp_path, failOnDataLoss="false", **options)
    start = stream.initialOffset()
    planned = [
        (each, each.partitions(start, each.latestOffset(start, ReadAllAvailable()))) for each in (stream, careless)
    ]
    batch = HeadwaterSource(CaseInsensitiveDict({"log": str(tmp_path), "channel": CHANNEL, **options}))
    reading = batch.reader(batch.schema())
    ranges = reading.partitions()
    first.unlink()
    if gone == "all":
        second.unlink()
    lost, left = ("1 to 6", []) if gone == "all" else ("1 to 3", [4, 5, 6])
    for strict, [part] in (planned[0], (reading, ranges)):
        with pytest.raises(StoreError, match=rf"removed events.*hall/a: {lost}.*failOnDataLoss"):
            list(strict.read(part))
    found = [seq for batch in careless.read(planned[1][1][0]) for seq in batch.column("event_seq").to_pylist()]
    assert found == left and f"hall/a: {lost}; up to {6 - len(left)} in all" in caplog.text


def test_what_was_gone_before_a_batch_was_planned_is_not_missed(tmp_path: Path) -> None:
    (first,) = put(tmp_path, READING, events(1, 2, 3))
    put(tmp_path, READING, events(4, 5, 6), seqs=[4, 5, 6], segment=2)
    first.unlink()
    batch = HeadwaterSource(CaseInsensitiveDict({"log": str(tmp_path), "channel": CHANNEL}))
    reading = batch.reader(batch.schema())
    assert sum(each.num_rows for part in reading.partitions() for each in reading.read(part)) == 3


def test_a_source_that_was_removed_unread(tmp_path: Path) -> None:
    (path,) = put(tmp_path, READING, events(1, 2, 3))
    put(tmp_path, READING, events(1), source="b")
    stream = reader(tmp_path)
    read = stream.latestOffset(stream.initialOffset(), ReadMaxRows(2))
    assert read["ahead"] == {"hall": {"a": 3}}
    path.unlink()
    with pytest.raises(StoreError, match="hall/a: 2 to 3"):
        stream.latestOffset(read, ReadAllAvailable())


def test_what_was_read_may_go(tmp_path: Path) -> None:
    (path,) = put(tmp_path, READING, events(1, 2, 3))
    stream = reader(tmp_path)
    read = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    put(tmp_path, READING, events(4), seqs=[4], segment=2)
    path.unlink()
    assert rows(stream, read, stream.latestOffset(read, ReadAllAvailable())) == [("a", 4)]


def test_a_log_that_was_replaced(tmp_path: Path) -> None:
    put(tmp_path, READING, events(1, 2, 3))
    stream = reader(tmp_path, startingOffsets='{"hall": {"a": 9}}')
    with pytest.raises(StoreError, match=r"was read up to 9, but the log in .* has it only up to 3"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


# ── through Spark ──


def test_a_stream_through_spark(spark: Any, tmp_path: Path) -> None:
    log, out, checkpoint = tmp_path / "log", str(tmp_path / "out"), str(tmp_path / "checkpoint")
    put(log, READING, events(*range(1, 11)))

    def run(condition: str) -> list[Any]:
        frame = spark.readStream.format("headwater").options(
            log=str(log), channel=CHANNEL, where=condition, maxEventsPerBatch="6"
        ).load()  # fmt: skip
        sink = frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return list(query.recentProgress)

    progress = run("level > 2")
    assert [p.sources[0].numInputRows for p in progress if p.numInputRows] == [4, 4]
    put(log, READING, events(*range(11, 15)), seqs=range(11, 15), segment=2)
    put(log, READING, events(7, 8), source="late")
    run("level % 2 = 0")
    found = sorted((row.event_source, row.level) for row in spark.read.parquet(out).collect())
    assert found == [*(("a", n) for n in (*range(3, 11), 12, 14)), ("late", 8)]


def test_an_interest_with_state_is_refused_on_the_driver(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, READING, events(1))
    counting = "{ static int n = 0; n = n + 1; return n % 3 == 0; }"
    frame = spark.readStream.format("headwater").options(log=str(tmp_path), channel=CHANNEL, where=counting).load()
    with pytest.raises(PySparkException, match="this interest has state"):
        frame.writeStream.format("memory").queryName("refused").start().awaitTermination()
