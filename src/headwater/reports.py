"""What `report()` of a node and of its parts returns, and what is counted in it."""

from typing import TYPE_CHECKING, Any

from headwater.channel.replay import ReplayReport
from headwater.channel.reports.counters import Counts, Latency
from headwater.channel.reports.report import (
    ChannelReport,
    NodeReport,
    Placement,
    SourceReport,
    SubscriptionReport,
)
from headwater.channel.shutdown import Closing
from headwater.extras import require

if TYPE_CHECKING:
    from headwater.federation.logs.server import LogReads
    from headwater.federation.report import ContactReport, FederationReport, PeerReport, RemoteCounts

__all__ = [
    "ChannelReport",
    "Closing",
    "ContactReport",
    "Counts",
    "FederationReport",
    "Latency",
    "LogReads",
    "NodeReport",
    "PeerReport",
    "Placement",
    "RemoteCounts",
    "ReplayReport",
    "SourceReport",
    "SubscriptionReport",
]
_FEDERATED = {
    "ContactReport": "headwater.federation.report",
    "FederationReport": "headwater.federation.report",
    "LogReads": "headwater.federation.logs.server",
    "PeerReport": "headwater.federation.report",
    "RemoteCounts": "headwater.federation.report",
}


def __getattr__(name: str) -> Any:
    """Those of federations need that extra, and are imported when they are asked for."""
    if name not in _FEDERATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("federation", f"headwater.reports.{name}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_FEDERATED[name]), name)
    return found
