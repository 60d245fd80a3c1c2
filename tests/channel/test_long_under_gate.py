"""What may take long is not done under a source's lock: others go on meanwhile, and nothing is lost or doubled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Config, Event, Log, Node, Queue, i64
from headwater.channel import source
from headwater.channel.backlog.log import LogBacklog
from headwater.channel.backlog.ring import Rings
from headwater.store.log import wal_writer as appending

CHANNEL, GUARD = "test.numbers", 120.0


class Number(Event, name="test.Number"):
    n: i64


class Halt:
    """A function that waits, the first time that it is called, until it is let."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.begun, self.go = function, threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> Any:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go.wait(GUARD)
        return self._function(*args)


def halted(kind: type[LogBacklog | Rings], monkeypatch: pytest.MonkeyPatch) -> Halt:
    """Whoever reads such a backlog first waits."""
    slow = Halt(kind.read)
    monkeypatch.setattr(kind, "read", lambda *given: slow(*given))
    return slow


def aside(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def scheduler(path: Path, log: bool, **more: Any) -> Node:
    return Node("lab", log=Log(path, **more)) if log else Node("lab", config=Config(history=1_000_000))


@pytest.mark.parametrize("where", [None, "n % 2 == 0", "a function with state"])
@pytest.mark.parametrize("wanted", ["all", 100])
@pytest.mark.parametrize("log", [True, False])
def test_a_long_history_stops_no_publisher(
    log: bool, wanted: Any, where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read, and the past judged, while events are published: they follow on it without a gap."""
    if where == "a function with state":
        where = "{ static int seen = 0; seen = seen + 1; return seen % 2 == 1; }"
    with scheduler(tmp_path, log) as node:
        channel = node.channel(CHANNEL, Number)
        one = channel.source("one")
        one.publish_many([Number(n) for n in range(5000)])
        slow = halted(LogBacklog if log else Rings, monkeypatch)
        got = list[int]()
        sink = aside(lambda: channel.subscribe(lambda event: got.append(event.n), where, history=wanted))
        assert slow.begun.wait(GUARD)
        for n in range(5000, 8000):
            one.publish(Number(n))  # it does not wait
        other = list[int]()
        channel.subscribe(lambda event: other.append(event.n), "n >= 8000")  # nor does this
        slow.go.set()
        sink.join(GUARD)
        assert not sink.is_alive()
        for n in range(8000, 8100):
            one.publish(Number(n))
        passed = [n for n in range(8000) if where is None or n % 2 == 0]
        first = passed if wanted == "all" else passed[-100:]
        assert got == first + [n for n in range(8000, 8100) if where is None or n % 2 == 0]
        assert other == list(range(8000, 8100))


def test_the_past_of_several_sources_is_in_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler(tmp_path, log=True) as node:
        channel = node.channel(CHANNEL, Number)
        sources = [channel.source(f"s{at}") for at in range(3)]
        for n in range(3000):
            sources[n % 3].publish(Number(n))
        slow = halted(LogBacklog, monkeypatch)
        got = list[tuple[int, str, int]]()
        sink = aside(
            lambda: channel.subscribe(
                lambda event, about: got.append((about.time, about.source, event.n)), history="all", about=True
            )
        )
        assert slow.begun.wait(GUARD)
        for n in range(3000, 6000):
            sources[n % 3].publish(Number(n))
        slow.go.set()
        sink.join(GUARD)
        assert sorted(n for *_, n in got) == list(range(6000))
        times = [time for time, *_ in got]
        assert times == sorted(times)
        for at in range(3):
            assert [n for _, name, n in got if name == f"s{at}"] == list(range(at, 6000, 3))


def test_a_disk_that_takes_its_time_stops_only_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler(tmp_path, log=True) as node:
        channel = node.channel(CHANNEL, Number)
        one = channel.source("one")
        one.publish(Number(0))
        slow = Halt(os.write)
        monkeypatch.setattr(appending.os, "write", slow)
        writer = aside(lambda: one.publish(Number(1)))
        assert slow.begun.wait(GUARD)
        got = list[int]()
        sink = channel.subscribe(lambda event: got.append(event.n), history="all")  # while the disk is at it
        assert got == [0] and sink.points == {f"{CHANNEL}/one": 1}
        assert sink.counts.evaluated == 1  # the one of the past
        sink.change(where="n > 0")
        slow.go.set()
        writer.join(GUARD)
        one.publish(Number(2))
        assert got == [0, 1, 2]


def test_a_source_is_not_closed_between_an_event_s_writing_and_its_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduler(tmp_path, log=True) as node:
        channel = node.channel(CHANNEL, Number)
        one, got = channel.source("one"), list[int]()
        channel.subscribe(lambda event: got.append(event.n))
        one.publish(Number(0))
        slow = Halt(os.write)
        monkeypatch.setattr(appending.os, "write", slow)
        writer = aside(lambda: one.publish(Number(1)))
        assert slow.begun.wait(GUARD)
        closer = aside(one.close)
        slow.go.set()
        writer.join(GUARD)
        closer.join(GUARD)
        assert got == [0, 1] and one.closed  # what is in the log was delivered


@pytest.mark.parametrize("log", [True, False])
def test_a_large_batch_is_taken_in_in_pieces(log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others who want the source's lock get it in between, and everything comes once and in order."""
    monkeypatch.setattr(source, "PIECE", 100)
    with scheduler(tmp_path, log) as node:
        channel = node.channel(CHANNEL, Number)
        one = channel.source("one")
        got = list[int]()
        sink = channel.subscribe(lambda event: got.append(event.n), "n % 2 == 0", queue=Queue(limit=10_000))
        batch = pa.record_batch({"n": pa.array(range(1050), pa.int64())})
        assert one.publish_many(batch) == 1050
        assert one.publish(Number(1050)) == 1051
        assert got == list(range(0, 1051, 2))
        counts = sink.counts
        assert (counts.evaluated, counts.passed, counts.rejected) == (1051, 526, 525)
        past = list[int]()
        channel.subscribe(lambda event: past.append(event.n), history="all")
        assert past == list(range(1051))
