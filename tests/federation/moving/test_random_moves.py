"""Sinks of all kinds move at random, several at a time, under load: whatever they are, and wherever they go, nothing is
lost, nothing comes twice, and each source's events are in their order. A seed says what moves where."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import BestEffort, Event, Log, Node, Queue, Reliable, i64
from tests.effort import rounds
from tests.federation.nodes import GUARD, Nodes, eventually, nodes

CHANNELS = ("test.logged", "test.plain")
TARGETS = (*CHANNELS, "test.*")
DELIVERIES = {"durable": Reliable(durable=True), "reliable": Reliable(), "best effort": BestEffort()}
EVERY_FIFTH = "{ static int seen = 0; seen = seen + 1; return seen % 5 == 0; }"
WANTED = {None: (0, 1), "n % 3 == 0": (0, 3), EVERY_FIFTH: (4, 5)}  # the first of each source, and the distance
EACH = 1_200_000  # numbers of each source
NODES, SINKS = 3, 5
SEEDS = (*range(1, 1 + rounds(3, 20)), 108, 404)  # the last two once lost something each
MOVES = rounds(12, 60)


class Count(Event, name="test.Count"):
    n: i64


@dataclass
class Traveller:
    """A sink, with what it has had wherever it was."""

    target: str
    where: str | None
    kind: str
    sink: Any = None
    at: int = 0
    order: list[int] = field(default_factory=list)
    got: list[int] = field(default_factory=list)

    def handler(self, event: Count) -> None:
        self.got.append(event.n)

    def wants(self, channel: str) -> bool:
        return self.target in (channel, "test.*")

    def had(self, source: int) -> list[int]:
        return [n % EACH for n in self.got if n // EACH == source]


class Journeys:
    """Nodes, each with a source that is logged and one that is not, and sinks on their way among them."""

    def __init__(self, make: Nodes, path: Path, seed: int) -> None:
        self.make, self.random = make, random.Random(seed)
        self.nodes: list[Node] = []
        for k in range(NODES):
            where = {"connect": self.nodes[0].endpoints[0]} if self.nodes else {}
            log = Log(path / f"log{k}", channels=CHANNELS[0])
            self.nodes.append(make(f"n{k}", listen="tcp/127.0.0.1:0", log=log, state=":memory:", **where))
        self.sources = [(name, node.channel(name, Count).source("s")) for node in self.nodes for name in CHANNELS]
        self.counts = [0] * len(self.sources)
        self.travellers = [self.begun(k) for k in range(SINKS)]
        make.together()
        make.ready()
        self.stop = threading.Event()

    def begun(self, number: int) -> Traveller:
        chance = self.random
        made = Traveller(chance.choice(TARGETS), chance.choice(list(WANTED)), chance.choice(list(DELIVERIES)))
        made.at = chance.randrange(NODES)
        made.sink = self.nodes[made.at].subscribe(
            made.target,
            made.handler,
            made.where,
            name=f"sink{number}",
            delivery=DELIVERIES[made.kind],
            queue=self.queue(),
        )
        return made

    def queue(self) -> Queue:
        """Also one that is full now and then: publishers wait for it."""
        return Queue(limit=self.random.choice([64, 65_536]), wait=GUARD)

    def publish(self) -> None:
        """One by one, and in batches."""
        chance = random.Random(0)
        while not self.stop.is_set():
            for k, (_, source) in enumerate(self.sources):
                first = k * EACH + self.counts[k]
                many = chance.choice([1, 1, 1, 20])
                if many == 1:
                    source.publish(Count(first))
                else:
                    source.publish_many(pa.record_batch({"n": pa.array(range(first, first + many), pa.int64())}))
                self.counts[k] += many
            self.stop.wait(0.001)

    def move(self, traveller: Traveller, to: int, queue: Queue) -> None:
        token = traveller.sink.move(to=self.nodes[to].name)
        traveller.sink = self.nodes[to].resume(token, traveller.handler, queue=queue, timeout=GUARD)
        traveller.at = to
        traveller.order.append(to)

    def step(self) -> None:
        """Some of them at the same time, each somewhere, or where it is."""
        going = self.random.sample(self.travellers, self.random.randint(1, 3))
        at_once = [
            threading.Thread(target=self.move, args=(each, self.random.randrange(NODES), self.queue()))
            for each in going
        ]
        for thread in at_once:
            thread.start()
        for thread in at_once:
            thread.join()
        for each in going:
            enough = len(each.got) + 20
            eventually(lambda each=each, enough=enough: len(each.got) >= enough, f"{each.sink} goes on")

    def expected(self, traveller: Traveller, source: int) -> list[int]:
        if not traveller.wants(self.sources[source][0]):
            return []
        first, distance = WANTED[traveller.where]
        return list(range(first, self.counts[source], distance))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_and_nothing_comes_twice(seed: int, tmp_path: Path) -> None:
    with nodes() as make:
        journeys = Journeys(make, tmp_path, seed)
        publisher = threading.Thread(target=journeys.publish)
        publisher.start()
        try:
            for _ in range(MOVES):
                journeys.step()
        finally:
            journeys.stop.set()
            publisher.join()
        for each in journeys.travellers:
            wanted = [journeys.expected(each, source) for source in range(len(journeys.sources))]
            total = sum(map(len, wanted))
            each.sink.node.until(lambda each=each, total=total: len(each.got) >= total, GUARD)
            for source, numbers in enumerate(wanted):
                assert each.had(source) == numbers, (each.target, each.where, each.kind, each.order, source)
