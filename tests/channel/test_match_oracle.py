"""Live delivery of patterns is held to the definition: random patterns and streams through a node."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.patterns import model
from headwater.patterns.events import source_id
from headwater.patterns.identity import identity
from headwater.patterns.pattern import Pattern
from headwater.testing import ManualClock
from tests.effort import rounds
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, SOURCES, patterns, streams

SECOND = 1_000_000
FOR_EVER = 3600 * SECOND
pytestmark = pytest.mark.filterwarnings("ignore::headwater.HeadwaterWarning")


def _expected(pattern: model.Pattern, events: list[dict[str, Any]], promised: int) -> list[tuple[bytes, int, bool]]:
    # By times of publication nothing is late; that a source of this name has come further in the other channel is no
    # reason to think so.
    found = oracle.matches(replace(pattern, lateness=FOR_EVER), events, promised)
    made = []
    for each in found:
        events = [(label, (channel, source_id(source, "lab"), seq)) for label, (channel, source, seq) in each.events]
        made.append((identity(pattern.fingerprint, events, each.deadline), each.time, False))
    return sorted(made)


@settings(max_examples=rounds(4, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(found=st.lists(patterns(), min_size=3, max_size=3), events=streams(), in_batches=st.booleans())
def test_what_is_delivered_is_what_the_definition_says(
    found: list[model.Pattern], events: list[dict[str, Any]], in_batches: bool
) -> None:
    """Several patterns at one node, several sources; times of publication are those of the clock. What is held back
    for want of a time window would come later."""
    found = [each for each in found if each.window is not None and each.window.microseconds is not None]
    assume(found)
    clock = ManualClock()
    begin = clock.time()
    published: list[dict[str, Any]] = []
    numbers: Counter[tuple[str, str]] = Counter()
    with Node("lab", clock=clock) as node:
        channels = {name: node.channel(name, type) for name, type in CHANNELS.items()}
        watches = [node.match(Pattern.from_model(each), queue=100_000) for each in found]
        sources = {(at, name): channels[at].source(name) for at in channels for name in SOURCES}
        for event in sorted(events, key=lambda event: event["time"]):
            clock.advance_to(event["time"] / SECOND)
            at = event["channel"], event["source"]
            if in_batches:
                sources[at].publish_many(channels[at[0]].type.to_arrow([event["fields"]]))
            else:
                sources[at].publish(event["fields"])
            numbers[at] += 1
            published.append({**event, "seq": numbers[at], "time": begin + event["time"]})
        clock.advance(60)
        for pattern, watch in zip(found, watches, strict=True):
            ours = []
            while (got := watch.poll()) is not None:
                about = pattern.output.to_raw(got)["match"]
                ours.append((about["identity"], about["time"], about["uncertain"]))
            assert sorted(ours) == _expected(pattern, published, clock.time()), pattern.text
