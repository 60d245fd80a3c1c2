"""Rates: token buckets beside a naive model of them, and what sources and subscriptions shed or keep back."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import BestEffort, Event, Node, Queue, Rate, Reliable, event_type
from headwater.channel.time.token_bucket import EVENT, TokenBucket
from headwater.errors import ConfigError, SubscriptionError
from headwater.testing import ManualClock
from tests.effort import examples


class Door(Event):
    room: int
    level: int


# ── buckets ──


class NaiveBucket:
    """The same in fractions of an event, remembering nothing but what it has."""

    def __init__(self, rate: Rate) -> None:
        self.rate, self.level, self.at = rate, Fraction(rate.burst), None

    def take(self, now: int, events: int, priority: int) -> int:
        if self.at is not None and now > self.at:
            gained = Fraction(round(self.rate.per_second * 10**6), 10**6) * Fraction(now - self.at, 10**9)
            self.level = min(Fraction(self.rate.burst), self.level + gained)
        self.at = now
        kept = [Fraction(round(share * 1000), 1000) for least, share in self.rate.reserve.items() if least > priority]
        floor = min(max(kept, default=Fraction(0)) * self.rate.burst, Fraction(self.rate.burst - 1))
        taken = 0
        while taken < events and self.level - 1 >= floor:
            self.level -= 1
            taken += 1
        return taken


steps = st.lists(
    st.tuples(st.integers(-(10**9), 3 * 10**9), st.integers(1, 12), st.integers(-2, 12)), min_size=1, max_size=60
)
rates = st.builds(
    Rate,
    st.floats(0.01, 50),
    burst=st.integers(1, 20),
    reserve=st.dictionaries(st.integers(-1, 10), st.floats(0.01, 0.99), max_size=3),
)


@settings(max_examples=examples(400), deadline=None)
@given(rates, steps)
def test_a_bucket_does_what_the_naive_one_does(rate: Rate, steps: list[tuple[int, int, int]]) -> None:
    bucket, naive, now = TokenBucket(rate.packed()), NaiveBucket(rate), 10**18
    for step, events, priority in steps:
        now += step
        wait = bucket.wait(now, priority)
        taken = bucket.take(now, events, priority)
        assert taken == naive.take(now, events, priority)
        assert (wait == 0) == (taken > 0)


@settings(max_examples=examples(200), deadline=None)
@given(rates, steps)
def test_no_stretch_of_time_gives_more_than_burst_and_rate(rate: Rate, steps: list[tuple[int, int, int]]) -> None:
    bucket, now, went = TokenBucket(rate.packed()), 0, []
    for step, events, priority in steps:
        now += abs(step)
        went.append((now, bucket.take(now, events, priority)))
    for start in range(len(went)):
        total = 0
        for time, taken in went[start:]:
            total += taken
            gained = rate.packed()[0] * (time - went[start][0])
            assert total * EVENT <= rate.burst * EVENT + gained


@given(rates)
@settings(max_examples=examples(100), deadline=None)
def test_after_the_wait_that_it_names_an_event_may_go_and_not_before(rate: Rate) -> None:
    bucket = TokenBucket(rate.packed())
    while bucket.take(0, 1):
        pass
    wait = bucket.wait(0)
    assert wait > 0
    assert bucket.take(wait - 1, 1) == 0
    assert bucket.take(wait, 1) == 1


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Rate(0), "per_second"),
        (lambda: Rate(float("nan")), "per_second"),
        (lambda: Rate("fast"), "per_second"),  # type: ignore[arg-type]
        (lambda: Rate(10, burst=-1), "burst"),
        (lambda: Rate(10, burst=True), "burst"),
        (lambda: Rate(10, reserve={1: 1.0}), "reserve"),
        (lambda: Rate(10, reserve={"high": 0.5}), "reserve"),  # type: ignore[dict-item]
        (lambda: Rate(10, reserve=[0.5]), "reserve"),  # type: ignore[arg-type]
        (lambda: Rate(10, age=-1), "age"),
        (lambda: Rate(10, over="drop"), "over"),  # type: ignore[arg-type]
        (lambda: Rate(10, over="wait", age=3), "age"),
    ],
)
def test_what_is_no_rate_is_refused_by_name(make: object, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()  # type: ignore[operator]
    assert what in str(caught.value)


def test_all_that_is_wrong_with_a_rate_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Rate(-1, burst=-1, age=0)
    assert all(word in str(caught.value) for word in ("per_second", "burst", "age"))


# ── subscriptions in one process ──


def test_a_subscription_gets_what_its_rate_allows_and_the_rest_is_counted() -> None:
    clock, seen = ManualClock(), list[int]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        limited = doors.subscribe(lambda event: seen.append(event.room), "level > 0", rate=Rate(10, burst=5))
        everything = doors.subscribe(queue=1000)
        source = doors.source()
        for room in range(100):
            source.publish(Door(room=room, level=room % 2))
        assert seen == [1, 3, 5, 7, 9]
        clock.advance(0.3)
        source.publish_many([Door(room=200 + n, level=1) for n in range(10)])
        assert seen[5:] == [200, 201, 202]
        counts = limited.counts
        assert (counts.evaluated, counts.passed, counts.rejected, counts.shed) == (110, 8, 50, 52)
        assert counts.passed == counts.delivered + counts.dropped + counts.expired + counts.skipped + counts.queued
        assert everything.counts.passed == 110 and not everything.counts.shed
        assert limited.report().counts.shed == 52
        assert doors.report().counts.shed == 52
        assert doors.report().counts.delivered + doors.report().counts.queued == 118


def test_batches_are_cut_where_the_rate_ends() -> None:
    pytest.importorskip("pyarrow")
    clock, rows = ManualClock(), list[int]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        doors.subscribe(
            lambda batch: rows.extend(batch["room"].to_pylist()), "level > 0", rate=Rate(1, burst=7), batch=100
        )
        batch = event_type(Door).to_arrow([Door(room=n, level=n % 2) for n in range(50)])
        doors.source().publish_many(batch)
        assert rows == [1, 3, 5, 7, 9, 11, 13]


@pytest.mark.parametrize("batched", [False, True])
def test_in_a_storm_a_reserve_is_kept_for_what_is_urgent(batched: bool) -> None:
    clock, seen = ManualClock(), list[Door]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        rate = Rate(10, burst=10, reserve={5: 0.5})
        limited = doors.subscribe(seen.append, rate=rate, priority="level")
        source = doors.source()
        storm = [Door(room=n, level=9 if n % 20 == 19 else 0) for n in range(100)]
        if batched:
            source.publish_many(event_type(Door).to_arrow(storm))
        else:
            for event in storm:
                source.publish(event)
        assert [event.room for event in seen if event.level == 9] == [19, 39, 59, 79, 99]
        assert [event.room for event in seen if event.level == 0] == [0, 1, 2, 3, 4]
        assert limited.counts.shed == 90


def test_the_priority_of_a_source_counts_where_a_subscription_gives_none() -> None:
    seen = list[int]()
    with Node(clock=ManualClock()) as node:
        doors = node.channel("doors", Door)
        doors.subscribe(lambda event: seen.append(event.room), rate=Rate(1, burst=4, reserve={1: 0.5}))
        calm, alarm = doors.source("calm"), doors.source("alarm", priority=1)
        for n in range(10):
            calm.publish(Door(room=n, level=0))
        for n in range(10):
            alarm.publish(Door(room=100 + n, level=0))
        assert seen == [0, 1, 100, 101]


def test_a_rate_goes_on_through_a_change_of_the_interest_and_what_was_shed_stays_counted() -> None:
    clock, seen = ManualClock(), list[int]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        limited = doors.subscribe(lambda event: seen.append(event.room), "level > 0", rate=Rate(1, burst=3))
        source = doors.source()
        for n in range(5):
            source.publish(Door(room=n, level=1))
        limited.change(where="level > 1")
        source.publish(Door(room=10, level=1))
        source.publish(Door(room=11, level=2))
        assert seen == [0, 1, 2] and limited.counts.shed == 3
        clock.advance(2)
        source.publish(Door(room=12, level=2))
        assert seen[3:] == [12]
        counts = limited.counts
        assert (counts.evaluated, counts.passed, counts.rejected, counts.shed) == (8, 4, 1, 3)


def test_what_waits_for_its_rate_comes_in_order_and_nothing_is_lost() -> None:
    clock, seen = ManualClock(), list[tuple[float, int]]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        paced = doors.subscribe(
            lambda event: seen.append((clock.now(), event.room)), rate=Rate(2, burst=2, over="wait"), queue=100
        )
        source = doors.source()
        for n in range(6):
            source.publish(Door(room=n, level=0))
        assert [room for _, room in seen] == [0, 1]
        clock.advance(10)
        assert [room for _, room in seen] == [0, 1, 2, 3, 4, 5]
        assert [round(when, 6) for when, _ in seen[2:]] == [0.5, 1.0, 1.5, 2.0]
        assert paced.counts.delivered == 6 and not paced.counts.shed and not paced.counts.dropped


def test_the_latest_is_what_comes_of_a_queue_of_one_that_drops_the_oldest() -> None:
    clock, seen = ManualClock(), list[int]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        paced = doors.subscribe(
            lambda event: seen.append(event.room),
            rate=Rate(1, burst=1, over="wait"),
            queue=Queue(limit=1, policy="drop_oldest"),
        )
        source = doors.source()
        for n in range(50):
            source.publish(Door(room=n, level=0))
        clock.advance(1)
        assert seen == [0, 49]
        assert paced.counts.dropped == 48


def test_a_durable_subscription_loses_nothing_by_its_rate(tmp_path: object) -> None:
    clock, seen = ManualClock(), list[int]()
    with Node("paced", clock=clock, state=f"{tmp_path}/state") as node:
        doors = node.channel("doors", Door)
        durable = Reliable(durable=True)
        with pytest.raises(SubscriptionError, match="durable"):
            doors.subscribe(seen.append, name="x", delivery=durable, rate=Rate(1, over="shed"))
        sink = doors.subscribe(
            lambda event: seen.append(event.room), name="sink", delivery=durable, rate=Rate(1, burst=2), queue=100
        )
        source = doors.source()
        for n in range(10):
            source.publish(Door(room=n, level=0))
        assert seen == [0, 1]
        clock.advance(20)
        assert seen == list(range(10))
        assert not sink.counts.shed and not sink.counts.dropped


def test_publishers_wait_for_a_slow_rate_as_for_a_slow_handler() -> None:
    clock, seen, published = ManualClock(), list[int](), threading.Event()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        paced = doors.subscribe(
            lambda event: seen.append(event.room),
            rate=Rate(1, burst=1, over="wait"),
            queue=Queue(limit=2, policy="block", wait=60),
        )
        source = doors.source()

        def publish() -> None:
            for n in range(5):
                source.publish(Door(room=n, level=0))
            published.set()

        thread = threading.Thread(target=publish)
        thread.start()
        while not published.wait(0.01):
            clock.advance(0.5)
        thread.join()
        clock.advance(10)
        assert seen == list(range(5)) and not paced.counts.dropped


def test_rates_are_not_for_what_pulls_slowly_or_is_no_single_event() -> None:
    with Node() as node:
        doors = node.channel("doors", Door)
        with pytest.raises(SubscriptionError, match="handler"):
            doors.subscribe(rate=Rate(1, over="wait"))
        with pytest.raises(SubscriptionError, match="rate"):
            doors.subscribe(rate="10")  # type: ignore[arg-type]
        pulled = doors.subscribe(rate=Rate(0.001, burst=2), delivery=BestEffort())
        source = doors.source()
        for n in range(10):
            source.publish(Door(room=n, level=0))
        assert [pulled.get().room, pulled.get().room, pulled.poll()] == [0, 1, None]


# ── sources ──


def test_a_source_sheds_before_anybody_looks() -> None:
    clock, seen = ManualClock(), list[int]()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        sink = doors.subscribe(lambda event: seen.append(event.room))
        source = doors.source(rate=Rate(10, burst=3))
        numbers = [source.publish(room=n, level=0) for n in range(6)]
        assert numbers == [1, 2, 3, 3, 3, 3]
        clock.advance(0.2)
        assert source.publish_many([Door(room=100 + n, level=0) for n in range(5)]) == 5
        assert seen == [0, 1, 2, 100, 101]
        assert sink.counts.evaluated == 5
        assert source.report().shed == 6 and source.report().published == 5
        assert "shed" in str(source.report())


def test_a_batch_at_a_source_with_a_rate_is_cut() -> None:
    pytest.importorskip("pyarrow")
    with Node(clock=ManualClock()) as node:
        doors = node.channel("doors", Door)
        sink = doors.subscribe(queue=1000)
        source = doors.source(rate=Rate(10, burst=30), facts="level == 0")
        batch = event_type(Door).to_arrow([Door(room=n, level=0) for n in range(100)])
        assert source.publish_many(batch) == 30
        assert sink.counts.passed == 30 and source.report().shed == 70


def test_publishing_waits_by_choice_and_ends_when_the_source_is_closed() -> None:
    clock, done = ManualClock(), threading.Event()
    with Node(clock=clock) as node:
        doors = node.channel("doors", Door)
        sink = doors.subscribe(queue=1000)
        source = doors.source(rate=Rate(10, burst=2, over="wait"))

        def publish() -> None:
            source.publish_many([Door(room=n, level=0) for n in range(5)])
            done.set()

        thread = threading.Thread(target=publish)
        thread.start()
        while not done.wait(0.01):
            clock.advance(0.05)
        thread.join()
        assert sink.counts.passed == 5 and source.report().shed == 0

        caught = list[Exception]()

        def publish_on() -> None:
            try:
                while True:
                    source.publish(room=9, level=0)
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=publish_on)
        thread.start()
        source.close()
        thread.join(60)
        assert type(caught[0]).__name__ == "ClosedError"


def test_a_coroutine_waits_without_stopping_its_loop() -> None:
    async def run() -> None:
        with Node() as node:
            doors = node.channel("doors", Door)
            source = doors.source(rate=Rate(1000, burst=1, over="wait"))
            assert [await source.send(room=n, level=0) for n in range(3)] == [1, 2, 3]

    asyncio.run(run())


def test_a_source_without_a_rate_takes_the_fast_path_and_one_with_it_does_not() -> None:
    seen = list[int]()
    with Node() as node:
        doors = node.channel("doors", Door)
        doors.subscribe(lambda event: seen.append(event.room))
        quick, slow = doors.source("quick"), doors.source("slow", rate=Rate(1e9))
        for n in range(100):
            quick.publish(Door(room=n, level=0))
            slow.publish(Door(room=n, level=0))
        assert quick._flow.direct > 90  # handed to the function without a queue
        assert quick._flow.bypass is not None
        assert seen.count(50) == 2
