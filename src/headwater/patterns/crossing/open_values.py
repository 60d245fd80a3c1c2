"""Sets of open values, as they grow: how many may be asked for, and what two of them have together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Values = dict[str, dict[Any, int]]  # by slot: values, and when each was bound, in microseconds
MOST_OPEN = 10_000  # values; from here on all of them are asked for
OPEN_BYTES = 128 << 10  # of them; a node's budget for an interest is twice that, unless its owner has another


def too_many(*parts: Values) -> bool:
    """Whether that is more than sources can be asked for."""
    values = [value for slots in parts for times in slots.values() for value in times]
    return len(values) > MOST_OPEN or sum(len(v) if isinstance(v, str | bytes) else 8 for v in values) > OPEN_BYTES


def together(*parts: Values) -> Values:
    """All of them, each with the latest time at which it was bound."""
    found: Values = {}
    for slots in parts:
        for name, times in slots.items():
            known = found.setdefault(name, {})
            for value, time in times.items():
                known[value] = max(time, known.get(value, time))
    return found


def earliest(parts: Iterable[Values]) -> int | None:
    """When the first of them was bound; None if there are none."""
    return min((time for slots in parts for times in slots.values() for time in times.values()), default=None)


def asked(values: Values) -> Mapping[str, frozenset[Any]]:
    """As parameters of an interest."""
    return {name: frozenset(times) for name, times in values.items()}


__all__ = ["MOST_OPEN", "OPEN_BYTES", "Values", "asked", "earliest", "together", "too_many"]
