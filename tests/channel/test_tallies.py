"""Counts by source, by channel and by subscription are the same events looked at from three sides."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headwater import Event, Node, Queue, State, i64
from headwater.channel.reports.report import NodeReport
from headwater.channel.routing import route
from headwater.reports import Counts


class Reading(Event):
    sensor: str
    value: i64 | None
    scale: i64


def every_other(e: Reading, *, state: State = State(n=0)) -> bool:
    state.n += 1
    return state.n % 2 == 0


INTERESTS = (None, "value > 3", "value > 3", "scale == 2", "value / scale > 1", "100 div scale > 30", every_other)


def total(parts: list[Counts]) -> Counts:
    return replace(sum(parts, Counts()), failed=0)  # failures are the sinks'


def sides(report: NodeReport) -> tuple[Counts, Counts, Counts]:
    return (
        total([each.counts for each in report.sources]),
        total([each.counts for each in report.channels]),
        total([each.counts for each in report.subscriptions]),
    )


@pytest.mark.parametrize("batches", [False, True])
def test_three_sides_of_the_same_events(batches: bool) -> None:
    with Node() as node:
        readings = node.channel("plant.reading", Reading)
        high = readings.derive("plant.reading.high", "value > 5")
        one, two = readings.source(facts={"sensor": "one"}), readings.source()
        own = high.source()
        made = [readings.subscribe(lambda event: None, where) for where in INTERESTS]
        made.append(high.subscribe(lambda event: None, "scale > 0"))
        made.append(readings.subscribe(lambda event: None, "sensor == 'one'"))
        made.append(readings.subscribe(lambda event: None, "sensor == 'two'"))
        made.append(readings.subscribe(None, "value > 0", queue=Queue(limit=4, policy="drop_oldest")))
        made.append(readings.subscribe(lambda event: None, before=lambda event: event.scale != 1))

        def publish() -> None:
            for source, name in ((one, "one"), (two, "two"), (own, "own")):
                events = [Reading(name, None if n % 4 == 0 else n, n % 3) for n in range(12)]
                if batches:
                    assert readings.type is not None
                    source.publish_many(readings.type.to_arrow(events))
                else:
                    source.publish_many(events)

        publish()
        source, channel, subscription = sides(node.report())
        assert source == channel == subscription
        assert source.undecided > 0 and source.faulty > 0 and source.dropped > 0 and source.queued == 4

        made[1].change(where="value > 7")
        made[2].pause()
        publish()
        source, channel, subscription = sides(node.report())
        assert source == channel == subscription


def test_what_a_channel_counted_stays_when_sources_and_subscriptions_go() -> None:
    with Node() as node:
        readings = node.channel("plant.reading", Reading)
        sink = readings.subscribe(lambda event: None, "value > 3")
        waiting = readings.subscribe(queue=Queue(limit=2, policy="drop_newest"))
        for facts in (None, {"scale": 1}, {"scale": 2}):
            with readings.source(facts=facts) as source:
                source.publish_many([Reading("a", n, (facts or {"scale": 0})["scale"]) for n in range(6)])
                told = source.report()
                assert told.published == 6 and told.counts.evaluated == 12
        before = readings.report()
        assert before.published == 18 and before.counts.passed == 6 + 18
        assert before.counts.dropped == 16 and before.counts.queued == 2 and before.counts.delivered == 6
        sink.cancel()
        waiting.get_batch()
        after = readings.report()
        assert after.published == 18 and after.counts == replace(before.counts, queued=0, delivered=8)


def test_the_short_way_counts_as_well() -> None:
    with Node() as node:
        readings = node.channel("plant.reading", Reading)
        source = readings.source()
        readings.subscribe(lambda event: None)
        for n in range(200):
            source.publish(sensor="a", value=n, scale=0)
        told = source.report()
        assert told.counts == Counts(evaluated=200, passed=200, delivered=200)
        assert told.latency.count == 3 == readings.report().latency.count


def test_batches_from_arrow_are_timed_at_their_source() -> None:
    with Node() as node:
        readings = node.channel("plant.reading", Reading)
        readings.subscribe(lambda batch: None, batch=True)
        source = readings.source()
        assert readings.type is not None
        batch = readings.type.to_arrow([Reading("a", 1, 1)])
        assert isinstance(batch, pa.RecordBatch)
        source.publish_many(batch)
        assert source.report().latency.count == 1


def test_reports_say_where_undecided_is_not_told_apart_from_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "EXACT", 2)
    with Node() as node:
        readings = node.channel("plant.reading", Reading)
        sinks = [readings.subscribe(lambda event: None, f"value > {n}") for n in range(2)]
        source = readings.source()
        source.publish(sensor="a", value=None, scale=1)
        assert [sink.counts.undecided for sink in sinks] == [1, 1]
        assert "told apart" not in str(node.report())
        readings.subscribe(lambda event: None, "value > 2")
        source.publish(sensor="a", value=None, scale=1)
        assert [sink.counts.undecided for sink in sinks] == [1, 1] and sinks[0].counts.rejected == 1
        (place,) = sinks[0].report().placements
        assert "for 1 events undecided was not told apart from rejected" in place.why
