"""What `report()` of a node and of its parts returns, and what is counted in it."""

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
