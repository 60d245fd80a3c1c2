"""The disk with a node's state is full: no event is handed over without a trace, and nothing is lost."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Node, Queue
from headwater.channel.options.delivery import Reliable
from headwater.channel.queues import positions as progress
from headwater.dispatch import Pool
from headwater.errors import StoreError
from headwater.store import NodeState
from tests.channel.concurrency import STRATEGIES
from tests.channel.events import Sighting, sighting
from tests.channel.far import DURABLE, KEY, far, kept, publish
from tests.disk import full


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "RETRY_SECONDS", 0.01)


def until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("strategy", ["inline", "pool"])
def test_nothing_more_is_handed_over_and_it_goes_on_by_itself(
    strategy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    got = list[int]()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(
            lambda event: got.append(event.badge), name="x", delivery=DURABLE, dispatch=STRATEGIES[strategy]
        )
        source = far(channel)
        publish(source, 1)
        until(lambda: node.state.positions("x") == {KEY: 1})
        with full():
            publish(source, *range(2, 50))  # it does not wait, and does not fail
            until(lambda: sink.state == "paused")
            assert got == [1, 2]
            assert "its position cannot be kept" in str(sink.paused) and "StoreError" in str(sink._trouble)
            assert "paused: its position cannot be kept" in str(node.report())
            assert sink._unsettled(source) == 2
            sink.resume()  # in vain
            until(lambda: sink.state == "paused")
            assert got == [1, 2]
        assert "see to the disk" in caplog.text
        until(lambda: len(got) == 49)
        assert got == list(range(1, 50)) and sink.state == "open"
        until(lambda: node.state.positions("x") == {KEY: 49})
        counts = sink.counts
        assert (counts.passed, counts.delivered, counts.failed, counts.queued) == (49, 49, 0, 0)
        assert sink._failures == 0


def test_after_a_restart_what_was_handed_over_without_its_position_says_so(tmp_path: Path) -> None:
    got, again = list[int](), list[tuple[int, bool]]()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda event: got.append(event.badge), name="x", delivery=DURABLE)
        source = far(channel)
        publish(source, 1)
        with full():
            publish(source, *range(2, 20))
            node.close(drain=False)  # and it ends before there is room
            node.state.close()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        channel.subscribe(lambda e, about: again.append((e.badge, about.redelivered)), name="x", delivery=DURABLE)
        publish(far(channel, resent=19), *range(1, 21))
    handed = [badge for badge in got if badge > 1]
    assert [badge for badge, _ in again] == list(range(2, 21))
    assert [badge for badge, redelivered in again if redelivered] == handed == [2]


def test_a_batch_is_not_handed_over_if_that_cannot_be_noted_before(tmp_path: Path) -> None:
    got = list[list[int]]()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(
            lambda batch: got.append(batch["badge"].to_pylist()), name="x", delivery=DURABLE, batch=8
        )
        source = far(channel)
        rows = [channel.type.encode(sighting(number)) for number in range(1, 7)]
        with full():
            source.publish_many(channel.type.records_to_arrow(rows))
            assert got == [] and sink.state == "paused" and sink.counts.queued == 6 and sink.counts.delivered == 0
        until(lambda: got == [[1, 2, 3, 4, 5, 6]])
        assert sink.counts.delivered == 6 and node.state.positions("x") == {KEY: 6}


def test_a_handler_that_fails_then_is_not_called_again_either(tmp_path: Path) -> None:
    """That it has had its event cannot be noted: after a restart two would come again, and only one would say so."""
    got = list[int]()

    def handle(event: Any) -> None:
        got.append(event.badge)
        raise ValueError("no")

    with kept(tmp_path / "s", on_error=lambda *given: None) as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(handle, name="x", delivery=DURABLE, failures=0)
        source = far(channel)
        publish(source, 1)
        with full():
            publish(source, 2, 3, 4)
            assert got == [1, 2] and sink.state == "paused" and sink.counts.failed == 2
        until(lambda: got == [1, 2, 3, 4])
        assert node.state.handed("x") == {KEY: 4}


def test_the_first_event_waits_until_it_can_be_noted_that_events_are_handed_over(tmp_path: Path) -> None:
    got = list[int]()
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(lambda event: got.append(event.badge), name="x", delivery=DURABLE)
        source = far(channel)
        with full():
            publish(source, 1, 2)
            assert got == [] and sink.state == "paused" and sink.counts.queued == 2
        until(lambda: got == [1, 2])


def test_what_is_pulled_waits_for_the_disk(tmp_path: Path) -> None:
    with kept(tmp_path / "s") as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(name="x", delivery=DURABLE)
        source = far(channel)
        publish(source, *range(1, 10))
        assert sink.get().badge == 1
        with full():
            for _ in range(3):
                with pytest.raises(StoreError):
                    sink.get()
            with pytest.raises(StoreError):
                sink.get_batch()
        assert sink.get().badge == 2
        batch = sink.get_batch(3)
        assert isinstance(batch, pa.RecordBatch) and batch["badge"].to_pylist() == [3, 4, 5]
        with full(), pytest.raises(StoreError):
            sink.get_batch(3)
        assert sink.get_batch(8)["badge"].to_pylist() == [6, 7, 8, 9]
        assert sink.counts.delivered == 9


def test_in_the_handler_s_own_transaction_nothing_is_passed_over(tmp_path: Path) -> None:
    """What could not be committed was undone: it is done again, not left out."""
    connection = sqlite3.connect(tmp_path / "own", isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE seen (badge)")
    with Node() as node:
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(
            lambda event: connection.execute("INSERT INTO seen VALUES (?)", (event.badge,)),
            name="x",
            delivery=Reliable(durable=True, within=connection),
            dispatch=Pool(maximum=1),
            queue=Queue(limit=100),
        )
        source = far(channel)
        publish(source, 1)
        until(lambda: sink.counts.delivered == 1)
        with full():
            publish(source, *range(2, 10))
            until(lambda: sink.state == "paused" or sink.counts.failed > 0)
        until(lambda: sink.state == "open" and sink.counts.queued == 0 and sink._mailbox.idle)
    assert [badge for (badge,) in connection.execute("SELECT badge FROM seen ORDER BY badge")] == list(range(1, 10))
    connection.close()


def test_it_is_not_taken_for_a_failure_of_the_handler(tmp_path: Path) -> None:
    failures = list[Any]()
    with NodeState(tmp_path / "s") as state, Node(on_error=lambda *given: failures.append(given)) as node:
        node.state = state
        channel = node.channel("a", Sighting)
        sink = channel.subscribe(lambda event: None, name="x", delivery=DURABLE)
        with full():
            publish(far(channel), *range(1, 30))
            assert not failures and sink.counts.failed == 0
        until(lambda: sink.counts.delivered == 29)
    assert not failures
