"""One Spark session for all tests of this room: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.spark.session import session

# Spark notes the place in a program of every operation on a column, for messages about errors of programs: seven calls
# to Java instead of one.
UNTRACED = {"spark.python.sql.dataFrameDebugging.enabled": "false"}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A classic session on two cores, in a zone that is not UTC so that a dependence on it shows."""
    made = session(
        "headwater-tests",
        master="local[2]",
        **{"spark.sql.session.timeZone": "America/New_York", "spark.driver.memory": "1g", **UNTRACED},
    )
    yield made
    made.stop()


@pytest.fixture(params=["true", "false"], ids=["ansi", "not-ansi"])
def ansi(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Runs a test in both of Spark's modes."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)
