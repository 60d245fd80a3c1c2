"""Subscribers of notifications: one that is durable has them all, also those of a time when it was not there, and what
it may have had before says so."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from headwater import About, Node, Reliable
from headwater.objects import Computed
from headwater.testing import Recorder, eventually

DURABLE = Reliable(durable=True)
GUARD = 60.0


def opened(folder: Path, **options: Any) -> Node:
    node = Node("plant", state=folder / "state", **options)
    node.objects.type("Counter", "n: i64")
    if "counter" not in node.objects:
        with node.objects.transaction() as t:
            t.create("counter", "Counter", n=0)
    node.objects.trigger("each", on="counter", when="each", notify={"n": "new.n"})
    return node


def count(node: Node, times: int = 1) -> None:
    for _ in range(times):
        with node.objects.transaction() as t:
            t.update("counter", n=Computed("n + 1"), event=True)


def test_one_that_is_durable_has_what_was_told_while_it_was_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first: Recorder[Any] = Recorder()
    with opened(tmp_path, log=log) as node:
        count(node)  # before it has ever subscribed: not for it
        node.objects.triggers["each"].subscribe(first, "n > 1", name="desk", delivery=DURABLE)
        count(node, 2)
        assert [event.n for event in first.wait(2)] == [2, 3]
    with opened(tmp_path, log=log) as node:
        count(node, 2)  # nobody is there
        node.objects.engine.outbox.wait(GUARD)
    second: Recorder[Any] = Recorder()
    with opened(tmp_path, log=log) as node:
        node.objects.triggers["each"].subscribe(second, "n > 1", name="desk", delivery=DURABLE)
        count(node)
        assert [event.n for event in second.wait(3)] == [4, 5, 6]
        changes: Recorder[Any] = Recorder()
        node.objects.changes("Counter").subscribe(changes, name="all", delivery=DURABLE)
        count(node)
        assert [event.new.n for event in changes.wait(1)] == [7]


def test_one_that_comes_before_the_objects_are_opened_has_them_too(tmp_path: Path) -> None:
    log, first = tmp_path / "log", Recorder[Any]()
    with opened(tmp_path, log=log) as node:
        channel = node.objects.triggers["each"].channel
        type = channel.type
        channel.subscribe(first, name="desk", delivery=DURABLE)
        count(node)
        first.wait(1)
    with opened(tmp_path, log=log) as node:
        count(node)
    again: Recorder[Any] = Recorder()
    with Node("plant", state=tmp_path / "state", log=log) as node:
        node.channel(channel.name, type).subscribe(again, name="desk", delivery=DURABLE)
        count(node)
        assert [event.n for event in again.wait(2)] == [2, 3]


def test_an_event_in_flight_comes_again_and_says_so(tmp_path: Path) -> None:
    """Its handler has not returned when the state is copied, as a kill would leave it."""
    log, held, go = tmp_path / "log", threading.Event(), threading.Event()

    def blocks(event: Any, about: About) -> None:
        assert not about.redelivered
        held.set()
        go.wait(GUARD)

    with opened(tmp_path, log=log) as node:
        node.objects.triggers["each"].subscribe(blocks, name="desk", delivery=DURABLE)
        count(node)
        assert held.wait(GUARD)
        node.state._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        copy = (tmp_path / "state").read_bytes()
        go.set()
    (tmp_path / "state").write_bytes(copy)
    seen: list[tuple[int, bool]] = []
    with opened(tmp_path, log=log) as node:
        node.objects.triggers["each"].subscribe(
            lambda event, about: seen.append((event.n, about.redelivered)), name="desk", delivery=DURABLE
        )
        count(node)
        eventually(lambda: len(seen) == 2)
    assert seen == [(1, True), (2, False)]


def test_without_a_log_what_leaves_once_more_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        channel = node.objects.triggers["each"].channel
        type = channel.type
        count(node, 2)
        assert node.objects.engine.outbox.wait(GUARD)
        node.state._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        copy = (tmp_path / "state").read_bytes()  # in which it is not written that they have left
    (tmp_path / "state").write_bytes(copy)
    seen: list[tuple[int, bool]] = []
    with Node("plant", state=tmp_path / "state") as node:
        node.channel(channel.name, type).subscribe(lambda event, about: seen.append((event.n, about.redelivered)))
        count(node)
        eventually(lambda: len(seen) == 3)
    assert seen == [(1, True), (2, True), (3, False)]


def test_handlers_coroutines_loops_and_who_pulls_have_all_and_disturb_nobody(tmp_path: Path) -> None:
    """One handler waits, one fails, and neither a turn nor any other subscriber waits for them."""
    go, had, failed = threading.Event(), Recorder[Any](), Recorder[Any]()
    awaited: list[int] = []

    def waits(event: Any) -> None:
        go.wait(GUARD)

    def fails(event: Any) -> None:
        failed(event)
        raise ValueError("no")

    async def coroutine(event: Any) -> None:
        await asyncio.sleep(0)
        awaited.append(event.n)

    async def loop(each: Any) -> list[int]:
        found = []
        subscription = each.subscribe()
        each.subscribe(coroutine)
        await asyncio.get_running_loop().run_in_executor(None, count, node, 3)
        async for event in subscription:
            found.append(event.n)
            if len(found) == 3:
                break
        while len(awaited) < 3:
            await asyncio.sleep(0.001)
        return found

    with opened(tmp_path) as node:
        each = node.objects.triggers["each"]
        each.subscribe(waits)
        each.subscribe(fails)
        each.subscribe(had)
        pulled = each.subscribe()
        assert asyncio.run(loop(each)) == awaited == [1, 2, 3]
        assert [pulled.get(timeout=GUARD).n for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
        assert [event.n for event in had.wait(3)] == [event.n for event in failed.wait(3)] == [1, 2, 3]
        assert node.objects.triggers["each"].report()["fired"] == 3
        go.set()
