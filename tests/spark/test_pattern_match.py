"""`match`: what it returns, by window functions and by runners alike, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import EvolutionError, ExecutionError
from headwater.patterns.pattern import Pattern
from headwater.spark import match, pattern_choice

TYPE = "door: i64, who: text, f: f64?"
CHANNELS = {"hall.door": TYPE}
META = {"source": "origin", "seq": "number", "time": "at"}
ROWS = [
    (1, "ann", 0.5, "n1", 1, 0), (1, "bob", float("nan"), "n1", 2, 1_000_000), (2, "cid", None, "n2", 1, 1_500_000),
    (1, "ann", 2.5, "n2", 2, 1_500_000), (1, "dan", -0.0, "n1", 3, 9_000_000), (2, "eve", 1.0, "n1", 4, 9_000_001),
]  # fmt: skip
ADJACENT = "a: hall.door, b: hall.door{who != a.who} within 2 seconds partition by door "


@pytest.fixture
def doors(spark: Any) -> Any:
    columns = "door long, who string, f double, origin string, number long, us long"
    return spark.createDataFrame(ROWS, columns).selectExpr("* EXCEPT (us)", "timestamp_micros(us) AS at")


def _rows(frame: Any) -> list[Any]:
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def test_measures_are_columns_and_the_time_is_that_of_the_last_event(doors: Any) -> None:
    pattern = Pattern(ADJACENT + "measures a.who as first, b.who as second, b.f as f, b.meta.seq as n", CHANNELS)
    assert pattern_choice(pattern).kind == "window functions"
    found = match(doors, pattern, meta=META).selectExpr("first", "second", "f", "n", "unix_micros(match.time) AS us")
    rows = sorted((row.first, row.second, str(row.f), row.n, row.us) for row in found.collect())
    assert rows == [("ann", "bob", "nan", 2, 1_000_000), ("bob", "ann", "2.5", 2, 1_500_000)]


def test_runners_tell_the_same_as_window_functions(doors: Any) -> None:
    said = Pattern(ADJACENT + "measures a.who as first, b.f as f", CHANNELS)
    run = Pattern(ADJACENT + "measures a.who as first, max(b.f) as f", CHANNELS)
    assert [pattern_choice(each).kind for each in (said, run)] == ["window functions", "runners"]
    told = [match(doors, each, meta=META).selectExpr("first", "f", "match.time") for each in (said, run)]
    assert _rows(told[0]) == _rows(told[1])


def test_without_measures_a_match_has_its_events(doors: Any) -> None:
    (row, *_) = match(doors, Pattern(ADJACENT, CHANNELS), meta=META).orderBy("match.time").collect()
    assert (row.a.who, row.b.who, row.b.door) == ("ann", "bob", 1)


def test_identities_are_the_same_however_a_match_was_found(doors: Any) -> None:
    pattern = Pattern(ADJACENT, CHANNELS)
    one = match(doors, pattern, meta=META).collect()
    assert len({bytes(row.match.identity) for row in one}) == 2
    assert all(len(row.match.identity) == 16 and not row.match.uncertain for row in one)
    assert [row.match.identity for row in match(doors, pattern, meta=META, identity=False).collect()] == [None, None]


def test_matches_of_a_log_are_found_by_its_own_columns(doors: Any) -> None:
    log = doors.withColumnsRenamed({"origin": "event_source", "number": "event_seq", "at": "event_time"})
    assert match(log, Pattern(ADJACENT, CHANNELS)).count() == 2


def test_matches_are_a_frame_like_any_other(doors: Any) -> None:
    found = match(doors, Pattern(ADJACENT + "measures b.who as who", CHANNELS), meta=META)
    assert [row.who for row in found.where("who = 'bob'").collect()] == ["bob"]


def test_frames_that_do_not_fit_are_refused(doors: Any) -> None:
    pattern = Pattern(ADJACENT, CHANNELS)
    with pytest.raises(ExecutionError, match="expected meta columns for source, seq, time, found none for source"):
        match(doors, pattern, meta={"seq": "number", "time": "at"})
    with pytest.raises(EvolutionError, match="door: expected bigint"):
        match(doors.drop("door"), pattern, meta=META)
    with pytest.raises(TypeError, match="expected a Pattern"):
        match(doors, "a, b", meta=META)  # type: ignore[arg-type]
    two = Pattern("a: x; b: y within 1 second", {"x": TYPE, "y": TYPE})
    with pytest.raises(ExecutionError, match="give a DataFrame for each, by its name"):
        match(doors, two, meta=META)
    with pytest.raises(ExecutionError, match=r"found none for \['y'\]"):
        match({"x": doors}, two, meta=META)
