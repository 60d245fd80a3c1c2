"""A Spark Declarative Pipeline, run by Spark's own runner: raw files → quarantine and log → derived → savings.

The project is examples/declarative_pipeline/. This script copies it to a temporary folder, gives it dirty files and a
log, runs `spark-pipelines run`, and looks at the tables.

Run: python examples/declarative_pipeline.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark

import headwater
from headwater import Event, Log, Node, f64
from headwater.logs import LogFiles
from headwater.spark.session import find_java

PROJECT = Path(__file__).resolve().parent / "declarative_pipeline"


class Reading(Event):
    station: str
    temperature: f64
    humidity: f64 | None


def record(station: str | None, at: str, t: object, h: object = None) -> bytes:
    return json.dumps({"station": {"id": station}, "at": at, "t": t, "h": h}).encode()


GOOD = [("Köln", at, float(at - 4)) for at in range(24)] + [("Oslo", at, float(at - 20)) for at in range(24)]
DIRT = [
    record("Köln", "02.03.2026 24:10", 5.0),  # no such time
    record("Köln", "30.02.2026 10:00", 5.0),  # no such day
    record(None, "02.03.2026 10:00", 5.0),  # from nowhere
    record("Oslo", "02.03.2026 10:00", "cold"),
    record("Oslo", "02.03.2026 10:00", "-"),  # no temperature
    b'{"station": {"id": "Oslo"}, "at": "02.03.2026 1',  # torn
    b'{"station": {"id": "K\xf6ln"}, "at": "02.03.2026 10:00", "t": 1}',  # not UTF-8
    b"# station offline",
]


def write_files(folder: Path) -> None:
    folder.mkdir()
    lines = [record(station, f"02.03.2026 {at:02}:00", t, "-" if at % 2 else 0.8) for station, at, t in GOOD]
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines[:30], b"", *DIRT[:4]]) + b"\n")
    (folder / "b.jsonl").write_bytes(b"\r\n".join([*DIRT[4:], b"   ", *lines[30:]]))


LIVE = {"roof": [3.0, 2.5, -1.0, -1.5, 4.0, 1.0, 0.5], "cellar": [9.0, 9.5, 6.0, 6.5]}


def publish(log: Path) -> None:
    with Node("campus", log=Log(log)) as node:
        channel = node.channel("weather.live", Reading)
        for name, temperatures in LIVE.items():
            source = channel.source(name)
            for temperature in temperatures:
                source.publish(Reading(station=name, temperature=temperature, humidity=None))


def run(project: Path) -> None:
    """As a shell would: SPARK_CONF_DIR=conf PYTHONPATH=. spark-pipelines run"""
    spark = Path(pyspark.__file__).parent
    path = [str(project), str(Path(headwater.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(part for part in path if part),
        "SPARK_CONF_DIR": str(project / "conf"),
        "SPARK_HOME": os.environ.get("SPARK_HOME", str(spark)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(spark / "bin" / "spark-pipelines"), "run"]
    ran = subprocess.run(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"{ran.stdout[-6000:]}\nthe runner failed with {ran.returncode}")
    # Spark tries a flow again that has failed, and may say of one more than once that it is done.
    completed = {line.split("Flow ")[1].split()[0] for line in ran.stdout.splitlines() if "has COMPLETED" in line}
    print(f"flows completed: {', '.join(sorted(name.rpartition('.')[2] for name in completed))}")


def table(project: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(project / "spark-warehouse" / name, format="parquet").to_table().to_pylist()
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-pipeline-") as folder:
        project = Path(folder) / "weather"
        shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
        spec = project / "spark-pipeline.yaml"
        text = spec.read_text(encoding="utf-8")
        spec.write_text(text.replace("file:///tmp/headwater-weather", project.as_uri()), encoding="utf-8")
        write_files(project / "raw")
        publish(project / "log")
        run(project)
        look(project)


def look(project: Path) -> None:
    bad = table(project, "quarantine")
    print(f"\n{len(bad)} records in the quarantine, {len(table(project, 'archived'))} taken:")
    for row in sorted(bad, key=lambda row: (row["file"], row["reason"])):
        print(f"  {row['file']}: {row['reason']}")
    assert len(bad) == len(DIRT)
    assert len(table(project, "archived")) == len(GOOD)

    logged = [row for batch in LogFiles(project / "log").read("weather.archive") for row in batch.to_pylist()]
    assert Counter((row["station"], row["temperature"]) for row in logged) == Counter((s, t) for s, _, t in GOOD)
    assert [row["event_seq"] for row in logged] == list(range(1, len(GOOD) + 1))
    print(f"\npublished to weather.archive in the log: {len(logged)} events")

    live = table(project, "live")
    assert Counter(row["event_source"] for row in live) == {name: len(values) for name, values in LIVE.items()}
    falls = sorted((row["station"], row["by"]) for row in table(project, "falls"))
    print(f"read from weather.live in the log: {len(live)} events; falls of more than 2 degrees: {falls}")
    assert falls == [("cellar", 3.5), ("roof", 3.0), ("roof", 3.5)]

    everything = [(station, t) for station, _, t in GOOD] + [(s, t) for s, values in LIVE.items() for t in values]
    without, crossing = Counter(s for s, _ in everything), Counter(s for s, t in everything if t < 0)
    print("\nwhat crosses if a sink asks for frost only:")
    print(f"  {'source':<16}{'without':>8}{'with':>6}{'saved':>8}")
    found = sorted(table(project, "savings"), key=lambda row: (row["event_node"], row["event_source"]))
    for row in found:
        name = f"{row['event_node']}/{row['event_source']}"
        print(f"  {name:<16}{row['without']:>8}{row['with']:>6}{row['saved_percent']:>7.1f}%")
        assert (row["without"], row["with"]) == (without[row["event_source"]], crossing[row["event_source"]])
    assert len(found) == len(without)
    total, passed = len(everything), len(table(project, "frost"))
    assert passed == sum(crossing.values())
    print(f"  together {passed} of {total} events cross")


if __name__ == "__main__":
    main()
