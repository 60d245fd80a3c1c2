"""Events that come one by one, as records: read by one program, and taken by one call where they can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.results import Results
from headwater.patterns.run.runner import Runner
from tests.effort import examples
from tests.patterns.strategies import SOURCES, patterns, streams
from tests.patterns.test_runner import Events, expected, plain

DOOR = {"door": "who: text?, level: f64?, n: i64, big: u64, kind: enum(IN = 3, OUT = 9), at: timestamp?, tag: bytes"}
DAY = 1_700_000_000_000_000


def offer(runner: Runner, event: dict[str, Any]) -> None:
    """As a record, which is how events come from a source."""
    channel = runner.channels.get(event["channel"])
    if channel is None:
        runner.promise(event["source"], event["time"])
        return
    meta = EventContext(event["source"], None, event["seq"], event["time"])
    runner.offer(channel.name, channel.type.encode(event["fields"]), meta)


def read_by_machine_code(pattern: model.Pattern) -> Runner:
    runner = Runner(pattern)
    runner.prepare()
    return runner


@settings(max_examples=examples(12), report_multiple_bugs=False, deadline=None)
@given(patterns(), streams(), st.booleans())
def test_records_one_by_one_give_the_matches_of_the_definition(
    pattern: model.Pattern, events: Events, alone: bool
) -> None:
    if alone:  # one source: no event has to wait
        events = [replace_source(event, at) for at, event in enumerate(sorted(events, key=lambda e: e["time"]))]
    runner, plainly = read_by_machine_code(pattern), Runner(pattern, mode="interpreted", interpreted=True)
    for each in (runner, plainly):
        each.expect(() if alone else SOURCES)
        for event in events:
            offer(each, event)
        each.finish()
    found = runner.matches()
    assert plain(found) == expected(pattern, events)
    assert len(found) == len(plainly.matches())
    assert replace(runner.counts, given_up=0) == replace(plainly.counts, given_up=0)


def replace_source(event: dict[str, Any], seq: int) -> dict[str, Any]:
    return {**event, "source": "n1", "seq": seq + 1}


def door(**fields: Any) -> dict[str, Any]:
    return {"who": None, "level": None, "n": 0, "big": 0, "kind": "IN", "at": None, "tag": b"", **fields}


VALUES: list[dict[str, Any]] = [
    door(n=1, level=-0.0, who="a", at=DAY, big=(1 << 64) - 1, tag=b"\xff\0"),
    door(n=1, level=0.0, who="", at=DAY + 1, big=1 << 63, kind="OUT"),
    door(n=1, level=float("nan"), who="ä", at=DAY + 2),
    door(n=-(1 << 63), level=float("inf"), who="x" * 400, at=DAY + 3),
    door(n=(1 << 63) - 1, level=None, who=None, at=DAY + 4),
    door(n=2, level=1.0, who="a", at=None),
    door(n=2, level=2.0, who="a", at=DAY + 5, big=(1 << 64) - 1),
    door(n=2, level=2.5, who="ä", at=DAY + 6, kind="OUT", tag=b"\xff\0"),
]
TEXTS = [
    "a: door(n = 1); b: door(n = 2) within 1 hour partition by who",
    "a: door; b: door within 1 hour partition by level, kind",
    "a: door; b: door within 1 hour partition by big, tag",
    "a: door(n = 1); b: door{level > a.level + 1} within 1 hour time at",
    "a: door; b: door{who = a.who} within 1 hour",
    "a: door -> b: door{level > b.prev.level or tag = a.tag}+ within 1 hour time at after match past last",
    "a: door; b: door{n + 1 > a.n} within 1 hour",
    "a: door(n = 1) , b: door within 3 events among kind = 'IN'",
    "a: door{meta.seq > 2}; b: door{meta.source = a.meta.source} within 1 hour",
]


@pytest.mark.parametrize("text", TEXTS)
def test_all_kinds_of_values_are_read_as_they_are(text: str) -> None:
    pattern = Pattern(text, DOOR).model
    quick, plainly = read_by_machine_code(pattern), Runner(pattern, mode="interpreted", interpreted=True)
    rows = read_by_machine_code(pattern)
    for seq, fields in enumerate(VALUES * 2, 1):
        event = {"channel": "door", "source": "n1", "seq": seq, "time": DAY + seq, "fields": fields}
        offer(quick, event)
        offer(plainly, event)
    for start in (0, len(VALUES)):  # few rows of a batch are read as events are
        seqs = np.arange(start + 1, start + 1 + len(VALUES))
        batch = pattern.channels[0].type.to_arrow(VALUES)
        rows.batch("door", batch, {"source": "n1", "seq": seqs, "time": DAY + seqs})
    for runner in (quick, plainly, rows):
        runner.finish()
    assert all(reading.ready() for reading in quick.readings.values()) and quick.readings
    expected = plain(plainly.matches())
    assert plain(quick.matches()) == plain(rows.matches()) == expected
    assert quick.counts == rows.counts == plainly.counts


def test_few_rows_of_several_sources_are_taken_one_by_one() -> None:
    pattern = Pattern(TEXTS[0], DOOR).model
    events = [door(n=1 + seq % 2, who="a") for seq in range(6)]
    meta = {"source": pa.array(["n1", "n2"] * 3), "node": None, "seq": list(range(6)), "time": pa.array(range(6))}
    quick, plainly = read_by_machine_code(pattern), Runner(pattern)
    for runner in (quick, plainly):
        runner.batch("door", pattern.channels[0].type.to_arrow(events), meta)
        runner.finish()
    found = plain(quick.matches())
    assert found and found == plain(plainly.matches()) and quick.counts == plainly.counts


MEASURES = "a.who as who, b.level - a.level as d, count(c) as n, sum(c.n) as total, last(c.tag) as tag, b.kind as k"


def test_measures_are_the_same_by_machine_code() -> None:
    text = f"a: door; b: door; c: door{{n = 2}}* within 4 events measures {MEASURES}, a.meta.seq as seq"
    pattern = Pattern(text, DOOR).model
    runner = Runner(pattern)
    for seq, fields in enumerate(VALUES, 1):
        offer(runner, {"channel": "door", "source": "n1", "seq": seq, "time": DAY + seq, "fields": fields})
    runner.finish()
    matches = runner.matches()
    plainly, quickly = Results(pattern), Results(pattern)
    assert quickly.measures is not None
    quickly.measures.prepare()
    assert len(matches) > 20
    for match in matches:
        assert repr(quickly.raw(match, runner.raw)) == repr(plainly.raw(match, runner.raw))


def test_a_record_that_is_none_is_judged_as_before() -> None:
    pattern = Pattern(TEXTS[0], DOOR).model
    type = pattern.channels[0].type
    good = type.encode(door(n=1, who="a"))
    not_utf8 = good.replace(b"a\0", b"\xff\0")
    assert not_utf8 != good
    runner, plainly = read_by_machine_code(pattern), Runner(pattern)
    for each in (runner, plainly):
        for seq, record in enumerate((good[:20], not_utf8, good, b"", type.encode(door(n=2, who="a"))), 1):
            each.offer("door", record, EventContext("n1", None, seq, DAY + seq))
        each.finish()
    assert runner.counts == plainly.counts
    assert len(runner.matches()) == len(plainly.matches()) == 1


def test_an_event_that_nothing_holds_is_not_kept() -> None:
    pattern = Pattern("a: door(n = 1); b: door(n = 2) within 1 hour partition by who", DOOR).model
    runner = read_by_machine_code(pattern)
    record = pattern.channels[0].type.encode(door(n=2, who="a"))
    for seq in range(100):
        runner.offer("door", record, EventContext("n1", None, seq, DAY + seq))
    assert runner.counts.rows == 100 and runner.events.size == 0


def test_what_is_due_is_found_among_many_partitions() -> None:
    pattern = Pattern("a: door(n = 1); without b: door(n = 2) within 1 second partition by big", DOOR).model
    runner = read_by_machine_code(pattern)
    type = pattern.channels[0].type
    runner.promise("n1", DAY - 1)  # nothing is due before anything is there
    found = 0
    for key in range(2_000):
        when = DAY + key * 1_000
        runner.offer("door", type.encode(door(n=1, big=key)), EventContext("n1", None, key, when))
        found += len(runner.matches())
        assert found == max(0, key - 1_000)  # what began a second ago may still see its end
    runner.finish()
    assert found + len(runner.matches()) == 2_000
