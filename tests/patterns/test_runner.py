"""The engines against the definition: the same matches, each once, however events come and whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headwater.ir.interp import EventContext
from headwater.native.subset import prepare
from headwater.patterns import model
from headwater.patterns.engine.memory import WORTH_WAITING, Memory
from headwater.patterns.engine.separate import SeparateEngine
from headwater.patterns.engine.shared import SharedEngine
from headwater.patterns.engine.tapes import Unsupported
from headwater.patterns.run.runner import EngineName, Runner
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import SOURCES, patterns, streams

Events = list[dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def _machine_code() -> None:
    """So that what is to run compiled does from its first row on."""
    prepare(*SharedEngine.modules, *SeparateEngine.modules)
    for modules in (SharedEngine.modules, SeparateEngine.modules):
        Memory("compiled", *modules).hurry(WORTH_WAITING)


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


def rows_of(type: Any, events: Events) -> Any:
    return type.to_arrow([event["fields"] for event in events])


def offer_batch(runner: Runner, events: Events, *, alone: bool) -> None:
    """Events of one channel, as a batch; `alone`: all are of one source."""
    channel = events[0]["channel"]
    if channel not in runner.channels:
        for event in events:
            runner.promise(event["source"], event["time"])
        return
    sources = events[0]["source"] if alone else [event["source"] for event in events]
    meta = {
        "source": sources,
        "seq": [event["seq"] for event in events],
        "time": [event["time"] for event in events],
    }
    runner.batch(channel, rows_of(runner.channels[channel].type, events), meta)


def pieces(draw: Any, events: Events) -> Iterator[tuple[Events, bool]]:
    """The events in order, in pieces of one channel; those that are to come as a batch are marked."""
    at = 0
    while at < len(events):
        size = draw(st.integers(1, 4))
        piece = events[at : at + size]
        alike = [event for event in piece if event["channel"] == piece[0]["channel"]]
        if len(alike) < len(piece):
            piece = piece[:1]
        yield piece, draw(st.booleans())
        at += len(piece)


def fed(pattern: model.Pattern, events: Events, engine: EngineName | None = None) -> Runner:
    runner = Runner(pattern, mode="interpreted", interpreted=True, engine=engine)
    runner.expect(SOURCES)
    for event in events:
        offer(runner, event)
    runner.finish()
    return runner


@settings(max_examples=examples(150), report_multiple_bugs=False)
@given(patterns(after=("no skip",), between=False, rounds=False, variables=False), streams())
def test_shared_runs_find_the_matches_of_the_definition(pattern: model.Pattern, events: Events) -> None:
    pattern = replace(pattern, reuse=True)
    runner = fed(pattern, events)
    assume(runner.engine.name == "shared")  # it is not where there would be very many states
    assert plain(runner.matches()) == expected(pattern, events)


@settings(max_examples=examples(25), report_multiple_bugs=False, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    patterns(operators=("sequence", "absent"), selections=("any",), after=("no skip",), rounds=False),
    streams(12),
    st.data(),
)
def test_values_that_compare_are_found_by_their_order(
    pattern: model.Pattern, events: Events, data: st.DataObject
) -> None:
    pattern = replace(pattern, reuse=True)
    runner = Runner(pattern, mode=data.draw(st.sampled_from(("compiled", "interpreted"))), interpreted=True)
    assume(runner.engine.name == "shared" and (pattern.conditions or pattern.variables))
    runner.expect(SOURCES)
    for event in events:
        offer(runner, event)
        if data.draw(st.integers(0, 9)) == 0:
            kept = runner.snapshot({})
            runner = Runner(pattern, mode="interpreted", interpreted=True)
            runner.restore(kept)
    runner.finish()
    assert plain(runner.matches()) == expected(pattern, events)


@settings(max_examples=examples(150), report_multiple_bugs=False)
@given(patterns(), streams())
def test_runs_that_are_kept_apart_find_the_matches_of_the_definition(pattern: model.Pattern, events: Events) -> None:
    found = fed(pattern, events, "apart")
    judged = oracle.judge(pattern, events)
    assert plain(found.matches()) == expected(pattern, events)
    assert found.counts.unskipped == judged.unskipped


@settings(max_examples=examples(100), report_multiple_bugs=False)
@given(patterns(), streams(), st.data())
def test_events_come_in_any_pieces_and_runs_go_on_from_snapshots(
    pattern: model.Pattern, events: Events, data: st.DataObject
) -> None:
    mode: Any = data.draw(st.sampled_from(("compiled", "interpreted")))
    runner = Runner(pattern, mode=mode, interpreted=True)
    runner.expect(SOURCES)
    found = []
    for piece, together in pieces(data.draw, events):
        if together:
            offer_batch(runner, piece, alone=len({event["source"] for event in piece}) == 1)
        else:
            for event in piece:
                offer(runner, event)
        if data.draw(st.integers(0, 3)) == 0:
            found += runner.matches()
        if data.draw(st.integers(0, 3)) == 0:
            kept = runner.snapshot({"n1": 7})
            runner = Runner(pattern, mode=data.draw(st.sampled_from(("compiled", "interpreted"))), interpreted=True)
            assert runner.restore(kept) == {"n1": 7}
    runner.finish()
    found += runner.matches()
    assert plain(found) == expected(pattern, events)
    assert len({match.identity for match in found}) == len(found)


@settings(max_examples=examples(150), report_multiple_bugs=False)
@given(patterns(), streams())
def test_separate_runs_find_the_matches_of_the_definition(pattern: model.Pattern, events: Events) -> None:
    pattern = replace(pattern, reuse=True)
    try:
        found = fed(pattern, events, "separate")
    except Unsupported:
        return
    assert plain(found.matches()) == expected(pattern, events)
    assert found.counts.unskipped == oracle.judge(pattern, events).unskipped
