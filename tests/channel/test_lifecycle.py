"""Beginnings and ends of sources, sinks, timers, nodes: what is counted then, what is left behind, races at the end."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

from headwater import Channel, Config, Event, Node, Queue, Source, Subscription, event_type
from headwater.channel.options.config import Dispatch
from headwater.correlation import all_of, on
from headwater.dispatch import ByDeadline, Pool
from headwater.errors import ClosedError
from headwater.reports import Counts
from headwater.testing import ManualClock
from tests.channel.concurrency import Threads
from tests.channel.events import Detailed, Sighting, sighting
from tests.effort import rounds

TYPE = event_type(Sighting)
SUMMED = [field.name for field in fields(Counts) if field.name != "failed"]  # that is counted for subscriptions only


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def agree(channels: list[Channel], sources: list[Source], subscriptions: list[Subscription]) -> bool:
    """Whether all channels, all sources and all subscriptions together, ended or not, count the same."""
    sums = []
    for group in (channels, sources, subscriptions):
        reports = [each.report() for each in group]
        counts = sum((report.counts for report in reports), Counts())
        assert all(getattr(report.counts, name) >= 0 for report in reports for name in SUMMED if name != "faults")
        sums.append((sum(report.latency.count for report in reports), *(getattr(counts, name) for name in SUMMED)))
    return sums[0] == sums[1] == sums[2]


def test_what_waits_at_a_sink_that_was_cancelled_is_not_delivered() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        pulls, source = channel.subscribe(), channel.source()
        source.publish_many([sighting(n) for n in range(5)])
        pulls.cancel()
        assert channel.report().counts.queued == source.report().counts.queued == pulls.counts.queued == 5
        pulls.get()
        assert agree([channel], [source], [pulls])
        assert source.report().counts.delivered == 1


def test_a_source_that_ended_counts_what_becomes_of_its_events() -> None:
    """And only that, with and without facts, whether they are dropped or delivered after its end."""
    with Node() as node:
        channel = node.channel("a", Sighting)
        sources = [channel.source(facts=facts) for facts in (None, None, {"network": "ORL-Net#1"})]
        short = channel.subscribe(queue=Queue(limit=4, policy="drop_oldest"))
        whole = channel.subscribe()
        for source in sources:
            source.publish_many([sighting(n) for n in range(5)])
            source.close()
            assert agree([channel], sources, [short, whole])
        last = channel.source()
        last.publish_many([sighting(n) for n in range(3)])
        assert agree([channel], [*sources, last], [short, whole])
        while whole.poll() is not None or short.poll() is not None:
            assert agree([channel], [*sources, last], [short, whole])
        assert [source.report().counts.dropped for source in sources] == [5, 5, 4]


def test_a_source_goes_on_counting_for_derived_channels_that_are_closed() -> None:
    with Node() as node:
        channel = node.channel("a.x", Sighting)
        derived = channel.derive("a.y", "level > 0.2")
        everything, source = node.subscribe("a.**"), channel.source()
        source.publish_many([sighting(n, level=n / 10) for n in range(5)])
        source.publish_many(TYPE.to_arrow([sighting(n, level=n / 10) for n in range(5)]))
        assert agree([channel, derived], [source], [everything])
        derived.close()
        assert agree([channel, derived], [source], [everything])
        everything.get()
        everything.get_batch(3)
        assert agree([channel, derived], [source], [everything])
        everything._mailbox.close(drop=True)
        assert agree([channel, derived], [source], [everything])


# ── failures, timers, names ──


class Terse(Event, name="ie.tcd.Sighting"):
    network: str


def _raises(event: object) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_a_failure_is_reported_with_the_event_that_the_handler_saw(
    native: bool, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the fast path, where the source or the sink has a type of its own."""
    monkeypatch.setattr("headwater.channel.source.NATIVE", native)
    seen: list[Any] = []
    with Node(on_error=lambda subscription, error, event: seen.append(event)) as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(_raises, type=None if wide else Terse)
        source = channel.source(type=Detailed if wide else Sighting)
        for _ in range(2):
            if wide:
                source.publish(network="x", badge=1, level=0.5, room=None, battery=1.0)
            else:
                source.publish(sighting(1, 0.5, "x"))
    assert seen == ([sighting(1, 0.5, "x")] * 2 if wide else [Terse("x")] * 2)


def test_a_timer_ends_with_its_channel(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        motion = node.channel("motion", Sighting)
        timer, once = node.every("clock", 1.0), node.after("clock", 2.5)
        silence = [node.deadline("clock", motion, 1.0, repeat=repeat) for repeat in (False, True)]
        clock.advance(1.0)
        assert timer.fired == 1 and [each.fired for each in silence] == [1, 1]
        node.channel("clock").close()
        clock.advance(5.0)
        motion.source().publish(sighting())
        clock.advance(5.0)
        assert not any(each.active for each in (timer, once, *silence)) and node._timers.pending == 0
        assert timer.fired == 1 and once.fired == 0 and [each.fired for each in silence] == [1, 1]
        assert not motion.report().subscriptions, "nobody listens for what cannot be told any more"
    assert not caplog.records


def test_a_deadline_may_hear_an_event_while_its_node_closes(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    node = Node(clock=clock)
    motion = node.channel("motion", Sighting)
    source, got = motion.source(), []

    def late(event: object) -> None:
        got.append(event)
        if len(got) < 3:
            source.publish(sighting())

    node.deadline("alarm", motion, 1.0)
    held = motion.subscribe(late, dispatch="pool")
    held.pause()
    source.publish(sighting())
    clock.advance(2.0)
    held.resume()
    node.close()
    assert not caplog.records


def test_a_source_that_takes_the_name_of_another_begins_anew() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        first = channel.source("hall")
        first.publish(sighting())
        subscription = channel.subscribe()
        assert subscription.points == {first.id: 1}
        first.close()
        second = channel.source("hall")
        assert subscription.points == {second.id: 0}
        second.publish(sighting())
        assert subscription.change(where="level > 0") == subscription.points == {second.id: 1}


@pytest.mark.parametrize("closed", [False, True])
def test_nothing_is_left_of_a_node_that_is_dropped(closed: bool) -> None:
    def made() -> list[weakref.ref[Any]]:
        node = Node()
        channel = node.channel("a", Sighting)
        derived, source = channel.derive("b", "level > 0.5"), channel.source()
        handlers: list[Any] = [None, lambda event: None]
        sinks = [each.subscribe(handler, "badge = 3") for each in (channel, derived) for handler in handlers]
        sinks.append(node.subscribe("**", None, "{ static int n = 0; n = n + 1; return n > 1; }"))
        sinks.append(node.correlate(all_of(on("a", "badge = 3"), on("b")), lambda match: None))
        source.publish_many([sighting(3, level=0.7) for _ in range(3)])
        source.publish_many(TYPE.to_arrow([sighting(3, level=0.7) for _ in range(3)]))
        if closed:
            node.close()
        return [weakref.ref(each) for each in (node, channel, derived, source, *sinks)]

    left = made()
    gc.collect()
    assert [each() for each in left if each() is not None] == []


def _batch(sink: Subscription) -> Any:
    with suppress(ClosedError):
        return sink.get_batch(7)


def test_each_thread_that_pulls_gets_events_in_order(hurried: None) -> None:
    """Whether they were published one by one or in batches, none lost and none twice."""
    with Node() as node:
        channel = node.channel("a", Sighting)
        sink, source = channel.subscribe(queue=10_000), channel.source()
        got: list[list[int]] = [[] for _ in range(4)]

        def pull(mine: list[int]) -> None:
            for number, event in enumerate(sink):
                mine.append(event.badge)
                if number % 50 == 0 and (batch := _batch(sink)) is not None:
                    mine += batch.column("badge").to_pylist()

        def publish() -> None:
            for start in range(0, 2000, 20):
                source.publish_many(TYPE.to_arrow([sighting(n) for n in range(start, start + 10)]))
                source.publish_many([sighting(n) for n in range(start + 10, start + 20)])
            sink.cancel()

        Threads(publish, *(partial(pull, mine) for mine in got)).join()
        assert all(mine == sorted(mine) for mine in got)
        assert sorted(n for mine in got for n in mine) == list(range(2000)) and sink.counts.delivered == 2000


@pytest.mark.parametrize("dispatch", [Pool(maximum=3), ByDeadline(maximum=3)])
def test_a_handler_that_closes_its_node_gives_up_nothing_that_was_published(hurried: None, dispatch: Dispatch) -> None:
    """Also what is handed to the pool in the moment in which the handler finds that nothing waits there."""
    for _ in range(rounds(40, 200)):
        node = Node(config=Config(dispatch=dispatch))
        channel = node.channel("a", Sighting)
        got: list[int] = []
        closes: Subscription = channel.subscribe(
            lambda event, node=node: node.close() if event.badge == 5 else None, about=False
        )
        channel.subscribe(lambda event, got=got: got.append(event.badge), about=False)
        source = channel.source()
        with pytest.raises(ClosedError):
            for number in range(100_000):
                source.publish(sighting(number))
        ended = node.close()
        assert got == list(range(source.seq)) and set(ended.dropped) <= {closes.name}
