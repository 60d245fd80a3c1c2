"""Which patterns become window functions, and what is said of the others. Needs no Spark."""

from __future__ import annotations

import pytest

from headwater.patterns.pattern import Pattern
from headwater.spark import pattern_choice
from headwater.spark.patterns.shapes import Absence, Fixed, Following, Later, Shape, shape_of

CHANNELS = {"r": "k: i64?, v: i64?, s: text", "q": "k: i64?"}


def _sql(rows: str, define: str, after: str = "PAST LAST ROW", measures: str = "A.v AS a, B.v AS b") -> str:
    return (
        f"SELECT * FROM r MATCH_RECOGNIZE (ORDER BY meta.time MEASURES {measures} AFTER MATCH SKIP {after} "
        f"PATTERN ({rows}) WITHIN INTERVAL '5' SECOND DEFINE {define})"
    )


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("r", Fixed((0,))),
        ("a: r(s = 'x'), b: r(s = 'y') within 5 seconds", Fixed((0, 1))),
        ("a: r(s = 'x'), b: r(s = 'y'), c: r{v > a.v} within 9 events", Fixed((0, 1, 2))),
        ("(a: r(s = 'x')){3} strict within 5 seconds", Fixed((0, 0, 0))),
        ("a: r(s = 'x'), b: r(s = 'y') within 5 seconds after match past last", Fixed((0, 1))),
        ("a: r(s = 'x') -> b: r(s = 'y') within 5 seconds", Following(0, 1)),
        ("a: r(s = 'x') -> b: r(s = 'y') within 5 seconds after match past last", Following(0, 1, exclusive=True)),
        ("a: r(s = 'x') -> without n: r(s = 'z') -> b: r(s = 'y') within 5 seconds", Following(0, 2, (1,))),
        ("r(K, *, 'x'); r(K, *, *)", Later(0, 1)),
        ("a: r(s = 'x'); without n: r(s = 'y') within 5 seconds", Absence(0, (1,))),
        (_sql("A X*? B", "A AS s = 'x', B AS s = 'y'"), Following(0, 2, (), 1, 0, exclusive=True)),
        (_sql("A X+? B", "A AS s = 'x', B AS s = 'y'", "TO NEXT ROW"), Following(0, 2, (), 1, 1)),
    ],
)
def test_shapes(text: str, shape: Shape) -> None:
    pattern = Pattern(text, CHANNELS)
    assert shape_of(pattern.model) == shape
    choice = pattern_choice(pattern)
    assert (choice.kind, choice.sql is None) == ("window functions", False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: r; b: q within 5 seconds", "several channels"),
        ("a: r(s = 'x'); b: r(s = 'y') within 5 seconds", "a join"),
        ("a: r{v > 1}, b: r{v > 0} within 5 seconds after match past last", "matches may overlap"),
        ("a: r{v > 1} -> b: r{v > 0} within 5 seconds after match past last", "matches may overlap"),
        ("a: r(s = 'x') -> b: r{v > a.v} within 5 seconds", "depends on the first one"),
        ("a: r(s = 'x') -> b: r(s = 'y') within 5 events", "a number of rows"),
        ("a: r(s = 'x') -> b: r(s = 'y') -> c: r(s = 'z') within 5 seconds", "its length is open"),
        ("a: r(s = 'x'), b: r{v > 1}+ within 5 seconds", "its length is open"),
        ("a: r(s = 'x') -> b: r(s = 'y'); without n: r(s = 'z') within 5 seconds", "more than one event"),
        ("a: r(s = 'x'); without n: r{v > a.v} within 5 seconds", "depends on the event before"),
        (_sql("A X*? B", "A AS s = 'x', B AS s = 'y'", measures="COUNT(X.*) AS n"), "any number"),
        (_sql("A X*? B", "A AS s = 'x', X AS v > 1, B AS s = 'y'"), "not every row"),
        (_sql("A B", "A AS s = 'x', B AS s = 'y'", measures="SUM(A.v) AS n"), "the sum of several events"),
        ("a: r{log(v) > 1}, b: r within 5 seconds", "last bit"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    choice = pattern_choice(Pattern(text, CHANNELS))
    assert choice.kind == "runners"
    assert reason in choice.reason
    assert str(choice) == f"runners: {choice.reason}"
