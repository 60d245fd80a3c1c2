"""No event of a box contradicts what is said of the box."""

from __future__ import annotations

import math
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir import interp
from headwater.ir.boxes import Bounder, Box, Decider, Interval, Outcome
from headwater.ir.nodes import Program
from tests import programs
from tests.effort import examples

FEATURES = {"loops": False, "state": False, "arrays": False}


def value_at(event: Any, meta: Any, path: str) -> Any:
    """The raw value that a path names, None where there is none."""
    if path.startswith("@"):
        return getattr(meta, path[1:])
    here = event
    for step in re.findall(r"[^.\[\]]+", path):
        if here is None:
            return None
        if isinstance(here, dict):
            here = here[step]
        else:
            here = here[int(step)] if int(step) < len(here) else None
    return here


def around(values: list[Any]) -> Interval:
    """The least interval that holds them."""
    there = [v for v in values if v is not None and v == v]
    nan, miss = any(v is not None and v != v for v in values), None in values
    if not there:
        return Interval(math.inf, -math.inf, nan, miss)
    if isinstance(there[0], dict | list | tuple):
        return Interval(None, None, False, miss)
    return Interval(min(there), max(there), nan, miss)


def box_of(draw: st.DrawFn | Any, paths: tuple[str, ...], events: list[Any]) -> Box:
    """A box that holds all events, in which some inputs are not bounded."""
    bounded = [path for path in paths if draw(st.integers(0, 7))]
    return Box({path: around([value_at(event, meta, path) for event, meta in events]) for path in bounded})


def agrees(outcome: Outcome, status: interp.Status) -> bool:
    passed = status is interp.Status.PASSED
    return outcome is Outcome.UNKNOWN or (outcome is Outcome.TRUE) is passed


def check(program: Program, params: Any, box: Box, events: list[Any]) -> None:
    decider = Decider(program, params)
    outcome = decider.decide(box)
    for event, meta in events:
        result = interp.run(program, event, meta=meta, params=params, fuel=programs.FUEL)
        assert agrees(outcome, result.status), (outcome, result, box)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_filters_do_what_is_certain(data: Any) -> None:
    case, events = data.draw(programs.cases(**FEATURES))
    box = box_of(data.draw, Decider(case.program, case.params).inputs, events)
    check(case.program, case.params, box, events)


@settings(max_examples=examples(75), deadline=None)
@given(st.data())
def test_transformations_do_what_is_certain_and_their_fields_are_within_bounds(data: Any) -> None:
    case, events = data.draw(programs.cases(transforming=True, **FEATURES))
    box = box_of(data.draw, Decider(case.program, case.params).inputs, events)
    check(case.program, case.params, box, events)
    for field in case.program.output.fields:
        bounder = Bounder(case.program, case.params, (field.name,))
        for event, meta in events:
            result = interp.run(case.program, event, meta=meta, params=case.params, fuel=programs.FUEL)
            if result.output is not None and not isinstance(result.output[field.name], dict | list):
                assert bounder.bound(box).holds(result.output[field.name])
