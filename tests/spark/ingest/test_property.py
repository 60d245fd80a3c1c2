"""Random dirty files against a plain model: the log and the quarantine together are the input, line by line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from headwater.spark.ingest import IngestMapping, ingest, read_quarantine
from headwater.store.log.reader import ChannelReader
from tests.spark.support import sample

COUNT = 400
INT = re.compile(r"[+-]?[0-9]+\Z")
FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
TIME = "2026-03-01T08:00:00Z"

words = st.one_of(
    st.text("0123456789+-.eEdfxn ,;\"'éü\ufffd\U0001f600", max_size=7),
    st.integers(-(2**33), 2**33).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.sampled_from(["", "NaN", "inf", "-Infinity", "007", "1.", ".5", "+3"]),
)
cells = st.tuples(st.sampled_from([TIME, TIME, TIME, "", "yesterday", "08:00"]), words, words, words).map(list)


def is_int(text: str) -> bool:
    text = text.strip(" ")
    return bool(INT.match(text)) and -(2**31) <= int(text) < 2**31


def is_float(text: str) -> bool:
    text = text.strip(" ")
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return text.lower() not in ("+nan", "-nan")
    return bool(FLOAT.match(text)) and abs(float(text)) != float("inf")


def is_good(time: str | None, n: str | None, x: str | None) -> bool:
    """The fields are `name: text?, n: i32, x: f64?`; what is empty is missing."""
    return time == TIME and bool(n) and is_int(n or "") and (not x or is_float(x))


def check(spark: Any, folder: Path, format: str, lines: list[bytes], good: list[int], blank: list[int]) -> None:
    path = folder / "input"
    path.write_bytes(b"\n".join(lines) + b"\n")
    options = {"header": False, "columns": ["time", "name", "n", "x"]} if format == "csv" else {}
    mapping = IngestMapping.of(
        format=format, channel="random", type="name: text?, n: i32, x: f64?", time="time", source={"value": "s"},
        options=options,
    )  # fmt: skip
    report = ingest(spark, mapping, [path], folder / "log")
    seqs = [
        seq for batch in ChannelReader(folder / "log", "random").read() for seq in batch.column("event_seq").to_pylist()
    ]
    assert sorted(seqs) == good  # one piece: sequence numbers are lines
    assert report.quarantine is not None
    table = read_quarantine(Path(report.quarantine)).to_pylist()
    raws = {row["line"]: row["raw"].encode() if row["raw"] is not None else row["raw_bytes"] for row in table}
    expected = set(range(1, len(lines) + 1)) - set(good) - set(blank)
    assert raws == {line: lines[line - 1] for line in expected}
    assert report.blank == len(blank)
    assert report.lines == len(lines) == report.logged + report.quarantined + report.blank


def csv_line(row: list[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' if re.search('[",]', cell) else cell for cell in row)


def test_random_csv(spark: Any, tmp_path: Path) -> None:
    lines, good, blank = [], [], []
    what = st.tuples(cells, st.sampled_from(["", "", "", "", "short", "long", "byte", "blank", "open"]))
    for at, (row, damage) in enumerate(sample(what, COUNT), 1):
        line = csv_line(row).encode()
        match damage:
            case "short":
                line = csv_line(row[:3]).encode()
            case "long":
                line += b",more"
            case "byte":
                line += b"\xc3"
            case "blank":
                line = b"  "
            case "open":
                line = csv_line(row[:3]).encode() + b',"5'
            case _ if is_good(row[0], row[2], row[3]):
                good.append(at)
        if damage == "blank":
            blank.append(at)
        lines.append(line)
    assert good and blank
    check(spark, tmp_path, "csv", lines, good, blank)


def as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def test_random_json_lines(spark: Any, tmp_path: Path) -> None:
    scalar = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**33), 2**33), st.floats(-1e6, 1e6), st.just("12"),
        st.text("0123456789.-+eénd", max_size=5),
    )  # fmt: skip
    record = st.fixed_dictionaries(
        {"time": st.sampled_from([TIME, TIME, TIME, None, 5]), "n": st.one_of(st.integers(-5, 5), scalar)},
        optional={"name": st.one_of(st.none(), st.text(max_size=5)), "x": scalar, "more": st.lists(scalar, max_size=2)},
    )
    what = st.tuples(record, st.booleans(), st.sampled_from(["", "", "", "", "cut", "twice", "byte", "blank", "array"]))
    lines, good, blank = [], [], []
    for at, (value, ascii_only, damage) in enumerate(sample(what, COUNT), 1):
        text = json.dumps(value, ensure_ascii=ascii_only)
        line = text.encode("utf-8", "surrogatepass")
        match damage:
            case "cut":
                line = line[:-1]
            case "twice":
                line = line + b" " + line
            case "byte":
                line = line.replace(b'"time"', b'"tim\xff"')
            case "array":
                line = b"[" + line + b"]"
            case "blank":
                line = b""
            case _:
                x = as_text(value.get("x"))
                fits = x is None or (is_float(x) and x != "")
                n = as_text(value["n"])
                if as_text(value["time"]) == TIME and n is not None and is_int(n) and fits:
                    good.append(at)
        if damage == "blank":
            blank.append(at)
        lines.append(line)
    assert good and blank
    check(spark, tmp_path, "json", lines, good, blank)
