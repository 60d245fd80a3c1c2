"""Patterns as window functions: the same matches as the definition's, over many streams at once."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest

from headwater.late import pa
from headwater.patterns import model
from headwater.patterns.pattern import Pattern
from headwater.spark.patterns.matching import match, pattern_choice
from headwater.types.model import TIMESTAMP_MAX
from tests.effort import rounds
from tests.patterns import oracle

TYPE = "id: i64, k: i64?, v: i64?, f: f64?, s: text, at: timestamp?"
CHANNEL = "readings"
META = {"source": "origin", "seq": "number", "time": "published", "node": "home"}
SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STREAMS = 40

PATTERNS = (
    "x: readings(s = 'x')",
    "x: readings(s = 'x'), y: readings(s = 'y')",
    "x: readings(s = 'x'), y: readings(s = 'y'), z: readings{v > 1}",
    "x: readings{v > 0}, y: readings{v > x.v}, z: readings{v > x.v and v >= y.v}",
    "(x: readings{v > 0}){3}",
    "x: readings{v > 0}, (y: readings{count(y) < 2 or v > y.prev.v}){2}",
    "readings(*, *, V, *, 'x', *), readings(*, *, V, *, *, *)",
    "x: readings(s = 'x') -> y: readings(s = 'y')",
    "x: readings{v > 0} -> y: readings{v > 1}",
    "x: readings{f > 0.5} -> y: readings{is_nan(f)}",
    "x: readings(s = 'x') -> without n: readings(s = 'z') -> y: readings(s = 'y')",
    "x: readings{v > 0} -> without n: readings{v = 2} -> y: readings(s = 'y')",
    "x: readings(s = 'x'); without n: readings(s = 'y')",
    "x: readings{v > 1}; without n: readings{v > 0}",
    "x: readings(s = 'x'); y: readings{v > x.v}",
    "x: readings(s = 'x'); y: readings",
)
SQL = (
    "A X*? B DEFINE A AS s = 'x', B AS s = 'y'",
    "A X*? B DEFINE A AS v > 0, B AS v > 2",
    "A X+? B DEFINE A AS s = 'x', B AS s = 'y'",
    "A B C DEFINE A AS s = 'x', B AS v >= A.v",
)


def _text(pattern: str, ending: str, time: str) -> str:
    if " DEFINE " not in pattern:
        return f"{pattern} within 5 seconds {ending} {'' if time == 'meta.time' else f'time {time}'}"
    rows, define = pattern.split(" DEFINE ")
    by = f"PARTITION BY {ending.removeprefix('partition by ')}" if ending else ""
    names = [name for name in ("A", "B", "C") if f"{name} " in f"{rows} "]
    measures = ", ".join(f"{name}.id AS {name.lower()}" for name in names)
    return (
        f"SELECT {', '.join(name.lower() for name in names)} FROM readings MATCH_RECOGNIZE ({by} ORDER BY {time} "
        f"MEASURES {measures} PATTERN ({rows}) WITHIN INTERVAL '5' SECOND DEFINE {define})"
    )


def _streams(chance: random.Random) -> list[dict[str, Any]]:
    """Events of many partitions, in any order; ties in time, missing values, NaN, events of no partition. By `at` some
    come after later ones of their source."""
    events = []
    for stream in range(STREAMS):
        time = 0
        for _ in range(chance.randint(2, 12)):
            time += chance.choice((0, 0, 1, 1, 2, 5))
            fields = {
                "id": len(events),
                "k": chance.choice((stream, stream, stream, stream, None)),
                "v": chance.choice((0, 1, 2, 3, None)),
                "f": chance.choice((0.0, -0.0, 1.0, math.nan, None)),
                "s": chance.choice("xxyyz"),
                "at": chance.choice((time, time, time, max(0, time - 3), None)),
            }
            fields["at"] = None if fields["at"] is None else EPOCH + timedelta(seconds=fields["at"])
            source, node = chance.choice((("n1", "x"), ("n1", "ö"), ("n2", None)))
            events.append({"channel": CHANNEL, "source": source, "node": node, "time": time * SECOND, "fields": fields})
    chance.shuffle(events)
    numbers = Counter[Any]()
    for event in sorted(events, key=lambda event: event["time"]):
        who = event["source"], event["node"]
        numbers[who] += 1
        event["seq"] = numbers[who]
    return events


def _frame(spark: Any, events: list[dict[str, Any]]) -> Any:
    when = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
         ("at", when), ("origin", pa.string()), ("number", pa.int64()), ("published", when), ("home", pa.string())]
    )  # fmt: skip
    rows = [{**event["fields"], "origin": event["source"], "number": event["seq"], "published": event["time"],
             "home": event["node"]} for event in events]  # fmt: skip
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema))


def _ids(pattern: model.Pattern, result: dict[str, Any]) -> str:
    found = []
    for each in pattern.output.record.fields[:-1]:
        value = result[each.name]
        events = value if isinstance(value, list) else [value]
        found += [str(event["id"] if isinstance(event, dict) else event) for event in events]
    return ",".join(found)


def _ids_sql(pattern: model.Pattern) -> str:
    """The same as SQL."""
    if pattern.measures is not None:
        return f"concat_ws(',', {', '.join(each.name for each in pattern.output.record.fields[:-1])})"
    parts = [f"transform({each.name}, e -> cast(e.id as string))" if pattern.by_name[each.name].multiple
             else f"cast({each.name}.id as string)" for each in pattern.output.record.fields[:-1]]  # fmt: skip
    return f"concat_ws(',', {', '.join(parts)})"


def _variants(chance: random.Random) -> list[model.Pattern]:
    """All patterns with all rules that window functions can say; some are partitioned by a float, or not at all."""
    found = []
    for text in (*PATTERNS, *SQL):
        ending = chance.choice(("partition by k", "partition by k", "partition by f, k", "partition by k, v % 2"))
        time, lateness = chance.choice(("meta.time", "meta.time", "at")), chance.choice((0, 2, 5)) * SECOND
        checked = replace(Pattern(_text(text, ending, time), {CHANNEL: TYPE}).model, lateness=lateness)
        for rule in ("no skip", "next", "past last"):
            for reuse in (True, False):
                for begin in ("each", "first"):
                    made = replace(checked, after=model.After(rule), reuse=reuse, begin=begin)  # type: ignore[arg-type]
                    if pattern_choice(made).kind == "window functions":
                        found.append(made)
    return found


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(rounds(1, 20)))
def test_window_functions_find_what_the_definition_says(spark: Any, seed: int) -> None:
    chance = random.Random(seed)
    events = _streams(chance)
    frame = _frame(spark, events).cache()
    variants = _variants(chance)
    assert len(variants) > 60
    chosen = chance.sample(variants, rounds(20, 60))
    found = [
        match(frame, pattern, meta=META).selectExpr(
            f"{number} AS variant", f"{_ids_sql(pattern)} AS ids", "unix_micros(match.time) AS time"
        )
        for number, pattern in enumerate(chosen)
    ]
    rows = reduce(lambda one, other: one.unionAll(other), found).collect()
    frame.unpersist()
    matched = 0
    for number, pattern in enumerate(chosen):
        ours = sorted((row.ids, row.time) for row in rows if row.variant == number)
        expected = sorted((_ids(pattern, one.result), one.time) for one in oracle.matches(pattern, events))
        assert ours == expected, (pattern.text, pattern.after, pattern.reuse, pattern.begin)
        matched += len(expected)
    assert matched > len(chosen)


def test_a_deadline_after_the_last_time_there_is_is_at_that(spark: Any) -> None:
    pattern = Pattern("x: readings(s = 'x'); without n: readings(s = 'y') within 1 day time at", {CHANNEL: TYPE})
    assert pattern_choice(pattern).kind == "window functions"
    last = {"id": 1, "k": 1, "v": 1, "f": None, "s": "x", "at": datetime.max.replace(tzinfo=UTC)}
    event = {"fields": last, "source": "n1", "node": None, "seq": 1, "time": 0}
    found = match(_frame(spark, [event]), pattern, meta=META)
    assert found.selectExpr("unix_micros(match.time)").collect()[0][0] == TIMESTAMP_MAX
