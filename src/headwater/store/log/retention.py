"""Deleting the oldest files at rest: by age, and so that no more than so many bytes are left."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from headwater.errors import StoreError
from headwater.store.log.layout import ChannelFolder, parquet_segment, sync_folder
from headwater.store.log.snapshot import Rested, rested_parts

PATIENCE = 1.0  # seconds to wait for others; a node's logs come to rest one after the other, and wait with it


@dataclass(frozen=True, slots=True)
class Retired:
    """What was deleted."""

    files: int = 0
    bytes: int = 0
    events: int = 0


def apply(
    root: str | os.PathLike[str],
    channel: str,
    node: str,
    keep_seconds: float | None = None,
    keep_bytes: int | None = None,
    *,
    now: float | None = None,
) -> Retired:
    """Delete files of a node in which every event is older than `keep_seconds`, and then the oldest until what is left
    takes no more than `keep_bytes`. What is not at rest stays. Whoever has such a file open can read it to its end.

    A source's sequence numbers go on as before. `StoreError` if others are at work with the files just now."""
    for name, value in (("keep_seconds", keep_seconds), ("keep_bytes", keep_bytes)):
        if value is not None and not value >= 0:
            raise StoreError(f"{name}: expected 0 or more, found {value!r}")
    folder = ChannelFolder.of(root, channel)
    if (keep_seconds is None and keep_bytes is None) or not folder.path.is_dir():
        return Retired()
    with folder.shared():  # most often there is nothing to delete
        if not _doomed(folder, node, keep_seconds, keep_bytes, now):
            return Retired()
    with folder.exclusive(wait=PATIENCE):
        doomed = _doomed(folder, node, keep_seconds, keep_bytes, now)
        for part in doomed:
            part.path.unlink()
        for day in {part.path.parent for part in doomed}:
            sync_folder(day)
            with suppress(OSError):  # there is more in it
                day.rmdir()
    return Retired(len(doomed), sum(part.size for part in doomed), sum(part.footer.rows for part in doomed))


def _doomed(
    folder: ChannelFolder, node: str, keep_seconds: float | None, keep_bytes: int | None, now: float | None
) -> list[Rested]:
    parts = [part for part in rested_parts(folder, [node]) if part.node == node]
    waiting = {(node, segment) for segment, _ in folder.node(node).wals()}  # after them, as in compaction
    parts = [part for part in parts if parquet_segment(part.path.name) not in waiting]
    parts.sort(key=lambda part: (_last(part), part.segment or 0))
    doomed = []
    if keep_seconds is not None:
        least = ((time.time() if now is None else now) - keep_seconds) * 1_000_000
        doomed = [part for part in parts if _last(part) < least]
    if keep_bytes is not None:
        rest: Collection[Rested] = [part for part in parts if part not in doomed]
        left = sum(part.size for part in rest)
        for part in rest:
            if left <= keep_bytes:
                break
            doomed.append(part)
            left -= part.size
    return doomed


def _last(part: Rested) -> int:
    return max((group.times[1] for group in part.groups), default=0)


__all__ = ["Retired", "apply"]
