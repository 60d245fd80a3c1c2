"""The `headwater` command, as a user calls it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.cli import main

TYPE = "level: f32, network: text?"


def explain(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["explain", *args]) == 0
    return capsys.readouterr().out


def failure(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["explain", *args]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_explain_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "level > 0.5 and network == 'ORL-Net#1'", "--type", TYPE, "--asm", "--llvm")
    for part in ("predicate text", "input type", "level    f32", "network  text, optional", "normal form, fingerprint",
                 "operations an event", "table-driven", "as column", "`level` > 0.5", "IR, as checked", "LLVM IR",
                 "machine code", "ret"):  # fmt: skip
        assert part in said, part


def test_python_runs_it_as_a_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["headwater", "explain", "level > 0.5"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("headwater", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0 and "filter of Event" in capsys.readouterr().out


def test_without_a_type_one_is_guessed_from_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "level > 0.5 and network == 'ORL-Net#1' and open and hour(seen) > 8 and (mask & 3) = 1")
    for line in ("level    f64", "network  text", "open     bool", "seen     timestamp", "mask     i64"):
        assert line in said


def test_ecode_with_output_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "mean.c"
    program.write_text("{ int i; double s = 0; for (i = 0; i < 8; i++) s += input.v[i]; output.m = s / 8; return 1; }")
    said = explain(capsys, "--file", str(program), "--type", "v: f64[8]", "--output", "m: f64", "--notation", "ecode")
    assert "transformation to Event" in said and "arrow function" in said and "loop" in said


def test_types_from_parquet_arrow_and_modules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = pa.table({"level": pa.array([1.0], pa.float32())})
    pq.write_table(table, tmp_path / "recording.parquet")
    with pa.ipc.new_file(tmp_path / "recording.arrow", table.schema) as file:
        file.write_table(table)
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "kinds.py").write_text("from headwater import Event, f32\nclass Level(Event):\n    level: f32\n")
    for type in ("recording.parquet", "recording.arrow", "stream.arrow", "kinds.py:Level"):
        assert "level  f32" in explain(capsys, "level > 0.5", "--type", str(tmp_path / type))


def test_a_module_that_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("from headwater import Event\nclass Level(Evnt):\n    level: f32\n")
    said = failure(capsys, "level > 0.5", "--type", f"{tmp_path / 'broken.py'}:Level")
    assert "broken.py:Level" in said and "NameError" in said and "Evnt" in said


def test_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "level > :limit and network in :nets and :zone[network] = 3", "--type", TYPE,
                   "--param", "limit=0.5", "--param", 'nets=["a", "b"]', "--param", 'zone={"a": 3}')  # fmt: skip
    assert "limit: scalar of f64" in said and "nets: set of text" in said and "zone: map of text to i64" in said


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["levl > 0.5", "--type", TYPE], ["line 1, column 1", "did you mean 'level'?"]),
        (["level > 0.5", "--type", "level: f33"], ["column 8", "expected one of bool", "'f33'"]),
        (["level > 0.5", "--type", "no_such_module:Thing"], ["no_such_module"]),
        (["level > 0.5", "--type", "headwater.errors:Thing"], ["no 'Thing'"]),
        (["level > 0.5", "--type", "missing.parquet"], ["missing.parquet"]),
        (["level > :x", "--type", TYPE, "--param", "x"], ["expected NAME=VALUE"]),
        (["level > :x", "--type", TYPE], ["no parameter 'x'"]),
        (["{ return 1; }"], ["expected --type"]),
        ([], ["expected an interest or --file"]),
        (["level >", "--type", TYPE], ["line 1"]),
        (["level >"], ["line 1, column 8", "expected: a value"]),
        (["5 > 4"], ["expected --type", "names no field"]),
        (["level > :x", "--type", TYPE, "--param", "x=[[1]]"], ["--param 'x=[[1]]'", "expected a list of plain"]),
        (["level > 0.5", "--type", TYPE, "--output", "x: f64"], ["predicate text can only filter"]),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], args: list[str], parts: list[str]) -> None:
    said = failure(capsys, *args)
    assert all(part in said for part in parts), said
    assert "Traceback" not in said


def test_explain_shows_what_is_hardly_meant(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "b > 300 and level = 0.1", "--type", "b: u8, level: f32")
    assert "warnings\n  line 1, column 1: this is never true: no event can pass this interest" in said
    assert "line 1, column 13: this is never equal" in said
    assert "warnings" not in explain(capsys, "b > 3", "--type", "b: u8")
