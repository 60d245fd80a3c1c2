"""The event service of one process: nodes, channels, sources and sinks, derived channels, dispatching, timers."""

from headwater.channel.channel import Channel
from headwater.channel.correlation.subscription import Correlation
from headwater.channel.correlation.tree import Match, all_of, any_of, on
from headwater.channel.node import Node
from headwater.channel.options.config import AsyncLoop, ByDeadline, ByPriority, Config, Inline, Pool, Queue
from headwater.channel.reports.counters import Counts, Latency
from headwater.channel.routing.letter import About
from headwater.channel.shutdown import Closing
from headwater.channel.source import Source
from headwater.channel.subscription import WAIT, Subscription
from headwater.channel.time.clock import ManualClock, SystemClock
from headwater.channel.timer_events import Timeout

__all__ = [
    "WAIT",
    "About",
    "AsyncLoop",
    "ByDeadline",
    "ByPriority",
    "Channel",
    "Closing",
    "Config",
    "Correlation",
    "Counts",
    "Inline",
    "Latency",
    "ManualClock",
    "Match",
    "Node",
    "Pool",
    "Queue",
    "Source",
    "Subscription",
    "SystemClock",
    "Timeout",
    "all_of",
    "any_of",
    "on",
]
