"""The same calls through Spark Connect, and its data source, with a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # Java starts, on machines that do other work
def test_spark_connect_gives_the_same_answers_reads_streams_and_publishes(tmp_path: Path) -> None:
    # The server's workers start in another folder, so relative entries would be lost.
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([*given, str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_script", str(tmp_path)],
        cwd=ROOT,
        # SPARK_TESTING: a port of its own, so that two runs on one machine do not meet.
        env={**os.environ, "PYTHONPATH": path, "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.stdout.endswith("agreed\n"), done.stdout + done.stderr
