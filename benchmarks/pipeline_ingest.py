"""Ingest of CSV into a log against plain Spark from the same CSV to Parquet, with the schema given to both.

python benchmarks/pipeline_ingest.py [--rows 20000000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from headwater_studies.harness.benchmark import Report
from pipeline_data import BADGES, NETWORKS, START, STATIONS

WHERE = Path(tempfile.gettempdir()) / "headwater-bench"
FILES = 8
TYPE = "badge: text, network: text, station: text, level: f64, seen: timestamp"
SCHEMA = "badge string, network string, station string, level double, seen timestamp"
PIECE = 500_000
ROUNDS = 2


def make_csv(rows: int) -> Path:
    """A folder of CSV files with so many rows; kept for later runs."""
    where = WHERE / f"csv-{rows}"
    if (where / "_complete").exists():
        return where
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    random = np.random.default_rng(5)
    for number in range(FILES):
        left, first = rows // FILES, START + number * 3_600_000_000
        with (where / f"sightings-{number}.csv").open("wb") as file:
            header = True
            while left:
                count = min(PIECE, left)
                times = first + np.arange(count, dtype=np.int64) * 1000
                table = pa.table(
                    {
                        "badge": pa.array(np.array(BADGES)[random.integers(0, len(BADGES), count)]),
                        "network": pa.array(np.array(NETWORKS)[random.integers(0, len(NETWORKS), count)]),
                        "station": pa.array(np.array(STATIONS)[random.integers(0, len(STATIONS), count)]),
                        "level": pa.array(np.round(random.random(count), 4)),
                        "seen": pa.array(times).view(pa.timestamp("us")).cast(pa.string()),
                    }
                )
                csv.write_csv(table, file, csv.WriteOptions(include_header=header, quoting_style="none"))
                header, left, first = False, left - count, first + count * 1000
    (where / "_complete").touch()
    return where


def bench_ingest(report: Report, spark: Any, rows: int = 20_000_000) -> None:
    """The row of the table: both read the same files and write Parquet, in turns."""
    from headwater.spark.ingest import IngestMapping, ingest

    source = make_csv(rows)
    files = sorted(source.glob("*.csv"))
    mapping = IngestMapping.of(
        format="csv",
        channel="bench.sighting",
        type={"name": "bench.Sighting", "fields": TYPE},
        node="bench",
        time={"from": "seen", "format": "%Y-%m-%d %H:%M:%S.%f"},
        source={"from": "station"},
        fields={"seen": {"from": "seen", "format": "%Y-%m-%d %H:%M:%S.%f"}},
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    def ours() -> float:
        target = WHERE / "ingested"
        shutil.rmtree(target, ignore_errors=True)
        start = time.perf_counter()
        found = ingest(spark, mapping, files, target)
        spent = time.perf_counter() - start
        assert found.logged == rows, found
        return spent

    def plain() -> float:
        target = WHERE / "plain"
        start = time.perf_counter()
        frame = spark.read.schema(SCHEMA).option("header", True).csv([str(file) for file in files])
        frame.write.mode("overwrite").parquet(str(target))
        return time.perf_counter() - start

    plain()  # Spark gets warm
    found = [(ours(), plain()) for _ in range(ROUNDS)]
    mine, theirs = min(a for a, _ in found), min(b for _, b in found)
    size = sum(file.stat().st_size for file in files)
    note = f"{size / 1e9:.1f} GB, {rows / mine / 1e6:.2f} M rows/s"
    report.add(f"ingest CSV, {rows:,} rows, against plain Spark", mine, theirs, reach="at least 0.7×",
               ok=theirs / mine >= 0.7, note=note)  # fmt: skip
    for name in ("ingested", "plain"):
        shutil.rmtree(WHERE / name, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    args = parser.parse_args()
    from headwater.spark import session

    report = Report("pipeline-ingest", "ingest, on two cores")
    spark = session("bench", "local[2]", **{"spark.driver.memory": "4g"})
    bench_ingest(report, spark, args.rows)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
