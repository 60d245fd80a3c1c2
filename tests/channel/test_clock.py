"""Clocks, and time that is advanced by hand."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.time.clock import Clock, ManualClock, SystemClock
from headwater.channel.time.timer_engine import Timers
from tests.effort import examples


def test_the_system_clock_goes_forward_and_tells_the_wall_time() -> None:
    clock: Clock = SystemClock()
    first = clock.now()
    assert clock.now() >= first
    before = time.time_ns() // 1000
    assert before <= clock.time() <= time.time_ns() // 1000


def test_a_manual_clock_stands_still() -> None:
    clock: Clock = ManualClock()
    assert clock.now() == 0.0 == clock.now()
    assert clock.time() == 946_684_800_000_000 == clock.time()


def test_wall_time_goes_along() -> None:
    clock = ManualClock(100.0, time=5_000_000)
    clock.advance(1.25)
    assert (clock.now(), clock.time()) == (101.25, 6_250_000)
    clock.advance_to(102)
    assert (clock.now(), clock.time()) == (102.0, 7_000_000)


@given(st.lists(st.integers(0, 10_000), max_size=50))
@settings(max_examples=examples(50), deadline=None)
def test_steps_of_decimal_fractions_add_up(steps: list[int]) -> None:
    clock = ManualClock()
    for step in steps:
        clock.advance(step / 1000)
    assert clock.now() == sum(steps) / 1000
    assert clock.time() == ManualClock().time() + sum(steps) * 1000


def test_time_never_goes_back() -> None:
    clock = ManualClock(10)
    clock.advance_to(5)
    assert clock.now() == 10.0


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan"), float("inf")])
def test_steps_that_are_not_possible(seconds: float) -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="finite number of seconds, 0 or more"):
        clock.advance(seconds)
    assert clock.now() == 0.0


def test_times_that_are_not_possible() -> None:
    with pytest.raises(ValueError, match="finite"):
        ManualClock(float("inf"))
    with pytest.raises(ValueError, match="finite"):
        ManualClock().advance_to(float("nan"))


def test_several_engines_on_one_clock_keep_one_order() -> None:
    clock = ManualClock()
    here, there = Timers(clock, "here"), Timers(clock, "there")
    ran: list[tuple[str, float]] = []

    def note(name: str) -> None:
        ran.append((name, clock.now()))

    there.call_at(2, lambda: note("d"))
    here.call_at(1, lambda: note("b"))
    there.call_at(1, lambda: note("a"), priority=1)
    there.call_at(1, lambda: note("c"))
    here.call_at(3, lambda: note("e"))
    clock.advance(3)
    assert ran == [("a", 1), ("b", 1), ("c", 1), ("d", 2), ("e", 3)]
    there.close()
    here.close()


def test_repr() -> None:
    assert repr(SystemClock()) == "SystemClock()"
    assert repr(ManualClock(1.5)) == "ManualClock(now=1.5)"
