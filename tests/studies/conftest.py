"""A short run of the real thing for every part of the studies; those that take longest are for the soak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater_studies.fleet.worker import workers
from headwater_studies.harness.bench import Bench
from tests.spark.conftest import java_errors, spark
from tests.studies.forked import ForkedWorker

__all__ = ["bench", "java_errors", "spark"]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all: federations that one part has run another need not run again."""
    with workers(ForkedWorker) as start:
        folder = tmp_path_factory.mktemp("bench")
        yield Bench(start=start, say=lambda _: None, folder=folder, quick=True, rounds=1, master="local[2]")
