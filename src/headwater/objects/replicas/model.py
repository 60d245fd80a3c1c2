"""What a value is taken to do while nothing is told of it: the same at both ends, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from headwater.objects.object_types import member_of, with_member

if TYPE_CHECKING:
    from headwater.objects.replicas.bounds import Raw
    from headwater.objects.replicas.spec import Linear
    from headwater.types.model import Record


class Extrapolation:
    """By a model; without one, a value stays as it was told."""

    def __init__(self, model: Linear | None, record: Record) -> None:
        self._rates: Mapping[str, str] = {} if model is None else model.rates
        self._record = record

    def at(self, raw: Raw, elapsed: int) -> Raw:
        """What was told, so many microseconds later."""
        made = raw
        for path, value in self.moved(raw, elapsed).items():
            made = with_member(made, path, value, self._record)
        return made

    def moved(self, raw: Raw, elapsed: int) -> dict[str, float]:
        """Of the members that are another by then, their values."""
        found: dict[str, float] = {}
        for path, of in self._rates.items():
            start, rate = member_of(raw, path), member_of(raw, of)
            if start is not None and rate is not None and rate and isfinite(rate):
                found[path] = _line(start, rate, elapsed)
        return found

    def moves(self, raw: Raw) -> bool:
        """Whether it will be another by itself."""
        return bool(self._rates) and bool(self.moved(raw, 0))


def _line(start: float, rate: float, elapsed: int) -> Any:
    """Never turns round, rounding included: each step keeps the order of times."""
    return start + rate * (elapsed / 1_000_000)


__all__ = ["Extrapolation"]
