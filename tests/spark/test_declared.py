"""Interests on DataFrames whose columns are told: Spark is not asked, and says itself what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from headwater import Interest
from headwater.errors import EvolutionError, ExecutionError
from headwater.spark import declared, derive, outcome, where

TYPE = "name: text, level: f64"
ROWS = [("n", "s", 1, "a", 1.0), ("n", "s", 2, "b", 3.0), ("n", "s", 3, "c", 2.0)]
COLUMNS = "event_node string, event_source string, event_seq bigint, name string, level double"


class Unasked:
    """A DataFrame that refuses what a pipeline's query function refuses."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def __getattr__(self, name: str) -> Any:
        assert name not in ("schema", "columns", "dtypes", "collect", "count"), f"Spark was asked for {name}"
        return getattr(self.frame, name)


def frame(spark: Any) -> Any:
    return declared(Unasked(spark.createDataFrame(ROWS, COLUMNS)), TYPE, meta=("node", "source", "seq"))


def test_filters_transformations_and_state(spark: Any) -> None:
    loud = Interest("level > :limit", TYPE, params={"limit": 1.5})
    assert [row.name for row in where(frame(spark), loud).orderBy("event_seq").collect()] == ["b", "c"]
    assert [row.loud for row in outcome(frame(spark), loud, name="loud").orderBy("event_seq").collect()] == [
        False,
        True,
        True,
    ]
    rising = (
        "{ static double last = 0; double by = input.level - last; last = input.level; output.by = by; return by > 0; }"
    )
    risen = derive(frame(spark), Interest(rising, TYPE, output="by: f64"))
    assert sorted(row.by for row in risen.collect()) == [1.0, 2.0]
    every = Interest("{ static int seen = 0; seen++; return seen % 2 == 1; }", TYPE)
    assert sorted(row.name for row in where(frame(spark), every).collect()) == ["a", "c"]


def test_columns_that_are_not_as_told(spark: Any) -> None:
    given = spark.createDataFrame([("a", "high")], "name string, level string")
    with pytest.raises(AnalysisException, match="levle"):
        declared(given, "name: text, levle: text", meta=()).collect()
    with pytest.raises(Exception, match="column level: declared as double, found string"):
        declared(given, TYPE, meta=()).collect()
    with pytest.raises(ExecutionError, match="meta: expected some of node, source, seq, time, found sequence"):
        declared(given, TYPE, meta=("sequence",))
    with pytest.raises(EvolutionError, match="level: expected double for f64, found string"):
        told = T.StructType([T.StructField("name", T.StringType()), T.StructField("level", T.StringType())])
        where(declared(given, told), Interest("level > 1", TYPE))


def test_lists_and_records_come_out_of_a_table_with_nulls_in_them(spark: Any) -> None:
    given = spark.sql("SELECT array(1.0D, NULL) AS levels, named_struct('x', 1) AS at, 5 AS more")
    found = declared(given, "levels: f64[], at: {x: i32}", meta=())
    assert found.columns == ["levels", "at"] and found.collect()[0].levels == [1.0, None]
