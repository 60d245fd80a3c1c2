"""The event log: what a node's own sources published, written ahead and at rest as Parquet that anybody reads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.store.log.settings import Log

if TYPE_CHECKING:
    from headwater.store.log.channel_log import ChannelLog, Recovered
    from headwater.store.log.layout import channels
    from headwater.store.log.log_folder import LogFiles
    from headwater.store.log.progress_bar import Progress
    from headwater.store.log.reader import ChannelReader

# Imported when they are first asked for: a node without a log does without Parquet.
_LATER = {
    "ChannelLog": "channel_log",
    "ChannelReader": "reader",
    "LogFiles": "log_folder",
    "Progress": "progress_bar",
    "Recovered": "channel_log",
    "channels": "layout",
}

__all__ = ["ChannelLog", "ChannelReader", "Log", "LogFiles", "Progress", "Recovered", "channels"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
