"""Which of many interests an event satisfies: many are found by one look at the event."""

from headwater.match.counters import KINDS
from headwater.match.deferral import Later
from headwater.match.matcher import Matcher, SegmentPlan
from headwater.match.matching import Matching, new_totals

__all__ = ["KINDS", "Later", "Matcher", "Matching", "SegmentPlan", "new_totals"]
