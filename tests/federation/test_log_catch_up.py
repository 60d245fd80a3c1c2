"""Sinks at other nodes and sources that log, where something unusual happens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Event, Interest, Network, Node, Queue, i64
from headwater.errors import FederationError
from headwater.logs import LogClient
from headwater.store.log import retention
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"


class Count(Event, name="test.Count"):
    n: i64


class Double(Event, name="test.Double"):
    n: i64
    twice: i64


DOUBLE = "{ output.n = input.n; output.twice = 2 * input.n; return input.n > 0; }"


def lab_of(make: Nodes, desk: Node, folder: Path, limit: int = 4096) -> Node:
    link = Queue(limit=limit, policy="fail")
    made = make("lab", network=Network(connect=desk.endpoints[0], link=link), log=folder)
    make.together(desk, made)
    return made


class Held:
    """A sink that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.going, self.seen = threading.Event(), Seen()

    def __call__(self, event: Any) -> None:
        self.going.wait(GUARD)
        self.seen(event)


@pytest.mark.parametrize("restart", [False, True])
def test_a_source_made_again_while_its_past_is_still_being_read(tmp_path: Path, restart: bool) -> None:
    """What it publishes then does not overtake what it had published: else that would be taken for done."""
    with nodes() as make:
        desk = make("desk", config=Config(queue=Queue(limit=16)))
        lab = lab_of(make, desk, tmp_path, limit=64)
        sink = Held()
        desk.channel(CHANNEL, Count).subscribe(sink, dispatch="pool")
        channel = lab.channel(CHANNEL, Count)
        for life in range(3):
            source = channel.source("hill")
            if not life:
                make.ready(desk)
            for n in range(1000 * life + 1, 1000 * life + 1001):
                assert source.publish(n=n) == n
            if life < 2:
                source.close()
        sink.going.set()
        if restart:
            sink.seen.wait(100)
            lab.close(drain=False, timeout=0)
            lab = lab_of(make, desk, tmp_path, limit=64)
            source = lab.channel(CHANNEL, Count).source("hill")
            see(desk, lab)
            assert desk.ready(GUARD)
        source.publish(n=3001)
        sink.seen.until(lambda events: bool(events) and events[-1].n == 3001)
        assert sink.seen.field("n") == list(range(1, 3002))


def test_what_retention_removed_before_a_peer_had_it_is_counted_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with nodes() as make:
        desk = make("desk", config=Config(queue=Queue(limit=16)))
        lab = lab_of(make, desk, tmp_path, limit=64)
        sink = Held()
        desk.channel(CHANNEL, Count).subscribe(sink, dispatch="pool")
        source = lab.channel(CHANNEL, Count).source("hill")
        make.ready(desk)
        for n in range(1, 1001):
            source.publish(n=n)
        found = source.log
        assert found is not None
        found.roll(wait=True)
        source.publish_many([Count(n) for n in range(1001, 2001)])
        found.roll(wait=True)
        rested = sum(each.bytes for each in found.reader().files() if each.at_rest)
        retention.apply(tmp_path, CHANNEL, "lab", keep_bytes=rested - 1)
        assert [span.first for span in found.reader().sources()] == [1001]
        sink.going.set()
        sink.seen.until(lambda events: bool(events) and events[-1].n == 2000)
        got = sink.seen.field("n")
        last = got.index(1001)  # of those before, as many as had been put into frames
        assert got == [*range(1, last + 1), *range(1001, 2001)] and last < 1000
        (lane,) = [lane for peer in lab.federation_report().peers for lane in peer.lanes if lane.channel == CHANNEL]
        assert lane.dropped == 1000 - last
        assert f"events {last + 1} to 1000 cannot go to node desk: the log has them no longer" in caplog.text


def test_the_first_event_of_a_source_that_is_known_again(tmp_path: Path) -> None:
    """Also for an interest that runs there, and of which nothing has come before."""
    with nodes() as make:
        desk = make("desk")
        lab = lab_of(make, desk, tmp_path)
        even, double = Seen(), Seen()
        channel = desk.channel(CHANNEL, Count)
        channel.subscribe(even, "n % 2 == 0")
        source = lab.channel(CHANNEL, Count).source("hill")
        make.ready(desk)
        for n in range(1, 101):
            source.publish(n=n)
        even.wait(50)
        make.flush()
        lab.close()
        channel.subscribe(double, Interest(DOUBLE, Count, output=Double))
        lab = lab_of(make, desk, tmp_path)
        there = lab.channel(CHANNEL, Count)
        there.source("other")
        see(desk, lab)
        assert desk.ready(GUARD)
        source = there.source("hill")
        for n in range(101, 201):
            source.publish(n=n)
        even.wait(100)
        double.until(lambda events: bool(events) and events[-1].n == 200)
        assert even.field("n") == list(range(2, 201, 2))
        assert double.field("twice") == list(range(202, 401, 2))


def test_the_past_where_a_clock_went_back(tmp_path: Path) -> None:
    times = iter([*range(50, 60), *range(10, 30)])
    with nodes() as make:
        desk = make("desk")
        lab = lab_of(make, desk, tmp_path)
        lab._stamp = lambda: next(times) * 1_000_000_000
        source = lab.channel(CHANNEL, Count).source("hill")
        for n in range(20):
            source.publish(n=n)
        see(desk, lab)
        seen = Seen()
        desk.channel(CHANNEL, Count).subscribe(seen, history="all")
        make.ready(desk)
        source.publish(n=20)
        seen.until(lambda events: bool(events) and events[-1].n == 20)
        assert seen.field("n") == list(range(21))


@pytest.mark.parametrize("transformed", [False, True])
def test_large_events(tmp_path: Path, transformed: bool) -> None:
    """One that is more than a usual frame has one of its own, read from the log or not; one that no frame can take is
    dropped alone."""
    sizes = [10, 5 << 20, 0, 3, 17 << 20, 1, 2 << 20, *[7] * 50]
    with nodes() as make:
        desk = make("desk", config=Config(queue=Queue(limit=16)))
        lab = lab_of(make, desk, tmp_path, limit=4)
        going, seen = threading.Event(), list[int]()

        def take(event: Any) -> None:
            going.wait(GUARD)
            seen.append(len(event.data))

        source = lab.channel(CHANNEL, "data: bytes").source("hill")
        see(desk, lab)
        channel = desk.channel(CHANNEL)
        where: Any = None
        if transformed:
            where = Interest("{ output.data = input.data; return true; }", channel.type, output=channel.type)
        channel.subscribe(take, where, dispatch="pool")
        make.ready(desk)
        for size in sizes:
            source.publish(data=bytes(size))
        going.set()
        fitting = [size for size in sizes if size < 16 << 20]
        eventually(lambda: len(seen) >= len(fitting), "all events that fit")
        make.flush()
        assert seen == fitting


def test_an_event_that_no_answer_can_take(tmp_path: Path) -> None:
    with nodes() as make:
        lab = make("lab", log=tmp_path)
        source = lab.channel(CHANNEL, bytes).source("hill")
        for size in (10, 40 << 20, 3):
            source.publish(bytes(size))
        with LogClient(lab.endpoints[0]) as client:

            def read(after: int) -> list[int]:
                found = client.read(CHANNEL, "lab", "hill", after)
                return [len(each) for batch in found for each in batch["data"].to_pylist()]

            with pytest.raises(FederationError, match=r"event 2 takes 41,9.* bytes, more than"):
                read(0)
            assert read(2) == [3]
