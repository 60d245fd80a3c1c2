"""A log whose folder is taken away under the node that writes it: that is said soon, and nothing is lost silently."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, i64
from headwater.errors import StoreError
from headwater.store.log import LogFiles
from headwater.store.log import channel_log as writing

CHANNEL, GUARD = "test.numbers", 120.0


class Number(Event, name="test.Number"):
    n: i64


def delete(path: Path) -> None:
    shutil.rmtree(path)


def rename(path: Path) -> None:
    path.rename(path.with_name("moved"))


def replace(path: Path) -> None:
    rename(path)
    shutil.copytree(path.with_name("moved"), path)


def empty(path: Path) -> None:
    """Only what is in it, as `rm -rf folder/*` does."""
    for each in path.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


WAYS: dict[str, Callable[[Path], None]] = {"deleted": delete, "renamed": rename, "replaced": replace, "emptied": empty}


@pytest.mark.parametrize("sync", ["publish", "interval", "roll"])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_noticed_soon_and_named(way: str, sync: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "log"
    node = Node("lab", log=Log(folder, sync=sync))
    try:
        channel = node.channel(CHANNEL, Number)
        source, got = channel.source("s"), list[int]()
        channel.subscribe(lambda event: got.append(event.n))
        for n in range(500):
            source.publish(Number(n))
        WAYS[way](folder)
        after = 0
        with caplog.at_level(logging.ERROR), pytest.raises(StoreError, match="deleted, moved or exchanged") as raised:
            for n in range(500, 5000):
                source.publish(Number(n))
                after += 1
        assert after <= (0 if sync == "publish" else writing.APPENDS_PER_CHECK)
        assert str(folder) in str(raised.value) and "open it again" in str(raised.value)
        assert "deleted, moved or exchanged" in caplog.text
        with pytest.raises(StoreError):  # and it stays so
            source.publish(Number(0))
        # Who was there has had what publish returned for.
        assert got == list(range(500 + after))
        with pytest.raises(StoreError, match="deleted, moved or exchanged"):
            channel.subscribe(print, history="all")  # what is not there any more is not taken for nothing
    finally:
        with suppress(StoreError):  # what was not synced is said again
            node.close(drain=False)
    if way in ("renamed", "replaced"):
        moved = LogFiles(folder.with_name("moved"))
        assert moved.reader(CHANNEL).sources()[0].last >= 500
    if way == "replaced":
        return
    with Node("lab", log=Log(folder)) as again:  # where the folder is free, another log begins
        assert again.channel(CHANNEL, Number).source("s").publish(Number(0)) == 1


@pytest.mark.parametrize("sync", ["interval", "roll"])
def test_it_is_noticed_while_little_is_published(sync: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not only after so many events: soon after the last."""
    folder = tmp_path / "log"
    node = Node("lab", log=Log(folder, sync=sync))
    try:
        source = node.channel(CHANNEL, Number).source("s")
        source.publish(Number(0))
        shutil.rmtree(folder)
        with caplog.at_level(logging.ERROR):
            source.publish(Number(1))
            pause = threading.Event()
            for _ in range(3000):
                if "deleted, moved or exchanged" in caplog.text:
                    break
                pause.wait(0.01)
        with pytest.raises(StoreError, match="deleted, moved or exchanged"):
            source.publish(Number(2))
    finally:
        with suppress(StoreError):
            node.close(drain=False)


def test_rolling_and_coming_to_rest_are_not_taken_for_it(tmp_path: Path) -> None:
    """Files come and go in the folder all the time, and that is as it should be."""
    with Node("lab", log=Log(tmp_path, roll_bytes=4096, keep_bytes=1)) as node:
        channel = node.channel(CHANNEL, Number)
        source = channel.source("s")
        for n in range(20_000):
            source.publish(Number(n))
        assert source.seq == 20_000


def test_a_folder_that_must_not_be_written_any_more_loses_nothing(tmp_path: Path) -> None:
    """Its file is open, and goes on growing; only a new one cannot be begun."""
    folder = tmp_path / "log"
    with Node("lab", log=Log(folder, roll_bytes=4096)) as node:
        source = node.channel(CHANNEL, Number).source("s")
        source.publish(Number(0))
        parts = [Path(path) for path, _, _ in os.walk(folder)]
        for part in parts:
            part.chmod(0o500)
        try:
            for n in range(1, 2000):
                source.publish(Number(n))
        finally:
            for part in parts:
                part.chmod(0o700)
    assert LogFiles(folder).reader(CHANNEL).sources()[0].last == 2000
