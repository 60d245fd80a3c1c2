"""A process that is killed while it appends: what it was told is logged is there, and in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.store.log import ChannelLog, Log
from tests.federation.nursery import Popen
from tests.store.log.samples import SIGHTING
from tests.store.log.test_writing import all_rows

CHILD = """
import sys, threading, time
import os
from headwater.store.log import ChannelLog, Log
from tests.store.log.samples import SIGHTING, record, sighting

root, sync = sys.argv[1:]
log = ChannelLog.open(Log(root, sync=sync, interval=0.01, roll_bytes=32768), "ie.sighting", "lab #1/é %", SIGHTING)
batch = SIGHTING.to_arrow([sighting(n) for n in range(20)])

def publish(name):
    seq = log.last(name) + 1
    while True:
        first = seq
        if name == "batches":
            ticket = log.append_batch(name, seq, time.time_ns(), batch)
            seq += 20
        else:
            ticket = log.append(name, seq, time.time_ns(), record(seq))
            seq += 1
        log.settle(ticket)
        os.write(1, f"{name} {seq - 1}\\n".encode())

for name in ("a", "b", "batches"):
    threading.Thread(target=publish, args=(name,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("sync", ["publish", "interval", "roll"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, sync: str) -> None:
    acknowledged: dict[str, int] = {}
    for lines in (1, 40, 1500):
        child = Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), sync], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        # Lines that it wrote before it was gone count too; each is written at once.
        for line in (*told, *child.stdout.read().splitlines()):
            name, seq = line.decode().split()
            acknowledged[name] = int(seq)
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        with ChannelLog.open(Log(tmp_path), "ie.sighting", "lab #1/é %", SIGHTING) as log:
            assert all(log.last(name) >= seq for name, seq in acknowledged.items())
            last = log.sources()
        rows = all_rows(tmp_path)
        by_source: dict[str, list[int]] = {}
        for row in rows:
            by_source.setdefault(row["event_source"], []).append(row["event_seq"])
            number = (row["event_seq"] - 1) % 20 if row["event_source"] == "batches" else row["event_seq"]
            assert (row["badge"], row["station"]) == (number, "st" * (number % 7))
        assert by_source == {name: list(range(1, seq + 1)) for name, seq in last.items()}
    with ChannelLog.open(Log(tmp_path), "ie.sighting", "lab #1/é %", SIGHTING) as log:
        log.roll(wait=True)
    assert len(all_rows(tmp_path)) == sum(last.values())
