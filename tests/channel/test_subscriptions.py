"""Subscriptions: handlers and pulling, priority and lifetime, change at an exact point, pause, constraints, the end."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headwater import About, Event, Interest, Node, Queue, Subscription, event_type
from headwater.dispatch import WAIT, Pool
from headwater.errors import ClosedError, InterestError, ParameterError, SubscriptionError
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Sighting, badges, sighting

TYPE = event_type(Sighting)


def many(*numbers: int) -> list[Sighting]:
    return [sighting(number, number / 10) for number in numbers]


# ── handlers ──


def test_a_handler_gets_every_event_or_those_of_its_interest() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        everything: list[Sighting] = []
        some: list[Sighting] = []
        channel.subscribe(everything.append)
        channel.subscribe(some.append, "level > :limit and network = 'ORL-Net#1'", params={"limit": 0.15})
        source = channel.source()
        for event in many(1, 2, 3):
            source.publish(event)
        assert everything == many(1, 2, 3) and some == many(2, 3)


@pytest.mark.parametrize("where", ["level > 0.15", Interest("level > 0.15", Sighting)], ids=["text", "interest"])
def test_an_interest_may_come_first(where: Any) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        pulled, by_name = channel.subscribe(where), node.subscribe("a", where)
        called: list[Sighting] = []
        channel.subscribe(where, called.append)
        node.subscribe("*", where, called.append)
        source = channel.source()
        for event in many(1, 2):
            source.publish(event)
        assert pulled.poll() == by_name.poll() == many(2)[0] and pulled.poll() is None
        assert called == 2 * many(2)


def test_what_is_neither_an_interest_nor_a_handler_is_told_where_to_go() -> None:
    with Node() as node:
        channel = node.channel("a", "level: f64, open: bool")
        with pytest.raises(SubscriptionError, match=r"expected a function, found 'handle', .*where="):
            channel.subscribe("handle")
        with pytest.raises(SubscriptionError, match=r"expected a function, found 7; an interest comes as where="):
            channel.subscribe(7)  # type: ignore[arg-type]
        with pytest.raises(SubscriptionError, match=r"'level > 1', and another one as where='level < 2'; combine"):
            channel.subscribe("level > 1", "level < 2")
        with pytest.raises(InterestError, match="lvl"):
            channel.subscribe("lvl > 1")
        open_ones = channel.subscribe("open")
        source = channel.source()
        source.publish(level=1.0, open=False)
        source.publish(level=2.0, open=True)
        assert open_ones.get(0).level == 2.0 and open_ones.poll() is None


@pytest.mark.parametrize(
    "where",
    [
        "level > 0.15 and badge != 3",
        "{ return input.level > 0.15 && input.badge != 3; }",
        lambda e: e.level > 0.15 and e.badge != 3,
        Interest("level > 0.15 and badge != 3", Sighting),
        Interest("level > 0.15 and badge != 3", "level: f64, badge: u32"),  # of another type, fitted by name
    ],
)
def test_an_interest_is_given_in_any_notation(where: Any) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[Sighting] = []
        channel.subscribe(got.append, where)
        channel.source().publish_many(many(1, 2, 3, 4))
        assert badges(got) == [2, 4]


def test_an_interest_may_look_at_where_an_event_comes_from() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(where="meta.source = 'hall' and meta.seq >= 2 and meta.node = 'lab'")
        for name in ("hall", "door"):
            channel.source(name).publish_many(many(1, 2, 3))
        channel.source("x").publish_many(TYPE.to_arrow(many(4)))
        assert badges([subscription.get(0), subscription.get(0)]) == [2, 3] and subscription.poll() is None


def test_several_subscriptions_share_a_handler() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[tuple[str, int]] = []

        def handler(event: Sighting, about: About) -> None:
            got.append((about.subscription, event.badge))

        low = channel.subscribe(handler, "badge < 3", name="low")
        high = channel.subscribe(handler, "badge > 1", name="high")
        source = channel.source()
        source.publish_many(many(1, 2, 3))
        assert sorted(got) == [("high", 2), ("high", 3), ("low", 1), ("low", 2)]
        low.cancel()
        high.change(where="badge = 9")
        source.publish_many(many(1, 9))
        assert got[4:] == [("high", 9)]
        assert (low.counts.passed, high.counts.passed) == (2, 3)


def test_what_is_known_of_an_event() -> None:
    clock = ManualClock(time=946_684_800_000_000)
    with Node(clock=clock) as node:
        channel = node.channel("ie.tcd.sighting", Sighting)
        known: list[About] = []
        channel.subscribe(lambda event, about: known.append(about), name="mine")
        source = channel.source("hall", priority=3)
        source.publish(sighting())
        clock.advance(1.5)
        source.publish_many(TYPE.to_arrow(many(2, 3)))
        assert [each.seq for each in known] == [1, 2, 3]
        assert {(each.channel, each.source, each.subscription, each.epoch, each.priority) for each in known} == {
            ("ie.tcd.sighting", "hall", "mine", 1, 3)
        }
        assert known[0].time == datetime(2000, 1, 1, tzinfo=UTC)
        assert known[2].time == datetime(2000, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
        assert repr(known[0]).startswith("<About ie.tcd.sighting: event 1 of hall at 2000-01-01T00:00:00+00:00")


def test_a_second_argument_is_given_to_who_takes_one() -> None:
    class Sink:
        def __init__(self) -> None:
            self.got: list[tuple[Any, ...]] = []

        def one(self, *args: Any) -> None:
            self.got.append(args)

        def two(self, event: Sighting, about: About | None) -> None:
            self.got.append((event, about))

        def optional(self, event: Sighting, more: str = "default") -> None:
            self.got.append((event, more))

        __call__ = two

    with Node() as node:
        channel = node.channel("a", Sighting)
        sink = Sink()
        for handler in (sink.one, sink.two, sink.optional, sink, partial(sink.two), partial(sink.two, about=None)):
            channel.subscribe(handler)
        channel.subscribe(sink.one, about=True)
        channel.source().publish(sighting())
        kinds = [tuple(type(each) for each in args) for args in sink.got]
        assert kinds == [(Sighting,), (Sighting, About), (Sighting, str), (Sighting, About), (Sighting, About),
                         (Sighting, type(None)), (Sighting, About)]  # fmt: skip


def test_a_coroutine_function_is_a_handler() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)
            got: list[int] = []
            done = asyncio.Event()

            async def handler(event: Sighting) -> None:
                await asyncio.sleep(0)
                got.append(event.badge)
                if event.badge == 3:
                    done.set()

            async def with_about(event: Sighting, about: About) -> str:
                return f"{about.seq}"

            results: list[Any] = []
            channel.subscribe(handler, "badge > 1")
            channel.subscribe(with_about, after=lambda event, result: results.append(result))
            channel.source().publish_many(many(1, 2, 3))
            await asyncio.wait_for(done.wait(), GUARD)
            assert got == [2, 3]
            await node.aclose()
            assert results == ["1", "2", "3"]

    asyncio.run(main())


def test_a_coroutine_handler_needs_a_loop() -> None:
    async def handler(event: Sighting) -> None: ...

    with Node() as node:
        channel = node.channel("a", Sighting)
        with pytest.raises(SubscriptionError, match="expected a running asyncio loop in this thread, found none"):
            channel.subscribe(handler)
        with pytest.raises(SubscriptionError, match="a coroutine handler runs on an asyncio loop, found 'pool'"):
            channel.subscribe(handler, dispatch="pool")
        assert not node.subscriptions


# ── pulling ──


def test_get_waits_poll_does_not() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        source = channel.source()
        assert subscription.poll() is None and subscription.get(0) is None
        waiting, got = threading.Event(), []

        def pull() -> None:
            waiting.set()
            got.append(subscription.get())

        thread = threading.Thread(target=pull)
        thread.start()
        assert waiting.wait(GUARD)
        source.publish(sighting(1))
        thread.join(GUARD)
        assert badges(got) == [1]
        source.publish_many(many(2, 3))
        assert badges([subscription.poll(), subscription.get()]) == [2, 3]
        counts = subscription.counts
        assert (counts.passed, counts.delivered, counts.queued) == (3, 3, 0)


def test_pulling_ends_when_the_subscription_does() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(name="mine")
        ended = threading.Event()

        def pull() -> None:
            with pytest.raises(ClosedError, match="subscription 'mine' has ended; there are no more events"):
                subscription.get()
            ended.set()

        thread = threading.Thread(target=pull)
        thread.start()
        subscription.cancel()
        assert ended.wait(GUARD)
        thread.join(GUARD)
        for ask in (subscription.poll, subscription.get_batch, subscription.get):
            with pytest.raises(ClosedError):
                ask()
        assert list(subscription) == []


def test_pulled_events_with_what_is_known_of_them() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(about=True)
        channel.source("hall").publish(sighting(5))
        event, about = subscription.get(0)
        assert (event.badge, about.source, about.seq) == (5, "hall", 1)


def test_a_loop_over_a_subscription() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        channel.source().publish_many(many(1, 2, 3))
        got = []
        for event in subscription:
            got.append(event.badge)
            if len(got) == 3:
                subscription.cancel()
        assert got == [1, 2, 3]


def test_async_for() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)
            subscription = channel.subscribe(where="badge > 1")
            source = channel.source()

            async def produce() -> None:
                for event in many(1, 2, 3):
                    await source.send(event)
                    await asyncio.sleep(0)
                subscription.cancel()

            task = asyncio.create_task(produce())
            got = [event.badge async for event in subscription]
            await task
            assert got == [2, 3]

    asyncio.run(asyncio.wait_for(main(), GUARD))


def test_async_for_is_woken_from_another_thread() -> None:
    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)
            subscription = channel.subscribe()
            source = channel.source()

            def produce() -> None:
                for event in many(*range(50)):
                    source.publish(event)
                channel.close()

            thread = threading.Thread(target=produce)
            thread.start()
            assert [event.badge async for event in subscription] == list(range(50))
            thread.join(GUARD)

    asyncio.run(asyncio.wait_for(main(), GUARD))


def test_get_batch_takes_all_that_waits() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(where="badge > 1")
        source = channel.source()
        assert subscription.get_batch() is None
        source.publish_many(many(1, 2, 3))
        source.publish_many(TYPE.to_arrow(many(4, 5, 6)))
        source.publish(sighting(7))
        first = subscription.get_batch(3)
        assert isinstance(first, pa.RecordBatch) and first.schema.equals(TYPE.schema)
        assert first.column("badge").to_pylist() == [2, 3, 4]
        assert badges([subscription.get(0)]) == [5]  # of a batch that is begun
        assert subscription.get_batch().column("badge").to_pylist() == [6, 7]
        counts = subscription.counts
        assert (counts.passed, counts.delivered, counts.queued) == (6, 6, 0)


def test_get_batch_stops_at_events_of_another_type() -> None:
    class Other(Event):
        badge: int

    with Node() as node:
        one, other = node.channel("ie.a", Sighting), node.channel("ie.b", Other)
        subscription = node.subscribe("ie.*")
        one.source().publish_many(many(1, 2))
        other.source().publish(badge=3)
        one.source().publish(sighting(4))
        taken = [subscription.get_batch().column("badge").to_pylist() for _ in range(3)]
        assert taken == [[1, 2], [3], [4]] and subscription.get_batch() is None


def test_who_has_a_handler_does_not_pull() -> None:
    with Node() as node:
        subscription = node.channel("a", Sighting).subscribe(print, name="mine")
        for ask in (subscription.get, subscription.poll, subscription.get_batch):
            with pytest.raises(SubscriptionError, match="expected a subscription without a handler, found 'mine'"):
                ask()


# ── batches for handlers ──


def test_a_batch_handler_gets_record_batches_up_to_its_limit() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        sizes: list[tuple[int, int]] = []
        everything: list[int] = []

        def handler(batch: pa.RecordBatch, about: About) -> None:
            sizes.append((about.seq, batch.num_rows))
            everything.extend(batch.column("badge").to_pylist())

        subscription = channel.subscribe(handler, "badge != 5", batch=4)
        source = channel.source()
        source.publish_many(TYPE.to_arrow(many(*range(10))))
        assert sizes == [(1, 4), (5, 4), (10, 1)]
        source.publish(sighting(10))
        subscription.pause()
        source.publish_many(many(11, 12, 13, 14, 15, 16))
        source.publish_many(TYPE.to_arrow(many(17, 18)))
        subscription.resume()
        assert sizes[3:] == [(11, 1), (12, 4), (16, 2), (18, 2)]
        assert everything == [each for each in range(19) if each != 5]
        counts = subscription.counts
        assert (counts.passed, counts.delivered, counts.queued) == (18, 18, 0)


def test_a_batch_that_waits_is_neither_lost_nor_doubled() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[list[int]] = []
        ready = False
        asked: list[int] = []

        def before(batch: pa.RecordBatch) -> Any:
            asked.append(batch.num_rows)
            return True if ready else WAIT

        subscription = channel.subscribe(
            lambda batch: got.append(batch.column("badge").to_pylist()), batch=3, before=before
        )
        source = channel.source()
        subscription.pause()
        source.publish_many(many(1, 2, 3, 4))
        source.publish_many(TYPE.to_arrow(many(5, 6, 7, 8)))
        subscription.resume()
        assert asked == [3] and got == [] and subscription.counts.queued == 8
        ready = True
        subscription.wake()
        assert got == [[1, 2, 3], [4], [5, 6, 7], [8]] and subscription.counts.delivered == 8


def test_a_constraint_that_refuses_a_batch_refuses_all_its_events() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)

        def before(batch: pa.RecordBatch) -> bool:
            if batch.column("badge")[0].as_py() == 1:
                raise ValueError("not this one")
            return False

        subscription = channel.subscribe(lambda batch: None, batch=True, before=before)
        subscription.pause()
        source = channel.source()
        source.publish_many(many(1, 2))
        subscription.resume()
        source.publish_many(TYPE.to_arrow(many(3, 4, 5)))
        counts = subscription.counts
        assert (counts.passed, counts.skipped, counts.failed, counts.delivered) == (5, 5, 1, 0)


# ── priority and lifetime ──


def test_the_urgent_leave_the_queue_first_and_equals_in_order() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(priority="if(level > 0.5, badge, 0)")
        source = channel.source()
        for badge, level in ((1, 0.1), (2, 0.9), (3, 0.1), (9, 0.9), (4, 0.1)):
            source.publish(sighting(badge, level))
        source.publish_many(TYPE.to_arrow([sighting(5, 0.1), sighting(6, 0.9)]))
        assert badges(subscription.get(0) for _ in range(7)) == [9, 6, 2, 1, 3, 4, 5]


@pytest.mark.parametrize("priority", ["badge", lambda e: e.badge, "{ return input.badge; }", "badge * 1.0"])
def test_a_priority_is_an_expression_in_any_notation(priority: Any) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        subscription = channel.subscribe(lambda event: got.append(event.badge), priority=priority)
        subscription.pause()
        channel.source().publish_many(many(2, 1, 3))
        subscription.resume()
        assert got == [3, 2, 1]


def test_a_priority_that_is_no_number_or_endless_harms_nobody() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(priority="level * 1e308 * 10.0")
        other = channel.subscribe()
        source = channel.source()
        for badge, level in ((1, 0.0), (2, -5.0), (3, 5.0), (4, float("nan"))):
            source.publish(sighting(badge, level))
        assert badges(subscription.get(0) for _ in range(4)) == [3, 1, 4, 2]  # what is no number counts as 0
        assert badges(other.get(0) for _ in range(4)) == [1, 2, 3, 4]


def test_a_source_gives_its_events_a_priority_where_the_sink_does_not() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        known: list[int] = []
        channel.subscribe(lambda event, about: known.append(about.priority))
        channel.source(priority=7).publish(sighting())
        channel.source(priority=-1).publish_many(TYPE.to_arrow(many(1)))
        assert known == [7, -1]


def test_expired_events_are_dropped_and_counted() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Sighting)
        pulled = channel.subscribe(lifetime=2.0)
        computed = channel.subscribe(lifetime="badge * 1.5")
        forever = channel.subscribe(lifetime=float("inf"))
        pushed: list[int] = []
        held = channel.subscribe(lambda event: pushed.append(event.badge), lifetime=timedelta(seconds=2))
        held.pause()
        source = channel.source()
        source.publish(sighting(1))
        source.publish_many(TYPE.to_arrow(many(2, 3)))
        clock.advance(1.9)
        source.publish(sighting(4))
        clock.advance(0.1)  # the first three are two seconds old: no longer worth it
        held.resume()
        assert pushed == [4]
        assert badges([pulled.get(0)]) == [4] and pulled.poll() is None
        assert badges(TYPE.from_arrow(computed.get_batch())) == [2, 3, 4]
        assert badges(forever.get(0) for _ in range(4)) == [1, 2, 3, 4]
        assert [each.counts.expired for each in (pulled, computed, held, forever)] == [3, 1, 3, 0]
        for each in (pulled, computed, held, forever):
            counts = each.counts
            assert counts.passed == counts.delivered + counts.expired == 4


def test_a_lifetime_that_is_missing_is_endless() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", "badge: u32, ttl: f64?")
        subscription = channel.subscribe(lifetime="ttl")
        source = channel.source()
        source.publish(badge=1, ttl=1.0)
        source.publish(badge=2)
        clock.advance(100)
        assert subscription.get(0).badge == 2 and subscription.counts.expired == 1


def test_faulty_priorities_and_lifetimes_are_errors_at_the_call() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        for what in ("priority", "lifetime"):
            wrong: Any
            for wrong in ("levl * 2", "network", True, [], float("nan")):
                with pytest.raises(ValueError, match=f"problem in this {what}"):
                    channel.subscribe(print, **{what: wrong})
        assert not node.subscriptions and not channel.entries


# ── changing it while events flow ──


def test_a_change_takes_effect_at_an_exact_point_that_is_seen() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        one, other = channel.source("one"), channel.source("other")
        one.publish(sighting(1))
        subscription = channel.subscribe(where="badge > :least", params={"least": 2}, about=True)
        assert subscription.epoch == 1 and subscription.points == {one.id: 1, other.id: 0}
        one.publish_many(many(2, 3))
        other.publish(sighting(3))
        points = subscription.change(params={"least": 3})
        assert points == subscription.points == {one.id: 3, other.id: 1} and subscription.epoch == 2
        one.publish_many(many(3, 4))
        other.publish_many(TYPE.to_arrow(many(3, 4)))
        later = channel.source("later")
        later.publish(sighting(5))
        assert subscription.points == {one.id: 3, other.id: 1, later.id: 0}
        got = []
        while (found := subscription.poll()) is not None:
            event, about = found
            got.append((about.source, about.seq, about.epoch, event.badge))
        assert got == [("one", 3, 1, 3), ("other", 1, 1, 3), ("one", 5, 2, 4), ("other", 3, 2, 4), ("later", 1, 2, 5)]
        counts = subscription.counts
        assert (counts.evaluated, counts.passed, counts.rejected) == (8, 5, 3)


def test_the_whole_interest_is_changed_to_another_none_and_back() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source()
        subscription = channel.subscribe(where="badge = :b", params={"b": 1})
        changes: list[dict[str, Any]] = [{"where": "badge = 2"}, {"where": None}, {"where": lambda e: e.badge == 3},
                                         {"where": "badge = :c", "params": {"c": 4}}]  # fmt: skip
        source.publish_many(many(1, 2, 3, 4))
        for epoch, change in enumerate(changes, 2):
            assert subscription.change(**change) == {source.id: 4 * (epoch - 1)} and subscription.epoch == epoch
            source.publish_many(many(1, 2, 3, 4))
        assert badges(subscription.get(0) for _ in range(8)) == [1, 2, 1, 2, 3, 4, 3, 4]
        counts = subscription.counts
        assert (counts.evaluated, counts.passed) == (20, 8)


def test_parameters_are_changed_one_by_one() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source()
        subscription = channel.subscribe(where="badge > :low and badge < :high", params={"low": 1, "high": 3})
        subscription.change(params={"high": 9})
        source.publish_many(many(1, 2, 8, 9))
        assert badges([subscription.get(0), subscription.get(0)]) == [2, 8] and subscription.poll() is None


def test_the_parameters_of_an_interest_object_are_changed() -> None:
    nets = Interest("network in :nets and badge > :least", Sighting, params={"nets": {"a", "b"}, "least": 1})
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source()
        subscription = channel.subscribe(where=nets)
        untouched = channel.subscribe(where=nets)
        subscription.change(params={"nets": {"c"}})
        subscription.change(params={"least": 0})
        for network in "abc":
            source.publish(sighting(1, network=network))
            source.publish(sighting(2, network=network))
        assert [event.network for event in drained(subscription)] == ["c", "c"]
        assert [event.network for event in drained(untouched)] == ["a", "b"]


def drained(subscription: Subscription) -> list[Any]:
    subscription.cancel()
    return list(subscription)


def test_a_faulty_change_changes_nothing() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source()
        subscription = channel.subscribe(where="badge = :b", params={"b": 1}, name="mine")
        for change, error in (
            ({"where": "bagde = 1"}, ValueError),
            ({"where": "badge = :x"}, InterestError),
            ({"params": {"x": 1}}, ParameterError),
            ({"params": {"b": "text"}}, InterestError),
            ({}, SubscriptionError),
        ):
            with pytest.raises(error):
                subscription.change(**change)
        assert subscription.epoch == 1 and subscription.points == {source.id: 0}
        source.publish_many(many(1, 2))
        assert badges(drained(subscription)) == [1]
        with pytest.raises(ClosedError, match="change: subscription 'mine' was cancelled; subscribe again"):
            subscription.change(where=None)


def test_no_event_is_judged_by_a_mixture_while_events_flow() -> None:
    """Two numbers that must agree, changed together, over and over, while threads publish."""
    with Node() as node:
        channel = node.channel("a", Sighting)
        wrong: list[Any] = []
        seen: list[tuple[str, int, int]] = []
        limits: dict[int, int] = {1: 0}

        def handler(event: Sighting, about: About) -> None:
            seen.append((about.source, about.seq, about.epoch))
            if event.badge != limits[about.epoch]:
                wrong.append((event, about))

        where = "badge >= :low and badge <= :high"
        subscription = channel.subscribe(handler, where, params={"low": 0, "high": 0}, queue=Queue(limit=10**6))
        stop = threading.Event()
        points: dict[int, dict[str, int]] = {1: {}}

        def publish(name: str) -> None:
            with channel.source(name) as source:
                while not stop.is_set():
                    source.publish_many(many(0, 1, 2))

        threads = [threading.Thread(target=publish, args=(name,)) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        for epoch in range(2, 60):
            limits[epoch] = epoch % 3
            points[epoch] = subscription.change(params={"low": epoch % 3, "high": epoch % 3})
        stop.set()
        for thread in threads:
            thread.join(GUARD)
        assert not wrong and seen
        for source, seq, epoch in seen:
            assert seq > points[epoch].get(f"a/{source}", 0)
            if epoch + 1 in points:
                assert seq <= points[epoch + 1].get(f"a/{source}", 10**9)


# ── pause, resume, cancel ──


def test_a_paused_subscription_keeps_up_to_its_limit() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        subscription = channel.subscribe(lambda event: got.append(event.badge), queue=3)
        source = channel.source()
        subscription.pause("lunch")
        assert subscription.state == "paused" and subscription.paused == "lunch"
        source.publish_many(many(1, 2, 3, 4, 5))  # nobody waits for it
        assert got == [] and (subscription.counts.queued, subscription.counts.dropped) == (3, 2)
        assert "paused: lunch" in str(subscription.report()) and subscription.name in str(node.report())
        subscription.resume()
        assert got == [1, 2, 3] and subscription.state == "open" and subscription.paused is None
        source.publish(sighting(6))
        assert got == [1, 2, 3, 6]


def test_a_paused_subscription_is_not_pulled() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe()
        channel.source().publish(sighting(1))
        subscription.pause()
        assert subscription.poll() is None and subscription.get(0) is None and subscription.get_batch() is None
        subscription.resume()
        assert badges([subscription.poll()]) == [1]


def test_a_cancelled_subscription_gets_nothing_more() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        source = channel.source()
        with channel.subscribe(lambda event: got.append(event.badge), name="mine") as subscription:
            source.publish(sighting(1))
            subscription.pause()
            source.publish(sighting(2))
        source.publish(sighting(3))
        assert (
            got == [1]
            and subscription.state == "closed"
            and repr(subscription) == ("<Subscription 'mine' to a, closed>")
        )
        counts = subscription.counts
        assert (counts.evaluated, counts.passed, counts.delivered, counts.dropped) == (2, 2, 1, 1)
        subscription.cancel()  # once is enough
        for what in (subscription.pause, subscription.resume):
            with pytest.raises(ClosedError, match="subscription 'mine' was cancelled; subscribe again"):
                what()
        assert channel.subscribe(name="mine").name == "mine"  # the name is free


def test_cancel_may_deliver_first_what_waits() -> None:
    with Node(config={"dispatch": "pool"}) as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        begun, go, done = threading.Event(), threading.Event(), threading.Event()

        def handler(event: Sighting) -> None:
            begun.set()
            assert go.wait(GUARD)
            got.append(event.badge)
            if event.badge == 4:
                done.set()

        subscription = channel.subscribe(handler, dispatch=Pool())
        source = channel.source()
        source.publish_many(many(1, 2))
        source.publish_many(TYPE.to_arrow(many(3, 4)))
        assert begun.wait(GUARD)
        subscription.cancel(drain=True)
        source.publish(sighting(5))
        go.set()
        assert done.wait(GUARD)
        assert got == [1, 2, 3, 4] and subscription.counts.dropped == 0


# ── constraints of the handler ──


def test_before_lets_run_or_skips_and_after_sees_the_result() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        trace: list[Any] = []

        def handler(event: Sighting) -> int:
            trace.append(("run", event.badge))
            return event.badge * 10

        subscription = channel.subscribe(
            handler,
            before=lambda event: trace.append(("before", event.badge)) or event.badge != 2,  # type: ignore[func-returns-value]
            after=lambda event, result: trace.append(("after", event.badge, result)),
        )
        channel.source().publish_many(many(1, 2))
        assert trace == [("before", 1), ("run", 1), ("after", 1, 10), ("before", 2)]
        counts = subscription.counts
        assert (counts.passed, counts.delivered, counts.skipped) == (2, 1, 1)


def test_before_sees_what_is_known_where_the_handler_does() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        channel.subscribe(lambda event, about: got.append(about.seq), before=lambda event, about: about.seq > 1)
        channel.source().publish_many(many(1, 2, 3))
        assert got == [2, 3]


def test_an_event_that_waits_is_asked_about_again_when_woken() -> None:
    with Node(clock=ManualClock()) as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        asked: list[int] = []
        free = False

        def before(event: Sighting) -> Any:
            asked.append(event.badge)
            return free or WAIT

        subscription = channel.subscribe(lambda event: got.append(event.badge), before=before)
        other: list[int] = []
        channel.subscribe(lambda event: other.append(event.badge))
        source = channel.source()
        source.publish_many(many(1, 2))
        assert asked == [1] and got == [] and other == [1, 2]  # those behind it wait too; nobody else does
        subscription.wake()
        assert asked == [1, 1] and got == []
        free = True
        source.publish(sighting(3))
        assert got == []
        subscription.wake()
        assert got == [1, 2, 3] and subscription.counts.queued == 0
        subscription.wake()  # nothing waits: no harm
        source.publish(sighting(4))
        assert got == [1, 2, 3, 4]


def test_an_event_that_waits_is_asked_about_again_after_a_moment() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        answers = iter([WAIT, WAIT, True, False, True])
        channel.subscribe(lambda event: got.append(event.badge), before=lambda event: next(answers))
        channel.source().publish_many(many(1, 2, 3))
        assert got == []
        clock.advance(10)
        assert got == [1, 3]


def test_what_waits_may_expire_and_a_pause_holds_it() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []
        open_ = False
        subscription = channel.subscribe(
            lambda event: got.append(event.badge), lifetime=5, before=lambda event: open_ or WAIT
        )
        source = channel.source()
        source.publish(sighting(1))
        clock.advance(4)
        source.publish(sighting(2))
        clock.advance(3)
        assert subscription.counts.expired == 1
        subscription.pause()
        open_ = True
        subscription.wake()
        clock.advance(0.5)
        assert got == []
        subscription.resume()
        assert got == [2]


def test_a_constraint_that_waits_for_ever_does_not_keep_a_node_open() -> None:
    node = Node(clock=ManualClock())
    channel = node.channel("a", Sighting)
    subscription = channel.subscribe(print, before=lambda event: WAIT, name="stuck")
    channel.source().publish_many(many(1, 2))
    closing = node.close()
    assert not closing.drained and closing.dropped == {"stuck": 2}
    assert subscription.counts.failed == 0 and subscription.counts.dropped == 2


def test_a_constraint_that_raises_skips_the_event_and_is_reported() -> None:
    reported: list[tuple[str, str, Any]] = []
    with Node(
        on_error=lambda subscription, error, event: reported.append((subscription.name, str(error), event))
    ) as node:
        channel = node.channel("a", Sighting)
        got: list[int] = []

        def before(event: Sighting) -> bool:
            if event.badge == 0:
                raise RuntimeError("before")
            return True

        def after(event: Sighting, result: Any) -> None:
            if event.badge == 2:
                raise RuntimeError("after")

        subscription = channel.subscribe(lambda event: got.append(event.badge), before=before, after=after, name="mine")
        channel.source().publish_many(many(0, 1, 2))
        assert got == [1, 2]
        assert reported == [("mine", "before", many(0)[0]), ("mine", "after", many(2)[0])]
        counts = subscription.counts
        assert (counts.passed, counts.delivered, counts.skipped, counts.failed) == (3, 2, 1, 2)


def test_constraints_are_of_handlers_and_plain_functions() -> None:
    async def coroutine(event: Sighting) -> bool:
        return True

    with Node() as node:
        channel = node.channel("a", Sighting)
        for what in ("before", "after"):
            with pytest.raises(
                SubscriptionError, match=f"{what}: it is a constraint of the handler, and there is none"
            ):
                channel.subscribe(**{what: print})  # type: ignore[arg-type]
            with pytest.raises(SubscriptionError, match=f"{what}: expected a function, found 5"):
                channel.subscribe(print, **{what: 5})  # type: ignore[arg-type]
            with pytest.raises(SubscriptionError, match=f"{what}: expected a plain function, found a coroutine"):
                channel.subscribe(print, **{what: coroutine})  # type: ignore[arg-type]
        assert not node.subscriptions
