"""Composite events: what several events say together, in order, within a time, or by their absence.

Pattern(text, channels)               checked, and ready to run wherever the events are
seq, both, either, without, atom …    the same written in Python
Limits                                what a pattern may hold
"""

from typing import TYPE_CHECKING

from headwater.late_names import late_names

if TYPE_CHECKING:
    from headwater.patterns.model import Limits
    from headwater.patterns.notation.python import ANY, atom, both, either, param, seq, var, without
    from headwater.patterns.pattern import Pattern

__all__ = ["ANY", "Limits", "Pattern", "atom", "both", "either", "param", "seq", "var", "without"]

_MODULES = {
    "headwater.patterns.model": "Limits",
    "headwater.patterns.notation.python": "ANY atom both either param seq var without",
    "headwater.patterns.pattern": "Pattern",
}

if not TYPE_CHECKING:
    __getattr__ = late_names(__name__, _MODULES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
