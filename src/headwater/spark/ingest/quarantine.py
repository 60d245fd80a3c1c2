"""The records that could not be taken, each with its file, line, raw text and reason: a second pass over the files that
have some.

Spark splits files, so a record's line is known only as its row within a piece of a file. The lines of each piece are
counted once more, which needs no parsing, and added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.late import np, pa, pq
from headwater.spark.ingest import reader, writer
from headwater.spark.ingest.inputs import Input
from headwater.spark.ingest.lowering import BAD, REASON, VERDICT, judged
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.reader import BLOCK, BYTES, FILE, RAW, ROW

SCHEMA = "file string, line bigint, raw string, raw_bytes binary, reason string"


def _schema() -> Any:
    """The same for Arrow."""
    texts = {name: pa.utf8() for name in ("file", "raw", "reason")}
    kinds = {"line": pa.int64(), "raw_bytes": pa.binary(), **texts}
    return pa.schema([(name, kinds[name]) for name in ("file", "line", "raw", "raw_bytes", "reason")])


def write_quarantine(
    spark: Any,
    mapping: IngestMapping,
    inputs: Sequence[Input],
    places: dict[str, int],
    base: int,
    path: Path,
    again: bool,
) -> None:
    """Write the bad records of these files to a folder; with `again` also events that repeat one before."""
    from pyspark.sql import functions as F

    frames, lines = [], []
    for files in reader.groups(mapping, list(inputs)):
        scan = reader.scan(spark, mapping, files, places, details=True)
        lines.append(scan.frame.select(FILE, BLOCK, ROW))
        frames.append(judged(mapping, scan, reasons=True))
    starts = _starts(lines)
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.unionByName(other)
    bad = frame.where(F.col(VERDICT) == BAD).select(FILE, BLOCK, ROW, RAW, BYTES, REASON)
    if again:
        bad = bad.unionByName(_again(mapping, frame, base))
    names = {each.uri: each.path for each in inputs}
    known = spark.createDataFrame(_table(starts, names))
    found = bad.join(F.broadcast(known), [FILE, BLOCK], "left").select(
        F.coalesce("__name", FILE).alias("file"),
        (F.col(ROW) + F.col("__start")).alias("line"),
        F.col(RAW).alias("raw"),
        F.col(BYTES).alias("raw_bytes"),
        F.col(REASON).alias("reason"),
    )
    found.coalesce(max(1, min(8, len(starts)))).sortWithinPartitions("file", "line").write.option(
        "compression", "zstd"
    ).parquet(f"file://{path}")
    _unfolded(inputs, path)


def _starts(frames: list[Any]) -> dict[tuple[str, int], int]:
    """What is added to the row of a record in a piece of a file to get its line."""
    from pyspark.sql import functions as F

    starts: dict[tuple[str, int], int] = {}
    for frame in frames:
        rows = frame.groupBy(FILE, BLOCK).agg(F.min(ROW).alias("first"), F.count("*").alias("count")).collect()
        line: dict[str, int] = {}
        for row in sorted(rows, key=lambda each: (each[FILE], each[BLOCK])):
            before = line.get(row[FILE], 0)
            starts[row[FILE], row[BLOCK]] = before + 1 - row["first"]
            line[row[FILE]] = before + row["count"]
    return starts


def _table(starts: dict[tuple[str, int], int], names: dict[str, str]) -> pa.Table:
    """The same for Spark, with what each file is called."""
    columns = {
        FILE: pa.array([file for file, _ in starts], pa.utf8()),
        BLOCK: pa.array([block for _, block in starts], pa.int64()),
        "__start": pa.array(starts.values(), pa.int64()),
        "__name": pa.array([names[file] for file, _ in starts], pa.utf8()),
    }
    return pa.table(columns)


def _again(mapping: IngestMapping, frame: Any, base: int) -> Any:
    from pyspark.sql import functions as F

    keep = (FILE, BLOCK, ROW, RAW, BYTES)
    events = writer.repeated(mapping, writer.numbered(mapping, frame, base, keep))
    names = ", ".join(mapping.duplicates.key) or "all fields"
    return events.where("__again").select(
        *keep, F.lit(f"a duplicate: like an event before it in {names}").alias(REASON)
    )


def _unfolded(inputs: Sequence[Input], path: Path) -> None:
    """Records of files that were unfolded have the number of the record where the line is to be."""
    starts = {each.path: each.starts for each in inputs if each.starts is not None}
    if not starts:
        return
    for file in path.glob("*.parquet"):
        table = pq.read_table(file)
        lines = table.column("line").to_numpy().copy()
        names = np.array(table.column("file").to_pylist(), dtype=object)
        for name, first in starts.items():
            own = names == name
            lines[own] = first[lines[own] - 1]
        table = table.set_column(1, "line", pa.array(lines, pa.int64()))
        pq.write_table(table, file, compression="zstd")


def read_quarantine(folder: Path) -> pa.Table:
    """The table that an ingest has written, as one Parquet file or several. Their names end in `.quarantined`, lest
    anybody take them for events; in logs of before in `.parquet`."""
    files = sorted([*folder.glob("*.quarantined"), *folder.glob("*.parquet")])
    if not files:
        return _schema().empty_table()
    return (
        pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
        .select(_schema().names)
        .cast(_schema())
    )
