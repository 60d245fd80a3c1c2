"""A node that stays: until Ctrl-C, SIGTERM or its end, and then what is under way is finished."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import Node, Reliable
from headwater.channel.shutdown import Closing
from headwater.dispatch import Pool
from headwater.errors import ChannelError
from headwater.threads import Supervised
from tests.federation.nodes import see

GUARD = 120.0  # seconds, against hanging
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    """Whatever happens, the handlers of signals are as they were."""
    found = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
        assert {number: signal.getsignal(number) for number in SIGNALS} == found
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)


def while_it_runs(act: Callable[[], object]) -> threading.Thread:
    """Something that another thread does as soon as a node of this one runs."""
    own, pause = signal.getsignal(signal.SIGINT), threading.Event()

    def wait() -> None:
        for _ in range(round(GUARD / 0.005)):
            if signal.getsignal(signal.SIGINT) is not own:
                act()
                return
            pause.wait(0.005)

    thread = Supervised(wait, "test-while-it-runs")
    thread.start()
    return thread


@pytest.mark.parametrize("number", SIGNALS)
def test_what_was_published_is_delivered_before_it_ends(number: int) -> None:
    handled: list[int] = []
    go = threading.Event()

    def slow(event: object) -> None:
        go.wait(GUARD)
        handled.append(event.n)  # type: ignore[attr-defined]

    node = Node("lab")
    channel = node.channel("door", "n: i64")
    channel.subscribe(slow, dispatch=Pool(maximum=1))
    source = channel.source()

    def act() -> None:
        for n in range(100):
            source.publish(n=n)
        os.kill(os.getpid(), number)
        go.set()

    while_it_runs(act)
    ended = node.run()
    assert node.closed and ended.drained and handled == list(range(100))


def test_a_second_ctrl_c_ends_it_at_once() -> None:
    stuck, go = threading.Event(), threading.Event()

    def handle(event: object) -> None:
        stuck.set()
        go.wait(GUARD)

    node = Node("lab", config={"close_timeout": 3600.0})
    channel = node.channel("door", "n: i64")
    channel.subscribe(handle, dispatch=Pool(maximum=1))
    source = channel.source()

    def act() -> None:
        source.publish(n=1)
        stuck.wait(GUARD)
        os.kill(os.getpid(), signal.SIGINT)
        pause = threading.Event()
        while not node.closed:  # it is draining
            pause.wait(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    while_it_runs(act)
    try:
        with pytest.raises(KeyboardInterrupt):
            node.run()
        assert node.closed
    finally:
        go.set()


def test_it_ends_when_another_thread_closes_the_node() -> None:
    node = Node("lab")
    while_it_runs(node.close)
    assert node.run().drained


def test_in_another_thread_it_stays_until_the_node_is_closed() -> None:
    node = Node("lab")
    ended: list[Closing] = []
    thread = Supervised(lambda: ended.append(node.run()), "test-run")
    thread.start()
    assert not ended
    node.close()
    thread.join(GUARD)
    assert ended[0].drained


def test_a_node_that_is_closed_does_not_stay() -> None:
    node = Node("lab")
    node.close()
    assert node.run().drained


def test_in_a_coroutine_it_says_what_to_do() -> None:
    async def main() -> None:
        async with Node("lab") as node:
            node.run()

    with pytest.raises(ChannelError, match=r"await node\.aclose"):
        asyncio.run(main())


def test_what_a_durable_sink_has_handled_is_remembered(tmp_path: Path) -> None:
    """Also of what came last, between the signal and the end."""
    heard: list[int] = []
    with Node("hall", listen=0, log=tmp_path / "log") as hall:
        source = hall.channel("door", "n: i64").source("door")
        for begin in (0, 50):
            desk = Node("desk", connect=hall.endpoints, state=tmp_path / "state.sqlite")
            desk.channel("door", "n: i64").subscribe(
                lambda event: heard.append(event.n), name="all", delivery=Reliable(durable=True)
            )
            see(desk, hall)  # else it is ready at once: nobody is there yet
            assert desk.ready(GUARD), desk.unready()
            for n in range(begin, begin + 50):
                source.publish(n=n)
            assert hall.flush(GUARD)
            while_it_runs(lambda: os.kill(os.getpid(), signal.SIGTERM))
            assert desk.run().drained
    assert heard == list(range(100))
