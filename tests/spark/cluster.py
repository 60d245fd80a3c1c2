"""A real standalone cluster on loopback: a master and workers, each a process of its own, for as long as a block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyspark

from headwater.spark.session import find_java

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def cluster(workers: int = 2, cores: int = 1) -> Iterator[str]:
    """The master's address, once so many workers have registered with it, each with so many cores."""
    with tempfile.TemporaryDirectory(prefix="headwater-cluster-") as folder:
        started: list[subprocess.Popen[str]] = []
        try:
            master = _start(started, folder, MASTER, "--port", "0", "--webui-port", "0")
            address = _line(master, r"Starting Spark master at (spark://\S+)")
            options = ["--cores", str(cores), "--memory", f"{cores}g", "--webui-port", "0"]
            homes = [str(Path(folder) / f"worker-{index}") for index in range(workers)]
            for said in [_start(started, folder, WORKER, *options, "--work-dir", home, address) for home in homes]:
                _line(said, r"Successfully registered with master (\S+)")
            yield address
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()
                if process.stderr is not None:
                    process.stderr.close()


def _start(started: list[subprocess.Popen[str]], folder: str, cls: str, *options: str) -> IO[str]:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": folder,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(given),  # workers start elsewhere
    }
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), cls, "--host", "127.0.0.1", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    assert process.stderr is not None
    return process.stderr


def _line(stream: IO[str], wanted: str) -> str:
    """What the pattern finds in the next line that has it; what comes after is read and forgotten."""
    seen = []
    for line in stream:
        seen.append(line)
        found = re.search(wanted, line)
        if found:
            _drain(stream)
            return found[1]
    raise AssertionError("".join(seen))


def _drain(stream: IO[str]) -> None:
    import threading

    def read() -> None:
        with suppress(ValueError):
            for _ in stream:
                pass

    threading.Thread(target=read, daemon=True).start()
