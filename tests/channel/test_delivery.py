"""Delivery: what is asked for at the door; durable subscriptions go on where they were."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import About, Config, Node, Subscription
from headwater.channel.options.delivery import ALL, BestEffort, Reliable
from headwater.correlation import all_of, on
from headwater.dispatch import WAIT, Pool
from headwater.errors import ClosedError, ConfigError, SubscriptionError
from headwater.store import NodeState
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Sighting, badges, sighting
from tests.channel.far import DURABLE, KEY, MANUAL, far, kept, publish

# ── at the door ──


@pytest.mark.parametrize("given", [None, "reliable", Reliable()])
def test_reliable_is_the_default(given: Any) -> None:
    with Node() as node:
        assert node.channel("a", Sighting).subscribe(print, delivery=given)._options.delivery == Reliable()
        assert node.subscribe("a", print, delivery=given)._options.delivery.name == "reliable"


def test_best_effort_by_value_or_name() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        for given in ("best_effort", BestEffort()):
            assert channel.subscribe(print, delivery=given)._options.delivery == BestEffort()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("relaible", 'delivery: expected one of "reliable", "best_effort", found "relaible"; did you mean "reliable"'),
        (Reliable, r"delivery: expected Reliable\(...\) or BestEffort\(\), found .*; an instance of it"),
        (3, r"delivery: expected Reliable\(...\) or BestEffort\(\), found 3"),
    ],
)
def test_an_unknown_delivery_is_refused(given: Any, message: str) -> None:
    with Node() as node, pytest.raises(SubscriptionError, match=message):
        node.channel("a", Sighting).subscribe(print, delivery=given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acknowledge": "later"}, 'Reliable: acknowledge: expected one of "return", "manual", found "later"'),
        ({"durable": 1}, "Reliable: durable: expected true or false, found 1"),
        ({"within": 5}, "within: expected a connection of sqlite3, or None, found 5, which has no cursor, execute"),
        ({"acknowledge": "manual"}, "add durable=True"),
    ],
)
def test_an_impossible_reliable_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reliable(**options)


def test_a_transaction_ends_with_the_handler() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match="transaction ends when the handler returns: remove acknowledge="):
        Reliable(within=connection, acknowledge="manual")
    assert Reliable(within=connection).durable
    with (
        Node() as node,
        pytest.raises(SubscriptionError, match="within= is the transaction of a handler, and there is"),
    ):
        node.channel("a", Sighting).subscribe(name="x", delivery=Reliable(within=connection))
    connection.close()


def test_a_durable_subscription_needs_a_name_and_a_place() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        with pytest.raises(SubscriptionError, match="expected a node with state for durable subscription 'x'"):
            channel.subscribe(print, name="x", delivery=DURABLE)
    with kept() as node:
        channel = node.channel("a", Sighting)
        with pytest.raises(SubscriptionError, match="found again by its name, and this one has none; add name="):
            channel.subscribe(print, delivery=DURABLE)
        with pytest.raises(SubscriptionError, match="found again by its name"):
            node.subscribe("a", print, delivery=DURABLE)
        assert node.subscriptions == {}


def test_a_durable_subscription_is_in_source_order() -> None:
    with kept() as node:
        channel = node.channel("a", Sighting)
        for options in ({"priority": "badge"}, {"dispatch": "priority"}, {"dispatch": "deadline"}):
            with pytest.raises(SubscriptionError, match="in their order, found them ordered by"):
                channel.subscribe(print, name="x", delivery=DURABLE, **options)


def test_a_filter_tree_is_not_durable() -> None:
    with kept() as node:
        node.channel("a", Sighting), node.channel("b", Sighting)
        with pytest.raises(SubscriptionError, match="a filter tree remembers events only as long as the process lasts"):
            node.correlate(all_of(on("a"), on("b")), print, name="x", delivery=DURABLE)
        node.correlate(all_of(on("a"), on("b")), print, delivery="best_effort")


def test_order_zones_and_history_are_checked() -> None:
    with Node(config=Config(history=100)) as node:
        channel = node.channel("a", Sighting)
        options = channel.subscribe(print)._options
        assert (options.order, options.zones, options.history) == ("receive", None, 0)
        options = channel.subscribe(print, zones="east", history="all")._options
        assert (options.zones, options.history) == (frozenset({"east"}), ALL)
        options = node.subscribe("a", print, order="timestamp", zones=("east", "west"), history=12)._options
        assert (options.order, options.zones, options.history) == ("timestamp", frozenset({"east", "west"}), 12)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"order": "time"}, 'order: expected one of "receive", "timestamp", "total", found "time"'),
            ({"order": 1}, "order: expected one of"),
            ({"zones": []}, "zones: expected the name of a zone, or several, found none; leave it out"),
            ({"zones": 7}, "zones: expected the name of a zone, or several, found 7"),
            ({"zones": b"east"}, "zones: expected the name of a zone"),
            ({"zones": ["east", ""]}, "zones: expected a name of 1 to 255"),
            ({"history": -1}, 'history: expected a number of events, or "all", found -1'),
            ({"history": True}, "history: expected a number"),
            ({"history": "some"}, 'history: expected a number of events, or "all", found "some"'),
        ]
        for given, message in wrong:
            with pytest.raises(SubscriptionError, match=message):
                channel.subscribe(print, **given)
        with pytest.raises(SubscriptionError, match=r"histroy: expected one of .*; did you mean 'history'"):
            node.subscribe("a", print, histroy=3)


# ── going on where it was ──


def test_what_was_handled_does_not_come_again(tmp_path: Path) -> None:
    path, got = tmp_path / "s", list[Sighting]()
    for numbers in ((1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)):
        with kept(path) as node:
            channel = node.channel("a", Sighting)
            subscription = channel.subscribe(got.append, name="x", delivery=DURABLE)
            publish(far(channel), *numbers)
            assert node.state.positions("x") == {KEY: numbers[-1]}
            counts = subscription.counts
            assert counts.passed == counts.delivered + counts.skipped == len(numbers)
            assert subscription._progress.duplicates == counts.skipped
    assert badges(got) == [1, 2, 3, 4, 5, 6]


def test_the_position_is_committed_before_the_next_event_is_handed_over() -> None:
    seen: list[tuple[int, dict[str, int]]] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda e: seen.append((e.badge, node.state.positions("x"))), name="x", delivery=DURABLE)
        publish(far(channel), 1, 2, 3)
    assert seen == [(1, {KEY: 0}), (2, {KEY: 1}), (3, {KEY: 2})]


def test_sources_have_positions_of_their_own(tmp_path: Path) -> None:
    got: list[Sighting] = []
    for _ in range(2):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)
            channel.subscribe(got.append, name="x", delivery=DURABLE)
            publish(far(channel, "one"), 1, 2)
            publish(far(channel, "two"), 3)
            assert node.state.positions("x") == {"one": 2, "two": 1}
    assert badges(got) == [1, 2, 3]


def test_events_of_this_process_are_not_kept_track_of(tmp_path: Path) -> None:
    got: list[Sighting] = []
    for _ in range(2):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)
            channel.subscribe(got.append, name="x", delivery=DURABLE)
            publish(channel.source(), 1, 2)
            assert node.state.positions("x") == {}
    assert badges(got) == [1, 2, 1, 2]


def test_only_the_events_of_its_interest_move_a_sink_on(tmp_path: Path) -> None:
    got: list[Sighting] = []
    for _ in range(2):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)
            channel.subscribe(got.append, "badge % 3 = 0", name="x", delivery=DURABLE)
            publish(far(channel), *range(1, 9))
            assert node.state.positions("x") == {KEY: 6}
    assert badges(got) == [3, 6]


def test_an_event_that_comes_by_two_channels_counts_for_each(tmp_path: Path) -> None:
    got: list[tuple[str, int]] = []
    for _ in range(2):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a.all", Sighting)
            channel.derive("a.some", "badge >= 2")
            node.subscribe("a.*", lambda e, about: got.append((about.channel, e.badge)), name="x", delivery=DURABLE)
            publish(far(channel), 1, 2, 3)
    assert sorted(got) == [("a.all", 1), ("a.all", 2), ("a.all", 3), ("a.some", 2), ("a.some", 3)]


def test_a_sink_is_found_again_by_its_name(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda e: None, name="x", delivery=DURABLE)
        channel.subscribe(lambda e: None, "badge < 3", name="y", delivery=DURABLE)
        publish(far(channel), 1, 2, 3)
    got: dict[str, list[Sighting]] = {"x": [], "y": [], "z": []}
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        for name, events in got.items():
            channel.subscribe(events.append, name=name, delivery=DURABLE)
        publish(far(channel), 1, 2, 3)
        node.subscriptions["x"].cancel()
        node.state.forget("x")
        channel.subscribe(got["x"].append, name="x", delivery=DURABLE)
        publish(far(channel, "other"), 4)
    assert {name: badges(events) for name, events in got.items()} == {"x": [4], "y": [3, 4], "z": [1, 2, 3, 4]}


@pytest.mark.parametrize("dispatch", [Pool(maximum=2), "inline"])
def test_batches_are_committed_once_each_and_trimmed(tmp_path: Path, dispatch: Any) -> None:
    got: list[int] = []
    commits: list[dict[str, int]] = []
    for rows in (12, 25):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)

            def handle(batch: Any, node: Any = node) -> None:
                got.extend(batch.column("badge").to_pylist())
                commits.append(node.state.positions("x"))

            subscription = channel.subscribe(handle, name="x", delivery=DURABLE, batch=8, dispatch=dispatch)
            subscription.pause()
            publish(far(channel), *range(1, rows + 1))
            subscription.resume()
            assert subscription._mailbox.wait(lambda it=subscription._mailbox: it.idle, GUARD)
            assert node.state.positions("x") == {KEY: rows}
    assert got == list(range(1, 26))
    assert commits == [{}, {KEY: 8}, {KEY: 12}, {KEY: 20}]


def test_chunks_are_trimmed_for_a_batch_and_event_by_event(tmp_path: Path) -> None:
    got: list[list[int]] = []
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda e: got.append([e.badge]), name="x", delivery=DURABLE)
        channel.subscribe(
            lambda b: got.append(b["badge"].to_pylist()), "badge > 1", name="y", delivery=DURABLE, batch=8
        )
        batch = channel.type.records_to_arrow([channel.type.encode(sighting(number)) for number in range(1, 5)])
        far(channel).publish_many(batch)
    assert got == [[1], [2], [3], [4], [2, 3, 4]]
    got.clear()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscriptions = [
            channel.subscribe(lambda e: got.append([e.badge]), name="x", delivery=DURABLE),
            channel.subscribe(lambda b: got.append(b["badge"].to_pylist()), name="y", delivery=DURABLE, batch=8),
        ]
        batch = channel.type.records_to_arrow([channel.type.encode(sighting(number)) for number in range(1, 8)])
        far(channel).publish_many(batch)
        assert [each._progress.duplicates for each in subscriptions] == [4, 4]
    assert got == [[5], [6], [7], [5, 6, 7]]


def test_a_coroutine_handler(tmp_path: Path) -> None:
    got: list[int] = []

    async def main(last: int) -> None:
        with NodeState(tmp_path / "s") as state:
            async with Node() as node:
                node.state = state
                channel = node.channel("a", Sighting)

                async def handle(event: Any) -> None:
                    await asyncio.sleep(0)
                    got.append(event.badge)

                channel.subscribe(handle, name="x", delivery=DURABLE)
                publish(far(channel), *range(1, last + 1))
            assert state.positions("x") == {KEY: last}

    asyncio.run(main(3))
    asyncio.run(main(5))
    assert got == [1, 2, 3, 4, 5]


# ── handlers that fail, skip and wait ──


def test_a_failure_is_covered_by_the_next_position_but_not_committed_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[int] = []

    def handle(event: Any) -> None:
        got.append(event.badge)
        if event.badge in (2, 4):
            raise ValueError("no")

    with caplog.at_level(logging.CRITICAL), kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(handle, name="x", delivery=DURABLE)
        source = far(channel)
        publish(source, 1, 2)
        assert node.state.positions("x") == {KEY: 1} and subscription._unsettled(source) == 2
        publish(source, 3)
        assert node.state.positions("x") == {KEY: 3} and subscription._unsettled(source) is None
        publish(source, 4)
        assert node.state.positions("x") == {KEY: 3} and subscription._failures == 1
    again: list[tuple[int, bool]] = []
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda e, about: again.append((e.badge, about.redelivered)), name="x", delivery=DURABLE)
        publish(far(channel, resent=6), *range(1, 8))
    # The one that failed was seen, and no other: the process has ended in order.
    assert got == [1, 2, 3, 4] and again == [(4, True), (5, False), (6, False), (7, False)]


def test_a_state_that_cannot_be_written_pauses_at_once(caplog: pytest.LogCaptureFixture) -> None:
    got: list[Sighting] = []
    with caplog.at_level(logging.CRITICAL), kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(got.append, name="x", delivery=DURABLE, failures=3)
        source = far(channel)
        publish(source, 1)
        node.state.close()
        publish(source, 2, 3, 4, 5)
        assert badges(got) == [1, 2] and subscription.state == "paused"
        assert subscription._trouble is not None and subscription._trouble.startswith("StoreError")
        assert subscription._unsettled(source) == 2


def test_what_a_constraint_skips_is_done(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda e: None, name="x", delivery=DURABLE, before=lambda e: e.badge % 2 == 1)
        source = far(channel)
        publish(source, 1, 2)
        assert subscription._unsettled(source) is None
        publish(source, 3)
        assert node.state.positions("x") == {KEY: 3} and subscription.counts.skipped == 1


def test_what_waits_is_not_done_until_it_is_handled() -> None:
    ready, got = False, list[tuple[int, bool]]()
    with kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(
            lambda e, about: got.append((e.badge, about.redelivered)),
            name="x",
            delivery=DURABLE,
            before=lambda e, about: True if ready else WAIT,
        )
        source = far(channel, resent=1)
        publish(source, 1, 2)
        assert got == [] and subscription._unsettled(source) == 1
        ready = True
        subscription.wake()
        assert subscription._mailbox.wait(lambda: len(got) == 2, GUARD)
        assert got == [(1, False), (2, False)]  # being asked about before is not being handed over


def test_what_has_expired_is_done() -> None:
    clock, got = ManualClock(), list[Sighting]()
    with kept(clock=clock) as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(got.append, name="x", delivery=DURABLE, lifetime=1.0)
        source = far(channel)
        subscription.pause()
        publish(source, 1, 2)
        clock.advance(2)
        subscription.resume()
        assert subscription._unsettled(source) is None and subscription.counts.expired == 2
        publish(source, 3)
        assert badges(got) == [3]


def test_unsettled_is_the_oldest_event_that_came_and_is_not_done() -> None:
    with kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda e: None, "badge >= 3", name="x", delivery=DURABLE)
        other = channel.subscribe(lambda e: None)
        source, near = far(channel), channel.source()
        publish(source, 1, 2)
        assert subscription._unsettled(source) is None and subscription._progress.position(source) == 0
        subscription.pause()
        publish(near, 3)
        publish(source, 3, 4)
        assert subscription._unsettled(source) == 3 and subscription._unsettled(near) is None
        assert other._unsettled(source) is None
        subscription.resume()
        assert subscription._unsettled(source) is None and subscription._progress.position(source) == 4


def test_handling_is_what_the_handler_has() -> None:
    seen: list[Any] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        for delivery in (DURABLE, None):
            made: list[Subscription] = []
            made.append(
                channel.subscribe(
                    lambda e, about, it=made: seen.append(it[0]._handling.seq), name="x", delivery=delivery, about=True
                )
            )
            publish(far(channel), 1, 2)
            assert seen == [1, 2] and made[0]._handling is None
            made[0].cancel()
            seen.clear()


# ── acknowledging ──


def test_manual_acknowledgement_covers_all_before_it() -> None:
    abouts: list[About] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda e, about: abouts.append(about), name="x", delivery=MANUAL)
        source = far(channel)
        publish(source, 1, 2, 3, 4)
        assert node.state.positions("x") == {} and subscription._unsettled(source) == 1
        assert node.state.handed("x") == {KEY: 3}  # of the last it goes without saying
        abouts[1].acknowledge()
        assert node.state.positions("x") == {KEY: 2} and subscription._unsettled(source) == 3
        abouts[0].acknowledge()
        assert node.state.positions("x") == {KEY: 2}
        subscription.acknowledge(abouts[2])
        assert node.state.positions("x") == {KEY: 3}
        subscription.acknowledge()
        assert node.state.positions("x") == {KEY: 4} and subscription._unsettled(source) is None
        publish(channel.source(), 5)
        abouts[-1].acknowledge()  # of this process: there is nothing to be kept


def test_what_was_not_acknowledged_comes_again_marked(tmp_path: Path) -> None:
    got: list[tuple[int, bool]] = []
    for last in (4, 6):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)

            def handle(event: Any, about: About) -> None:
                got.append((event.badge, about.redelivered))
                if event.badge == 2:
                    about.acknowledge()

            channel.subscribe(handle, name="x", delivery=MANUAL)
            publish(far(channel, resent=last - 2 if last == 6 else 0), *range(1, last + 1))
    assert got == [(1, False), (2, False), (3, False), (4, False), (3, True), (4, True), (5, False), (6, False)]


def test_a_handler_may_acknowledge_before_it_returns() -> None:
    with kept() as node:
        channel = node.channel("a", Sighting)
        seen: list[dict[str, int]] = []

        def handle(event: Any, about: About) -> None:
            about.acknowledge()
            seen.append(node.state.positions("x"))

        channel.subscribe(handle, name="x", delivery=DURABLE)
        publish(far(channel), 1, 2)
        assert seen == [{KEY: 1}, {KEY: 2}]


def test_a_batch_is_acknowledged_as_a_whole() -> None:
    abouts: list[About] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda b, about: abouts.append(about), name="x", delivery=MANUAL, batch=True)
        subscription.pause()
        publish(far(channel, "one"), 1, 2)
        publish(far(channel, "two"), 3, 4, 5)
        subscription.resume()
        abouts[0].acknowledge()
        assert node.state.positions("x") == {"one": 2, "two": 3}


def test_only_durable_subscriptions_acknowledge() -> None:
    abouts: list[About] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        plain = channel.subscribe(lambda e, about: abouts.append(about))
        durable = channel.subscribe(lambda e: None, name="x", delivery=DURABLE)
        publish(far(channel), 1)
        assert abouts[0].redelivered is False
        for call in (abouts[0].acknowledge, plain.acknowledge):
            with pytest.raises(SubscriptionError, match="acknowledge: expected a durable subscription, found"):
                call()
        with pytest.raises(SubscriptionError, match="expected an About of subscription 'x', found"):
            durable.acknowledge(abouts[0])


def test_threads_may_acknowledge_at_once() -> None:
    abouts: list[About] = []
    with kept() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda e, about: abouts.append(about), name="x", delivery=MANUAL)
        source = far(channel)
        publish(source, *range(1, 101))
        threads = [
            threading.Thread(target=lambda part=part: [about.acknowledge() for about in part])
            for part in (abouts[0::2], abouts[1::2], abouts[::-1])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert node.state.positions("x") == {KEY: 100} and subscription._unsettled(source) is None


# ── sinks that pull ──


def test_a_sink_that_pulls_is_done_when_it_asks_for_more(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="x", delivery=DURABLE)
        source = far(channel)
        publish(source, 1, 2, 3)
        assert subscription.get().badge == 1 and node.state.positions("x") == {KEY: 0}
        assert subscription.poll().badge == 2 and node.state.positions("x") == {KEY: 1}
        subscription.acknowledge()
        assert node.state.positions("x") == {KEY: 2}
        assert subscription.get().badge == 3 and subscription._unsettled(source) == 3
        assert subscription.poll() is None and node.state.positions("x") == {KEY: 3}
        publish(source, 4)
        assert subscription.get().badge == 4
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="x", delivery=DURABLE, about=True)
        publish(far(channel, resent=5), *range(1, 7))
        got = [subscription.poll() for _ in range(3)]
        assert [(event.badge, about.redelivered) for event, about in got] == [(4, True), (5, False), (6, False)]


def test_a_batch_that_was_pulled_comes_again_as_a_whole(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="x", delivery=DURABLE)
        publish(far(channel), *range(1, 9))
        assert subscription.get_batch(2)["badge"].to_pylist() == [1, 2]
        assert subscription.get_batch(3)["badge"].to_pylist() == [3, 4, 5]
        assert node.state.positions("x") == {KEY: 2}
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="x", delivery=DURABLE, about=True)
        publish(far(channel, resent=9), *range(1, 11))
        got = [subscription.get() for _ in range(6)]
        assert [event.badge for event, _ in got] == [3, 4, 5, 6, 7, 8]
        assert [about.redelivered for _, about in got] == [True, True, True, False, False, False]
        assert subscription.get_batch()["badge"].to_pylist() == [9, 10]
        assert node.state.positions("x") == {KEY: 8}


def test_a_loop_over_a_subscription(tmp_path: Path) -> None:
    got: list[int] = []
    for _ in range(2):
        with kept(tmp_path / "s") as node:
            channel = node.channel("a", Sighting)
            subscription = channel.subscribe(name="x", delivery=DURABLE)
            publish(far(channel), 1, 2, 3)
            subscription.cancel()
            got += [event.badge for event in subscription]
            with pytest.raises(ClosedError):
                subscription.get()
    assert got == [1, 2, 3]


def test_a_sink_that_pulls_and_acknowledges(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="x", delivery=MANUAL, about=True)
        publish(far(channel), 1, 2, 3)
        abouts = [subscription.get()[1] for _ in range(3)]
        assert subscription.poll() is None and node.state.positions("x") == {}
        abouts[1].acknowledge()
        assert node.state.positions("x") == {KEY: 2}
