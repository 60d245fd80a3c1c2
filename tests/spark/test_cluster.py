"""The pipeline on a real standalone cluster, on loopback: a master, a worker, and two executors that it starts, each a
process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import cluster

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # several processes of Java, on machines that do other work
def test_the_whole_pipeline_on_a_cluster(tmp_path: Path) -> None:
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*given, str(ROOT)])}
    with cluster(workers=1, cores=2) as master:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.cluster_script", master, str(tmp_path)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.endswith("8910 logged, 288 loud, on the cluster\n"), done.stdout
