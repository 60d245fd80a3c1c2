"""Interests that are disjunctions: found by what all their ways have in common, decided by native code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest import Interest, as_event_type
from headwater.match import Matcher
from tests.effort import examples
from tests.match.support import Beside

SIGHTING = as_event_type("room: i64, x: f64?, name: text, armed: bool?")
TESTS = (
    "room == {n}",
    "room in ({n}, 3, 5)",
    "room > {n}",
    "room <= {n}",
    "room != {n}",
    "x > {n}.5",
    "x == {n}.0",
    "not (x < {n}.0)",
    "name == 'n{n}'",
    "name >= 'n{n}'",
    "starts_with(name, 'n{n}')",
    "armed",
    "x is null",
    "room * 2 > {n}",
)
tests = st.builds(lambda text, n: text.format(n=n), st.sampled_from(TESTS), st.integers(0, 6))
ways = st.lists(tests, min_size=1, max_size=3).map(" and ".join)
disjunctions = st.lists(ways, min_size=2, max_size=3).map(lambda parts: "(" + ") or (".join(parts) + ")")
interests = st.one_of(disjunctions, st.builds("({}) and {}".format, disjunctions, tests))
events = st.fixed_dictionaries(
    {
        "room": st.integers(-1, 8),
        "x": st.sampled_from([None, 0.0, -0.0, 2.0, 3.5, float("nan"), float("inf")]),
        "name": st.sampled_from(["", "n0", "n2", "n2x", "n9"]),
        "armed": st.sampled_from([None, True, False]),
    }
)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(interests, min_size=1, max_size=6), st.lists(events, min_size=1, max_size=6))
def test_disjunctions_are_matched_as_they_are_by_themselves(texts: list[str], raws: list[dict[str, Any]]) -> None:
    beside = Beside(SIGHTING, plan="index")
    for text in texts:
        beside.add(Interest(text, SIGHTING))
    beside.check(raws)


FOUND_BY = {
    "room == {n} or (room == {m} and x > 3)": "range on room; then native code",
    "(room == {n} and x > 3) or (room == {n} and x < 1)": "equality on room",
    "room == {n} or x > {n}": "native code, each event",
    "room > {n} or (room > {m} and x > 3)": "range on room; then native code",
}


@pytest.mark.parametrize("text", FOUND_BY)
def test_what_all_ways_have_in_common_finds_them(text: str) -> None:
    matcher = Matcher(SIGHTING, plan="index")
    keys = [matcher.add(n, Interest(text.format(n=n, m=n + 1_000), SIGHTING)) for n in range(100)]
    matcher.snapshot()
    assert matcher.explain(keys[7]) == FOUND_BY[text]
