"""Histories against all values kept for ever, whatever is undone, and over a restart."""

from __future__ import annotations

from math import inf, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.objects.journal import Journal
from headwater.objects.triggers.history import Count, Over, Past, Was
from tests.effort import examples

SECOND = 1_000_000
VALUES = st.one_of(st.none(), st.just(nan), st.integers(-3, 3).map(float), st.sampled_from([inf, -inf, 1e300]))
THEN = st.sampled_from(["keep", "undo", "write", "restart"])
STEPS = st.lists(st.tuples(st.integers(-SECOND, 3 * SECOND), VALUES, THEN), max_size=30)


def naive(history, taken, now):
    """From everything that was ever taken in."""
    if isinstance(history, Was):
        return {"it": taken[-2][1] if len(taken) > 1 else None}
    if isinstance(history, Count):
        young = [value for time, value in taken if value and (not history.within or time > now - history.within)]
        return {"count": len(young), "whole": True}
    young = [(time, value) for time, value in taken if value is not None and value == value]
    young = [each for each in young if each[0] > now - history.within]
    if not young:
        return {"count": 0, "first": None, "last": None, "min": None, "max": None}
    values = [value for _, value in young]
    return {"count": len(young), "first": values[0], "last": values[-1], "min": min(values), "max": max(values)}


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from([Over("x", 2 * SECOND), Count("x"), Count("x", 2 * SECOND), Was("x")]), STEPS)
def test_what_is_remembered_is_what_happened(history, steps):
    journal, taken, now, clock = Journal(), [], 0, 0
    past, rows = Past(history, journal), {}

    def write():
        written = past.written()
        for number in [number for number in rows if number < written.first]:
            del rows[number]
        rows.update({row.number: row for row in written.rows})
        past.settled()

    for step, value, then in steps:
        if not isinstance(history, Over):
            value = None if value is None else value > 0
        clock += step
        mark = journal.mark()
        before = dict(rows)
        past.take(clock, value)
        if then == "undo":
            if step % 2:
                write()
            journal.back_to(mark)
            rows = before
        else:
            now = max(now, clock)
            kept = [time for time, value in taken if value is not None and value == value and value is not False]
            taken.append((max([clock, *kept]), value))
        if then in ("write", "restart"):
            write()
            journal.settled()
        if then == "restart":
            past = Past(history, journal)
            past.load(rows[number] for number in sorted(rows))
        if isinstance(history, Was) and then in ("restart", "undo"):
            continue  # it is told of the event before the last one that was taken in
        view = past.view(now)
        expected = naive(history, taken, now)
        assert {name: view[name] for name in expected} == expected


def test_a_window_is_bounded_and_says_so():
    past = Past(Over("x", 10 * SECOND, most=3), Journal())
    for second in range(5):
        past.take(second * SECOND, float(second))
    assert past.view(4 * SECOND) | {"sum": 0, "mean": 0} == {
        "count": 3, "first": 2.0, "last": 4.0, "min": 2.0, "max": 4.0, "since": 2 * SECOND, "whole": False,
        "sum": 0, "mean": 0,
    }  # fmt: skip
    assert past.view(11 * SECOND)["whole"]


def test_what_has_no_sum_has_none_that_raises():
    past = Past(Over("x", SECOND), Journal())
    past.take(1, inf)
    past.take(2, -inf)
    view = past.view(2)
    assert view["sum"] != view["sum"]
    assert (view["min"], view["max"]) == (-inf, inf)
