"""What comes from another node takes the fast path also where an interest chooses, or a handler is told more."""

from __future__ import annotations

from time import time_ns
from typing import Any

import pytest

from headwater import Event, i64
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, SourceAd
from headwater.federation.wire.requests import pack_type
from headwater.types import event_type
from tests.federation.hostile import Mallory, Target
from tests.federation.nodes import GUARD, eventually, nodes


class Reading(Event, frozen=True):
    n: i64
    place: str = ""


class Sink:
    """A handler that is told more than the event, and what it is to do with some of them."""

    def __init__(self) -> None:
        self.events: list[Reading] = []
        self.abouts: list[Any] = []
        self.does: dict[int, Any] = {}

    def __call__(self, event: Reading, about: Any) -> None:
        self.events.append(event)
        self.abouts.append(about)
        if (do := self.does.pop(event.n, None)) is not None:
            do()

    def until(self, count: int) -> None:
        eventually(lambda: len(self.events) >= count, f"{count} events")


def arrived(node: Any, channel: str) -> RemoteSource:
    (found,) = [each for each in node.channel(channel).sources.values() if isinstance(each, RemoteSource)]
    return found


def told(sink: Sink) -> list[tuple[str, int, int]]:
    return [(about.source, about.seq, about.epoch) for about in sink.abouts]


@pytest.mark.parametrize("where", [None, "n > :least", "n > :least and place != 'x'"])
def test_one_by_one_and_many_at_once(where: str | None) -> None:
    with nodes() as make:
        lab, desk, sink = make("lab"), make("desk"), Sink()
        make.together()
        source = lab.channel("readings", Reading).source("s")
        params = None if where is None else {"least": 0}
        sub = desk.channel("readings", Reading).subscribe(sink, where, params=params, dispatch="inline")
        make.ready()
        events = [Reading(n % 5 - 2, "ab"[n % 2]) for n in range(300)]
        for event in events[:100]:
            source.publish(event)
        source.publish_many(events[100:200])
        for event in events[200:]:
            source.publish(event)
        wanted = [(event, 1 + at) for at, event in enumerate(events) if where is None or event.n > 0]
        sink.until(len(wanted))
        assert list(zip(sink.events, [seq for _, seq, _ in told(sink)], strict=True)) == wanted
        assert {(name, epoch) for name, _, epoch in told(sink)} == {("s", 1)}
        assert {about.channel for about in sink.abouts} == {"readings"}
        flow = arrived(desk, "readings")._flow
        assert flow.direct > 0  # single events, at least, were in no queue
        assert desk.flush(GUARD)
        counts = sub.report().counts
        assert (counts.passed, counts.delivered, counts.rejected) == (len(wanted), len(wanted), 0)


def test_another_interest_holds_for_all_that_comes_after_it() -> None:
    with nodes() as make:
        lab, desk, sink = make("lab"), make("desk"), Sink()
        make.together()
        source = lab.channel("readings", Reading).source("s")
        with desk.channel("readings", Reading).subscribe(
            sink, "n > :least", params={"least": 0}, dispatch="inline"
        ) as sub:
            make.ready()
            for n in range(1, 4):
                source.publish(Reading(n))
            sink.until(3)
            sub.change(params={"least": 10})
            for n in (4, 11, 5, 12):  # of these, some may still come as the interest of before has it
                source.publish(Reading(n))
            sink.until(5)
        assert [event.n for event in sink.events] == [1, 2, 3, 11, 12]
        assert [epoch for _, _, epoch in told(sink)] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("where", [None, "n >= 0"])
def test_a_handler_that_pauses_and_one_that_fails(where: str | None) -> None:
    with nodes() as make:
        lab, desk, sink = make("lab"), make("desk"), Sink()
        make.together()
        source = lab.channel("readings", Reading).source("s")
        sub = desk.channel("readings", Reading).subscribe(sink, where, dispatch="inline", failures=0)
        make.ready()

        def fail() -> None:
            raise ValueError("not today")

        sink.does = {3: fail, 7: sub.pause, 150: fail, 170: sub.pause}
        for n in range(100):
            source.publish(Reading(n))
        sink.until(8)
        eventually(lambda: sub.paused is not None, "a pause")
        sub.resume()
        sink.until(100)
        source.publish_many([Reading(n) for n in range(100, 200)])
        sink.until(171)
        eventually(lambda: sub.paused is not None, "a pause")
        assert len(sink.events) == 171  # the rest of the frame waits
        sub.resume()
        sink.until(200)
        assert [event.n for event in sink.events] == list(range(200))
        assert [seq for _, seq, _ in told(sink)] == list(range(1, 201))
        assert desk.flush(GUARD)
        counts = sub.report().counts
        assert (counts.passed, counts.failed) == (200, 2)


def test_what_nobody_wants_and_what_is_no_event_comes_to_no_handler() -> None:
    """A node that sends what it was not asked for, and what is none, one by one and several at once."""
    type, now = event_type(Reading), time_ns()
    with nodes() as make:
        lab, sink = make("lab"), Sink()
        sub = lab.channel("readings", Reading).subscribe(sink, "n > 0 and place == 'here'", dispatch="inline")
        mallory = Mallory(Target.of(lab))
        good, other = type.encode(Reading(1, "here")), type.encode(Reading(1, "there"))
        bad = [b"", b"x", good[:-8], good + bytes(8), b"\xff" * len(good)]
        with mallory.call() as call:
            call.send(wire.encode_control(Announce(ad=SourceAd(1, "m", "readings"), type=pack_type(type), next=1)))
            number = 0
            for records in ([good], [other], *([each] for each in bad), [other, good, other], [good, bad[1], other]):
                number += 1
                call.send(wire.encode_run_first(1, number, 10 * number, [now] * len(records), records))
            assert call.heard()
            sink.until(3)
            assert lab._engine is not None
            source = lab._engine.peers[mallory.id].remote_sources[1]
            assert source.frame == number and source.malformed == len(bad) + 1
            assert sink.events == [Reading(1, "here")] * 3
            assert [seq for _, seq, _ in told(sink)] == [10, 81, 90]
            counts = sub.report().counts
            assert (counts.passed, counts.delivered, counts.rejected) == (3, 3, 4)
