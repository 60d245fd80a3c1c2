"""How hard the tests try: `make test` tries each thing some times, `make soak` many times as often."""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("HEADWATER_EFFORT", "1"))
FEWEST = 10  # random examples of a property, if there are so many


def examples(count: int) -> int:
    """A number of random examples: an eighth of them in `make test`, HEADWATER_EFFORT times as many in `make soak`."""
    return count * EFFORT if EFFORT > 1 else max(min(count, FEWEST), count // 8)


def rounds(few: int, many: int) -> int:
    """How often something is done: a few times in `make test`; in `make soak`, HEADWATER_EFFORT times as often as it
    takes to be rather sure."""
    return many * EFFORT if EFFORT > 1 else few
