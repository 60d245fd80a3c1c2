"""A proposal from files as the world has them: what a column is, is seen by its values, and nothing is taken for more
than it is."""

from __future__ import annotations

import bz2
import gzip
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import ExecutionError
from headwater.spark.ingest import IngestMapping, infer
from tests.spark.ingest.test_infer import proposed


def types(made: IngestMapping) -> dict[str, str]:
    return {field.name: str(field).partition(": ")[2] for field in made.record.fields}


def written(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


@pytest.mark.parametrize("stamp", ["2026-03-01T08:00:{:02d}Z", "2026-03-01 08:00:{:02d}", "01/03/2026 08:00:{:02d}"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_colons_of_times_part_no_cells(tmp_path: Path, stamp: str, delimiter: str) -> None:
    rows = [delimiter.join((stamp.format(i), f"{i}.5")) for i in range(20)]
    _, made = proposed(tmp_path, written(tmp_path / "a.csv", delimiter.join(("timestamp", "value")), *rows))
    assert made.options.delimiter == delimiter and made.options.header
    assert types(made) == {"value": "f64"} and made.time.route is not None and str(made.time.route) == "timestamp"


def test_commas_between_thousands_are_no_decimal_commas(tmp_path: Path) -> None:
    text, made = proposed(
        tmp_path,
        written(
            tmp_path / "a.csv",
            "date,cases,rate",
            '2026-03-01,"1,029",1.5',
            '2026-03-02,"12,345,678",2.5',
            "2026-03-03,7,3",
        ),
    )
    assert types(made) == {"cases": "i32", "rate": "f64"}
    assert (made.options.decimal, made.options.thousands) == (".", ",")
    assert "1,029 is 1,029: commas between thousands" in text
    _, made = proposed(tmp_path, written(tmp_path / "b.csv", "date;rate", "2026-03-01;1,029", "2026-03-02;0,5"))
    assert (made.options.decimal, made.options.thousands, types(made)) == (",", "", {"rate": "f64"})
    spaced = written(tmp_path / "c.csv", "date;n", "2026-03-01;1\u00a0029", "2026-03-02;1\u202f029\u202f000,5")
    _, made = proposed(tmp_path, spaced)
    assert (made.options.decimal, made.options.thousands, types(made)) == (",", " ", {"n": "f64"})


def test_cells_and_lines_of_any_length(tmp_path: Path) -> None:
    long = "x" * 200_000
    _, made = proposed(
        tmp_path, written(tmp_path / "a.csv", "time,a,b", f'2026-03-01,"{long}",1', f"2026-03-02,{long},2")
    )
    assert types(made) == {"a": "text", "b": "i32"}
    _, made = proposed(tmp_path, written(tmp_path / "b.csv", f'time,"{long}",b', "2026-03-01,1,2"))
    assert len(types(made)) == 2
    digits = "1" * 200_000 + "x"
    _, made = proposed(tmp_path, written(tmp_path / "c.csv", f"time,{digits}", f"2026-03-01,{digits}"))
    assert list(types(made).values()) == ["text"]


def test_no_more_is_read_than_is_looked_at(tmp_path: Path) -> None:
    """Of files of 25 MB the first rows: what is held of them at a time is far less."""
    row = {"time": "2026-03-01T08:00:00Z", "n": 1, "text": "x" * 100}
    (tmp_path / "a.csv").write_text("time,n,text\n" + f"{row['time']},1,{row['text']}\n" * 200_000)
    (tmp_path / "b.json").write_text((json.dumps(row) + "\n") * 200_000)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes(), 1))
    for name in ("a.csv", "b.json", "c.csv.gz"):
        infer([tmp_path / name], rows=1)  # what is loaded late is loaded now
        tracemalloc.start()
        found = infer([tmp_path / name], rows=100)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.rows == 100 and peak < 8 << 20


def test_hexadecimal_numbers_and_codes_stay_text(tmp_path: Path) -> None:
    lines = ["time,id,hash,zip,call,n,sci,country_code"]
    lines += [f"2026-03-01,{i}e{i},a{i}f,{i:05d},+49170123456{i},{i}e3,1.{i}e-5,4{i}" for i in range(1, 9)]
    text, made = proposed(tmp_path, written(tmp_path / "a.csv", *lines))
    assert types(made) == {
        "id": "text", "hash": "text", "zip": "text", "call": "text", "n": "text", "sci": "f64", "country_code": "text",
    }  # fmt: skip
    assert "may be hexadecimal" in text and "leading zeros" in text and "telephone" in text


@pytest.mark.parametrize(
    ("scale", "name"), [(1, "epoch s"), (1000, "epoch ms"), (10**6, "epoch us"), (10**9, "epoch ns")]
)
def test_times_are_seen_by_their_values(tmp_path: Path, scale: int, name: str) -> None:
    rows = [f"{(1_498_859_038 + 20 * i) * scale},{i},{5 * i}" for i in range(30)]
    text, made = proposed(tmp_path, written(tmp_path / "tij.csv", "x,i,j", *rows))
    assert made.time.time is not None and made.time.time.text == name and "2017-06-30 21:43:58" in text
    assert types(made) == {"i": "i32", "j": "i32"}


def test_numbers_that_may_be_times_are_none_where_there_is_a_time(tmp_path: Path) -> None:
    rows = [f"2026-03-01,{1_498_859_038 + i},20260301080{i:03d}" for i in range(10)]
    text, made = proposed(tmp_path, written(tmp_path / "a.csv", "day,user,stamp", *rows))
    assert types(made)["user"] == "i64" and "may be epoch s" in text
    assert str(made.time.route) == "day"
    assert "%Y%m%d%H%M%S" in text


def test_all_files_of_a_folder_are_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "visits"
    folder.mkdir()
    written(folder / "a.csv", "time,zip", "2026-03-01,12345")
    written(folder / "b.csv", "time,zip,level", "2026-03-01,01234,5")
    (folder / "c.csv.bz2").write_bytes(bz2.compress(b"time,zip,level\n2026-03-01,01234,5.5\n"))
    (folder / "d.csv").write_bytes(b"\x00\x01\x02\xff" * 500)
    (folder / "e.csv").write_bytes(b"")
    (folder / ".f.csv").write_bytes(b"x,y\n1,2\n")
    written(folder / "LICENSE", "Permission is granted", "to look.")
    written(folder / "about.json", '{"a": 1}')
    text, made = proposed(tmp_path, folder)
    assert types(made) == {"zip": "text", "level": "f64?"} and made.channel == "visits"
    assert "1 missing" in text and "d.csv: it is no text" in text and ".f.csv" in text
    assert "LICENSE: it is left out" in text and "about.json: it looks like json and is left out" in text
    many = tmp_path / "many"
    many.mkdir()
    for number in range(50):
        written(many / f"{number:02d}.csv", "time,n", f"2026-03-01,{number}")
    text, _ = proposed(tmp_path, many)
    assert "20 of 50 files were looked at" in text


def test_compressed_files_by_what_they_are(tmp_path: Path) -> None:
    lines = b"time,n\n" + b"".join(b"2026-03-01T08:00:00Z,%d\n" % (i * 7919) for i in range(20_000))
    for name, data in {
        "a.csv.bz2": bz2.compress(lines), "b.csv": bz2.compress(lines), "c.gz": gzip.compress(lines),
        "torn.csv.gz": gzip.compress(lines)[:60_000],
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(data)
        _, made = proposed(tmp_path, tmp_path / name)
        assert types(made) == {"n": "i32"}


def test_headers_with_empty_cells_names_twice_and_comments_above(tmp_path: Path) -> None:
    text, made = proposed(
        tmp_path, written(tmp_path / "a.csv", ",time,x,x,y", "0,2026-03-01,1,2,3", "1,2026-03-02,1,2,3")
    )
    assert made.options.header and types(made) == {"y": "i32"}
    assert "column 1 has no name" in text and '"x" names more than one column' in text
    comments = [
        "# Station 7, Dublin",
        "#",
        '# units: "m/s, °C"',
        "time,wind",
        "2026-03-01,1.5",
        "# gap",
        "2026-03-02,2",
    ]
    _, made = proposed(tmp_path, written(tmp_path / "b.csv", *comments))
    assert made.options.comment == "#" and made.options.header and types(made) == {"wind": "f64"}
    _, made = proposed(tmp_path, written(tmp_path / "c.dat", "# t i j", "1498859038 1 2", "1498859058 3 4"))
    assert made.options.columns == ("t", "i", "j") and made.options.comment == "#" and not made.options.header
    assert types(made) == {"i": "i32", "j": "i32"}


def test_json_arrays_and_parquet_with_nanoseconds(tmp_path: Path) -> None:
    rows = [{"time": f"2026-03-01T08:00:{i:02d}Z", "a": {"b": i}} for i in range(20)]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    _, made = proposed(tmp_path, tmp_path / "a.json")
    assert made.format == "json" and types(made) == {"a_b": "i32"}
    stamps = pa.array([1_772_352_000_123_456_789, 1], pa.timestamp("ns", "UTC"))
    inner = pa.array([{"at": 1}, {"at": 2}], pa.struct([("at", pa.timestamp("ns"))]))
    pq.write_table(
        pa.table({"t": stamps, "b": [b"\xff", b"\x00"], "x": inner, "n": [1.5, float("nan")]}), tmp_path / "b.parquet"
    )
    _, made = proposed(tmp_path, tmp_path / "b.parquet")
    found = types(made)
    assert (found["b"], found["n"]) == ("bytes", "f64") and str(made.time.route) == "t"


def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04" + b"\0" * 50)
    (tmp_path / "b.json").write_text('{\n "data": [\n  {"a":\n 1}\n ]\n}\n')
    (tmp_path / "c.parquet").write_bytes(b"PAR1 torn")
    for name, said in (("a.csv", "zip"), ("b.json", "an array of objects"), ("c.parquet", "cannot be read")):
        with pytest.raises(ExecutionError, match=f"infer: .*{said}"):
            infer([tmp_path / name])
