"""For tests of programs that use Headwater."""

from headwater.channel.time.clock import ManualClock

__all__ = ["ManualClock"]
