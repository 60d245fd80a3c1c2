"""Timers and deadlines as events on channels, with a clock that is advanced by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater import Node, event_type
from headwater.correlation import all_of, on
from headwater.errors import ChannelError, ClosedError, ServiceError, SubscriptionError
from headwater.testing import ManualClock
from headwater.timers import Timeout
from tests.channel.events import Sighting, sighting

START = datetime(2000, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def any_(value: Any) -> Any:
    """A value of the wrong type, past the type checker."""
    return value


# ── periodic and one-shot timers ──


def test_a_periodic_timeout_is_an_event_on_a_channel() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        timer = node.every("clock.beat", 0.5, name="beat")
        assert node.channel("clock.beat").type == event_type(Timeout)
        got: list[Timeout] = []
        node.subscribe("clock.beat", got.append)
        odd = node.subscribe("clock.beat", where="number % 2 = 1")
        clock.advance(0.4)
        assert got == []
        clock.advance(1.2)
        assert got == [Timeout("beat", after(0.5 * n), n, 0) for n in (1, 2, 3)]
        assert [odd.get(0).number, odd.get(0).number] == [1, 3]
        assert timer.fired == 3 and timer.active and "'beat' on clock.beat, fired 3 times" in repr(timer)
        timer.cancel()
        clock.advance(10)
        assert len(got) == 3 and not timer.active and not node.channel("clock.beat").sources


def test_the_first_of_a_periodic_timer_may_come_sooner_or_later() -> None:
    clock = ManualClock(1000.0)  # the clock's own start does not matter
    with Node(clock=clock) as node:
        times: list[tuple[str, float]] = []
        node.every("t", 2.0, first=0.5, name="soon")
        node.every("t", 2.0, first=5, name="late")
        node.every("t", timedelta(seconds=2), first=0, name="now")
        node.subscribe("t", lambda event: times.append((event.timer, clock.now() - 1000.0)))
        clock.advance(0)
        assert times == [("now", 0.0)]
        clock.advance(5)
        assert times[1:] == [("soon", 0.5), ("now", 2.0), ("soon", 2.5), ("now", 4.0), ("soon", 4.5), ("late", 5.0)]


def test_a_period_does_not_drift() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        node.every("t", 0.1)
        last = node.subscribe("t")
        for _ in range(1000):
            clock.advance(0.1)
        events = [last.get(0) for _ in range(1000)]
        assert last.poll() is None
        assert events[-1].due == after(100) and events[-1].number == 1000
        assert not any(event.missed for event in events)


def test_a_single_timeout() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        channel = node.channel("t", Timeout)
        got: list[Timeout] = []
        channel.subscribe(got.append)
        one = node.after(channel, 1.0, name="one")
        with node.after("t", timedelta(seconds=2), name="never"):
            clock.advance(1.5)
        assert got == [Timeout("one", after(1.0), 1, 0)]
        clock.advance(10)
        assert len(got) == 1 and not one.active and one.fired == 1
        assert not channel.sources  # a timer that is done leaves nothing behind
        one.cancel()  # no harm
        assert channel.report().published == 1


def test_a_handler_may_set_the_next_timeout() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        times: list[float] = []

        def again(event: Timeout) -> None:
            times.append(clock.now())
            if len(times) < 4:
                node.after("t", len(times))

        node.channel("t", Timeout).subscribe(again)
        node.after("t", 0)
        clock.advance(100)
        assert times == [0.0, 1.0, 3.0, 6.0]


def test_timers_have_priorities() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        got: list[tuple[str, int]] = []
        node.channel("t", Timeout).subscribe(lambda event, about: got.append((event.timer, about.priority)))
        for name, priority in (("low", -1), ("none", 0), ("high", 9), ("middle", 5)):
            node.after("t", 1.0, priority=priority, name=name)
            node.every("t", 2.0, priority=priority, name=f"{name} again")
        clock.advance(2)
        assert got[:4] == [("high", 9), ("middle", 5), ("none", 0), ("low", -1)]
        assert got[4:] == [("high again", 9), ("middle again", 5), ("none again", 0), ("low again", -1)]


def test_a_timeout_takes_part_in_a_correlation() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        source = node.channel("a", Sighting).source()
        node.every("beat", 1.0)
        both = node.correlate(all_of(on("a", name="seen"), on("beat", name="beat")))
        source.publish(sighting(4))
        assert both.poll() is None
        clock.advance(1)
        assert both.get(0)["seen"].badge == 4


# ── deadlines ──


def test_silence_delivers_a_timeout_once() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        source = node.channel("hall.motion", Sighting).source()
        got: list[tuple[float, Timeout]] = []
        deadline = node.deadline("hall.silence", "hall.motion", 10.0, name="silence")
        node.subscribe("hall.silence", lambda event: got.append((clock.now(), event)))
        clock.advance(9)
        source.publish(sighting())  # in time
        clock.advance(9.5)
        source.publish(sighting())
        clock.advance(9.9)
        assert got == []
        clock.advance(0.1)
        assert got == [(28.5, Timeout("silence", after(28.5), 1, 0))]
        clock.advance(100)  # once, until something comes again
        assert len(got) == 1
        source.publish(sighting())
        clock.advance(20)
        assert [when for when, _ in got] == [28.5, 138.5] and got[1][1].number == 2
        deadline.cancel()
        source.publish(sighting())
        clock.advance(100)
        assert len(got) == 2 and not node.channel("hall.silence").sources and len(node.subscriptions) == 1


def test_only_events_of_the_interest_meet_the_deadline() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        motion = node.channel("hall.motion", Sighting)
        source = motion.source()
        node.deadline("t", motion, timedelta(seconds=2), "level > :l", params={"l": 0.5})
        got = node.subscribe("t")
        clock.advance(1)
        source.publish(sighting(level=0.1))
        clock.advance(1)
        assert got.get(0).due == after(2)
        source.publish(sighting(level=0.1))
        clock.advance(5)
        assert got.poll() is None
        source.publish_many(event_type(Sighting).to_arrow([sighting(level=0.1), sighting(level=0.9)]))
        clock.advance(2)
        assert got.get(0).due == after(9)


def test_a_deadline_may_repeat() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        source = node.channel("a", Sighting).source()
        node.deadline("t", "a", 2.0, repeat=True)
        due: list[datetime] = []
        node.subscribe("t", lambda event: due.append(event.due))
        clock.advance(5)
        source.publish(sighting())
        clock.advance(4.5)
        assert due == [after(2), after(4), after(7), after(9)]


def test_many_events_cost_a_deadline_no_timers() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        source = node.channel("a", Sighting).source()
        node.deadline("t", "a", 1.0)
        for _ in range(1000):
            source.publish(sighting())
            clock.advance(0.01)
        assert node._timers.pending == 1 and node.subscribe("t").poll() is None


# ── what is wrong with a timer is said at the call ──


def test_faulty_timers_are_errors_and_leave_nothing_behind() -> None:
    with Node(clock=ManualClock()) as node, Node() as other:
        node.channel("a", Sighting)
        foreign = other.channel("t", Timeout)
        cases: list[tuple[Any, str]] = [
            (lambda: node.every("t", 0), r"every: period: expected a number of seconds, above 0.*found 0"),
            (lambda: node.every("t", -1), "every: period"),
            (lambda: node.every("t", any_("1s")), "every: period.*found '1s'"),
            (lambda: node.every("t", float("nan")), "every: period"),
            (lambda: node.every("t", float("inf")), "every: period"),
            (lambda: node.every("t", True), "every: period"),
            (lambda: node.every("t", 1.0, first=-1), "every: first: expected a number of seconds, 0 or more"),
            (lambda: node.after("t", -0.1), "after: delay: expected a number of seconds, 0 or more"),
            (lambda: node.after("t", timedelta(seconds=-1)), "after: delay"),
            (
                lambda: node.every("t", 1.0, priority=any_("high")),
                "timer: priority: expected a whole number.*found 'high'",
            ),
            (lambda: node.after("t", 1.0, priority=True), "timer: priority"),
            (lambda: node.every("t", 1.0, name=""), "timer: name: expected a text"),
            (lambda: node.every("t", 1.0, name=any_(5)), "timer: name: expected a text"),
            (lambda: node.every("not a name", 1.0), "channel name 'not a name'"),
            (lambda: node.every("a", 1.0), "channel 'a': expected type ie.tcd.Sighting"),
            (lambda: node.every(node.channel("a"), 1.0), "channel 'a': expected type headwater.Timeout"),
            (lambda: node.every(foreign, 1.0), "belongs to another node"),
            (lambda: node.deadline("t", "a", 0), "deadline: within: expected a number of seconds, above 0"),
            (lambda: node.deadline("t", "b", 1.0), "channel 'b': expected one that exists"),
            (lambda: node.deadline("t", "a", 1.0, "levl > 1"), "levl"),
            (lambda: node.deadline("t", "a", 1.0, params={"x": 1}), "params: there is no interest"),
            (lambda: node.deadline("t", "a", 1.0, priority=any_(0.5)), "timer: priority"),
        ]
        for call, words in cases:
            with pytest.raises((ServiceError, ValueError), match=words):
                call()
        assert [channel.name for channel in node.channels()] == ["a"]
        assert node._timers.pending == 0 and not node.subscriptions and not foreign.sources
        node.every("t", 1.0, name="mine")
        with pytest.raises(ChannelError, match="source 'mine': expected a name that no source of t has"):
            node.every("t", 1.0, name="mine")
        assert node._timers.pending == 1


def test_no_timer_fires_after_the_end() -> None:
    clock = ManualClock()
    got: list[Timeout] = []
    with Node("lab", clock=clock) as node:
        timer = node.every("t", 1.0)
        node.subscribe("t", got.append)
        clock.advance(1)
    clock.advance(10)
    assert len(got) == 1 and not timer.active
    with pytest.raises(ClosedError, match="node 'lab' is closed"):
        node.after("t", 1.0)
    with pytest.raises(SubscriptionError):
        node.after("t", any_("x"))
