"""A driver killed with -9 in the middle of its batches and started again: nothing is lost, nothing is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import event_type
from headwater.interest import as_event_type
from headwater.store.log import ChannelLog, Log
from headwater.store.log.log_folder import LogFiles
from tests.spark.live.killed_script import AT_A_TIME, COPY, copy
from tests.spark.live.logs import CHANNEL, put

ROOT = Path(__file__).parents[3]
READING = event_type(as_event_type("level: i64").record)
COUNT = 500


def driver(log: Path, out: Path) -> subprocess.Popen[bytes]:
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    with (out / "killed.txt").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.live.killed_script", str(log), str(out)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*given, str(ROOT)])},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # the JVM is killed with it
        )


def batches(out: Path) -> int:
    commits = out / "checkpoint" / "commits"
    return len([entry for entry in commits.iterdir() if entry.name.isdigit()]) if commits.is_dir() else 0


@pytest.mark.timeout(900)  # Java starts, on machines that do other work
def test_a_driver_killed_in_the_middle(spark: Any, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    out.mkdir()
    put(log, READING, [{"level": at} for at in range(COUNT)])  # at rest
    tail = ChannelLog.open(Log(log), CHANNEL, "attic", READING)  # and in a write-ahead file
    tail.append_batch("b", 1, 1, READING.to_arrow([{"level": at} for at in range(COUNT, 2 * COUNT)]))
    tail.close()
    running = driver(log, out)
    pause = threading.Event()
    try:
        while batches(out) < 2:
            assert running.poll() is None, (out / "killed.txt").read_text()[-4000:]
            pause.wait(0.02)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert batches(out) * AT_A_TIME < 2 * COUNT, "killed too late"
    put(log, READING, [{"level": 2 * COUNT + 1}], seqs=[COUNT + 5], segment=2)
    copy(spark, str(log), str(out), limit=2 * COUNT, availableNow=True).awaitTermination()
    expected = [at for at in range(2 * COUNT) if at % 3] + [2 * COUNT + 1]
    copied = LogFiles(out)
    (span,) = copied.sources(COPY)
    found = [
        level
        for batch in copied.read(COPY, span.node, span.source, 0, None)
        for level in batch.column("level").to_pylist()
    ]
    assert sorted(found) == expected
