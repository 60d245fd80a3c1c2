"""Lengths of time as people write them: `2 seconds`, `1 hour 30 minutes`, `250 ms`."""

from __future__ import annotations

import re
from fractions import Fraction

_NAMES = {
    1: ("microsecond", "microseconds", "us", "µs"),
    1_000: ("millisecond", "milliseconds", "ms"),
    1_000_000: ("second", "seconds", "sec", "s"),
    60_000_000: ("minute", "minutes", "min", "m"),
    3_600_000_000: ("hour", "hours", "h"),
    86_400_000_000: ("day", "days", "d"),
    604_800_000_000: ("week", "weeks", "w"),
}
UNITS = {name: micros for micros, names in _NAMES.items() for name in names}
MAX_DIGITS = 18  # of a number: no time that can be meant needs more
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def micros(number: str, unit: str) -> int | None:
    """So many of a unit, in microseconds; None if that is no whole number of them."""
    if len(number) > MAX_DIGITS:
        return None
    exact = Fraction(number) * UNITS[unit]
    return int(exact) if exact.denominator == 1 else None


def shown(length: int) -> str:
    """Microseconds in the largest unit that divides them."""
    unit = next(unit for unit in sorted(_NAMES, reverse=True) if length % unit == 0)
    count = length // unit
    return f"{count} {_NAMES[unit][0 if count == 1 else 1]}"
