"""Larger federations than can be run here, computed from a recorded log: who sends how much, and where it stops.

    known = recorded(spark, log, subscriptions)      one pass over the log: classes of events that the same ones want
    grow(spark, known, sizes, scenarios, costs)      what federations of these sizes would send, by topology
    grow_each(spark, federations, costs)             the same of several recordings, in one job

The model and what it assumes: `scenario`. Spark computes it: `projection`.
"""

from headwater_studies.scale.projection import grow, grow_each
from headwater_studies.scale.recorded import Recorded, recorded
from headwater_studies.scale.scenario import ASSUMPTIONS, TOPOLOGIES, Costs, Grown, Load, Scenario, Topology

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
