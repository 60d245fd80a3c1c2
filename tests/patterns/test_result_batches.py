"""Results of many matches, made together by columns, are those that are made one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir.interp import EventContext
from headwater.patterns import Pattern, model
from headwater.patterns.run.reading import read_together
from headwater.patterns.run.result_batches import FEW, ResultBatches
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from headwater.types.model import TIMESTAMP_MAX
from tests.effort import examples

EVENT = "kind: i64, n: i64?, u: u64?, x: f64?, y: f32?, small: i8?, name: text?"
TIMED = "kind: i64, n: i64, at: i64"
PATTERNS = {
    "aggregates": """
        a: r{kind = 0} -> b: r{kind = 1}{1,4} -> c: r{kind = 2}? -> d: r{kind = 3} within 1 hour
        measures count(b) as rows, count(b.name) as named, sum(b.n) as n, sum(b.u) as u, sum(b.x) as x, sum(b.y) as y,
            min(b.n) as least, max(b.u) as most, min(b.x) as low, max(b.y) as high, mean(b.n) as middle,
            mean(b.small) as mean_small, sum(b.small) as sum_small, min(b.small) as least_small
    """,
    "events": """
        a: r{kind = 0} -> b: r{kind = 1}{1,4} -> c: r{kind = 2}? -> d: s{kind = 3} within 1 hour
        measures a.name as first, b.first.x as x, b.prev.u as u, b.name as last, c.y as y, d.name as end,
            c.meta.seq as seq, b.meta.source as source, a.meta.time as time, count(c) as optional, a.n + d.n as both
    """,
}

VALUES = {
    "kind": st.sampled_from([0, 1, 1, 1, 2, 3]),
    "n": st.none() | st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**62]),
    "u": st.none() | st.integers(0, 3) | st.sampled_from([2**64 - 1, 2**63]),
    "x": st.none() | st.floats(width=64),
    "y": st.none() | st.floats(width=32),
    "small": st.none() | st.integers(-128, 127),
    "name": st.none() | st.text(max_size=3),
}


def results(text: str, rows: list[dict[str, Any]], *, times: int, one_by_one: bool) -> list[dict[str, Any]]:
    """What a pattern makes of these rows, again and again: those that end a match in another channel, and some at
    another node. Some come by themselves, others in batches."""
    pattern = Pattern(text, {"r": EVENT, "s": EVENT}).model
    runner = Runner(pattern, interpreted=True)
    together = ResultBatches(Results(pattern), runner.channels)
    channels = list(runner.channels)
    seq = 0
    for _ in range(times):
        for number, row in enumerate(rows):
            channel = "s" if "s" in channels and row["kind"] == 3 else "r"
            seq += 1
            if number % 3:
                runner.offer(channel, row, EventContext("x", "here" if number % 2 else None, seq, seq * 1_000))
            else:
                batch = runner.channels[channel].type.to_arrow([row])
                runner.batch(channel, batch, {"source": "x", "node": None, "seq": seq, "time": seq * 1_000})
    runner.finish()
    found = runner.matches()
    if not one_by_one:
        return [raw for batch in together.of(found) for raw in pattern.output.arrow_to_raw(batch)]
    made = Results(pattern)
    read = read_together(runner.channels, (event for match in found for event in made.asked(match)))
    return [made.raw(match, lambda event: read[event.origin]) for match in found]


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=examples(3))
@given(rows=st.lists(st.fixed_dictionaries(VALUES), min_size=3, max_size=10))
def test_together_they_are_what_they_are_one_by_one(name: str, rows: list[dict[str, Any]]) -> None:
    whole = [{**rows[0], "kind": 0}, {**rows[1], "kind": 1}, *rows, {**rows[2], "kind": 3}]
    apart = results(PATTERNS[name], whole, times=FEW, one_by_one=True)
    assert len(apart) >= FEW
    assert repr(results(PATTERNS[name], whole, times=FEW, one_by_one=False)) == repr(apart)


@pytest.mark.parametrize("count", (1, FEW))
def test_a_deadline_after_the_last_time_there_is_is_at_that(count: int) -> None:
    pattern = Pattern("a: r ; without b: r(kind = 9) within 1 hour time at measures a.n as n", {"r": TIMED}).model
    runner = Runner(pattern, interpreted=True)
    for seq in range(count):
        runner.offer("r", {"kind": 0, "n": seq, "at": TIMESTAMP_MAX}, EventContext("x", None, seq, seq))
    runner.finish()
    matches = runner.matches()
    found = [
        raw for batch in ResultBatches(Results(pattern), runner.channels).of(matches) for raw in read(pattern, batch)
    ]
    assert [raw["match"]["time"] for raw in found] == [TIMESTAMP_MAX] * count == [match.time for match in matches]


def read(pattern: model.Pattern, batch: Any) -> list[dict[str, Any]]:
    """As events: what is no value of its type would be refused."""
    return [pattern.output.decode_raw(record) for record in pattern.output.arrow_to_records(batch)]
