"""The public object: making an interest, moving it, and running it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headwater as hw
from headwater import Event, Interest, State, f32, f64, i32, i64
from headwater.interest import Limits
from headwater.native import cache


class Reading(Event):
    sensor: str
    value: f64
    zone: i32 | None = None


class Poor(Event):
    """A source of an older type: no zone, and a narrower value."""

    sensor: str
    value: f32


class Scaled(Event):
    value: f64


def reading(value: float, sensor: str = "a", zone: int | None = None) -> Reading:
    return Reading(sensor=sensor, value=value, zone=zone)


def test_the_three_notations_share_one_fingerprint() -> None:
    said = (
        Interest("value > 3 and sensor = 'a'", Reading),
        Interest('{ if (input.value > 3 && input.sensor == "a") { return 1; } return 0; }', Reading),
        Interest(lambda e: e.value > 3 and e.sensor == "a", Reading),
        Interest("  sensor == 'a'   AND value > 3.0", Reading),
        Interest("3 < value && 'a' = sensor", Reading),
    )
    assert len({interest.fingerprint for interest in said}) == 1
    assert said[0].fingerprint != Interest("value > 4 and sensor = 'a'", Reading).fingerprint


def test_equal_interests_share_one_compilation() -> None:
    text = "value > 1234.5 and sensor = 'shared'"
    Interest(text, Reading).native().wait()
    before = cache.size()
    Interest("'shared' == sensor && 1234.5 < value", Reading).native().wait()
    Interest(lambda e: e.value > 1234.5 and e.sensor == "shared", Reading).native().wait()
    assert cache.size() == before


def test_problems_come_all_at_once() -> None:
    with pytest.raises(hw.errors.InterestError) as caught:
        Interest("valeu > 3 and sensor > 3 and no_such(value) = 1", Reading)
    assert len(caught.value.problems) == 3
    assert [p.column for p in caught.value.problems] == [1, 15, 30]


def test_serial_form_survives_the_journey() -> None:
    interest = Interest("value > :least and sensor in :sensors", Reading, params={"least": 3, "sensors": {"a"}})
    moved = Interest.loads(interest.dumps(), {"least": 3, "sensors": {"a"}})
    assert moved.fingerprint == interest.fingerprint and moved.text == interest.text
    assert moved.test(reading(4)) and not moved.test(reading(4, "b"))
    with pytest.raises(hw.errors.SerialError):
        Interest.loads(interest.dumps()[:-3])
    with pytest.raises(hw.errors.ParameterError, match="expected a value for parameter 'least', 'sensors'"):
        Interest.loads(interest.dumps())


def test_a_source_of_a_poorer_type_lacks_what_it_lacks() -> None:
    interest = Interest("value > 3 or zone = 7", Reading)
    there = interest.on(Poor)
    assert there.interpret(Poor(sensor="a", value=4.0)).status is hw.interest.Status.PASSED
    assert there.interpret(Poor(sensor="a", value=2.0)).status is hw.interest.Status.UNDECIDED


def test_parameters_change_between_events() -> None:
    running = Interest("value > :least", Reading, params={"least": 3.0}).native()
    record = hw.event_type(Reading).encode(reading(5))
    for _ in range(2):  # before and after the compiler is done
        assert running.test(record)
        running.set_params(least=6)
        assert not running.test(record)
        running.set_params(least=3)
        running.wait()
    with pytest.raises(hw.errors.ParameterError, match="did you mean 'least'"):
        running.set_params(leats=1)
    with pytest.raises(hw.errors.ParameterError, match="expected f64, found 'x'"):
        running.set_params(least="x")


def test_state_belongs_to_one_running_copy() -> None:
    def third(e: Reading, *, state: State = State(n=0)) -> bool:
        state.n += 1
        return state.n % 3 == 0

    interest = Interest(third, Reading)
    record = hw.event_type(Reading).encode(reading(1))
    one, two = interest.native(), interest.native()
    assert [one.test(record) for _ in range(4)] == [False, False, True, False]
    one.wait()
    assert [one.test(record) for _ in range(3)] == [False, True, False], "the state crosses over to native code"
    assert [two.test(record) for _ in range(3)] == [False, False, True]
    with pytest.raises(hw.errors.ExecutionError, match="lives at one source"):
        interest.test(reading(1))


def test_counts_add_up() -> None:
    running = Interest("zone / 0 > 1 or value > 3", Reading).native()
    kind = hw.event_type(Reading)
    for event in (reading(5, zone=1), reading(2, zone=1), reading(2)):
        running.run(kind.encode(event))
    counts = running.counts
    assert (counts.evaluated, counts.passed, counts.rejected, counts.undecided) == (3, 1, 0, 2)
    assert counts.faults == {hw.interest.Fault.DIVISION: 2}


def test_select_takes_events_batches_and_tables() -> None:
    interest = Interest("value > 3", Reading)
    events = [reading(4), reading(2), reading(5)]
    batch = interest.type.to_arrow(events)
    for given in (events, batch, pa.Table.from_batches([batch])):
        assert interest.select(given).selection.to_pylist() == [True, False, True]


def test_a_transformation_gives_events_of_another_type() -> None:
    interest = Interest(lambda e: Scaled(value=e.value * 2) if e.value > 1 else None, Reading, output=Scaled)
    assert interest.output is not None
    result = interest.native().run(interest.type.encode(reading(4)))
    assert result.output is not None and interest.output.decode(result.output) == Scaled(value=8.0)


def test_limits_refuse_what_costs_too_much() -> None:
    text = "{ int i; int n = 0; for (i = 0; i < 100000; i++) n += i % 7; return n > 1; }"
    assert Interest(text, Reading).cost.worst > 100_000
    with pytest.raises(hw.errors.InterestRefused, match="at worst this takes"):
        Interest(text, Reading, limits=Limits(max_worst=10_000))


def test_a_loop_whose_end_only_the_normal_form_disproves_has_fuel() -> None:
    """Once accepted, an interest runs in all executions; rewriting may drop what made a loop look as if it ended."""
    text = "{ int n = 0; while (input.zone == 1 || (n > 3 && false)) { n = n + 1; } return 1; }"
    interest = Interest(text, "zone: i32", limits=Limits(fuel=50))
    expected = (hw.interest.Status.UNDECIDED, hw.interest.Fault.FUEL)
    for outcome in (interest.interpret({"zone": 1}), interest.native().wait().run(interest.type.encode({"zone": 1}))):
        assert (outcome.status, outcome.faults) == expected


def test_covering_knows_parameters() -> None:
    wide = Interest("value > :x", Reading, params={"x": 3.0})
    assert wide.covers(Interest("value > 5", Reading))
    assert not wide.covers(Interest("value > 2", Reading))


def test_notations_are_checked() -> None:
    with pytest.raises(ValueError, match="expected one of predicate, ecode, python, found 'sql'"):
        Interest("value > 3", Reading, notation="sql")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="predicate text can only filter"):
        Interest("value > 3", Reading, output=Scaled)


def test_meta_in_python() -> None:
    interest = Interest(lambda e: hw.interest.meta.seq > 3, Reading)
    assert interest.interpret(reading(1), meta=hw.interest.EventContext(seq=4)).passed
    with pytest.raises(AttributeError, match="only inside an interest"):
        _ = hw.interest.meta.seq


def test_threads_may_share_a_running_interest() -> None:
    class Event2(Event):
        n: i64
        seen: datetime

    interest = Interest("n % 2 = 0", Event2)
    running = interest.native()
    records = [interest.type.encode(Event2(n=n, seen=datetime(2026, 1, 1, tzinfo=UTC))) for n in range(100)]
    passed: list[int] = []

    def work() -> None:
        passed.append(sum(running.test(record) for _ in range(200) for record in records))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == [10_000] * 4
    assert running.counts.evaluated == 80_000


def test_a_record_may_lie_in_any_buffer() -> None:
    interest = Interest("value > 3", Reading)
    record = interest.type.encode(reading(4.0))
    for held in (record, bytearray(record), memoryview(record)):
        assert interest.test(held)
        assert interest.interpret(held).passed


def test_frames_are_selected_from_like_batches() -> None:
    interest = Interest("value > 3 and zone is not null", Reading)
    rows = [{"sensor": "a", "value": 4.0, "zone": 1}, {"sensor": "b", "value": 4.0, "zone": None}]
    table = pa.Table.from_pylist(rows)
    for events in (table, table.to_reader(), pl.DataFrame(rows), pd.DataFrame(rows), rows, iter(rows)):
        assert interest.select(events).selection.to_pylist() == [True, False]


def test_names_that_mean_something_elsewhere_are_fields_like_others() -> None:
    for name in ("input", "meta", "output", "class", "seq", "größe", "_data"):
        on = f"{name}: i32"
        event = {name: 2}
        for definition in (f"input.{name} > 1", f"{{ return input.{name} > 1; }}"):
            if definition.startswith("{") and not name.isascii():
                continue  # C has no such names
            interest = Interest(definition, on)
            assert interest.test(event)
            assert interest.select([event]).counts.passed == 1
