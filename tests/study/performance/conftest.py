"""A short run of the real thing for every part of the studies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.study.fleet.worker import workers
from headwater.study.performance.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workers() as start:
        yield Bench(start=start, say=lambda _: None, folder=tmp_path, quick=True, rounds=1, master="local[2]")
