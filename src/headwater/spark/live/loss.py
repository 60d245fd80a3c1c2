"""What retention has removed before a query read it: an error, or a warning that counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.errors import StoreError

Missing = tuple[str, str, int, int]  # node, source, first and last number

_log = logging.getLogger("headwater.spark")


def tell_of_loss(channel: str, missing: Iterable[Missing], *, fail: bool) -> None:
    """StoreError with `fail`; else it is said in the log of the process."""
    found = list(missing)
    if not found:
        return
    said = "; ".join(f"{node}/{source}: {first} to {last}" for node, source, first, last in found)
    count = sum(last - first + 1 for _, _, first, last in found)
    message = f"{channel}: retention removed events before this query read them ({said}; up to {count:,} in all)"
    if fail:
        raise StoreError(
            f"{message}. Keep events for longer (keep_seconds, keep_bytes of the log), or go on without them "
            'with .option("failOnDataLoss", "false")'
        )
    _log.warning("%s; going on, as failOnDataLoss is false", message)
