"""Aggregates over the values of many matches at once, each match's own in their order: bit for bit what one at a time
gives (`engine.views.aggregate`), since a sum of doubles depends on the order.

All matches take their first value together, then those that have a second one, and so on. Where few are left, which
have many values each, the rest is done one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.late import np
from headwater.patterns.engine.views import aggregate
from headwater.types.model import F64, U64, Type, promote

FEW = 16  # matches for which a step of all together takes longer than steps one by one

Step = Callable[[Any, Any], tuple[Any, Any]]  # from what was so far and values to what is then, and whether it fits


def fold(kind: str, type: Type, values: Any, starts: Any, lengths: Any) -> tuple[Any, Any]:
    """Of each group of values its aggregate, and whether it has one. Group g is `values[starts[g]:][:lengths[g]]`, all
    of them there; `kind` is as in a view, `type` that of the field."""
    if kind == "values":
        return lengths, np.ones(len(lengths), bool)
    wide = promote(type)
    there = np.ones(len(lengths), bool) if kind == "sum" else lengths > 0
    if kind == "mean":
        totals, _ = _stepped(kind, type, values.astype(np.float64), starts, lengths, there)
        with np.errstate(all="ignore"):
            return np.where(there, totals / np.maximum(lengths, 1), 0.0), there
    made = np.float64 if wide == F64 else np.uint64 if wide == U64 else np.int64
    return _stepped(kind, type, values.astype(made), starts, lengths, there)


def _stepped(kind: str, type: Type, values: Any, starts: Any, lengths: Any, there: Any) -> tuple[Any, Any]:
    """Value by value; `there` becomes false where a sum does not fit."""
    found = np.zeros(len(lengths), values.dtype)
    longest = np.argsort(-lengths, kind="stable")
    ends = np.searchsorted(-lengths[longest], -np.arange(int(lengths.max(initial=0)) + 1), side="left")
    begun = kind in ("sum", "mean")  # from zero: others from their first value
    step = _STEPS["sum" if begun else kind][values.dtype.kind]
    with np.errstate(all="ignore"):
        for at in range(len(ends) - 1):
            some = longest[: ends[at]]
            if len(some) < FEW:
                _one_by_one(kind, type, values, starts, lengths, some, found, there)
                break
            taken = values[starts[some] + at]
            if at or begun:
                taken, sound = step(found[some], taken)
                there[some] &= sound
            found[some] = taken
    return found, there


def _one_by_one(
    kind: str, type: Type, values: Any, starts: Any, lengths: Any, groups: Any, found: Any, there: Any
) -> None:
    for group in groups.tolist():
        own = values[starts[group] : starts[group] + lengths[group]].tolist()
        made = aggregate("sum" if kind == "mean" else kind, F64 if kind == "mean" else type, own)
        there[group] = made is not None
        found[group] = 0 if made is None else made


def _sum_of_doubles(so_far: Any, values: Any) -> tuple[Any, Any]:
    return so_far + values, True


def _sum_of_signed(so_far: Any, values: Any) -> tuple[Any, Any]:
    total = so_far + values
    return total, ((so_far ^ total) & (values ^ total)) >= 0


def _sum_of_unsigned(so_far: Any, values: Any) -> tuple[Any, Any]:
    total = so_far + values
    return total, total >= values


def _least(so_far: Any, values: Any) -> tuple[Any, Any]:
    return np.where(values < so_far, values, so_far), True


def _most(so_far: Any, values: Any) -> tuple[Any, Any]:
    return np.where(values > so_far, values, so_far), True


def _unless_nan(step: Step) -> Step:
    """NaN as soon as one is."""

    def stepped(so_far: Any, values: Any) -> tuple[Any, Any]:
        return np.where(np.isnan(so_far) | np.isnan(values), np.nan, step(so_far, values)[0]), True

    return stepped


# By the kind of aggregate, and numpy's kind of number.
_STEPS: dict[str, dict[str, Step]] = {
    "sum": {"f": _sum_of_doubles, "i": _sum_of_signed, "u": _sum_of_unsigned},
    "min": {"f": _unless_nan(_least), "i": _least, "u": _least},
    "max": {"f": _unless_nan(_most), "i": _most, "u": _most},
}

__all__ = ["fold"]
