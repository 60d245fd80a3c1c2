"""Several channels together: filter trees for `node.correlate`, what it returns, and what that delivers; operators
of your own for `node.operate`."""

from headwater.channel.correlation.operator_stage import Operator
from headwater.channel.correlation.subscription import Correlation, Derivation
from headwater.channel.correlation.tree import Condition, Match, all_of, any_of, on

__all__ = ["Condition", "Correlation", "Derivation", "Match", "Operator", "all_of", "any_of", "on"]
