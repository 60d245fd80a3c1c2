"""One Spark session for all tests of this room: starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.session import session

ANSI = "spark.sql.ansi.enabled"
# Spark notes the place in a program of every operation on a column, for messages about errors of programs: seven calls
# to Java instead of one.
UNTRACED = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
# Spark writes Java for each plan and compiles it, which pays over many rows. Tests have few, and many plans.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


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
            **{
                "spark.sql.session.timeZone": "America/New_York",
                "spark.driver.memory": "1g",
                **UNTRACED,
                **INTERPRETED,
            },
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


@contextmanager
def _settings(spark: Any, given: Mapping[str, str]) -> Iterator[None]:
    """Of the session of all tests, for a while."""
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture
def compiled(spark: Any) -> Iterator[None]:
    """Plans become Java, as for everybody else: where a test is of what Spark makes of an expression."""
    with _settings(spark, COMPILED):
        yield


@pytest.fixture
def both_modes(spark: Any) -> Iterator[None]:
    """For a test that changes Spark's mode itself."""
    with _settings(spark, {ANSI: "true"}):
        yield


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def ansi(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Runs a test in both of Spark's modes."""
    with _settings(spark, {ANSI: request.param}):
        yield request.param
