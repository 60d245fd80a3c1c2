"""Made sightings for the benchmarks of the pipeline: a log at rest, with the shape of a badge study, of any size.

162 badges on 12 networks with 118 stations; each network is a node, each station a source. Who is seen where is drawn
at random, so the figures say nothing about people, only about speed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.interest import as_event_type
from headwater.store.log.layout import DAY_MICROSECONDS, ChannelFolder
from headwater.store.log.schema import first_table, write_table
from headwater.types import EventType

CHANNEL = "orl.sighting"
TYPE: EventType = as_event_type("badge: text, network: text, station: text, level: f64, time: timestamp")
BADGES = [f"0-0-0-0-{10 + i // 64}-{i % 64:x}" for i in range(162)]
NETWORKS = [f"ORL-Net#{i}" for i in range(12)]
STATIONS = [f"station-{i:03}" for i in range(118)]
KINDS = {badge: ("person", "equipment", "visitor")[i % 3] for i, badge in enumerate(BADGES)}
START = 20_700 * DAY_MICROSECONDS
FILE = 1_000_000  # events in a file
GROUP = 131_072


def make_log(root: Path, events: int) -> Path:
    """A log with so many events over one day for each ten million; kept for later runs."""
    where = root / f"log-{events}"
    if (where / "complete").exists():
        return where
    shutil.rmtree(where, ignore_errors=True)
    folder = ChannelFolder.of(where, CHANNEL)
    folder.path.mkdir(parents=True)
    table = first_table(TYPE, CHANNEL)
    write_table(folder, table)
    rng = np.random.default_rng(178)
    for number, start in enumerate(range(0, events, FILE)):
        count, network = min(FILE, events - start), number % len(NETWORKS)
        day = START // DAY_MICROSECONDS + number // 10
        rows = _rows(rng, count, network, day * DAY_MICROSECONDS, start)
        path = folder.day(day) / f"node-{network}-{number:08}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.cast(table.schema), path, row_group_size=GROUP, compression="snappy")
    (where / "complete").touch()
    return where


def _rows(rng: Any, count: int, network: int, start: int, first: int) -> pa.Table:
    own = [i for i in range(len(STATIONS)) if i % len(NETWORKS) == network]
    stations = rng.choice(own, count)
    stamps = pa.array(start + np.sort(rng.integers(0, DAY_MICROSECONDS, count))).view(pa.timestamp("us", tz="UTC"))
    columns = {
        "event_node": _texts(np.zeros(count, np.int32), [f"node-{network}"]),
        "event_source": _texts(stations, STATIONS),
        "event_seq": pa.array(np.arange(first + 1, first + count + 1)),
        "event_time": stamps,
        "badge": _texts(rng.integers(0, len(BADGES), count), BADGES),
        "network": _texts(np.full(count, network), NETWORKS),
        "station": _texts(stations, STATIONS),
        "level": pa.array(rng.random(count)),
        "time": stamps,
    }
    return pa.table(columns)


def _texts(codes: Any, values: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values)).cast(pa.utf8())


__all__ = ["BADGES", "CHANNEL", "KINDS", "NETWORKS", "STATIONS", "TYPE", "make_log"]
