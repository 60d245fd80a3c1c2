"""What a condition can be when its inputs are only known to lie in a box: true, false or unknown, never a guess."""

from headwater.ir.boxes.account import Part, account, describe
from headwater.ir.boxes.decider import Bounder, Decider, Outcome, bound, decide, limits
from headwater.ir.boxes.interval import ANYTHING, MISSING, Box, Interval
from headwater.ir.boxes.owners import Shares, split
from headwater.ir.boxes.tape import Limit

__all__ = [
    "ANYTHING",
    "MISSING",
    "Bounder",
    "Box",
    "Decider",
    "Interval",
    "Limit",
    "Outcome",
    "Part",
    "Shares",
    "account",
    "bound",
    "decide",
    "describe",
    "limits",
    "split",
]
