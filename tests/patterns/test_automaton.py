"""The automaton goes on in the same ways as the definition, and its states tell runs apart as rows do."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from headwater.patterns import model
from headwater.patterns.automaton import NOWHERE, automaton, mask
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import patterns

DEPTH = 4  # events that are taken


def _plain(ways: list[Any], first: bool) -> list[Any]:
    found: list[Any] = []
    for way in ways:
        if way is None:
            found.append(None)
            continue
        step = way.step or model.Step()
        how = ("any", 0) if first else (step.selection, mask(step.forbidden))
        found.append((way.element, *how))
    return found


@settings(max_examples=examples(60))
@given(patterns())
def test_points_go_on_as_the_definition_does(pattern: model.Pattern) -> None:
    it = automaton(pattern)

    def compare(rest: Any, number: int, depth: int) -> None:
        ways, point = oracle.items(rest), it.points[number]
        wanted = _plain(ways, number == 0)
        found: list[Any] = [
            (way.element, *(("any", 0) if number == 0 else (way.selection, way.forbidden))) for way in point.ways
        ]
        if point.ends:
            found.insert(sum(not way.after_end for way in point.ways), None)
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(wanted))
        if depth and len(found) == len(wanted):
            targets = iter(point.ways)
            for way in ways:
                if way is not None:
                    compare(way.rest, next(targets).target, depth - 1)

    compare(pattern.root, 0, DEPTH)


@settings(max_examples=examples(60))
@given(patterns())
def test_states_hold_what_points_hold(pattern: model.Pattern) -> None:
    it = automaton(pattern)
    states = it.states
    if states is None:
        return
    for state in states:
        assert len(state.skips) == 1 << len(state.killers)
        assert {entry.element for entry in state.entries} == {it.points[p].ways[w].element for p, w in state.open}
        assert len({entry.element for entry in state.entries}) == len(state.entries)
        for target in state.skips:
            assert target == NOWHERE or set(states[target].open) <= set(state.open)
    assert "begins" in it.show()
