"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.study.report.table import Column, Row, Table, shown
from headwater.text_tables import aligned

SHOWN = 40  # rows; files have them all
_WIDEST = 60  # characters of a cell


def plain(table: Table, *, most: int = SHOWN) -> str:
    """A table's title, headings and rows as text: words on the left, numbers on the right, remarks below."""
    heads = [each.heading for each in table.columns]
    cells = [_cells(row, table.columns) for row in table.rows[:most]]
    lines = [table.title, *aligned(heads, cells, [each.number for each in table.columns])]
    if len(table.rows) > most:
        lines.append(f"  … and {len(table.rows) - most:,} more")
    remarks = [f"{row.values[0]}: {said}" for row in table.rows[:most] for said in row.remarks.values()]
    return "\n".join([*lines, *(f"  † {each}" for each in dict.fromkeys(remarks))])


def _cells(row: Row, columns: Sequence[Column]) -> list[str]:
    return [
        cut(shown(value, column), _WIDEST) + (" †" if at in row.remarks else "")
        for at, (value, column) in enumerate(zip(row.values, columns, strict=True))
    ]


def cut(text: str, most: int) -> str:
    """A text that is no longer than that."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


__all__ = ["cut", "plain"]
