"""Appending to the log against a raw sequential write of the same bytes with the same syncs, and against SQLite."""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.interest import as_event_type
from headwater.store.log import ChannelLog, Log
from headwater_studies.harness.benchmark import Report

SIGHTING = as_event_type("badge: u32, station: u32, level: f64, time: timestamp")
ROWS, BATCHES = 6_000, 200
THREADS, GROUPED = (1, 8, 32), 1_920
SINGLES = 100_000
ROUNDS = 5


def _batch() -> pa.RecordBatch:
    random = np.random.default_rng(1)
    columns = [
        pa.array(random.integers(0, 162, ROWS), pa.uint32()),
        pa.array(random.integers(0, 118, ROWS), pa.uint32()),
        pa.array(random.random(ROWS)),
        pa.array(np.arange(ROWS), pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SIGHTING.schema)


def _log(folder: str, sync: str) -> ChannelLog:
    settings = Log(folder, sync=sync, interval=3600.0, roll_bytes=1 << 39, roll_seconds=1e9, rest_seconds=0)
    return ChannelLog.open(settings, "bench.sighting", "bench", SIGHTING)


def _tail(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*.wal"))


def _raw(size: int, writes: int, syncs: int) -> float:
    """Seconds to write so many bytes in so many writes, with so many syncs evenly between them."""
    piece, every = os.urandom(max(1, size // writes)), max(1, writes // max(1, syncs))
    with tempfile.TemporaryDirectory() as folder:
        file = os.open(Path(folder) / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        start = time.perf_counter()
        for index in range(writes):
            os.write(file, piece)
            if syncs and index % every == every - 1:
                os.fdatasync(file)
        spent = time.perf_counter() - start
        os.close(file)
    return spent


def _sqlite(records: list[bytes], sync: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "log.db", isolation_level=None)
        database.execute("pragma journal_mode = wal")
        database.execute(f"pragma synchronous = {sync}")
        database.execute("create table log (seq integer primary key, stamp integer, record blob)")
        start = time.perf_counter()
        for index, record in enumerate(records):
            database.execute("insert into log values (?, ?, ?)", (index, index, record))
        spent = time.perf_counter() - start
        database.close()
    return spent


def _median(*measures: Callable[[], float]) -> list[float]:
    found: list[list[float]] = [[] for _ in measures]
    for _ in range(ROUNDS):
        for column, measure in zip(found, measures, strict=True):
            column.append(measure())
    return [statistics.median(column) for column in found]


def _appended(append: Callable[[ChannelLog], None]) -> tuple[float, int]:
    """Seconds that appending to a new log and one sync take, and how many bytes it has then."""
    folder = tempfile.mkdtemp()
    log = _log(folder, "roll")
    start = time.perf_counter()
    append(log)
    log.sync()
    spent = time.perf_counter() - start
    size = _tail(folder)
    log.close()
    shutil.rmtree(folder)
    return spent, size


def batched(report: Report) -> None:
    """Batches, synced at the end."""
    batch = _batch()

    def append(log: ChannelLog) -> None:
        for index in range(BATCHES):
            log.append_batch("station", 1 + index * ROWS, 0, batch)

    _, size = _appended(append)
    mine, raw = _median(lambda: _appended(append)[0], lambda: _raw(size, BATCHES, 1))
    note = f"{size / 1e6:.0f} MB in {BATCHES} writes, one sync; {BATCHES * ROWS / mine / 1e6:.1f} M events/s"
    report.add("append, batches of 6,000", mine, raw, reach="at least 0.5×", ok=raw / mine >= 0.5, note=note)


def single(report: Report) -> None:
    """One by one without a sync each, from one thread."""
    record = SIGHTING.encode(badge=1, station=2, level=0.5, time=0)

    def append(log: ChannelLog) -> None:
        for seq in range(1, SINGLES + 1):
            log.settle(log.append("station", seq, seq, record))

    _, size = _appended(append)
    records = [record] * SINGLES
    mine, raw, sqlite = _median(
        lambda: _appended(append)[0], lambda: _raw(size, SINGLES, 1), lambda: _sqlite(records, "normal")
    )
    note = f"{mine / SINGLES * 1e6:.2f} µs each"
    report.add(
        "append, one by one, synced at the end", mine, raw, reach="at least 0.5×", ok=raw / mine >= 0.5, note=note
    )
    ok = sqlite / mine >= 3
    report.add("  against SQLite (WAL, synchronous = normal)", mine, sqlite, reach="at least 3×", ok=ok)


def grouped(report: Report, threads: int) -> None:
    """One by one, each synced before it counts, from many threads that share the syncs."""
    record, seen = SIGHTING.encode(badge=1, station=2, level=0.5, time=0), (0, 0)

    def ours() -> float:
        nonlocal seen
        folder = tempfile.mkdtemp()
        log = _log(folder, "publish")
        before = log.syncs
        gate = threading.Barrier(threads + 1)

        def work(name: str) -> None:
            gate.wait()
            for seq in range(1, GROUPED // threads + 1):
                log.settle(log.append(name, seq, seq, record))

        running = [threading.Thread(target=work, args=(f"station {index}",)) for index in range(threads)]
        for thread in running:
            thread.start()
        gate.wait()
        start = time.perf_counter()
        for thread in running:
            thread.join()
        spent = time.perf_counter() - start
        seen = _tail(folder), log.syncs - before
        log.close()
        shutil.rmtree(folder)
        return spent

    ours()
    mine, raw = _median(ours, lambda: _raw(seen[0], seen[1], seen[1]))
    each = "1 thread" if threads == 1 else f"{threads} threads"
    note = f"{GROUPED:,} events in {seen[1]} syncs; {GROUPED / mine:,.0f} events/s"
    case = f"append, one by one, group sync, {each}"
    report.add(case, mine, raw, reach="at least 0.5×", ok=raw / mine >= 0.5, note=note)
    if threads == max(THREADS):
        (sqlite,) = _median(lambda: _sqlite([record] * GROUPED, "full"))
        ok = sqlite / mine >= 3
        report.add("  against SQLite (WAL, synchronous = full)", mine, sqlite, reach="at least 3×", ok=ok)


def rows(report: Report) -> None:
    batched(report)
    single(report)
    for threads in THREADS:
        grouped(report, threads)
