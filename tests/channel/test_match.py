"""Patterns at one node: `node.match` and `node.pattern`, through the public API."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Node, Queue, Reliable
from headwater.errors import ChannelError, ClosedError, ParameterError, PatternError, SubscriptionError
from headwater.patterns.model import Limits
from headwater.patterns.pattern import Pattern
from headwater.testing import ManualClock

TAILGATING = """
    a: hall.door(action = 'in'); b: hall.door{action = 'in' and who != a.who} within 2 seconds partition by door
    measures a.who as first, b.who as second
"""
DOOR = "who: text, action: text, door: u32"
SILENCE = "o: door{open}; without c: door{not open} within 10 seconds measures o.n as n"


def all_of(watch: Any) -> list[Any]:
    found = []
    while (event := watch.poll()) is not None:
        found.append(event)
    return found


def test_matches_are_delivered_to_a_handler_and_published_on_a_channel() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("hall.door", DOOR).source("east")
        seen: list[tuple[str, str]] = []
        node.match(TAILGATING, lambda found: seen.append((found.first, found.second)))
        node.pattern("security.tailgating", TAILGATING)
        events = node.channel("security.tailgating").subscribe("first == 'ann'")
        for who, number, seconds in (("ann", 1, 1), ("bob", 1, 1), ("cy", 2, 0), ("di", 1, 5), ("ed", 1, 0)):
            door.publish(who=who, action="in", door=number)
            clock.advance(seconds)
        assert seen == [("ann", "bob"), ("ann", "di"), ("bob", "di")]
        assert [event.second for event in all_of(events)] == ["bob", "di"]


def test_no_row_of_a_long_batch_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken in piece by piece: what has come of time between two of them is before the second one's rows."""
    monkeypatch.setattr("headwater.channel.source.PIECE", 2)
    with Node("lab") as node:
        source = node.channel("door", "n: u32").source()
        watch = node.match("a: door{n % 2 = 1} measures a.n as n")
        source.publish_many([{"n": n} for n in range(9)])
        source.publish_many(pa.table({"n": pa.array(range(9, 18), pa.uint32())}))
        assert [watch.get(timeout=60).n for _ in range(9)] == list(range(1, 18, 2))
        assert watch.report().late == 0


def test_a_name_that_is_taken_says_by_what() -> None:
    with Node("lab") as node:
        node.channel("hall.door", DOOR)
        node.channel("other", "n: u32")
        made = node.pattern("tailgating", TAILGATING)
        with pytest.raises(ChannelError, match=r"pattern 'tailgating': expected a name of its own, .* close\(\)"):
            node.pattern("tailgating", TAILGATING)
        for name, to in (("tailgating", None), ("again", "other")):
            told = f"pattern '{name}': expected a channel '{to or name}' with the type of its matches, Match (a: Event,"
            with pytest.raises(ChannelError, match=re.escape(told)):
                node.pattern(name, "a: hall.door", to=to)
        made.close()
        node.pattern("tailgating", TAILGATING)


def test_absence_is_found_by_the_clock_alone() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("door", "n: u32, open: bool").source()
        watch = node.match(SILENCE)
        door.publish(n=1, open=True)
        clock.advance(11)
        (found,) = all_of(watch)
        assert found.n == 1 and not found.match.uncertain
        door.publish(n=2, open=True)
        clock.advance(9)
        door.publish(n=3, open=False)
        clock.advance(60)
        assert all_of(watch) == []


def test_events_of_several_sources_are_taken_in_the_order_of_their_times() -> None:
    """Threads publish as they like; what each does is in the order of its own calls."""
    with Node("lab") as node:
        channel = node.channel("x", "who: u32, n: u32")
        watch = node.match(
            "(a: x){2} strict within 1 hour partition by who measures first(a.n) as i, last(a.n) as j", queue=9_999
        )

        def run(who: int) -> None:
            source = channel.source(f"s{who}")
            for n in range(200):
                source.publish(who=who, n=n)

        threads = [threading.Thread(target=run, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pairs = [watch.get(timeout=60) for _ in range(3 * 199)]
        assert sorted((pair.i, pair.j) for pair in pairs) == sorted((n, n + 1) for n in range(199) for _ in range(3))
        times = [pair.match.time for pair in pairs]
        assert times == sorted(times)
        assert watch.report().late == 0


def test_a_match_is_an_event_of_other_patterns() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("hall.door", DOOR).source("east")
        node.pattern("tailgating", TAILGATING)
        again = node.match("t: tailgating -> u: tailgating within 1 minute partition by 1 measures u.second as who")
        for who in ("ann", "bob"):
            door.publish(who=who, action="in", door=1)
        clock.advance(30)
        for who in ("cy", "di"):
            door.publish(who=who, action="in", door=2)
        clock.advance(1)
        (found,) = all_of(again)
        assert found.who == "di"


def test_what_does_not_follow_a_match_is_found_by_the_clock_too() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door = node.channel("hall.door", DOOR).source("east")
        guard = node.channel("guard", "who: text").source()
        node.pattern("tailgating", TAILGATING)
        watch = node.match("t: tailgating; without guard within 30 seconds measures t.second as who")
        for who, number, seconds in (("ann", 1, 0), ("bob", 1, 20), ("cy", 2, 0), ("di", 2, 5)):
            door.publish(who=who, action="in", door=number)
            clock.advance(seconds)
        guard.publish(who="gus")  # 25 seconds after bob, 5 after di
        clock.advance(60)
        assert all_of(watch) == []
        for who in ("ed", "fay"):
            door.publish(who=who, action="in", door=3)
        clock.advance(60)
        (found,) = all_of(watch)
        assert (found.who, found.match.uncertain) == ("fay", False)


def test_other_values_hold_from_a_point_of_each_source() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        x, y = node.channel("x", "n: u32").source("s"), node.channel("y", "n: u32").source("s")
        made = node.pattern("pairs", "a: x{n > :least}; b: y{n > :least} within 1 minute", params={"least": 5})
        pairs = node.channel("pairs").subscribe()
        x.publish(n=7)
        y.publish(n=6)
        clock.advance(1)
        assert made.change(params={"least": 1}) == {"x/s": 1, "y/s": 1}
        y.publish(n=9)  # what was open is gone
        clock.advance(1)
        x.publish(n=2)
        clock.advance(1)
        y.publish(n=3)
        clock.advance(1)
        assert [(each.a.n, each.b.n) for each in all_of(pairs)] == [(7, 6), (2, 3)]
        report = made.report()
        assert report.dropped > 0 and report.matches == 2 and report.events == 5
        with pytest.raises(ParameterError, match="expected least, found 'last'; did you mean"):
            made.change(params={"last": 1})
        assert asyncio.run(made.achange(params={"least": 100})) == {"x/s": 2, "y/s": 3}
        made.close()
        with pytest.raises(ClosedError):
            made.change(params={"least": 0})


def test_by_arrival_events_without_a_time_of_their_own_have_a_partition() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        source = node.channel("x", "n: u32, k: text, at: timestamp?").source()
        watch = node.match(
            "a: x; b: x within 1 hour partition by k time at measures a.n as i, b.n as j", order="arrival"
        )
        for n, k in ((1, "left"), (2, "right"), (3, "left")):
            source.publish(n=n, k=k, at=None)
        clock.advance(1)
        assert [(found.i, found.j) for found in all_of(watch)] == [(1, 3)]


def test_of_one_moment_sources_of_one_name_in_two_channels_are_in_the_order_of_their_numbers() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        door, lid = (node.channel(name, "n: u32").source("gate") for name in ("door", "lid"))
        lid_first = node.match("b: lid -> a: door within 1 second measures a.n as i, b.n as j")
        door_first = node.match("a: door -> b: lid within 1 second measures a.n as i, b.n as j")
        door.publish(n=1)
        clock.advance(60)
        door.publish(n=2)  # its second
        lid.publish(n=3)  # its first, of the same moment
        clock.advance(60)
        assert [(found.i, found.j) for found in all_of(lid_first)] == [(2, 3)]
        assert all_of(door_first) == []


def test_by_arrival_time_is_that_of_coming() -> None:
    """Whatever time an event says: the clock of the node counts."""
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        source = node.channel("x", "n: u32, at: timestamp").source()
        watch = node.match("a: x; b: x within 2 seconds time at measures a.n as i, b.n as j", order="arrival")
        for n, at, seconds in ((1, 50, 1), (2, 10, 5), (3, 60, 1), (4, 0, 0)):
            source.publish(n=n, at=at)
            clock.advance(seconds)
        assert [(each.i, each.j) for each in all_of(watch)] == [(1, 2), (3, 4)]
        assert "not the same again" in str(watch.report())
        with pytest.raises(SubscriptionError, match="expected one of time, arrival, found 'arival'"):
            node.match("x{n > 1}", order="arival")  # type: ignore[arg-type]


def test_events_that_say_their_time_are_waited_for_and_late_ones_counted() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        channel = node.channel("x", "n: u32, at: i64")
        one, two = channel.source("one"), channel.source("two")
        watch = node.match("a: x{n = 1} -> b: x{n = 2} within 10 seconds time at lateness 1 second measures b.at as at")
        one.publish(n=1, at=1_000_000)
        one.publish(n=2, at=9_000_000)
        assert watch.poll() is None  # source two may still have something between them
        two.publish(n=2, at=3_000_000)
        two.publish(n=1, at=20_000_000)
        two.publish(n=2, at=12_000_000)  # too late: it had come to 20, less one second
        one.publish(n=3, at=40_000_000)
        assert [each.at for each in all_of(watch)] == [3_000_000]
        report = watch.report()
        assert report.late == 1 and report.held_by == "x/two"


def test_after_some_patience_a_match_is_uncertain_and_what_contradicts_it_is_counted() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        channel = node.channel("x", "n: u32, at: i64")
        one, two = channel.source("one"), channel.source("two")
        watch = node.match(
            "a: x{n = 1}; without x{n = 2} within 10 seconds time at patience 5 seconds measures a.at as at"
        )
        one.publish(n=1, at=0)
        clock.advance(14)
        assert watch.poll() is None  # nothing is heard of the other source
        clock.advance(2)
        (found,) = all_of(watch)
        assert found.at == 0 and found.match.uncertain
        two.publish(n=2, at=4_000_000)
        report = watch.report()
        assert (report.uncertain, report.contradicted, report.late) == (1, 1, 0)


def test_limits_are_kept_and_what_is_given_up_is_counted() -> None:
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        source = node.channel("x", "k: u32, n: u32").source()
        watch = node.match("a: x{n = 1}; b: x{n = 2} within 1 hour partition by k", limits=Limits(partitions=16))
        for k in range(100):
            source.publish(k=k, n=1)
        for k in range(100):
            source.publish(k=k, n=2)
        report = watch.report()
        assert report.given_up > 0 and report.partitions <= 16
        assert [each.a.k for each in all_of(watch)][-1] == 99


def test_a_handler_that_fails_now_and_then_gets_the_other_matches() -> None:
    seen = []

    def handler(found: Any) -> None:
        if found.a.n % 3 == 0:
            raise RuntimeError("no")
        seen.append(found.a.n)

    with Node("lab") as node:
        source = node.channel("x", "n: u32").source()
        watch = node.match("a: x{n > 1}", handler, failures=0)
        for n in range(9):
            source.publish(n=n)
        assert seen == [2, 4, 5, 7, 8] and watch.counts.failed == 2


def test_a_full_queue_makes_publishers_wait() -> None:
    with Node("lab") as node:
        source = node.channel("x", "n: u32").source()
        watch = node.match("a: x", queue=Queue(limit=4, policy="block", wait=60))
        done = threading.Event()

        def run() -> None:
            for n in range(50):
                source.publish(n=n)
            done.set()

        thread = threading.Thread(target=run)
        thread.start()
        first = watch.get(timeout=60)
        assert first.a.n == 0 and not done.is_set()
        assert [watch.get(timeout=60).a.n for _ in range(49)] == list(range(1, 50))
        thread.join()
        assert done.is_set() and watch.counts.dropped == 0


def test_a_node_closes_while_runs_are_open() -> None:
    with Node("lab") as node:
        source = node.channel("door", "n: u32, open: bool").source()
        other = node.channel("door").source("a")
        watch, made, again = node.match(SILENCE), node.pattern("silence", SILENCE), node.match("a: door")
        source.publish(n=1, open=True)
        other.close()
    assert again.get(timeout=60).a.n == 1
    with pytest.raises(ClosedError):
        watch.get(timeout=60)
    assert made.state == "closed"


def test_what_is_wrong_with_a_pattern_is_said_with_its_place() -> None:
    with Node("lab") as node:
        node.channel("hall.door", DOOR)
        with pytest.raises(PatternError, match=r"hall\.dor") as error:
            node.match("a: hall.dor; b: hall.door{whom = 'x'} within 1 s")
        assert len(error.value.problems) == 2 and "hall.door" in str(error.value)
        with pytest.raises(SubscriptionError, match=r"node\.pattern"):
            node.match("a: hall.door", delivery=Reliable(durable=True), name="w")
        other = Pattern("a: hall.door", {"hall.door": "who: text"})
        with pytest.raises(PatternError, match="as the pattern was checked with"):
            node.match(other)


def test_results_come_in_batches_and_by_priority_too() -> None:
    with Node("lab") as node:
        source = node.channel("x", "n: u32").source()
        watch = node.match("a: x measures a.n as n", queue=100)
        urgent = node.match("a: x measures a.n as n", priority="n", queue=100)
        for n in range(5):
            source.publish(n=n)
        batch = watch.get_batch()
        assert batch.column("n").to_pylist() == [0, 1, 2, 3, 4] and batch.schema.names == ["n", "match"]
        assert [each.n for each in all_of(urgent)] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.filterwarnings("ignore:.*log:headwater.HeadwaterWarning")
def test_a_pattern_that_is_ended_says_nothing_that_nobody_has_promised(kept: bool, tmp_path: Path) -> None:
    """Its sources leave with it; those that are gone otherwise hold nothing back."""
    clock = ManualClock()
    with Node("lab", clock=clock, state=tmp_path / "state" if kept else None) as node:
        here = node.channel("here", "k: i64, at: i64").source("east")
        there = node.channel("there", "k: i64, at: i64").source("west")
        text = "x: here; without there within 1 second time at measures x.k as k"
        made = node.pattern("lone", text)
        seen: list[tuple[int, bool]] = []
        node.channel("lone").subscribe(lambda found: seen.append((found.k, found.match.uncertain)))
        for k, at in ((1, 0), (2, 10_000_000)):
            here.publish(k=k, at=at)
        there.publish(k=3, at=5_000_000)
        assert seen == [(1, False)]
        clock.advance(60)
        made.close()
        assert seen == [(1, False)]
        again = node.pattern("lone", text)
        for source in (here, there):
            source.publish(k=4, at=20_000_000)
        # What came while it was not there was not logged: nobody knows.
        assert seen == ([(1, False), (2, True)] if kept else [(1, False)])
        again.close()


def test_what_is_open_is_said_as_far_as_it_is_known() -> None:
    """Runs that are shared are not counted, but their events are."""
    clock = ManualClock()
    with Node("lab", clock=clock) as node:
        source = node.channel("x", "k: i64").source("east")
        shared = node.match("a: x; b: x{k = 2} within 1 hour measures a.k as k")
        apart = node.match("a: x; b: x{k > a.k + 1 and k < a.k + 9} within 1 hour measures a.k as k")
        assert [(each.report().runs, each.report().shared) for each in (shared, apart)] == [(0, True), (0, False)]
        for _ in range(3):
            source.publish(k=1)
            clock.advance(1)
        assert (shared.report().runs, apart.report().runs) == (3, 3)
        assert "shared runs of at most 3 events" in str(shared.report()) and "3 runs in" in str(apart.report())


class Sudden(ManualClock):
    """A clock of which the time is later than its timers have noticed, as on a busy machine."""

    ahead = 0  # microseconds

    def time(self) -> int:
        return super().time() + self.ahead


@pytest.mark.filterwarnings("ignore:.*log:headwater.HeadwaterWarning")
def test_what_a_kept_pattern_decides_when_it_is_closed_is_decided_once(tmp_path: Path) -> None:
    """Its state is the last that it does: who goes on from there would find again what came after."""
    clock, seen = Sudden(), list[int]()
    with Node("lab", clock=clock, state=tmp_path / "state") as node:
        source = node.channel("x", "k: i64").source("east")
        node.channel("y", "k: i64")
        text = "a: x; without y within 10 seconds measures a.k as k"
        made = node.pattern("lone", text)
        node.channel("lone").subscribe(lambda found: seen.append(found.k))
        source.publish(k=1)
        clock.advance(1)
        clock.ahead = 60_000_000
        made.close()
        node.pattern("lone", text)
        clock.advance(60)
        assert seen == [1]
