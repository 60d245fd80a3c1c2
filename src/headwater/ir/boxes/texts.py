"""Texts and bytes: what is one value is computed, what is several is only known to be some text."""

from __future__ import annotations

from headwater.ir.boxes.interval import NO_VALUE, Bounds, Interval
from headwater.ir.boxes.whole import lengths
from headwater.ir.library import PLAIN

TESTS = ("starts_with", "ends_with", "contains", "like")
LENGTHS = ("length", "byte_length")
CHANGES = ("lower", "upper")


def call(fn: str, args: list[Bounds]) -> Bounds:
    """A function of texts."""
    miss = any(arg[3] for arg in args)
    if any(arg[0] is not None and arg[0] > arg[1] for arg in args):
        return (*NO_VALUE, False, miss)
    if all(arg[0] is not None and arg[0] == arg[1] for arg in args):
        found: Bounds = Interval.of(PLAIN[fn](*(arg[0] for arg in args)))
        return (found[0], found[1], False, miss)
    if fn in LENGTHS:
        return (*lengths(args[0])[:3], miss)
    return (None, None, False, miss) if fn in CHANGES else (0, 1, False, miss)
