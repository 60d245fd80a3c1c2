"""The columns in which a log has what the service knew of each event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

LOG_META: Mapping[str, str] = MappingProxyType(
    {"node": "event_node", "source": "event_source", "seq": "event_seq", "time": "event_time"}
)


def log_meta(columns: Collection[str]) -> dict[str, str]:
    """What of `LOG_META` a frame with these columns has."""
    return {which: column for which, column in LOG_META.items() if column in columns}
