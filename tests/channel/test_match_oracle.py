"""Live delivery of patterns is held to the definition: random patterns and streams through a node."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.errors import PatternError
from headwater.patterns import model, written
from headwater.patterns.checker.check import check
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.identity import identity
from headwater.testing import ManualClock
from tests.effort import rounds
from tests.federation.nodes import eventually, nodes
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, SOURCES, is_decided, patterns, streams, written_patterns

SECOND = 1_000_000
TIMED = {name: f"t: i64?, {type}" for name, type in CHANNELS.items()}  # `t` is what events say of their time
BY_COUNT = (written.Window(rows=2), written.Window(rows=4), written.Window(rows=9))
Found = tuple[bytes, int, bool]
pytestmark = pytest.mark.filterwarnings("ignore::headwater.HeadwaterWarning")


@st.composite
def own_times(draw: st.DrawFn) -> model.Pattern:
    """Patterns of events that say their own time, some of which may be late."""
    form = draw(written_patterns())
    form = replace(form, time=written.Condition("t"), lateness=draw(st.sampled_from((0, 0, 1, 3))))
    try:
        return check(form, TIMED)
    except PatternError:
        reject()


@st.composite
def ends(draw: st.DrawFn) -> dict[tuple[str, str], int]:
    """For sources that close in the middle, how many events they publish."""
    return {
        (channel, source): draw(st.integers(0, 3))
        for channel in CHANNELS for source in SOURCES if draw(st.integers(0, 3)) == 0
    }  # fmt: skip


def _expected(pattern: model.Pattern, events: list[dict[str, Any]], promised: int | None) -> list[Found]:
    return sorted(
        (identity(pattern.fingerprint, list(each.events), each.deadline), each.time, False)
        for each in oracle.matches(pattern, events, promised)
    )


def _delivered(pattern: model.Pattern, watch: Any) -> list[Found]:
    ours = []
    while (got := watch.poll()) is not None:
        about = pattern.output.to_raw(got)["match"]
        ours.append((about["identity"], about["time"], about["uncertain"]))
    return ours


class _Lab:
    """A node whose sources publish streams, and what they have published."""

    def __init__(self, types: dict[str, str], *, in_batches: bool, ends: dict[tuple[str, str], int]) -> None:
        self.clock = ManualClock()
        self.begin = self.clock.time()
        self.node = Node("lab", clock=self.clock)
        self.channels = {name: self.node.channel(name, type) for name, type in types.items()}
        self.sources: dict[tuple[str, str], Any] = {
            (at, name): self.channels[at].source(name) for at in self.channels for name in SOURCES
        }
        self.in_batches, self.ends = in_batches, ends
        self.published: list[dict[str, Any]] = []
        self.numbers: Counter[tuple[str, str]] = Counter()

    def publish(self, event: dict[str, Any]) -> None:
        at = event["channel"], event["source"]
        if self.numbers[at] >= self.ends.get(at, 1_000):
            self.sources[at].close()
            return
        if self.in_batches:
            self.sources[at].publish_many(self.channels[at[0]].type.to_arrow([event["fields"]]))
        else:
            self.sources[at].publish(event["fields"])
        self.numbers[at] += 1
        self.published.append({**event, "node": "lab", "seq": self.numbers[at], "time": self.clock.time()})

    def compare(self, found: list[model.Pattern], watches: list[Any], promised: int | None) -> None:
        for pattern, watch in zip(found, watches, strict=True):
            ours, theirs = _delivered(pattern, watch), _expected(pattern, self.published, promised)
            if is_decided(pattern):
                assert sorted(ours) == theirs, pattern.text
            else:
                assert not Counter(ours) - Counter(theirs), pattern.text


@settings(max_examples=rounds(4, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(found=st.lists(patterns(), min_size=3, max_size=3), events=streams(), in_batches=st.booleans(), ends=ends())
def test_what_is_delivered_is_what_the_definition_says(
    found: list[model.Pattern], events: list[dict[str, Any]], in_batches: bool, ends: dict[tuple[str, str], int]
) -> None:
    """Several patterns at one node, several sources; times of publication are those of the clock."""
    lab = _Lab(CHANNELS, in_batches=in_batches, ends=ends)
    with lab.node:
        watches = [lab.node.match(Pattern.from_model(each), queue=100_000) for each in found]
        for event in sorted(events, key=lambda event: event["time"]):
            lab.clock.advance_to(event["time"] / SECOND)
            lab.publish(event)
        lab.clock.advance(60)
        lab.compare(found, watches, lab.clock.time())


@settings(max_examples=rounds(4, 100), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(patterns(windows=BY_COUNT, selections=("strict", "next", "any", "strict")), min_size=3, max_size=3),
    events=streams(most=12),
    in_batches=st.booleans(),
)
def test_windows_by_count_and_strict_steps(
    found: list[model.Pattern], events: list[dict[str, Any]], in_batches: bool
) -> None:
    """Rows that fit nothing count; what a further row would have to decide is not delivered."""
    lab = _Lab(CHANNELS, in_batches=in_batches, ends={})
    with lab.node:
        watches = [lab.node.match(Pattern.from_model(each), queue=100_000) for each in found]
        for event in sorted(events, key=lambda event: event["time"]):
            lab.clock.advance_to(event["time"] / SECOND)
            lab.publish(event)
        lab.clock.advance(60)
        lab.compare(found, watches, lab.clock.time())


def _saying(events: list[dict[str, Any]], missing: int) -> list[dict[str, Any]]:
    """Events that say their time; one of them does not."""
    return [
        {**event, "fields": {**event["fields"], "t": None if at == missing else event["time"]}}
        for at, event in enumerate(events)
    ]


@settings(max_examples=rounds(5, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(own_times(), min_size=3, max_size=3),
    events=streams(most=10, late=True),
    in_batches=st.booleans(),
    ends=ends(),
    missing=st.integers(0, 20),
)
def test_events_that_say_their_own_time(
    found: list[model.Pattern],
    events: list[dict[str, Any]],
    in_batches: bool,
    ends: dict[tuple[str, str], int],
    missing: int,
) -> None:
    """They come out of order, and late. When all sources have closed and time has passed, that is all there is."""
    lab = _Lab(TIMED, in_batches=in_batches, ends=ends)
    with lab.node:
        watches = [lab.node.match(Pattern.from_model(each), queue=100_000) for each in found]
        for event in _saying(events, missing):
            lab.clock.advance(0.001)
            lab.publish(event)
        for source in lab.sources.values():
            source.close()
        lab.clock.advance(60)
        judged = [oracle.judge(pattern, lab.published) for pattern in found]
        lab.compare(found, watches, None)
        for watch, each in zip(watches, judged, strict=True):
            report = watch.report()
            assert (report.late, report.timeless, report.keyless) == (each.late, each.timeless, each.keyless)


@settings(max_examples=rounds(1, 10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    found=st.lists(own_times(), min_size=4, max_size=4),
    events=streams(most=10, late=True),
    nearby=st.lists(st.booleans(), min_size=10, max_size=10),
)
def test_sources_at_two_nodes(found: list[model.Pattern], events: list[dict[str, Any]], nearby: list[bool]) -> None:
    """Sources of one name at two nodes of a federation: how their events arrive among each other does not matter."""
    published, numbers = list[dict[str, Any]](), Counter[tuple[str, str, str]]()
    with nodes() as made:
        desk, far = made("desk"), made("far")
        sources = {
            (node.name, channel, name): node.channel(channel, type).source(name)
            for node in (desk, far) for channel, type in TIMED.items() for name in SOURCES
        }  # fmt: skip
        made.together()
        made.ready(desk)
        watches = [desk.match(Pattern.from_model(each), queue=100_000) for each in found]
        made.ready(desk)
        for event, near in zip(_saying(events, 99), nearby, strict=False):
            at = "desk" if near else "far", event["channel"], event["source"]
            sources[at].publish(event["fields"])
            numbers[at] += 1
            published.append({**event, "node": at[0], "seq": numbers[at]})
        made.flush()
        for source in sources.values():
            source.close()
        for pattern, watch in zip(found, watches, strict=True):
            judged, channels = oracle.judge(pattern, published), {each.name for each in pattern.channels}
            came = sum(event["channel"] in channels for event in published)
            eventually(lambda watch=watch, came=came: watch.report().events == came)
            theirs = _expected(pattern, published, None)
            ours = list[Found]()

            def all_came() -> bool:
                ours.extend(_delivered(pattern, watch))  # noqa: B023
                return len(ours) >= len(theirs)  # noqa: B023

            if is_decided(pattern):
                eventually(all_came)
                assert sorted(ours) == theirs, pattern.text
            else:
                assert not Counter(_delivered(pattern, watch)) - Counter(theirs), pattern.text
            report = watch.report()
            assert (report.late, report.timeless, report.keyless) == (judged.late, judged.timeless, judged.keyless)


def test_sources_of_one_name_on_two_channels_count_by_themselves() -> None:
    """Of one time, the first of either channel goes by the name of the channel, though it comes later."""
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        b, a = (node.channel(name, "n: i64").source("s") for name in "ba")
        watch = node.match("x: a; y: b within 1 second measures x.n as x, y.n as y")
        b.publish(n=1)
        a.publish(n=2)
        clock.advance(5)
        found = watch.poll()
        assert found is not None and (found.x, found.y) == (2, 1)


@pytest.mark.parametrize("in_batches", [False, True])
def test_what_is_late_in_one_channel_is_not_in_another(in_batches: bool) -> None:
    """Rows that fit nothing are late, too, one by one as in batches."""
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        a, b = (node.channel(name, "t: i64, n: i64").source("s") for name in "ab")
        watch = node.match("x: b{n > 0}; y: a{n > 0} within 1 second time t measures x.n as x, y.n as y")
        for source, t, n in ((a, 10, 1), (b, 5, 2), (a, 9, 0), (b, 4, 0)):
            if in_batches:
                source.publish_many([{"t": t, "n": n}])
            else:
                source.publish(t=t, n=n)
        a.close()
        b.close()
        clock.advance(5)
        found = watch.poll()
        assert found is not None and (found.x, found.y) == (2, 1)
        assert watch.report().late == 2
