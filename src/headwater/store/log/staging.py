"""Files that are put into a log all at once: gathered in a staging folder, then moved as a manifest says.

    ROOT/.work/<channel>/staging-<id>/
      lock             held by the process that fills it
      manifest.json    there once everything is: what is moved where. From then on it can only be finished
      ...              the files

Without a manifest nothing of it is in the log, and it is thrown away; with one, moving goes on where it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import StoreError
from headwater.store.log.layout import (
    STAGING,
    AtRest,
    ChannelFolder,
    log_id,
    make_folders,
    put_aside,
    sync_file,
    sync_folder,
    write_atomic,
)
from headwater.store.log.parquet_segment import at_rest_by_files
from headwater.store.log.schema import admit
from headwater.types import EventType

MANIFEST = "manifest.json"
Sources = Mapping[str, tuple[int, int]]  # of each source the last sequence number and time in microseconds


@dataclass(slots=True)
class Staging:
    """A staging folder of this process; `close` it, which throws away what was not committed."""

    folder: ChannelFolder
    id: str
    path: Path
    _lock: int

    @classmethod
    def open(cls, folder: ChannelFolder) -> Staging:
        made = uuid.uuid4().hex
        make_folders(folder.path)
        path = folder.work / f"{STAGING}{made}"
        make_folders(path)
        lock = _hold(path)
        assert lock is not None
        return cls(folder, made, path, lock)

    def commit(self, moves: Sequence[tuple[str, str]], *, node: str, sources: Sources, type: EventType | None) -> None:
        """Move files, each from a path in the staging folder to one in the channel's, so that readers see all or none
        of them; `type` becomes the channel's newest, and the log knows of the node's sources that they are so far."""
        _finish(self.folder, self.path, self.seal(moves, node=node, sources=sources, type=type))

    def seal(
        self, moves: Sequence[tuple[str, str]], *, node: str, sources: Sources, type: EventType | None
    ) -> dict[str, Any]:
        """Write the manifest: whoever finds it finishes what `commit` does. Returns it."""
        for source, _ in moves:
            sync_file(self.path / source)
        if type is not None:
            admit(self.folder, type)
        manifest = {"node": node, "sources": {name: list(last) for name, last in sources.items()}, "moves": list(moves)}
        write_atomic(self.path / MANIFEST, json.dumps(manifest).encode())
        return manifest

    def close(self) -> None:
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def recover(folder: ChannelFolder) -> list[str]:
    """Finish or undo what processes that have ended left behind; says what was done, a line each."""
    done = []
    for path in left_behind(folder):
        lock = _hold(path)
        if lock is None:  # it is being filled
            continue
        try:
            done.append(_settle(folder, path))
        finally:
            os.close(lock)
    done += [f"{path.name}: it is no longer where readers look for events" for path in put_aside(folder)]
    return done


def left_behind(folder: ChannelFolder) -> list[Path]:
    """Staging folders, of processes that run or have ended; also those where they once were, among the events."""
    return sorted([*folder.work.glob(f"{STAGING}*"), *folder.path.glob(f"_{STAGING}*")])


def _settle(folder: ChannelFolder, path: Path) -> str:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        shutil.rmtree(path, ignore_errors=True)
        return f"{path.name}: it was not complete, nothing of it is in the log; removed"
    except ValueError as error:
        raise StoreError(f"{os.fspath(path / MANIFEST)!r}: expected a manifest, found: {error}") from None
    _finish(folder, path, manifest)
    shutil.rmtree(path, ignore_errors=True)
    return f"{path.name}: its {len(manifest['moves']):,} files were complete and are in the log now"


def _hold(path: Path) -> int | None:
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _finish(folder: ChannelFolder, path: Path, manifest: Mapping[str, Any]) -> None:
    moves = [(path / source, folder.path / target) for source, target in manifest["moves"]]
    targets = {target.parent for _, target in moves}
    for each in sorted(targets):
        make_folders(each)
    node = folder.node(manifest["node"])
    before = AtRest.read(node.sources) or at_rest_by_files(node)  # of the others, while they are few
    with folder.exclusive():
        for source, target in moves:
            with suppress(FileNotFoundError):  # moved already
                source.rename(target)
    for each in targets:
        sync_folder(each)
    if manifest["sources"]:
        make_folders(node.path)
        log_id(node)
        last = dict(before.sources or {})
        for name, (seq, time) in manifest["sources"].items():
            last[name] = max(last.get(name, (0, 0)), (int(seq), int(time)))
        AtRest(before.segment, last).write(node.sources)


__all__ = ["MANIFEST", "Staging", "left_behind", "recover"]
