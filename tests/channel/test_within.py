"""A position within the handler's own transaction: what it writes and how far it is are one."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.channel.options.delivery import Reliable
from headwater.dispatch import AsyncLoop, Pool
from tests.channel.events import Sighting, sighting
from tests.channel.far import KEY, far, publish


class Table:
    """A user's own database."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.connection = sqlite3.connect(path, check_same_thread=False, **options)
        self.connection.execute("CREATE TABLE IF NOT EXISTS seen (badge INTEGER)")
        self.connection.commit()
        self.delivery = Reliable(within=self.connection)

    def add(self, event: Any) -> None:
        self.connection.execute("INSERT INTO seen VALUES (?)", (event.badge,))

    @property
    def seen(self) -> list[int]:
        return [badge for (badge,) in self.connection.execute("SELECT badge FROM seen ORDER BY rowid")]

    @property
    def positions(self) -> dict[str, int]:
        return dict(self.connection.execute("SELECT source, seq FROM headwater_positions WHERE sink = 'x'"))

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.rollback()
        self.connection.close()


MODES: list[dict[str, Any]] = [{}, {"isolation_level": None}, {"isolation_level": "IMMEDIATE"}]
if sys.version_info >= (3, 12):
    MODES.append({"autocommit": True})


@pytest.mark.parametrize("options", MODES)
def test_the_position_and_what_the_handler_writes_are_one(tmp_path: Path, options: dict[str, Any]) -> None:
    for last in (3, 5):
        with Table(tmp_path / "own", **options) as table, Node() as node:
            channel = node.channel("a", Sighting)
            channel.subscribe(table.add, name="x", delivery=table.delivery)
            publish(far(channel), *range(1, last + 1))
            publish(channel.source(), 10 * last)
            assert not table.connection.in_transaction and table.positions == {KEY: last}
    with Table(tmp_path / "own") as table:
        assert table.seen == [1, 2, 3, 30, 4, 5, 50]


def test_the_owner_may_want_rows_to_be_anything(tmp_path: Path) -> None:
    for last in (3, 5):
        with Table(tmp_path / "own") as table, Node() as node:
            table.connection.row_factory = lambda cursor, row: {"row": row}
            channel = node.channel("a", Sighting)
            channel.subscribe(table.add, name="x", delivery=table.delivery)
            publish(far(channel), *range(1, last + 1))
    with Table(tmp_path / "own") as table:
        assert table.seen == [1, 2, 3, 4, 5]


def test_what_a_handler_wrote_before_it_raised_is_undone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL), Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)

        def handle(event: Any) -> None:
            table.add(event)
            if event.badge == 2:
                raise ValueError("no")

        channel.subscribe(handle, name="x", delivery=table.delivery)
        source = far(channel)
        publish(source, 1, 2)
        assert table.seen == [1] and table.positions == {KEY: 1}
        publish(source, 3)
        assert table.seen == [1, 3] and table.positions == {KEY: 3}


def test_after_is_part_of_the_transaction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL), Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)

        def after(event: Any, result: Any) -> None:
            if event.badge == 2:
                raise ValueError("no")

        channel.subscribe(table.add, name="x", delivery=table.delivery, after=after)
        publish(far(channel), 1, 2, 3)
        assert table.seen == [1, 3] and table.positions == {KEY: 3}


def test_a_handler_that_commits_by_itself_commits_the_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL), Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)

        def handle(event: Any) -> None:
            with table.connection:
                table.add(event)
            if event.badge == 3:
                table.connection.execute("INSERT INTO seen VALUES (33)")
                table.connection.rollback()
            if event.badge == 2:
                raise ValueError("after its own commit")

        subscription = channel.subscribe(handle, name="x", delivery=table.delivery)
        source = far(channel)
        publish(source, 1, 2)
        assert table.seen == [1, 2] and table.positions == {KEY: 2} and subscription._unsettled(source) is None
        publish(source, 3)
        assert table.seen == [1, 2, 3] and table.positions == {KEY: 3}


def test_a_handler_that_rolls_back_and_returns_is_done(tmp_path: Path) -> None:
    with Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)

        def handle(event: Any) -> None:
            table.add(event)
            if event.badge == 2:
                table.connection.rollback()

        channel.subscribe(handle, name="x", delivery=table.delivery)
        publish(far(channel), 1, 2)
        assert table.seen == [1] and table.positions == {KEY: 2} and not table.connection.in_transaction


def test_batches_and_coroutines_have_one_transaction_per_call(tmp_path: Path) -> None:
    with Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)

        def handle(batch: Any) -> None:
            assert table.connection.in_transaction
            table.connection.executemany("INSERT INTO seen VALUES (?)", [(b,) for b in batch["badge"].to_pylist()])

        channel.subscribe(handle, name="x", delivery=table.delivery, batch=4, dispatch=Pool(maximum=2))
        far(channel).publish_many([sighting(number) for number in range(1, 11)])
        assert node.close().drained
        assert table.seen == list(range(1, 11)) and table.positions == {KEY: 10}

    async def main() -> None:
        async with Node() as node:
            channel = node.channel("a", Sighting)

            async def handle(event: Any) -> None:
                await asyncio.sleep(0)
                table.add(event)
                if event.badge == 12:
                    raise asyncio.CancelledError

            channel.subscribe(handle, name="x", delivery=table.delivery, dispatch=AsyncLoop())
            publish(far(channel), *range(1, 14))

    with Table(tmp_path / "own") as table:
        asyncio.run(main())
        assert table.seen == [*range(1, 12), 13] and table.positions == {KEY: 13}


def test_a_connection_that_is_in_use_is_refused_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL), Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)
        table.connection.execute("INSERT INTO seen VALUES (77)")
        message = "expected a connection without an open transaction for sink 'x', found one with; commit it"
        with pytest.raises(Exception, match=message):
            channel.subscribe(table.add, name="x", delivery=table.delivery)
        table.connection.commit()
        subscription = channel.subscribe(table.add, name="x", delivery=table.delivery)
        source = far(channel)
        table.connection.execute("INSERT INTO seen VALUES (78)")
        publish(source, 1)
        assert subscription.counts.failed == 1 and table.connection.in_transaction
        table.connection.commit()
        publish(source, 2)
        assert table.seen == [77, 78, 2] and table.positions == {KEY: 2}


def test_a_closed_connection_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "own")
    connection.close()
    with Node() as node, pytest.raises(Exception, match="within: expected a connection on which table"):
        node.channel("a", Sighting).subscribe(print, name="x", delivery=Reliable(within=connection))


def test_within_leaves_no_room_for_acknowledging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL), Table(tmp_path / "own") as table, Node() as node:
        channel = node.channel("a", Sighting)
        subscription = channel.subscribe(lambda e, about: about.acknowledge(), name="x", delivery=table.delivery)
        publish(far(channel), 1)
        assert subscription._trouble is not None and "committed with the handler's transaction" in subscription._trouble
