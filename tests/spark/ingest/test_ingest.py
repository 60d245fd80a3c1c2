"""Every record of a file ends in the log or in the quarantine, with its line and a reason; nothing is silent."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import ConfigError, StoreError
from headwater.spark.ingest import IngestMapping, IngestReport, ingest, read_quarantine
from headwater.store.log.layout import ChannelFolder, claim
from headwater.store.log.reader import ChannelReader
from headwater.store.log.verify import verify


def logged(log: Path, channel: str) -> list[dict[str, Any]]:
    reader = ChannelReader(log, channel)
    rows = [row for batch in reader.read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["event_seq"])


def bad(report: IngestReport) -> list[dict[str, Any]]:
    assert report.quarantine is not None
    rows = read_quarantine(Path(report.quarantine)).to_pylist()
    return sorted(rows, key=lambda row: (row["file"], row["line"]))


CSV = {"format": "csv", "channel": "visits", "type": "who: text, level: f64?", "time": "time", "source": "who"}


def test_dirty_csv_files_of_many_kinds(spark: Any, tmp_path: Path) -> None:
    folder, log = tmp_path / "in", tmp_path / "log"
    folder.mkdir()
    first = [
        b"\xef\xbb\xbftime,who,level",
        b"2026-03-01T08:00:00Z,anna,1.5",
        b"",
        b"2026-03-01T08:00:01Z,\xffx,2",
        b"2026-03-01T06:00:00Z,anna,oops",
        b'2026-03-02 08:00:02,"q,""r",-3e2',
        b"short",
        b"2026-03-01T08:00:00Z,a,1,more",
        b"2026-03-01T07:58:00Z,anna,",
        b'2026-03-02 08:00:02,a,"3',
        b"12:30,a,3",
        b"2026-03-01T08:00:00Z,a,1e999",
        b"2026-03-01T08:00:00Z,a,1d",
        b"time,who,level",
        b"2026-03-01T08:00:00Z,,1",
    ]
    (folder / "a.csv").write_bytes(b"\r\n".join(first))
    (folder / "b [x]*.csv").write_bytes(b"who,time\nbea,2026-03-05T00:00:00+02:00\n")
    (folder / "c.csv.gz").write_bytes(gzip.compress(b"time,who,level\n2026-03-01T09:00:00Z,cleo,NaN\n"))
    (folder / "d.csv.bz2").write_bytes(bz2.compress(b"level,who\n1,dora\n\n2,dora\n"))
    (folder / "empty.csv").write_bytes(b"")
    (folder / "fake.csv").write_bytes(gzip.compress(b"time,who\n"))
    mapping = IngestMapping.of(**CSV, late=["60s", "1h"])
    zone = spark.conf.get("spark.sql.session.timeZone")
    report = ingest(spark, mapping, [folder, tmp_path / "none.csv"], log)
    assert spark.conf.get("spark.sql.session.timeZone") == zone

    assert (report.lines, report.blank, report.headers, report.read) == (23, 2, 5, 16)
    assert (report.logged, report.quarantined, report.events) == (5, 11, 5)
    assert len(duckdb.sql(f"from '{log}/visits/**/*.parquet'").fetchall()) == 5, "what is no event is not among them"
    assert (report.backwards, report.late) == (1, ((60.0, 1), (3600.0, 0)))
    events = [(row["event_source"], row["level"], row["event_time"].isoformat()) for row in logged(log, "visits")]
    assert events[:4] == [
        ("anna", 1.5, "2026-03-01T08:00:00+00:00"),
        ('q,"r', -300.0, "2026-03-02T08:00:02+00:00"),
        ("anna", None, "2026-03-01T07:58:00+00:00"),
        ("bea", None, "2026-03-04T22:00:00+00:00"),
    ]
    assert events[4][0] == "cleo"

    rows = bad(report)
    a = {row["line"]: row["reason"] for row in rows if row["file"].endswith("a.csv")}
    assert a == {
        4: "not utf-8: byte 0xFF at 22",
        5: "level: expected f64 (float, 64 bits), found oops",
        7: "expected 3 columns, found 1",
        8: "expected 3 columns, found 4",
        10: "a quote is not closed; if cells have line ends: multiline = true",
        11: "event_time: expected a time (iso), found 12:30",
        12: "level: expected f64 (float, 64 bits), found 1e999",
        13: "level: expected f64 (float, 64 bits), found 1d",
        15: "event_source: expected text; it is missing",
    }
    assert rows[0]["raw"] is None and rows[0]["raw_bytes"] == first[3]
    assert rows[1]["raw"] == first[4].decode()
    d = [(row["line"], row["reason"]) for row in rows if row["file"].endswith("d.csv.bz2")]
    assert d == [
        (2, "event_time: expected a time (iso); column time is not in this file"),
        (4, "event_time: expected a time (iso); column time is not in this file"),
    ]
    notes = {Path(note.path).name: (note.what, note.fatal) for note in report.notes}
    assert notes["none.csv"] == ("no such file or folder", True)
    assert notes["fake.csv"][1] and "gzip" in notes["fake.csv"][0]
    assert notes["empty.csv"] == ("it is empty", False)
    assert notes["b [x]*.csv"] == (
        "column level, for level, is not in this file; its records have no value there",
        False,
    )
    assert not report.complete
    text = str(report)
    assert "quarantined" in text and "not read: " in text and "late by more than 60 s" in text

    # Again, with one that ends too early: the others go on, and sequence numbers too.
    last = max(row["event_seq"] for row in logged(log, "visits"))
    broken = tmp_path / "broken.csv.gz"
    whole = b"time,who,level\n" + b"".join(b"2026-03-01T08:00:00Z,w%d,1\n" % (i * 7919) for i in range(20_000))
    broken.write_bytes(gzip.compress(whole)[:20_000])
    again = ingest(spark, mapping, [broken, folder / "c.csv.gz"], log)
    assert again.events == 1 and not again.complete and again.quarantine is None
    assert logged(log, "visits")[-1]["event_seq"] > last
    assert ChannelReader(log, "visits").count() == 6


def test_nested_json_exploded(spark: Any, tmp_path: Path) -> None:
    good = {
        "t": 1498859038.25,
        "got": 1498859100.0,
        "d": {"m": "anna", "seen": {"7": {"r": [-5, 1]}, "9": {"r": ["-6"]}}},
    }
    lines = [
        json.dumps(good),
        json.dumps({**good, "d": {"m": "bea", "seen": {}}}),
        json.dumps({**good, "d": {"m": "cleo", "seen": {"7": {"r": [-5]}, "8": {"r": [99999]}}}}),
        json.dumps(good) + " and more",
        json.dumps(good) * 2,
        json.dumps(good)[:-1],
        json.dumps({**good, "d": 5}),
        "[1]",
        '{"t": NaN}',
        "",
        json.dumps({**good, "d": {"m": "\ud800", "seen": {"7": {"r": [1]}}}}),
        json.dumps({**good, "d": {"m": "\U0001f600", "seen": {"7": {"r": [1]}}}}),
    ]
    path = tmp_path / "hub.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    mapping = IngestMapping.of(
        format="json",
        channel="hub",
        type="who: text, seen: u16, rssi: i16, kind: enum(A, B)",
        time={"from": "t", "format": "epoch s"},
        source={"value": "hub"},
        explode={"from": "d.seen", "kind": "entries"},
        late={"bounds": ["60s", "600s"], "arrival": {"from": "got", "format": "epoch s"}},
        fields={"who": "d.m", "seen": "@key", "rssi": "@value.r[0]", "kind": {"value": "B"}},
    )
    report = ingest(spark, mapping, [path], tmp_path / "log")
    rows = logged(tmp_path / "log", "hub")
    assert [(row["who"], row["seen"], row["rssi"], row["kind"]) for row in rows] == [
        ("anna", 7, -5, "B"), ("anna", 9, -6, "B"), ("\U0001f600", 7, 1, "B"),
    ]  # fmt: skip
    assert rows[0]["event_time"].isoformat() == "2017-06-30T21:43:58.250000+00:00"
    assert (report.read, report.logged, report.empty, report.quarantined, report.events) == (11, 2, 1, 8, 3)
    assert report.late == ((60.0, 2), (600.0, 0)) and report.late_by == "records"
    reasons = {row["line"]: row["reason"] for row in bad(report)}
    assert reasons[3] == "element 2: rssi: expected i16 (signed integer, 16 bits), found 99999"
    assert reasons[4] == reasons[5] == reasons[6] == reasons[8] == "it is not one JSON object"
    assert "another structure" in reasons[7]
    assert "surrogate" in reasons[11]
    assert set(reasons) == {3, 4, 5, 6, 7, 8, 9, 11}


def test_text_by_a_pattern_in_latin_1_with_decimal_commas_and_a_zone(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "türen.log"
    lines = ["[25.10.2026 02:30:00] Tür 7: 1.234,5 m", "[01.07.2026 12:00:00] Tür 8: 3.5 m", "nothing", "   ",
             "[01.07.2026 12:00:00] Tür 8: ,25 m"]  # fmt: skip
    path.write_bytes("\r\n".join(lines).encode("latin-1") + b"\n[01.07.2026 12:00:00] T\x81r 8: 0 m\n")
    mapping = IngestMapping.of(
        format="text",
        channel="doors",
        type="door: text, width: f32",
        time={"from": "at", "format": "%d.%m.%Y %H:%M:%S", "zone": "Europe/Berlin"},
        source={"from": "door"},
        options={
            "pattern": r"\[(?P<at>[^]]+)\] (?P<door>T\wr \d): (?P<width>\S+) m", "encoding": "cp1252", "decimal": ",",
            "thousands": ".",
        },
    )  # fmt: skip
    report = ingest(spark, mapping, [path], tmp_path / "log")
    rows = logged(tmp_path / "log", "doors")
    assert [(row["door"], row["width"], row["event_time"].isoformat()) for row in rows] == [
        ("Tür 7", 1234.5, "2026-10-25T00:30:00+00:00"),
        ("Tür 8", 0.25, "2026-07-01T10:00:00+00:00"),
    ]
    assert report.blank == 1
    found = [(row["line"], row["reason"]) for row in bad(report)]
    assert found == [
        (2, "width: expected f32 (float, 32 bits), found 3.5"),
        (3, "it is not like the pattern"),
        (6, "not cp1252: byte 0x81 at 24"),
    ]


def test_line_ends_in_quoted_cells_and_other_encodings(spark: Any, tmp_path: Path) -> None:
    text = 'time;who;level\r\n2026-03-01;"anna\r\nmaria";1,5\r\n2026-03-01;"x\n\ny";oops\n2026-03-01;z;2\nshort\n'
    path = tmp_path / "two.csv"
    path.write_bytes(text.encode("utf-16"))
    options = {"delimiter": ";", "decimal": ",", "multiline": True, "encoding": "utf-16"}
    report = ingest(spark, IngestMapping.of(**{**CSV, "options": options}), [path], tmp_path / "log")
    assert [(row["who"], row["level"]) for row in logged(tmp_path / "log", "visits")] == [
        ("anna\r\nmaria", 1.5),
        ("z", 2.0),
    ]
    rows = bad(report)
    assert [(row["line"], row["raw"]) for row in rows] == [(4, '2026-03-01;"x\n\ny";oops'), (8, "short")]


def test_parquet_with_other_types_and_a_column_missing(spark: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    inner = [{"k": 1, "v": ["a", "b"]}, {"k": None, "v": []}, {"k": 300, "v": ["c"]}]
    times = pa.array([1_000_000, 2_000_000, 3_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t": times, "n": [1.0, 2.5, 3.0], "x": inner, "s": [5, 6, 7]}), one)
    pq.write_table(pa.table({"t": times[:1], "x": inner[:1], "s": [8]}), two)
    mapping = IngestMapping.of(
        format="parquet",
        channel="table",
        type="n: i32?, k: u8?, v: text[]",
        time="t",
        source="s",
        fields={"k": "x.k", "v": "x.v"},
    )
    report = ingest(spark, mapping, [one, two], tmp_path / "log")
    rows = logged(tmp_path / "log", "table")
    assert [(row["event_source"], row["n"], row["k"], row["v"]) for row in rows] == [
        ("5", 1, 1, ["a", "b"]), ("8", None, 1, ["a", "b"]),
    ]  # fmt: skip
    assert [(row["line"], row["reason"]) for row in bad(report)] == [
        (2, "n: expected i32 (signed integer, 32 bits), found 2.5"),
        (3, "k: expected u8 (unsigned integer, 8 bits), found 300"),
    ]


def test_duplicates_are_left_out_or_counted(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,who,level\n2026-03-01,a,1\n2026-03-01,b,1\n2026-03-01,a,2\nx,a,1\n2026-03-01,a,1\n")
    drop = IngestMapping.of(**CSV, duplicates={"what": "drop", "key": ["who", "event_time"]})
    report = ingest(spark, drop, [path], tmp_path / "log")
    assert (report.events, report.repeated, report.dropped, report.quarantined) == (2, 2, 2, 1)
    assert [(row["who"], row["level"]) for row in logged(tmp_path / "log", "visits")] == [("a", 1.0), ("b", 1.0)]
    assert [row["line"] for row in bad(report)] == [4, 5, 6]
    count = IngestMapping.of(**{**CSV, "channel": "all"}, duplicates="report")
    report = ingest(spark, count, [path], tmp_path / "log")
    assert (report.events, report.repeated, report.dropped) == (4, 1, 0)
    assert verify(tmp_path / "log", "all").sound
    for file in (tmp_path / "log" / "all").glob("event_day=*/*.parquet"):
        whole = file.read_bytes()
        file.write_bytes(whole[: (at := whole.rindex(b"level"))] + b"L" + whole[at + 1 :])
    assert "checksum" in str(verify(tmp_path / "log", "all").problems)
    with pytest.raises(StoreError, match="checksum"):
        logged(tmp_path / "log", "all")


def test_refused_before_anything_is_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,who,level\n2026-03-01,a,1\n")
    fields = {"level": {"from": "level", "default": "much"}}
    with pytest.raises(ConfigError, match=r"fields\.level\.default: expected f64, found 'much'"):
        ingest(spark, IngestMapping.of(**CSV, fields=fields), [path], tmp_path / "log")
    folder = ChannelFolder.of(tmp_path / "log", "visits").node("ingest")
    folder.path.mkdir(parents=True, exist_ok=True)
    held = claim(folder)
    try:
        with pytest.raises(StoreError, match="the only one that writes"):
            ingest(spark, IngestMapping.of(**CSV), [path], tmp_path / "log")
    finally:
        import os

        os.close(held)
    report = ingest(spark, IngestMapping.of(**CSV), [tmp_path / "none"], tmp_path / "log")
    assert report.events == report.lines == 0 and not report.complete


def test_many_files_with_odd_names_keep_their_order(spark: Any, tmp_path: Path) -> None:
    """More files than pieces are told apart by, each with a bad record, in names that a URI writes otherwise."""
    folder, log = tmp_path / "in put", tmp_path / "log"
    folder.mkdir()
    names = [f"{number:02} ü%20 #{number}.csv" for number in range(70)]
    for number, name in enumerate(names):
        lines = [
            "time,who,level",
            *(f"2026-03-01 08:00:00.{number:06},w{at},{number}.{at}" for at in range(3)),
            "x,y,z",
        ]
        (folder / name).write_text("\n".join(lines))
    given = {**CSV, "time": {"from": "time", "format": "%Y-%m-%d %H:%M:%S.%f"}}
    report = ingest(spark, IngestMapping.of(**given), [folder], log)
    assert (report.read, report.logged, report.quarantined) == (280, 210, 70)
    rows = logged(log, "visits")
    assert [row["level"] for row in rows] == [float(f"{number}.{at}") for number in range(70) for at in range(3)]
    assert [row["event_time"].microsecond for row in rows] == [number for number in range(70) for _ in range(3)]
    assert [(Path(row["file"]).name, row["line"]) for row in bad(report)] == [(name, 5) for name in names]
