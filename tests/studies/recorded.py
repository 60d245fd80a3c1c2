"""The results of the runs that docs/performance.md tells of, as `make performance`, `make soak` and
`make bench-patterns` left them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from headwater_studies.harness.result import Result
from headwater_studies.harness.run import STUDIES

NAMES = (*STUDIES, "soak")
FOLDER = Path(__file__).parent / "results"


def recorded(name: str) -> Result:
    """What a study found in that run."""
    path = FOLDER / f"{name}.json.gz"
    return Result.from_json(gzip.decompress(path.read_bytes()), str(path))


def recorded_rows(name: str) -> list[dict[str, Any]]:
    """What a benchmark found in its run: a row of a case each."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return found
