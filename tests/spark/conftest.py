"""One Spark session for all tests of this room: starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.session import session

# Spark notes the place in a program of every operation on a column, for messages about errors of programs: seven calls
# to Java instead of one.
UNTRACED = {"spark.python.sql.dataFrameDebugging.enabled": "false"}


@pytest.fixture(scope="session")
def java_errors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What Java, and Python in Spark's workers, say on their standard error: shown at the end, if anything fails."""
    path = tmp_path_factory.mktemp("spark") / "errors.txt"
    path.touch()
    yield path
    sys.stderr.write(path.read_text(encoding="utf-8", errors="replace"))


@pytest.fixture(scope="session")
def spark(java_errors: Path) -> Iterator[Any]:
    """A classic session on two cores, in a zone that is not UTC so that a dependence on it shows."""
    with _standard_error(java_errors):
        made = session(
            "headwater-tests",
            master="local[2]",
            **{"spark.sql.session.timeZone": "America/New_York", "spark.driver.memory": "1g", **UNTRACED},
        )
    yield made
    made.stop()


@contextmanager
def _standard_error(path: Path) -> Iterator[None]:
    """Processes that begin meanwhile have it there."""
    own = os.dup(2)
    with path.open("ab") as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def ansi(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Runs a test in both of Spark's modes."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)
