"""Our processes for the study of moved code: a node that publishes and a node that wants some of it or all.

Every kind of event has two channels with the same events on them: "all", whose sink has no interest and does the work
itself, and "kept", whose sink has an interest, so that the source does it. Both end with the same useful result.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle, islice
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.interest import Interest
from headwater.types import Array, Event, event_type, f64
from headwater_studies.fleet.node import Nodes
from headwater_studies.fleet.worker import PATIENCE, Meter, serve

# What the two programs of ECho, 3.2, do, in E-Code.
SIMPLE = "{ if (input.level > 0.5) { return 1; } }"
AVERAGE = """
{
    double total = 0.0;
    for (int column = 0; column < 37; column++)
        for (int row = 0; row < 253; row++)
            total += input.wind[row][column];
    output.mean = total / (37 * 253);
    return 1;
}
"""
ROWS, COLUMNS = 253, 37
LIMIT = 0.5
ONE, MANY, WIND = "one", "many", "wind"  # kinds: one by one, in batches, large ones that are reduced
KINDS = (ONE, MANY, WIND)
BATCH = 1_200
POOL = {ONE: 1_000, MANY: 10 * BATCH, WIND: 8}  # events made beforehand, published again and again
_SEED = 1999


class Reading(Event):
    """64 bytes of fields."""

    level: f64
    number: f64
    a: f64
    b: f64
    c: f64
    d: f64
    e: f64
    f: f64


class Wind(Event):
    """74,888 bytes of fields."""

    wind: Array[f64, 253, 37]


class Average(Event):
    mean: f64


TYPES: dict[str, type[Event]] = {ONE: Reading, MANY: Reading, WIND: Wind}


def channel_of(kind: str, kept: bool) -> str:
    return f"filters.{kind}.{'kept' if kept else 'all'}"


# ── what is published ──


def rejected(kind: str, rate: float) -> int:
    """How many of the pool the filter rejects: exactly this share of them."""
    return 0 if kind == WIND else round(rate * POOL[kind])


def levels(kind: str, rate: float) -> list[float]:
    """Of the events of the pool, in an order that no one can guess and that is the same each time."""
    size, out = POOL[kind], rejected(kind, rate)
    found = [0.25] * out + [0.75] * (size - out)
    random.Random(_SEED).shuffle(found)
    return found


def readings(rate: float) -> list[Reading]:
    return [
        Reading(level, float(number), 4.5, 5.5, 6.5, 7.5, 8.5, 9.5) for number, level in enumerate(levels(ONE, rate))
    ]


def batches(rate: float, schema: pa.Schema) -> list[pa.RecordBatch]:
    level = np.array(levels(MANY, rate))
    columns = [level, np.arange(len(level), dtype=np.float64), *(np.full(len(level), 4.5 + n) for n in range(6))]
    whole = pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=schema)
    return [whole.slice(at, BATCH) for at in range(0, len(level), BATCH)]


def winds() -> list[Wind]:
    """Whole numbers with whole averages, so that sums are the same in whatever order they are added."""
    cells = ROWS * COLUMNS
    numbers = np.arange(cells, dtype=np.float64).reshape(ROWS, COLUMNS) - cells // 2
    return [Wind(wind=_any(numbers + average)) for average in range(POOL[WIND])]


def _any(value: Any) -> Any:
    """A field of an array is declared with its element, and given numbers in whatever form."""
    return value


def totals(kind: str, rate: float) -> float:
    """What the useful ones of one pool add up to."""
    if kind == WIND:
        return float(sum(range(POOL[WIND])))  # their averages
    return float(sum(number for number, level in enumerate(levels(kind, rate)) if level > LIMIT))


# ── what is done with what arrives ──


class Taken:
    """Counts what has come to one sink."""

    def __init__(self) -> None:
        self.got = self.useful = self.ever = 0
        self.total = 0.0
        self.goal, self.meter = -1, Meter()

    def start(self, goal: int) -> None:
        self.got = self.useful = 0
        self.total = 0.0
        self.goal, self.meter = goal, Meter()

    def take(self, got: int, useful: int, total: float) -> None:
        self.got += got
        self.ever += got
        self.useful += useful
        self.total += total
        if self.got == self.goal:
            self.meter.done(self.got, self.useful, self.total)


def handlers(kind: str, kept: bool, taken: Taken) -> Callable[[Any], None]:
    """A sink's function: with `kept` it gets what it wants, else it looks for that itself."""
    take = taken.take
    cells = ROWS * COLUMNS

    def select(event: Reading) -> None:
        if event.level > LIMIT:
            take(1, 1, event.number)
        else:
            take(1, 0, 0.0)

    def each(event: Reading) -> None:
        take(1, 1, event.number)

    def select_rows(batch: pa.RecordBatch) -> None:
        wanted = batch.filter(pc.greater(batch.column("level"), LIMIT))
        take(batch.num_rows, wanted.num_rows, pc.sum(wanted.column("number")).as_py() or 0.0)

    def rows(batch: pa.RecordBatch) -> None:
        take(batch.num_rows, batch.num_rows, pc.sum(batch.column("number")).as_py() or 0.0)

    def reduce(batch: pa.RecordBatch) -> None:
        numbers = batch.column("wind").flatten().flatten().to_numpy().reshape(-1, cells)
        take(len(numbers), len(numbers), float(sum(numbers.sum(axis=1) / cells)))

    def average(event: Average) -> None:
        take(1, 1, event.mean)

    found: dict[tuple[str, bool], Callable[[Any], None]] = {
        (ONE, False): select,
        (ONE, True): each,
        (MANY, False): select_rows,
        (MANY, True): rows,
        (WIND, False): reduce,
        (WIND, True): average,
    }
    return found[kind, kept]


def in_batches(kind: str, kept: bool) -> bool:
    """Whether a sink takes RecordBatches: for numpy they are quicker to get at than objects."""
    return kind == MANY or (kind == WIND and not kept)


class Filtering(Nodes):
    """One node: of the events, or of the one who wants them."""

    def begin(self, name: str, connect: str | None = None) -> dict[str, Any]:
        network = Network(
            listen=("tcp/127.0.0.1:0",), connect=() if connect is None else (connect,), federation="filters"
        )
        node = Node(name, network=network)
        for kind, type in TYPES.items():
            for kept in (False, True):
                node.channel(channel_of(kind, kept), type)
        self._nodes.append(node)
        return {"endpoint": node.endpoints[0]}

    def first(self, kind: str, text: str) -> dict[str, Any]:
        """The first interest of a process, which loads what it needs: seconds until it is checked, until it has judged
        an event, and until there is machine code."""
        event, output = (winds()[0], Average) if kind == WIND else (readings(0.0)[0], None)
        record = event_type(TYPES[kind]).encode(event)
        start = perf_counter()
        interest = Interest(text, TYPES[kind], output=output)
        checked = perf_counter()
        native = interest.native()
        passed = native.run(record).passed
        answered = perf_counter()
        native.wait(PATIENCE)
        made = perf_counter()
        if not passed:
            raise RuntimeError(f"expected that it passes, found that it does not: {text}")
        return {"checked": checked - start, "answered": answered - start, "native": made - start}

    # ── who publishes ──

    def sources(self) -> None:
        node = self._nodes[0]
        for kind in KINDS:
            for kept in (False, True):
                name = channel_of(kind, kept)
                self._sources[name] = node.channel(name).source("filters")

    def publish(self, kind: str, kept: bool, n: int, rate: float) -> dict[str, Any]:
        """Publish `n` events, whole pools, and wait until all that cross are acknowledged: what that took here."""
        source = self._sources[channel_of(kind, kept)]
        publish: Any = source.publish
        events: Any
        match kind:
            case "many":
                publish, events = source.publish_many, batches(rate, source.type.schema)
                n //= BATCH
            case "wind":
                events = winds()
            case _:
                events = readings(rate)
        before = self.counters()["bytes"]
        cpu, start = process_time(), perf_counter()
        for event in islice(cycle(events), n):
            publish(event)
        handed = perf_counter()
        self.flush()
        end, cpu = perf_counter(), process_time() - cpu
        return {
            "cpu": cpu,
            "handed": handed - start,
            "wall": end - start,
            "bytes": self.counters()["bytes"] - before,
        }

    # ── who wants ──

    def sinks(self) -> None:
        """All of them; returns when the source has their interests, in machine code."""
        node = self._nodes[0]
        self._taken: dict[str, Taken] = {}
        for kind in KINDS:
            for kept in (False, True):
                name = channel_of(kind, kept)
                taken = self._taken[name] = Taken()
                where = None
                if kept:
                    where = Interest(AVERAGE, Wind, output=Average) if kind == WIND else Interest(SIMPLE, Reading)
                handler = handlers(kind, kept, taken)
                self._sinks.append(node.channel(name).subscribe(handler, where, batch=in_batches(kind, kept)))
        for name in self._taken:
            self._settle(name)

    def take(self, kind: str, kept: bool, goal: int) -> None:
        """What comes from now on is counted up to `goal`."""
        self._taken[channel_of(kind, kept)].start(goal)
        self._cpu, self._bytes = process_time(), self.counters()["bytes"]

    def taken(self, kind: str, kept: bool) -> dict[str, Any]:
        """Waits for the goal: what has come, and what it took."""
        it = self._taken[channel_of(kind, kept)]
        it.meter.look = lambda: it.got
        it.meter.result(PATIENCE / 4)
        return {
            "cpu": process_time() - self._cpu,
            "bytes": self.counters()["bytes"] - self._bytes,
            "got": it.got,
            "useful": it.useful,
            "total": it.total,
        }

    def ever(self) -> dict[str, Any]:
        """All that has ever come, by channel: more than was expected if any came twice."""
        return {name: it.ever for name, it in self._taken.items()}


if __name__ == "__main__":
    serve(Filtering())
