"""The results of the run that docs/performance.md tells of, as `make performance` and `make soak` left them."""

from __future__ import annotations

import gzip
from pathlib import Path

from headwater_studies.harness.result import Result
from headwater_studies.harness.run import STUDIES

NAMES = (*STUDIES, "soak")
FOLDER = Path(__file__).parent / "results"


def recorded(name: str) -> Result:
    """What a study found in that run."""
    path = FOLDER / f"{name}.json.gz"
    return Result.from_json(gzip.decompress(path.read_bytes()), str(path))
