"""How large zones become: as wide as the outcome stays certain, with more room for owners that change more.

Values whose owners are asked anew start as points. First it is seen whether there is room for a few steps of all of
them at once; if not, zones are not worth their messages. Then what does not matter is set free, entirely or to one
side. The other sides share the room: a side that could go `m` alone (others kept near) and whose value spreads by `s`
in a unit of time gets a share of (s² m)^⅓, which makes the number of times that zones are left least, where the
condition is nearly linear. A common factor is then made as large as the outcome stays certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headwater.objects.zones.ranges import ANYTHING, Bounds, Number, Only, Range, is_number

COARSE, FINE = 2, 5  # halvings of the interval in which a width is looked for, once known within a factor of two
DOUBLINGS = 12  # of a width that is still too small: the next zones begin where these end
FEWEST_BITS = 1100  # halvings of a width that is too large: from the largest number to the smallest
LOPSIDED = 8  # times the room to the other side of a value: more is not needed, and would be taken from others
SPARE = 0.9  # of the room is given away: whoever leaves by a step leaves the outcome certain

Certain = Callable[[Sequence[Range]], bool]


class Motion(NamedTuple):
    """How a value moves: by a change, and in a unit of time."""

    step: float
    spread: float


class Side(NamedTuple):
    """One of the two sides of a range."""

    place: int
    up: bool


class Growth:
    """Widens some places of a row of ranges; `certain` says of a row whether the outcome is what it is, `room` for how
    many steps to each side there has to be room, `hints` how far sides could go alone the last time."""

    def __init__(
        self,
        row: Sequence[Range],
        motions: Mapping[int, Motion],
        certain: Certain,
        room: float,
        hints: dict[Side, float],
    ) -> None:
        self._row = list(row)
        self._motions = motions
        self._certain = certain
        self._room = room
        self._hints = hints
        self._values: dict[int, Number] = {}
        for place in motions:
            value = row[place]
            if isinstance(value, Only) and is_number(value.value):
                self._values[place] = value.value  # type: ignore[assignment]
        self._widths: dict[Side, float] = {}

    def grown(self) -> list[Range] | None:
        """The row with zones at the places that move; None where there is not room enough for all of them."""
        for place in self._values:
            for up in (False, True):
                self._widths[Side(place, up)] = self._room * self._motions[place].step
        if not self._certain(self._wide()):
            return None
        by_pace = sorted(self._motions, key=lambda place: -self._motions[place].spread)
        for place in by_pace:
            self._free(place)
        if any(self._flutters(place) for place in by_pace):
            return None
        bounded = [side for place in by_pace for up in (False, True) if self._is_bounded(side := Side(place, up))]
        self._share(bounded)
        return self._wide()

    def _flutters(self, place: int) -> bool:
        """Whether a value that has to stay what it is, and is no number, does not stay so for long: the square of its
        step is the share of changes by which it becomes another."""
        pinned = place not in self._values and self._row[place] is not ANYTHING
        return pinned and self._motions[place].step ** 2 * self._room > 1

    def _is_bounded(self, side: Side) -> bool:
        """Whether the outcome would not be certain with this side open, which is left open otherwise."""
        if side.place not in self._values or self._row[side.place] is ANYTHING:
            return False
        before = self._widths[side]
        if self._certain(self._wide({side: math.inf})):
            self._widths[side] = math.inf
            return False
        self._widths[side] = before
        return True

    def _free(self, place: int) -> None:
        before, self._row[place] = self._row[place], ANYTHING
        if not self._certain(self._wide()):
            self._row[place] = before

    def _share(self, sides: Sequence[Side]) -> None:
        """Widths of the sides that are bounded: their shares, times the largest factor that is allowed."""
        if not sides:
            return
        alone = dict[Side, float]()
        for side in sides:
            alone[side] = self._largest(_only(side), self._start(side), COARSE)
            self._hints[side] = alone[side] or self._start(side)
        for side, most in alone.items():
            across = self._hints.get(Side(side.place, not side.up), math.inf)
            alone[side] = min(most, LOPSIDED * across)
        spreads = self._spreads(alone)
        shares = {side: (spreads[side.place] ** 2 * most) ** (1 / 3) for side, most in alone.items()}

        def at(factor: float) -> dict[Side, float]:
            return {
                side: min(max(factor * share, self._widths[side]), max(alone[side], self._widths[side]))
                for side, share in shares.items()
            }

        ratios = [alone[side] / share for side, share in shares.items() if share]
        if ratios:
            best = self._largest(at, max(ratios) / len(ratios), FINE)
            self._widths.update(at(best * SPARE))

    def _spreads(self, alone: Mapping[Side, float]) -> dict[int, float]:
        """How far values come in a unit of time; those of which nothing was seen yet, as far as others do, each in
        proportion to the room it has alone."""
        room = dict[int, float]()
        for side, most in alone.items():
            room[side.place] = min(most, room.get(side.place, math.inf))
        seen = [self._motions[place].spread / most for place, most in room.items() if most]
        usual = sorted(share for share in seen if share)
        middle = usual[len(usual) // 2] if usual else 1.0
        return {place: self._motions[place].spread or middle * most for place, most in room.items()}

    def _start(self, side: Side) -> float:
        hint = self._hints.get(side, 0.0)
        return hint or self._widths[side] or abs(float(self._values[side.place])) * 1e-3 or 1e-3

    def _largest(self, widths: Callable[[float], dict[Side, float]], start: float, halvings: int) -> float:
        """The largest factor for which the outcome is certain, from below; 0 if there is none."""
        low, high = 0.0, start
        if self._certain(self._wide(widths(high))):
            for _ in range(DOUBLINGS):
                low, high = high, high * 2
                if not math.isfinite(high) or not self._certain(self._wide(widths(high))):
                    break
        else:
            for _ in range(FEWEST_BITS):
                high, tried = high / 2, high
                if high == 0.0:
                    return 0.0
                if self._certain(self._wide(widths(high))):
                    low, high = high, tried
                    break
        for _ in range(halvings):
            middle = (low + high) / 2
            if self._certain(self._wide(widths(middle))):
                low = middle
            else:
                high = middle
        return low

    def _wide(self, other: Mapping[Side, float] | None = None) -> list[Range]:
        """The row with the widths as they are, but for these."""
        other = other or {}
        row = list(self._row)
        for place, value in self._values.items():
            if row[place] is ANYTHING:
                continue
            down, up = Side(place, False), Side(place, True)
            low = value - other.get(down, self._widths[down])
            high = value + other.get(up, self._widths[up])
            row[place] = Bounds(low if low <= value else value, high if high >= value else value)
        return row


def _only(side: Side) -> Callable[[float], dict[Side, float]]:
    return lambda width: {side: width}
