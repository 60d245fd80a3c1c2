"""Small plots as SVG text: no script, colours from the page's style sheet, a description for those who do not see them.

Each plot is drawn for a width in pixels; a page shows a wide and a narrow drawing of the same numbers in turn. Exact
numbers are in titles, which browsers show under the pointer. Here are what all plots need and those over time; `bars`
has bars and dots, `xy` has series over two axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import MAXYEAR, UTC, datetime, timedelta
from html import escape
from itertools import pairwise
from math import log10

COLOURS = 12  # --c0 to --c11 of the style sheet; further series begin again
_TEXT = 12  # pixels
_LETTER = 6.4  # pixels, about
_MICRO = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400  # seconds
_EVERY = (  # seconds between ticks of an axis of time
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
    *(hours * 3600 for hours in (2, 3, 4, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)  # beyond that, ticks are at the beginning of months
_MONTH = 30 * _DAY  # about, in seconds
_WHOLE = 0.05  # of a step: what may lack of it so that it still counts as a whole one
_IN_PART, _VEIL = "recorded in part only", 0.6  # what is said of such steps; how much of an area they hide
NOTHING = 1e-9  # less than this is drawn as nothing: there is no scale for it


class Sheet:
    """Elements of a drawing, as they come."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self._parts = [
            f'<svg class="plot" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}" '
            f'role="img" aria-label="{escape(label, quote=True)}">'
        ]

    def add(self, text: str) -> None:
        self._parts.append(text)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.add(f'<line class="{style}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>')

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", style: str = "label") -> None:
        self.add(f'<text class="{style}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>')

    def path(self, points: str, style: str, title: str = "") -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.add(f'<path class="{style}" d="{points}">{inside}</path>')

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, title: str = "", opacity: float = 1
    ) -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        thin = "" if opacity == 1 else f' fill-opacity="{opacity}"'
        self.add(
            f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(height)}" '
            f'rx="2"{thin}>{inside}</rect>'
        )

    def dot(self, x: float, y: float, style: str, title: str, radius: float = 3) -> None:
        place = f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
        self.add(f'<circle class="{style}" {place}><title>{escape(title)}</title></circle>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>"])


def _n(value: float) -> str:
    """As few digits as a drawing needs."""
    return f"{value:.1f}".removesuffix(".0")


def letters(text: str) -> float:
    """About how long a text is, in pixels."""
    return sum(_LETTER * (1.3 if each.isupper() or each in "mwMW@%" else 1.1 if each.isdigit() else 1) for each in text)


# ── axes ──


def ticks(top: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to at least `top`, about `count` steps."""
    if top < NOTHING:
        return [0.0, 1.0]
    rough = top / count
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough:
        power /= 10
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    found = [0.0]
    while found[-1] < top:
        found.append(found[-1] + step)
    return found


def powers(low: float, high: float) -> list[float]:
    """Powers of ten that enclose two positive numbers."""
    low = max(low, NOTHING)
    found = [1.0]
    while found[0] > low:
        found.insert(0, found[0] / 10)
    while found[-1] < high:
        found.append(found[-1] * 10)
    while len(found) > 2 and found[1] <= low:
        found.pop(0)
    return found


def scale(values: Sequence[float], *, log: bool, count: int = 5) -> tuple[list[float], float]:
    """The ticks, and the value at the foot of the axis."""
    top = max(values, default=0.0)
    if not log:
        return ticks(top, count), 0.0
    positive = [value for value in values if value >= NOTHING]
    found = powers(min(positive, default=1.0), max(top, 1.0))
    return (found if len(found) > 1 else [found[0], found[0] * 10]), found[0]


def part_along(value: float, foot: float, top: float, *, log: bool) -> float:
    """How far along an axis a value is, from 0 to 1."""
    if not log:
        return (value - foot) / (top - foot)
    return 0.0 if value <= foot else log10(value / foot) / log10(top / foot)


def short(value: float) -> str:
    """A number on an axis."""
    for unit, each in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= each:
            return f"{value / each:g}{unit}"
    return f"{value:g}"


# ── over time ──


Span = tuple[int, int]  # microseconds since 1970: of the first event, and of the last


def areas(
    series: Mapping[str, Sequence[int]],
    *,
    start: int,
    step: int,
    width: int,
    height: int = 0,
    label: str,
    unit: str,
    covered: Span | None = None,
) -> str:
    """Series stacked over time, the first at the bottom. Times are microseconds since 1970, shown in UTC.

    Counts are drawn as steps, as wide as what they are counts of; those of which only a part is `covered` are marked.
    """
    frame = _Frame(
        series,
        start=start,
        step=step,
        width=width,
        height=height or _tall(width),
        label=label,
        stacked=True,
        covered=covered,
    )
    names = list(series)
    sums = [[0.0] * frame.steps]
    for name in names:
        sums.append([below + value for below, value in zip(sums[-1], series[name], strict=True)])
    for number, (name, (low, high)) in enumerate(zip(names, pairwise(sums), strict=True)):
        forth = " ".join(frame.stair(at, value) for at, value in enumerate(high))
        back = " ".join(frame.stair(at, low[at], back=True) for at in reversed(range(frame.steps)))
        drawn = f"M{forth} L{back} Z" if frame.steps else ""
        frame.sheet.path(drawn, f"area f{number % COLOURS}", f"{name}: {sum(series[name]):,} in all")
    frame.shade(_VEIL)  # above the areas, which may be as high as the plot
    return str(frame.done(unit))


def lines(
    series: Mapping[str, Sequence[int]],
    *,
    start: int,
    step: int,
    width: int,
    height: int = 0,
    label: str,
    unit: str,
    log: bool = False,
    covered: Span | None = None,
) -> str:
    """Series as lines over time, in steps as with `areas`. A logarithmic axis has no zero: there a line has a gap."""
    frame = _Frame(
        series,
        start=start,
        step=step,
        width=width,
        height=height or _tall(width),
        label=label,
        log=log,
        covered=covered,
    )
    for number, (name, values) in enumerate(series.items()):
        drawn, on = [], False
        for at, value in enumerate(values):
            if value or not log:
                drawn.append(("" if on else "M") + frame.stair(at, value))
            on = bool(value) or not log
        frame.sheet.path(" ".join(drawn), f"line s{number % COLOURS}", f"{name}: {sum(values):,} in all")
    return str(frame.done(unit))


def partial_steps(start: int, step: int, count: int, covered: Span | None) -> list[int]:
    """Which of so many steps the recording covers in part only: it begins or ends within them."""
    if covered is None or not count:
        return []
    first, last = covered
    found = {0} if first - start > _WHOLE * step else set()
    if start + count * step - last > _WHOLE * step:
        found.add(count - 1)
    return sorted(found)


def _tall(width: int) -> int:
    return 300 if width > 600 else 240


def _moments(start: int, span: int, most: float) -> Iterator[tuple[int, str]]:
    """Round times of an axis, at most about so many, as microseconds and as text."""
    every = next((each for each in _EVERY if span / (each * _MICRO) <= most), None)
    if every is None:
        yield from _months(start, span, most)
        return
    first = -(-start // (every * _MICRO)) * every * _MICRO
    for at in range(first, start + span + 1, every * _MICRO):
        moment = _EPOCH + timedelta(microseconds=at)
        begins = span > 1.5 * _DAY * _MICRO and not at % (_DAY * _MICRO)  # a day, of several
        if every >= _DAY or begins:
            yield at, f"{moment:%d %b}"
        else:
            yield at, f"{moment:%H:%M:%S}" if every < 60 else f"{moment:%H:%M}"


def _months(start: int, span: int, most: float) -> Iterator[tuple[int, str]]:
    """The beginnings of months or years."""
    every = next((each for each in _MONTHS if span / (each * _MONTH * _MICRO) <= most), _MONTHS[-1])
    while span / (every * _MONTH * _MICRO) > most:
        every *= 2
    begin = _EPOCH + timedelta(microseconds=start)
    number = -(-(begin.year * 12 + begin.month - 1) // every) * every
    while number // 12 <= MAXYEAR:
        moment = datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC)
        at = (moment - _EPOCH) // timedelta(microseconds=1)
        if at > start + span:
            return
        if at >= start:
            yield at, f"{moment:%b %Y}" if every < 12 else str(moment.year)
        number += every


class _Frame:
    """Axes of a plot over time."""

    def __init__(
        self,
        series: Mapping[str, Sequence[int]],
        *,
        start: int,
        step: int,
        width: int,
        height: int,
        label: str,
        stacked: bool = False,
        log: bool = False,
        covered: Span | None = None,
    ) -> None:
        self.steps = max((len(values) for values in series.values()), default=0)
        self._start, self._step = start, step
        columns = list(zip(*series.values(), strict=True))
        heights = [float(sum(each)) for each in columns] if stacked else [float(v) for each in columns for v in each]
        self._log = log
        self._ticks, self._foot = scale(heights, log=log, count=5 if width > 600 else 4)
        self.left, self.right, self.top, self.bottom = 44.0, width - 8.0, 30.0, height - 24.0
        self.sheet = Sheet(width, height, label)
        self._partial = partial_steps(start, step, self.steps, covered)
        if not stacked:
            self.shade()
        for value in self._ticks:
            self.sheet.line(self.left, self.y(value), self.right, self.y(value), "grid")
            self.sheet.text(self.left - 6, self.y(value) + 4, short(value), anchor="end")
        self._hours(width)

    def shade(self, opacity: float = 1) -> None:
        """Mark the steps that were recorded in part only."""
        for at in self._partial:
            wide = self.x(at + 1) - self.x(at)
            self.sheet.rect(self.x(at), self.top, wide, self.bottom - self.top, "partial", _IN_PART, opacity)

    def _hours(self, width: int) -> None:
        for at, text in _moments(self._start, self.steps * self._step, width / 70):
            x = self.x((at - self._start) / self._step)
            self.sheet.line(x, self.bottom, x, self.bottom + 4, "axis")
            wide = letters(text) / 2  # to either side, where there is room for it
            anchor = "end" if x + wide > self.right + 8 else "start" if x < wide else "middle"
            self.sheet.text(x, self.bottom + 18, text, anchor=anchor)

    def stair(self, at: int, value: float, *, back: bool = False) -> str:
        """The two ends of a step, at the height of its value."""
        ends = (at + 1, at) if back else (at, at + 1)
        return " ".join(f"{_n(self.x(end))},{_n(self.y(value))}" for end in ends)

    def x(self, at: float) -> float:
        return self.left + (self.right - self.left) * at / max(self.steps, 1)

    def y(self, value: float) -> float:
        part = part_along(value, self._foot, self._ticks[-1], log=self._log)
        return self.bottom - (self.bottom - self.top) * part

    def done(self, unit: str) -> Sheet:
        self.sheet.line(self.left, self.bottom, self.right, self.bottom, "axis")
        self.sheet.text(2, 14, scaled(unit, self._log), style="unit")
        return self.sheet


def scaled(unit: str, log: bool) -> str:
    """The unit of an axis, with how it is scaled."""
    return f"{unit}, on a logarithmic scale" if log else unit
