"""What a log stands on is on the disk with its first event: making a channel waits for no disk, and loses nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.store.log.layout import COMMON_METADATA
from tests.federation.nursery import run
from tests.store.log.samples import NOON, record, sighting
from tests.store.log.test_writing import all_rows, folder, open_log

ENDED = """
import os, sys
from pathlib import Path
from tests.store.log.samples import NOON, record
from tests.store.log.test_writing import open_log
open_log(Path(sys.argv[1]), sync="roll").append("a", 1, NOON, record(1))
os._exit(0)
"""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and folders that were synced, in order."""
    found: list[str] = []

    def told(sync: Any) -> Any:
        def wrapped(descriptor: int) -> None:
            sync(descriptor)
            found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

        return wrapped

    monkeypatch.setattr(os, "fsync", told(os.fsync))
    monkeypatch.setattr(os, "fdatasync", told(os.fdatasync))
    return found


def stands_on(root: Path) -> set[str]:
    here = folder(root)
    files = (here.channel.common_metadata, here.sources, here.id, here.wal(1))
    folders = (here.path, here.channel.private, here.channel.path, root, root.parent)
    return {str(each) for each in (*files, *folders)}


@pytest.mark.parametrize("sync", ["publish", "interval", "roll"])
def test_a_log_is_made_without_waiting_for_the_disk(tmp_path: Path, synced: list[str], sync: Any) -> None:
    root = tmp_path / "log"
    with open_log(root, sync=sync) as log:
        assert synced == []
        ticket = log.append("a", 1, NOON, record(1))
        log.settle(ticket) if sync == "publish" else log.sync()
        assert set(synced) == stands_on(root)
        synced.clear()
        log.append("a", 2, NOON, record(2))
        log.sync()
        assert set(synced) == {str(folder(root).wal(1))}


def test_one_that_was_ended_before_its_first_sync_stands_on_the_disk_all_the_same(
    tmp_path: Path, synced: list[str]
) -> None:
    root = tmp_path / "log"
    run([sys.executable, "-c", ENDED, str(root)], check=True, cwd=Path(__file__).parents[3], timeout=600)
    with open_log(root, sync="roll") as log:
        synced.clear()
        log.append("a", 2, NOON, record(2))
        log.sync()
        assert stands_on(root) - {str(tmp_path)} <= set(synced)
    assert [row["event_seq"] for row in all_rows(root)] == [1, 2]


@pytest.mark.parametrize("left", [(), (COMMON_METADATA,), ("id",), ("sources",), ("id", "sources")])
def test_a_power_cut_before_the_first_sync_leaves_a_log_that_opens(tmp_path: Path, left: tuple[str, ...]) -> None:
    """Names are there and contents are not, of all files or of all but some."""
    root = tmp_path / "log"
    with open_log(root, rest_seconds=0) as log:
        log.append("a", 1, NOON, record(1))
    here = folder(root)
    kept = {
        {COMMON_METADATA: here.channel.common_metadata, "id": here.id, "sources": here.sources}[name] for name in left
    }
    for path in {here.channel.common_metadata, here.id, here.sources, here.wal(1)} - kept:
        os.truncate(path, 0)
    with open_log(root) as log:
        log.append("a", 1, NOON, record(7))
        log.roll(wait=True)
    assert [(row["event_seq"], row["badge"]) for row in all_rows(root)] == [(1, sighting(7)["badge"])]
