"""A driver killed with -9 in the middle of its batches and started again: nothing is lost, nothing is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater import event_type
from headwater.interest import as_event_type
from headwater.patterns.run.identity import identity
from headwater.store.log import ChannelLog, Log
from headwater.store.log.log_folder import LogFiles
from tests.patterns import oracle
from tests.spark.live.killed_script import ALARMS, AT_A_TIME, COPY, DOOR, DOORS, LEFT_OPEN, copy, insist, watch
from tests.spark.live.logs import CHANNEL, put

ROOT = Path(__file__).parents[3]
READING = event_type(as_event_type("level: i64").record)
COUNT = 500
EVENTS = 120  # of doors, of two nodes
PAST = 1_700_000_000_000_000  # microseconds: long promised


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


def doors(log: Path) -> list[dict[str, Any]]:
    """Events of doors in a log, as the definition takes them. Some are opened at one node and shut at another."""
    made = []
    for source, node, states in (("a", "hall", ("open", "open", "shut")), ("b", "attic", ("shut", "open"))):
        events = [{"door": at * at % 7, "state": states[at % len(states)]} for at in range(EVENTS // 2)]
        put(log, event_type(as_event_type(DOOR).record), events, source=source, node=node, channel=DOORS, start=PAST)
        made += [
            {
                "channel": DOORS,
                "source": source,
                "node": node,
                "seq": seq,
                "time": PAST + seq * 60_000_000,
                "fields": event,
            }
            for seq, event in enumerate(events, 1)
        ]
    return made


def batches(out: Path, of: str = "checkpoint") -> int:
    commits = out / of / "commits"
    return len([entry for entry in commits.iterdir() if entry.name.isdigit()]) if commits.is_dir() else 0


@pytest.mark.timeout(900)  # Java starts, on machines that do other work
def test_a_driver_killed_in_the_middle(spark: Any, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    out.mkdir()
    put(log, READING, [{"level": at} for at in range(COUNT)])  # at rest
    tail = ChannelLog.open(Log(log), CHANNEL, "attic", READING)  # and in a write-ahead file
    tail.append_batch("b", 1, 1, READING.to_arrow([{"level": at} for at in range(COUNT, 2 * COUNT)]))
    tail.close()
    seen = doors(log)
    running = driver(log, out)
    pause = threading.Event()
    try:
        while batches(out) < 2 or batches(out, "alarms") < 2:
            assert running.poll() is None, (out / "killed.txt").read_text()[-4000:]
            pause.wait(0.02)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert batches(out) * AT_A_TIME < 2 * COUNT and batches(out, "alarms") * AT_A_TIME < EVENTS, "killed too late"
    put(log, READING, [{"level": 2 * COUNT + 1}], seqs=[COUNT + 5], segment=2)
    for run in (copy, watch):
        insist(partial(run, spark, str(log), str(out), limit=2 * COUNT, availableNow=True))
    expected = [at for at in range(2 * COUNT) if at % 3] + [2 * COUNT + 1]
    assert sorted(row["level"] for row in published(out, COPY)) == expected
    pattern = LEFT_OPEN.model
    matches = sorted(identity(pattern.fingerprint, m.events, m.deadline) for m in oracle.matches(pattern, seen))
    assert matches
    assert sorted(row["match"]["identity"] for row in published(out, ALARMS)) == matches


def published(out: Path, channel: str) -> list[dict[str, Any]]:
    log = LogFiles(out)
    (span,) = log.sources(channel)
    return [row for batch in log.read(channel, span.node, span.source, 0, None) for row in batch.to_pylist()]
