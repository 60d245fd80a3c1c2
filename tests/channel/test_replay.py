"""Replaying a log into live channels: order, speed, names, types."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.channel import ManualClock, Node
from headwater.channel.replay import replay
from headwater.errors import ClosedError, StoreError
from headwater.store.log.layout import DAY_MICROSECONDS
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.settings import Log
from tests.effort import examples
from tests.store.log.logs import CHANNEL, DAY0, Logged, as_type, sighting


@pytest.fixture
def log(tmp_path: Path) -> Logged:
    """Source x of two nodes, and long runs of y."""
    made = Logged(tmp_path / "log")
    made.rest("a", [sighting("a", "x", i, DAY0 + 1_000_000 * i) for i in range(1, 11)])
    made.rest("b", [sighting("b", "x", i, DAY0 + 1_000_000 * i + 500_000) for i in range(1, 6)])
    made.tail("b", [sighting("b", "y", i, DAY0 + 7_200_000 + i) for i in range(1, 21)])
    return made


class Heard:
    """What a sink heard: source and number, in order."""

    def __init__(self, node: Node, channel: str, type: Any) -> None:
        self.events: list[tuple[str, Any]] = []
        self.came = threading.Semaphore(0)
        node.channel(channel, type).subscribe(self.take, about=True, dispatch="inline")

    def take(self, event: Any, about: Any) -> None:
        self.events.append((about.source, getattr(event, "level", event)))
        self.came.release()


def named(log: Logged) -> list[tuple[str, Any]]:
    """What is expected to be heard of the log."""
    values = {(n, s, q): fields for n, s, q, _, fields in log.rows}
    twice = {s for n, s, *_ in log.rows if any(o != n and t == s for o, t, *_ in log.rows)}
    return [(f"{n}.{s}" if s in twice else s, values[n, s, q]["level"]) for n, s, q, _ in log.ordered()]


class TestAsFastAsPossible:
    def test_everything_in_the_order_of_time(self, log: Logged) -> None:
        with Node() as node:
            heard = Heard(node, CHANNEL, log.type)
            told: list[int] = []
            report = replay(log.root, node, progress=told.append)
            assert heard.events == named(log)
            assert (report.events, report.sources, report.channels) == (35, 3, (CHANNEL,)) and sum(told) == 35
            assert (report.first, report.last) == (DAY0 + 1_000_000, DAY0 + 10_000_000)
            assert not node.channel(CHANNEL).sources  # withdrawn again

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_against_a_list(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        log = Logged(tmp_path_factory.mktemp("log"))
        for node in data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
            rows, last = [], {"x": 0, "y": 0, node: 0}
            for _ in range(data.draw(st.integers(1, 30))):
                source = data.draw(st.sampled_from(sorted(last)))
                last[source] += 1
                rows.append(sighting(node, source, last[source], DAY0 + data.draw(st.integers(0, 40))))
            (log.rest if data.draw(st.booleans()) else log.tail)(node, rows)
        with Node() as live:
            heard = Heard(live, "again", log.type)
            replay(LogFiles(log.root), live, to="again")
            assert heard.events == named(log)

    def test_only_some(self, log: Logged) -> None:
        with Node() as node:
            heard = Heard(node, "other", log.type)
            since, until = DAY0 + 3_000_000, DAY0 + 5_000_000
            report = replay(log.root, node, channel=CHANNEL, to="other", since=since, until=until, sources=["x"])
            assert [source for source, _ in heard.events] == ["a.x", "b.x", "a.x", "b.x"]
            assert report.channels == ("other",) and report.sources == 2

    def test_several_channels_together(self, log: Logged) -> None:
        other = Logged(log.root, "zz.bytes", type=None)
        other.rest("c", [("c", "x", i, DAY0 + 1_000_000 * i, {"data": b"%d" % i}) for i in range(1, 9)])
        with Node() as node:
            order: list[tuple[str, Any]] = []
            for name, kind in ((CHANNEL, log.type), ("zz.bytes", bytes)):
                channel = node.channel(name, kind)
                channel.subscribe(lambda event, name=name: order.append((name, event)), dispatch="inline")
            report = replay(log.root, node)
        assert report.events == 43
        rows = [(t, 0) for *_, t, _ in log.rows] + [(t, 1) for *_, t, _ in other.rows]
        assert [name for name, _ in order] == [(CHANNEL, "zz.bytes")[which] for _, which in sorted(rows)]
        assert [event for name, event in order if name == "zz.bytes"] == [b"%d" % i for i in range(1, 9)]

    def test_sources_are_advertised_before_the_first_event(self, log: Logged) -> None:
        with Node() as node:
            seen: list[list[str]] = []
            replay(log.root, node, ready=lambda: seen.append(sorted(node.channel(CHANNEL).sources)))
            assert seen == [["a.x", "b.x", "y"]]

    def test_it_is_stopped(self, log: Logged) -> None:
        stop = threading.Event()
        stop.set()
        with Node() as node:
            report = replay(log.root, node, stop=stop)
            assert report.stopped and report.events == 0


class TestSpeed:
    @pytest.mark.parametrize("speed", [1, 4.0])
    def test_by_the_node_s_clock(self, log: Logged, speed: float) -> None:
        clock = ManualClock()
        with Node(clock=clock) as node:
            heard = Heard(node, CHANNEL, log.type)
            when: list[float] = []
            node.channel(CHANNEL).subscribe(lambda event: when.append(clock.now()), dispatch="inline")
            started = threading.Event()
            thread = threading.Thread(
                target=replay, args=(log.root, node), kwargs={"speed": speed, "ready": started.set}
            )
            thread.start()
            started.wait()
            times = [key[3] for key in log.ordered()]
            due = [round((time - times[0]) / 1e6 / speed, 9) for time in times]
            for at in due:
                clock.advance_to(at)
                heard.came.acquire()
            thread.join()
            assert heard.events == named(log)
            assert when == due

    def test_what_is_late_comes_at_once(self, log: Logged) -> None:
        clock = ManualClock()
        with Node(clock=clock) as node:
            heard = Heard(node, CHANNEL, log.type)
            late = threading.Event()

            def hold(event: Any) -> None:
                if not late.is_set():
                    late.set()
                    clock.advance(60)  # as if the first had taken a minute

            node.channel(CHANNEL).subscribe(hold, dispatch="inline")
            report = replay(log.root, node, speed=1)
            assert heard.events == named(log) and 58 < report.late <= 60

    def test_a_node_that_is_closed(self, log: Logged) -> None:
        clock = ManualClock()
        node = Node(clock=clock)
        raised: list[BaseException] = []

        def run() -> None:
            try:
                replay(log.root, node, speed=1)
            except ClosedError as error:
                raised.append(error)

        heard = Heard(node, CHANNEL, log.type)
        thread = threading.Thread(target=run)
        thread.start()
        heard.came.acquire()
        node.close()
        thread.join()
        assert "was closed after 1 events" in str(raised[0])


class TestTypes:
    def test_a_channel_that_has_a_type_of_its_own(self, log: Logged) -> None:
        with Node() as node:
            heard = Heard(node, CHANNEL, "level: f64")
            replay(log.root, node)
            assert heard.events == named(log)

    def test_an_event_that_does_not_fit(self, log: Logged) -> None:
        with Node() as node:
            node.channel(CHANNEL, "level: f64, place: text").subscribe(print, dispatch="inline")
            with pytest.raises(StoreError, match=r"does not fit channel 'ie\.tcd\.sighting'.*to another channel"):
                replay(log.root, node)

    def test_older_events_lack_what_the_newest_type_requires(self, log: Logged) -> None:
        log.type = as_type("badge: u32, level: f64, height: f64")
        later = DAY0 + DAY_MICROSECONDS
        log.rest("a", [("a", "x", 20, later, {"badge": 1, "level": 0.5, "height": 2.0})])
        with Node() as node:
            seen: list[Any] = []
            replay(log.root, node, ready=lambda: node.channel(CHANNEL).subscribe(seen.append, dispatch="inline"))
            assert len(seen) == 36 and seen[0].height is None and seen[-1].height == 2.0

    def test_bytes_are_no_events(self, log: Logged) -> None:
        with Node() as node:
            node.channel(CHANNEL, bytes)
            with pytest.raises(StoreError, match="carries bytes, and the log"):
                replay(log.root, node)


class TestWhatIsAskedWrongly:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"speed": -1}, "speed: expected a number above 0"),
            ({"speed": float("nan")}, "speed: expected a number above 0"),
            ({"channel": "no"}, "found 'no'; it has ie.tcd.sighting"),
            ({"to": {"no": "x"}}, "to: expected names of channels that are replayed, found 'no'"),
            ({"since": "now"}, "since: expected microseconds since 1970"),
        ],
    )
    def test_it_is_told(self, log: Logged, given: dict[str, Any], message: str) -> None:
        with Node() as node, pytest.raises(StoreError, match=message):
            replay(log.root, node, **given)

    def test_a_log_into_itself(self, log: Logged) -> None:
        with Node(log=Log(log.root)) as node:
            with pytest.raises(StoreError, match="every event would be there twice"):
                replay(log.root, node)
            replay(log.root, node, to="another")
        assert LogFiles(log.root).reader("another").count() == 35
