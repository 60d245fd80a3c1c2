"""Several channels together: filter trees for `node.correlate`, what it returns, and what that delivers."""

from headwater.channel.correlation.subscription import Correlation
from headwater.channel.correlation.tree import Condition, Match, all_of, any_of, on

__all__ = ["Condition", "Correlation", "Match", "all_of", "any_of", "on"]
