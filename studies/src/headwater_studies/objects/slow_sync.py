"""A disk whose sync takes a given time, made so: what group commit gains must not depend on the disk that a benchmark
happens to run on.

Whatever syncs a state file calls `headwater.store.durability.sync`, with nothing locked but the right to sync; within
this block that function sleeps instead. As with a real one other threads run meanwhile, others may write, and who wants
to sync too waits for its end. What it is not: a device. It does not get slower with the bytes that are to be written,
nor with what other programs do, and nothing is on the disk when it returns. SQLite's own syncs, of checkpoints, take
what they take: one in 4,000 pages. A sleep is longer than it was told by what the system's timers need, about 0.06 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

from headwater.store import durability


@contextmanager
def slow_sync(seconds: float = 0.001) -> Iterator[None]:
    """Every sync takes this long."""
    before = durability.sync
    durability.sync = lambda descriptor: sleep(seconds)
    try:
        yield
    finally:
        durability.sync = before


__all__ = ["slow_sync"]
