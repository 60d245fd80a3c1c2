"""Time: what `node.every`, `node.after` and `node.deadline` return and publish, and the clocks that a node goes by.

A clock that is advanced by hand, for tests, is in `headwater.testing`.
"""

from headwater.channel.time.clock import Clock, SystemClock
from headwater.channel.timer_events import Deadline, Timeout, Timer

__all__ = ["Clock", "Deadline", "SystemClock", "Timeout", "Timer"]
