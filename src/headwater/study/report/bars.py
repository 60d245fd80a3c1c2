"""Bars and dots as SVG text. Bars begin at zero, and so are never drawn on a logarithmic axis: values that span powers
of ten are drawn as dots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.study.report.svg import COLOURS, NOTHING, Sheet, letters, part_along, scale, scaled, short


@dataclass(frozen=True, slots=True)
class Bar:
    """One of `bars` or `dots`: a label, the value, what it is compared with (a mark), a colour's number, its text.

    `title` is what is said under the pointer; a bar that is `apart` has some room before it.
    """

    label: str
    value: float
    mark: float | None = None
    colour: int = 0
    text: str = ""
    title: str = ""
    apart: bool = False

    @property
    def said(self) -> str:
        return self.text or f"{self.value:,.0f}"

    @property
    def tip(self) -> str:
        return f"{self.title or self.label}: {self.said}"


# ── one below the other ──


def bars(items: Sequence[Bar], *, width: int, label: str, unit: str) -> str:
    """Horizontal bars from zero, one below the other, each with its value; a mark where what it is compared with is."""
    rows = _Rows(items, width=width, label=label, log=False)
    for each, top in rows.places():
        rows.sheet.rect(rows.left, top, max(rows.x(each.value) - rows.left, 1), 17, _bar(each), each.tip)
        rows.tell(each, top)
    return rows.done(unit)


def dots(items: Sequence[Bar], *, width: int, label: str, unit: str, log: bool = False) -> str:
    """The same as dots on lines that say nothing of their own, for values that are far apart.

    What is nothing has no place on a logarithmic axis: its dot is empty, at the foot of it."""
    rows = _Rows(items, width=width, label=label, log=log)
    for each, top in rows.places():
        rows.sheet.line(rows.left, top + 8.5, rows.right, top + 8.5, "guide")
        hollow = "" if each.value >= NOTHING or not log else " none"
        rows.sheet.dot(rows.x(each.value), top + 8.5, f"dot f{each.colour % COLOURS}{hollow}", each.tip, 5.5)
        rows.tell(each, top)
    return rows.done(unit)


def _bar(each: Bar) -> str:
    return f"bar f{each.colour % COLOURS}"


class _Rows:
    """Rows of a plot with labels, an axis below them, and a value beside each."""

    def __init__(self, items: Sequence[Bar], *, width: int, label: str, log: bool) -> None:
        self._items, self._log = items, log
        values = [each.value for each in items] + [each.mark for each in items if each.mark is not None]
        self._ticks, self._foot = scale(values, log=log, count=5 if width > 600 else 4)
        self._above = width < 600  # no room beside the rows: labels above them
        longest = max((letters(each.label) for each in items), default=0)
        self.left = 10.0 if self._above else min(14 + longest, width * 0.4)
        self.right = width - 18 - max((letters(each.said) for each in items), default=0)
        self._tops, y = [], 28.0
        for each in items:
            y += 12 if each.apart else 0
            y += 20 if self._above and each.label else 0
            self._tops.append(y)
            y += 22
        self._end = y
        self.sheet = Sheet(width, y + 24, label)
        clear = -99.0  # where the last number ends
        for value in self._ticks:
            at, text = self.x(value), short(value)
            self.sheet.line(at, 22, at, y + 2, "grid")
            if at - letters(text) / 2 > clear:
                self.sheet.text(at, y + 18, text, anchor="middle" if at > 16 else "start")
                clear = at + letters(text) / 2 + 6

    def x(self, value: float) -> float:
        part = part_along(value, self._foot, self._ticks[-1], log=self._log)
        return self.left + (self.right - self.left) * max(0.0, min(1.0, part))

    def places(self) -> Iterator[tuple[Bar, float]]:
        """Each with the top of its row."""
        return zip(self._items, self._tops, strict=True)

    def tell(self, each: Bar, top: float) -> None:
        """Its mark, label and value."""
        if each.mark is not None:
            self.sheet.line(self.x(each.mark), top - 2, self.x(each.mark), top + 19, "mark")
        if self._above:
            self.sheet.text(2, top - 5, each.label)
        else:
            self.sheet.text(self.left - 10, top + 13, each.label, anchor="end")
        after = max(self.x(each.value), self.x(each.mark) if each.mark is not None else 0.0)
        self.sheet.text(after + 10, top + 13, each.said, style="value")

    def done(self, unit: str) -> str:
        self.sheet.text(2 if self._above else self.left, 14, scaled(unit, self._log), style="unit")
        return str(self.sheet)


# ── side by side ──


def columns(
    items: Sequence[Bar], *, width: int, height: int = 260, label: str, unit: str, every: int | None = None
) -> str:
    """Many thin bars from zero side by side, without labels, or with every so many-th; marks as in `bars`."""
    ranked = _Side(items, width=width, height=height, label=label, log=False, foot=18 if every else 0)
    for number, (each, x) in enumerate(ranked.places()):
        if every and number % every == 0:
            ranked.name(each, x)
        y = ranked.y(each.value)
        ranked.sheet.rect(x + ranked.pitch * 0.1, y, ranked.pitch * 0.8, ranked.low - y, _bar(each), each.tip)
        ranked.mark(each, x)
    return ranked.done(unit)


def ranks(items: Sequence[Bar], *, width: int, height: int = 260, label: str, unit: str, log: bool = False) -> str:
    """The same as dots, for values that are far apart."""
    ranked = _Side(items, width=width, height=height, label=label, log=log)
    for each, x in ranked.places():
        hollow = "" if each.value >= NOTHING or not log else " none"
        style, middle = f"dot f{each.colour % COLOURS}{hollow}", x + ranked.pitch / 2
        ranked.mark(each, x)  # it looks out on both sides of a dot that is on it
        ranked.sheet.dot(middle, ranked.y(each.value), style, each.tip, max(1.8, min(4.0, ranked.pitch * 0.36)))
    return ranked.done(unit)


class _Side:
    """Places side by side, and an axis on the left of them."""

    def __init__(
        self, items: Sequence[Bar], *, width: int, height: int, label: str, log: bool, foot: float = 0
    ) -> None:
        """`foot` is room for labels."""
        self._items, self._log = items, log
        values = [each.value for each in items] + [each.mark for each in items if each.mark is not None]
        self._ticks, self._foot = scale(values, log=log)
        self._left, self._right, self.low, self._high = 44.0, width - 8.0, height - 12.0 - foot, 30.0
        self.sheet = Sheet(width, height, label)
        for value in self._ticks:
            self.sheet.line(self._left, self.y(value), self._right, self.y(value), "grid")
            self.sheet.text(self._left - 6, self.y(value) + 4, short(value), anchor="end")
        self.pitch = (self._right - self._left) / max(len(items), 1)

    def y(self, value: float) -> float:
        part = part_along(value, self._foot, self._ticks[-1], log=self._log)
        return self.low - (self.low - self._high) * max(0.0, min(1.0, part))

    def places(self) -> Iterator[tuple[Bar, float]]:
        """Each with where its place begins."""
        return ((each, self._left + self.pitch * number) for number, each in enumerate(self._items))

    def name(self, each: Bar, x: float) -> None:
        self.sheet.text(x + self.pitch / 2, self.low + 18, each.label, anchor="middle")

    def mark(self, each: Bar, x: float) -> None:
        if each.mark is not None:
            self.sheet.line(x, self.y(each.mark), x + self.pitch, self.y(each.mark), "mark thin")

    def done(self, unit: str) -> str:
        self.sheet.line(self._left, self.low, self._right, self.low, "axis")
        self.sheet.text(2, 14, scaled(unit, self._log), style="unit")
        return str(self.sheet)


__all__ = ["Bar", "bars", "columns", "dots", "ranks"]
