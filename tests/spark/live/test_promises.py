"""The option `promises` of a stream: how far each source has come, as rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater import event_type
from headwater.errors import ConfigError
from headwater.interest import as_event_type
from headwater.spark.live import promises
from headwater.spark.live.source import HeadwaterSource
from headwater.spark.live.stream import HeadwaterStreamReader
from tests.spark.live.logs import CHANNEL, put

READING = event_type(as_event_type("level: i64").record)
PAST = 1_700_000_000_000_000
NOW = 1_900_000_000_000_000
SECOND = 1_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time that a reader finds."""
    time = [NOW]
    monkeypatch.setattr("headwater.spark.live.stream.now", lambda: time[0])
    return time


def _reader(root: Path, **options: str) -> HeadwaterStreamReader:
    given = {"log": str(root), "channel": CHANNEL, "promises": "2 seconds", **options}
    source = HeadwaterSource(CaseInsensitiveDict(given))
    found = source.streamReader(source.schema())
    assert isinstance(found, HeadwaterStreamReader)
    return found


def _told(reader: HeadwaterStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int | None]]:
    """The promises of a batch: rows without a number."""
    found = []
    for part in reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))):
        for batch in reader.read(part):
            for row in batch.select(["event_source", "event_seq", "event_time", "level"]).to_pylist():
                if row["event_seq"] is None:
                    assert row["level"] is None
                    time = row["event_time"]
                    found.append((row["event_source"], None if time is None else round(time.timestamp() * 1e6)))
    return found


def _put(root: Path, count: int, source: str) -> None:
    put(root, READING, [{"level": at} for at in range(count)], source=source, start=PAST)


def test_what_is_read_to_its_end_is_promised_as_far_as_the_log_is_sure(tmp_path: Path, clock: list[int]) -> None:
    _put(tmp_path, 3, "a")
    reader = _reader(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert _told(reader, reader.initialOffset(), first) == [("a", NOW - 2 * SECOND)]
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    clock[0] += promises.EVERY - 1
    assert reader.latestOffset(first, ReadAllAvailable()) == first  # not worth a batch
    clock[0] += 1
    second = reader.latestOffset(first, ReadAllAvailable())
    assert _told(_reader(tmp_path), first, second) == [("a", NOW - SECOND)]  # the same after a restart
    clock[0] = 0
    assert reader.latestOffset(second, ReadAllAvailable()) == second  # a clock that goes back takes nothing back


def test_a_source_that_is_cut_short_is_named_and_promises_nothing(tmp_path: Path) -> None:
    _put(tmp_path, 9, "a")
    _put(tmp_path, 1, "b")
    _put(tmp_path, 9, "c")
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(3))
    assert _told(reader, start, first) == [("a", None), ("b", NOW - 2 * SECOND), ("c", None)]
    last = reader.latestOffset(first, ReadAllAvailable())
    assert _told(reader, first, last) == [("a", NOW - 2 * SECOND), ("c", NOW - 2 * SECOND)]


def test_all_that_is_available_now_is_promised_once(tmp_path: Path, clock: list[int]) -> None:
    _put(tmp_path, 3, "a")
    reader = _reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    clock[0] += 60 * SECOND
    _put(tmp_path, 2, "b")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert ("a", NOW - 2 * SECOND) in _told(reader, reader.initialOffset(), end)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    _put(tmp_path, 1, "a")
    with pytest.raises(ConfigError, match="a length of time such as '2 seconds'"):
        _reader(tmp_path, promises="soon")
    with pytest.raises(ConfigError, match="promises beside output"):
        _reader(tmp_path, where="{ output.x = input.level; return 1; }", output="x: i64")
    source = HeadwaterSource(CaseInsensitiveDict({"log": str(tmp_path), "channel": CHANNEL, "promises": "1 s"}))
    schema = source.schema()
    schema.fields = [field for field in schema.fields if field.name != "event_seq"]
    schema.names = [field.name for field in schema.fields]
    with pytest.raises(ConfigError, match="a schema without event_seq"):
        source.streamReader(schema)
