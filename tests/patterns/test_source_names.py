"""Sources of one name at two nodes are two: their events are in one order, and a match says whose they are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.run.events import source_id
from headwater.patterns.run.identity import identity
from headwater.patterns.run.runner import Runner
from tests.effort import rounds
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

NODES = {"n1": "west", "n2": "east"}


@given(patterns(), streams())
@settings(max_examples=rounds(30, 300), deadline=None)
def test_sources_of_one_name_at_two_nodes(pattern: model.Pattern, events: list[dict[str, Any]]) -> None:
    told = [{**event, "source": "n1", "node": NODES[event["source"]]} for event in events]
    runner = Runner(pattern)
    runner.expect(source_id("n1", node) for node in NODES.values())
    for event in told:
        if event["channel"] in runner.channels:
            meta = EventContext("n1", event["node"], event["seq"], event["time"])
            runner.offer(event["channel"], event["fields"], meta)
    runner.finish()
    found = sorted(match.identity for match in runner.matches())
    expected = [identity(pattern.fingerprint, each.events, each.deadline) for each in oracle.matches(pattern, told)]
    assert found == sorted(expected)
    assert len(set(found)) == len(found)
