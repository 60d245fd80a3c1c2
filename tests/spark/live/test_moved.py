"""A source that has moved, in the logs of both nodes: one source, each event once, as batches and as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Log, Node
from headwater.patterns import Pattern
from headwater.spark import match, where
from headwater.spark.log import events
from tests.federation.nodes import GUARD, Nodes, nodes

CHANNEL = "lab.count"
EVERY_THIRD = "{ static int n = 0; n = n + 1; return n % 3 == 0; }"
ONE = {"source": "event_source", "seq": "event_seq", "time": "event_time"}  # whichever node it was at


@dataclass
class Moving:
    """Two nodes whose logs are in one folder, and a source that goes to and fro; `where` it was, event by event."""

    lab: Node
    mill: Node
    folder: Path
    source: Any
    where: list[str]

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.source.publish(n=len(self.where))
            self.where.append(self.source.channel.node.name)

    def go(self, node: Node) -> None:
        self.source = node.resume_source(self.source.move(), timeout=GUARD)

    def to_and_fro(self) -> None:
        for node in (self.lab, self.mill):
            self.go(node)
            self.publish(4)

    @property
    def places(self) -> dict[str, dict[str, str]]:
        """Where Spark reads it from: the folder, or the nodes."""
        ways = {"log": str(self.folder)}, {"connect": ",".join((self.lab.endpoints[0], self.mill.endpoints[0]))}
        return {name: {**way, "channel": CHANNEL} for name, way in zip(("folder", "nodes"), ways, strict=True)}


def opened(make: Nodes, path: Path, name: str) -> Node:
    connect = {"connect": make.opened[0].endpoints[0]} if make.opened else {}
    made = make(name, state=path / f"{name}.state", listen="tcp/127.0.0.1:0", log=Log(path / "log"), **connect)
    made.channel(CHANNEL, "n: i64")
    return made


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    """It has been at both nodes, and what they have is at rest; then it has published on, and gone back."""
    with nodes() as make:
        lab, mill = opened(make, tmp_path, "lab"), opened(make, tmp_path, "mill")
        make.together()
        made = Moving(lab, mill, tmp_path / "log", lab.channel(CHANNEL).source("s"), [])
        made.publish(10)
        made.go(mill)
        made.publish(10)
        for node in (mill, lab):
            node.close()
            make.opened.remove(node)
        made.lab, made.mill = opened(make, tmp_path, "lab"), opened(make, tmp_path, "mill")
        make.together()
        made.source = made.mill.channel(CHANNEL).source("s")
        made.publish(5)
        made.go(made.lab)
        made.publish(5)
        yield made


def check(frame: Any, moving: Moving) -> None:
    """In the order of the numbers it is one source, whole, with times that go on, published where it was."""
    rows = sorted(frame.collect(), key=lambda row: row.event_seq)
    assert {row.event_source for row in rows} == {"s"}
    assert [row.event_seq for row in rows] == list(range(1, len(moving.where) + 1))
    assert [row.n for row in rows] == list(range(len(moving.where)))
    assert [row.event_node for row in rows] == moving.where
    assert [row.event_time for row in rows] == sorted(row.event_time for row in rows)


def test_batches(spark: Any, moving: Moving) -> None:
    for options in moving.places.values():
        check(spark.read.format("headwater").options(**options).load(), moving)
        some = spark.read.format("headwater").options(**options, where="n % 7 = 0").load()
        assert sorted(row.event_seq for row in some.collect()) == [1, 8, 15, 22, 29]
        late = {"lab": {"s": 10}, "mill": {"s": 22}}  # of each node, how far it was read
        rest = spark.read.format("headwater").options(**options, startingOffsets=str(late).replace("'", '"')).load()
        assert sorted(row.event_seq for row in rest.collect()) == list(range(23, 31))
    check(events(spark, moving.folder, CHANNEL, tail=True), moving)
    rested = events(spark, moving.folder, CHANNEL).collect()
    assert sorted(row.event_seq for row in rested) == list(range(1, 21))


def test_what_counts_or_has_an_order_takes_it_for_one_source(spark: Any, moving: Moving) -> None:
    """As live: whoever says that a source is one whatever node it was at."""
    for frame in (
        events(spark, moving.folder, CHANNEL, tail=True),
        spark.read.format("headwater").options(**moving.places["nodes"]).load(),
    ):
        thirds = where(frame, Interest(EVERY_THIRD, "n: i64"), meta=ONE)
        assert sorted(row.event_seq for row in thirds.collect()) == list(range(3, 31, 3))
        pairs = Pattern(f"whenever a: {CHANNEL}, b: {CHANNEL} measures a.n as a, b.n as b", {CHANNEL: "n: i64"})
        found = [(row.a, row.b) for row in match(frame, pairs, meta=ONE).collect()]
        assert sorted(found) == [(n, n + 1) for n in range(29)]


def test_as_an_option_of_the_format_an_interest_has_a_state_for_each_node(spark: Any, moving: Moving) -> None:
    for options in moving.places.values():
        found = spark.read.format("headwater").options(**options, where=EVERY_THIRD).load().collect()
        assert sorted(row.event_seq for row in found if row.event_node == "lab") == [3, 6, 9, 27, 30]
        assert sorted(row.event_seq for row in found if row.event_node == "mill") == [13, 16, 19, 22, 25]


@pytest.mark.parametrize("place", ["folder", "nodes"])
def test_a_stream_that_goes_on_while_it_moves(spark: Any, moving: Moving, tmp_path: Path, place: str) -> None:
    """Of one checkpoint, run again after each move: with a limit that a batch of both nodes is cut short by."""
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> None:
        stream = spark.readStream.format("headwater").options(**moving.places[place], maxEventsPerBatch="7").load()
        query = (
            stream.writeStream.format("parquet")
            .options(path=out, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: moving.publish(5),
        lambda: moving.go(moving.mill),  # nothing new
        lambda: moving.publish(5),
        moving.to_and_fro,
    ]
    for step in steps:
        step()
        run()
    check(spark.read.parquet(out), moving)
