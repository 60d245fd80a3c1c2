"""One page that needs nothing else: a header, tiles, sections with text, plots and tables, and notes. No script."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Literal

from headwater.study.report.table import Column, Row, Table, Value, shown

# Pixels for which plots are drawn; the style sheet shows the one that fits, with letters of about their own size.
DRAWN = {"wide": 1180, "middle": 700, "narrow": 360}

State = Literal["", "good", "bad"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that sums something up."""

    value: str
    what: str
    more: str = ""
    state: State = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. `code` stands in backticks, **strong** in two stars, [links](#section) as in Markdown."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """Of a part of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """A list of paragraphs."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot, drawn for a width. `legend` names colours by number (-1: the mark), each with what is said of it."""

    title: str
    draw: Callable[[int], str]
    legend: tuple[tuple[int, str, str], ...] = ()
    below: str = ""


Block = Text | Heading | Notes | Figure | Table


@dataclass(frozen=True, slots=True)
class Section:
    """`key` is what links go to."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    short: str = ""  # in the navigation


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All of it. `facts` are shown at the foot."""

    title: str
    over: str = ""
    lead: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: Mapping[str, str] | None = None

    def tables(self) -> list[Table]:
        return [block for section in self.sections for block in section.blocks if isinstance(block, Table)]


def render(page: Page) -> str:
    """The page as HTML."""
    links = "".join(f'<li><a href="#{s.key}">{escape(s.short or s.title)}</a></li>' for s in page.sections)
    tiles = "".join(map(_tile, page.tiles))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title>",
        f"<style>{_style_sheet()}</style></head><body>",
        '<a class="skip" href="#main">Skip to the results</a>',
        '<header class="top"><div class="wrap">',
        f'<div class="over">{escape(page.over)}</div>' if page.over else "",
        f"<h1>{escape(page.title)}</h1>",
        *(f"<p>{inline(each)}</p>" for each in page.lead),
        f'<ul class="tiles">{tiles}</ul>' if tiles else "",
        "</div></header>",
        f'<nav aria-label="Sections"><div class="wrap"><ul>{links}</ul></div></nav>' if links else "",
        '<main id="main" class="wrap">',
        *(_section(each) for each in page.sections),
        "</main>",
        f'<footer><div class="wrap">{_facts(page.facts or {})}</div></footer>',
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _style_sheet() -> str:
    return files("headwater.study.report").joinpath("style.css").read_text(encoding="utf-8")


def inline(text: str) -> str:
    """A line of text with its marks, escaped."""
    safe = escape(text, quote=False)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"\[([^\]]+)\]\((#[\w-]+)\)", r'<a href="\2">\1</a>', safe)


def _tile(tile: Tile) -> str:
    more = f'<div class="more">{inline(tile.more)}</div>' if tile.more else ""
    return (
        f'<li class="tile {tile.state}"><div class="value">{escape(tile.value)}</div>'
        f'<div class="what">{inline(tile.what)}</div>{more}</li>'
    )


def _section(section: Section) -> str:
    blocks = "\n".join(map(_block, section.blocks))
    return f'<section id="{section.key}"><h2>{inline(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{inline(text)}</p>"
        case Heading(text):
            return f"<h3>{inline(text)}</h3>"
        case Notes(items):
            return '<ul class="notes">' + "".join(f"<li>{inline(each)}</li>" for each in items) + "</ul>"
        case Figure():
            return _figure(block)
        case Table():
            return _table(block)


def _figure(figure: Figure) -> str:
    legend = "".join(
        f'<li><span class="key {f"f{colour}" if colour >= 0 else "dash"}"></span>{escape(name)}'
        f"{f' <b>{escape(said)}</b>' if said else ''}</li>"
        for colour, name, said in figure.legend
    )
    return (
        f"<figure><figcaption>{inline(figure.title)}</figcaption>"
        + "".join(f'<div class="{name}">{figure.draw(width)}</div>' for name, width in DRAWN.items())
        + (f'<ul class="legend">{legend}</ul>' if legend else "")
        + (f'<p class="below">{inline(figure.below)}</p>' if figure.below else "")
        + "</figure>"
    )


# ── tables ──

# What says that there are more columns. The style sheet gives them a width only where a table is wider than its window.
_HINT = (
    '<div class="hint" aria-hidden="true"><span>more columns: scroll →</span></div>'
    '<div class="edge" aria-hidden="true"></div>'
)


def _table(table: Table) -> str:
    compared = any(column.kind in ("diff", "points") for column in table.columns)
    chip = ""
    if compared:
        chip = _chip("no difference", "good") if table.equal else _chip("differences", "bad")
    shown_at = _filled(table)
    columns = [table.columns[at] for at in shown_at]
    head, body = _head(columns), "".join(_row(_picked(row, shown_at), columns) for row in table.rows)
    label = escape(table.title, quote=True)
    inner = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><div class="all">{_HINT}'
        f"<table>{head}<tbody>{body}</tbody></table></div></div>"
        + (f'<p class="tablenote">{inline(table.note)}</p>' if table.note else "")
    )
    if table.folded:
        return f"<details><summary>{inline(table.title)}{chip}</summary>{inner}</details>"
    return f"<h3>{inline(table.title)}{chip}</h3>{inner}"


def _filled(table: Table) -> list[int]:
    """Columns to show: one of words in which nothing is said, as where there were no faults, only takes room here."""
    said = [any(row.values[at] not in (None, "") for row in table.rows) for at in range(len(table.columns))]
    return [at for at, column in enumerate(table.columns) if at == 0 or column.number or said[at] or not table.rows]


def _picked(row: Row, columns: Sequence[int]) -> Row:
    remarks = {number: row.remarks[at] for number, at in enumerate(columns) if at in row.remarks}
    return Row(tuple(row.values[at] for at in columns), remarks, row.total)


def _chip(text: str, state: State) -> str:
    return f'<span class="chip {state}">{text}</span>'


def _starts(columns: Sequence[Column]) -> list[bool]:
    """Whether a column is the first of its group: there a rule is drawn."""
    return [at > 0 and column.group != columns[at - 1].group for at, column in enumerate(columns)]


def _head(columns: Sequence[Column]) -> str:
    starts = _starts(columns)
    lines = []
    if any(column.group for column in columns):
        cells, at = [], 0
        while at < len(columns):
            end = at + 1
            while end < len(columns) and columns[end].group == columns[at].group:
                end += 1
            style = "group start" if starts[at] else "group"
            scope = ' scope="colgroup"' if columns[at].group else ""
            cells.append(f'<th class="{style}" colspan="{end - at}"{scope}>{escape(columns[at].group)}</th>')
            at = end
        lines.append("<tr>" + "".join(cells) + "</tr>")
    cells = [
        f'<th scope="col" class="{_style(column, start)}">{escape(column.title)}</th>'
        for column, start in zip(columns, starts, strict=True)
    ]
    lines.append("<tr>" + "".join(cells) + "</tr>")
    return "<thead>" + "".join(lines) + "</thead>"


def _style(column: Column, start: bool) -> str:
    return " ".join(filter(None, ["" if column.number else "text", "start" if start else ""]))


def _row(row: Row, columns: Sequence[Column]) -> str:
    cells = []
    for at, (value, column, start) in enumerate(zip(row.values, columns, _starts(columns), strict=True)):
        text = escape(shown(value, column))
        if column.kind == "code" and value:
            text = f"<code>{text}</code>"
        if at in row.remarks:
            said = escape(row.remarks[at], quote=True)
            text += f'\u00a0<abbr class="flag" title="{said}" aria-label="{said}">†</abbr>'
        style = " ".join(filter(None, [_style(column, start), _judged(value, column)]))
        cells.append(f'<th scope="row">{text}</th>' if at == 0 else f'<td class="{style}">{text}</td>')
    return f"<tr{' class=total' if row.total else ''}>" + "".join(cells) + "</tr>"


def _judged(value: Value, column: Column) -> str:
    if value is None:
        return "none"
    if column.kind in ("diff", "points"):
        return "other" if value else "same"
    return ""


def _facts(facts: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in facts.items()) + "</dl>"
