"""Logs for the tests, at rest, written as a log writes them: any numbers, any nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headwater.store.log.layout import ChannelFolder
from headwater.store.log.schema import admit
from headwater.types import EventType

CHANNEL = "lab.reading"
DAY = 86_400_000_000
NOON = 1_800_000_000_000_000  # microseconds


def put(
    root: Path,
    type: EventType,
    events: Sequence[Any],
    *,
    source: str = "a",
    node: str = "hall",
    seqs: Sequence[int] | None = None,
    segment: int = 1,
    channel: str = CHANNEL,
    start: int = NOON,
) -> list[Path]:
    """Put events to rest, one file a day: one a minute after `start`, numbered from 1 unless `seqs` are given."""
    numbers = list(seqs) if seqs is not None else list(range(1, len(events) + 1))
    folder = ChannelFolder.of(root, channel)
    folder.path.mkdir(parents=True, exist_ok=True)
    table = admit(folder, type)
    days: dict[int, list[int]] = defaultdict(list)
    for at, seq in enumerate(numbers):
        days[(start + seq * 60_000_000) // DAY].append(at)
    made = []
    for day, rows in days.items():
        times = [start + numbers[at] * 60_000_000 for at in rows]
        rested = type.to_arrow([events[at] for at in rows])
        batch = table.batch(node, source, [numbers[at] for at in rows], times, rested)
        path = folder.node(f"{node}.{source}").parquet(day, segment)
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f".{path.name}.tmp")
        with pq.ParquetWriter(part, batch.schema) as writer:
            writer.write_batch(batch)
        part.rename(path)
        made.append(path)
    return made
