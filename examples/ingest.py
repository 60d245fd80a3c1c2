"""Dirty files of weather stations into a log: what is not good is in the quarantine, and everything is counted.

Run: python examples/ingest.py
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from headwater.spark import session
from headwater.spark.ingest import IngestMapping, infer, ingest, read_quarantine

MAPPING = """
format = "csv"
channel = "weather.reading"
time = { from = "Zeit", format = "%d.%m.%Y %H:%M", zone = "Europe/Berlin" }
source = { from = "Station" }

[type]
name = "weather.Reading"
fields = "station: text, temperature: f64, wind: enum(CALM, BREEZE, STORM)?"

[options]
delimiter = ";"
decimal = ","
encoding = "cp1252"

[late]
bounds = ["1h"]

[fields]
station = "Station"
temperature = "Temperatur"
wind = { from = "Wind", enum = { still = "CALM", frisch = "BREEZE", Sturm = "STORM" } }
"""

MONDAY = """Zeit;Station;Temperatur;Wind
02.03.2026 08:00;0017;3,5;still
02.03.2026 09:00;0017;4,25;frisch

02.03.2026 10:00;0017;kaputt;still
02.03.2026 06:30;0017;2,0;Sturm
31.02.2026 10:00;0042;5,0;still
02.03.2026 10:00;0042
02.03.2026 11:00;Köln;6,0;Orkan
"""
TUESDAY = "Zeit;Temperatur;Station\r\n03.03.2026 08:00;-1,5;Köln\r\n03.03.2026 09:00;-1,0;0042\r\n"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-ingest-") as folder:
        files = Path(folder) / "files"
        files.mkdir()
        (files / "monday.csv").write_bytes(MONDAY.encode("cp1252"))
        (files / "tuesday.csv.gz").write_bytes(gzip.compress(TUESDAY.encode("cp1252")))
        (files / "wednesday.csv.gz").write_bytes(b"this is no gzip file")
        (Path(folder) / "weather.toml").write_text(MAPPING, encoding="utf-8")

        print("What a sample says of itself:")
        lines = infer([files / "monday.csv"]).toml().splitlines()
        print(
            "\n".join(line for line in lines if "Station" in line or line.startswith(("delimiter", "decimal", "time")))
        )

        spark = session("headwater-ingest", master="local[2]")
        mapping = IngestMapping.load(Path(folder) / "weather.toml")
        report = ingest(spark, mapping, [files], Path(folder) / "log")
        print(str(report).replace(folder, "…"))
        assert report.read == report.logged + report.quarantined

        print("In the quarantine:")
        assert report.quarantine is not None
        for row in read_quarantine(Path(report.quarantine)).sort_by("line").to_pylist():
            print(f"  {Path(row['file']).name}, line {row['line']}: {row['reason']}")
        events = spark.read.parquet(f"{folder}/log/weather.reading")
        found = {
            row["station"]: row["n"]
            for row in events.groupBy("station").agg({"*": "count"}).toDF("station", "n").collect()
        }
        print(f"in the log: {dict(sorted(found.items()))}")
        spark.stop()


if __name__ == "__main__":
    main()
