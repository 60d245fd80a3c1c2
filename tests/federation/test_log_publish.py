"""Batches of a streaming query, each published once: after errors, retries and killed processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ChannelError, ConfigError, EncodeError, StoreError, Unreachable
from headwater.federation.node import Node
from headwater.federation.security.identity import legal_name
from headwater.spark.live.journal import Journal
from headwater.spark.live.publisher import Publisher, publisher_name
from headwater.store.log.log_folder import LogFiles
from tests.effort import examples
from tests.federation.nodes import Log, nodes
from tests.federation.nursery import run

CHANNEL = "ie.tcd.alarm"
TYPE = "n: i64, room: text"
QUERY = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"n": pa.array(range(start, start + count), pa.int64()), "room": [f"room {n % 7}" for n in range(count)]}
    )


def logged(root: Path) -> list[int]:
    """What the log has of the query's source, in order."""
    log, name = LogFiles(root), publisher_name(QUERY)
    return [n for batch in log.read(CHANNEL, name, name, 0, None) for n in batch.column("n").to_pylist()]


def test_batches_are_published_once(tmp_path: Path) -> None:
    for life in range(3):
        with Publisher(CHANNEL, query=QUERY, type=TYPE if life == 0 else None, log=tmp_path) as publisher:
            for batch in range(life + 2):
                made = publisher.publish(batch, [rows(100 * batch, 30), rows(100 * batch + 30, 20)])
                new = batch == life + 1 or life == 0
                assert made.rows == (50 if new else 0) and made.last == 50 * (max(batch, life) + 1)
                again = publisher.publish(batch, rows(7, 7))
                assert again.rows == 0 and again.before == (50 if batch >= life else 0)
    assert logged(tmp_path) == [100 * batch + n for batch in range(4) for n in range(50)]


def test_an_empty_batch_and_one_that_does_not_fit(tmp_path: Path) -> None:
    with Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path) as publisher:
        assert publisher.publish(0, []).rows == publisher.publish(1, rows(0, 0)).rows == 0
        bad = pa.record_batch({"n": pa.array([1, None], pa.int64()), "room": ["a", "b"]})
        with pytest.raises(EncodeError, match="n"):
            publisher.publish(2, [rows(0, 5), bad])
        assert publisher.publish(2, rows(0, 5)).rows == 5
        for wrong in (-1, True, "2"):
            with pytest.raises(EncodeError, match="batch"):
                publisher.publish(wrong, rows(0, 1))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="closed"):
        publisher.publish(3, rows(0, 1))
    publisher.close()
    assert logged(tmp_path) == list(range(5))


@settings(deadline=None, max_examples=examples(15))
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    done=st.integers(0, 200),
    shuffled=st.booleans(),
    numbers=st.sampled_from([1, 3]),
)
def test_what_was_left_of_a_batch(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], done: int, shuffled: bool, numbers: int
) -> None:
    """As after a crash: the batch is in the journal, and some of it in the log."""
    root, count = tmp_path_factory.mktemp("left"), sum(sizes)
    done = min(done, count)
    parts, start = [], 1000
    for size in sizes:
        parts.append(rows(start, size))
        start += size
    with Publisher(CHANNEL, query=QUERY, type=TYPE, log=root) as publisher:
        publisher.publish(5, rows(0, 10))
        whole = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        conformed = publisher.channel.type.conform(whole)
        publisher._journal.stage(
            5 + numbers, 10, conformed.schema, [conformed.slice(at, 7) for at in range(0, count, 7)]
        )
        if done:
            publisher._source.publish_many(whole.slice(0, done))
    retry = list(reversed(parts)) if shuffled else parts
    with Publisher(CHANNEL, query=QUERY, log=root) as publisher:
        made = publisher.publish(5 + numbers, retry)
        assert (made.rows, made.before, made.last) == (count - done, done, 10 + count)
        assert publisher.publish(5 + numbers + 1, rows(0, 1)).rows == 1
    assert logged(root) == [*range(10), *range(1000, 1000 + count), 0]


def test_the_batch_before_is_finished_first(tmp_path: Path) -> None:
    with Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path) as publisher:
        kept = publisher.channel.type.conform(rows(0, 20))
        publisher._journal.stage(0, 0, kept.schema, [kept])
        publisher._source.publish_many(rows(0, 5))
        assert publisher.publish(1, rows(20, 10)).last == 30
    assert logged(tmp_path) == list(range(30))


def test_another_log_is_noticed(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path / "a", journal=journal) as publisher:
        publisher.publish(0, rows(0, 5))
        publisher.publish(1, rows(5, 5))
    publisher = Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path / "b", journal=journal)
    with publisher, pytest.raises(StoreError, match="another log, or was cut"):
        publisher.publish(1, rows(5, 5))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path):
        with pytest.raises(StoreError, match="another process"):
            Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path, wait=0.1)
        with Publisher(CHANNEL, query="other", type=TYPE, log=tmp_path) as other:
            assert other.publish(0, rows(0, 1)).rows == 1


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="log"):
        Publisher(CHANNEL, query=QUERY, type=TYPE)
    with pytest.raises(ConfigError, match="query"):
        Publisher(CHANNEL, query="", type=TYPE, log=tmp_path)
    with pytest.raises(ChannelError, match="give a type"):
        Publisher(CHANNEL, query=QUERY, log=tmp_path)
    with pytest.raises(Unreachable, match="no node of federation"):
        Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path, connect="tcp/127.0.0.1:1", wait=0.2)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "batch.arrow").write_bytes(b"nonsense")
    publisher = Publisher(CHANNEL, query=QUERY, type=TYPE, log=tmp_path, journal=tmp_path / "journal")
    with publisher, pytest.raises(StoreError, match="expected a batch of events"):
        publisher.publish(0, rows(0, 1))


@given(st.text(min_size=1, max_size=100))
def test_any_query_has_a_legal_name(query: str) -> None:
    assert legal_name(publisher_name(query)) and publisher_name(query).startswith("spark-")


def test_bytes(tmp_path: Path) -> None:
    with Publisher("ie.raw", query=QUERY, type=bytes, log=tmp_path) as publisher:
        assert publisher.publish(0, pa.record_batch({"data": pa.array([b"a", b""], pa.binary())})).rows == 2
        with pytest.raises(EncodeError, match="carries bytes"):
            publisher.publish(1, rows(0, 1))


# ── in a federation ──


def test_sinks_that_are_there_get_everything(tmp_path: Path) -> None:
    with nodes() as made:
        desk, empty = made("desk"), made("empty")
        made.together()
        everything, some = Log(), Log()
        desk.channel(CHANNEL, TYPE).subscribe(everything)
        desk.subscribe("ie.**", some, where="n % 2 = 0")
        for life in range(2):
            with Publisher(CHANNEL, query=QUERY, log=tmp_path, type=TYPE, connect=desk.endpoints[0]) as publisher:
                for batch in (2 * life, 2 * life + 1):
                    made_now = publisher.publish(batch, rows(1000 * batch, 1000))
                    assert made_now.rows == 1000 and made_now.delivered
        everything.wait(4000)
        some.wait(2000)
        assert everything.field("n") == list(range(4000)) and some.field("n") == list(range(0, 4000, 2))
        assert empty.name not in desk.remote_sources(CHANNEL)


def test_the_type_is_found_in_the_federation(tmp_path: Path) -> None:
    with nodes() as made:
        lab = made("lab")
        lab.channel(CHANNEL, TYPE).source("own")
        with Publisher(CHANNEL, query=QUERY, journal=tmp_path, connect=lab.endpoints[0]) as publisher:
            assert publisher.channel.type is not None
            assert publisher.channel.type.record == lab.channel(CHANNEL).type.record


def test_without_a_log_the_journal_says_how_far(tmp_path: Path) -> None:
    with nodes() as made:
        desk, got = made("desk"), Log()
        desk.channel(CHANNEL, TYPE).subscribe(got)
        for _ in range(2):
            with Publisher(CHANNEL, query=QUERY, journal=tmp_path, type=TYPE, connect=desk.endpoints[0]) as publisher:
                publisher.publish(0, rows(0, 20_000))
                publisher.publish(1, rows(20_000, 10))
                journal = publisher._journal
                latest = journal.latest()
                assert latest is not None and journal.progress(latest) == 10
        got.wait(20_010)
        assert got.field("n") == list(range(20_010))


# ── killed ──

KILLED = """
import os, sys
import pyarrow as pa
from headwater.spark.live.publisher import Publisher
root, channel, query, type, batch, before = *sys.argv[1:5], int(sys.argv[5]), int(sys.argv[6])
events = pa.record_batch({
    "n": pa.array(range(100_000 * batch, 100_000 * batch + 50_000), pa.int64()), "room": ["room"] * 50_000
})
with Publisher(channel, query=query, type=type, log=root) as publisher:
    publish, done = publisher._publish, 0
    def some(batch):
        global done
        if done >= before:
            os.kill(os.getpid(), 9)
        publish(batch)
        done += batch.num_rows
    publisher._publish = some
    print("open", flush=True)
    publisher.publish(batch, [events.slice(at, 5000) for at in range(0, 50_000, 5000)])
print("done", flush=True)
"""


def attempt(root: Path, batch: int, before: int) -> bool:
    """Publish a batch in a process that is killed after so many events; whether it got to the end."""
    command = [sys.executable, "-c", KILLED, str(root), CHANNEL, QUERY, TYPE, str(batch), str(before)]
    done = run(command, capture_output=True, text=True, timeout=600)
    assert "open" in done.stdout, done.stderr
    return "done" in done.stdout


def test_a_publisher_that_is_killed_again_and_again(tmp_path: Path) -> None:
    assert not attempt(tmp_path, 0, 10_000)
    assert not attempt(tmp_path, 0, 0)
    assert attempt(tmp_path, 0, 10**9)
    assert not attempt(tmp_path, 1, 5000)
    with Publisher(CHANNEL, query=QUERY, log=tmp_path) as publisher:
        earlier = publisher.publish(0, rows(0, 5))
        assert earlier.rows == 0 and earlier.last == 100_000, "what was left of batch 1 comes first"
        assert publisher.publish(2, rows(200_000, 10)).rows == 10
    assert logged(tmp_path) == [*range(50_000), *range(100_000, 150_000), *range(200_000, 200_010)]


def test_a_killed_publisher_reaches_sinks_once(tmp_path: Path) -> None:
    """What it had logged but not sent comes from its log when the query is there again."""
    with nodes() as made:
        desk, got = made("desk"), Log()
        desk.channel(CHANNEL, TYPE).subscribe(got)
        with Publisher(CHANNEL, query=QUERY, log=tmp_path, type=TYPE, connect=desk.endpoints[0]) as publisher:
            publisher.publish(0, rows(0, 100))
        got.wait(100)
        assert not attempt(tmp_path, 1, 20_000)  # alone: desk does not hear of it
        with Publisher(CHANNEL, query=QUERY, log=tmp_path, connect=desk.endpoints[0]) as publisher:
            assert publisher.publish(1, rows(0, 5)).before >= 20_000
            got.until(lambda events: bool(events) and events[-1].n == 149_999)
    assert got.field("n") == [*range(100), *range(100_000, 150_000)]


def test_a_journal_can_be_looked_at(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal.latest() is None
    staged = journal.stage(3, 17, rows(0, 1).schema, [rows(0, 5), rows(5, 5)])
    assert journal.latest() == staged and (staged.batch, staged.after, staged.rows) == (3, 17, 10)
    found: list[Any] = [n for batch in journal.rest(7) for n in batch.column("n").to_pylist()]
    assert found == [7, 8, 9]
    journal.note(staged, 4)
    assert journal.progress(staged) == 4
    journal.close()
    with Node("other") as node:
        assert node.log_reads.questions == 0
