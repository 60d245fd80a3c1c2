"""Files as the world has them: no record and no file stops another, and what is not taken is named with its place."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.spark.ingest import IngestMapping, ingest
from headwater.spark.ingest.writer import WRITERS
from tests.effort import EFFORT
from tests.spark.ingest.test_ingest import CSV, bad, logged

GOOD = b"time,who,level\n2026-03-01T08:00:00Z,anna,1.5\n"
PARQUET = {"format": "parquet", "channel": "visits", "type": "who: text, level: f64?", "time": "time", "source": "who"}


def micros(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


# ── what stopped all files ──


def test_a_first_line_of_any_length_is_read_at_once(spark: Any, tmp_path: Path) -> None:
    """A megabyte without a line end, and one of spaces, are looked at once, not once for every character of theirs."""
    (tmp_path / "a.csv").write_bytes(b"x" * (1 << 20))
    (tmp_path / "b.csv").write_bytes(b" " * (1 << 20) + b"\n" + GOOD)
    (tmp_path / "c.csv").write_bytes(b'time,who,"' + b"n" * 200_000 + b'",level\n2026-03-01T08:00:00Z,bea,,2\n')
    (tmp_path / "d.csv").write_bytes(b"\xef\xbb\xbf\r\n\r\n" + GOOD)
    report = ingest(spark, IngestMapping.of(**CSV), sorted(tmp_path.glob("*.csv")), tmp_path / "log")
    assert [row["who"] for row in logged(tmp_path / "log", "visits")] == ["anna", "bea", "anna"]
    assert (report.quarantined, report.headers, report.blank) == (0, 4, 3)


def test_a_line_of_too_many_cells_is_quarantined_alone(spark: Any, tmp_path: Path) -> None:
    """Commas within quotes are text, however many; a line of a million cells and more is not parted at all."""
    shape = ", ".join("1 2" for _ in range(30_000))
    lines = [
        "time,who,level,shape",
        f'2026-03-01T08:00:00Z,anna,1.5,"POLYGON(({shape}))"',
        '2026-03-01T08:00:00Z,"bea",' + "," * 30_000,
        '2026-03-01T08:00:00Z,"cleo",' + "," * 1_100_000,
        '2026-03-01T08:00:00Z,"dora",2,',
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_bytes(GOOD)
    given = {**CSV, "type": "who: text, level: f64?, shape: text?"}
    report = ingest(spark, IngestMapping.of(**given), [tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "log")
    rows = logged(tmp_path / "log", "visits")
    assert [(row["who"], len(row["shape"] or "")) for row in rows] == [
        ("anna", len(shape) + 11),
        ("dora", 0),
        ("anna", 0),
    ]
    assert [(row["line"], row["reason"]) for row in bad(report)] == [
        (3, "expected 4 columns, found 30003"),
        (4, "expected a line with quotes to have less than 1,048,576 delimiters, found more"),
    ]


def test_parquet_with_nanoseconds_is_read(spark: Any, tmp_path: Path) -> None:
    nanos = [1_772_352_000_123_456_789, -1, None]
    inner = [{"at": t, "k": 1} for t in nanos]
    kind = pa.struct([("at", pa.timestamp("ns", "UTC")), ("k", pa.int32())])
    for name, zone in (("utc", "UTC"), ("local", None)):
        table = pa.table(
            {
                "time": pa.array(nanos, pa.timestamp("ns", zone)),
                "who": ["a", "b", "c"],
                "level": [1.0, 2.0, 3.0],
                "x": pa.array(inner, kind),
                "l": pa.array([[t] for t in nanos], pa.list_(pa.timestamp("ns"))),
            }
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    fine = pa.table({"time": pa.array([0], pa.timestamp("us", "UTC")), "who": ["e"], "level": [4.0]})
    pq.write_table(fine, tmp_path / "fine.parquet")
    given = {**PARQUET, "type": "who: text, level: f64?, at: timestamp?, l: timestamp[]?", "fields": {"at": "x.at"}}
    files = [tmp_path / f"{name}.parquet" for name in ("utc", "local", "fine")]
    report = ingest(spark, IngestMapping.of(**given), files, tmp_path / "log")
    rows = logged(tmp_path / "log", "visits")
    times = micros("2026-03-01T08:00:00.123456+00:00", "1969-12-31T23:59:59.999999+00:00")
    assert [row["who"] for row in rows] == ["a", "b", "a", "b", "e"]
    assert [row["event_time"] for row in rows] == [*times, *times, datetime(1970, 1, 1, tzinfo=UTC)]
    assert [row["at"] for row in rows[:2]] == times and [row["l"] for row in rows[:2]] == [[t] for t in times]
    assert {(Path(row["file"]).name, row["line"]) for row in bad(report)} == {
        ("utc.parquet", 3),
        ("local.parquet", 3),
    }
    assert report.complete


def test_duplicates_over_years_of_days(spark: Any, tmp_path: Path) -> None:
    """More days than a session has room to write at a time."""
    path, days = tmp_path / "years.csv", 600 if EFFORT > 1 else WRITERS + 6
    assert days > WRITERS
    with path.open("w") as out:
        out.write("time,who,level\n")
        for number in range(100 * days):
            day = datetime.fromtimestamp(1_600_000_000 + 86_400 * (number * 7919 % days), UTC)
            out.write(f"{day:%Y-%m-%d}T08:00:00Z,w{number % 977},{number}.5\n")
    report = ingest(spark, IngestMapping.of(**CSV, duplicates="report"), [path], tmp_path / "log")
    assert (report.events, report.repeated, report.logged) == (100 * days, 0, 100 * days)


# ── what was not taken, or not said ──


def test_json_arrays(spark: Any, tmp_path: Path) -> None:
    """An array of objects, as one line or indented; each element is a record, on the line where it begins."""

    def one(who: object, time: str = "2026-03-01T08:00:00Z") -> dict[str, Any]:
        return {"time": time, "who": who, "level": 1, "more": {"a": ["],[", 'q"{\\']}}

    whole = [one("a"), one("b", "never"), 5, one("c\n\u00fc")]
    (tmp_path / "a.json").write_text(json.dumps(whole, indent=2), encoding="utf-8")
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf \n" + json.dumps([one("d"), one("e")]).encode() + b"\n")
    (tmp_path / "c.json").write_text('[\n{"time": "2026-03-01", "who": "f"},\n{"time": "2026-03-01", "who": "g"')
    (tmp_path / "d.json").write_text(f"[]\n[{json.dumps(one('h'))}]\n{json.dumps(one('i'))}\nno\n")
    (tmp_path / "e.json.gz").write_bytes(gzip.compress(json.dumps([one("j")]).encode("utf-8")))
    (tmp_path / "f.json").write_text(json.dumps(one("k")) + "\n" + json.dumps([one("l")]) + "\n")
    files = sorted(tmp_path.glob("*.json*"))
    report = ingest(spark, IngestMapping.of(**{**CSV, "format": "json"}), files, tmp_path / "log")
    assert [row["who"] for row in logged(tmp_path / "log", "visits")] == [
        "a",
        "c\n\u00fc",
        "d",
        "e",
        "f",
        "h",
        "i",
        "j",
        "k",
    ]
    assert [(Path(row["file"]).name, row["line"], row["reason"]) for row in bad(report)] == [
        ("a.json", 13, "event_time: expected a time (iso), found never"),
        ("a.json", 24, "it is not one JSON object"),
        ("c.json", 3, "it is not one JSON object"),
        ("d.json", 4, "it is not one JSON object"),
        ("f.json", 2, "it is not one JSON object"),
    ]


def test_spaces_of_all_kinds_between_thousands(spark: Any, tmp_path: Path) -> None:
    texts = ["1\u00a0234,5", "1\u202f234\u202f567", "\u00a012\u00a0", "1 234", "12\u00a034", "1\u2009000"]
    lines = ["time;who;level", *(f"2026-03-01;w{i};{text}" for i, text in enumerate(texts))]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    for number, sign in enumerate(("\u00a0", " ")):
        options = {"delimiter": ";", "decimal": ",", "thousands": sign}
        report = ingest(
            spark, IngestMapping.of(**{**CSV, "options": options}), [tmp_path / "a.csv"], tmp_path / f"{number}"
        )
        rows = logged(tmp_path / f"{number}", "visits")
        assert [row["level"] for row in rows] == [1234.5, 1_234_567.0, 12.0, 1234.0, 1000.0]
        assert [row["line"] for row in bad(report)] == [6]


def test_files_with_hidden_names_are_named(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / ".git").mkdir(parents=True)
    for name in ("a.csv", ".b.csv", "_c.csv", ".git/d.csv"):
        (folder / name).write_bytes(GOOD)
    report = ingest(spark, IngestMapping.of(**CSV), [folder, folder / "_c.csv"], tmp_path / "log")
    assert (report.events, report.files, report.complete) == (2, 2, True)
    said = [note.what for note in report.notes if note.path == str(folder)]
    assert said == ["3 files whose names, or whose folders' names, begin with . or _ are not read: .b.csv, "
                    ".git/d.csv, _c.csv; give one by its own name to read it"]  # fmt: skip


def test_seconds_of_an_epoch_are_cut_off_behind_microseconds(spark: Any, tmp_path: Path) -> None:
    texts = {
        "1498859038.1234567": 1498859038123456,
        "1498859038.9999999": 1498859038999999,
        "0.9999999999999999999": 999999,
        "-1.5000009": -1500000,
        "1.4988590389999999e9": 1498859038999999,
        "1498859038": 1498859038000000,
        "253402300799.9999999": 253402300799999999,
    }
    (tmp_path / "a.csv").write_text("\n".join(["time,who,level", *(f"{text},w,{i}" for i, text in enumerate(texts))]))
    given = {**CSV, "time": {"from": "time", "format": "epoch s"}}
    ingest(spark, IngestMapping.of(**given), [tmp_path / "a.csv"], tmp_path / "log")
    found = [row["event_time"] for row in logged(tmp_path / "log", "visits")]
    since = datetime(1970, 1, 1, tzinfo=UTC)
    assert [round((t - since).days * 86_400_000_000 + (t - since).seconds * 1_000_000 + (t - since).microseconds)
            for t in found] == list(texts.values())  # fmt: skip
    ms = {**CSV, "channel": "ms", "time": {"from": "time", "format": "epoch ms"}}
    (tmp_path / "b.csv").write_text("time,who,level\n1498859038123.4567,w,1\n")
    ingest(spark, IngestMapping.of(**ms), [tmp_path / "b.csv"], tmp_path / "log")
    assert [row["event_time"].microsecond for row in logged(tmp_path / "log", "ms")] == [123456]
    ns = {**CSV, "channel": "ns", "time": {"from": "time", "format": "epoch ns"}}
    (tmp_path / "c.csv").write_text("time,who,level\n1498859038123456789,w,1\n-1,w,2\n1e30,w,3\n9e18,w,4\n")
    report = ingest(spark, IngestMapping.of(**ns), [tmp_path / "c.csv"], tmp_path / "log")
    stamps = [row["event_time"].isoformat() for row in logged(tmp_path / "log", "ns")]
    assert stamps == ["2017-06-30T21:43:58.123456+00:00", "1970-01-01T00:00:00+00:00", "2255-03-14T16:00:00+00:00"]
    assert [row["line"] for row in bad(report)] == [4]


def test_comments_before_and_between(spark: Any, tmp_path: Path) -> None:
    text = '# made by a "station\n#\n  # indented\ntime,who,level\n2026-03-01,a,1\n# pause\n2026-03-01,#b,2\n'
    (tmp_path / "a.csv").write_text(text)
    given = {**CSV, "options": {"comment": "#"}}
    report = ingest(spark, IngestMapping.of(**given), [tmp_path / "a.csv"], tmp_path / "log")
    assert [row["who"] for row in logged(tmp_path / "log", "visits")] == ["a", "#b"]
    assert (report.lines, report.headers, report.quarantined) == (7, 5, 0)
