"""Long chains of operators, in Spark."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Interest
from headwater.spark.column import Unsupported, column_of
from headwater.spark.schema import to_dataframe

TYPE = "a: f64, b: i64?"


ROWS = [{"a": 1.0, "b": 1}, {"a": 2.0, "b": 2}, {"a": 1.0, "b": None}]


@pytest.mark.parametrize("text", [" * ".join(["a"] * 200) + " = 1", " + ".join(["b"] * 100) + " = 100"])
def test_a_long_chain_is_judged_as_elsewhere(spark: Any, text: str) -> None:
    interest = Interest(text, TYPE)
    column = column_of(interest.program, interest.params)
    assert not isinstance(column, Unsupported)
    frame = to_dataframe(spark, interest.type.record, ROWS)
    found = [row[0] for row in frame.select(column).collect()]
    assert found == interest.select(ROWS).selection.to_pylist()


def test_what_sparks_parser_would_refuse_is_no_column(spark: Any) -> None:
    interest = Interest(" + ".join(["b"] * 200) + " = 200", TYPE)
    column = column_of(interest.program, interest.params)
    assert isinstance(column, Unsupported) and "nest" in column.reason
