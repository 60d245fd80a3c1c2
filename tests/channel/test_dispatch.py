"""Dispatchers: what all of them promise, over every strategy, and what each adds."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.channel.dispatch.dispatcher import DEPTH, Dispatcher
from headwater.channel.dispatch.pool import by_priority
from headwater.channel.options.config import AsyncLoop, ByDeadline, ByPriority, Dispatch, Inline, Pool
from headwater.channel.time.clock import SystemClock
from tests.channel.concurrency import loop_in_a_thread

GUARD = 120.0  # against hanging; nothing here takes long

STRATEGIES: dict[str, Dispatch] = {
    "inline": Inline(),
    "pool": Pool(),
    "pool of one": Pool(minimum=1, maximum=1),
    "pool of none or some": Pool(minimum=0, maximum=3, idle=0),
    "pool with marks": Pool(minimum=1, maximum=4, low=1, high=2, idle=0),
    "priority": ByPriority(maximum=3),
    "deadline": ByDeadline(maximum=3),
    "asyncio": AsyncLoop(),
}
THREADED = [name for name in STRATEGIES if name not in ("inline", "asyncio")]


class Box:
    """A mailbox reduced to what a dispatcher sees; it notices when it is run by two threads at once."""

    def __init__(self, dispatcher: Dispatcher, handler: Callable[[Any], object], *, coroutine: bool = False) -> None:
        self.dispatcher, self.handler, self.coroutine = dispatcher, handler, coroutine
        self.lock = threading.Lock()
        self.values: list[tuple[Any, int, float]] = []
        self.owned = False
        self.inside = 0
        self.overlaps = 0

    def put(self, value: Any, *, priority: int = 0, deadline: float = math.inf) -> None:
        with self.lock:
            self.values.append((value, priority, deadline))
            take, self.owned = not self.owned, True
        if take:
            self.dispatcher.ready(self)
        else:
            self.dispatcher.urgent(self)

    def _next(self, budget: int) -> tuple[bool, Any]:
        """(whether there is one, it); gives the box back when there is none."""
        with self.lock:
            if not self.values:
                self.owned = False
                self.inside -= 1
                return False, False
            if budget == 0:
                self.inside -= 1
                return False, True
            return True, self.values.pop(0)[0]

    def _enter(self) -> None:
        with self.lock:
            self.inside += 1
            self.overlaps += self.inside > 1

    def run(self, budget: int) -> bool:
        self._enter()
        while True:
            there, value = self._next(budget)
            if not there:
                return bool(value)
            budget -= 1
            self.handler(value)

    async def arun(self, budget: int) -> bool:
        self._enter()
        while True:
            there, value = self._next(budget)
            if not there:
                return bool(value)
            budget -= 1
            await self.handler(value)  # type: ignore[misc]

    def urgency(self) -> tuple[int, float]:
        with self.lock:
            if not self.values:
                return 0, math.inf
            return max(v[1] for v in self.values), min(v[2] for v in self.values)


class Gate:
    """Lets a test wait for what happens in another thread."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def open(self, *args: object) -> None:
        self.event.set()

    def wait(self, *args: object) -> None:
        assert self.event.wait(GUARD), "it never happened"


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@contextmanager
def started(strategy: str | Dispatch) -> Iterator[Dispatcher]:
    """A dispatcher at work, closed at the end."""
    value = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
    if isinstance(value, AsyncLoop) and value.loop is None:
        with loop_in_a_thread() as loop, started(AsyncLoop(loop=loop)) as dispatcher:
            yield dispatcher
        return
    dispatcher = value.start("dublin", SystemClock())
    try:
        yield dispatcher
    finally:
        assert dispatcher.close(drain=False, timeout=GUARD)
        assert dispatcher.status().threads == 0


def in_threads(*functions: Callable[[], object]) -> None:
    """Run functions at the same time, in a thread each, and wait for all."""
    failures: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
        assert not thread.is_alive()
    assert not failures


every = pytest.mark.parametrize("strategy", STRATEGIES)


# ── what all promise ──


@every
def test_everything_offered_is_run_in_order_by_one_thread_at_a_time(strategy: str) -> None:
    boxes, producers, each = 12, 4, 60
    with started(strategy) as dispatcher:
        seen: list[list[tuple[int, int]]] = [[] for _ in range(boxes)]
        made = [Box(dispatcher, seen[number].append) for number in range(boxes)]
        start = threading.Barrier(producers)

        def produce(who: int) -> None:
            start.wait(GUARD)
            for number in range(each):
                for shift in range(boxes):
                    made[(shift + who) % boxes].put((who, number), priority=number % 3, deadline=number)

        in_threads(*(lambda who=who: produce(who) for who in range(producers)))
        assert dispatcher.close(drain=True, timeout=GUARD)
        for box, got in zip(made, seen, strict=True):
            assert box.overlaps == 0
            assert len(got) == producers * each
            for who in range(producers):
                assert [number for other, number in got if other == who] == list(range(each))
        status = dispatcher.status()
        assert (status.waiting, status.running, status.lost, status.threads) == (0, 0, 0, 0)


@every
def test_a_long_chain_of_handlers_takes_no_stack(strategy: str) -> None:
    with started(strategy) as dispatcher:
        done = Gate()
        depth = deepest = 0

        def step(number: int) -> None:
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            if number == 0:
                done.open()
            else:
                boxes[number % 300].put(number - 1)
            depth -= 1

        boxes = [Box(dispatcher, step) for _ in range(300)]
        boxes[0].put(5000)
        done.wait()
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert deepest == (DEPTH if dispatcher.inline else deepest)


@every
def test_a_handler_that_spreads_reaches_everyone(strategy: str) -> None:
    with started(strategy) as dispatcher:
        seen: list[str] = []

        def spread(name: str) -> None:
            seen.append(name)
            if len(name) < 10:
                boxes[len(name)].put(name + "a")
                boxes[len(name)].put(name + "b")

        boxes = [Box(dispatcher, spread) for _ in range(10)]
        boxes[0].put("")
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert len(seen) == len(set(seen)) == 2**11 - 1


@every
def test_after_the_end_items_are_only_counted(strategy: str) -> None:
    with started(strategy) as dispatcher:
        seen: list[int] = []
        assert dispatcher.close(drain=True, timeout=GUARD)
        box = Box(dispatcher, seen.append)
        box.put(1)
        box.put(2)
        assert seen == [] and dispatcher.status().lost == 1 and dispatcher.status().closed
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert dispatcher.close(drain=False, timeout=GUARD)
        assert dispatcher.close(drain=False, timeout=0)


@every
def test_aborting_gives_up_what_waits(strategy: str) -> None:
    with started(strategy) as dispatcher:
        inside, go = Gate(), Gate()
        seen: list[int] = []

        def handle(number: int) -> None:
            seen.append(number)
            if number == 0:
                inside.open()
                go.wait()

        box = Box(dispatcher, handle)
        offered = threading.Thread(target=box.put, args=(0,))
        offered.start()
        inside.wait()
        for number in range(1, 200):
            box.put(number)
        assert not dispatcher.close(drain=False, timeout=0.01)  # one event is being handled
        go.open()
        assert dispatcher.close(drain=False, timeout=GUARD)
        offered.join(GUARD)
        assert 1 <= len(seen) <= 64 and dispatcher.status().lost == 1


@every
def test_a_drain_that_takes_too_long_becomes_an_abort(strategy: str) -> None:
    with started(strategy) as dispatcher:
        inside, go = Gate(), Gate()
        box = Box(dispatcher, lambda value: (inside.open(), go.wait()))
        offered = threading.Thread(target=box.put, args=(0,))
        offered.start()
        inside.wait()
        assert dispatcher.close(drain=True, timeout=0.01) is False
        late = Box(dispatcher, go.wait)
        late.put(1)
        assert dispatcher.status().lost == 1 and late.values
        go.open()
        assert dispatcher.close(drain=True, timeout=GUARD)
        offered.join(GUARD)


@every
@pytest.mark.parametrize("drain", [True, False])
def test_a_handler_may_close(strategy: str, drain: bool) -> None:
    with started(strategy) as dispatcher:
        results: list[bool] = []
        others: list[int] = []
        done = Gate()

        def handle(value: int) -> None:
            if value == 0:
                for number in range(3):
                    Box(dispatcher, others.append).put(number)
                results.append(dispatcher.close(drain=drain, timeout=GUARD))
                results.append(dispatcher.close(drain=drain, timeout=GUARD))
                done.open()

        box = Box(dispatcher, handle)
        box.put(0)
        done.wait()
        assert dispatcher.close(drain=drain, timeout=GUARD)
        if drain:
            assert sorted(others) == [0, 1, 2]
        if strategy != "asyncio":  # there it cannot wait
            assert results == [True, True]
        assert len(others) + dispatcher.status().lost == 3


@pytest.mark.parametrize("strategy", ["inline", "pool", "priority", "deadline"])
def test_handlers_that_close_at_once_do_not_wait_for_each_other(strategy: str) -> None:
    with started(strategy) as dispatcher:
        meet = threading.Barrier(3)
        results: list[bool] = []

        def handle(value: int) -> None:
            meet.wait(GUARD)
            results.append(dispatcher.close(drain=True, timeout=GUARD))

        boxes = [Box(dispatcher, handle) for _ in range(3)]
        in_threads(*(lambda box=box: box.put(0) for box in boxes))
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert results == [True] * 3


@every
def test_who_is_at_home(strategy: str) -> None:
    with started(strategy) as dispatcher:
        seen: list[bool] = []
        box = Box(dispatcher, lambda value: seen.append(dispatcher.here()))
        assert not dispatcher.here() and not dispatcher.stuck()
        box.put(0)
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert seen == [True] and not dispatcher.here()


@every
def test_an_item_that_raises_is_given_up_and_harms_nobody(strategy: str, caplog: pytest.LogCaptureFixture) -> None:
    with started(strategy) as dispatcher, caplog.at_level(logging.ERROR):
        seen: list[int] = []

        def fail(value: int) -> None:
            raise LookupError("broken")

        Box(dispatcher, fail).put(1)
        Box(dispatcher, seen.append).put(2)
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert seen == [2] and dispatcher.status().lost == 1
        assert "an item of dublin raised" in caplog.text


@pytest.mark.parametrize("strategy", ["inline", *THREADED])
def test_coroutines_need_a_loop(strategy: str) -> None:
    with started(strategy) as dispatcher:
        box = Box(dispatcher, lambda value: None, coroutine=True)
        with pytest.raises(AssertionError, match="asyncio loop"):
            box.put(1)


@every
def test_closing_while_others_offer(strategy: str) -> None:
    with started(strategy) as dispatcher:
        seen: list[int] = []
        boxes = [Box(dispatcher, seen.append) for _ in range(4)]
        start = threading.Barrier(5)

        def produce(box: Box) -> None:
            start.wait(GUARD)
            for number in range(300):
                box.put(number)

        def close() -> None:
            start.wait(GUARD)
            assert dispatcher.close(drain=True, timeout=GUARD)

        in_threads(close, *(lambda box=box: produce(box) for box in boxes))
        # What was taken in was run, and what came too late is still in its box.
        assert len(seen) + sum(len(box.values) for box in boxes) == 4 * 300
        assert all(box.overlaps == 0 for box in boxes)
        assert dispatcher.status().lost == sum(bool(box.values) for box in boxes)


# ── in the publisher's thread ──


def test_inline_runs_before_ready_returns() -> None:
    with started("inline") as dispatcher:
        seen: list[int] = []
        box = Box(dispatcher, lambda value: seen.append(threading.get_ident()))
        box.put(1)
        assert seen == [threading.get_ident()] and dispatcher.inline
        assert dispatcher.status().running == 0


def test_inline_nests_a_little_and_then_queues() -> None:
    with started("inline") as dispatcher:
        order: list[str] = []

        def make(level: int) -> Box:
            def handle(value: int) -> None:
                order.append(f"in {level}")
                if level < DEPTH + 3:
                    make(level + 1).put(0)
                order.append(f"out {level}")

            return Box(dispatcher, handle)

        make(1).put(0)
        nested = [f"in {n}" for n in range(1, DEPTH + 1)] + [f"out {n}" for n in range(DEPTH, 0, -1)]
        assert order[: 2 * DEPTH] == nested
        assert order[2 * DEPTH :] == ["in 9", "in 10", "in 11", "out 11", "out 10", "out 9"]
        assert dispatcher.status().peak_waiting == 1


def test_a_chain_through_two_nodes_takes_no_stack_either() -> None:
    with started("inline") as here, started("inline") as there:
        depth = deepest = count = 0

        def step(number: int) -> None:
            nonlocal depth, deepest, count
            depth += 1
            count += 1
            deepest = max(deepest, depth)
            if number:
                boxes[number % 400].put(number - 1)
            depth -= 1

        boxes = [Box(here if n % 2 else there, step) for n in range(400)]
        boxes[0].put(3000)
        assert count == 3001 and deepest == DEPTH
        assert here.close(drain=True, timeout=GUARD) and there.close(drain=True, timeout=GUARD)


def test_inline_says_when_only_this_thread_will_come_to_what_waits() -> None:
    with started("inline") as dispatcher:
        stuck: list[bool] = []
        end = Box(dispatcher, lambda value: stuck.append(dispatcher.stuck()))

        def make(level: int) -> Box:
            def handle(value: int) -> None:
                stuck.append(dispatcher.stuck())
                if level == DEPTH:
                    end.put(0)
                    stuck.append(dispatcher.stuck())
                else:
                    make(level + 1).put(0)

            return Box(dispatcher, handle)

        make(1).put(0)
        assert stuck == [False] * DEPTH + [True, False]


@pytest.mark.parametrize("drain", [True, False])
def test_closing_deep_inside(drain: bool) -> None:
    with started("inline") as dispatcher:
        seen: list[int] = []
        end = Box(dispatcher, seen.append)

        def make(level: int) -> Box:
            def handle(value: int) -> None:
                if level < DEPTH:
                    make(level + 1).put(0)
                else:
                    end.put(1)
                    assert dispatcher.close(drain=drain, timeout=GUARD)
                    end.put(2)

            return Box(dispatcher, handle)

        make(1).put(0)
        # Draining runs what was ready at that time; it still belongs to this thread.
        assert seen == ([1, 2] if drain else [])
        assert dispatcher.status().lost == (0 if drain else 1)
        assert dispatcher.status().waiting == 0


def test_an_interrupt_reaches_the_publisher_and_leaves_order() -> None:
    with started("inline") as dispatcher:
        seen: list[int] = []

        def handle(value: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Box(dispatcher, handle).put(1)
        Box(dispatcher, seen.append).put(2)
        assert seen == [2] and not dispatcher.here()


# ── pools ──


class Crowd:
    """Handlers that stay inside until they are let go."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.changed = threading.Condition()
        self.inside = 0
        self.free = False

    def handle(self, value: object) -> None:
        with self.changed:
            self.inside += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.free, GUARD)
            self.inside -= 1

    def add(self, count: int) -> None:
        for _ in range(count):
            Box(self.dispatcher, self.handle).put(0)

    def wait(self, inside: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside == inside, GUARD)

    def let_go(self) -> None:
        with self.changed:
            self.free = True
            self.changed.notify_all()


@pytest.mark.parametrize("cls", [Pool, ByPriority, ByDeadline])
def test_no_thread_before_there_is_work(cls: type[Pool]) -> None:
    before = threading.active_count()
    with started(cls(minimum=3)) as dispatcher:
        assert threading.active_count() == before
        crowd = Crowd(dispatcher)
        crowd.add(1)
        crowd.wait(1)
        assert dispatcher.status().threads == 1
        ours = [thread for thread in threading.enumerate() if thread.name == "headwater-dublin-1"]
        assert len(ours) == 1 and ours[0].daemon
        crowd.let_go()


def test_nobody_waits_while_a_thread_may_be_started() -> None:
    with started(Pool(minimum=1, maximum=5)) as dispatcher:
        crowd = Crowd(dispatcher)
        for number in range(1, 6):
            crowd.add(1)
            crowd.wait(number)
        crowd.add(3)
        status = dispatcher.status()
        assert (status.threads, status.running, status.waiting, status.peak_threads) == (5, 5, 3, 5)
        crowd.let_go()
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert dispatcher.status().lost == 0


def test_the_pool_grows_above_the_high_water_mark_only() -> None:
    with started(Pool(minimum=2, maximum=4, low=1, high=3)) as dispatcher:
        crowd = Crowd(dispatcher)
        crowd.add(1)
        crowd.wait(1)
        crowd.add(1)
        crowd.wait(2)  # up to the minimum at once
        crowd.add(3)
        status = dispatcher.status()
        assert (status.threads, status.waiting) == (2, 3)
        crowd.add(1)  # more than 3
        crowd.wait(3)
        crowd.add(1)
        crowd.wait(4)
        crowd.add(10)
        assert dispatcher.status().threads == 4
        crowd.let_go()
        assert dispatcher.close(drain=True, timeout=GUARD)


@pytest.mark.parametrize("minimum", [0, 1, 2])
def test_the_pool_shrinks_to_its_minimum(minimum: int) -> None:
    with started(Pool(minimum=minimum, maximum=4, idle=0)) as dispatcher:
        before = [thread for thread in threading.enumerate() if thread.name.startswith("headwater-dublin-")]
        assert not before
        crowd = Crowd(dispatcher)
        for number in range(1, 5):
            crowd.add(1)
            crowd.wait(number)
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("headwater-dublin-")]
        assert len(threads) == 4
        crowd.let_go()
        gone = 0
        while gone < 4 - minimum:  # whichever they are
            gone = sum(not thread.is_alive() for thread in threads)
            for thread in threads:
                thread.join(0.001)
        assert dispatcher.status().threads == minimum
        done = Gate()
        Box(dispatcher, done.open).put(0)
        done.wait()


def test_nothing_waits_for_a_thread_that_leaves() -> None:
    """Threads that come and go all the time lose nothing."""
    with started(Pool(minimum=0, maximum=2, idle=0)) as dispatcher:
        for _ in range(300):
            first, second = Gate(), Gate()
            Box(dispatcher, first.open).put(0)
            Box(dispatcher, second.open).put(0)
            first.wait()
            second.wait()


def test_items_take_turns() -> None:
    with started(Pool(maximum=1)) as dispatcher:
        inside, go = Gate(), Gate()
        order: list[str] = []
        Box(dispatcher, lambda value: (inside.open(), go.wait())).put(0)
        inside.wait()
        boxes = [Box(dispatcher, lambda value, name=name: order.append(name)) for name in "ab"]
        for box in boxes:
            for number in range(100):
                box.put(number)
        go.open()
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert order == ["a"] * 64 + ["b"] * 64 + ["a"] * 36 + ["b"] * 36


def queued(strategy: Dispatch, puts: list[tuple[int, str, int, float]], boxes: int) -> list[str]:
    """The order in which one thread delivers what (box, value, priority, deadline) have become ready before."""
    with started(strategy) as dispatcher:
        inside, go = Gate(), Gate()
        order: list[str] = []
        Box(dispatcher, lambda value: (inside.open(), go.wait())).put(0, priority=99, deadline=-1)
        inside.wait()
        made = [Box(dispatcher, order.append) for _ in range(boxes)]
        for number, value, priority, deadline in puts:
            made[number].put(value, priority=priority, deadline=deadline)
        go.open()
        assert dispatcher.close(drain=True, timeout=GUARD)
        return order


def test_the_highest_priority_first() -> None:
    puts = [(0, "low", 1, math.inf), (1, "high", 9, math.inf), (2, "middle", 5, math.inf), (3, "high too", 9, math.inf)]
    assert queued(ByPriority(maximum=1), puts, 4) == ["high", "high too", "middle", "low"]


def test_the_earliest_deadline_first() -> None:
    puts = [(0, "never", 0, math.inf), (1, "late", 9, 20.0), (2, "soon", 0, 10.0), (3, "soon too", 1, 10.0)]
    assert queued(ByDeadline(maximum=1), puts, 4) == ["soon", "soon too", "late", "never"]


def test_something_more_urgent_moves_an_item_forward() -> None:
    puts = [(0, "a", 5, 50.0), (1, "b", 1, 90.0), (2, "c", 4, 60.0), (1, "b urgent", 9, 10.0), (0, "a again", 2, 55.0)]
    # A box delivers in its own order; its most urgent event decides when it has its turn.
    assert queued(ByPriority(maximum=1), puts, 3) == ["b", "b urgent", "a", "c", "a again"]
    assert queued(ByDeadline(maximum=1), puts, 3) == ["b", "b urgent", "a", "a again", "c"]


def test_an_item_that_moves_forward_for_ever_takes_no_memory() -> None:
    order = by_priority()
    with started("inline") as dispatcher:
        front, box = Box(dispatcher, print), Box(dispatcher, print)
        order.put(front, -1e9)
        for _ in range(1000):
            order.put(box, 0)
            for key in range(1, 5):
                order.raise_(box, -float(key))
            order.raise_(box, 7)  # never back
            assert len(order) == 2
            assert order.take() is front
            assert order.take() is box
            order.put(front, -1e9)
        assert len(order) == 1 and len(order._heap) < 100
        assert order.clear() == 1 and len(order) == 0


def test_a_pool_says_when_its_only_thread_would_wait() -> None:
    for maximum, expected in ((1, True), (2, False)):
        with started(Pool(maximum=maximum, low=5, high=5)) as dispatcher:
            seen: list[bool] = []
            other = Gate()

            def handle(
                value: int, dispatcher: Dispatcher = dispatcher, seen: list[bool] = seen, other: Gate = other
            ) -> None:
                Box(dispatcher, other.open).put(0)
                seen.append(dispatcher.stuck())
                if not seen[0]:
                    other.wait()

            Box(dispatcher, handle).put(0)
            other.wait()
            assert dispatcher.close(drain=True, timeout=GUARD)
            assert seen == [expected]


# ── asyncio ──


def run(coroutine: Awaitable[None]) -> None:
    async def guarded() -> None:
        await asyncio.wait_for(coroutine, GUARD)

    asyncio.run(guarded())


def test_a_loop_is_taken_from_where_the_dispatcher_starts() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        seen: list[Any] = []
        box = Box(dispatcher, lambda value: seen.append((value, threading.get_ident(), dispatcher.here())))
        box.put(1)
        assert seen == []  # not within ready
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        assert seen == [(1, threading.get_ident(), True)]
        box.put(2)
        assert dispatcher.status().lost == 1

    run(main())


def test_coroutine_handlers_run_side_by_side_but_one_event_of_a_box_at_a_time() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        meet = [asyncio.Event() for _ in range(3)]
        seen: list[tuple[int, int]] = []

        def make(number: int) -> Box:
            async def handle(value: int) -> None:
                if value == 0:
                    meet[number].set()
                    for event in meet:  # all three are inside at once
                        await event.wait()
                seen.append((number, value))

            return Box(dispatcher, handle, coroutine=True)

        boxes = [make(number) for number in range(3)]
        for value in range(100):
            for box in boxes:
                box.put(value)
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        for number, box in enumerate(boxes):
            assert [value for other, value in seen if other == number] == list(range(100))
            assert box.overlaps == 0
        assert dispatcher.status().lost == 0 and dispatcher.status().running == 0

    run(main())


def test_offered_from_many_threads_to_coroutines() -> None:
    with started("asyncio") as dispatcher:
        seen: list[tuple[int, int]] = []

        async def handle(value: tuple[int, int]) -> None:
            await asyncio.sleep(0)
            seen.append(value)

        boxes = [Box(dispatcher, handle, coroutine=True) for _ in range(5)]

        def produce(who: int) -> None:
            for number in range(100):
                boxes[number % 5].put((who, number))

        in_threads(*(lambda who=who: produce(who) for who in range(4)))
        assert dispatcher.close(drain=True, timeout=GUARD)
        assert sorted(seen) == [(who, number) for who in range(4) for number in range(100)]
        assert all(box.overlaps == 0 for box in boxes)


def test_the_loop_stays_responsive() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        handled = 0

        def handle(value: int) -> None:
            nonlocal handled
            handled += 1

        box = Box(dispatcher, handle)
        for number in range(1000):
            box.put(number)
        turns = 0
        while handled < 1000:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 2
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]

    run(main())


def test_closing_on_the_loop_cannot_wait_but_comes_to_the_end() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        seen: list[int] = []
        box = Box(dispatcher, seen.append)
        box.put(1)
        assert dispatcher.stuck()
        assert dispatcher.close(drain=True, timeout=GUARD) is False
        assert seen == []
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        assert seen == [1]
        assert dispatcher.close(drain=True, timeout=GUARD) is True
        box.put(2)
        assert dispatcher.status().lost == 1

    run(main())


def test_what_is_left_on_the_loop_when_the_time_is_up_is_cancelled() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        inside, cancelled = asyncio.Event(), asyncio.Event()

        async def handle(value: int) -> None:
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        Box(dispatcher, handle, coroutine=True).put(1)
        await inside.wait()
        assert dispatcher.close(drain=True, timeout=0.001) is False
        await cancelled.wait()
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        assert dispatcher.status().lost == 1

    run(main())


@pytest.mark.parametrize("drain", [True, False])
def test_awaiting_the_end_no_longer_than_one_likes(drain: bool) -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        inside = asyncio.Event()

        async def handle(value: int) -> None:
            inside.set()
            await asyncio.Event().wait()

        Box(dispatcher, handle, coroutine=True).put(1)
        await inside.wait()
        assert await dispatcher.aclose(drain=drain, timeout=0.001) is False  # type: ignore[attr-defined]
        assert await dispatcher.aclose(drain=drain, timeout=GUARD) is True  # type: ignore[attr-defined]

    run(main())


def test_a_task_cancelled_before_its_first_step_is_counted() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())

        async def handle(value: int) -> None:
            raise AssertionError("never")

        others = asyncio.all_tasks()
        Box(dispatcher, handle, coroutine=True).put(1)
        while asyncio.all_tasks() == others:
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - others:
            task.cancel()
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        assert dispatcher.status().lost == 1

    run(main())


def test_coroutine_handlers_may_await_the_end() -> None:
    async def main() -> None:
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        results: list[bool] = []
        seen: list[int] = []
        both = [asyncio.Event(), asyncio.Event()]

        async def handle(value: int) -> None:
            both[value].set()
            for event in both:
                await event.wait()
            Box(dispatcher, seen.append).put(value)
            results.append(await dispatcher.aclose(drain=True, timeout=GUARD))  # type: ignore[attr-defined]

        for value in (0, 1):
            Box(dispatcher, handle, coroutine=True).put(value)
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        while len(results) < 2:
            await asyncio.sleep(0)
        assert results == [True, True] and sorted(seen) == [0, 1]

    run(main())


def test_the_end_can_be_awaited_on_another_loop() -> None:
    with started("asyncio") as dispatcher:
        seen: list[int] = []
        Box(dispatcher, seen.append).put(1)

        async def main() -> None:
            assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]

        run(main())
        assert seen == [1]


def test_a_loop_closed_by_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    dispatcher = AsyncLoop(loop=loop).start("dublin", SystemClock())
    Box(dispatcher, print).put(1)  # never run
    loop.close()
    with caplog.at_level(logging.ERROR):
        Box(dispatcher, print).put(2)
        Box(dispatcher, print).put(3)
    assert dispatcher.status().lost == 3
    assert caplog.text.count("the asyncio loop of dublin was closed before the node") == 1
    assert dispatcher.close(drain=True, timeout=None)  # nothing is left
    assert dispatcher.close(drain=False, timeout=None)


def test_closing_after_the_loop_was_closed() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = AsyncLoop(loop=loop).start("dublin", SystemClock())
    Box(dispatcher, print).put(1)
    loop.close()
    assert dispatcher.close(drain=True, timeout=None) is False
    assert dispatcher.status().lost == 1 and dispatcher.status().waiting == 0
    assert dispatcher.close(drain=True, timeout=None) is True


def test_closing_while_nobody_runs_the_loop_does_not_hang() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = AsyncLoop(loop=loop).start("dublin", SystemClock())
    Box(dispatcher, print).put(1)
    assert dispatcher.close(drain=True, timeout=None) is False
    assert dispatcher.status().lost == 1
    loop.close()


def test_handlers_do_not_see_the_publishers_context() -> None:
    from contextvars import ContextVar

    who: ContextVar[str] = ContextVar("who", default="nobody")

    async def main() -> None:
        who.set("the opener")
        dispatcher = AsyncLoop().start("dublin", SystemClock())
        seen: list[str] = []

        async def handle(value: int) -> None:
            seen.append(who.get())

        who.set("a publisher")
        Box(dispatcher, lambda value: seen.append(who.get())).put(1)
        Box(dispatcher, handle, coroutine=True).put(1)
        assert await dispatcher.aclose(drain=True, timeout=GUARD)  # type: ignore[attr-defined]
        assert seen == ["the opener"] * 2

    run(main())
