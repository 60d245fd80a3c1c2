"""Series over two axes as SVG text, linear or logarithmic, with bands for the spread and a legend that names the lines
where there is room for it. Colours as in `svg`; broken lines are what was not measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite, log10
from typing import Literal

from headwater.study.report.svg import COLOURS, Sheet, letters, powers, short, ticks

Points = tuple[tuple[float, float], ...]
Style = Literal["line", "steps", "dots", "area"]
_ROOM = 8.0  # pixels between things


@dataclass(frozen=True, slots=True)
class Axis:
    """Of a plot. Values are in the unit that the title names; `least` and `most` are by the values if not said."""

    title: str
    log: bool = False
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one colour, in their order. `band`: what the repetitions lay between, at each of them."""

    name: str
    points: Points
    style: Style = "line"
    band: Points = ()
    dashed: bool = False  # computed or published, not measured here
    like: int | None = None  # in the colour of the series of this number; by itself its own


def xy(series: Sequence[Series], *, x: Axis, y: Axis, width: int, height: int = 0, label: str) -> str:
    """All of it."""
    tall = height or (340 if width > 600 else 280)
    legend = _Legend([each.name for each in series], width)
    across = _Along(x, [at for each in series for at, _ in each.points], round=False)
    heights = [value for each in series for _, value in each.points]
    heights += [value for each in series for pair in each.band for value in pair]
    up = _Along(y, heights, round=True)
    left = 14 + max(letters(short(each)) for each in up.ticks)
    above = _broken(_said(y.title, y.log), width - 4)
    frame = _Frame(left, width - 14.0, 11.0 + 15 * len(above), tall - 44.0, across, up)
    sheet = Sheet(width, tall + legend.height, label)
    frame.draw(sheet, _said(x.title, x.log), above)
    for number, curve in enumerate(series):
        frame.series(sheet, curve, _colour(number, curve))
    legend.draw(sheet, tall, series)
    return str(sheet)


class _Along:
    """Ticks, and how far along a value is, from 0 to 1."""

    def __init__(self, scale: Axis, values: Sequence[float], *, round: bool) -> None:
        self.log = scale.log
        usable = [each for each in values if isfinite(each) and (not scale.log or each > 0)]
        low = scale.least if scale.least is not None else min(usable, default=1.0)
        high = scale.most if scale.most is not None else max(usable, default=low + 1)
        if scale.log:
            self.ticks = powers(low, high)
            if len(self.ticks) == 1:
                self.ticks.append(self.ticks[0] * 10)
            tight = len(self.ticks) < 4  # little more than one power of ten: say where within it
            self.foot = self.ticks[0] if round and not tight else low
            self.top = self.ticks[-1] if round and not tight else high
            if tight:
                self.ticks = sorted({tick * by for tick in self.ticks for by in (1, 2, 5)})
        else:
            self.foot = 0.0 if scale.least is None and low >= 0 and (round or low < 0.3 * high) else low
            step = ticks(high - self.foot)[1]
            first = ceil(self.foot / step)
            self.ticks = [step * at for at in range(first, ceil(high / step) + 1)] or [self.foot]
            self.top = self.ticks[-1] if round and scale.most is None else high
        if self.top <= self.foot:
            self.top = self.foot * 10 if scale.log else self.foot + 1
        edge = (self.top - self.foot) * 1e-9
        inside = [each for each in self.ticks if self.foot - edge <= each <= self.top + edge]
        self.ticks = inside or [self.foot, self.top]

    def part(self, value: float) -> float:
        if self.log:
            return 0.0 if value <= self.foot else log10(value / self.foot) / log10(self.top / self.foot)
        return (value - self.foot) / (self.top - self.foot)


@dataclass(frozen=True, slots=True)
class _Frame:
    left: float
    right: float
    top: float
    bottom: float
    across: _Along
    up: _Along

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * max(0.0, min(1.0, self.across.part(value)))

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * max(0.0, min(1.0, self.up.part(value)))

    def draw(self, sheet: Sheet, x_title: str, y_title: Sequence[str]) -> None:
        for value in self.up.ticks:
            sheet.line(self.left, self.y(value), self.right, self.y(value), "grid")
            sheet.text(self.left - 6, self.y(value) + 4, short(value), anchor="end")
        end = -99.0
        for value in self.across.ticks:
            at, text = self.x(value), short(value)
            sheet.line(at, self.bottom, at, self.bottom + 4, "axis")
            if at - letters(text) / 2 > end + _ROOM:
                anchor = "end" if at > self.right - 12 else "middle"
                sheet.text(at, self.bottom + 18, text, anchor=anchor)
                end = at + letters(text) / 2
        sheet.line(self.left, self.bottom, self.right, self.bottom, "axis")
        for line, text in enumerate(y_title):
            sheet.text(2, 14 + 15 * line, text, style="unit")
        sheet.text(self.right, self.bottom + 36, x_title, anchor="end", style="unit")

    def series(self, sheet: Sheet, curve: Series, colour: int) -> None:
        shown = [(x, y) for x, y in curve.points if isfinite(x) and isfinite(y) and (y > 0 or not self.up.log)]
        if curve.band:
            both = list(zip(curve.points, curve.band, strict=True))
            forth = " ".join(f"{self.x(x):.1f},{self.y(high):.1f}" for (x, _), (_, high) in both)
            back = " ".join(f"{self.x(x):.1f},{self.y(low):.1f}" for (x, _), (low, _) in reversed(both))
            sheet.path(f"M{forth} L{back} Z", f"band f{colour}")
        if curve.style in ("line", "steps", "area") and shown:
            places = [(self.x(x), self.y(y)) for x, y in shown]
            if curve.style == "steps":
                places = [places[0], *(each for a, b in pairwise(places) for each in ((b[0], a[1]), b))]
            drawn = "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            if curve.style == "area":
                foot = f" L{places[-1][0]:.1f},{self.bottom:.1f} L{places[0][0]:.1f},{self.bottom:.1f} Z"
                sheet.path(drawn + foot, f"band f{colour}")
            style = "line dashed" if curve.dashed else "line"
            sheet.path(drawn, f"{style} s{colour}", curve.name)
        if curve.style == "dots" or (curve.style == "line" and not curve.dashed and len(shown) <= 40):
            for x, y in shown:
                sheet.dot(self.x(x), self.y(y), f"dot f{colour}", f"{curve.name}: {short(y)} at {short(x)}")


def _colour(number: int, series: Series) -> int:
    return (number if series.like is None else series.like) % COLOURS


def _said(title: str, log: bool) -> str:
    return f"{title}, logarithmic" if log else title


def _broken(text: str, width: float) -> list[str]:
    """In lines of that many pixels, between words."""
    found = [""]
    for word in text.split():
        longer = f"{found[-1]} {word}".strip()
        if letters(longer) > width and found[-1]:
            found.append(word)
        else:
            found[-1] = longer
    return found


class _Legend:
    """Names with their colours, in as many lines as they need."""

    def __init__(self, names: Sequence[str], width: float) -> None:
        self._places: list[tuple[float, int, str]] = []
        at, line = _ROOM, 0
        for name in names:
            long = 34 + letters(name)
            if at + long > width and at > _ROOM:
                at, line = _ROOM, line + 1
            self._places.append((at, line, name))
            at += long
        self.height = (line + 1) * 20.0 if names else 0.0

    def draw(self, sheet: Sheet, top: float, series: Sequence[Series]) -> None:
        for number, ((x, line, name), each) in enumerate(zip(self._places, series, strict=True)):
            y, colour = top + 20 * line + 6, _colour(number, each)
            if each.style == "dots":
                sheet.dot(x + 9, y, f"dot f{colour}", name)
            else:
                style = "line dashed" if each.dashed else "line"
                sheet.path(f"M{x:.1f},{y:.1f} {x + 18:.1f},{y:.1f}", f"{style} s{colour}")
            sheet.text(x + 23, y + 4, name)


__all__ = ["Axis", "Series", "xy"]
