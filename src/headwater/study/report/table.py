"""Tables as values: shown on a page, written as CSV. A cell holds the number itself; its column says how to show it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = str | int | float | None
Kind = Literal["text", "code", "int", "diff", "gap", "percent", "points", "bytes", "seconds", "factor"]


@dataclass(frozen=True, slots=True)
class Column:
    """`group` is the heading above the headings of several columns; `digits` behind the point.

    "diff" and "points" (of percent) are differences that should be none; a "gap" may well be one.
    """

    title: str
    kind: Kind = "int"
    group: str = ""
    digits: int = 1

    @property
    def number(self) -> bool:
        return self.kind not in ("text", "code")


@dataclass(frozen=True, slots=True)
class Row:
    """A row's values, and remarks on some of them by the column's number."""

    values: tuple[Value, ...]
    remarks: Mapping[int, str] = field(default_factory=dict)
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`name` is a file's; `note` stands below; `folded` shows the title only, until it is opened."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"table {self.name}, row {number}: expected {len(self.columns)} values, found {len(row.values)}"
                )

    @property
    def equal(self) -> bool:
        """Whether every difference in it is none."""
        marked = [at for at, column in enumerate(self.columns) if column.kind in ("diff", "points")]
        return all(row.values[at] == 0 or (row.total and row.values[at] is None) for row in self.rows for at in marked)

    def csv(self) -> str:
        """With one line of headings: a group's before its column's own."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([f"{each.group}: {each.title}" if each.group else each.title for each in self.columns])
        writer.writerows(["" if value is None else value for value in row.values] for row in self.rows)
        return text.getvalue()


def rows(values: Iterable[tuple[Value, ...]]) -> tuple[Row, ...]:
    """Rows without remarks."""
    return tuple(Row(each) for each in values)


def shown(value: Value, column: Column) -> str:
    """A value as text for people."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    match column.kind:
        case "diff" | "gap":
            return f"{value:+,}".replace("-", "−") if value else "0"
        case "points":
            return f"{value:+,.{column.digits}f}".replace("-", "−") if value else "0"
        case "percent":
            return f"{value:,.{column.digits}f} %".replace("-", "−")
        case "bytes":
            return size(value)
        case "seconds":
            return duration(value)
        case "factor":
            return f"{value:,.{column.digits}f} ×"
    return f"{value:,}".replace("-", "−")


def size(count: float) -> str:
    """Bytes, in the unit that leaves up to four digits."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 9_999.5:
            return f"{count:,.0f} {unit}" if unit == "B" or abs(count) >= 99.95 else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def duration(seconds: float) -> str:
    """Seconds, in the unit that suits them."""
    if seconds < 0.001:
        return f"{seconds * 1e6:,.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:,.1f} ms"
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.1f} min"
