"""The timer engine, over a clock advanced by hand and over the machine's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.channel.time.clock import ManualClock, SystemClock
from headwater.channel.time.timer_engine import Timers
from headwater.errors import ClosedError
from tests.effort import examples

GUARD = 120.0  # against hanging; nothing here takes long


@contextmanager
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    with no_threads_left():
        yield


# ── by hand ──


def test_a_timer_runs_once_at_its_time() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[float] = []
    handle = timers.call_after(2.5, lambda: seen.append(clock.now()))
    assert handle.active and timers.pending == 1
    clock.advance(2.4)
    assert seen == []
    clock.advance(10)
    assert seen == [2.5] and clock.now() == 12.4
    assert not handle.active and not handle.cancel() and timers.pending == 0


def test_what_is_due_already_runs_at_the_next_step() -> None:
    clock = ManualClock(5)
    timers = Timers(clock, "n")
    seen: list[float] = []
    timers.call_at(1, lambda: seen.append(clock.now()))
    assert seen == []
    clock.advance(0)
    assert seen == [5.0]


def test_due_time_first_then_priority_then_order_of_setting() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[str] = []
    for name, when, priority in [("d", 2, 0), ("b", 1, 1), ("c", 1, 1), ("e", 2, -5), ("a", 1, 7)]:
        timers.call_at(when, lambda name=name: seen.append(name), priority=priority)  # type: ignore[misc]
    clock.advance(2)
    assert seen == list("abcde")


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(-2, 2), st.booleans()), max_size=30),
    st.lists(st.integers(0, 8), max_size=10),
)
@settings(max_examples=examples(100), deadline=None)
def test_any_timers_and_any_steps(wanted: list[tuple[int, int, bool]], steps: list[int]) -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[tuple[float, int, int]] = []

    for number, (when, priority, keep) in enumerate(wanted):

        def run(when: int = when, priority: int = priority, number: int = number) -> None:
            assert clock.now() == when / 10
            seen.append((when, -priority, number))

        handle = timers.call_at(when / 10, run, priority=priority)
        if not keep:
            assert handle.cancel() and not handle.cancel()
    for step in steps:
        clock.advance(step / 10)
    kept = [(when, -priority, n) for n, (when, priority, keep) in enumerate(wanted) if keep and when <= sum(steps)]
    # What was due at 0 when the first step was taken is due at one moment too, so one order holds for all.
    assert seen == (sorted(kept) if steps else [])
    assert timers.pending == sum(keep for _, _, keep in wanted) - len(seen)


def test_periods_do_not_drift() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[tuple[float, int, float]] = []
    handle = timers.every(0.1, lambda due, missed: seen.append((due, missed, clock.now())))
    for _ in range(7):
        clock.advance(0.3)
    assert seen == [(k / 10, 0, k / 10) for k in range(1, 22)]
    assert handle.cancel()
    clock.advance(5)
    assert len(seen) == 21


def test_the_first_time_may_be_given() -> None:
    clock = ManualClock(7)
    timers = Timers(clock, "n")
    seen: list[float] = []
    timers.every(10, lambda due, missed: seen.append(due), first=10)
    clock.advance_to(35)
    assert seen == [10, 20, 30]


def test_periods_that_were_missed_are_counted() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[tuple[float, int]] = []

    def slow(due: float, missed: int) -> None:
        seen.append((due, missed))
        if len(seen) == 2:
            clock.advance(3.5)  # it takes that long

    timers.every(1, slow)
    clock.advance(8)
    assert seen == [(1, 0), (2, 0), (5, 2), (6, 0), (7, 0), (8, 0)]


def test_a_period_set_in_the_past_begins_with_the_latest_due_time() -> None:
    clock = ManualClock(100)
    timers = Timers(clock, "n")
    seen: list[tuple[float, int]] = []
    timers.every(3, lambda due, missed: seen.append((due, missed)), first=0)
    clock.advance(0)
    clock.advance(2)
    assert seen == [(99, 33), (102, 0)]


def test_timers_may_set_and_cancel_timers() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        timers.call_after(1, lambda: seen.append("second"))
        timers.call_after(0, lambda: seen.append("at once"))
        doomed.cancel()

    timers.call_at(1, first)
    doomed = timers.call_at(1.5, lambda: seen.append("never"))
    clock.advance(5)
    assert seen == ["first", "at once", "second"]


def test_a_period_may_end_itself() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[float] = []

    def run(due: float, missed: int) -> None:
        seen.append(due)
        if len(seen) == 3:
            assert handle.cancel()

    handle = timers.every(1, run)
    clock.advance(10)
    assert seen == [1, 2, 3] and timers.pending == 0


def test_an_exception_is_reported_and_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    errors: list[BaseException] = []
    timers = Timers(clock, "dublin", on_error=errors.append)
    seen: list[float] = []

    def run(due: float, missed: int) -> None:
        seen.append(due)
        raise LookupError("no such thing")

    timers.every(1, run)
    with caplog.at_level(logging.ERROR):
        clock.advance(2)
    assert seen == [1, 2] and [str(error) for error in errors] == ["no such thing"] * 2
    assert "a timer of dublin raised" in caplog.text


def test_an_error_hook_that_raises_does_no_harm_either(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()

    def hook(error: BaseException) -> None:
        raise RuntimeError("hook")

    timers = Timers(clock, "n", on_error=hook)
    seen: list[float] = []
    timers.call_at(1, lambda: [][0])
    timers.call_at(2, lambda: seen.append(2))
    with caplog.at_level(logging.ERROR):
        clock.advance(3)
    assert seen == [2] and "error hook" in caplog.text


def test_an_interrupt_goes_to_whoever_advances_the_clock() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[float] = []

    def run(due: float, missed: int) -> None:
        seen.append(due)
        if due == 1:
            raise KeyboardInterrupt

    timers.every(1, run)
    with pytest.raises(KeyboardInterrupt):
        clock.advance(2)
    assert clock.now() == 1
    clock.advance(2)
    assert seen == [1, 2, 3]


def test_closing() -> None:
    clock = ManualClock()
    timers = Timers(clock, "dublin")
    seen: list[int] = []
    handle = timers.call_at(1, lambda: seen.append(1))
    assert timers.close() and timers.close()
    clock.advance(2)
    assert seen == [] and not handle.active and timers.pending == 0
    for again in (
        lambda: timers.call_at(5, lambda: None),
        lambda: timers.call_after(5, lambda: None),
        lambda: timers.every(5, lambda due, missed: None),
    ):
        with pytest.raises(ClosedError, match="the timers of dublin are closed"):
            again()


def test_closing_in_a_timer() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    seen: list[float] = []

    def run(due: float, missed: int) -> None:
        seen.append(due)
        assert timers.close()

    handle = timers.every(1, run)
    timers.call_at(1, lambda: seen.append(-1))
    clock.advance(3)
    assert seen == [1] and not handle.active


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_times_that_are_not_possible(value: float) -> None:
    timers = Timers(ManualClock(), "n")
    with pytest.raises(ValueError, match="when must be a finite"):
        timers.call_at(value, lambda: None)
    with pytest.raises(ValueError, match="seconds must be a finite"):
        timers.call_after(value, lambda: None)
    with pytest.raises(ValueError, match="first must be a finite"):
        timers.every(1, lambda due, missed: None, first=value)
    with pytest.raises(ValueError, match="period must be a finite"):
        timers.every(value, lambda due, missed: None)
    assert timers.pending == 0


@pytest.mark.parametrize("period", [0, -1, 1e-12])
def test_periods_that_are_not_possible(period: float) -> None:
    with pytest.raises(ValueError, match="a nanosecond or more"):
        Timers(ManualClock(), "n").every(period, lambda due, missed: None)


def test_a_watchdog_set_and_cancelled_without_end_takes_no_memory() -> None:
    clock = ManualClock()
    timers = Timers(clock, "n")
    kept = timers.call_after(1000, lambda: None)
    for _ in range(5000):
        timers.call_after(60, lambda: None).cancel()
    assert len(timers._waiting) < 200
    assert kept.active and timers.pending == 1


# ── in a thread ──


class Gate:
    """Lets a test wait for what happens in another thread."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def open(self, *args: object) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(GUARD), "it never happened"


def test_no_thread_without_a_timer_and_none_after_closing() -> None:
    before = threading.active_count()
    timers = Timers(SystemClock(), "n")
    assert threading.active_count() == before
    timers.call_after(3600, lambda: None)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("headwater-n-timers") == 1
    timers.call_after(1800, lambda: None)
    assert threading.active_count() == before + 1
    assert timers.close()
    assert threading.active_count() == before


def test_timers_run_in_the_engines_thread() -> None:
    timers = Timers(SystemClock(), "n")
    gate = Gate()
    seen: list[tuple[str, bool]] = []

    def run() -> None:
        seen.append((threading.current_thread().name, timers.here()))
        gate.open()

    timers.call_after(0, run)
    gate.wait()
    assert timers.close()
    assert seen == [("headwater-n-timers", True)] and not timers.here()


def test_an_earlier_timer_overtakes() -> None:
    timers = Timers(SystemClock(), "n")
    gate = Gate()
    timers.call_after(3600, lambda: None)
    timers.call_after(0.001, gate.open)
    gate.wait()
    assert timers.close()


def test_of_those_due_together_the_most_important_run_first() -> None:
    clock = SystemClock()
    timers = Timers(clock, "n")
    inside, go, done = Gate(), Gate(), Gate()
    seen: list[str] = []

    def hold() -> None:
        inside.open()
        go.wait()

    timers.call_after(0, hold)
    inside.wait()
    now = clock.now()
    for name, priority in [("low", -1), ("middle", 0), ("high", 5), ("second high", 5)]:
        timers.call_at(now, lambda name=name: seen.append(name), priority=priority)  # type: ignore[misc]
    timers.call_at(now, done.open, priority=-9)
    go.open()
    done.wait()
    assert timers.close()
    assert seen == ["high", "second high", "middle", "low"]


def test_a_period_over_the_machines_clock() -> None:
    clock = SystemClock()
    timers = Timers(clock, "n")
    gate = Gate()
    seen: list[tuple[float, int]] = []

    def run(due: float, missed: int) -> None:
        assert due <= clock.now()
        seen.append((due, missed))
        if len(seen) == 20:
            with assigned:
                handle.cancel()
            gate.open()

    assigned = threading.Lock()
    with assigned:
        handle = timers.every(0.0005, run)
    gate.wait()
    assert timers.close()
    first = seen[0][0] - seen[0][1] * 0.0005
    turns = [round((due - first) / 0.0005) for due, _ in seen]
    assert len(seen) == 20
    # Every period is accounted for: called, or counted as missed.
    for before, after, (_, missed) in zip(turns, turns[1:], seen[1:], strict=False):
        assert after == before + 1 + missed


def test_nothing_kills_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException] = []
    timers = Timers(SystemClock(), "n", on_error=errors.append)
    gate = Gate()

    def leave() -> None:
        raise SystemExit(3)

    with caplog.at_level(logging.CRITICAL):
        timers.call_after(0, leave, priority=1)
        timers.call_after(0.001, gate.open)
        gate.wait()
    assert timers.close()
    assert [type(error) for error in errors] == [SystemExit]


def test_closing_in_the_engines_thread() -> None:
    timers = Timers(SystemClock(), "n")
    gate = Gate()
    seen: list[bool] = []

    def run() -> None:
        seen.append(timers.close())
        seen.append(timers.close())
        gate.open()

    timers.call_after(0, run)
    gate.wait()
    assert timers.close() and seen == [True, True]


def test_closing_waits_for_the_timer_that_runs_and_not_for_ever() -> None:
    timers = Timers(SystemClock(), "n")
    inside, go = Gate(), Gate()
    seen: list[int] = []

    def run() -> None:
        inside.open()
        go.wait()
        seen.append(1)

    timers.call_after(0, run)
    inside.wait()
    assert timers.close(timeout=0.01) is False
    go.open()
    assert timers.close() and seen == [1]


def test_many_threads_set_and_cancel() -> None:
    timers = Timers(SystemClock(), "n")
    ran: list[int] = []
    total, done = 400, Gate()

    def run(number: int) -> None:
        ran.append(number)
        if len(ran) == total:
            done.open()

    def set_some(base: int) -> None:
        for number in range(base, base + 100):
            timers.call_after(0.0001 * (number % 7), lambda number=number: run(number))  # type: ignore[misc]
            assert timers.call_after(3600, lambda: run(-1)).cancel()

    threads = [threading.Thread(target=set_some, args=(base,)) for base in range(0, total, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    done.wait()
    assert timers.close()
    assert sorted(ran) == list(range(total))
