"""Larger federations than can be run here, computed from a recorded log: who sends how much, and where it stops.

    known = recorded(spark, log, subscriptions)      one pass over the log: classes of events that the same ones want
    grow(spark, known, sizes, scenarios, costs)      what federations of these sizes would send, by topology
    grow_each(spark, federations, costs)             the same of several recordings, in one job

The model and what it assumes: `headwater.spark.scale.model`. Spark computes it: `headwater.spark.scale.growing`.
"""

from headwater.spark.scale.growing import grow, grow_each
from headwater.spark.scale.model import ASSUMPTIONS, TOPOLOGIES, Costs, Grown, Load, Scenario, Topology
from headwater.spark.scale.recorded import Recorded, recorded

__all__ = [
    "ASSUMPTIONS",
    "TOPOLOGIES",
    "Costs",
    "Grown",
    "Load",
    "Recorded",
    "Scenario",
    "Topology",
    "grow",
    "grow_each",
    "recorded",
]
