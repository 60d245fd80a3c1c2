"""Tables of plain text for people: aligned, with thousands separators; the same on a terminal, in a pipe and in a file.

What is laid out here is text and may be kept: no colours, no rules, nothing cut off for a terminal's width. Characters
count as the columns that they take up there (`text_width`).

A report's table is no wider than a page (`WIDTH`). What is too wide gives way in this order: long texts are shortened
in the middle, so that both ends of a hierarchical name stay readable; then large numbers are rounded (12.3 M).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from headwater.text_width import beginning, columns

WIDTH = 118
_LEAST = 12  # characters that a text keeps
_GAP = "  "

Cell = str | int | None


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], *, indent: str = "  "
) -> list[str]:
    """Lines of a table: its headings and rows, each column as wide as its widest cell, to the left or to the right."""
    lengths = [[columns(text) for text in row] for row in (head, *rows)]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    lines = []
    for row, taken in zip((head, *rows), lengths, strict=True):
        rooms = [" " * (width - length) for width, length in zip(widths, taken, strict=True)]
        cells = [room + text if at else text + room for text, room, at in zip(row, rooms, right, strict=True)]
        lines.append(f"{indent}{_GAP.join(cells)}".rstrip())
    return lines


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
    return aligned(titles, shown, right, indent=indent)


def _widths(titles: list[str], shown: list[list[str]]) -> list[int]:
    return [max(map(columns, column)) for column in zip(titles, *shown, strict=True)]


def _limits(titles: list[str], shown: list[list[str]], right: list[bool], room: int) -> list[int]:
    """How wide each column may be: the widest text gives way first."""
    widths = _widths(titles, shown)
    while sum(widths) > room:
        texts = [at for at, number in enumerate(right) if not number and widths[at] > max(_LEAST, len(titles[at]))]
        if not texts:
            break
        widths[max(texts, key=lambda at: widths[at])] -= 1
    return widths


def _flags(title: str) -> str:
    return title[: len(title) - len(title.lstrip("?>"))]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return cell if isinstance(cell, str) else f"{cell:,}"


def shorten(text: str, limit: int) -> str:
    """At most `limit` columns, with the middle left out."""
    text = " ".join(text.split())
    if columns(text) <= limit:
        return text
    head = (limit - 1) // 2
    end = beginning(text[::-1], limit - 1 - head)[::-1]
    return f"{beginning(text, head)}…{end}"


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


__all__ = ["WIDTH", "Cell", "aligned", "block", "rounded", "shorten", "table"]
