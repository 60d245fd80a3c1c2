"""The processes that play recorded nodes: how they end, and what is heard of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import FederationError
from headwater.interest import as_event_type
from headwater.store.log import ChannelLog, Log
from headwater.study.live import stage
from tests.base import GUARD

CHANNEL, READING = "office.reading", as_event_type("level: i32")
AT = 1_790_000_000_000_000  # microseconds


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    with ChannelLog.open(Log(tmp_path, sync="roll"), CHANNEL, "hall", READING) as log:
        log.append_rows("door", [1], [AT], READING.to_arrow([{"level": 1}]))
        log.roll(wait=True)
    return tmp_path


def test_one_that_crashes_is_named_with_its_signal_and_where_it_was(recording: Path) -> None:
    with stage(recording, CHANNEL, ["hall"], READING, facts={}) as ready:
        os.kill(ready._processes[0]._process.pid, signal.SIGSEGV)
        with pytest.raises(FederationError) as caught:
            ready._all("first")
    said = str(caught.value)
    assert said.startswith("the process that plays 'hall' was ended by SIGSEGV; it said: Fatal Python error: Segm")
    assert "player.py" in said and "in main" in said


def test_one_at_work_ends_with_its_parent(recording: Path) -> None:
    orders = (
        {"do": "load", "recording": str(recording), "channel": CHANNEL, "nodes": {"hall": "hall"}, "facts": {}},
        {"do": "play", "speed": 1.0, "begin": 0},  # it waits for its first event: for more than fifty years
    )
    # Whatever started it may have ignored alarms, which is handed on.
    command = ["sh", "-c", "trap '' ALRM; exec \"$@\"", "sh", sys.executable, "-m", "headwater.study.player"]
    player = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
    try:
        assert player.stdin is not None and player.stdout is not None
        player.stdin.write("".join(json.dumps(order) + "\n" for order in orders))
        player.stdin.flush()
        assert json.loads(player.stdout.readline()) == {"ok": 1}
        player.stdin.close()  # as the end of its parent does, however that came
        assert player.wait(GUARD) == -signal.SIGALRM
    finally:
        player.kill()
        player.wait()
        assert player.stdout is not None
        player.stdout.close()
