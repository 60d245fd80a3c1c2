"""Rings of gateways: events of one source come by several ways, and yet in its order, each once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, i64
from headwater.federation.node import Node
from tests.effort import rounds
from tests.federation.nodes import GUARD, Log, eventually
from tests.federation.nursery import Popen
from tests.federation.test_gateway import World, flush, world

CHANNEL = "ie.tcd.count"
EVENTS = rounds(500, 1500)
WHERES = (None, "n % 3 != 0", "n > 20")


class Count(Event, name="ie.tcd.Count"):
    maker: i64
    n: i64


def ring(all: World, size: int) -> list[list[Node]]:
    """Federations joined in a ring, the gateways at other nodes than the sources and sinks."""
    made = [all.federation(name, 3) for name in "ABCD"[:size]]
    for at, nodes in enumerate(made):
        all.join(nodes[0], made[(at + 1) % size][1])
    return made


class Rings:
    """A source and several sinks at the third node of each federation."""

    def __init__(self, all: World, federations: list[list[Node]]) -> None:
        self.all, self.federations = all, federations
        self.sources = [nodes[2].channel(CHANNEL, Count).source(f"s{at}") for at, nodes in enumerate(federations)]
        ways = 2 * (len(federations) - 1)  # each of the other sources comes from both sides
        self.sinks: list[tuple[Log, Any]] = []
        for nodes in federations:
            node = nodes[2]
            assert node.until(lambda node=node: len(node.remote_sources(CHANNEL)) >= ways, GUARD)
            for where in WHERES:
                log = Log()
                node.channel(CHANNEL).subscribe(log, where)
                self.sinks.append((log, where))
        for _ in federations:
            for node in all.nodes():
                assert node.ready(GUARD)
            for gateway in all.gateways:
                assert gateway.ready(GUARD)

    def publish(self, first: int, end: int) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._run, args=(source, at, first, end)) for at, source in enumerate(self.sources)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, source: Any, maker: int, first: int, end: int) -> None:
        half = (first + end) // 2
        for n in range(first, half):
            source.publish(maker=maker, n=n)
        for start in range(half, end, 50):
            numbers = list(range(start, min(end, start + 50)))
            source.publish_many(pa.table({"maker": [maker] * len(numbers), "n": numbers}))

    def wanted(self, where: Any, end: int) -> list[int]:
        return [n for n in range(end) if where is None or (n % 3 != 0 if "%" in where else n > 20)]

    def check(self, end: int) -> None:
        for log, where in self.sinks:
            wanted = self.wanted(where, end)
            log.wait(len(wanted) * len(self.sources))
        flush(self.all)
        for log, where in self.sinks:
            wanted = self.wanted(where, end)
            for maker in range(len(self.sources)):
                came = [event.n for event in log.events if event.maker == maker]
                assert came == sorted(came), f"{where}: {maker}: {_first_disorder(came)}"
                assert came == wanted, f"{where}: {maker}: {len(came)} of {len(wanted)}"


def _first_disorder(came: list[int]) -> str:
    return next(f"{one} before {other}" for one, other in pairwise(came) if one >= other)


@pytest.mark.parametrize("size", [3, 4])
def test_a_ring_keeps_the_order_of_each_source(size: int) -> None:
    with world() as all:
        it = Rings(all, ring(all, size))
        for thread in it.publish(0, EVENTS):
            thread.join()
        it.check(EVENTS)


def test_a_way_that_comes_later_does_not_disturb_the_order() -> None:
    """A second gateway is made in mid-stream: it begins with whatever is being published then."""
    with world() as all:
        a, b = all.federation("A", 3), all.federation("B", 3)
        all.join(a[0], b[0])
        source = a[2].channel(CHANNEL, Count).source()
        assert b[2].until(lambda: bool(b[2].remote_sources(CHANNEL)), GUARD)
        log = Log()
        b[2].channel(CHANNEL).subscribe(log, "n % 2 == 0")
        assert b[2].ready(GUARD)
        ended = threading.Event()
        published = 0

        def publish() -> None:
            nonlocal published
            while not ended.is_set():
                source.publish(maker=0, n=published)
                published += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            for _ in range(rounds(2, 4)):
                log.wait(len(log.events) + 200)
                second = all.join(a[1], b[1])
                eventually(lambda gateway=second: any(gateway.passed.values()))
                log.wait(len(log.events) + 200)
                second.close()
        finally:
            ended.set()
            thread.join()
        wanted = list(range(0, published, 2))
        log.wait(len(wanted))
        flush(all)
        came = log.field("n")
        assert came == sorted(set(came)), _first_disorder(came)
        assert came == wanted


GATEWAY = """
import sys
from headwater.federation.gateway.gateway import Gateway
from headwater.federation.node import Node
a = Node("a9", connect=sys.argv[1], federation="A", network={"lease": 1.0})
b = Node("b9", connect=sys.argv[2], federation="B", network={"lease": 1.0})
gateway = Gateway(a, b, "ie.**")
print("open", flush=True)
sys.stdin.read()
"""


class Around:
    """A ring of three, of which one gateway is a process of its own: what it passes on comes around it as well."""

    def __init__(self, all: World) -> None:
        self.all = all
        self.a, self.b, c = (all.federation(name, 2, network={"lease": 1.0}) for name in "ABC")
        all.join(self.b[0], c[0])
        all.join(c[1], self.a[0])
        self.source = self.a[1].channel(CHANNEL, Count).source()
        self.process = Popen(
            [sys.executable, "-c", GATEWAY, self.a[0].endpoints[0], self.b[0].endpoints[0]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "open\n"
        node = self.b[1]
        assert node.until(lambda: len(node.remote_sources(CHANNEL)) == 2, GUARD), node.remote_sources(CHANNEL)
        self.log = Log()
        node.channel(CHANNEL).subscribe(self.log, "n % 3 != 0")
        for _ in range(3):
            for each in all.nodes():
                assert each.ready(GUARD)
            for gateway in all.gateways:
                assert gateway.ready(GUARD)
        self.published = 0

    def publish(self, seconds: float) -> None:
        """On and on, for so long."""
        end, pause = monotonic() + seconds, threading.Event()
        while monotonic() < end:
            for _ in range(4):
                self.source.publish(maker=0, n=self.published)
                self.published += 1
            pause.wait(0.005)

    def check(self) -> None:
        wanted = [n for n in range(self.published) if n % 3]
        self.log.until(lambda events: bool(events) and events[-1].n >= wanted[-1], "the last event")
        came = self.log.field("n")
        assert came == sorted(set(came)), _first_disorder(came)
        assert came == wanted

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


@contextmanager
def around() -> Iterator[Around]:
    with world() as all:
        it = Around(all)
        try:
            yield it
        finally:
            it.end()


def test_another_way_goes_on_when_a_gateway_is_killed() -> None:
    with around() as it:
        it.publish(1.0)
        it.process.kill()
        it.publish(3.0)
        it.check()


def test_another_way_goes_on_when_a_gateway_is_frozen_and_stays_in_order_when_it_wakes() -> None:
    with around() as it:
        for _ in range(rounds(1, 2)):
            it.publish(1.0)
            it.process.send_signal(signal.SIGSTOP)
            it.publish(3.0)
            it.process.send_signal(signal.SIGCONT)
            it.publish(2.0)
        it.check()
