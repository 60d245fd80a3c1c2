"""What one transaction may cost others: memory, the file, their turns, and what leaves."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater import Event, Node
from headwater.channel.objects.service import Computed
from headwater.errors import ObjectError, TransactionError
from headwater.logs import LogFiles
from headwater.objects import queue, tables
from headwater.objects.operations import Create, Destroy, Invoke, Permits, Raise, Read, Transaction, Update, pack
from headwater.testing import Recorder


class Tank(Event):
    level: float
    label: str = ""


ALL = Permits(("Tank",), ("Tank",), ())


def opened(folder: Path) -> Node:
    node = Node("plant", state=folder / "state")
    node.objects.type("Tank", Tank)
    with node.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0, label="x" * 100_000)
    return node


def test_small_operations_of_another_node_on_large_objects_are_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        reads = tuple(Read("tank", f"r{number}") for number in range(1000))
        changes = tuple(Update("tank", {"level": float(number)}, {}, True) for number in range(1000))
        for operations, said in (
            (reads, "bytes of results"),
            (changes, "bytes of objects"),
            ((Raise("tank"),) * 1000, "bytes of objects"),
        ):
            with pytest.raises(TransactionError, match=said):
                node.objects.submit(Transaction(operations, permits=ALL))
            node.objects.submit(Transaction(operations[:10], permits=ALL))


def test_who_may_not_read_an_object_gets_it_by_no_method(tmp_path: Path) -> None:
    with opened(tmp_path) as node:

        @node.objects.method("Tank")
        def same(tank: Tank) -> Tank:
            return tank

        blind = Permits(("Tank",), (), ())
        node.objects.submit(Transaction((Invoke("tank", "same"),), permits=blind))
        with pytest.raises(TransactionError, match="may not read"):
            node.objects.submit(Transaction((Invoke("tank", "same", alias="it"),), permits=blind))


def test_outcomes_that_were_kept_long_enough_become_fewer(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        engine = node.objects.engine
        engine.queue._keep = -1.0
        transaction = Transaction((Destroy("nothing"),))
        for _ in range(3 * queue.FORGET_EVERY):
            items = [engine.submit(transaction, waits=False) for _ in range(10)]
            for item in items:
                item.wait()
        node.objects.drain(monotonic() + 60.0)
        [[kept]] = engine._tables.read("SELECT count(*) FROM outcomes")
        assert kept <= 10 * queue.FORGET_EVERY + tables.PAGE


def test_a_channel_is_named_by_its_name_and_no_pattern(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        channel = node.channel("c.one", "v: i64")
        heard: Recorder[Any] = Recorder()
        channel.subscribe(heard)
        with pytest.raises(TransactionError, match="expected a channel with a type"):
            node.objects.submit(Transaction((Raise("", "c.*", {"v": 1}),)))
        node.objects.submit(Transaction((Raise("", "c.one", {"v": 2}),)))
        assert [event.v for event in heard.wait(1)] == [2]
        assert not node.objects.report()["unsent"]


def test_equal_parameters_of_other_types_are_others(tmp_path: Path) -> None:
    with opened(tmp_path) as node:

        def level(value: object) -> float:
            with node.objects.transaction(params={"p": value}) as t:
                t.update("tank", {"level": Computed(":p / 2")})
            return float(node.objects["tank.level"])

        assert level(1) == 0.5
        with pytest.raises(TransactionError):
            level(True)


def test_a_method_that_exits_and_text_that_nobody_can_keep_end_one_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as node:

        @node.objects.method("Tank")
        def leave(tank: Tank) -> float:
            sys.exit(3)

        with pytest.raises(TransactionError, match="SystemExit"):
            node.objects.submit(Transaction((Invoke("tank", "leave"),)))
        with pytest.raises(ObjectError, match="cannot be sent"):
            node.objects.submit(Transaction((Destroy("\ud800"),), node.objects.ticket()))
        assert not node._crashes.counts


def test_who_cannot_be_told_keeps_no_others_waiting(tmp_path: Path) -> None:
    with opened(tmp_path) as node:

        def told(outcome: object) -> None:
            raise OSError("gone")

        engine = node.objects.engine
        items = [engine.submit(Transaction((Raise("tank"),)), waits=True, told=told) for _ in range(3)]
        assert all(item.wait(30.0).done for item in items)
        assert not node._crashes.counts


def test_a_ticket_that_has_run_is_not_run_from_the_file(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        ticket = node.objects.ticket()
        transaction = Transaction((Update("tank", {}, {"level": "level + 1"}),), ticket)
        node.objects.submit(transaction)
        with node.objects.engine._tables.transaction() as execute:
            tables.queue_last(execute, ticket, pack(transaction))
    with Node("plant", state=tmp_path / "state") as node:
        node.objects.drain(monotonic() + 60.0)
        assert node.objects["tank.level"] == 1.0
        assert not tables.is_queued(node.objects.engine._tables, ticket)


def test_a_state_that_is_older_than_its_log_goes_on_behind_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of the state is put back: what is raised, told and changed since then is new, and nothing of it is taken
    for what has left before."""

    def lived(numbers: range) -> None:
        heard: Recorder[Any] = Recorder()
        told: Recorder[Any] = Recorder()
        with Node("plant", state=tmp_path / "state", log=tmp_path / "log") as node:
            node.objects.type("Tank", Tank)
            if "tank" not in node.objects:
                node.objects.submit(Transaction((Create("tank", "Tank", {"level": 0.0}),)))
            node.channel("c.one", "v: i64").subscribe(heard)
            alarm = node.objects.trigger("alarm", on="tank", when="each", notify={"level": "new.level"})
            alarm.subscribe(told)
            for number in numbers:
                node.objects.submit(
                    Transaction((Raise("", "c.one", {"v": number}), Update("tank", {"level": float(number)}, {}, True)))
                )
            node.objects.drain(monotonic() + 60.0)
            assert [event.v for event in heard.wait(len(numbers))] == list(numbers)
            assert [event.level for event in told.wait(len(numbers))] == list(map(float, numbers))
            older = node.objects.report()["older"]
        assert set(older) == (set() if numbers.start < 20 else {"c.one", "objects.Tank", "triggers.plant.alarm"})

    lived(range(2))
    copy = (tmp_path / "state").read_bytes()
    lived(range(2, 9))
    (tmp_path / "state").write_bytes(copy)
    assert "older than" not in caplog.text
    lived(range(20, 23))
    assert caplog.text.count("the state is older than") == 3
    lived(range(3, 5))
    for channel, field in (("c.one", "v"), ("triggers.plant.alarm", "level")):
        rows = [row for batch in LogFiles(tmp_path / "log").read(channel) for row in batch.to_pylist()]
        assert [row[field] for row in rows] == [*range(9), 20, 21, 22, 3, 4]
        assert [row["event_seq"] for row in rows] == list(range(1, 15))


def test_what_has_not_left_becomes_an_event_of_the_channels_new_type(tmp_path: Path) -> None:
    """A notification of other values under the same name: those of before are not lost, and hold nobody up."""
    with opened(tmp_path) as node:
        first = node.channel("c.one", "v: i64, w: text")
        node.objects.submit(Transaction((Raise("", "c.one", {"v": 1, "w": "a"}),)))
        assert node.objects.engine.outbox.wait(60.0)
        node.state._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        copy = (tmp_path / "state").read_bytes()  # in which it is not written that it has left
        assert first.type is not None
    (tmp_path / "state").write_bytes(copy)
    heard: Recorder[Any] = Recorder()
    with Node("plant", state=tmp_path / "state") as node:
        channel = node.channel("c.one", "v: i64, w: f64, more: i32, maybe: text?")
        channel.subscribe(heard)
        engine = node.objects.engine
        engine.queue.between(lambda execute: engine.outbox.retype(execute, "c.one", channel.type))  # type: ignore[arg-type]
        node.objects.submit(Transaction((Raise("", "c.one", {"v": 2, "w": 1.5, "more": 3}),)))
        found = [(each.v, each.w, each.more, each.maybe) for each in heard.wait(2)]
        assert found == [(1, 0.0, 0, None), (2, 1.5, 3, None)]
