"""`sql`: MATCH_RECOGNIZE in statements that Spark runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.errors import ExecutionError, PatternError
from headwater.spark import sql

ROWS = [
    (1, "ann", 0), (1, "bob", 1_000_000), (2, "cid", 1_500_000), (1, "ann", 1_500_000), (1, "dan", 9_000_000),
]  # fmt: skip
TAILGATING = """doors MATCH_RECOGNIZE (
    PARTITION BY door ORDER BY at MEASURES A.who AS first, B.who AS second AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B) WITHIN INTERVAL '2' SECOND DEFINE B AS B.who <> A.who AND B.door < :last)"""


@pytest.fixture
def doors(spark: Any) -> Iterator[None]:
    frame = spark.createDataFrame(ROWS, "door long, who string, us long").selectExpr(
        "* EXCEPT (us)", "timestamp_micros(us) AS at", "CAST(1 AS DECIMAL(9, 2)) AS price"
    )
    frame.createOrReplaceTempView("doors")
    yield
    spark.catalog.dropTempView("doors")


@pytest.mark.usefixtures("doors", "compiled")  # Spark cannot tell of its tables otherwise
def test_all_but_the_matches_is_sparks(spark: Any) -> None:
    found = sql(
        spark,
        f"SELECT d.first, d.second, unix_micros(match.time) AS us FROM {TAILGATING} AS d "
        "JOIN doors AS t ON t.who = d.second AND d.match.time = t.at WHERE d.door = :door ORDER BY us",
        params={"last": 9, "door": 1},
    )
    assert [tuple(row) for row in found.collect()] == [("ann", "bob", 1_000_000), ("bob", "ann", 1_500_000)]
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("headwater")]


@pytest.mark.usefixtures("doors")
def test_what_cannot_be_is_said_at_its_place(spark: Any) -> None:
    with pytest.raises(PatternError) as error:
        sql(spark, "SELECT * FROM doors MATCH_RECOGNIZE (ORDER BY at ALL ROWS PER MATCH PATTERN (A) DEFINE A AS TRUE)")
    assert "ALL ROWS PER MATCH is not supported" in str(error.value)
    with pytest.raises(PatternError) as error:
        sql(spark, "SELECT * FROM doors MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS A.price > 1)")
    said = str(error.value)
    assert "column price has a type that no event has" in said
    assert "decimal(9,2)" in said
    with pytest.raises(ExecutionError, match="no column with the time of publication"):
        sql(spark, "SELECT * FROM doors MATCH_RECOGNIZE (ORDER BY meta.time PATTERN (A) DEFINE A AS door = 1)")
    stream = spark.readStream.format("rate").load().selectExpr("value AS door", "timestamp AS at")
    stream.createOrReplaceTempView("rate")
    with pytest.raises(ExecutionError, match="expected columns for source and seq, found door, at"):
        sql(spark, "SELECT * FROM rate MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS door = 1)")


@pytest.mark.usefixtures("doors")
def test_of_a_log_the_order_is_that_of_its_columns(spark: Any) -> None:
    log = spark.table("doors").selectExpr(
        "door", "who", "at AS event_time", "IF(door = 2, 'n2', 'n1') AS event_source", "unix_micros(at) AS event_seq"
    )
    log.createOrReplaceTempView("logged")
    found = sql(
        spark,
        "SELECT n FROM logged MATCH_RECOGNIZE (ORDER BY event_time MEASURES LAST(B.door) AS last, COUNT(B.*) AS n "
        "PATTERN (A B+) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.who = 'ann', B AS B.who <> 'ann')",
    )
    assert sorted(row.n for row in found.collect()) == [1, 2]
