"""Logs made by hand, in the layout that the store writes, and what a backtest of them must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.store.log.layout import DAY_MICROSECONDS, ChannelFolder
from headwater.store.log.schema import first_table, write_table
from headwater.types import EventType

START = 1_790_000_000_000_000  # microseconds; a Monday in September 2026


def rows_of(
    type: EventType,
    node: str,
    source: str,
    events: Sequence[Any],
    *,
    first: int = 1,
    times: Sequence[int] | None = None,
) -> Any:
    """Rows of a log: one source's events, numbered from `first`, a second apart where no times are given."""
    count = len(events)
    stamps = list(times) if times is not None else [START + i * 1_000_000 for i in range(count)]
    table = first_table(type, "x")
    fields = type.to_arrow(events)
    return table.batch(node, source, pa.array(range(first, first + count), pa.int64()), pa.array(stamps), fields)


def write_log(
    root: Path, channel: str, type: EventType, parts: Sequence[Any], *, group: int = 131_072, name: str = "n"
) -> Path:
    """A log with a file for each part and day."""
    folder = ChannelFolder.of(root, channel)
    folder.path.mkdir(parents=True, exist_ok=True)
    write_table(folder, first_table(type, channel))
    for number, part in enumerate(parts):
        days = part.column("event_time").cast(pa.int64()).to_numpy() // DAY_MICROSECONDS
        for day in sorted(set(days.tolist())):
            rows = pa.Table.from_batches([part]).filter(pa.array(days == day))
            path = folder.day(day) / f"{name}-{number:08}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, path, row_group_size=group, compression="snappy")
    return root


def table_of(parts: Sequence[Any]) -> Any:
    return pa.Table.from_batches(parts)


def counts(row: Any) -> tuple[int, int, int, int, Mapping[str, int]]:
    """What the service counts too."""
    return row.evaluated, row.passed, row.rejected, row.undecided, dict(row.faults)
