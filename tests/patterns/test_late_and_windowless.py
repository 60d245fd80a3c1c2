"""Runs against the definition where sources send out of order, and where there is no window."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.run.runner import Runner
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import OPERATORS, SOURCES, patterns, streams

_SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
_ENDLESS = tuple(operator for operator in OPERATORS if operator != "absent")


def _of(channel: str, source: str) -> str:
    return source if channel == "a" else f"{channel}.{source}"


def _run(pattern: model.Pattern, events: list[dict[str, Any]]) -> Runner:
    runner = Runner(pattern, mode="interpreted", interpreted=True)
    runner.expect([*SOURCES, *(_of("b", source) for source in SOURCES)])
    for event in events:
        if event["channel"] in runner.channels:
            meta = EventContext(event["source"], None, event["seq"], event["time"])
            runner.offer(event["channel"], event["fields"], meta)
    runner.finish()
    return runner


def _same(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    runner, judged = _run(pattern, events), oracle.judge(pattern, events)
    found = sorted((tuple((label, event.origin) for label, event in m.events), m.time, m.deadline or 0)
                   for m in runner.matches())  # fmt: skip
    assert found == sorted((m.events, m.time, m.deadline or 0) for m in judged.matches)
    counts = runner.counts
    assert (counts.late, counts.keyless, counts.timeless) == (judged.late, judged.keyless, judged.timeless)


@_SETTINGS
@given(patterns(), streams(late=True))
def test_late_events_are_dropped_and_counted(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    """Each channel has sources of its own: what is late goes by the numbers that they count by."""
    _same(pattern, [{**event, "source": _of(event["channel"], event["source"])} for event in events])


@_SETTINGS
@given(patterns(operators=_ENDLESS, windows=(None,)), streams())
def test_without_a_window(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    _same(pattern, events)
