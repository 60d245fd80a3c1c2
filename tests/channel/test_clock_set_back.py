"""The clock of the machine is set back while patterns run: nothing is lost, nothing comes twice, nothing too early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Node
from headwater.logs import LogFiles
from headwater.testing import ManualClock
from tests.federation.nodes import GUARD, eventually, nodes

PAIR = "a: x{k = 1}; b: x{k = 2} within 1 hour measures a.n as first, b.n as second"
ABSENT = "a: x{k = 1}; without y within 10 seconds measures a.n as n"
X, BACK = "k: u32, n: u32", 3600.0  # seconds


class Clock(ManualClock):
    """One that can be set back: timers go on, as they go by another one."""

    def set_back(self, seconds: float) -> None:
        self._time -= round(seconds * 1_000_000)


def all_of(watch: Any) -> list[Any]:
    found = []
    while (event := watch.poll()) is not None:
        found.append(event)
    return found


def test_events_are_in_their_order_and_each_match_comes_once() -> None:
    clock = Clock()
    with Node("lab", clock=clock) as node:
        channel = node.channel("x", X)
        one, other = channel.source("a"), channel.source("b")
        watch = node.match(PAIR)
        one.publish(k=1, n=1)
        clock.advance(5)
        other.publish(k=2, n=2)
        clock.set_back(BACK)
        other.publish(k=2, n=3)
        clock.advance(1)
        one.publish(k=1, n=4)
        clock.advance(1)
        channel.source("late").publish(k=2, n=5)  # one that comes only now
        clock.advance(1)
        found = all_of(watch)
        assert sorted((each.first, each.second) for each in found) == [(1, 2), (1, 3), (1, 5), (4, 5)]
        times = [each.match.time for each in found]
        assert times == sorted(times)
        report = watch.report()
        assert (report.events, report.late, report.contradicted) == (5, 0, 0)


def test_absence_is_found_when_its_time_has_passed_and_not_before() -> None:
    clock = Clock()
    with Node("lab", clock=clock) as node:
        x, y = node.channel("x", X).source(), node.channel("y", "n: u32").source()
        watch = node.match(ABSENT)
        x.publish(k=1, n=1)
        clock.advance(5)
        clock.set_back(BACK)
        clock.advance(4)
        assert all_of(watch) == []
        clock.advance(30)  # what has passed since the clock was looked at last is not known, and it is a little slower
        assert [each.n for each in all_of(watch)] == [1]
        x.publish(k=1, n=2)
        clock.set_back(BACK)
        clock.advance(1)
        y.publish(n=1)
        clock.advance(60)
        assert all_of(watch) == []
        x.publish(k=1, n=3)
        clock.advance(30)
        assert [(each.n, each.match.uncertain) for each in all_of(watch)] == [(3, False)]


def test_another_node_whose_clock_is_set_back_keeps_what_it_has_promised() -> None:
    clock = Clock()
    with nodes() as make:
        desk, east = make("desk", clock=clock), make("east", clock=clock)
        source = east.channel("x", X).source("east")
        make.together()
        assert desk.until(lambda: bool(desk.remote_sources("x")), GUARD)
        watch = desk.match("a: x{k = 1} -> b: x{k = 2} within 1 hour measures a.n as first, b.n as second")
        make.ready(desk)
        source.publish(k=1, n=1)
        clock.advance(5)
        eventually(lambda: watch.report().watermark is not None and watch.report().rows == 1)
        clock.set_back(BACK)
        source.publish(k=2, n=2)
        eventually(lambda: watch.report().rows == 2)
        clock.advance(1)
        found = watch.get(timeout=GUARD)
        assert found is not None and (found.first, found.second) == (1, 2)
        assert watch.report().late == 0 and watch.poll() is None


def test_times_do_not_go_back_in_a_log(tmp_path: Path) -> None:
    clock = Clock()
    with Node("lab", clock=clock, log={"path": tmp_path / "logs"}) as node:
        source = node.channel("x", X).source("a")
        for n in range(4):
            source.publish(k=1, n=n)
            clock.advance(1)
            clock.set_back(1.5)
    times = [row["event_time"] for batch in LogFiles(tmp_path / "logs").read("x") for row in batch.to_pylist()]
    assert times == sorted(times) and len(times) == 4
