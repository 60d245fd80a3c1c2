"""Logs of a node where something unusual happens: interrupts, clocks that go back, types that shrink, many channels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Log
from headwater.channel.node import Node
from headwater.errors import StoreError
from headwater.logs import replay
from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.reader import ChannelReader
from headwater.testing import ManualClock

CHANNEL = "ie.tcd.count"


def numbers(folder: Path, source: str) -> list[tuple[int, int]]:
    """Of a source, what the log has: sequence numbers and values."""
    found = ChannelReader(folder, CHANNEL).read(node="lab", source=source)
    return [
        pair for batch in found for pair in zip(batch["event_seq"].to_pylist(), batch["n"].to_pylist(), strict=True)
    ]


class _Interrupted:
    """A log in which Ctrl-C comes when an event is written, and before anybody else has heard of it."""

    def __init__(self, found: ChannelLog) -> None:
        self._found, self.times = found, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def append(self, *given: Any) -> int:
        return self._after(self._found.append(*given))

    def append_batch(self, *given: Any) -> int:
        return self._after(self._found.append_batch(*given))

    def _after(self, ticket: int) -> int:
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt
        return ticket


@pytest.mark.parametrize("many", [False, True])
def test_a_source_goes_on_after_an_interrupt(tmp_path: Path, many: bool) -> None:
    with Node("lab", log=tmp_path) as node:
        channel, seen = node.channel(CHANNEL, "n: i64"), list[int]()
        sink = channel.subscribe(lambda event: seen.append(event.n), "n >= 0")
        source = channel.source("hall")
        source.publish(n=1)
        source.log = _Interrupted(node._logs.of(channel))  # type: ignore[assignment, union-attr]
        publish: Any = (
            (lambda n: source.publish_many(pa.table({"n": [n] * 64}))) if many else lambda n: source.publish(n=n)
        )
        with pytest.raises(KeyboardInterrupt):
            publish(2)
        rows = 64 if many else 1
        assert publish(3) == source.seq == 1 + 2 * rows
        assert seen == [1, *[3] * rows]
        assert (sink.counts.evaluated, source.report().published) == (1 + rows, 1 + rows)
        assert source.publish(n=4) == 2 + 2 * rows
    assert [seq for seq, _ in numbers(tmp_path, "hall")] == list(range(1, 3 + 2 * rows))


@pytest.mark.parametrize("log", [True, False], ids=["from the log", "from memory"])
def test_a_clock_that_goes_back(tmp_path: Path, log: bool) -> None:
    """A source's past comes in the order of the source."""
    times = iter([*range(50, 60), *range(10, 20), *range(55, 65)])
    options: dict[str, Any] = {"log": tmp_path} if log else {"config": {"history": 1000}}
    with Node("lab", **options) as node:
        node._stamp = lambda: next(times) * 1_000_000_000
        channel = node.channel(CHANNEL, "n: i64")
        source = channel.source("hall")
        for n in range(30):
            source.publish(n=n)
        for history, first in ("all", 0), (25, 5):
            seen: list[int] = []
            channel.subscribe(lambda event, seen=seen: seen.append(event.n), history=history)
            assert seen == list(range(first, 30))


@pytest.mark.parametrize(
    ("before", "events", "now", "left"),
    [
        ("n: u64", [1, 2**40, 3], "n: u32", [1, 3]),
        ("n: enum(low, high)", ["low", "high", "low"], "n: enum(low)", ["low", "low"]),
        ("n: {a: i32}", [{"a": 1}], "n: {a: i32, b: i32}", []),
        ("n: i64[]", [[1], [2**40], []], "n: i32[]", [[1], []]),
    ],
)
def test_events_that_do_not_fit_the_present_type_are_left_out(
    tmp_path: Path, before: str, events: list[Any], now: str, left: list[Any]
) -> None:
    with Node("lab", log=tmp_path) as node:
        source = node.channel(CHANNEL, before).source("hall")
        for n in events:
            source.publish(n=n)
    with Node("lab", log=tmp_path) as node:
        channel, seen = node.channel(CHANNEL, now), list[Any]()
        channel.source("hall")
        channel.subscribe(lambda event: seen.append(event.n), history="all")
    plain = [getattr(n, "name", list(n) if isinstance(n, tuple) else n) for n in seen]
    assert plain == left


def test_a_channel_that_is_closed_lets_go_of_its_log(tmp_path: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with Node("lab", log=tmp_path) as node:
        before = None
        for life in range(30):
            channel = node.channel(CHANNEL, "n: i64")
            source = channel.source("hall")
            assert source.publish(n=life) == life + 1
            other = node.channel(f"ie.tcd.other-{life}", "n: i64")
            other.source("hall").publish(n=life)
            for each in (channel, other):
                each.close()
            before = held() if before is None else before
            assert held() <= before
    assert numbers(tmp_path, "hall") == [(life + 1, life) for life in range(30)]


def test_one_log_that_cannot_be_closed_does_not_keep_others_open(tmp_path: Path) -> None:
    node = Node("lab", log=tmp_path)
    sources = [node.channel(f"ie.tcd.{name}", "n: i64").source("hall") for name in "abc"]
    for source in sources:
        source.publish(n=1)
    bad = sources[0].log
    assert bad is not None
    os.close(bad._writer.descriptor)
    bad._writer.descriptor = os.open("/dev/full", os.O_WRONLY)  # it cannot be synced
    with pytest.raises(StoreError, match="expected to sync its file"):
        node.close()
    with Node("lab", log=tmp_path) as again:
        for name in "abc":
            again.channel(f"ie.tcd.{name}", "n: i64").source("hall").publish(n=2)


def test_replayed_sources_have_names_of_their_own(tmp_path: Path) -> None:
    """Whatever sources of other nodes are called."""
    for name, source in ("a", "x"), ("b", "x"), ("c", "a.x"), ("a", "b.y"), ("a.b", "y"), ("d", "y"), ("e", "b.y"):
        with Node(name, log=Log(tmp_path), clock=ManualClock()) as node:
            node.channel(CHANNEL, "n: i64").source(source).publish(n=1)
    with Node("test") as node:
        seen: list[str] = []
        node.channel(CHANNEL, "n: i64").subscribe(lambda event, about: seen.append(about.source), batch=False)
        report = replay(tmp_path, node)
        assert (report.events, report.sources, len(set(seen))) == (7, 7, 7)
