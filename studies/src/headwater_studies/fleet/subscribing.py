"""A process with very many subscriptions: what it takes to match an event with them, and what each of them takes.

`load` puts them into a matcher as arrays, as a million texts would mostly measure the parser; `subscribe` makes real
subscriptions at a channel of a node. Kinds:

"keys"     `key == n`, another n for each: every event is wanted by exactly one
"ranges"   five closed ranges of width 0.25 on five of 30 fields, as in the literature on matching
"same"     `key == 0` for all, and no event is wanted
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from headwater.federation.node import Node
from headwater.interest import Interest, as_event_type
from headwater.match import Matcher
from headwater.types import Event, f64, i64
from headwater_studies.fleet.growing import memory
from headwater_studies.fleet.worker import Common, serve

FIELDS, PREDICATES, WIDTH = 30, 5, 0.25
NAMES = [f"d{at}" for at in range(FIELDS)]
Many: Any = type("Many", (Event,), {"__annotations__": {"key": i64, **dict.fromkeys(NAMES, f64)}})
TYPE = as_event_type(Many)
CHUNK = 50_000  # entries that are drawn at once
SAMPLED = 100  # interests that are compiled one by one
EVENTS = 60


class Load:
    """Entries as arrays, and events. The same for the same kind, count and seed."""

    def __init__(self, kind: str, count: int, seed: int = 7) -> None:
        self.kind, self.count = kind, count
        rng = np.random.default_rng(seed)
        self.values = rng.random((EVENTS, FIELDS))
        self.keys = rng.integers(0, count, EVENTS) if kind == "keys" else np.full(EVENTS, -1)
        self.which = np.zeros((0, PREDICATES), np.int64)
        self.low = np.zeros((0, PREDICATES))
        if kind == "ranges":
            sizes = [min(CHUNK, count - at) for at in range(0, count, CHUNK)]
            drawn = [np.argsort(rng.random((size, FIELDS), np.float32), axis=1)[:, :PREDICATES] for size in sizes]
            self.which = np.concatenate(drawn)
            self.low = rng.random((count, PREDICATES)) * (1 - WIDTH)
        self.records = [TYPE.encode(self.event(at)) for at in range(EVENTS)]

    def event(self, at: int, key: int | None = None) -> Any:
        return Many(int(self.keys[at % EVENTS]) if key is None else key, *self.values[at % EVENTS].tolist())

    def rows(self) -> dict[str, Any]:
        """The arguments of `Matcher.add_ranges`."""
        if self.kind == "ranges":
            low = self.low.reshape(-1)
            return {
                "payloads": range(self.count),
                "fields": NAMES,
                "owners": np.repeat(np.arange(self.count), PREDICATES),
                "which": self.which.reshape(-1),
                "low": low,
                "high": low + WIDTH,
            }
        own = np.arange(self.count)
        key = own if self.kind == "keys" else np.zeros(self.count, np.int64)
        which = np.zeros(self.count, np.int64)
        return {
            "payloads": range(self.count),
            "fields": ["key"],
            "owners": own,
            "which": which,
            "low": key,
            "high": key,
        }

    def text(self, number: int) -> str:
        """An entry as an interest."""
        if self.kind != "ranges":
            return f"key == {number if self.kind == 'keys' else 0}"
        pairs = zip(self.which[number].tolist(), self.low[number].tolist(), strict=True)
        return " and ".join(f"d{at} >= {low!r} and d{at} <= {low + WIDTH!r}" for at, low in pairs)

    def wanted(self, event: int) -> int:
        """How many entries want an event, worked out plainly."""
        if self.kind != "ranges":
            return 1 if self.kind == "keys" else 0
        found = self.values[event][self.which]
        return int(((found >= self.low) & (found <= self.low + WIDTH)).all(axis=1).sum())


def each(functions: Sequence[Callable[[bytes], Any]], records: Sequence[bytes], seconds: float) -> list[float]:
    """Median seconds per record of each function, one after the other on each record so that noise hits all alike; as
    many records as fit the time."""
    samples: list[list[float]] = [[] for _ in functions]
    end = perf_counter() + seconds
    while len(samples[0]) < 6 or perf_counter() < end:
        for record in records:
            for function, taken in zip(functions, samples, strict=True):
                start = perf_counter()
                function(record)
                taken.append(perf_counter() - start)
            if len(samples[0]) >= 6 and perf_counter() >= end:
                break
    return [statistics.median(taken) for taken in samples]


class Subscribing(Common):
    """A matcher, or a node, with many subscriptions."""

    def load(self, kind: str, count: int) -> dict[str, Any]:
        """A matcher with so many entries: seconds to build it and bytes, for each of them."""
        self._load = Load(kind, count)
        matcher, rows = Matcher(TYPE), self._load.rows()
        gc.collect()
        before, start = memory(), perf_counter()
        matcher.add_ranges(**rows)
        matching = matcher.snapshot()
        built = perf_counter() - start
        del rows
        gc.collect()
        grown = memory() - before
        hits = [len(matching.match(record)) for record in self._load.records]
        checked = range(0, EVENTS, 20)
        if [hits[at] for at in checked] != [self._load.wanted(at) for at in checked]:
            raise RuntimeError(f"{kind}, {count:,}: the matcher found other entries than there are")
        for record in self._load.records * 5:  # what its plan goes by
            matching.match(record)
        self._match = matcher.snapshot().match
        matcher.forced = "scan"
        self._scan = matcher.snapshot().match
        self._tests = [Interest(self._load.text(number), TYPE).native().test for number in range(min(count, SAMPLED))]
        return {
            "build": built / count,
            "bytes": matcher.nbytes / count,
            "memory": grown / count,
            "hits": statistics.mean(hits),
            "sampled": len(self._tests),
        }

    def match(self, seconds: float) -> dict[str, float]:
        """Seconds per event: as planned, by the plain scan in native code, and by each interest one after the other (of
        a sample, for as many as there are)."""
        tests = self._tests

        def one_by_one(record: bytes) -> None:
            for test in tests:
                test(record)

        ours, scan, single = each([self._match, self._scan, one_by_one], self._load.records, seconds)
        return {"ours": ours, "scan": scan, "single": single * self._load.count / len(tests)}

    # ── a channel ──

    def serve(self, kind: str, most: int) -> None:
        """A node with a channel and no subscriptions; there may be so many."""
        self._load = Load(kind, most)
        self._node = Node("many")
        self._channel = self._node.channel("growth.events", TYPE)
        self._source = self._channel.source("s")
        self._sinks: list[Any] = []
        self._got = 0
        with self._channel.subscribe(lambda event: None, self._load.text(0)):  # what is loaded and compiled once
            self._source.publish(self._load.event(0))

    def subscribe(self, upto: int, seconds: float) -> dict[str, Any]:
        """More subscriptions, until there are so many or the time is over: how many there are, what each took."""

        def take(event: Any) -> None:
            self._got += 1

        gc.collect()
        before, start, had = memory(), perf_counter(), len(self._sinks)
        while len(self._sinks) < upto and perf_counter() - start < seconds:
            self._sinks.append(self._channel.subscribe(take, self._load.text(len(self._sinks))))
        took, made = perf_counter() - start, len(self._sinks) - had
        gc.collect()
        return {"count": len(self._sinks), "made": made, "took": took, "memory": memory() - before}

    def publish(self, n: int) -> dict[str, float]:
        """`n` events, each wanted by one of the subscriptions there are if these are by key: seconds of each publish,
        and how many events came to subscribers."""
        there = max(1, len(self._sinks))
        keyed = self._load.kind == "keys"
        events = [self._load.event(at, at * 7919 % there if keyed else None) for at in range(n)]
        self._got, publish = 0, self._source.publish
        start = perf_counter()
        for event in events:
            publish(event)
        took = perf_counter() - start
        return {"took": took / n, "got": self._got}

    def stop(self) -> None:
        self._node.close()

    def close(self) -> None:
        """Nothing outlives the process."""


if __name__ == "__main__":
    serve(Subscribing())
