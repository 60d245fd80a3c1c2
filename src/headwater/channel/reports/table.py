"""Tables of plain text for people: aligned, with thousands separators, no wider than a terminal.

What is too wide gives way in this order: long texts are shortened in the middle, so that both ends of a hierarchical
name stay readable; then large numbers are rounded (12.3 M).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 118
_LEAST = 12  # characters that a text keeps
_GAP = "  "

Cell = str | int | None


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, width: int = WIDTH, indent: str = "  ") -> list[str]:
    """Lines of a table: texts to the left, numbers to the right; `None` is a dash.

    What a heading starts with is not shown: `?` leaves the column out if it has nothing but zeros and empty texts, `>`
    sets texts to the right."""
    kept = [at for at, title in enumerate(head) if "?" not in _flags(title) or any(row[at] for row in rows)]
    titles = [head[at].lstrip("?>") for at in kept]
    cells = [[row[at] for at in kept] for row in rows]
    room = width - len(indent) - len(_GAP) * (len(kept) - 1)
    shown = [[_text(cell) for cell in row] for row in cells]
    right = [">" in _flags(head[at]) or any(isinstance(row[at], int) for row in rows) for at in kept]
    if sum(_widths(titles, shown)) > room:
        limits = _limits(titles, shown, right, room)
        shown = [[shorten(text, limit) for text, limit in zip(row, limits, strict=True)] for row in shown]
    if sum(_widths(titles, shown)) > room:
        shown = [[rounded(cell) if isinstance(cell, int) else text for cell, text in zip(row, texts, strict=True)]
                 for row, texts in zip(cells, shown, strict=True)]  # fmt: skip
    widths = _widths(titles, shown)
    return [f"{indent}{_line(row, widths, right)}".rstrip() for row in (titles, *shown)]


def _widths(titles: list[str], shown: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(titles, *shown, strict=True)]


def _limits(titles: list[str], shown: list[list[str]], right: list[bool], room: int) -> list[int]:
    """How wide each column may be: the widest text gives way first."""
    widths = _widths(titles, shown)
    while sum(widths) > room:
        texts = [at for at, number in enumerate(right) if not number and widths[at] > max(_LEAST, len(titles[at]))]
        if not texts:
            break
        widths[max(texts, key=lambda at: widths[at])] -= 1
    return widths


def _line(row: Sequence[str], widths: list[int], right: list[bool]) -> str:
    return _GAP.join(
        text.rjust(width) if number else text.ljust(width)
        for text, width, number in zip(row, widths, right, strict=True)
    )


def _flags(title: str) -> str:
    return title[: len(title) - len(title.lstrip("?>"))]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:,}"


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, with the middle left out."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def rounded(number: int) -> str:
    """A number in at most seven characters or so: 9,999, then 12.3 k, 4.56 M."""
    if abs(number) < 10_000:
        return f"{number:,}"
    value = float(number)
    for unit in ("k", "M", "G", "T"):
        value /= 1000
        if abs(value) < 999.5:
            return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f} {unit}"
    return f"{value:,.0f} T"


def block(pairs: Sequence[tuple[str, str | None]], *, width: int = WIDTH, indent: str = "  ") -> list[str]:
    """Lines of names and texts, the texts aligned and wrapped; what has no text is left out."""
    shown = [(shorten(name, width // 3), text) for name, text in pairs if text]
    column = max((len(name) for name, _ in shown), default=0) + len(_GAP)
    lines: list[str] = []
    for name, text in shown:
        first = f"{indent}{name.ljust(column)}"
        lines += textwrap.wrap(" ".join(text.split()), width, initial_indent=first,
                               subsequent_indent=" " * len(first), break_on_hyphens=False)  # fmt: skip
    return lines


__all__ = ["WIDTH", "Cell", "block", "rounded", "shorten", "table"]
