"""Operators over several channels: a mailbox and a clock of their own, and a channel for what they make."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from headwater import Node
from headwater.channel.correlation.operator_stage import ROOM
from headwater.channel.time.clock import ManualClock
from headwater.correlation import on
from headwater.errors import SubscriptionError
from headwater.testing import eventually

TYPE, MADE = "n: i64", "part: i64, n: i64, at: f64"


class Numbered:
    """Counts what it is offered, and says so; `hook` is called with each."""

    def __init__(self, hook: Any = None) -> None:
        self.count, self.running, self.hook = 0, False, hook

    def offer(self, part: int, event: Any, now: float) -> Sequence[Any]:
        assert not self.running, "two at a time"
        self.running = True
        try:
            self.count += 1
            if self.hook is not None:
                self.hook(event)
            return [{"part": part, "n": event.n, "at": now}]
        finally:
            self.running = False

    def due(self) -> float | None:
        return None

    def advance(self, now: float) -> Sequence[Any]:
        return ()

    def clear(self) -> None:
        self.count = 0


class Silence(Numbered):
    """Makes an event when nothing came for five seconds, once."""

    last: float | None = None

    def offer(self, part: int, event: Any, now: float) -> Sequence[Any]:
        self.last = now
        return ()

    def due(self) -> float | None:
        return None if self.last is None else self.last + 5

    def advance(self, now: float) -> Sequence[Any]:
        assert self.last is not None
        since, self.last = self.last, None
        return [{"part": -1, "n": 0, "at": since}]

    def clear(self) -> None:
        self.last = None


def inputs(node: Node) -> list[Any]:
    return [node.channel(name, TYPE).source() for name in ("t.a", "t.b")]


def test_what_an_operator_makes_is_a_channel_like_any() -> None:
    with Node(config={"history": 10}) as node:
        a, b = inputs(node)
        made, got = node.channel("t.made", MADE), []
        run = node.operate(Numbered(), [on("t.a", "n > 1"), on("t.b")], to=made, name="numbers")
        made.subscribe(lambda event, about: got.append((event.part, event.n, about.seq, about.source)), "n != 5")
        for n in (1, 2, 5):
            a.publish(n=n)
        b.publish(n=1)
        assert got == [(0, 2, 1, "numbers"), (1, 1, 3, "numbers")]
        late = made.subscribe(history=10)
        assert [late.get(timeout=10).n for _ in range(3)] == [2, 5, 1]
        run.cancel()
        b.publish(n=2)
        assert len(got) == 2 and not made.sources


def test_it_acts_by_its_clock_when_nothing_comes() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        a, b = inputs(node)
        made, got = node.channel("t.made", MADE), []
        made.subscribe(lambda event: got.append((event.part, event.at)))
        node.operate(Silence(), [on("t.a"), on("t.b")], to=made)
        clock.advance(100)
        assert got == []
        a.publish(n=1)
        clock.advance(4)
        b.publish(n=1)
        clock.advance(4.5)
        assert got == []
        clock.advance(1)
        assert got == [(-1, 104.0)]
        clock.advance(100)
        assert len(got) == 1
        a.publish(n=2)
        clock.advance(5)
        assert len(got) == 2


def test_a_stage_that_was_cancelled_does_nothing_by_itself() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        a, _ = inputs(node)
        made, got = node.channel("t.made", MADE), []
        made.subscribe(got.append)
        run = node.operate(Silence(), [on("t.a")], to=made)
        a.publish(n=1)
        run.cancel()
        clock.advance(10)
        assert got == []


def test_events_are_offered_one_at_a_time_in_the_order_of_each_source_and_leave_so() -> None:
    with Node() as node:
        sources = inputs(node)
        made, got = node.channel("t.made", MADE), []
        made.subscribe(lambda event, about: got.append((event.part, event.n, about.seq)), dispatch="inline")
        operator = Numbered()
        node.operate(operator, [on("t.a"), on("t.b")], to=made)

        def publish(source: Any) -> None:
            for n in range(300):
                source.publish(n=n)

        threads = [threading.Thread(target=publish, args=(source,)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert operator.count == 600 and [seq for _, _, seq in got] == list(range(1, 601))
        for part in range(2):
            assert [n for at, n, _ in got if at == part] == list(range(300))


def test_no_source_waits_while_an_operator_works() -> None:
    """It runs under no source's lock: another thread publishes meanwhile, and its event is offered afterwards."""
    with Node() as node:
        a, b = inputs(node)
        made, got = node.channel("t.made", MADE), []
        made.subscribe(lambda event: got.append((event.part, event.n)))

        def hook(event: Any) -> None:
            if event.n == 1:
                thread = threading.Thread(target=lambda: (a.publish(n=2), b.publish(n=3)))
                thread.start()
                thread.join(30)
                assert not thread.is_alive()

        node.operate(Numbered(hook), [on("t.a"), on("t.b")], to=made)
        a.publish(n=1)
        assert got == [(0, 1), (0, 2), (1, 3)]


def test_a_handler_may_feed_the_operator_again() -> None:
    with Node() as node:
        a, b = inputs(node)
        made, got = node.channel("t.made", MADE), []

        def again(event: Any) -> None:
            got.append(event.n)
            if event.n < 20:
                b.publish(n=event.n + 1)

        made.subscribe(again)
        node.operate(Numbered(), [on("t.a"), on("t.b")], to=made)
        a.publish(n=1)
        assert got == list(range(1, 21))


def test_batches_are_taken_apart() -> None:
    with Node() as node:
        a, _ = inputs(node)
        made = node.channel("t.made", MADE)
        sink = made.subscribe()
        node.operate(Numbered(), [on("t.a", "n % 2 = 0")], to=made)
        a.publish_many({"n": n} for n in range(10))
        assert [sink.get(timeout=10).n for _ in range(5)] == [0, 2, 4, 6, 8]


def test_what_an_operator_remembers_is_forgotten_when_an_interest_changes() -> None:
    with Node() as node:
        a, b = inputs(node)
        operator = Numbered()
        run = node.operate(operator, [on("t.a", name="a"), on("t.b", name="b")], to=node.channel("t.made", MADE))
        a.publish(n=1)
        b.publish(n=1)
        assert operator.count == 2
        node._change(run, 0, where="n > 5", params=None, zones=...)
        assert operator.count == 0
        a.publish(n=1)
        a.publish(n=6)
        assert operator.count == 1


def test_an_operator_that_fails_is_reported_and_goes_on() -> None:
    failed: list[str] = []

    def hook(event: Any) -> None:
        if event.n == 2:
            raise ZeroDivisionError("two")

    with Node(on_error=lambda subscription, error, event: failed.append(str(error))) as node:
        a, _ = inputs(node)
        made = node.channel("t.made", MADE)
        sink = made.subscribe()
        node.operate(Numbered(hook), [on("t.a")], to=made)
        for n in (1, 2, 3):
            a.publish(n=n)
        assert [sink.get(timeout=10).n for _ in range(2)] == [1, 3] and failed == ["two"]


def test_what_it_makes_that_is_no_event_is_reported() -> None:
    class Wrong(Numbered):
        def offer(self, part: int, event: Any, now: float) -> Sequence[Any]:
            return [{"part": "x"}]

    failed: list[str] = []
    with Node(on_error=lambda subscription, error, event: failed.append(str(error))) as node:
        a, _ = inputs(node)
        node.operate(Wrong(), [on("t.a")], to=node.channel("t.made", MADE))
        a.publish(n=1)
        assert len(failed) == 1 and "of t.made: n: expected an int" in failed[0]


def test_a_node_that_closes_drains_its_stages() -> None:
    got: list[int] = []
    node = Node()
    a, _ = inputs(node)
    made = node.channel("t.made", MADE)
    made.subscribe(lambda event: got.append(event.n), dispatch="pool")
    node.operate(Numbered(), [on("t.a")], to=made)
    for n in range(50):
        a.publish(n=n)
    assert node.close().drained
    assert got == list(range(50))


def test_bad_inputs_are_refused_and_leave_nothing() -> None:
    with Node() as node:
        inputs(node)
        made = node.channel("t.made", MADE)
        for bad in ([], ["t.a"], [on("t.a", "nothing > 3")]):
            with pytest.raises((SubscriptionError, ValueError)):
                node.operate(Numbered(), bad, to=made)  # type: ignore[arg-type]
        assert not made.sources and not node.subscriptions


def test_publishers_wait_for_an_operator_that_cannot_keep_up() -> None:
    busy, go = threading.Event(), threading.Event()

    def stand(event: Any) -> None:
        busy.set()
        assert go.wait(60)

    published = 0

    def publish_many(source: Any) -> None:
        nonlocal published
        for n in range(3 * ROOM):
            source.publish(n=n)
            published += 1

    operator = Numbered(stand)
    with Node() as node:
        a, b = inputs(node)
        run = node.operate(operator, [on("t.a"), on("t.b")], to=node.channel("t.made", MADE))
        first = threading.Thread(target=a.publish, kwargs={"n": 0})
        first.start()
        assert busy.wait(60)
        others = threading.Thread(target=publish_many, args=(b,))
        others.start()
        try:
            eventually(lambda: bool(run._stages[0].waiters.threads) or not others.is_alive(), "waiting for room")
            assert published <= ROOM + 1
        finally:
            go.set()
        first.join(60)
        others.join(60)
        assert operator.count == 1 + 3 * ROOM


def test_an_operator_that_is_cancelled_is_not_woken_again() -> None:
    class Ticking(Numbered):
        def due(self) -> float | None:
            return 1.0 + self.count

        def advance(self, now: float) -> Sequence[Any]:
            self.count += 1
            return ()

    clock, operator = ManualClock(), Ticking()
    with Node(clock=clock) as node:
        a, _ = inputs(node)
        run = node.operate(operator, [on("t.a")], to=node.channel("t.made", MADE))
        a.publish(n=0)
        stage = run._stage
        assert stage._timer is not None
        run.cancel()
        count = operator.count
        stage._tick()  # it was about to, when it was cancelled
        assert operator.count == count and stage._timer is None
        with stage.lock:
            stage._arm()  # as after an event that waited still
        assert stage._timer is None
