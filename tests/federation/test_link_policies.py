"""What happens to events while the node that wants them cannot take them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import Network, Node, Queue
from headwater.dispatch import Pool
from headwater.errors import QueueFull

CHANNEL, TYPE = "test.numbers", "n: u32, padding: text?"
PADDING = "." * 100_000


@contextmanager
def pair(link: Queue, **more: Any) -> Iterator[tuple[Node, Node]]:
    """Two nodes, of which the first keeps so much for the second."""
    with (
        Node("hill", network=Network(listen="tcp/127.0.0.1:0", link=link, **more)) as hill,
        Node("desk", network=Network(connect=hill.endpoints, **more)) as desk,
    ):
        yield hill, desk


def held(desk: Node) -> tuple[threading.Event, list[int]]:
    """A sink that takes nothing until it is let, and what it has got."""
    go, got = threading.Event(), list[int]()

    def take(event: Any) -> None:
        go.wait(30)
        got.append(event.n)

    channel = desk.channel(CHANNEL, TYPE)
    channel.subscribe(take, queue=Queue(limit=1), dispatch=Pool(), name="held")
    return go, got


def waiting(hill: Node) -> int:
    [peer] = hill.federation_report().peers
    return sum(lane.waiting for lane in peer.lanes)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_what_is_dropped_is_counted_and_the_rest_is_in_order(policy: Any) -> None:
    with pair(Queue(limit=50, policy=policy)) as (hill, desk):
        go, got = held(desk)
        source = hill.channel(CHANNEL, TYPE).source("s")
        assert desk.until(lambda: bool(desk.remote_sources(CHANNEL)))
        assert desk.ready()
        for n in range(400):  # more than fits into the buffers of the connection
            source.publish(n=n, padding=PADDING)
        assert waiting(hill) <= 51
        go.set()
        assert hill.flush(30)
        [peer] = hill.federation_report().peers
        [lane] = peer.lanes
        assert lane.dropped > 0
        assert desk.until(lambda: len(got) + lane.dropped == 400, 30), (len(got), lane.dropped)
        assert got == sorted(set(got))
        assert (399 in got) == (policy == "drop_oldest")


def test_a_publisher_is_told_at_once_or_after_a_while() -> None:
    for link in (Queue(limit=50, policy="fail"), Queue(limit=50, policy="block", wait=0.05)):
        with pair(link) as (hill, desk):
            go, got = held(desk)
            source = hill.channel(CHANNEL, TYPE).source("s")
            assert desk.until(lambda: bool(desk.remote_sources(CHANNEL)))
            assert desk.ready()
            published = 0
            with pytest.raises(QueueFull, match="the link to node desk"):
                for n in range(5000):
                    source.publish(n=n)
                    published = n + 1
            go.set()
            assert desk.until(lambda count=published, have=got: len(have) == count, 30)
            assert got == list(range(published))  # what was refused was not published


def test_a_publisher_waits_and_nothing_is_lost() -> None:
    with pair(Queue(limit=50)) as (hill, desk):
        go, got = held(desk)
        source = hill.channel(CHANNEL, TYPE).source("s")
        assert desk.until(lambda: bool(desk.remote_sources(CHANNEL)))
        assert desk.ready()

        def publish() -> None:
            for n in range(1000):
                source.publish(n=n)

        thread = threading.Thread(target=publish)
        thread.start()
        assert desk.until(lambda: waiting(hill) >= 50, 30)
        go.set()
        thread.join(30)
        assert not thread.is_alive()
        assert hill.flush(30)
        assert got == list(range(1000))


@pytest.mark.parametrize("dispatch", [None, Pool()], ids=["inline", "pool"])
def test_two_nodes_whose_handlers_publish_to_each_other_never_wait_for_each_other(dispatch: Any) -> None:
    with pair(Queue(limit=64)) as (hill, desk):
        ping, pong = hill.channel("ping", TYPE).source("s"), desk.channel("pong", TYPE).source("s")
        got, done = list[int](), threading.Event()

        def back(event: Any) -> None:
            got.append(event.n)
            if len(got) == 2000:
                done.set()

        desk.channel("ping", TYPE).subscribe(lambda event: pong.publish(n=event.n), dispatch=dispatch)
        hill.channel("pong", TYPE).subscribe(back, dispatch=dispatch)
        assert hill.until(lambda: bool(hill.remote_sources("pong")) and bool(desk.remote_sources("ping")))
        assert hill.ready()
        assert desk.ready()
        for n in range(2000):
            ping.publish(n=n)
        assert done.wait(30)
        assert got == list(range(2000))


@pytest.mark.parametrize("compress", ["lz4", "zstd"])
def test_compressed_frames(compress: str) -> None:
    with pair(Queue(limit=65_536), compress=compress) as (hill, desk):
        got: list[str] = []
        source = hill.channel("texts", "text: text").source("s")
        desk.channel("texts", "text: text").subscribe(lambda event: got.append(event.text))
        assert desk.until(lambda: bool(desk.remote_sources("texts")))
        assert desk.ready()
        texts = [f"{n} " * 400 for n in range(200)]
        source.publish_many([{"text": text} for text in texts])
        assert hill.flush(30)
        assert got == texts
        [peer] = hill.federation_report().peers
        assert peer.bytes_out < sum(map(len, texts)) / 2
