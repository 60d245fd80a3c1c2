"""`ChannelLog`: what was appended is there when it is opened again, whatever ended it, and nothing is half there."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ClosedError, ConfigError, StoreError
from headwater.store.log import ChannelLog, Log, wal
from headwater.store.log.layout import ChannelFolder, NodeFolder, channels
from headwater.store.log.schema import read_table
from headwater.types import Event, EventType, event_type, f64, i32, i64, text
from tests.disk import full
from tests.effort import examples
from tests.store.log.samples import EVERYTHING, NOON, SIGHTING, everything, record, sighting

CHANNEL, LAB = "ie.sighting", "lab #1/é %"
Key = tuple[str, int]


def folder(root: Path) -> NodeFolder:
    return ChannelFolder.of(root, CHANNEL).node(LAB)


def open_log(root: Path, type: EventType | None = SIGHTING, **how: Any) -> ChannelLog:
    return ChannelLog.open(Log(root, **how), CHANNEL, LAB, type)


def all_rows(root: Path) -> list[dict[str, Any]]:
    """Every event of the node, at rest or not, by source and sequence number."""
    here = folder(root)
    table = read_table(here.channel)
    assert table is not None
    waiting = here.wals()
    hidden = {segment for segment, _ in waiting}
    tables = [pa.Table.from_batches(wal.read(path).batches(table), table.schema) for _, path in waiting]
    for _, path in here.channel.parquet():
        found = pa.parquet.read_table(path, partitioning=None)
        assert found.schema.metadata[b"headwater.node"] == LAB.encode()
        if int(found.schema.metadata[b"headwater.segment"]) not in hidden:
            missing = [name for name in table.schema.names if name not in found.schema.names]
            for name in missing:
                found = found.append_column(name, pa.nulls(len(found), table.schema.field(name).type))
            tables.append(found.select(table.schema.names))
    rows = [row for found in tables for row in found.to_pylist()]
    return sorted(rows, key=lambda row: (row["event_source"], row["event_seq"]))


def keys(root: Path) -> list[Key]:
    return [(row["event_source"], row["event_seq"]) for row in all_rows(root)]


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.last("a") == 0 and log.last_time("a") == 0 and log.recovered is None
        log.append("a", 1, NOON, record(1))
        log.append("a", 2, NOON + 5_000, record(2))
        log.append_batch("b", 1, NOON, SIGHTING.to_arrow([sighting(n) for n in range(4)]))
        times = pa.array([NOON // 1000, NOON // 1000 + 1], pa.timestamp("us", "UTC"))
        log.append_rows("c", [3, 8], times, SIGHTING.to_arrow([sighting(3), sighting(8)]))
        identity = log.id
    with open_log(tmp_path) as log:
        assert log.id == identity and log.recovered is None
        assert [log.last(name) for name in "abcd"] == [2, 4, 8, 0]
        assert log.last_time("a") == NOON + 5_000
        log.roll(wait=True)
        log.append("a", 3, NOON, record(3))
    with open_log(tmp_path) as log:
        assert log.sources() == {"a": 3, "b": 4, "c": 8}
    assert keys(tmp_path) == [*(("a", n) for n in (1, 2, 3)), *(("b", n) for n in (1, 2, 3, 4)), ("c", 3), ("c", 8)]
    rows = all_rows(tmp_path)
    assert {row["event_node"] for row in rows} == {LAB}
    assert [row["badge"] for row in rows] == [1, 2, 3, 0, 1, 2, 3, 3, 8]
    assert channels(tmp_path) == [CHANNEL]


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with open_log(tmp_path):
        with pytest.raises(StoreError, match=rf"found it open in process {os.getpid()}"):
            open_log(tmp_path)
        with ChannelLog.open(Log(tmp_path), CHANNEL, "another node", SIGHTING) as other:
            other.append("a", 1, NOON, record(1))
    with open_log(tmp_path) as log:
        assert log.last("a") == 0


def test_what_does_not_fit_is_refused_and_not_there(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("a", 5, NOON, record(1))
        with pytest.raises(StoreError, match="above 5 from source 'a', found 5"):
            log.append("a", 5, NOON, record(1))
        with pytest.raises(StoreError, match="above 0 from source 'b', found 0"):
            log.append("b", 0, NOON, record(1))
        with pytest.raises(StoreError, match="above 5"):
            log.append_batch("a", 3, NOON, SIGHTING.to_arrow([sighting(1)] * 9))
        with pytest.raises(StoreError, match=r"a record of log\.Sighting"):
            log.append("a", 6, NOON, EVERYTHING.encode(everything(1)))
        with pytest.raises(StoreError, match="64 bits"):
            log.append("a", 6, 1 << 63, record(1))
        with pytest.raises(StoreError, match=r"a batch of log\.Sighting"):
            log.append_batch("a", 6, NOON, pa.record_batch({"badge": [1]}))
        with pytest.raises(StoreError, match="increase"):
            log.append_rows("a", [7, 7], [0, 0], SIGHTING.to_arrow([sighting(1)] * 2))
        with pytest.raises(StoreError, match="a number and a time for each of 2 rows"):
            log.append_rows("a", [7], [0, 0], SIGHTING.to_arrow([sighting(1)] * 2))
        with pytest.raises(StoreError, match="years 1 to 9999"):
            log.append_rows("a", [7], [1 << 62], SIGHTING.to_arrow([sighting(1)]))
        log.append_batch("a", 6, NOON, SIGHTING.to_arrow([]))
    with pytest.raises(ClosedError, match="is closed"):
        log.append("a", 6, NOON, record(1))
    log.close()
    assert keys(tmp_path) == [("a", 5)]


def test_settings_are_checked_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Log("", sync="always", interval=0, roll_bytes=1, roll_seconds=-1, keep_seconds=0, keep_bytes=-1, channels=())  # type: ignore[arg-type]
    assert len(caught.value.problems) == 8
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="expected a folder that can be written"):
        open_log(tmp_path / "file")
    with pytest.raises(StoreError, match="bytes as a file's name"):
        ChannelLog.open(Log(tmp_path), CHANNEL, "n" * 300, SIGHTING)


# ── torn and damaged files ──


def test_a_torn_end_is_cut_and_told(tmp_path: Path) -> None:
    with open_log(tmp_path, rest_seconds=0) as log:
        for n in range(1, 4):
            log.append("a", n, NOON, record(n))
    (path,) = (path for _, path in folder(tmp_path).wals())
    whole = path.read_bytes()
    block = len(record(3)) + 32
    for cut in range(1, block + 1):
        path.write_bytes(whole[:-cut])
        with open_log(tmp_path, rest_seconds=0) as log:
            assert log.last("a") == 2
            if cut == block:
                assert log.recovered is None
                continue
            assert log.recovered is not None and log.recovered.file == path
            assert log.recovered.bytes == block - cut and "torn" in log.recovered.why
            log.append("a", 3, NOON, record(3))
        assert path.read_bytes() == whole


def test_damage_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with open_log(tmp_path, rest_seconds=0) as log:
        for n in range(1, 4):
            log.append("a", n, NOON, record(n))
    (path,) = (path for _, path in folder(tmp_path).wals())
    changed = bytearray(path.read_bytes())
    changed[-len(record(3)) - 32 - 5] ^= 64  # in the second of three
    path.write_bytes(changed)
    with pytest.raises(StoreError, match="headwater log repair"):
        open_log(tmp_path)
    assert path.read_bytes() == bytes(changed)


def test_a_file_without_its_header_had_no_events(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("a", 1, NOON, record(1))
        log.roll(wait=True)
    (path,) = (path for _, path in folder(tmp_path).wals())
    for size in (0, 5, 40):
        path.write_bytes(path.read_bytes()[:size])
        with open_log(tmp_path) as log:
            assert (log.recovered.bytes if log.recovered else 0) == size
            log.append("a", log.last("a") + 1, NOON, record(1))
            log.roll(wait=True)
        (path,) = (path for _, path in folder(tmp_path).wals())
    assert keys(tmp_path) == [("a", n) for n in (1, 2, 3, 4)]


def test_lost_notes_are_made_again_from_the_files(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append("a", 1, NOON, record(1))
        log.append("a", 7, NOON + 9_000, record(1))
        log.roll(wait=True)
    for damage in (None, b"", b'{"segment": 1, "sources": {"a"'):
        notes = folder(tmp_path).sources
        notes.unlink() if damage is None else notes.write_bytes(damage)
        with open_log(tmp_path) as log:
            assert log.last("a") == 7 and log.last_time("a") == NOON + 9_000
    before = dict(log.sources())
    for path in sorted(folder(tmp_path).path.iterdir()):
        path.unlink()
    with open_log(tmp_path) as log:  # even then no file is replaced
        assert log.sources() == before
        log.append("a", 8, NOON, record(8))
        log.roll(wait=True)
    assert keys(tmp_path) == [("a", 1), ("a", 7), ("a", 8)]


# ── a full disk ──


def test_what_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    batch = SIGHTING.to_arrow([sighting(n) for n in range(400)])
    with open_log(tmp_path) as log:
        log.append("a", 1, NOON, record(1))
        (path,) = (path for _, path in folder(tmp_path).wals())
        size = path.stat().st_size
        for room in range(0, 100, 3):
            with full(size + room):
                if room < len(record(2)) + 32 + 40:  # with the name of a new source
                    with pytest.raises(StoreError, match="nothing of it is logged"):
                        log.append("new", 1, NOON, record(2))
                for _ in range(2):
                    with pytest.raises(StoreError, match="File too large"):
                        log.append_batch("a", 2, NOON, batch)
            assert path.stat().st_size == size and log.last("a") == 1 and log.last("new") == 0
        log.append("a", 2, NOON, record(2))
    with open_log(tmp_path) as log:
        assert log.recovered is None and log.sources() == {"a": 2}
    assert keys(tmp_path) == [("a", 1), ("a", 2)]


def test_a_segment_that_cannot_come_to_rest_stays_where_it_is(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batch("a", 1, NOON, SIGHTING.to_arrow([sighting(n) for n in range(9000)]))
        with full(4096), pytest.raises(StoreError, match="nothing is lost"):
            log.roll(wait=True)
        assert log.trouble is not None and len(keys(tmp_path)) == 9000
        log.append("a", 9001, NOON, record(1))
        log.roll(wait=True)
        assert log.trouble is None and len(folder(tmp_path).channel.parquet()) == 2
    assert keys(tmp_path) == [("a", n) for n in range(1, 9002)]
    assert not list(folder(tmp_path).path.glob(".*"))


def test_an_interrupt_leaves_nothing_half_done(tmp_path: Path) -> None:
    interrupts = [0]

    def interrupt(*_: object) -> None:
        interrupts[0] += 1
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        with open_log(tmp_path, sync="roll") as log:
            while interrupts[0] < 40:
                try:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0005)  # once
                    while True:
                        seq = log.last("a") + 1
                        log.append("a", seq, NOON, record(seq))
                except KeyboardInterrupt:
                    continue
            last = log.last("a")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    with open_log(tmp_path) as log:
        assert log.recovered is None and log.last("a") == last
    assert [(row["event_seq"], row["badge"]) for row in all_rows(tmp_path)] == [(n, n) for n in range(1, last + 1)]


# ── syncing ──


def test_one_sync_serves_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [0], os.fdatasync

    def counted(descriptor: int) -> None:
        synced[0] += 1
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    threads, each = 16, 25
    begin = threading.Barrier(threads)
    with open_log(tmp_path, sync="publish") as log:

        def publish(name: str) -> None:
            begin.wait()
            for n in range(1, each + 1):
                ticket = log.append(name, n, NOON, record(n))
                log.settle(ticket)
                assert log._synced >= ticket

        running = [threading.Thread(target=publish, args=(f"source {n}",)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        log.settle(threads * each)
    assert 0 < synced[0] < threads * each * 0.75
    assert len(keys(tmp_path)) == threads * each


def test_a_sync_that_fails_is_told_to_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, told = 8, []
    appended = threading.Barrier(threads)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def publish(name: str) -> None:
        ticket = log.append(name, 1, NOON, record(1))
        appended.wait()
        try:
            log.settle(ticket)
        except StoreError as error:
            told.append(str(error))

    with open_log(tmp_path, sync="publish") as good:
        good.settle(good.append("a", 1, NOON, record(1)))
    log = open_log(tmp_path, sync="publish")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        running = [threading.Thread(target=publish, args=(f"source {n}",)) for n in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert len(told) == threads and all("expected to sync its file" in text for text in told)
        with pytest.raises(StoreError, match="expected to sync its file"):
            log.append("a", 2, NOON, record(2))
    with pytest.raises(StoreError, match="expected to sync its file"):  # not even if the disk seems well again
        log.close()


@pytest.mark.parametrize("leads", [True, False])
def test_an_interrupted_wait_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: bool) -> None:
    sync, begun, go, settled = os.fdatasync, threading.Event(), threading.Event(), []

    def slow(descriptor: int) -> None:
        begun.set()
        go.wait()
        sync(descriptor)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def publish(name: str) -> None:
        if leads:
            begun.wait()
        log.settle(log.append(name, 1, NOON, record(1)))
        settled.append(name)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with open_log(tmp_path, sync="publish") as log:
            monkeypatch.setattr(os, "fdatasync", slow)
            running = [threading.Thread(target=publish, args=(f"source {n}",)) for n in range(4)]
            for thread in running:
                thread.start()
            if not leads:
                begun.wait()
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                log.settle(log.append("main", 1, NOON, record(1)))
            go.set()
            for thread in running:
                thread.join()
            assert len(settled) == 4
            log.settle(log.append("main", 2, NOON, record(2)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(keys(tmp_path)) == 6


@pytest.mark.parametrize("sync", ["publish", "interval", "roll"])
def test_many_threads_while_segments_roll(tmp_path: Path, sync: Any) -> None:
    each = 300
    with open_log(tmp_path, sync=sync, interval=0.001, roll_bytes=16384) as log:

        def publish(name: str) -> None:
            for n in range(1, each + 1):
                log.settle(log.append(name, n, NOON, record(n)))

        running = [threading.Thread(target=publish, args=(f"s{n}",)) for n in range(4)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        log.sync()
        log.roll(wait=True)
        assert [segment for segment, _ in folder(tmp_path).wals()] == [log._writer.header.segment]
    assert keys(tmp_path) == [(f"s{s}", n) for s in range(4) for n in range(1, each + 1)]


def test_a_quiet_segment_rolls_when_it_is_old(tmp_path: Path) -> None:
    with open_log(tmp_path, roll_seconds=0.01) as log:
        log.append("a", 1, NOON, record(1))
        at_rest = threading.Event()
        deadline = 1000
        while not folder(tmp_path).channel.parquet() and deadline:
            at_rest.wait(0.01)
            deadline -= 1
        assert len(folder(tmp_path).channel.parquet()) == 1


# ── types that evolve ──


class Older(Event, name="log.Sighting"):
    badge: i32
    level: i32
    gone: text


class Newer(Event, name="log.Sighting"):
    level: i64
    badge: i32
    ratio: f64 | None


class Wrong(Event, name="log.Sighting"):
    badge: text


class Reserved(Event, name="log.Reserved"):
    event_time: i64


def test_a_type_that_evolves_keeps_one_table(tmp_path: Path) -> None:
    older, newer = event_type(Older), event_type(Newer)
    with open_log(tmp_path, older) as log:
        log.append("a", 1, NOON, older.encode(badge=1, level=2, gone="x"))
        log.roll(wait=True)
        log.append("a", 2, NOON, older.encode(badge=2, level=-2, gone="y"))
    with open_log(tmp_path, newer) as log:
        assert log.last("a") == 2
        log.append("a", 3, NOON, newer.encode(badge=3, level=1 << 40, ratio=0.5))
        log.roll(wait=True)
    with open_log(tmp_path, older) as log:  # and back: every value fits
        log.append("a", 4, NOON, older.encode(badge=4, level=4, gone="z"))
        log.roll(wait=True)
    table = read_table(folder(tmp_path).channel)
    assert table is not None and table.type == older
    assert table.schema.names[4:] == ["badge", "level", "gone", "ratio"]
    assert table.schema.field("level").type == pa.int64()
    found = [[row[name] for name in table.schema.names[4:]] for row in all_rows(tmp_path)]
    expected = [[1, 2, "x", None], [2, -2, "y", None], [3, 1 << 40, None, 0.5], [4, 4, "z", None]]
    assert found == expected


def test_a_type_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'event_time' too; rename the field"):
        open_log(tmp_path / "new", event_type(Reserved))
    assert not (tmp_path / "new").exists()
    open_log(tmp_path, event_type(Older)).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"badge: expected i32 .* found text"):
        open_log(tmp_path, event_type(Wrong))
    with pytest.raises(StoreError, match=r"expected events of log\.Sighting, which its log has, found bytes"):
        open_log(tmp_path, None)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_channel_of_bytes(tmp_path: Path) -> None:
    raws = [b"", b"a", b"\0" * 9, b"PAR1" * 100]
    with open_log(tmp_path, None) as log:
        for n, raw in enumerate(raws, 1):
            log.append("a", n, NOON, raw)
        log.roll(wait=True)
        log.append_batch("b", 1, NOON, pa.record_batch({"data": pa.array(raws, pa.binary())}))
    assert [row["data"] for row in all_rows(tmp_path)] == raws * 2


# ── a model ──


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_use_equals_a_list(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("model")
    model: dict[Key, tuple[int, int]] = {}
    last: dict[str, int] = {}
    log = open_log(root, EVERYTHING, roll_bytes=4096, sync="roll")
    steps = st.sampled_from(["event", "event", "event", "batch", "rows", "roll", "wait", "open", "kill"])
    for what in data.draw(st.lists(steps, min_size=1, max_size=25)):
        source = data.draw(st.sampled_from(["a", "b", "ü/ %"]))
        first = last.get(source, 0) + data.draw(st.integers(1, 3))
        time = NOON // 1000 + data.draw(st.integers(-2, 2)) * 43_200_000_000
        count = data.draw(st.integers(0, 30))
        new: dict[Key, tuple[int, int]] = {}
        match what:
            case "event":
                new[source, first] = (time, count)
                log.append(source, first, time * 1000, EVERYTHING.encode(everything(count)))
            case "batch":
                new = {(source, first + n): (time, n) for n in range(count)}
                log.append_batch(source, first, time * 1000, EVERYTHING.to_arrow(map(everything, range(count))))
            case "rows":
                times = [time + n * 3_600_000_000 * (-1) ** n for n in range(count)]
                new = {(source, first + 2 * n): (times[n], n) for n in range(count)}
                seqs = np.arange(count) * 2 + first
                log.append_rows(source, seqs, times, EVERYTHING.to_arrow(map(everything, range(count))))
            case "roll":
                log.roll()
            case "wait":
                log.roll(wait=True)
            case _:
                if what == "kill":  # in the middle of an event
                    log.close(until=0.0)
                    path = folder(root).wals()[-1][1]
                    path.write_bytes(path.read_bytes() + data.draw(st.binary(min_size=1, max_size=50)))
                else:
                    log.close()
                    assert not any(wal.read(path).rows for _, path in folder(root).wals())
                log = open_log(root, EVERYTHING, roll_bytes=4096, sync="roll")
                assert (log.recovered is not None) == (what == "kill")
                assert log.sources() == last
        model |= new
        if new:
            last[source] = max(seq for name, seq in new)
    log.close()
    rows = all_rows(root)
    assert [(row["event_source"], row["event_seq"]) for row in rows] == sorted(model)
    micros = [int(row["event_time"].timestamp() * 1e6) for row in rows]
    assert [(time, row["badge"]) for time, row in zip(micros, rows, strict=True)] == [
        model[key] for key in sorted(model)
    ]
    for row in rows:
        own = {name: value for name, value in row.items() if not name.startswith("event_")}
        assert EVERYTHING.to_raw(own) == EVERYTHING.to_raw(everything(row["badge"]))
