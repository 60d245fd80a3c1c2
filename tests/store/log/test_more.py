"""Who writes a log does not wait for who reads it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import StoreError
from headwater.store.log import retention
from headwater.store.log import snapshot as opening
from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.layout import ChannelFolder
from headwater.store.log.reader import ChannelReader
from headwater.store.log.settings import Log
from tests.store.log.logs import as_type

CHANNEL = "ie.tcd.sighting"
TYPE = as_type("badge: u32")
GUARD = 120.0


def fill(log: ChannelLog, first: int) -> None:
    log.append_batch("hall", first, time.time_ns(), pa.record_batch({"badge": pa.array(range(10), pa.uint32())}))


def test_a_reader_of_very_many_files_does_not_stop_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds all files of the channel while it reads, for hours perhaps: old ones are deleted when it is done, the
    log can be closed and opened, and others can open theirs."""
    monkeypatch.setattr(opening, "HANDLES", 3)
    monkeypatch.setattr(retention, "PATIENCE", 0.1)
    settings = Log(tmp_path, keep_bytes=0)
    with ChannelLog.open(Log(tmp_path), CHANNEL, "lab", TYPE) as log:
        for segment in range(5):
            fill(log, 1 + 10 * segment)
            log.roll(wait=True)
    reading = ChannelReader(tmp_path, CHANNEL).read(rows=1)
    next(reading)

    def use() -> None:
        with ChannelLog.open(settings, CHANNEL, "lab", TYPE) as log:
            fill(log, 51)
            log.roll(wait=True)
        ChannelLog.open(settings, CHANNEL, "hill", TYPE).close()

    used = threading.Thread(target=use, daemon=True)
    used.start()
    used.join(GUARD)
    assert not used.is_alive()
    assert "old files could not be deleted" in caplog.text and "at work with them" in caplog.text
    assert 1 + sum(batch.num_rows for batch in reading) == 50
    with ChannelLog.open(settings, CHANNEL, "lab", TYPE) as log:
        assert log.last("hall") == 60
        fill(log, 61)
        log.roll(wait=True)
    assert ChannelReader(tmp_path, CHANNEL).count() == 0


def test_the_lock_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    ChannelLog.open(Log(tmp_path), CHANNEL, "lab", TYPE).close()
    folder = ChannelFolder.of(tmp_path, CHANNEL)
    with (
        folder.shared(),
        pytest.raises(StoreError, match=r"at work with them for 0\.05 s"),
        folder.exclusive(wait=0.05),
    ):
        raise AssertionError("two have it")
    with folder.exclusive(wait=0.05):
        pass
