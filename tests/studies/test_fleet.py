"""The processes of a measurement end with the one that started them, and so does what they have started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.federation.nodes import eventually

PARENT = """
import json, time
from headwater_studies.fleet.worker import Worker

worker = Worker("tests.studies.serving")
print(json.dumps([worker.pid, worker.call("open")["server"]]), flush=True)
time.sleep(100_000)
"""


@pytest.mark.parametrize("what", ["the parent", "the process between"])
def test_none_outlives_its_parent(what: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=-1, text=True) as parent:
        try:
            assert parent.stdout is not None
            worker, server = json.loads(parent.stdout.readline())
            assert _runs(worker) and _runs(server)
            os.kill(parent.pid if what == "the parent" else worker, signal.SIGKILL)
            eventually(lambda: not _runs(worker) and not _runs(server))
        finally:
            parent.kill()


def _runs(pid: int) -> bool:
    """Whether it is there, and more than an entry that nobody has asked for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
