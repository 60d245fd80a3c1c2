"""Objects, transactions and turns: a node's model of its world, as values and rules only; it knows no channel, no node
and no network."""

from headwater.objects.builder import Computed, TransactionBuilder
from headwater.objects.operations import Outcome, Transaction
from headwater.objects.replicas.adaptation import Adaptive
from headwater.objects.replicas.spec import Linear
from headwater.objects.triggers.definition import count, over, result_of, was
from headwater.objects.turn import Cascades

__all__ = [
    "Adaptive",
    "Cascades",
    "Computed",
    "Linear",
    "Outcome",
    "Transaction",
    "TransactionBuilder",
    "count",
    "over",
    "result_of",
    "was",
]
