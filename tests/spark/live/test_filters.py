"""Spark's filters as ours: the same rows, NaN and null included."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import datasource as ds

from headwater import Interest, event_type
from headwater.interest import as_event_type
from headwater.spark.live.filters import narrowed, translate
from headwater.spark.schema import spark_schema, to_spark_arrow
from tests.effort import examples
from tests.spark.live.logs import CHANNEL, put
from tests.spark.support import sample

ROW = event_type(
    as_event_type(
        "d: f64?, f: f32?, i: i32?, u: u64?, t: text?, b: bool?, y: bytes?, at: timestamp?, "
        "kind: enum(USER=3, OTHER=1)?, in: {k: i16?, s: text?}?, w: f64"
    ).record
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLOATS = [0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf, 0.25]
VALUES: dict[str, list[Any]] = {
    "d": FLOATS,
    "w": FLOATS,
    "f": FLOATS,
    "i": [0, 1, -7, 2**31 - 1],
    "u": [0, 1, 2**63, 2**64 - 1],
    "t": ["", "a", "ab", "b%", "ü", "\U0001f600", "\uffff"],
    "b": [True, False],
    "y": [b"", b"\x00", b"\xff"],
    "at": [EPOCH, EPOCH + timedelta(microseconds=1), datetime(2026, 3, 8, 7, 30, tzinfo=UTC)],
    "kind": ["USER", "OTHER"],
    "in.k": [1, -1],
    "in.s": ["x", "xy"],
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ORDERED = ("d", "w", "f", "i", "u", "t", "y", "at", "in.k", "in.s", "kind", "b")


def literals(column: str) -> st.SearchStrategy[Any]:
    found = st.sampled_from(VALUES[column] + (["NOBODY"] if column == "kind" else []))
    return found.map(Decimal) if column == "u" else found


def path(column: str) -> tuple[str, ...]:
    return tuple(column.split("."))


@st.composite
def filters(draw: st.DrawFn) -> ds.Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    kinds = ["EqualTo", "EqualNullSafe", "In", "IsNull", "IsNotNull"]
    kinds += ["GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"] if column in ORDERED else []
    kinds += ["StringStartsWith", "StringEndsWith", "StringContains"] if column in ("t", "in.s") else []
    kind = draw(st.sampled_from(kinds))
    made: ds.Filter
    if kind.startswith("Is"):
        made = getattr(ds, kind)(path(column))
    elif kind == "In":
        some = draw(st.lists(literals(column) | st.none(), min_size=1, max_size=4))
        made = ds.In(path(column), tuple(some))
    else:
        made = getattr(ds, kind)(path(column), draw(literals(column)))
    return ds.Not(made) if draw(st.booleans()) else made


def rows() -> st.SearchStrategy[dict[str, Any]]:
    def optional(column: str) -> st.SearchStrategy[Any]:
        return st.none() | st.sampled_from(VALUES[column])

    inner = st.none() | st.fixed_dictionaries({"k": optional("in.k"), "s": optional("in.s")})
    plain = {column: optional(column) for column in VALUES if "." not in column and column != "w"}
    return st.fixed_dictionaries({**plain, "w": st.sampled_from(FLOATS), "in": inner})


def column_of(filter: ds.Filter) -> Any:
    """The same filter as Spark's own condition."""
    from pyspark.sql import functions as F

    if isinstance(filter, ds.Not):
        return ~column_of(filter.child)
    column: Any = F.col(".".join(filter.attribute))  # type: ignore[attr-defined]
    match filter:
        case ds.IsNull():
            return column.isNull()
        case ds.IsNotNull():
            return column.isNotNull()
        case ds.In(value=values):
            # Said as comparisons: with isin Spark itself takes -0.0 and 0.0 for two values in some plans.
            return reduce(lambda a, b: a | b, [column == F.lit(value) for value in values])
        case ds.EqualTo(value=value):
            return column == F.lit(value)
        case ds.EqualNullSafe(value=value):
            return column.eqNullSafe(F.lit(value))
        case ds.GreaterThan(value=value):
            return column > F.lit(value)
        case ds.GreaterThanOrEqual(value=value):
            return column >= F.lit(value)
        case ds.LessThan(value=value):
            return column < F.lit(value)
        case ds.LessThanOrEqual(value=value):
            return column <= F.lit(value)
        case ds.StringStartsWith(value=value):
            return column.startswith(value)
        case ds.StringEndsWith(value=value):
            return column.endswith(value)
        case ds.StringContains(value=value):
            return column.contains(value)
    raise AssertionError(filter)


def test_translated_filters_say_the_same_as_spark(spark: Any) -> None:
    data = ROW.to_arrow(sample(rows(), 120))
    wanted = sample(filters(), examples(430))
    frame = spark.createDataFrame(
        pa.Table.from_batches([to_spark_arrow(data, ROW.record)]), schema=spark_schema(ROW.record)
    ).coalesce(1)
    pushed = 0
    for start in range(0, len(wanted), 130):
        some = wanted[start : start + 130]
        answers = frame.select(*[column_of(f).alias(f"c{at}") for at, f in enumerate(some)]).toArrow()
        for at, filter in enumerate(some):
            condition = translate(filter, ROW.record)
            if condition is None:
                continue
            pushed += 1
            interest = narrowed(None, [condition], ROW.record)
            assert interest is not None
            passes = interest.select(data).selection.fill_null(False).to_pylist()
            expected = [bool(answer) for answer in answers.column(at).to_pylist()]
            assert passes == expected, filter
    assert pushed > len(wanted) * 10 // 13  # all but the order of members and of booleans


def test_a_filter_and_an_interest_in_one() -> None:
    loud = Interest("{ if (input.d > 1.0) { return 1; } return input.b; }", ROW)
    condition = translate(ds.GreaterThan(("i",), 0), ROW.record)
    assert condition is not None
    both = narrowed(loud, [condition], ROW.record)
    assert both is not None
    base = {"w": 0.0}
    events = [
        {**base, "d": d, "b": b, "i": i} for d in (2.0, 0.0, None) for b in (True, False, None) for i in (1, 0, None)
    ]
    expected = [bool(loud.test(event)) and event["i"] == 1 for event in events]
    assert [both.test(event) for event in events] == expected and any(expected)


def test_what_cannot_be_said_is_left_to_spark() -> None:
    record = ROW.record
    for filter in (
        ds.GreaterThan(("kind",), "OTHER"),
        ds.LessThan(("b",), True),
        ds.EqualTo(("d",), 1),
        ds.EqualTo(("nothing",), 1),
        ds.EqualTo(("u",), Decimal("1.5")),
        ds.EqualTo(("in",), {}),
        ds.Not(ds.GreaterThan(("kind",), "OTHER")),
        ds.In(("i",), tuple(range(2000))),
    ):
        assert translate(filter, record) is None, filter


CONDITIONS = [
    "d > 1 and not (f = 0)",
    "d = cast('NaN' as double) or d is null",
    "d = cast('NaN' as double) and w >= 0",
    "f >= 1.5 and in.k is not null",
    "u = 18446744073709551615 and t <=> 'ü'",
    "u > 1 and kind in ('USER', 'NOBODY')",
    "at > timestamp'2026-03-08 02:00:00' and not b",
    "y = x'ff' and t like 'a%'",
    "in.s = 'xy' and i != 1",
    "event_time > timestamp'2027-01-15 03:10:00' and event_seq <= 70 and event_source = 'a'",
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    put(root, ROW, sample(rows(), 90))
    put(root, ROW, sample(rows(), 30), source="b")
    return root


def found(spark: Any, log: Path, **options: str) -> list[Any]:
    """Which events meet which condition; each condition on a DataFrame of its own."""
    from pyspark.sql import functions as F

    parts = []
    for at, text in enumerate(CONDITIONS):
        events = spark.read.format("headwater").options(log=str(log), channel=CHANNEL, **options).load()
        parts.append(events.where(text).select(F.lit(at).alias("condition"), "event_source", "event_seq"))
    return sorted(tuple(row) for row in reduce(lambda a, b: a.unionAll(b), parts).collect())


def test_pushed_and_not_pushed_agree(spark: Any, log: Path) -> None:
    without = found(spark, log)
    assert len({row[0] for row in without}) >= len(CONDITIONS) - 2  # hardly a condition that nothing meets
    with pytest.raises(PySparkException, match=PUSHDOWN):
        found(spark, log, pushFilters="true")
    spark.conf.set(PUSHDOWN, "true")
    try:
        assert found(spark, log, pushFilters="true") == without
        events = spark.read.format("headwater").options(log=str(log), channel=CHANNEL, pushFilters="true").load()
        assert events.where("event_source = 'b' and in.k = 1").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_frame_may_be_used_many_times(spark: Any, log: Path, enabled: str) -> None:
    spark.conf.set(PUSHDOWN, enabled)
    try:
        events = spark.read.format("headwater").options(log=str(log), channel=CHANNEL).load()
        some, others = events.where("event_seq > 80"), events.where("event_seq <= 5")
        assert some.count() == 10 and events.count() == 120
        assert some.unionAll(others).count() == 20
    finally:
        spark.conf.unset(PUSHDOWN)
