"""Every row of the meaning, worked by hand and held against the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from tests.patterns import oracle
from tests.patterns.fixtures import Case, cases


def _there(result: dict[str, Any]) -> dict[str, Any]:
    """TOML has no way to say that a value is missing: it is left out."""
    return {name: value for name, value in result.items() if value is not None}


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_matches_are_those_worked_out_by_hand(case: Case) -> None:
    judged = oracle.judge(case.pattern.model, case.events, case.promised)
    found = [case.shown(match) for match in judged.matches]
    assert sorted(found) == sorted(case.matches)
    if case.results is not None:
        by_match = dict(zip(case.matches, case.results, strict=True))
        assert {case.shown(match): _there(match.result) for match in judged.matches} == by_match
    counts = {"timeless": judged.timeless, "keyless": judged.keyless, "unskipped": judged.unskipped}
    assert {name: count for name, count in counts.items() if count} == case.counted
