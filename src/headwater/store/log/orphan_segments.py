"""Bringing to rest what nobody has open: after a process that was killed, or closed without the time for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headwater.errors import HeadwaterError, StoreError
from headwater.late import pa
from headwater.store.log import wal
from headwater.store.log.layout import ChannelFolder, NodeFolder, claim
from headwater.store.log.parquet_segment import put_to_rest
from headwater.store.log.snapshot import must_exist


@dataclass(slots=True)
class Repose:
    """What became of a channel's write-ahead files: so many segments came to rest, as these files; what was cut off
    their ends, which nobody was told is logged; and what was left as it is, with why."""

    channel: str
    segments: int = 0
    events: int = 0
    files: list[Path] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def bring_to_rest(
    root: str | os.PathLike[str], channel: str, *, progress: Callable[[int], object] | None = None
) -> Repose:
    """Make Parquet of all that a channel's log has in write-ahead files. What a process has open is left to that, and
    what is damaged to `headwater log repair`. `progress` is told bytes."""
    folder = ChannelFolder.of(root, channel)
    must_exist(folder)
    report = Repose(channel)
    for node in folder.nodes():
        if not node.wals():
            continue
        try:
            held = claim(node)
        except OSError as error:
            report.left.append(f"node {node.node!r}: {os.fspath(node.path)!r} cannot be written: {error.strerror}")
            continue
        except StoreError as error:
            report.left.append(
                f"node {node.node!r}: {str(error).rpartition('found ')[2].partition(';')[0]}; "
                "it comes to rest when that closes it"
            )
            continue
        try:
            _rest_of(node, report, progress or (lambda count: None))
        finally:
            os.close(held)
    return report


def _rest_of(node: NodeFolder, report: Repose, tell: Callable[[int], object]) -> None:
    for segment, path in node.wals():
        try:
            size, found = path.stat().st_size, wal.read(path)
            if not found.rows and found.header is not None and not found.damage:
                continue  # a tail with nothing in it, which the next that opens the log goes on with
            rows, torn = found.rows, found.torn
            del found
            report.files += put_to_rest(node, segment)
        except (HeadwaterError, OSError, pa.ArrowException) as error:
            report.left.append(str(error))
            return  # what comes after it is younger
        report.segments, report.events = report.segments + 1, report.events + rows
        if torn is not None and torn.bytes:
            report.cut.append(f"{os.fspath(path)!r}: {torn.bytes:,} bytes cut off its end, {torn.why}")
        tell(size)


def waiting_bytes(root: str | os.PathLike[str], channel: str) -> int:
    """How much is in write-ahead files: the total of the progress."""
    folder = ChannelFolder.of(root, channel)
    with folder.shared():
        paths = [path for each in folder.nodes() for _, path in each.wals()]
        return sum(path.stat().st_size for path in paths if path.exists())


__all__ = ["Repose", "bring_to_rest", "waiting_bytes"]
