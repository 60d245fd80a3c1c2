"""What is going on: counts that add up, latency, where each interest runs and why, and reports that people can read."""

from __future__ import annotations

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from headwater import Config, Interest, Node, Queue, Subscription, event_type
from headwater.dispatch import Pool
from headwater.interest import Fault
from headwater.reports import Counts
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Alarm, Sighting, sighting

ROOMS = "badge: u32, zone: i64?, level: f64"


def numbers(subscription: Subscription) -> tuple[int, int, int, int]:
    counts = subscription.counts
    return counts.evaluated, counts.passed, counts.rejected, counts.undecided


# ── counts ──


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("crowd", [0, 40])
def test_every_event_is_passed_rejected_or_undecided(batch: bool, crowd: int) -> None:
    """The same whether events come one by one or in batches, few or many subscriptions beside it."""
    with Node() as node:
        channel = node.channel("a", ROOMS)
        source = channel.source()
        for number in range(crowd):
            channel.subscribe(lambda event: None, f"zone = {number}")
        everything = channel.subscribe()
        zone = channel.subscribe(where="zone = 1")
        either = channel.subscribe(where="zone = 1 or badge = 3")
        faulty = channel.subscribe(where="badge / zone > 0")
        alone = channel.subscribe(where="{ static int n = 0; n = n + 1; return input.zone == 1; }")
        rows: list[dict[str, Any]] = [
            {"badge": 1, "zone": 1, "level": 0.1}, {"badge": 2, "zone": None, "level": 0.1},
            {"badge": 3, "zone": None, "level": 0.1}, {"badge": 4, "zone": 0, "level": 0.1},
        ]  # fmt: skip
        if batch:
            source.publish_many(pa.Table.from_pylist(rows, schema=event_type(channel.type).schema))
        else:
            source.publish_many(rows)
        assert numbers(everything) == (4, 4, 0, 0)
        assert numbers(zone) == numbers(alone) == (4, 1, 1, 2)
        assert numbers(either) == (4, 2, 1, 1)
        assert numbers(faulty) == (4, 1, 0, 3)
        assert faulty.counts.faults == {Fault.DIVISION: 1} and not zone.counts.faults
        assert "1 division faults" in str(faulty.counts)


@pytest.mark.parametrize("where", [None, "badge >= 10", "{ static int n = 0; n++; return n % 2; }"])
def test_what_a_subscription_begins_with_is_evaluated_too(where: str | None) -> None:
    with Node(config=Config(history=40)) as node:
        channel = node.channel("a", ROOMS)
        source = channel.source()
        for badge in range(40):
            source.publish(badge=badge, zone=None, level=0.0)
        got: list[Any] = []
        subscription = channel.subscribe(got.append, where, history="all")
        begun = len(got)
        for badge in range(10):
            source.publish(badge=badge, zone=None, level=0.0)
        counts = subscription.counts
        assert counts.evaluated == begun + 10
        assert counts.passed == counts.delivered == len(got)
        assert counts.rejected == 10 - (len(got) - begun)
        assert channel.report().counts.delivered == source.report().counts.delivered == len(got)


def test_what_waits_of_the_past_is_queued_at_its_channel_too() -> None:
    with Node(config=Config(history=40)) as node:
        channel = node.channel("a", ROOMS)
        source = channel.source()
        for badge in range(40):
            source.publish(badge=badge, zone=None, level=0.0)
        channel.subscribe(history=30)
        for report in (channel.report(), source.report()):
            assert (report.counts.passed, report.counts.queued, report.counts.delivered) == (30, 30, 0)


def test_sums_hold_while_handlers_are_at_work() -> None:
    """An event is counted once at every moment, also between the queue and its handler."""
    with Node() as node:
        channel = node.channel("a", ROOMS)
        source, done = channel.source(), threading.Event()
        sinks = [channel.subscribe(lambda event: None, dispatch=dispatch) for dispatch in ("pool", "inline")]
        sinks.append(channel.subscribe(lambda batch: None, batch=7, dispatch="pool"))

        def publish() -> None:
            for badge in range(5_000):
                source.publish(badge=badge, zone=None, level=0.0)
            done.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        while not done.is_set():
            for sink in sinks:
                counts = sink.counts
                assert counts.passed == counts.delivered + counts.queued, counts
        publisher.join(GUARD)


def test_a_report_says_which_channels_were_refused() -> None:
    with Node() as node:
        node.channel("a.one", ROOMS)
        node.channel("a.two", "other: i32")
        report = node.subscribe("a.*", print, "badge > 1").report()
        assert list(report.refused) == ["a.two"] and "a.two" in report.to_dict()["refused"]
        assert "not attached" in str(report) and "to a.two" in str(report)


def test_what_passed_is_delivered_queued_dropped_expired_or_skipped() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(
            lambda event: None,
            "badge < 100",
            queue=Queue(limit=4, policy="drop_oldest"),
            lifetime="badge * 1.0",
            before=lambda event: event.badge != 8,
        )
        source = channel.source()
        source.publish(sighting(50))
        subscription.pause()
        for badge in (1, 2, 3, 500, 7, 8, 9):
            source.publish(sighting(badge))
        counts = subscription.counts
        assert (counts.delivered, counts.queued, counts.dropped) == (1, 4, 2)
        clock.advance(5)
        subscription.resume()
        counts = subscription.counts
        assert counts == Counts(evaluated=8, passed=7, rejected=1, delivered=3, dropped=2, expired=1, skipped=1)
        assert counts.passed == counts.delivered + counts.dropped + counts.expired + counts.skipped + counts.queued
        subscription.cancel()
        source.publish(sighting(1))
        assert subscription.counts == counts  # they stay


def test_counts_go_on_over_epochs_channels_and_sources_that_end() -> None:
    with Node() as node:
        node.channel("ie.a", Sighting)
        subscription = node.subscribe("ie.*", where="badge = 1")
        for round in range(3):
            channel = node.channel(f"ie.{'abc'[round]}", Sighting)
            with channel.source() as source, channel.source(facts={"badge": 1}) as sure:
                source.publish(sighting(1))
                source.publish(sighting(2))
                sure.publish(sighting(1))
            subscription.change(where="badge = 1 or badge = 7")
            channel.close()
            assert numbers(subscription) == (3 * (round + 1), 2 * (round + 1), round + 1, 0)


def test_counts_are_right_while_threads_publish() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        lone = channel.subscribe(lambda event: None, name="lone")  # the fast path, until others come
        stop = threading.Event()
        published: list[int] = []

        def publish() -> None:
            with channel.source() as source:
                while not stop.is_set():
                    for badge in range(5):
                        source.publish(sighting(badge))
                published.append(source.seq)

        threads = [threading.Thread(target=publish) for _ in range(2)]
        for thread in threads:
            thread.start()
        others, ended = [], []
        for _ in range(30):
            others.append(channel.subscribe(lambda event: None, "badge = 1"))
            for each in (lone, *others):
                counts = each.counts
                assert counts.evaluated == counts.passed + counts.rejected
            if len(others) > 3:
                gone = others.pop(0)
                gone.cancel()
                counts = gone.counts  # what a publisher was about to hand over is dropped, and counted
                assert counts.passed == counts.delivered + counts.dropped + counts.queued
                assert counts.queued <= len(threads)  # each may be about to call the handler
                ended.append(gone)
        stop.set()
        for thread in threads:
            thread.join(GUARD)
        for gone in ended:
            counts = gone.counts
            assert counts.passed == counts.delivered + counts.dropped and not counts.queued
        counts = lone.counts
        assert counts.evaluated == counts.passed == counts.delivered == sum(published)


def test_failures_are_counted_and_named() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)

        def handler(event: Sighting) -> None:
            raise ValueError(f"bad badge {event.badge}")

        subscription = channel.subscribe(handler, name="alarm", failures=3)
        source = channel.source()
        for badge in range(5):
            source.publish(sighting(badge))
        assert subscription.state == "paused"
        counts = subscription.counts
        assert (counts.failed, counts.delivered, counts.queued) == (3, 3, 2)
        text = str(node.report())
        assert "ValueError: bad badge 2" in text and "paused" in text
        assert subscription.report().trouble == "ValueError: bad badge 2"


def test_a_slow_sink_is_named() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        slow = channel.subscribe(queue=Queue(limit=2, policy="drop_newest"), name="slow")
        full = channel.subscribe(queue=Queue(limit=4, policy="fail"), name="full")
        channel.subscribe(lambda event: None, name="quick")
        source = channel.source()
        for badge in range(4):
            source.publish(sighting(badge))
        report = node.report()
        assert [each.name for each in report.slow] == ["slow", "full"]
        assert (slow.counts.dropped, slow.counts.queued, full.counts.dropped) == (2, 2, 0)
        section = str(report).split("slow sinks\n")[1]
        assert "slow  2 dropped, 2 queued (queue: 2 events, drop newest)" in section
        assert "full  its queue is full: publishers fail" in section and "quick" not in section


# ── latency ──


def test_latency_is_measured_for_queued_events_and_sampled_for_direct_ones() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        done = threading.Event()
        direct = channel.subscribe(lambda event: None)
        pooled = channel.subscribe(lambda event: done.set() if event.badge == 127 else None, dispatch=Pool())
        pulled = channel.subscribe()
        source = channel.source()
        for badge in range(128):
            source.publish(sighting(badge))
        assert done.wait(GUARD)
        while pulled.poll() is not None:
            pass
        assert direct._latency.count == 2  # one in 64
        assert pulled._latency.count == 128
        node.close()
        assert pooled._latency.count == 128
        for latency in (direct._latency, pooled._latency, pulled._latency):
            assert 0 < latency.min <= latency.quantile(0.5) <= latency.quantile(0.99) <= latency.max < 60e9  # type: ignore[operator]
        assert "p50" in str(pulled.report()) and node.report().latency.count == 258


# ── where and why ──


def test_where_each_interest_runs_and_why() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        derived = channel.derive("b", "room = 'hall'")
        asked: dict[str, Any] = {
            "everything": None,
            "range": "level > 0.5",
            "state": "{ static int n = 0; n = n + 1; return n % 2 == 0; }",
            "meta": "meta.seq > 5",
            "made": Interest(lambda e: Alarm(badge=e.badge, text="x"), Sighting, output=Alarm),
        }
        for name, where in asked.items():
            channel.subscribe(where=where, name=name)
        derived.subscribe(where="level > 0.5", name="through")
        channel.source("s")
        placed = {each.subscription: each for each in channel.report().placements}
        assert {name: (each.how, each.why) for name, each in placed.items()} == {
            "everything": ("every event", "there is no interest"),
            "range": ("range on level", "matched with all others in one pass"),
            "state": ("native code, alone", "it has state, which belongs to one source"),
            "meta": ("native code, alone", "it looks at the event's source, sequence number or time"),
            "made": ("native code, alone", "it is a transformation"),
        }
        (through,) = node.subscriptions["through"].report().placements
        assert (through.source, through.channel, through.how) == ("s", "b", "range on level")
        at_source = channel.sources["s"].report().placements
        assert {each.subscription for each in at_source} == {*asked, "through"}


# ── reports for people and programs ──


def busy(node: Node) -> None:
    channel = node.channel("ie.tcd.sighting", Sighting)
    node.channel("ie.tcd.raw", bytes)
    channel.derive("ie.tcd.sighting.loud", "level > :limit", params={"limit": 0.5})
    source = channel.source("hall", facts={"network": "ORL-Net#1"})
    channel.subscribe(lambda event: None, "level > 0.9 and badge < 10", name="alarm")
    node.subscribe("ie.tcd.**", lambda event: None, name="all")
    waiting = node.channel("ie.tcd.sighting.loud").subscribe(name="waiting", queue=5)
    for badge in range(100):
        source.publish(sighting(badge % 5, badge / 100))
        waiting.poll()


def test_the_report_of_a_node_is_readable() -> None:
    with Node("lab") as node:
        busy(node)
        text = str(node.report())
        lines = text.splitlines()
        assert lines[0] == "node lab, open: 3 channels, 1 source, 3 subscriptions"
        assert max(map(len, lines)) <= 118 and all(line == line.rstrip() for line in lines)
        for title in ("channels", "sources", "subscriptions", "deliveries", "where interests run"):
            assert title in lines
        assert "DispatchStatus" not in text and "  dispatch  inline" in text
        assert lines[lines.index("channels") + 1].split() == [
            "name", "type", "state", "derived", "sources", "subscriptions", "published"]  # fmt: skip
        alarm = next(line for line in lines[lines.index("subscriptions") :] if line.strip().startswith("alarm"))
        assert alarm.split()[-3:] == ["100", "9", "91"]
    report = node.report()
    assert str(report).startswith("node lab, closed")
    assert {each.state for each in (*report.channels, *report.sources, *report.subscriptions)} == {"closed"}


def test_each_report_is_readable() -> None:
    with Node("lab") as node:
        busy(node)
        channel, loud = node.channel("ie.tcd.sighting"), node.channel("ie.tcd.sighting.loud")
        assert str(channel.report()).startswith(
            "channel ie.tcd.sighting, open, events of type ie.tcd.Sighting\n"
            "  sources        1: hall\n"
            "  subscriptions  2: alarm, all\n"
            "  published      100\n"
            "  events         200 evaluated, 109 passed, 91 rejected, 109 delivered\n"
        )
        assert "derived        ie.tcd.sighting where level > :limit" in str(loud.report())
        assert "published      49" in str(loud.report())
        hall = str(channel.sources["hall"].report())
        assert hall.startswith("source hall, open, events of type ie.tcd.Sighting\n  channel    ie.tcd.sighting\n")
        assert "network = 'ORL-Net#1'" in hall and "published  100" in hall
        alarm = str(node.subscriptions["alarm"].report())
        for words in ("subscription alarm, open", "level > 0.9 and badge < 10", "100 evaluated, 9 passed, 91 rejected",
                      "1,024 events, block", "inline", "range on badge, level"):  # fmt: skip
            assert words in alarm
        assert "bytes" in str(node.channel("ie.tcd.raw").report())
        assert "pull" in str(node.subscriptions["waiting"].report())


def test_reports_are_for_programs_too_and_do_not_change() -> None:
    with Node("lab") as node:
        busy(node)
        report = node.report()
        told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert told["name"] == "lab" and [each["name"] for each in told["subscriptions"]] == ["alarm", "all", "waiting"]
        assert told["subscriptions"][0]["counts"]["passed"] == 9
        before = str(report)
        node.channel("ie.tcd.sighting").sources["hall"].publish(sighting())
        assert str(report) == before != str(node.report())


def test_a_report_may_be_asked_for_in_a_handler() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        seen: list[int] = []
        subscription = channel.subscribe(lambda event: seen.append(node.report().counts.evaluated), name="me")
        source = channel.source()
        source.publish(sighting())
        source.publish(sighting())
        assert seen == [1, 2] and subscription.report().counts.delivered == 2 and source.report().published == 2
