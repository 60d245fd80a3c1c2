"""Merging small files of days that are over into few large ones.

The merged files are written into a folder out of the readers' reach (`ROOT/.work`), together with links to the files
that stay as they are; then the two folders exchange their names at one moment. Who has files open goes on reading them;
who lists the day finds the old files or the new ones, and each event once in either. A program that has listed the old
files and opens them only later does not find them any more: it has to list again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from headwater.errors import StoreError
from headwater.late import np
from headwater.store.log import ordered_merge as merging
from headwater.store.log.folder_exchange import check_exchange, exchange
from headwater.store.log.footers import Range, footer
from headwater.store.log.layout import (
    DAY_KEY,
    ChannelFolder,
    day_name,
    encode_name,
    make_folders,
    parquet_segment,
    sync_folder,
)
from headwater.store.log.parquet_segment import ROW_GROUP
from headwater.store.log.rewrite import write_rested
from headwater.store.log.snapshot import Rested, rested_parts, table_of

MIB = 1 << 20
TARGET = 128 * MIB  # bytes of a merged file, about
MEMORY = 512 * MIB  # bytes of what is merged at a time, uncompressed
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Compacted:
    """What became of a channel's files."""

    channel: str
    days: int = 0  # those in which files were merged
    files_before: int = 0  # of those that were merged
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    left: tuple[str, ...] = field(default=())  # days that were not compacted, and why


@dataclass(frozen=True, slots=True)
class _Merge:
    """Files of one node that become one."""

    node: str
    parts: list[Rested]

    @property
    def segments(self) -> tuple[int, int]:
        spans = [_segments(part) for part in self.parts]
        return min(first for first, _ in spans), max(last for _, last in spans)


def compact(
    root: str | os.PathLike[str],
    channel: str,
    *,
    target_bytes: int = TARGET,
    today: bool = False,
    now: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Compacted:
    """Merge small files of each node, for all days that are over (`today`: the present one too).

    StoreError where that cannot be done in one step; nothing is changed then. `progress` is told bytes read."""
    folder = ChannelFolder.of(root, channel)
    table_of(folder)
    make_folders(folder.work)
    check_exchange(folder.work, folder.path)
    with folder.exclusive():
        clean(folder)
    last = int((time.time() if now is None else now) // DAY_SECONDS) - (0 if today else 1)
    done, left = Compacted(channel), []
    for day, path in folder.days():
        if day > last:
            continue
        with folder.shared():
            merges = _plan(folder, path, target_bytes)
        if not merges:
            continue
        try:
            made = _compact_day(folder, day, path, merges, progress)
        except _Changed as changed:
            left.append(f"{day_name(day)}: {changed}")
            continue
        old = [part for merge in merges for part in merge.parts]
        done = Compacted(
            channel,
            done.days + 1,
            done.files_before + len(old),
            done.files_after + len(merges),
            done.bytes_before + sum(part.size for part in old),
            done.bytes_after + made,
        )
    return replace(done, left=tuple(left))


def can_compact(root: str | os.PathLike[str], channel: str, *, target_bytes: int = TARGET) -> int:
    """How many bytes would be merged, of all days: the total of the progress."""
    folder = ChannelFolder.of(root, channel)
    with folder.shared():
        merges = [merge for _, path in folder.days() for merge in _plan(folder, path, target_bytes)]
    return sum(part.size for merge in merges for part in merge.parts)


class _Changed(Exception):
    """Someone else has taken away files that were being merged."""


def _plan(folder: ChannelFolder, path: Path, target: int) -> list[_Merge]:
    """Which files of a day become one."""
    parts = list(rested_parts(folder))
    # Write-ahead files after them: a segment that is coming to rest has had one for as long as it has been listed.
    waiting = {(each.node, segment) for each in folder.nodes() for segment, _ in each.wals()}
    by_node: dict[str, list[Rested]] = {}
    for part in parts:
        if part.path.parent != path or part.node is None or part.segment is None:
            continue
        if parquet_segment(part.path.name) not in waiting and part.size < target // 2:
            by_node.setdefault(part.node, []).append(part)
    merges = []
    for node, parts in sorted(by_node.items()):
        group: list[Rested] = []
        size = memory = 0
        for part in sorted(parts, key=_segments):
            weight = _memory(part)
            if group and (size + part.size > target or memory + weight > MEMORY):
                merges.append(_Merge(node, group))
                group, size, memory = [], 0, 0
            group.append(part)
            size, memory = size + part.size, memory + weight
        merges.append(_Merge(node, group))
    return [merge for merge in merges if len(merge.parts) > 1]


def _memory(part: Rested) -> int:
    return sum(group.bytes for group in part.footer.row_groups)


def _segments(part: Rested) -> tuple[int, int]:
    first, _, last = part.footer.notes.get("headwater.segments", "").partition("-")
    if first.isdigit() and last.isdigit():
        return int(first), int(last)
    assert part.segment is not None
    return part.segment, part.segment


def _compact_day(
    folder: ChannelFolder, day: int, path: Path, merges: list[_Merge], progress: Callable[[int], object] | None
) -> int:
    """Exchange the day's folder for one with merged files; how many bytes those have."""
    hidden = folder.work / f"{day_name(day)}.{uuid4().hex}"
    with _claimed(hidden):
        try:
            names: list[str] = []
            for merge in merges:
                names.append(_name(merge, {each.name for each in path.iterdir()}.union(names)))
                _merge(folder, hidden / names[-1], merge, progress)
            size = sum((hidden / name).stat().st_size for name in names)
            _put_in(folder, path, hidden, {part.path.name: part for merge in merges for part in merge.parts})
        finally:  # before the exchange it holds the new files, after it the old ones
            shutil.rmtree(hidden, ignore_errors=True)
    return size


def _name(merge: _Merge, taken: set[str]) -> str:
    """No segment's own name, so that nobody takes it for one."""
    first, last = merge.segments
    name = f"{encode_name(merge.node)}-{first:08d}~{last:08d}"
    more = ""
    while f"{name}{more}.parquet" in taken:
        more += "~"
    return f"{name}{more}.parquet"


def _merge(folder: ChannelFolder, path: Path, merge: _Merge, progress: Callable[[int], object] | None) -> None:
    """Write one file of several, in the order of their events, and look whether it has what they had; _Changed if one
    of them was taken away meanwhile, by retention."""
    table = table_of(folder)
    batches = []
    spans: dict[tuple[str, str], Range] = {}
    for part in merge.parts:
        try:
            for group in part.groups:
                batches.append(part.load(table, group.index, None))
            for key, (first, last, count) in part.spans().items():
                had = spans.get(key, (first, last, 0))
                spans[key] = (min(first, had[0]), max(last, had[1]), had[2] + count)
        except StoreError as error:
            if not part.path.exists():
                raise _Changed("its files were taken away meanwhile; run it again") from None
            raise error
        finally:
            part.close()
        if progress is not None:
            progress(part.size)
    whole = merging.arranged(merging.joined(batches), merging.order_in_file)
    seqs = merging.sequence(whole)
    sources = merging.ranks(whole.column("event_source"))
    if (np.diff(seqs)[np.diff(sources) == 0] <= 0).any():
        raise StoreError(
            f"log {os.fspath(merge.parts[0].path.parent)!r}: expected each event of node {merge.node!r} once, found "
            "some twice; `headwater log verify` says which"
        )
    pieces = (whole.slice(start, ROW_GROUP) for start in range(0, whole.num_rows, ROW_GROUP))
    write_rested(path, table.schema, pieces, node=merge.node, segments=merge.segments)
    made = footer(path)
    if made.spans != spans or made.rows != sum(part.footer.rows for part in merge.parts):
        raise StoreError(f"log {os.fspath(path)!r}: what was written is not what was read; nothing was exchanged")


def _put_in(folder: ChannelFolder, path: Path, hidden: Path, merged: dict[str, Rested]) -> None:
    """Exchange the folders, with everything in the old one that was not merged linked into the new one."""
    with folder.exclusive():
        for name, part in merged.items():
            try:
                same = (path / name).stat().st_size == part.size
            except FileNotFoundError:
                same = False
            if not same:
                raise _Changed("its files were taken away meanwhile; run it again")
        _link_rest(path, hidden, merged)
        sync_folder(hidden)
        exchange(hidden, path)
        # Whoever has begun a file meanwhile finds it where it was, when he gives it its name.
        _link_rest(hidden, path, merged)
        sync_folder(folder.path)
        sync_folder(folder.work)


def _link_rest(old: Path, new: Path, merged: dict[str, Rested]) -> None:
    for each in old.iterdir():
        if each.name in merged:
            continue
        try:
            with suppress(FileExistsError):
                (new / each.name).hardlink_to(each)
        except FileNotFoundError:
            continue  # a temporary file whose writer has given up
        except OSError as error:
            raise StoreError(
                f"log {os.fspath(each)!r}: the file system cannot link files ({error.strerror}), which compaction needs"
            ) from error


@contextmanager
def _claimed(hidden: Path) -> Iterator[None]:
    """A new hidden folder that nobody else cleans up while this lasts."""
    hidden.mkdir()
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def clean(folder: ChannelFolder) -> list[Path]:
    """Remove folders that a compaction has left that was ended; hold the exclusive lock."""
    removed = []
    for path in unfinished(folder):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                removed.append(path)
            finally:
                os.close(descriptor)
    return removed


def unfinished(folder: ChannelFolder) -> list[Path]:
    """The folders of compactions, that run or were ended; also where they once were, beside the days."""
    return sorted([*folder.work.glob(f"{DAY_KEY}=*"), *folder.path.glob(f".{DAY_KEY}=*")])


__all__ = ["Compacted", "can_compact", "clean", "compact", "unfinished"]
