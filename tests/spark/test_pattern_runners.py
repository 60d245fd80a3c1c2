"""Patterns in Spark's workers: the same matches as the definition's, who they are included."""

from __future__ import annotations

from functools import reduce
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.late import pa
from headwater.patterns import model
from headwater.patterns.run.identity import identity
from headwater.spark.patterns.matching import match, pattern_choice
from tests.effort import rounds
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

META = {"source": "origin", "seq": "number", "time": "published", "node": "home"}
NODES = {"n1": "west", "n2": "east"}  # with a source of one name each
FIELDS = {
    "a": [("k", pa.int64()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string())],
    "b": [("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())],
}
AT_ONCE = 8  # patterns of one job: Spark takes a while to start one


def _frames(spark: Any, events: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for channel, fields in FIELDS.items():
        schema = pa.schema(
            [*fields, ("origin", pa.string()), ("number", pa.int64()), ("published", pa.timestamp("us", "UTC")),
             ("home", pa.string())]
        )  # fmt: skip
        rows = [
            {**event["fields"], "origin": event["source"], "number": event["seq"], "published": event["time"],
             "home": event["node"]}
            for event in events
            if event["channel"] == channel
        ]  # fmt: skip
        found[channel] = spark.createDataFrame(pa.Table.from_pylist(rows, schema))
    return found


def _expected(pattern: model.Pattern, events: list[dict[str, Any]]) -> list[tuple[bytes, int]]:
    return sorted(
        (identity(pattern.fingerprint, found.events, found.deadline), found.time)
        for found in oracle.matches(pattern, events)
    )


@settings(max_examples=rounds(3, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(found=st.lists(patterns(), min_size=AT_ONCE, max_size=AT_ONCE), events=streams())
def test_runners_find_what_the_definition_says(
    spark: Any, found: list[model.Pattern], events: list[dict[str, Any]]
) -> None:
    events = [{**event, "source": "n1", "node": NODES[event["source"]]} for event in events]
    frames = _frames(spark, events)
    made = []
    for number, pattern in enumerate(found):
        given = {channel.name: frames[channel.name] for channel in pattern.channels}
        matched = match(given, pattern, meta=META)
        made.append(matched.selectExpr(f"{number} AS pattern", "match.identity", "unix_micros(match.time) AS time"))
    rows = reduce(lambda one, other: one.unionAll(other), made).collect()
    for number, pattern in enumerate(found):
        ours = sorted((bytes(row.identity), row.time) for row in rows if row.pattern == number)
        assert ours == _expected(pattern, events), (pattern_choice(pattern), pattern.text)
