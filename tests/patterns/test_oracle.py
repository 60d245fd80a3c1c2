"""The oracle itself: what must hold of the matches of any pattern, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings

from headwater.patterns import model
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

_EXAMPLES = settings(max_examples=150, deadline=None)


def _marks(pattern: model.Pattern, events: list[dict[str, Any]]) -> list[Any]:
    return [(match.events, match.deadline) for match in oracle.matches(pattern, events)]


@_EXAMPLES
@given(patterns(), streams())
def test_each_match_is_there_once_and_within_its_window(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    found = oracle.matches(pattern, events)
    times = {(e["channel"], e["source"], e["seq"]): e["time"] for e in events}
    assert len({(match.events, match.deadline) for match in found}) == len(found)
    for match in found:
        taken = [times[origin] for _, origin in match.events]
        assert taken == sorted(taken)
        assert len({origin for _, origin in match.events}) == len(match.events)
        assert pattern.window is not None
        if pattern.window.microseconds is not None:
            assert taken[-1] - taken[0] <= pattern.window.microseconds


@_EXAMPLES
@given(patterns(), streams())
def test_every_rule_after_a_match_leaves_some_of_all_occurrences(
    pattern: model.Pattern, events: list[dict[str, Any]]
) -> None:
    everything = _marks(replace(pattern, after=model.After("no skip"), reuse=True), events)
    assert set(_marks(pattern, events)) <= set(everything)
    past = _marks(replace(pattern, after=model.After("past last"), reuse=True), events)
    assert bool(past) == bool(everything)
    apart = _marks(replace(pattern, after=model.After("no skip"), reuse=False), events)
    used = [origin for events_, _ in apart for _, origin in events_]
    assert len(used) == len(set(used)) and bool(apart) == bool(everything)


@_EXAMPLES
@given(patterns(after=("no skip",)), streams())
def test_what_is_promised_only_adds_matches(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    pattern = replace(pattern, reuse=True)
    everything = oracle.matches(pattern, events)
    before: list[oracle.Match] = []
    for promised in (0, 3, 50, 1_000):
        now = oracle.matches(pattern, events, promised)
        assert set(before) <= set(now) <= set(everything)
        before = now
    assert before == everything
