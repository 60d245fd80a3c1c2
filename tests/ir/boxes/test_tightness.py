"""Arithmetic over narrow boxes: what is computed at any point lies within the bounds, however tight these are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir import interp
from headwater.ir.boxes import Bounder, Decider, Outcome
from headwater.ir.nodes import SetOut
from tests.effort import examples
from tests.ir.boxes.arithmetic import Grower

BOXES, POINTS = 3, 6
seeds = st.integers(0, 2**64)


@settings(max_examples=examples(600), deadline=None)
@given(seeds, st.integers(1, 5))
def test_numbers_lie_within_their_bounds(seed: int, depth: int) -> None:
    grower = Grower(seed)
    program = grower.program(depth)
    bounder = Bounder(program)
    for _ in range(BOXES):
        box = grower.box()
        bounds = bounder.bound(box)
        for _ in range(POINTS):
            point = grower.point(box)
            result = interp.run(program, point)
            value = result.output["value"] if result.output is not None else None
            assert bounds.holds(value), (bounds, value, point, box)


@settings(max_examples=examples(600), deadline=None)
@given(seeds, st.integers(1, 5))
def test_comparisons_come_out_as_they_are_said_to(seed: int, depth: int) -> None:
    grower = Grower(seed)
    program = grower.condition(depth)
    decider = Decider(program)
    for _ in range(BOXES):
        box = grower.box()
        outcome = decider.decide(box)
        if outcome is Outcome.UNKNOWN:
            continue
        for _ in range(POINTS):
            point = grower.point(box)
            passed = interp.run(program, point).status is interp.Status.PASSED
            assert (outcome is Outcome.TRUE) is passed, (outcome, passed, point, box)


@settings(max_examples=examples(300), deadline=None)
@given(seeds, st.integers(1, 5))
def test_what_is_reached_at_some_point_is_never_excluded(seed: int, depth: int) -> None:
    """With the greatest and least value found as the limit there is no room for a rounding that was forgotten."""
    grower = Grower(seed)
    program = grower.program(depth)
    value = next(stmt.value for stmt in program.body if isinstance(stmt, SetOut))
    box = grower.box()
    points = [grower.point(box) for _ in range(4 * POINTS)]
    results = [result.output["value"] for point in points if (result := interp.run(program, point)).output is not None]
    numbers = [number for number in results if number == number]
    if numbers:
        most, least = max(numbers), min(numbers)
        assert Decider(grower.against(value, "ge", most)).decide(box) is not Outcome.FALSE
        assert Decider(grower.against(value, "gt", most)).decide(box) is not Outcome.TRUE
        assert Decider(grower.against(value, "le", least)).decide(box) is not Outcome.FALSE
        assert Decider(grower.against(value, "lt", least)).decide(box) is not Outcome.TRUE
