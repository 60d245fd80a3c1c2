"""Tables as values: shown on a page, written as CSV. A cell holds the number itself; its column says how to show it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

NOTE = "note"  # the column of remarks in files

Value = str | int | float | None
Kind = Literal[
    "text", "code", "int", "diff", "gap", "percent", "points", "bytes", "seconds", "factor", "time", "rate", "number"
]


@dataclass(frozen=True, slots=True)
class Column:
    """`group` is the heading above the headings of several columns; `digits` behind the point.

    "diff" and "points" (of percent) are differences that should be none; a "gap" may well be one. "time" (seconds),
    "rate" (per second) and "number" are measured, and shown with three digits.
    """

    title: str
    kind: Kind = "int"
    group: str = ""
    digits: int = 1

    @property
    def heading(self) -> str:
        """Both headings in one line."""
        return f"{self.group}: {self.title}" if self.group else self.title

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
        """With one line of headings: a group's before its column's own. What is marked † on a page is told in the last
        column, `note`: each remark with the heading of the column that it is on."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = [each.heading for each in self.columns]
        writer.writerow([*heads, NOTE])
        for row in self.rows:
            notes = "; ".join(f"† {heads[at]}: {said}" for at, said in sorted(row.remarks.items()))
            writer.writerow([*("" if value is None else value for value in row.values), notes])
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
        case "time":
            return time(value)
        case "rate":
            return rate(value)
        case "number":
            return three(value)
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


def three(value: float) -> str:
    """A number with three digits, or all of those before the point."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}".replace("-", "−")
    digits = 1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3
    shown = f"{value:.{digits}f}" if abs(value) >= 0.0995 else f"{value:.2g}"
    return shown.replace("-", "−")


def time(seconds: float) -> str:
    """A measured time with three digits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale * 0.9995:
            return f"{three(seconds / scale)} {unit}"
    return f"{three(seconds / 1e-9)} ns"


def rate(value: float) -> str:
    """So many a second, with three digits."""
    for scale, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= scale * 0.9995:
            return f"{three(value / scale)}{unit}/s"
    return f"{three(value)}/s"
