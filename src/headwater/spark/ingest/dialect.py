"""How a CSV file is written, as its beginning shows: delimiter, comments, header, line ends within cells."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from headwater.spark.ingest.cells import joined_lines, split_cells

LOOKED_AT = 200  # lines that the delimiter is found by
# What parts cells in every file that has it, the likelier before; and what also parts times, words and numbers.
_STRONG, _WEAK = ";\t|,", " :"
_COMMENTS = ("#", "%", "//")
_VALUE = re.compile(
    r"\s*+(?:[+-]?(?=[.,' \u00a0\u202f]*+\d)[\d.,' \u00a0\u202f]++(?:[eE][+-]?\d++)?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|"
    r"\d{1,2}:\d\d.*|(?i:nan|true|false))\s*"
)


@dataclass(slots=True)
class Dialect:
    """`names`: of the columns; "" for one without a name. `header`: whether a line of the file has them."""

    delimiter: str
    names: list[str]
    header: bool
    comment: str = ""
    multiline: bool = False
    rows: list[list[str]] = field(default_factory=list)


def find_dialect(lines: list[str], rows: int) -> Dialect | None:
    """None where there is no line with anything in it."""
    lines = [line for line in lines if line.strip()]
    comment, above, lines = _without_comments(lines)
    if not lines:
        return None
    delimiter = find_delimiter(lines[:LOOKED_AT])
    table, multiline = _table(lines, delimiter, rows + 1)
    width = Counter(len(row) for row in table).most_common(1)[0][0]
    head = table[0]
    if not _is_header(head) and len(head) == width:
        names = _header_above(above, delimiter, width)
        return Dialect(delimiter, names or [f"c{i + 1}" for i in range(width)], False, comment, multiline, table[:rows])
    rows_below = [row for row in table[1:] if row != head]  # a header may come again
    return Dialect(delimiter, [cell.strip() for cell in head], True, comment, multiline, rows_below)


def _without_comments(lines: list[str]) -> tuple[str, str, list[str]]:
    """What comments begin with, the last one before anything else, and the lines without them."""
    for sign in _COMMENTS:
        if lines and lines[0].lstrip().startswith(sign):
            others = [line for line in lines if not line.lstrip().startswith(sign)]
            if others:
                above = lines[next(i for i, line in enumerate(lines) if line is others[0]) - 1]
                return sign, above.lstrip().removeprefix(sign), others
    return "", "", lines


def _header_above(comment: str, delimiter: str, width: int) -> list[str]:
    """The names in the last comment before the first record, if it has one for each column."""
    cells = [cell.strip() for cell in split_cells(comment.strip(" "), delimiter)]
    return cells if len(cells) == width > 1 and _is_header(cells) and len(set(cells)) == width else []


def find_delimiter(lines: list[str]) -> str:
    """The sign that parts most lines in as many cells as the first; dirty lines do not count for much."""
    best, most = ",", (False, 0.0)
    for sign in _STRONG:
        widths = [len(split_cells(line, sign)) for line in lines]
        width, often = Counter(widths).most_common(1)[0]
        share = often / len(lines)
        score = (widths[0] == width, round(share, 1))
        if width > 1 and share >= 0.6 and score > most:
            best, most = sign, score
    if most[1]:
        return best
    for sign in _WEAK:
        widths = [len(split_cells(line, sign)) for line in lines]
        if widths[0] > 1 and widths.count(widths[0]) / len(lines) >= 0.95:
            return sign
    return best


def _table(lines: list[str], delimiter: str, rows: int) -> tuple[list[list[str]], bool]:
    """The cells of lines, or of lines put together, whichever are more alike."""
    plain = [split_cells(line, delimiter) for line in lines[:rows]]
    if not any(line.count('"') % 2 for line in lines[:rows]):
        return plain, False
    joined = []
    for line in joined_lines(lines):
        joined.append(split_cells(line, delimiter))
        if len(joined) >= rows:
            break
    if _alike(joined) > _alike(plain):
        return joined, any("\n" in cell for row in joined for cell in row)
    return plain, False


def _alike(table: list[list[str]]) -> float:
    return Counter(len(row) for row in table).most_common(1)[0][1] / len(table)


def _is_header(cells: list[str]) -> bool:
    named = [cell for cell in cells if cell.strip()]
    return bool(named) and not any(_VALUE.fullmatch(cell) for cell in named)
