"""What a process that was ended has left behind is finished, or undone."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.store.log.layout import AtRest, ChannelFolder
from headwater.store.log.reader import ChannelReader
from headwater.store.log.repair import repair
from headwater.store.log.staging import Staging, left_behind, recover
from headwater.types import event_type
from headwater.types.declaration import parse_record

TYPE = event_type(parse_record("x: i32", "X"))
TARGET = "event_day=2026-03-01/n-ingest-1-00000.parquet"


def put(staging: Staging) -> list[tuple[str, str]]:
    time = pa.array([datetime(2026, 3, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    table = pa.table({"event_node": ["n"], "event_source": ["s"], "event_seq": [7], "event_time": time, "x": [1]})
    pq.write_table(table, staging.path / "one.parquet")
    (staging.path / "two").write_bytes(b"bad")
    return [("one.parquet", TARGET), ("two", "_quarantine/ingest=1/two")]


def test_all_at_once_and_the_log_knows(tmp_path: Path) -> None:
    folder = ChannelFolder.of(tmp_path, "c")
    with Staging.open(folder) as staging:
        staging.commit(put(staging), node="n", sources={"s": (7, 1000)}, type=TYPE)
    assert ChannelReader(tmp_path, "c").count() == 1
    assert (folder.path / "_quarantine/ingest=1/two").read_bytes() == b"bad"
    assert AtRest.read(folder.node("n").sources) == AtRest(0, {"s": (7, 1000)})
    assert not left_behind(folder)


def test_without_a_manifest_nothing_is_left(tmp_path: Path) -> None:
    folder = ChannelFolder.of(tmp_path, "c")
    staging = Staging.open(folder)
    put(staging)
    assert recover(folder) == []  # its process has not ended
    os.close(staging._lock)
    assert "removed" in recover(folder)[0]
    assert not staging.path.exists() and not (folder.path / TARGET).exists()


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_with_a_manifest_it_is_finished(tmp_path: Path, moved: int) -> None:
    folder = ChannelFolder.of(tmp_path, "c")
    staging = Staging.open(folder)
    moves = put(staging)
    staging.seal(moves, node="n", sources={"s": (7, 1000)}, type=TYPE)  # and its process ends, soon
    assert json.loads((staging.path / "manifest.json").read_bytes())["node"] == "n"
    for source, target in moves[:moved]:
        (folder.path / target).parent.mkdir(parents=True)
        (staging.path / source).rename(folder.path / target)
    os.close(staging._lock)
    (done,) = repair(tmp_path, "c").done
    assert "in the log now" in done
    assert ChannelReader(tmp_path, "c").count() == 1
    found = AtRest.read(folder.node("n").sources)
    assert found is not None and found.sources is not None and found.sources["s"][0] == 7
    assert recover(folder) == []
