"""Ways of one origin: which of them is taken, what is held of the others, and when another one is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.arrive import paths as ways
from headwater.federation.arrive.deduplication import Verdict
from headwater.federation.arrive.paths import Origin, Way
from tests.effort import examples


class Alarm:
    """Time, as the test has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.now = 0.0
        self.tasks: list[Callable[[], None]] = []

    def later(self, seconds: float, task: Callable[[], None]) -> None:
        self.tasks.append(task)

    def ring(self) -> None:
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()


class Source:
    def __init__(self) -> None:
        self.closed, self.missed = False, 0
        self.lock = threading.Lock()

    @property
    def reachable(self) -> bool:
        return not self.closed


class World:
    """Ways that hand on what they bring to one list."""

    def __init__(self, lease: float = 0.0) -> None:
        self.alarm = Alarm()
        self.origin = Origin(self.alarm, lease)  # type: ignore[arg-type]
        self.came: list[int] = []

    def way(self, length: int, *filters: str) -> Way:
        return self.origin.way(Source(), ["f"] * length, filters)

    def bring(self, way: Way, *seqs: int) -> None:
        for seq in seqs:
            with way.source.lock, way.turn:
                verdict = way.offer(seq, [])
                if verdict is Verdict.TAKE:
                    self.came.append(seq)
                elif verdict is Verdict.HOLD:
                    way.hold(seq, 0, 1, lambda after, ready, seq=seq: self._late(way, seq))

    def _late(self, way: Way, seq: int) -> None:
        if way.new(seq):
            self.came.append(seq)


def test_the_shortest_way_is_taken_and_others_are_held() -> None:
    world = World(1000.0)
    long, short = world.way(2), world.way(1)
    world.bring(long, 1, 2, 3)
    assert world.came == []
    world.bring(short, 1, 2)
    assert world.came == [1, 2]
    short.source.closed = True
    world.bring(long, 4)
    assert world.came == [1, 2, 3, 4]


def test_of_two_that_are_alike_the_first_is_taken() -> None:
    world = World(1000.0)
    one, other = world.way(1), world.way(1)
    world.bring(other, 1)
    world.bring(one, 1, 2, 3)
    world.bring(other, 2)
    assert world.came == [1, 2]
    assert [held.last for held in one.held] == [2, 3]
    world.bring(other, 3)
    world.bring(one, 4)
    assert [held.last for held in one.held] == [4]


def test_one_that_falls_silent_is_left() -> None:
    world = World(-1.0)
    one, other = world.way(1), world.way(1)
    world.bring(one, 1)
    world.bring(other, 1, 2, 3)
    world.alarm.ring()
    assert world.came == [1, 2, 3]
    world.bring(one, 2, 3, 4)  # it is back, but not needed any more
    assert world.came == [1, 2, 3]
    world.bring(other, 4, 5)
    assert world.came == [1, 2, 3, 4, 5]


def test_what_is_held_is_bounded_and_what_may_be_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "EVENTS_HELD", 10)
    world = World(1000.0)
    one, other = world.way(1), world.way(1)
    world.bring(one, 1)
    world.bring(other, *range(2, 22))
    assert other.waiting == 10
    one.source.closed = True
    world.bring(other, 22)
    assert world.came == [1, *range(12, 23)] and other.source.missed == 10


def test_ways_with_different_filters_complete_each_other() -> None:
    world = World(1000.0)
    odd, even = world.way(1, "odd"), world.way(1, "even")
    world.bring(odd, 1, 3, 6)
    world.bring(even, 2, 6, 8)
    assert sorted(world.came) == [1, 2, 3, 6, 8]


def test_a_way_with_fewer_filters_is_better() -> None:
    world = World(1000.0)
    some, every = world.way(1, "odd"), world.way(3)
    world.bring(some, 1, 3, 5)
    world.bring(every, 1, 2, 3, 4)
    assert world.came == [1, 2, 3, 4]
    every.source.closed = True
    world.bring(some, 7)
    assert world.came == [1, 2, 3, 4, 5, 7]


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_whatever_happens_events_come_once_and_in_order(data: Any) -> None:
    """Ways come, bring more or less of the same events, fall silent and end, in any order."""
    world = World(data.draw(st.sampled_from([-1.0, 1000.0])))
    made: list[tuple[Way, list[int]]] = []
    last = 0
    for _ in range(40):
        match data.draw(st.integers(0, 5)):
            case 0:
                first = data.draw(st.integers(max(1, last - 5), last + 5))
                made.append((world.way(data.draw(st.integers(1, 3))), [first]))
            case 1 if made:
                data.draw(st.sampled_from(made))[0].source.closed = True
            case 2:
                world.alarm.ring()
            case _ if made:
                way, at = data.draw(st.sampled_from(made))
                if not way.source.closed:
                    count = data.draw(st.integers(1, 6))
                    world.bring(way, *range(at[0], at[0] + count))
                    at[0] += count
                    last = max(last, at[0])
    assert world.came == sorted(set(world.came))


def test_without_trouble_nothing_is_lost() -> None:
    world = World(1000.0)
    one, other = world.way(1), world.way(1)
    for seq in range(1, 100, 3):
        world.bring(one, seq, seq + 1, seq + 2)
        world.bring(other, seq, seq + 1, seq + 2)
    assert world.came == list(range(1, 100))


def test_a_better_way_waits_for_what_is_on_its_way_by_the_other() -> None:
    world = World(1000.0)
    some = world.way(1, "odd")
    world.bring(some, 1, 3, 5)
    every = world.way(1)
    world.bring(every, 8, 9, 10)
    assert world.came == [1, 3, 5]
    world.bring(some, 7, 9)
    world.alarm.ring()
    assert world.came == [1, 3, 5, 7, 8, 9, 10]
    world.bring(every, 11)
    world.bring(some, 11, 13)
    assert world.came == [1, 3, 5, 7, 8, 9, 10, 11]


def test_a_better_way_does_not_wait_for_ever() -> None:
    world = World(-1.0)
    some = world.way(1, "odd")
    world.bring(some, 1)
    every = world.way(1)
    world.bring(every, 8, 9)
    world.alarm.ring()
    assert world.came == [1, 8, 9]


def test_a_better_way_that_ends_before_its_turn_takes_nothing_with_it() -> None:
    world = World(1000.0)
    some = world.way(1, "odd")
    world.bring(some, 1)
    every = world.way(1)
    world.bring(every, 3)
    world.bring(some, 3, 5)
    every.source.closed = True
    world.bring(some, 7)
    world.alarm.ring()
    assert world.came == [1, 3, 5, 7]
