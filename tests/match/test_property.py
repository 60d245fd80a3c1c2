"""Matching gives what every interest by itself gives: the same answers, the same counts, whatever the plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import InterestError
from headwater.interest import Interest
from headwater.ir.cost import Limits
from headwater.types import event_type
from tests import programs
from tests import strategies as s
from tests.effort import examples
from tests.match.support import Beside, conjunctions, interest_of

COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
}
PLANS = ("auto", "scan", "index")


@settings(max_examples=examples(150), **COMMON)
@given(st.data())
def test_conjunctions_of_comparisons(data: st.DataObject) -> None:
    record = data.draw(s.records(1))
    events = data.draw(st.lists(s.raw_events(record), min_size=1, max_size=5))
    made = data.draw(st.lists(conjunctions(record, events), min_size=1, max_size=12))
    for plan in PLANS:
        beside = Beside(event_type(record), plan=plan)
        for program in made:
            beside.add(interest_of(program))
        beside.check(events)


@settings(max_examples=examples(60), **COMMON)
@given(st.data())
def test_any_filter(data: st.DataObject) -> None:
    """Programs of all kinds beside each other; what cannot be matched here is said so."""
    record = data.draw(s.records(1))
    events = data.draw(st.lists(s.raw_events(record), min_size=1, max_size=4))
    beside = Beside(event_type(record), plan=data.draw(st.sampled_from(PLANS)))
    for _ in range(data.draw(st.integers(1, 4))):
        strategy = data.draw(st.sampled_from((programs.filters, programs.predicates)))
        case = data.draw(strategy(record, state=False, meta=False))
        try:
            interest = Interest.from_program(case.program, case.params, limits=Limits(fuel=programs.FUEL))
        except InterestError:
            continue
        if beside.matcher.takes(interest):
            beside.add(interest)
        else:
            with pytest.raises(ValueError, match="stateless filter"):
                beside.add(interest)
    for _ in range(data.draw(st.integers(0, 3))):
        beside.add(interest_of(data.draw(conjunctions(record, events))))
    beside.check(events)


@settings(max_examples=examples(60), **COMMON)
@given(st.data())
def test_adding_and_removing(data: st.DataObject) -> None:
    record = data.draw(s.records(1))
    events = data.draw(st.lists(s.raw_events(record), min_size=1, max_size=4))
    beside = Beside(event_type(record), plan=data.draw(st.sampled_from(PLANS)))
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(("add", "add", "remove", "check")))
        if step == "add":
            for program in data.draw(st.lists(conjunctions(record, events), min_size=1, max_size=5)):
                beside.add(interest_of(program))
        elif step == "remove" and beside.interests:
            chosen = data.draw(st.lists(st.sampled_from(sorted(beside.interests)), unique=True, min_size=1))
            for key in chosen:
                beside.remove(key)
        else:
            beside.check(events)
    beside.check(events)
