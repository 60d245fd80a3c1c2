"""Every row of the meaning, worked by hand and held against the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.ir.interp import EventContext
from headwater.patterns.run.runner import Runner
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
    counts = {name: getattr(judged, name) for name in ("timeless", "keyless", "late", "unskipped")}
    assert {name: count for name, count in counts.items() if count} == case.counted


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_run_finds_the_same(case: Case) -> None:
    """Each source's events come in its order, one source after the other."""
    runner = Runner(case.pattern.model, mode="interpreted", interpreted=True)
    sources = sorted({event["source"] for event in case.events})
    runner.expect(sources)
    for event in sorted(case.events, key=lambda event: (event["source"], event["seq"])):
        if event["channel"] in runner.channels:
            meta = EventContext(event["source"], None, event["seq"], event["time"])
            runner.offer(event["channel"], event["fields"], meta)
    if case.promised is None:
        runner.finish()
    else:
        for source in sources:
            runner.promise(source, case.promised)
    found = []
    for match in runner.matches():
        labelled = tuple((label, event.origin) for label, event in match.events)
        found.append(case.shown(oracle.Match(labelled, match.time, match.deadline)))
    assert sorted(found) == sorted(case.matches)
