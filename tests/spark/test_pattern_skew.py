"""Partitions that have nearly all events, and more than a worker has memory for: they are matched all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.late import np, pa
from headwater.patterns.pattern import Pattern
from headwater.spark import match, pattern_choice
from headwater.spark.patterns import runs
from headwater.spark.schema import spark_arrow_schema

CLIMBING = Pattern(
    "SELECT * FROM m MATCH_RECOGNIZE (PARTITION BY k ORDER BY meta.time MEASURES A.v AS a, COUNT(B.*) AS n, C.v AS c "
    "PATTERN (A B+ C) WITHIN INTERVAL '10' SECOND DEFINE A AS A.v = 0, B AS B.v > 0 AND B.v < 99, C AS C.v = 99)",
    {"m": "k: i64, v: i64, more: text"},
)
ROWS, BATCHES = 4_096, 160  # of one partition, as Spark hands them over
MORE = "x" * 100  # bytes that every event takes along


def _batches(seen: list[int]) -> Iterator[Any]:
    """Rows of one partition, in order, made when they are asked for. Notes what is held whenever more is asked for."""
    record = CLIMBING.model.channels[0].type.record
    fields = pa.struct(spark_arrow_schema(record))
    for number in range(BATCHES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        event = pa.StructArray.from_arrays(
            [pa.array(np.full(ROWS, 7)), pa.array(ids % 100), pa.array([MORE] * ROWS)], fields=list(fields)
        )
        columns = {
            runs.CHANNEL: pa.array(np.zeros(ROWS, np.int32)),
            runs.SOURCE: pa.array(["s"] * ROWS),
            runs.SEQ: pa.array(ids),
            runs.PUBLISHED: pa.array(ids * 1_000),
            runs.NODE: pa.nulls(ROWS, pa.string()),
            f"{runs.EVENT}0": event,
        }
        yield pa.RecordBatch.from_pydict(columns)
        seen.append(pa.total_allocated_bytes())


def test_a_partition_larger_than_memory_is_matched_by_what_its_window_holds() -> None:
    pattern, seen, before = CLIMBING.model, list[int](), pa.total_allocated_bytes()
    found = 0
    for batch in runs.matches(runs.pack(pattern), _batches(seen), pattern.fingerprint, identified=False):
        assert set(batch.column("n").to_pylist()) == {98}
        found += batch.num_rows
    assert found == ROWS * BATCHES // 100
    assert max(seen) - before < ROWS * BATCHES * len(MORE) * 0.75  # what has been looked at is let go


@pytest.fixture
def small_batches(spark: Any) -> Iterator[None]:
    """A worker is handed few rows at a time, as of a partition that is very large."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "64")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("small_batches")
def test_one_partition_may_have_nearly_all_events(spark: Any) -> None:
    assert pattern_choice(CLIMBING).kind == "runners"
    rows = spark.range(4_000).selectExpr(
        "IF(id % 40 = 39, id % 7, 100) AS k", "(id DIV IF(id % 40 = 39, 40, 1)) % 100 AS v", "'' AS more",
        "concat('n', id % 3) AS source", "id AS seq", "timestamp_millis(id) AS at",
    )  # fmt: skip
    found = match(rows, CLIMBING, meta={"source": "source", "seq": "seq", "time": "at"}, identity=False)
    by_hand = dict[int, int | None]()  # of each partition: how many came since 0, and nothing but what may
    expected = list[int]()
    for row in rows.orderBy("seq").collect():
        since = by_hand.get(row.k)
        if row.v == 99 and since:
            expected.append(since)
        by_hand[row.k] = 0 if row.v == 0 else None if since is None or row.v == 99 else since + 1
    assert sorted(row.n for row in found.collect()) == sorted(expected)
    assert len(expected) > 15
