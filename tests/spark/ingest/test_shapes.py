"""Files shaped as public data sets are, from a proposal into the log; and broken ones, which stop no other."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.spark.ingest import IngestMapping, infer, ingest
from tests.spark.ingest.test_ingest import CSV, bad, logged


@dataclass(frozen=True)
class Shape:
    """A file, when its first event was, some of that event's fields, and how many events it has of how many records."""

    file: str
    data: bytes
    time: str
    fields: dict[str, Any]
    events: int
    bad: int = 0


def text(*lines: str, end: str = "\n", encoding: str = "utf-8") -> bytes:
    return end.join([*lines, ""]).encode(encoding)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def edits(count: int) -> list[dict[str, Any]]:
    return [
        {"time": f"2026-03-01T08:00:{i:02d}.5Z", "page": "Ürsprung, der", "delta": i - 5, "user": {"bot": i % 2 == 0}}
        for i in range(count)
    ]


NANOS = [1_772_352_000_123_456_789 + i for i in range(3)]
SHAPES = [
    Shape("taxi.csv", text("VendorID,tpep_pickup_datetime,distance,store_flag", "2,2026-03-01 00:57:55,1.72,N",
                           "1,2026-03-01 00:58:00,,Y"),
          "2026-03-01T00:57:55+00:00", {"VendorID": 2, "distance": 1.72, "store_flag": "N"}, 2),
    Shape("quakes.csv", text("time,mag,place", '2026-03-01T08:00:00.120Z,4.5,"12km NW of Adak, ""Old"" Alaska"',
                             "2026-03-01T07:00:00.120Z,1e-1,Reno"),
          "2026-03-01T08:00:00.120000+00:00", {"mag": 4.5, "place": '12km NW of Adak, "Old" Alaska'}, 2),
    Shape("machine_temperature.csv", text("timestamp,value", "2026-03-01 08:00:00,73.9", "2026-03-01 08:05:00,74.9"),
          "2026-03-01T08:00:00+00:00", {"value": 73.9}, 2),
    Shape("cases.csv", text("date,country,cases,total", '2026-03-01,IE,"1,029",12', '2026-03-02,IE,"12,345,678",13'),
          "2026-03-01T00:00:00+00:00", {"cases": 1029, "total": 12}, 2),
    Shape("stunde.txt", text("STATIONS_ID;MESS_DATUM;  QN_9;TT_TU;eor", "00044;2026030108;    3;   4.6;eor",
                             "00044;2026030109;    3;  -0.6;eor"),
          "2026-03-01T08:00:00+00:00", {"STATIONS_ID": "00044", "eor": "eor"}, 2),
    Shape("verkauf.csv", text("Datum;Straße;Wert", "01.03.2026 08:00;Hauptstraße;1.234,5",
                              "31.03.2026 08:00;Gräben;0,5", end="\r\n", encoding="cp1252"),
          "2026-03-01T08:00:00+00:00", {"Straße": "Hauptstraße", "Wert": 1234.5}, 2),
    Shape("population.csv", text("date;commune;habitants", "2026-03-01;Orléans;1\u00a0234\u00a0567",
                                 "2026-03-02;Évry;53\u00a0000", encoding="latin-1"),
          "2026-03-01T00:00:00+00:00", {"habitants": 1_234_567, "commune": "Orléans"}, 2),
    Shape("excel.csv", b"\xef\xbb\xbf" + text("time,name", "2026-03-01T08:00:00Z,Zoë", end="\r\n"),
          "2026-03-01T08:00:00+00:00", {"name": "Zoë"}, 1),
    Shape("unicode.txt", text("time\tname\tn", "2026-03-01T08:00:00Z\tŁódź\t7", end="\r\n", encoding="utf-16"),
          "2026-03-01T08:00:00+00:00", {"name": "Łódź", "n": 7}, 1),
    Shape("mac.csv", text("time,n", "2026-03-01,1", "2026-03-02,2", end="\r"),
          "2026-03-01T00:00:00+00:00", {"n": 1}, 2),
    Shape("tij.dat", text(*(f"{1_353_303_380 + 20 * i} {400 + i} {500 + i}" for i in range(20))),
          "2012-11-19T05:36:20+00:00", {"c2": 400, "c3": 500}, 20),
    Shape("tij.csv.gz", gzip.compress(text("# t\ti\tj", *(f"{1_353_303_380 + 20 * i}\t{i}\t1" for i in range(20)))),
          "2012-11-19T05:36:20+00:00", {"i": 0, "j": 1}, 20),
    Shape("station.csv", text('# Station "7"', "#", "time,wind", "2026-03-01T08:00Z,1.5", "# gap",
                              "2026-03-01T11:00+02:00,2"),
          "2026-03-01T08:00:00+00:00", {"wind": 1.5}, 2),
    Shape("frame.csv", text(",time,x", "0,2026-03-01,1.5", "1,2026-03-02,2.5"),
          "2026-03-01T00:00:00+00:00", {"x": 1.5}, 2),
    Shape("klines.csv", text(*(f"{1_609_459_200_000 + 60_000 * i},28923.{i},29031.0" for i in range(20))),
          "2021-01-01T00:00:00+00:00", {"c2": 28923.0}, 20),
    Shape("reviews.csv.bz2", bz2.compress(text("date,name,comments", '2026-03-01,Ann,"Lovely.\r\nWould, again"',
                                               "2026-03-02,Bo,fine", '2026-03-03,Cy,"two\n\nlines"')),
          "2026-03-01T00:00:00+00:00", {"comments": "Lovely.\r\nWould, again"}, 3),
    Shape("codes.tsv", text("time\tzip\tid\tmissing", "2026-03-01\t01234\t12e4\tNA", "2026-03-01\t99999\t5e10\t1",
                            '2026-03-01\t12345\t5" pizza\t2'),
          "2026-03-01T00:00:00+00:00", {"zip": "01234", "id": "12e4", "missing": None}, 3),
    Shape("dirty.csv", text("time,n", *(f"2026-03-01T08:00:{i:02d}Z,{i}" for i in range(40)), "never,1", "short",
                            "time,n"),
          "2026-03-01T08:00:00+00:00", {"n": 0}, 40, bad=1 + 1),
    Shape("edits.json", text(*(json.dumps(each) for each in edits(9))), "2026-03-01T08:00:00.500000+00:00",
          {"page": "Ürsprung, der", "delta": -5, "user_bot": True}, 9),
    Shape("array.json", json.dumps(edits(9), ensure_ascii=False, indent=4).encode(), "2026-03-01T08:00:00.500000+00:00",
          {"page": "Ürsprung, der", "delta": -5, "user_bot": True}, 9),
    Shape("archive.json.gz", gzip.compress(json.dumps(edits(9)).encode()), "2026-03-01T08:00:00.500000+00:00",
          {"delta": -5}, 9),
    Shape("trips.parquet", parquet(pickup=pa.array(NANOS, pa.timestamp("ns")), fare=[1.5, None, 2.0],
                                   flag=["N", "Y", "N"]),
          "2026-03-01T08:00:00.123456+00:00", {"fare": 1.5, "flag": "N"}, 3),
    Shape("nested.parquet", parquet(at=pa.array([1_772_352_000_000_000], pa.timestamp("us", "UTC")),
                                    pos=[{"lat": 1.5, "seen": "x"}], raw=[b"\xff"]),
          "2026-03-01T08:00:00+00:00", {"pos_lat": 1.5, "pos_seen": "x", "raw": b"\xff"}, 1),
]  # fmt: skip


# Those that go into the log in `make test`: times as text, as seconds and as milliseconds, a decimal comma, letters of
# Windows and in UTF-16, no header, comments, lines within values, dirt, JSON, Parquet, and what is compressed.
SOME = {"quakes.csv", "verkauf.csv", "unicode.txt", "tij.csv.gz", "reviews.csv.bz2", "dirty.csv", "klines.csv"}
SOME |= {"array.json", "trips.parquet"}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.file)
def test_a_proposal_knows_the_fields_of_a_file(tmp_path: Path, shape: Shape) -> None:
    path, proposal = tmp_path / shape.file, tmp_path / "proposal.toml"
    path.write_bytes(shape.data)
    proposal.write_text(infer([path]).toml(), encoding="utf-8")
    mapping = IngestMapping.load(proposal)
    known = {field.name: str(field.type) for field in mapping.record.fields}
    types = {int: ("i32", "i64"), float: ("f64",), str: ("text",), bool: ("bool",), bytes: ("bytes",)}
    for name, value in shape.fields.items():
        assert known[name] in types.get(type(value), known.values()), name
    assert mapping.time.route is not None


@pytest.mark.parametrize(
    "shape",
    [pytest.param(each, marks=() if each.file in SOME else pytest.mark.soak, id=each.file) for each in SHAPES],
)
def test_a_proposal_puts_a_file_into_the_log(spark: Any, tmp_path: Path, shape: Shape) -> None:
    path, proposal = tmp_path / shape.file, tmp_path / "proposal.toml"
    path.write_bytes(shape.data)
    proposal.write_text(infer([path]).toml(), encoding="utf-8")
    mapping = IngestMapping.load(proposal)
    report = ingest(spark, mapping, [path], tmp_path / "log")
    assert report.complete and (report.events, report.quarantined) == (shape.events, shape.bad)
    first = logged(tmp_path / "log", mapping.channel)[0]
    assert first["event_time"].isoformat() == shape.time
    assert {name: first[name] for name in shape.fields} == shape.fields


def check_broken(
    spark: Any, folder: Path, mapping: IngestMapping, files: dict[str, bytes], unread: Sequence[str]
) -> list[tuple[str, int]]:
    """One file in front of the broken ones and one behind them are in the log, and the unread are named. Returns where
    the quarantined are."""
    (folder / "in").mkdir()
    for name, data in files.items():
        (folder / "in" / name).write_bytes(data)
    report = ingest(spark, mapping, [folder / "in"], folder / "log")
    assert sorted(Path(note.path).name for note in report.notes if note.fatal) == list(unread), report.notes
    assert report.files == len(files) - len(unread)
    names = [row["who"] for row in logged(folder / "log", "visits")]
    assert names[0] == "first" and names[-1] == "last"
    return [(Path(row["file"]).name, row["line"]) for row in bad(report)]


def test_broken_csv_files(spark: Any, tmp_path: Path) -> None:
    rows = b"time,who,level\n" + b"".join(b"2026-03-01T08:00:00Z,w%d,1\n" % (i * 7919) for i in range(20_000))
    random = bytes(range(256)) * 64
    files = {
        "a.csv": b"time,who,level\n2026-03-01,first,1\n",
        "b-binary.csv": b"\x89PNG\r\n\x1a\n" + random,
        "c-torn.csv.gz": gzip.compress(rows)[:20_000],
        "d-torn.csv.bz2": bz2.compress(rows)[:10_000],
        "e-misnamed.csv": gzip.compress(rows),
        "f-not.csv.gz": b"time,who\n",
        "g-empty.csv": b"",
        "h-empty.csv.gz": gzip.compress(b""),
        "i-blank.csv": b"\n\r\n  \n",
        "j-header.csv": b"time,who,level",
        "k-utf16.csv": "time,who\n2026-03-01,x\n".encode("utf-16"),
        "l-nul.csv": b"time,who,level\n\0\0\0\n2026-03-01,\0,1\n2026-03-01,\"\0,2\n",
        "m-archive.csv": b"PK\x03\x04" + random,
        "n-wide.csv": b"time,who," + b"x," * 30_000 + b"\n",
        "o-binary.csv": b"time,who,level\n" + random.translate(None, b"\r\n") + b"\n2026-03-01,\"x\",1\n",
        "p-quote.csv": b'time,who,level\n2026-03-01,"y,1\n2026-03-01,y,1\n',
        "z.csv": b"time,who,level\n2026-03-01,last,1\n",
    }  # fmt: skip
    unread = [name for name in files if name[0] in "bcdefkmn"]
    found = check_broken(spark, tmp_path, IngestMapping.of(**CSV), files, sorted(unread))
    assert ("o-binary.csv", 2) in found and ("p-quote.csv", 2) in found and ("l-nul.csv", 2) in found
    assert not [place for place in found if place[0][0] in "ahijz"]


def test_broken_json_files(spark: Any, tmp_path: Path) -> None:
    good = '{"time": "2026-03-01", "who": "%s"}'
    files = {
        "a.json": (good % "first").encode(),
        "b-deep.json": (good % "b").encode() + b"\n" + b'{"time":' * 5_000 + b"1" + b"}" * 5_000 + b"\n",
        "c-array.json": b'[{"time": "2026-03-01", "who": "c"}, {"time": "2026',
        "d-indented.json": json.dumps({"data": [1, 2]}, indent=1).encode(),
        "e-binary.json": bytes(range(256)) * 16,
        "f-deep.json": b"[" * 200_000,
        "g-empty.json": b"[]",
        "h-number.json": b'{"time": 1e400, "who": "h"}\n{"time": "2026-03-01", "who": {"a": 1}}\n',
        "z.json": json.dumps([json.loads(good % "last")]).encode(),
    }  # fmt: skip
    found = check_broken(spark, tmp_path, IngestMapping.of(**{**CSV, "format": "json"}), files, [])
    assert ("b-deep.json", 2) in found and ("c-array.json", 1) in found and ("d-indented.json", 1) in found
    assert ("f-deep.json", 1) in found and ("h-number.json", 1) in found


def test_broken_parquet_files(spark: Any, tmp_path: Path) -> None:
    stamps = pa.array([1_772_352_000_000_000] * 1000, pa.timestamp("us", "UTC"))
    plain = {"level": [1.5] * 1000}
    whole = parquet(time=stamps, who=[f"w{i}" for i in range(1000)], **plain)
    damaged = bytearray(whole)
    damaged[200:3000] = bytes(2800)
    decimals = pa.array([None], pa.decimal256(60, 2))
    files = {
        "a.parquet": parquet(time=stamps[:1], who=["first"], level=[1.0]),
        "b-torn.parquet": whole[:-300],
        "c-damaged.parquet": bytes(damaged),
        "d-empty.parquet": b"",
        "e-text.parquet": b"time,who\n",
        "f-types.parquet": parquet(time=stamps[:1], who=["f"], level=["much"]),
        "g-decimal.parquet": parquet(time=stamps[:1], who=["g"], level=[1.0], more=decimals),
        "h-none.parquet": parquet(time=stamps[:0], who=pa.array([], pa.utf8()), level=pa.array([], pa.float64())),
        "i-null.parquet": parquet(time=stamps[:1], who=["i"], level=pa.nulls(1)),
        "j-clock.parquet": parquet(time=pa.array([1], pa.time64("ns")), who=["j"], level=[1.0]),
        "z.parquet": parquet(time=stamps[:1], who=["last"], level=[1.0]),
    }  # fmt: skip
    given = {**CSV, "format": "parquet"}
    unread = ["b-torn.parquet", "c-damaged.parquet", "e-text.parquet", "g-decimal.parquet", "j-clock.parquet"]
    found = check_broken(spark, tmp_path, IngestMapping.of(**given), files, unread)
    assert found == [("f-types.parquet", 1)]
