"""Segments at rest: Parquet that anybody reads, made once, whatever interrupts it."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headwater.errors import StoreError
from headwater.interest import as_event_type
from headwater.store.log import ChannelLog, Log
from headwater.store.log.layout import ChannelFolder, NodeFolder, decode_name, encode_name, parquet_segment
from headwater.store.log.parquet_segment import put_to_rest
from headwater.types import EventType
from tests.store.log.samples import DAY, EVERYTHING, NOON, SIGHTING, everything, record, sighting

CHANNEL, LAB = "ie.sighting", "lab #1/é %"


def folder(root: Path) -> NodeFolder:
    return ChannelFolder.of(root, CHANNEL).node(LAB)


def open_log(root: Path, type: EventType | None = SIGHTING, **how: Any) -> ChannelLog:
    return ChannelLog.open(Log(root, **how), CHANNEL, LAB, type)


def two_days(root: Path, type: EventType = EVERYTHING) -> list[Path]:
    """Events of three sources on two days, at rest."""
    make = everything if type is EVERYTHING else sighting
    with open_log(root, type) as log:
        for n in range(1, 41):
            log.append("b", n, NOON + n * DAY // 40, type.encode(make(n)))
            log.append("a", n, NOON + n * DAY // 40, type.encode(make(n + 100)))
        log.append_batch("c", 1, NOON, type.to_arrow(map(make, range(10))))
        log.append_rows("a", np.arange(50, 90), NOON // 1000 + np.arange(40) % 2 * 86_400_000_000,
                        type.to_arrow(map(make, range(40))))  # fmt: skip
        log.roll(wait=True)
    return [path for _, path in folder(root).channel.parquet()]


def test_a_file_for_each_day_in_order_with_statistics(tmp_path: Path) -> None:
    paths = two_days(tmp_path)
    assert [path.parent.name for path in paths] == ["event_day=2024-10-04", "event_day=2024-10-05"]
    assert [parquet_segment(path.name) for path in paths] == [(LAB, 1)] * 2
    count = 0
    for path in paths:
        file = pq.ParquetFile(path)
        found = file.read()
        count += len(found)
        assert found.schema.names[:4] == ["event_node", "event_source", "event_seq", "event_time"]
        assert all(field.nullable for field in found.schema)
        own = [
            (row["event_source"], row["event_seq"]) for row in found.select(["event_source", "event_seq"]).to_pylist()
        ]
        assert own == sorted(own)
        assert {time.date() for time in found["event_time"].to_pylist()} == {date.fromisoformat(path.parent.name[10:])}
        group = file.metadata.row_group(0)
        seqs = group.column(2).statistics
        assert (seqs.min, seqs.max) == (min(seq for _, seq in own), max(seq for _, seq in own))
        assert "DICTIONARY" in str(group.column(0).encodings) and "DICTIONARY" in str(group.column(1).encodings)
        noted = found.schema.metadata[b"headwater.sources"]
        assert (
            pa.scalar(noted.decode()).as_py().startswith('{"a": [')
            and found.schema.metadata[b"headwater.segment"] == b"1"
        )
    assert count == 130
    common = pq.read_schema(folder(tmp_path).channel.common_metadata)
    assert common.equals(pq.read_schema(paths[0]))
    assert not folder(tmp_path).wal(1).exists()


def test_everybody_reads_the_folder(tmp_path: Path) -> None:
    two_days(tmp_path)
    place = str(folder(tmp_path).channel.path)
    arrow = (
        ds.dataset(place, partitioning="hive")
        .to_table()
        .sort_by([("event_source", "ascending"), ("event_seq", "ascending")])
    )
    assert len(arrow) == 130 and "event_day" in arrow.schema.names
    own = arrow.drop_columns(["event_node", "event_source", "event_seq", "event_time", "event_day"])
    fields = [EVERYTHING.to_raw(everything(n)) for n in [*range(101, 141), *range(40), *range(1, 41), *range(10)]]
    assert EVERYTHING.arrow_to_raw(own) == fields
    pandas = pd.read_parquet(place)
    assert (
        len(pandas) == 130
        and set(pandas["event_node"]) == {LAB}
        and pandas["badge"].sum() == pa.compute.sum(own["badge"]).as_py()
    )
    polars = pl.scan_parquet(f"{place}/event_day=*/*.parquet", hive_partitioning=True)
    assert (
        polars.filter(pl.col("event_day") == date(2024, 10, 4)).collect().height
        == pandas["event_day"].eq("2024-10-04").sum()
    )
    assert polars.select(pl.col("badge").sum()).collect().item() == pandas["badge"].sum()
    kinds = polars.sort("event_source", "event_seq").collect()["kind"].cast(pl.String).to_list()
    assert kinds == arrow["kind"].to_pylist()


def test_a_type_that_evolved_is_one_table_for_everybody(tmp_path: Path) -> None:
    two_days(tmp_path, SIGHTING)
    with open_log(tmp_path, EVERYTHING) as log:
        log.append("z", 1, NOON + 5 * DAY, EVERYTHING.encode(everything(3)))
        log.roll(wait=True)
    place = folder(tmp_path).channel
    schema = pq.read_schema(place.common_metadata)
    arrow = ds.dataset(str(place.path), schema=schema, partitioning="hive").to_table()
    assert len(arrow) == 131 and arrow["levels"].null_count == 130
    assert pd.read_parquet(place.path, schema=schema)["kind"].notna().sum() == 1
    polars = pl.scan_parquet(sorted(map(str, (path for _, path in place.parquet())))[::-1], missing_columns="insert")
    assert polars.select("badge", "place").collect()["place"].null_count() == 130


@pytest.mark.parametrize("more", ["r: {k: i32, s: {t: text}}", "r: i32[3]", "r: {k: i32}[2]", "r: enum(A, B)[2]"])
def test_what_another_node_has_added_is_null_within_nothing(tmp_path: Path, more: str) -> None:
    """Parquet has no nulls within a record or an array that is itself missing, where its type has none."""
    old, new = as_event_type("x: i32"), as_event_type(f"x: i32, {more}")
    with ChannelLog.open(Log(tmp_path), CHANNEL, "old", old) as log:
        log.append_batch("s", 1, 1, old.to_arrow([{"x": 1}, {"x": 2}]))
        with ChannelLog.open(Log(tmp_path), CHANNEL, "new", new):
            pass
        log.roll(wait=True)
        (path,) = (tmp_path / CHANNEL).glob("event_day=*/old-*.parquet")
        assert pq.read_table(path, partitioning=None).column("r").to_pylist() == [None, None]


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1)])
def test_an_interrupted_rest_is_done_again_with_the_same_result(tmp_path: Path, kept: tuple[int, ...]) -> None:
    with open_log(tmp_path, rest_seconds=0) as log:
        for n in range(1, 21):
            log.append("a", n, NOON + n * DAY // 20, record(n))
    shutil.copytree(tmp_path, tmp_path.parent / "copy", dirs_exist_ok=True)
    paths = put_to_rest(folder(tmp_path), 1)
    contents = [pq.read_table(path, partitioning=None) for path in paths]
    # The process ended when some files were in place, one was being written, and the write-ahead file still there.
    wal = folder(tmp_path).wal(1)
    shutil.copy(folder(tmp_path.parent / "copy").wal(1), wal)
    inodes = {}
    for at, path in enumerate(paths):
        if at in kept:
            inodes[path] = path.stat().st_ino
        else:
            path.unlink()
    (wal.parent / ".event_day=2024-10-04-00000001.parquet.tmp").write_bytes(b"PAR1 half")
    with open_log(tmp_path) as log:
        assert log.last("a") == 20 and log.recovered is None
        assert not list(wal.parent.glob(".*.tmp"))
        log.append("a", 21, NOON, record(21))  # whatever was begun is this segment's
        log.roll(wait=True)
    found = [path for _, path in folder(tmp_path).channel.parquet()]
    assert found == paths
    rows = [pq.read_table(path, partitioning=None) for path in found]
    assert sum(map(len, rows)) == 21
    assert rows[1].equals(contents[1])
    if 1 in kept:  # it had all its events: it is not written again
        assert paths[1].stat().st_ino == inodes[paths[1]]


def test_damage_before_rest_keeps_the_segment(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for n in range(1, 9):
            log.append("a", n, NOON, record(n))
        wal = folder(tmp_path).wal(1)
        changed = bytearray(wal.read_bytes())
        changed[-300] ^= 1
        wal.write_bytes(changed)
        with pytest.raises(StoreError, match="headwater log repair"):
            log.roll(wait=True)
        log.append("a", 9, NOON, record(9))
    assert wal.exists() and not folder(tmp_path).channel.parquet()


def test_names_come_back() -> None:
    for name in ("plain", "_hidden", ".dot", "a/b#c %41 é", "a-00000001", "日本", "\ud800", "x=y:z*?"):
        made = encode_name(name)
        assert decode_name(made) == name and made[0] not in "._" and not set(made) & set("/#:=*? ")


def test_old_files_are_deleted_as_told(tmp_path: Path) -> None:
    with open_log(tmp_path, keep_bytes=0) as log:
        for n in range(1, 4):
            log.append("a", n, NOON + n * DAY, record(n))
            log.roll(wait=True)
        assert log.trouble is None
    with open_log(tmp_path) as log:
        assert log.last("a") == 3
