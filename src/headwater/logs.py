"""Logs of events: how a node keeps one (`Log`), reading it in its folder (`LogFiles`) or from the nodes that have it
(`LogClient`), both in the same way (`LogReader`), and publishing what was logged again (`replay`)."""

from typing import TYPE_CHECKING, Any

from headwater.channel.replay import replay
from headwater.extras import require
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.log_reader import Batches, LogReader
from headwater.store.log.reader import Span
from headwater.store.log.settings import Log

if TYPE_CHECKING:
    from headwater.federation.logs.client import LogClient

__all__ = ["Batches", "Log", "LogClient", "LogFiles", "LogReader", "Span", "replay"]


def __getattr__(name: str) -> Any:
    if name != "LogClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("federation", "LogClient")
    from headwater.federation.logs.client import LogClient

    globals()[name] = LogClient
    return LogClient
