"""`split` gives the records of a frame the verdicts that `ingest` gives them, and asks Spark nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ConfigError, ExecutionError
from headwater.spark.ingest import IngestMapping, ingest, read_quarantine, split
from headwater.store.log.reader import ChannelReader


@pytest.fixture
def utc(spark: Any) -> Iterator[Any]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


TYPE = {"channel": "visits", "type": "who: text, level: f64?", "time": "time", "source": "who"}
CSV = [
    b"time,who,level",
    b"2026-03-01T08:00:00Z,anna,1.5",
    b"",
    b"2026-03-01T08:00:01Z,\xffx,2",
    b"2026-03-01T06:00:00Z,anna,oops",
    b'2026-03-02 08:00:02,"q,""r",-3e2',
    b"short",
    b"2026-03-01T07:58:00Z,anna,",
    b'2026-03-02 08:00:02,a,"3',
    b"time,who,level",
    b"2026-03-01T08:00:00Z,,1",
]
LATIN = [b"2026-03-01T08:00:00Z,J\xf6rg,1.5", b"2026-03-01T08:00:00Z,\x81,1.5"]
JSON = [
    b'{"time": "2026-03-01T08:00:00Z", "who": "anna", "level": 1.5}',
    b'{"time": "2026-03-01T08:00:00Z", "who": "bea"}',
    b"   ",
    b'{"time": "2026-03-01T08:00:00Z", "level": 1}',
    b'{"time": "2026-03-01T08:00:00Z", "who": "cleo", "level": "high"}',
    b'{"time": "2026-03-01T08:00:00Z", "who": "\xc3(", "level": 1}',
    b'{"time": "2026-03-01T08:00:00Z", "who": "dora"} {}',
    b"nonsense",
]
EXPLODED = [
    b'{"time": "2026-03-01T08:00:00Z", "seen": [{"who": "a", "level": 1}, {"who": "b"}]}',
    b'{"time": "2026-03-01T08:00:00Z", "seen": []}',
    b'{"time": "2026-03-01T08:00:00Z", "seen": [{"who": "a"}, {"level": 2}]}',
]
TEXT = [b"2026-03-01T08:00:00Z anna 1.5", b"anna was here", b""]
OF_ELEMENTS = {"explode": "seen", "source": "@value.who", "fields": {"who": "@value.who", "level": "@value.level"}}
CASES: dict[str, tuple[list[bytes], dict[str, Any]]] = {
    "csv": (CSV, {"format": "csv", "options": {"columns": ["time", "who", "level"]}}),
    "cp1252": (
        LATIN,
        {"format": "csv", "options": {"columns": ["time", "who", "level"], "header": False, "encoding": "cp1252"}},
    ),
    "json": (JSON, {"format": "json"}),
    "exploded": (EXPLODED, {"format": "json", **OF_ELEMENTS}),
    "text": (TEXT, {"format": "text", "options": {"pattern": r"(?P<time>\S+) (?P<who>\w+) (?P<level>\S+)"}}),
}


@pytest.mark.parametrize("case", CASES)
def test_split_agrees_with_ingest(utc: Any, tmp_path: Path, case: str) -> None:
    lines, settings = CASES[case]
    file = tmp_path / "in" / "records.txt"
    file.parent.mkdir()
    file.write_bytes(b"\r\n".join(lines) + b"\r\n")
    mapping = IngestMapping.of(**{**TYPE, **settings})
    report = ingest(utc, mapping, [file], tmp_path / "log")
    assert report.quarantine is not None

    frame = utc.read.text(str(file)).selectExpr("value", "'here' AS file")
    events, quarantine = split(frame, mapping, keep=("file",))
    columns = ["event_node", "event_source", "event_time", "who", "level"]
    logged = [
        tuple(row[name] for name in columns)
        for batch in ChannelReader(tmp_path / "log", "visits").read()
        for row in batch.to_pylist()
    ]
    assert events.columns == columns
    found = [tuple(row[name] for name in columns) for row in events.toArrow().to_pylist()]
    assert sorted(found, key=repr) == sorted(logged, key=repr)

    names = ["raw", "raw_bytes", "reason"]
    expected = [tuple(row[n] for n in names) for row in read_quarantine(Path(report.quarantine)).to_pylist()]
    assert quarantine.columns == ["file", *names]
    given = quarantine.toArrow().to_pylist()
    assert {row["file"] for row in given} == {"here"}
    assert sorted((tuple(row[n] for n in names) for row in given), key=repr) == sorted(expected, key=repr)


def test_the_columns_of_a_frame_are_the_record(utc: Any) -> None:
    rows = [("anna", "2026-03-01T08:00:00Z", "1.5"), ("bea", "never", "2"), (None, "2026-03-01T08:00:00Z", "2")]
    frame = utc.createDataFrame(rows, "who string, time string, level string")
    events, quarantine = split(frame, IngestMapping.of(format="parquet", **TYPE), keep=("who",))
    assert [(row.who, row.level) for row in events.collect()] == [("anna", 1.5)]
    found = sorted((str(row.who), row.reason) for row in quarantine.collect())
    assert found[0][0] == "None" and "it is missing" in found[0][1]
    assert found[1] == ("bea", "event_time: expected a time (iso), found never")
    assert '"time":"never"' in quarantine.where("who = 'bea'").first().raw


def test_what_a_frame_cannot_have_done_to_it_is_said_at_once(utc: Any) -> None:
    options = {"multiline": True, "encoding": "utf-16"}
    mapping = IngestMapping.of(format="csv", **TYPE, duplicates="drop", options=options)
    with pytest.raises(ConfigError) as caught:
        split(utc.range(1), mapping, keep=("raw",))
    for place in ("multiline", "encoding", "duplicates", "options.columns", "keep"):
        assert place in str(caught.value)


def test_a_session_in_which_times_mean_something_else_is_refused(spark: Any) -> None:
    with pytest.raises(ExecutionError, match=r"timeZone: expected UTC, found America/New_York"):
        split(spark.range(1), IngestMapping.of(format="json", **TYPE))
