"""What zones have to know of a condition: its truth for values, and what is certain of it for ranges of them.

`split.py` makes one of an interest. A condition takes the values of all owners in one row, owner after owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headwater.objects.zones.ranges import Range, Value, is_exact, values_of

Verdict = bool | None  # None: it may be either


class Condition(Protocol):
    """A condition over values of several owners."""

    @property
    def owners(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the values that each owner is asked for."""
        ...

    def holds(self, values: Sequence[Value]) -> bool:
        """Whether it is true of these values; what is missing or cannot be computed is not true."""
        ...

    def decide(self, area: Sequence[Range]) -> Verdict:
        """What is certain wherever in these ranges the values are: sound, not complete."""
        ...


def judge(condition: Condition, area: Sequence[Range]) -> Verdict:
    """What is certain; where the values themselves are known, that is always something."""
    return condition.holds(values_of(area)) if is_exact(area) else condition.decide(area)
