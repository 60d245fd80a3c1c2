"""What durable sinks are handed again is marked, and nothing else is, through whatever ends they have: those that pull
and are forgotten, that are subscribed again on a full disk, that drain slowly, of sources that stay silent."""

from __future__ import annotations

import gc
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Log, Node, Reliable
from headwater.dispatch import WAIT
from headwater.errors import ClosedError, StoreError
from headwater.testing import ManualClock
from tests.channel.test_durable_at_home import CHANNEL, Count, Seen, home, publish
from tests.disk import full

DURABLE = Reliable(durable=True)
MANUAL = Reliable(durable=True, acknowledge="manual")
BARE = "test.bare"  # a channel without a log


def puller(node: Node, delivery: Reliable = DURABLE, **options: Any) -> Any:
    return node.channel(CHANNEL, Count).subscribe(name="kept", delivery=delivery, about=True, **options)


def pulled(sink: Any, most: int = 100) -> Seen:
    found = Seen()
    while len(found) < most:
        try:
            each = sink.poll()
        except ClosedError:
            break
        if each is None:
            break
        found.append((each[0].n, each[1].redelivered))
    return found


def handled(node: Node, seen: Seen) -> Any:
    def take(event: Count, about: Any) -> None:
        seen.append((event.n, about.redelivered))

    return node.channel(CHANNEL, Count).subscribe(take, name="kept", delivery=DURABLE)


def right(seen: Seen, upto: int) -> bool:
    """Whether all came, and what came twice is marked, and nothing else."""
    had = set[int]()
    for n, again in seen:
        if again is not (n in had):
            return False
        had.add(n)
    return had == set(range(upto))


@pytest.mark.parametrize("delivery", [DURABLE, MANUAL])
def test_one_that_pulls_and_is_forgotten_has_written_what_it_was_given(delivery: Reliable, tmp_path: Path) -> None:
    with home(tmp_path) as node:
        source, sink = node.channel(CHANNEL, Count).source("s"), puller(node, delivery)
        publish(source, 0, 5)
        first = pulled(sink, 3)
        sink.cancel()
        del sink
        gc.collect()
        assert right(first + pulled(puller(node, delivery)), 5)


def test_after_a_kill_each_source_is_in_doubt_once_also_beside_one_that_is_silent(tmp_path: Path) -> None:
    """What comes of the one is not marked in every life until the other publishes; and the other's next event is."""
    before, after, seen = tmp_path / "before", tmp_path / "after", Seen()
    before.mkdir()
    with home(before) as node:
        busy, silent = node.channel(CHANNEL, Count).source("busy"), node.channel(CHANNEL, Count).source("silent")
        handled(node, seen)
        publish(busy, 0, 2)
        publish(silent, 100, 102)
        node.subscriptions["kept"].pause()
        publish(silent, 102, 103)
        shutil.copytree(before, after)  # as it would be if it were killed now
    seen.clear()
    for life in range(3):
        with home(after) as node:
            busy = node.channel(CHANNEL, Count).source("busy")
            sink = handled(node, seen)
            publish(busy, 2 + 4 * life, 4 + 4 * life)
            sink.cancel()
            publish(busy, 4 + 4 * life, 6 + 4 * life)
    assert seen == [(n, False) for n in range(2, 12)]
    seen.clear()
    with home(after) as node:
        handled(node, seen)
        node.channel(CHANNEL, Count).source("silent")
    assert seen == [(102, True)]  # it may have been handed over


def test_what_expires_in_a_batch_is_not_taken_for_what_is_before_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with Node("home", log=tmp_path / "log", state=tmp_path / "state", clock=clock) as node:
        source = node.channel(CHANNEL, Count).source("s")
        for delivery, acknowledges in ((MANUAL, False), (DURABLE, False), (MANUAL, True)):
            sink = puller(node, delivery, lifetime="100 - 33 * (n % 4)")
            first = source.seq
            publish(source, first, first + 4)  # the last of these expires
            clock.advance(20)
            with full(), pytest.raises(StoreError):
                sink.get_batch()
            assert sink.get_batch(1)["n"].to_pylist() == [first]  # it was not handed over
            assert sink.get_batch()["n"].to_pylist() == [first + 1, first + 2]
            if acknowledges:
                sink.acknowledge()
            counts = sink.counts
            assert counts.passed == counts.delivered + counts.expired + counts.skipped == 4 and counts.queued == 0
            sink.cancel()
            sink = puller(node, delivery)
            again = {MANUAL: 0 if not acknowledges else 3, DURABLE: 1}[delivery]
            assert pulled(sink) == [(n, n < first + 3) for n in range(first + again, first + 4)]
            sink.acknowledge()
            sink.cancel()


def test_one_that_drains_and_waits_is_not_ended_when_others_are(tmp_path: Path) -> None:
    with home(tmp_path) as node:
        channel, seen, go = node.channel(CHANNEL, Count), list[int](), threading.Event()
        source = channel.source("s")
        sink = channel.subscribe(
            lambda event: seen.append(event.n),
            name="kept",
            delivery=DURABLE,
            before=lambda event: True if go.is_set() else WAIT,
        )
        other = channel.subscribe(lambda event: None)
        publish(source, 0, 5)
        sink.cancel(drain=True)
        other.cancel()
        go.set()
        sink.wake()
        node.until(lambda: len(seen) == 5, 30.0)
    assert seen == list(range(5))


def test_what_could_not_be_written_on_a_full_disk_is_known_while_the_process_lasts(tmp_path: Path) -> None:
    seen = Seen()
    with home(tmp_path) as node:
        source, sink = node.channel(CHANNEL, Count).source("s"), handled(node, seen)
        publish(source, 0, 2)
        sink.pause()
        publish(source, 2, 4)
        with full():
            sink.resume()
            sink.cancel()
        handled(node, seen)
    assert right(seen, 4) and (2, True) in seen


def test_what_no_log_has_is_pulled_after_the_end_and_leaves_nothing_open(tmp_path: Path) -> None:
    def opened() -> Node:
        return Node("home", log=Log(tmp_path / "log", channels=CHANNEL), state=tmp_path / "state")

    def comes(node: Node) -> Any:
        return node.subscribe("test.*", name="kept", delivery=DURABLE, about=True)

    with opened() as node:
        source, bare = node.channel(CHANNEL, Count).source("s"), node.channel(BARE, Count).source("b")
        first = comes(node)
        publish(source, 0, 1)
        assert pulled(first) == [(0, False)]
        publish(source, 1, 3)
        publish(bare, 100, 102)
        first.cancel()
        second = comes(node)
        assert pulled(second) == [(1, False), (2, False)]
        assert pulled(first) == [(100, False), (101, False)]
        second.cancel()
        publish(source, 3, 5)
    with opened() as node:
        node.channel(CHANNEL, Count).source("s")
        assert pulled(comes(node)) == [(3, False), (4, False)]


def test_one_that_ends_as_its_transaction_is_to_begin_leaves_it_to_the_next(tmp_path: Path) -> None:
    class Connection(sqlite3.Connection):
        hook: Any = None

        def execute(self, sql: str, *given: Any) -> Any:
            if sql.startswith("BEGIN") and (hook := self.hook) is not None:
                self.hook = None
                hook()
            return super().execute(sql, *given)

    connection = sqlite3.connect(tmp_path / "own", check_same_thread=False, factory=Connection, isolation_level=None)
    connection.execute("CREATE TABLE seen (n INTEGER)")
    with home(tmp_path) as node:
        channel = node.channel(CHANNEL, Count)
        source = channel.source("s")

        def comes() -> Any:
            return channel.subscribe(
                lambda event: connection.execute("INSERT INTO seen VALUES (?)", (event.n,)),
                name="kept",
                delivery=Reliable(within=connection),
            )

        sink = comes()
        publish(source, 0, 2)

        def again() -> None:
            sink.cancel()
            comes()

        connection.hook = again
        publish(source, 2, 4)
    assert [n for (n,) in connection.execute("SELECT n FROM seen ORDER BY rowid")] == list(range(4))
    connection.close()
