"""Which thread calls a handler: the strategies that `dispatch=` of a subscription or a Config takes, as values."""

from headwater.channel.options.config import AsyncLoop, ByDeadline, ByPriority, Dispatch, Inline, Pool
from headwater.channel.subscription import WAIT

__all__ = ["WAIT", "AsyncLoop", "ByDeadline", "ByPriority", "Dispatch", "Inline", "Pool"]
