"""The engines against the definition: the same matches, each once, however events come and whatever happens between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings

from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.engine.apart import ApartEngine
from headwater.patterns.runner import Runner
from tests.patterns import oracle
from tests.patterns.strategies import SOURCES, patterns, streams

Events = list[dict[str, Any]]


def plain(matches: Any) -> list[Any]:
    return sorted(
        ([(label, event.origin) for label, event in match.events], match.time, match.deadline) for match in matches
    )


def expected(pattern: model.Pattern, events: Events, promised: int | None = None) -> list[Any]:
    return sorted(
        ([(label, origin) for label, origin in match.events], match.time, match.deadline)
        for match in oracle.matches(pattern, events, promised)
    )


def offer(runner: Runner, event: dict[str, Any]) -> None:
    meta = EventContext(event["source"], None, event["seq"], event["time"])
    if event["channel"] not in runner.channels:  # whoever feeds a runner does not offer it what it does not take
        runner.promise(event["source"], event["time"])
        return
    runner.offer(event["channel"], event["fields"], meta)


def fed(pattern: model.Pattern, events: Events, runner: Runner | None = None) -> Runner:
    runner = runner or Runner(pattern, mode="interpreted", interpreted=True)
    runner.expect(SOURCES)
    for event in events:
        offer(runner, event)
    runner.finish()
    return runner


@settings(max_examples=150, report_multiple_bugs=False)
@given(patterns(after=("no skip",), between=False, rounds=False, variables=False), streams())
def test_shared_runs_find_the_matches_of_the_definition(pattern: model.Pattern, events: Events) -> None:
    pattern = replace(pattern, reuse=True)
    runner = fed(pattern, events)
    assert runner.engine.name == "shared"
    assert plain(runner.matches()) == expected(pattern, events)


@settings(max_examples=150, report_multiple_bugs=False)
@given(patterns(), streams())
def test_runs_that_are_kept_apart_find_the_matches_of_the_definition(pattern: model.Pattern, events: Events) -> None:
    runner = Runner(pattern, interpreted=True)
    runner.engine = ApartEngine(pattern, runner.automaton, runner._fields, "interpreted", True)
    found = fed(pattern, events, runner)
    judged = oracle.judge(pattern, events)
    assert plain(found.matches()) == expected(pattern, events)
    assert found.counts.unskipped == judged.unskipped
