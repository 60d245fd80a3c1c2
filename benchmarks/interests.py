"""`make bench-interests`: how fast interests are understood, compiled and run, each beside a reference in the same run.

`python benchmarks/interests.py NAME …` runs some parts only: answer compile record inside batch spark codec growth.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import Array, Event, Interest, f32, f64, i32
from headwater.native.python.codec import fast_decoder, fast_encoder
from headwater.native.record import RecordProgram, record_code
from headwater_studies.filters import c_code
from headwater_studies.fleet.tcp_c import compiler
from headwater_studies.harness.benchmark import BUILD, Report, median_of, quantity, versus

CONJUNCTION = "level > {} and zone = 3 and network = 'ORL-Net#1'"
SIMPLE = "{{ if (input.level > {}) {{ return 1; }} }}"
AVERAGE = """
{{
    double total = {};
    for (int column = 0; column < 37; column++)
        for (int row = 0; row < 253; row++)
            total += input.wind[row][column];
    output.mean = total / (37 * 253);
    return 1;
}}
"""
ROWS = 10_000_000
SPARK_ROWS = 50_000_000


class Sighting(Event):
    badge: str
    network: str
    zone: i32
    level: f64
    seen: datetime


class Level(Event):
    level: f32


class Wind(Event):
    wind: Array[f64, 253, 37]


class Average(Event):
    mean: f64


LEVEL_IN_C = c_code.Record("float", 24)
SIGHTING = Sighting(
    badge="0a1b2c", network="ORL-Net#1", zone=3, level=0.75, seen=datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
)
_numbers = itertools.count(1)


def _new(text: str) -> str:
    """The same interest with another constant, so that no cache can answer."""
    return text.format(f"0.5{next(_numbers):07d}")


# ── from text to an answer ──


def answer(report: Report) -> None:
    """Predicate text to the first answer, without waiting for LLVM."""
    from sqlglot import parse_one

    record = hw.event_type(Sighting).encode(SIGHTING)

    samples, parses = [], []
    for _ in range(600):  # the compiler works in the background all the while, as it would
        said = _new(CONJUNCTION)
        start = time.perf_counter()
        answered = Interest(said, Sighting).native().test(record)
        samples.append(time.perf_counter() - start)
        assert answered
        start = time.perf_counter()
        parse_one(said)
        parses.append(time.perf_counter() - start)
    Interest(_new(CONJUNCTION), Sighting).native().wait()  # nothing is left to compile when the next part starts
    mine, parse = statistics.median(samples[100:]), statistics.median(parses[100:])
    report.add("predicate text to first answer, 3 comparisons", mine, parse, reach="≤ 0.3 ms", ok=mine <= 0.3e-3,
               note="reference: sqlglot reading the same text, and no more")  # fmt: skip


def compiled(report: Report) -> None:
    """Text to optimised native code."""
    for name, text, types, limit in (
        ("predicate text to optimised native code", CONJUNCTION, (Sighting, None), 5e-3),
        ("E-Code simple filter to optimised native code", SIMPLE, (Level, None), 5e-3),
        ("37×253 average to optimised native code", AVERAGE, (Wind, Average), 15e-3),
    ):
        samples, shares = [], []
        for _ in range(30):
            start = time.perf_counter()
            code = record_code(Interest(_new(text), types[0], output=types[1]).analysis)
            samples.append(time.perf_counter() - start)
            shares.append(code.code.timing.total / samples[-1])
        mine = statistics.median(samples[5:])
        reference = _compile_seconds(c_code.MEAN if "input.wind" in text else c_code.FILTER) if compiler() else None
        report.add(name, mine, reference, reach=f"≤ {limit * 1e3:.0f} ms", ok=mine <= limit,
                   note=f"{statistics.median(shares[5:]):.0%} is LLVM; reference: {_compiler()} -O2")  # fmt: skip


def _compile_seconds(program: str) -> float:
    """What the C compiler takes for the same function."""
    with tempfile.TemporaryDirectory() as folder:
        return statistics.median(c_code.compile_seconds(Path(folder), program, LEVEL_IN_C) for _ in range(3))


def _compiler() -> str | None:
    """The machine's C compiler by name, if it has one."""
    found = compiler()
    return Path(found).name if found else None


# ── one record ──


def record(report: Report) -> None:
    """One record through a simple filter, called from Python, beside a 64-byte message over loopback TCP."""
    kind = hw.event_type(Level)
    data = kind.encode(Level(level=0.75))
    native = Interest("level > 0.5", Level).native().wait()
    test = native.test
    message = b"x" * 64
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        drain = threading.Thread(target=_drain, args=(peer,), daemon=True)
        drain.start()
        mine, send = versus(lambda: test(data), lambda: client.send(message))
        client.close()
        drain.join()
        peer.close()
    report.add("one record through a simple filter, from Python", mine, send, reach="≤ 1 µs", ok=mine <= 1e-6,
               note="reference: socket.send of 64 bytes over loopback TCP")  # fmt: skip
    report.add("  the same as a share of sending 64 bytes", mine / send, 1.0, ratio=mine / send, unit="",
               reach="≤ 0.2", ok=mine <= 0.2 * send)  # fmt: skip


def _drain(peer: socket.socket) -> None:
    while peer.recv(1 << 16):
        pass


def inside(report: Report) -> None:
    """The two programs of the ECho paper, called from C in a loop, beside the same functions in C at -O2.

    A call of a few cycles depends on where the code happens to lie, so both are compiled and loaded anew several times,
    and the best of each counts.
    """
    if compiler() is None:
        print("inside native code: no C compiler on this machine, not run")
        return
    rng = np.random.default_rng(1)
    for name, text, types, event, function, calls in (
        ("simple filter inside native code", SIMPLE, (Level, None), Level(level=0.75), "simple", 1_000_000),
        ("  vs C that checks the header too", SIMPLE, (Level, None), Level(level=0.75), "checked", 1_000_000),
        ("37×253 average inside native code", AVERAGE, (Wind, Average), Wind(wind=rng.random((253, 37))),
         "average", 2_000),
    ):  # fmt: skip
        ours, theirs = [], []
        for _ in range(9):
            with tempfile.TemporaryDirectory() as folder:
                reference = c_code.Compiled(Path(folder), record=LEVEL_IN_C)
            interest = Interest(_new(text), types[0], output=types[1])
            data = interest.type.encode(event)
            program = RecordProgram(record_code(interest.executed))
            context = program.context()
            mine, other = versus(
                lambda: reference.call(program.code.address, data, context.address, calls),  # noqa: B023
                lambda: reference.call_c(function, data, calls),  # noqa: B023
                number=1,
                repeat=5,
            )
            ours.append(mine / calls)
            theirs.append(other / calls)
        mine, other = min(ours), min(theirs)
        report.add(name, mine, other, reach="≥ 0.9×", ok=other / mine >= 0.9,
                   note=f"reference: {_compiler()} -O2; ours checks the header of every record")  # fmt: skip


# ── batches ──


def batch(report: Report) -> None:
    """Ten million events, two comparisons."""
    import duckdb
    import numexpr
    import polars as pl

    rng = np.random.default_rng(2)
    level, zone = rng.random(ROWS), rng.integers(0, 10, ROWS, dtype=np.int32)
    table = pa.table({"level": level, "zone": zone})
    on = hw.types.EventType.from_arrow_schema(
        pa.schema([pa.field("level", pa.float64(), False), pa.field("zone", pa.int32(), False)]), name="Row"
    )
    rows = on.conform(table)
    native = Interest("level > 0.5 and zone = 3", on).native().wait()
    arrow_level, arrow_zone = rows.column("level"), rows.column("zone")
    frame = pl.from_arrow(rows)
    database = duckdb.connect()
    database.register("rows", pa.Table.from_batches([rows]))
    database.execute("create table stored as select * from rows")

    def with_arrow() -> Any:
        return pc.and_(pc.greater(arrow_level, 0.5), pc.equal(arrow_zone, 3))

    def with_polars() -> Any:
        return frame.select((pl.col("level") > 0.5) & (pl.col("zone") == 3))

    def with_duckdb() -> Any:
        return database.execute("select count(*) from stored where level > 0.5 and zone = 3").fetchone()

    def with_numexpr() -> Any:
        return numexpr.evaluate("(level > 0.5) & (zone == 3)", local_dict={"level": level, "zone": zone})

    def bandwidth() -> Any:
        return level.sum(), zone.sum(dtype=np.int32)

    expected = int(((level > 0.5) & (zone == 3)).sum())
    assert native.batch(rows).counts.passed == expected == with_arrow().true_count
    mine, arrow, *others, plain = versus(
        lambda: native.batch(rows), with_arrow, with_polars, with_duckdb, with_numexpr, bandwidth, number=1, repeat=11
    )
    best, name = min(zip(others, ("polars", "duckdb", "numexpr"), strict=True))
    note = ", ".join(f"{n} {quantity(s, 's')}" for s, n in zip(others, ("polars", "duckdb", "numexpr"), strict=True))
    report.add("batch of 10 million, two comparisons, vs pyarrow", mine, arrow, reach="≥ 2×", ok=arrow / mine >= 2)
    report.add(f"  vs the best of polars, duckdb, numexpr ({name})", mine, best, reach="≥ 1×", ok=best / mine >= 1,
               note=note)  # fmt: skip
    size = level.nbytes + zone.nbytes
    report.add("  memory read, beside numpy summing the same columns", size / mine / 1e9, size / plain / 1e9,
               unit="GB/s", note="numpy sums on one core")  # fmt: skip


def spark(report: Report) -> None:
    """Fifty million rows of Parquet in Spark."""
    from pyspark.sql import functions as F

    from headwater.spark import session, where

    spark = session("headwater benchmark", **{"spark.driver.memory": "6g"})
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=BUILD))
    try:
        path = str(folder / "rows.parquet")
        (
            spark.range(SPARK_ROWS)
            .select(F.rand(1).alias("level"), (F.rand(2) * 10).cast("int").alias("zone"))
            .write.parquet(path)
        )
        rows = spark.read.parquet(path)
        on = "level: f64?, zone: i32?"
        interest = Interest("level > 0.5 and zone = 3", on)

        def ours() -> Any:
            return where(rows, interest).count()

        def by_hand() -> Any:
            return rows.where((F.col("level") > 0.5) & (F.col("zone") == 3)).count()

        assert ours() == by_hand()
        mine, theirs = versus(ours, by_hand, number=1, repeat=9)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    report.add("the same filter in Spark, 50 million rows", mine, theirs, reach="≥ 0.95×", ok=theirs / mine >= 0.95,
               note="reference: the Column written by hand")  # fmt: skip


# ── records, and how things grow ──


def codec(report: Report) -> None:
    """Encode and decode one record, beside msgspec's msgpack of the same event."""
    kind = hw.event_type(Sighting)
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Sighting)
    ours, theirs = kind.encode(SIGHTING), encoder.encode(SIGHTING)
    encode, pack = versus(lambda: kind.encode(SIGHTING), lambda: encoder.encode(SIGHTING))
    decode, unpack = versus(lambda: kind.decode(ours), lambda: decoder.decode(theirs))
    view, _ = versus(lambda: kind.view(ours).zone, lambda: decoder.decode(theirs).zone)
    note = f"{len(ours)} bytes; msgpack {len(theirs)}"
    report.add("encode one record", encode, pack, note=note)
    report.add("decode one record", decode, unpack, note="reference: msgspec msgpack, written in C")
    report.add("read one field of a record in place", view, unpack, note="msgpack must decode all to read one")
    native_encode, native_decode = fast_encoder(kind), fast_decoder(kind)
    if native_encode is None:
        return
    assert native_encode(SIGHTING) == ours
    assert native_decode(ours) == kind.decode(ours)
    encode, pack = versus(lambda: native_encode(SIGHTING), lambda: encoder.encode(SIGHTING))
    decode, unpack = versus(lambda: native_decode(ours), lambda: decoder.decode(theirs))
    report.add("encode one record in machine code, as sources do", encode, pack)
    report.add("decode one record in machine code, as sinks do", decode, unpack)


def growth(report: Report) -> None:
    """Compile time by program size, batch time by batch size."""
    for terms in (1, 4, 16, 64):
        text = " or ".join(f"(level > {_new('{}')} and zone = {n})" for n in range(terms))
        seconds = median_of(lambda text=text: _compile_anew(text), repeat=7)
        report.add(
            f"compile {2 * terms} comparisons to native code", seconds, note=f"{quantity(seconds / terms, 's')} a term"
        )
    first = median_of(lambda: _compile_anew("level > 0.5 and zone = 3"), repeat=25)
    for _ in range(300):
        _compile_anew("level > 0.5 and zone = 3")
    later = median_of(lambda: _compile_anew("level > 0.5 and zone = 3"), repeat=25)
    report.add("compile after 300 other compilations", later, first, note="reference: at the beginning")
    rng = np.random.default_rng(3)
    native = Interest("level > 0.5 and zone = 3", "level: f64, zone: i32").native().wait()
    kind = hw.event_type(native.program.input)
    for rows in (1, 100, 10_000, 1_000_000):
        data = kind.conform(pa.table({"level": rng.random(rows), "zone": rng.integers(0, 10, rows, dtype=np.int32)}))
        level, zone = data.column(0), data.column(1)
        mine, arrow = versus(
            lambda data=data: native.batch(data),
            lambda level=level, zone=zone: pc.and_(pc.greater(level, 0.5), pc.equal(zone, 3)),
        )
        report.add(f"batch of {rows:,}", mine, arrow, note=f"{quantity(mine / rows, 's')} an event; reference: pyarrow")


def _compile_anew(text: str) -> None:
    record_code(Interest(text.replace("0.5", f"0.5{next(_numbers)}"), Sighting).analysis)


PARTS: dict[str, Callable[[Report], None]] = {
    "answer": answer,
    "compile": compiled,
    "record": record,
    "inside": inside,
    "batch": batch,
    "spark": spark,
    "codec": codec,
    "growth": growth,
}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    BUILD.mkdir(parents=True, exist_ok=True)
    report = Report("interests", f"interests, {os.cpu_count()} cores")
    for name in chosen:
        PARTS[name](report)
    report.finish()


if __name__ == "__main__":
    main()
