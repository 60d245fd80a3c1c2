"""The event service of one process: nodes, channels, sources and sinks, derived channels, dispatching, timers."""

from typing import TYPE_CHECKING

from headwater.late_names import late_names

if TYPE_CHECKING:
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

# Where each name is from: imported when it is first asked for, so that who needs one module of this package (the names
# of channels, say, as Spark's workers do) does not load all of them.
_MODULES = {
    "headwater.channel.channel": "Channel",
    "headwater.channel.correlation.subscription": "Correlation",
    "headwater.channel.correlation.tree": "Match all_of any_of on",
    "headwater.channel.node": "Node",
    "headwater.channel.options.config": "AsyncLoop ByDeadline ByPriority Config Inline Pool Queue",
    "headwater.channel.reports.counters": "Counts Latency",
    "headwater.channel.routing.letter": "About",
    "headwater.channel.shutdown": "Closing",
    "headwater.channel.source": "Source",
    "headwater.channel.subscription": "WAIT Subscription",
    "headwater.channel.time.clock": "ManualClock SystemClock",
    "headwater.channel.timer_events": "Timeout",
}
if not TYPE_CHECKING:  # to a type checker a name that is not above is an error
    __getattr__ = late_names(__name__, _MODULES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
