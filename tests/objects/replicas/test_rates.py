"""Rates: what the owner has declared is kept, whatever is tried, and so bounds how far anything can be off later."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.errors import ObjectError, TransactionError
from headwater.objects.journal import Journal
from headwater.objects.rates import Rate, Rates
from headwater.testing import ManualClock
from tests.effort import examples

LEVELS = st.sampled_from([0.0, 0.1, 0.30000000000000004, 1.0, 2.5, -1.0, 100.0])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000_000), LEVELS, st.booleans()), max_size=30))
def test_between_any_two_times_it_changes_by_no_more(steps: list[tuple[int, float, bool]]) -> None:
    journal = Journal()
    rates, rate = Rates(lambda *_: [], journal, 0), Rate(0.5, 2.0)  # type: ignore[arg-type,return-value]
    rates.declared("Tank", {"level": rate}, 0)
    rates.created("Tank", "a", 0)
    level, now, past = 0.0, 0, [(0, 0.0)]
    for micros, wanted, undone in steps:
        now += micros
        mark = journal.mark()
        try:
            rates.check("Tank", "a", {"level": level}, {"level": wanted}, now)
        except ObjectError:
            continue
        if undone:
            journal.back_to(mark)
            continue
        level = wanted
        past.append((now, level))
    for index, (then, before) in enumerate(past):
        for later, after in past[index:]:
            step = abs(Fraction(after) - Fraction(before))
            assert step <= Fraction(rate.within((later - then) / 1e6)), (then, later)


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[tuple[Any, ManualClock]]:
    clock = ManualClock()
    with Node("plant", state=tmp_path / "state", clock=clock) as node:
        node.objects.type("Tank", "level: f64, label: text?")
        yield node, clock


def level(node: Any, value: float) -> None:
    with node.objects.transaction() as t:
        t.update("tank", level=value)


def test_what_is_too_fast_is_refused_and_says_by_how_much(plant: tuple[Any, ManualClock], tmp_path: Path) -> None:
    node, clock = plant
    node.objects.limit_rates("Tank", {"level": 0.5}, burst=2.0)
    with node.objects.transaction() as t:
        t.create("tank", "Tank", level=10.0)
    level(node, 11.0)  # a full allowance
    with pytest.raises(TransactionError, match=r"level: expected to change by at most .* now \(0.5 per second\)"):
        level(node, 11.5)
    clock.advance(1.0)
    level(node, 11.5)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(TransactionError, match="expected to change by at most"):
            level(node, wrong)
    node.close()
    clock.advance(0.5)
    with Node("plant", state=tmp_path / "state", clock=clock) as again:
        with pytest.raises(TransactionError, match="expected to change"):
            level(again, 12.0)  # what was used before is not known
        clock.advance(1.1)
        level(again, 12.0)
        again.objects.limit_rates("Tank", {})
        level(again, 99.0)


def test_all_that_is_wrong_with_rates_is_said(plant: tuple[Any, ManualClock]) -> None:
    with pytest.raises(ObjectError) as found:
        plant[0].objects.limit_rates("Tank", {"levle": 1.0, "label": 1.0, "level": -1}, burst=float("nan"))
    said = str(found.value)
    assert all(each in said for each in ("burst: ", "levle: ", "label: ", "level: ")), said
