"""How hard the property tests try: as written in `make test`, many times as hard in `make soak`."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("HEADWATER_EFFORT", "1"))


def examples(count: int) -> int:
    """A number of random examples, scaled by HEADWATER_EFFORT."""
    return count * EFFORT
