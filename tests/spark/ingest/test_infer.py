"""A sample says what can be said from it, and the proposal is a mapping."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import ExecutionError
from headwater.spark.ingest import IngestMapping, infer
from headwater.spark.ingest.command import add_infer, add_ingest


def proposed(tmp_path: Path, *samples: Path) -> tuple[str, IngestMapping]:
    text = infer(samples).toml()
    path = tmp_path / "proposed.toml"
    path.write_text(text, encoding="utf-8")
    return text, IngestMapping.load(path)


def test_csv_with_semicolons_decimal_commas_and_leading_zeros(tmp_path: Path) -> None:
    sample = tmp_path / "visits.csv"
    lines = ["Zeit;PLZ;Wert;Art;Menge;Bemerkung"]
    lines += [
        f"{i % 28 + 1:02d}.03.2026 08:{i % 60:02d};0{i:04d};{i},5;{'neu' if i % 2 else 'alt'};{i};" for i in range(99)
    ]
    sample.write_bytes("\r\n".join([*lines, "13.03.2026 09:00;12345;-1,25;alt;NA;früh"]).encode("cp1252"))
    text, made = proposed(tmp_path, sample)
    types = {field.name: str(field) for field in made.record.fields}
    assert types == {
        "PLZ": "PLZ: text", "Wert": "Wert: f64", "Art": "Art: text", "Menge": "Menge: i32?",
        "Bemerkung": "Bemerkung: text?",
    }  # fmt: skip
    assert (made.options.delimiter, made.options.decimal, made.options.encoding) == (";", ",", "cp1252")
    assert made.options.missing == ("NA",)
    assert made.time.time is not None and made.time.time.text == "%d.%m.%Y %H:%M"
    assert "leading zeros" in text and "may be enum(alt, neu)" in text and "99 missing" in text


def test_json_with_places_within(tmp_path: Path) -> None:
    sample = tmp_path / "hub.jsonl.gz"
    rows = [{"ts": 1498859038.5 + i, "data": {"id": f"b{i}", "ok": i > 3, "n": 2**40 * i}, "l": [1]} for i in range(9)]
    sample.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    text, made = proposed(tmp_path, sample)
    assert made.format == "json"
    assert {f.name: str(f.type) for f in made.record.fields} == {
        "data_id": "text", "data_ok": "bool", "data_n": "i64", "l": "text",
    }  # fmt: skip
    assert str(dict(made.fields)["data_id"].route) == "data.id"
    assert made.time.time is not None and made.time.time.text == "epoch s"
    assert "2017-06-30" in text


def test_csv_without_a_header_and_parquet(tmp_path: Path) -> None:
    plain = tmp_path / "tij.dat"
    plain.write_text("".join(f"{20 * i} {i} {i + 1}\n" for i in range(50)))
    _, made = proposed(tmp_path, plain)
    assert made.options.columns == ("c1", "c2", "c3") and made.options.delimiter == " "
    table = tmp_path / "x.parquet"
    pq.write_table(pa.table({"at": ["2026-03-01T00:00:00Z"] * 3, "x": [1.5, None, 2.0]}), table)
    _, made = proposed(tmp_path, table)
    assert made.format == "parquet" and [str(f) for f in made.record.fields] == ["x: f64?"]


def test_samples_without_records(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    for paths in ([], [empty], [tmp_path / "none.csv"]):
        with pytest.raises(ExecutionError, match="infer: "):
            infer(paths)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    add_infer(commands)
    add_ingest(commands)
    sample = tmp_path / "a.csv"
    sample.write_text("time,x\n2026-03-01,1\n")
    args = parser.parse_args(["infer", str(sample)])
    assert args.run(args) == 0
    assert 'time = { from = "time", format = "iso", zone = "UTC" }' in capsys.readouterr().out
