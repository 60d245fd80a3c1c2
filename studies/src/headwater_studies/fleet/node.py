"""Our processes: one or several nodes each; see `worker` for how they are told.

An event is eight f64 fields, 64 bytes as a record. Handlers get it typed, decoded; publishers hand in objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import cycle, islice, repeat
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.channel.source import Source
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.types import Event, f64
from headwater_studies.fleet.worker import (
    PICKS,
    SHARES,
    STRIDE,
    VALUES,
    WIDE,
    Common,
    Meter,
    Trips,
    loopback,
    serve,
    times,
)

WAIT = 20.0  # seconds for nodes to find each other
CHANNEL, BACK = "bench.events", "bench.answers"


class Sample(Event):
    pick: f64
    share: f64
    number: f64
    sent: f64
    a: f64
    b: f64
    c: f64
    d: f64


def sample(number: int) -> Sample:
    return Sample(float(number % PICKS), float(number % SHARES), float(number), 0.0, *VALUES)


def wide(number: int) -> Sample:
    """As `worker.wide`."""
    return Sample(float(number * STRIDE % WIDE), float(number % SHARES), float(number), 0.0, *VALUES)


Counter = tuple[Callable[[Any], None], Callable[[int, Meter], None]]


def counter(mode: str) -> Counter:
    """A handler as plain as a peer's (`worker.taker`), and a function that starts it from 0.

    "count": it gets the event. "decode": it uses a field of it. "batch": it gets rows."""
    got, goal, total, done = 0, -1, 0.0, Meter().done

    def arm(n: int, meter: Meter) -> None:
        nonlocal got, goal, total, done
        got, goal, total, done = 0, n, 0.0, meter.done
        meter.look = lambda: got

    def count(event: Any) -> None:
        nonlocal got
        got += 1
        if got == goal:
            done(got, got, 0.0)

    def decode(event: Sample) -> None:
        nonlocal got, total
        total += event.number
        got += 1
        if got == goal:
            done(got, got, total)

    def rows(batch: Any) -> None:
        nonlocal got
        got += batch.num_rows
        if got == goal:
            done(got, got, 0.0)

    return {"count": count, "decode": decode, "batch": rows}[mode], arm


class Nodes(Common):
    """The nodes of this process, their sources and what their sinks have got."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._sources: dict[str, Source] = {}
        self._sinks: list[Any] = []
        self._counters: list[Counter] = []  # of each node
        self._meters: list[Meter] = []
        self._batches: dict[int, pa.RecordBatch] = {}
        self._wides: dict[int, list[pa.RecordBatch]] = {}

    def open(self, names: list[str], connect: str | None = None, direct: bool = True) -> dict[str, Any]:
        """Nodes of these names; the endpoint of the first."""
        for name in names:
            network = Network(
                listen=("tcp/127.0.0.1:0",),
                connect=() if connect is None else (connect,),
                direct=None if direct else (),
                federation="bench",
            )
            node = Node(name, network=network)
            for channel in (CHANNEL, BACK):
                node.channel(channel, Sample)
            self._nodes.append(node)
        return {"endpoint": self._nodes[0].endpoints[0]}

    def source(self, channel: str = CHANNEL) -> None:
        """A source of a channel at the first node."""
        self._sources[channel] = self._nodes[0].channel(channel).source("bench")

    # ── sinks ──

    def subscribe(self, wheres: list[list[str | None]], mode: str = "count") -> None:
        """For each node, its interests; returns when the sources have them."""
        self._counters = [counter(mode) for _ in self._nodes]
        for node, interests, (handler, _) in zip(self._nodes, wheres, self._counters, strict=True):
            channel = node.channel(CHANNEL)
            for where in interests:
                self._sinks.append(channel.subscribe(handler, where, batch=mode == "batch"))
        self._settle(CHANNEL)

    def _settle(self, channel: str) -> None:
        for node in self._nodes:
            if not node.until(lambda it=node: bool(it.remote_sources(channel)), WAIT):  # type: ignore[misc]
                raise TimeoutError(f"{node.name}: no source of {channel} was found")
            if not node.ready(WAIT):
                raise TimeoutError(f"{node.name}: its interests are not in force")
        refused = [sink.refused for sink in self._sinks if sink.refused]
        if refused:
            raise RuntimeError(f"refused: {refused}")

    def unsubscribe(self) -> None:
        for sink in self._sinks:
            sink.cancel()
        self._sinks.clear()

    def expect(self, n: int, mode: str = "") -> None:
        """What comes to each node from now on is counted, up to `n` each."""
        self._meters = [Meter() for _ in self._counters]
        for (_, arm), meter in zip(self._counters, self._meters, strict=True):
            arm(n, meter)

    def wait(self) -> dict[str, Any]:
        found = [meter.result() for meter in self._meters]
        return {
            "end": max(each["end"] for each in found),
            "got": sum(each["got"] for each in found),
            "useful": sum(each["got"] for each in found),
            "total": sum(each["total"] for each in found),
        }

    def got(self) -> dict[str, Any]:
        """How many have come: more than were expected if any came twice."""
        return {"got": sum(meter.look() for meter in self._meters)}

    # ── sources ──

    def send(self, n: int, how: str, packed: int = 1) -> dict[str, Any]:
        """Publish `n` events: the "same" object, a "cycle" of a hundred, "wide" or "fresh" ones, or in batches: "many"
        as in a cycle, or "wide" if more than one is `packed`."""
        source = self._sources[CHANNEL]
        publish: Any = source.publish
        events: Any
        match how:
            case "same":
                events = repeat(sample(0), n)
            case "cycle":
                events = islice(cycle([sample(number) for number in range(PICKS)]), n)
            case "fresh":
                events = map(sample, range(n))
            case "wide" if packed == 1:
                events = islice(cycle([wide(number) for number in range(WIDE)]), n)
            case "wide":
                publish, events = source.publish_many, islice(cycle(self._wide(packed)), n // packed)
            case _:
                publish, events = source.publish_many, repeat(self._batch(packed), n // packed)
        start = perf_counter()
        for event in events:
            publish(event)
        return {"start": start, "sent": perf_counter()}

    def _batch(self, rows: int) -> pa.RecordBatch:
        if rows not in self._batches:
            numbers = np.arange(rows, dtype=np.float64)
            columns = [
                numbers % PICKS,
                numbers % SHARES,
                numbers,
                np.zeros(rows),
                *(np.full(rows, value) for value in VALUES),
            ]
            schema = self._sources[CHANNEL].type.schema
            self._batches[rows] = pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=schema)
        return self._batches[rows]

    def _wide(self, rows: int) -> list[pa.RecordBatch]:
        """Batches that together hold every `pick` as often."""
        if rows not in self._wides:
            schema = self._sources[CHANNEL].type.schema
            made = [wide(number) for number in range(math.lcm(rows, WIDE))]
            columns = [pa.array([getattr(event, name) for event in made]) for name in schema.names]
            whole = pa.RecordBatch.from_arrays(columns, schema=schema)
            # Slices of one batch share its memory; a program would hand in batches of their own.
            self._wides[rows] = [
                pa.RecordBatch.from_arrays([pa.array(each.to_numpy()) for each in part.columns], schema=schema)
                for part in (whole.slice(at, rows) for at in range(0, len(made), rows))
            ]
        return self._wides[rows]

    def flush(self) -> None:
        if not self._nodes[0].flush(WAIT):
            raise TimeoutError("what was published was not acknowledged")

    # ── there and back ──

    def answer(self) -> None:
        """Send every event back, from its handler."""
        back = self._nodes[0].channel(BACK).source("bench").publish
        self._sinks.append(self._nodes[0].channel(CHANNEL).subscribe(lambda event: back(event)))
        self._settle(CHANNEL)

    def prepare_trips(self) -> None:
        """A sink for what is sent back."""
        self._back: Callable[[Any], None] = _nothing
        self._sinks.append(self._nodes[0].channel(BACK).subscribe(lambda event: self._back(event)))
        self._settle(BACK)

    def trips(self, n: int) -> dict[str, Any]:
        trips, publish = Trips(n), self._sources[CHANNEL].publish

        def back(event: Sample) -> None:
            if trips.back():
                publish(event)

        self._back = back
        publish(sample(0))
        return trips.result()

    def echo(self, n: int) -> None:
        """The handlers do it."""

    # ── how long until the last of several consumers has it ──

    def consumers(self, count: int, where: str | None) -> None:
        """As many consumers of the same at the first node; the last to get an event answers with how long that took."""
        self.unsubscribe()
        if BACK not in self._sources:
            self.source(BACK)
        back, got = self._sources[BACK].publish, 0

        def consumer(event: Sample) -> None:
            nonlocal got
            got += 1
            if got == count:
                late = perf_counter() - event.sent
                got = 0
                back(Sample(0.0, 0.0, event.number, late, *VALUES))

        channel = self._nodes[0].channel(CHANNEL)
        self._sinks += [channel.subscribe(consumer, where) for _ in range(count)]
        self._settle(CHANNEL)

    def spread(self, n: int) -> dict[str, Any]:
        """`n` events, each when all consumers have the one before: how long until the last one has it."""
        trips, publish = Trips(n), self._sources[CHANNEL].publish
        late: list[float] = []

        def back(event: Sample) -> None:
            late.append(event.sent)
            if trips.back():
                publish(Sample(0.0, 0.0, float(len(late)), perf_counter(), *VALUES))

        self._back = back
        publish(Sample(0.0, 0.0, 0.0, perf_counter(), *VALUES))
        trips.result()
        return times([round(each * 1e9) for each in late])

    # ── what crossed ──

    def counters(self) -> dict[str, Any]:
        """Bytes written to the links and events put into their frames, at all nodes of this process."""
        self._nodes[0].until(lambda: True, 0)
        peers = [peer for node in self._nodes if node._engine is not None for peer in node._engine.everyone()]
        links = sorted({peer.link.kind for peer in peers if peer.link is not None})
        return {
            "bytes": sum(peer.bytes_out for peer in peers),
            "events": sum(lane.passed for peer in peers for lane in peer.lanes()),
            "loopback": loopback(),
            "links": links,
        }

    def close(self) -> None:
        for node in self._nodes:
            node.close(drain=False, timeout=1.0)


def _nothing(event: Any) -> None:
    """For what nobody expects."""


if __name__ == "__main__":
    serve(Nodes())
