"""What the workers sum up is what the reference interpreter would, whatever the interests, the events and the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import InterestRefused
from headwater.interest import Interest, as_event_type
from headwater.ir.cost import Limits
from headwater.spark.backtest import chunk as chunks
from headwater.spark.backtest import worker
from headwater.spark.backtest.chunk import Chunk
from headwater.spark.backtest.judging import pack
from headwater.spark.backtest.report import Backtest
from headwater.spark.backtest.subscriptions import Wanted
from headwater.spark.backtest.summary import report
from headwater.spark.backtest.tally import Tally
from headwater.store.log.schema import first_table
from headwater.types import EventType, event_type
from tests import programs, strategies
from tests.effort import examples
from tests.spark.backtest.naive import Naive, Row
from tests.spark.backtest.support import START
from tests.spark.support import RICH

HOUR = 3_600_000_000
SIGHTING = as_event_type("badge: text?, network: text, room: u8, colour: enum(RED, GREEN), level: f64, data: bytes")
KINDS = (programs.predicates, programs.filters, programs.transforms)
SINKS = ("a", "b", "n1")  # n1 is a node of sources too


def batch_of(type: EventType, rows: list[Row]) -> Any:
    nodes, sources = (pa.array([getattr(row, name) for row in rows], pa.utf8()) for name in ("node", "source"))
    seqs, times = (pa.array([getattr(row, name) for row in rows], pa.int64()) for name in ("seq", "time"))
    return first_table(type, "x").rows(nodes, sources, seqs, times, type.to_arrow([row.event for row in rows]))


def run(type: EventType, wanted: list[Wanted], rows: list[Row], *, pieces: int = 1, width: int = HOUR) -> Backtest:
    package = pack(wanted, type.record)
    judge = worker.judge_of(package)
    tally = Tally(judge.items, width)
    ordered = sorted(rows, key=lambda row: (str(row.node), str(row.source), row.seq)) if judge.stateful else rows
    whole = batch_of(type, ordered)
    size = -(-len(rows) // pieces)
    parts = [whole.slice(start, size) for start in range(0, len(rows), size)]
    if judge.stateful:
        (made,) = worker.of_sources(package, width, parts)
        tally.absorb(made.column(0)[0].as_py())
    else:
        for part in parts:
            tally.absorb(worker.of_chunks(judge, width, [Chunk.of(part, judge)]))
    return report(tally, wanted, channel=None, type=type.name, seconds=0.0)


@st.composite
def logs(draw: st.DrawFn, record: Any, *, most: int = 24) -> list[Row]:
    events = draw(st.lists(strategies.raw_events(record), min_size=1, max_size=6))
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from(("n1", "n2")),
                st.sampled_from(("s", "t")),
                st.integers(0, 5 * HOUR),
                st.sampled_from(events),
            ),
            min_size=1,
            max_size=most,
        )
    )
    return [Row(node, source, seq, START + after, event) for seq, (node, source, after, event) in enumerate(drawn, 1)]


def interest_of(case: Any) -> Interest | None:
    try:
        return Interest.from_program(case.program, case.params, limits=Limits(fuel=programs.FUEL))
    except InterestRefused:
        return None


@st.composite
def wanted(draw: st.DrawFn, record: Any, **flags: bool) -> list[Wanted]:
    cases = draw(
        st.lists(
            st.one_of(
                programs.predicates(record, **flags),
                programs.filters(record, **flags),
                programs.transforms(record, **flags),
            ),
            min_size=1,
            max_size=5,
        )
    )
    made = [Wanted(f"w{i}", draw(st.sampled_from(SINKS)), interest_of(case)) for i, case in enumerate(cases)]
    return [*made, *(Wanted(f"{each.name} again", "a", each.interest) for each in made[:1])]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_interests_without_state(data: st.DataObject) -> None:
    rows, some = data.draw(logs(RICH)), data.draw(wanted(RICH, state=False))
    Naive(event_type(RICH), some, rows, HOUR).check(run(event_type(RICH), some, rows, pieces=2))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_interests_with_state(data: st.DataObject) -> None:
    rows, some = data.draw(logs(RICH)), data.draw(wanted(RICH))
    Naive(event_type(RICH), some, rows, HOUR).check(run(event_type(RICH), some, rows, pieces=3))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_classes_of_events_are_judged_as_each_of_them(data: st.DataObject) -> None:
    """Few different values, and some of them missing: so many events that there are classes."""
    record = SIGHTING.record
    flat = data.draw(st.sets(st.sampled_from([f.name for f in record.fields if f.name != "level"]), min_size=1))
    few = type(record)(record.name, tuple(f for f in record.fields if f.name in flat))
    some = data.draw(wanted(few, state=False, meta=False))
    some = [Wanted(w.name, w.at, w.interest.on(SIGHTING) if w.interest else None) for w in some]
    rows = data.draw(logs(record, most=12))
    many = [row._replace(seq=row.seq + 100 * i) for i in range(4) for row in rows]
    expected = Naive(SIGHTING, some, many, HOUR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "FEW", 0)
        patch.setattr(chunks, "SHARE", 1)
        found = run(SIGHTING, some, many)
    expected.check(found)
    assert "classes" in found.how or len(rows) < 8


def test_undecided_and_faults_of_classes_count_for_every_event() -> None:
    texts = ["badge = 'x'", "room div (room - 3) > 0", ":kinds[badge] = 'p'", "network = 'n'"]
    some = [
        Wanted(text, "a", Interest(text, SIGHTING, params={"kinds": {"x": "p"}} if "kinds" in text else {}))
        for text in texts
    ]
    events = [
        {"badge": (None, "x", "y")[i % 3], "network": "n", "room": i % 5, "colour": 0, "level": 0.5, "data": b""}
        for i in range(3000)
    ]
    rows = [Row("n1", "s", i + 1, START + i, event) for i, event in enumerate(events)]
    found = run(SIGHTING, some, rows)
    assert found.how.startswith("matching classes")
    Naive(SIGHTING, some, rows, HOUR).check(found)
    assert found.subscriptions[0].undecided == 1000
    assert found.subscriptions[1].faults == {"division": 600}
    assert (found.subscriptions[2].passed, found.subscriptions[2].undecided) == (1000, 2000)


def test_too_many_values_are_matched_one_by_one() -> None:
    some = [Wanted("w", "a", Interest("badge = 'b7'", SIGHTING)), Wanted("l", "a", Interest("level > 0.5", SIGHTING))]
    events = [
        {"badge": f"b{i}", "network": "n", "room": 1, "colour": 0, "level": i / 2000, "data": b""} for i in range(2000)
    ]
    rows = [Row("n1", "s", i + 1, START + i, event) for i, event in enumerate(events)]
    found = run(SIGHTING, some, rows, pieces=2)
    assert found.how == "matching each event: 2,000 events"
    assert [row.passed for row in found.subscriptions] == [1, 999]


def test_times_are_kept_in_as_many_stretches_as_make_sense() -> None:
    some = [Wanted("w", "a", None)]
    event = {"badge": None, "network": "n", "room": 1, "colour": 0, "level": 0.5, "data": b""}
    rows = [Row("n1", "s", i + 1, START + i * 60_000_000, event) for i in range(600)]
    found = run(SIGHTING, some, rows, pieces=7, width=0)
    assert found.width is not None and found.width.total_seconds() == 900
    assert sum(row.events for row in found.times) == 600 and len(found.times) <= 41
    far = [*rows, Row("n1", "s", 999, 0, event)]
    found = run(SIGHTING, some, far, pieces=3, width=0)
    assert sum(row.events for row in found.times) == 601 and len(found.times) < 96
    exact = run(SIGHTING, some, rows, pieces=7, width=60_000_000)
    assert [row.events for row in exact.times] == [1] * 600
