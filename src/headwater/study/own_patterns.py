"""Patterns in the report of a study of one's own: how often each would have fired, when, and its automaton."""

from __future__ import annotations

from functools import partial
from html import escape

from headwater.spark.backtest import PatternBacktest, PatternRow
from headwater.study.report.bars import Bar, columns
from headwater.study.report.html import Block, Figure, Heading, Text
from headwater.study.report.table import Column, Row, Table


def blocks(fired: PatternBacktest) -> list[Block]:
    """The section: all in a table, then each with its picture and its hours."""
    found: list[Block] = [_table(fired)]
    for row in fired.patterns:
        found += [
            Heading(row.name),
            Text(f"`{row.text}`"),
            Figure("What it waits for", partial(_picture, row), (), f"Engine: {row.explained.plan.engine}. {row.how}."),
        ]
        if row.matches:
            title = "Matches by the hour of the day"
            found.append(Figure(title, partial(_hours, row), (), "Hours are UTC."))
    return found


def _picture(row: PatternRow, width: int) -> str:
    drawn = row.explained.svg(width - 40)
    return f"<pre>{escape(row.explained.picture)}</pre>" if drawn is None else drawn


def _hours(row: PatternRow, width: int) -> str:
    items = [Bar(f"{hour}", count, title=f"{hour}:00 to {hour + 1}:00") for hour, count in enumerate(row.hours)]
    return columns(items, width=width, label=f"Bar chart: matches of {row.name} by hour", unit="matches")


def _table(fired: PatternBacktest) -> Table:
    """A row for each pattern."""
    rows = [
        Row((row.name, row.at, row.matches, row.everything.events, row.everything.bytes, row.atoms.events,
             row.atoms.bytes, row.results.bytes))
        for row in fired.patterns
    ]  # fmt: skip
    return Table(
        name="patterns",
        title="How often each would have fired, and what would cross",
        columns=(
            Column("pattern", "text"),
            Column("at", "text"),
            Column("matches"),
            Column("events", group="everything"),
            Column("bytes", "bytes", group="everything"),
            Column("events", group="atoms"),
            Column("bytes", "bytes", group="atoms"),
            Column("matches only", "bytes"),
        ),
        rows=tuple(rows),
        note="Atoms: what fits an element by itself, which is what leaves the sources.",
    )


__all__ = ["blocks"]
