"""Links over Zenoh's path: one that ends is followed by another, whoever has ended it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater import Event, i64
from headwater.federation.node import Node
from headwater.federation.wire.kinds import EVENTS
from tests.federation.nodes import GUARD, Log, eventually, nodes
from tests.federation.pairs import Held

CHANNEL = "ie.tcd.routed"


class Count(Event, name="ie.tcd.RoutedCount"):
    n: i64


def cut(node: Node) -> None:
    """End its links, on this side only."""
    assert node._engine is not None
    for peer in node._engine.everyone():
        if peer.link is not None:
            assert peer.link.kind == "zenoh"
            peer.link.close("cut by the test")


@pytest.mark.parametrize("side", ["lab", "desk"])
def test_events_go_on_when_a_link_is_ended_at_one_end(side: str) -> None:
    with nodes() as make:
        lab = make("lab", network={"direct": [], "listen": "tcp/127.0.0.1:0"}, listen=None)
        desk = make("desk", network={"direct": [], "connect": lab.endpoints[0]}, connect=None)
        make.together()
        source = lab.channel(CHANNEL, Count).source()
        log = Log()

        def slow(event: Count) -> None:
            pause.wait(0.005)  # so that a thread of the link's own reads on
            log(event)

        pause = threading.Event()
        make.ready(lab)
        desk.channel(CHANNEL, Count).subscribe(slow)
        make.ready(desk)
        for n in range(300):
            source.publish(n=n)
            if n % 60 == 50:
                log.wait(n - 10)
                cut(desk if side == "desk" else lab)
        log.wait(300)
        assert log.field("n") == list(range(300))


def test_what_a_link_brought_that_was_replaced_meanwhile_comes_once() -> None:
    with nodes() as make:
        lab = make("lab", network={"direct": [], "listen": "tcp/127.0.0.1:0"}, listen=None)
        desk = make("desk", network={"direct": [], "connect": lab.endpoints[0]}, connect=None)
        make.together()
        source, other = (lab.channel(CHANNEL, bytes).source(name) for name in ("s", "other"))
        log = Log()
        make.ready(lab)
        desk.channel(CHANNEL, bytes).subscribe(log)
        make.ready(desk)
        there, here = lab._engine.everyone()[0], desk._engine.everyone()[0]
        take, kinds = here.on_frame, list[int]()

        def on_frame(frame: bytes | memoryview, link: Any) -> None:
            if frame[0] == EVENTS and EVENTS not in kinds:
                kinds.append(EVENTS)
                before = there.control_in["resume"]
                here.link_down(link, "cut by the test")
                eventually(lambda: there.control_in["resume"] > before)
            take(frame, link)

        here.on_frame = on_frame
        with Held(there):
            for n in range(5):
                source.publish(b"%d" % n)
            source.close()
            lane = there.by_sid[source.number]
            eventually(lambda: lane.ended)  # its events and its end go together
        other.publish(b"last")
        log.until(lambda events: b"last" in events)
        assert lab.flush(GUARD) and kinds
        assert [each for each in log.events if each != b"last"] == [b"0", b"1", b"2", b"3", b"4"]
        assert log.events.count(b"last") == 1  # of another source: before them, or after
