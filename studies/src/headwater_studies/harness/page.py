"""Results as pages: HTML of one study, Markdown of all of them, and text for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from headwater.study.report import html
from headwater.study.report.bars import bars as draw_bars
from headwater.study.report.bars import dots
from headwater.study.report.html import Figure, Heading, Notes, Page, Text, Tile
from headwater.study.report.plain import plain
from headwater.study.report.table import Column, Row, Table, duration, shown, size, three
from headwater.study.report.table import rate as per_second
from headwater.study.report.table import time as took
from headwater_studies.harness.bench import middle
from headwater_studies.harness.result import Bars, Block, Plot, Ratio, Result, Section
from headwater_studies.harness.xy import xy

WIDTH = 860  # pixels of a plot in a Markdown page
EQUAL = 0.97  # times as good: no less is taken as behind
FOLDER = "performance"  # of plots and results, beside the page


# ── one study ──


def page(result: Result) -> Page:
    """A study as a page."""
    sections = [_section(each) for each in result.sections]
    if result.ratios:
        sections.append(html.Section("ratios", "Beside others, in the same run", (_ratios(result.ratios), _how())))
    ahead = len(result.ratios) - len(worst([result]))
    tiles = [Tile(f"{ahead} of {len(result.ratios)}", "comparisons in which we are ahead or equal")]
    return Page(
        title=result.title,
        over="Headwater: a study",
        lead=(result.lead, *([_QUICK] if result.quick else [])),
        tiles=tuple(tiles) if result.ratios else (),
        sections=tuple(sections),
        facts=facts(result),
    )


_QUICK = "**A short run, to see that everything works: its figures mean little.**"


def _section(section: Section) -> html.Section:
    first = [Text(about(section))]
    return html.Section(section.key, section.title, (*first, *map(_block, section.blocks)))


def about(section: Section) -> str:
    """How a section came about, in a line."""
    said = [f"`{section.command}`", section.repetitions, f"{section.begun} UTC" if section.begun else ""]
    return " · ".join(each for each in said if each)


def _block(block: Block) -> html.Block:
    match block:
        case Plot():
            return Figure(block.title, lambda width: _plot(block, width), below=block.below)
        case Bars():
            return Figure(block.title, lambda width: _bars(block, width), below=block.below)
    return block


def _plot(plot: Plot, width: int) -> str:
    return xy(plot.series, x=plot.x, y=plot.y, width=width, label=plot.title)


def _bars(bars: Bars, width: int) -> str:
    if bars.log:
        return dots(bars.bars, width=width, label=bars.title, unit=bars.unit, log=True)
    return draw_bars(bars.bars, width=width, label=bars.title, unit=bars.unit)


def facts(result: Result) -> dict[str, str]:
    """What it takes to judge the figures."""
    found = {"command": result.command, "begun": f"{result.begun} UTC", "took": duration(result.seconds)}
    found |= result.machine
    found["versions"] = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    if result.not_run:
        found["not run"] = "; ".join(f"{name}: {why}" for name, why in result.not_run.items())
    return found


# ── ratios ──


def _shown(value: float, ratio: Ratio) -> str:
    match ratio.kind:
        case "seconds":
            return took(value)
        case "per second":
            return per_second(value)
        case "bytes":
            return size(value)
    return three(value)


def _ratio(ratio: Ratio) -> Row:
    factors = ratio.factors
    spread = f"{three(min(factors))} to {three(max(factors))}" if len(factors) > 1 else "one round"
    return Row(
        (
            ratio.case,
            _shown(middle(ratio.ours), ratio),
            ratio.reference,
            _shown(middle(ratio.theirs), ratio),
            middle(factors),
            spread,
        )
    )


_COLUMNS = (
    Column("case", "text"),
    Column("ours", "text"),
    Column("beside", "text"),
    Column("theirs", "text"),
    Column("times as good", "factor", digits=2),
    Column("in the rounds", "text"),
)


def _ratios(ratios: Iterable[Ratio], name: str = "ratios", title: str = "All comparisons") -> Table:
    return Table(name=name, title=title, columns=_COLUMNS, rows=tuple(map(_ratio, ratios)))


def _how() -> Text:
    return Text(
        "Times as good: above 1 we are faster, or need less; below 1 we are behind. Each is the median of the rounds' "
        "own ratios."
    )


def worst(results: Iterable[Result]) -> list[Ratio]:
    """All comparisons in which we are behind, the worst first. What is within 3 % of theirs is equal."""
    behind = [each for result in results for each in result.ratios if middle(each.factors) < EQUAL]
    return sorted(behind, key=lambda each: middle(each.factors))


# ── all of them, as Markdown ──


def markdown(results: Sequence[Result]) -> dict[str, str]:
    """The page and its plots as the texts of files, by name: `performance.md`, `performance/….svg`."""
    made: dict[str, str] = {}
    lines = ["# Performance", "", *_intro(results), *_summary(results)]
    for result in results:
        lines += [f"## {result.title}", "", result.lead, "", *([_QUICK, ""] if result.quick else [])]
        if result.not_run:
            lines += ["Not run: " + "; ".join(f"{name} ({why})" for name, why in result.not_run.items()) + ".", ""]
        for section in result.sections:
            lines += [f"### {section.title}", "", about(section), ""]
            for block in section.blocks:
                lines += _lines(block, f"{result.name}-", made)
        if result.ratios:
            lines += _details("All comparisons of this study", _ratios(result.ratios))
    made["performance.md"] = "\n".join(lines).rstrip() + "\n"
    return made


def _intro(results: Sequence[Result]) -> list[str]:
    commands = "\n".join(f"{result.command:<36} # {duration(result.seconds)}" for result in results)
    seen: dict[str, str] = {}
    for result in results:
        seen |= result.versions
    machine = results[0].machine if results else {}
    return [
        "Every figure below was measured by a command that you can run yourself, on the machine named here, unless it "
        "is said to be published, computed or measured elsewhere. Times move "
        "from run to run and from machine to machine; ratios to a reference of the same run move much less, so each "
        "figure has one beside it where there is one. The documents' own figures are of machines of 1999 to 2001: "
        "there, compare multiples of a TCP round trip, not milliseconds.",
        "",
        "```sh no-run: each takes minutes",
        commands,
        "headwater study performance --page .  # all studies, and this page; make performance",
        "```",
        "",
        *(f"- {name}: {said}" for name, said in machine.items()),
        "- versions: " + ", ".join(f"{name} {version}" for name, version in seen.items()),
        "",
        "This page is made from the results beside it (`performance/*.json`), and from nothing else.",
        "",
    ]


def _summary(results: Sequence[Result]) -> list[str]:
    every = [each for result in results for each in result.ratios]
    if not every:
        return []
    behind = worst(results)
    lines = [
        "## Where we are behind",
        "",
        f"Of {len(every)} comparisons with something that ran in the same run, we are ahead or equal in "
        f"{len(every) - len(behind)} and behind in {len(behind)}. Times as good: below 1 we are slower, or need more "
        "(within 3 % counts as equal).",
        "",
    ]
    if not behind:
        return lines
    reasons = {why: number for number, why in enumerate(dict.fromkeys(each.why for each in behind if each.why), 1)}
    columns = (*_COLUMNS, Column("why", "text"))
    rows = tuple(Row((*_ratio(each).values, f"({reasons[each.why]})" if each.why else "")) for each in behind)
    why = [f"{number}. {_cell(reason)}" for reason, number in reasons.items()]
    return [*lines, *_table(Table(name="behind", title="", columns=columns, rows=rows)), "", "Why:", "", *why, ""]


def _lines(block: Block, prefix: str, made: dict[str, str]) -> list[str]:
    match block:
        case Text(text):
            return [text, ""]
        case Heading(text):
            return [f"#### {text}", ""]
        case Notes(items):
            return [*(f"- {each}" for each in items), ""]
        case Table():
            if block.folded:
                return _details(block.title, block)
            return [f"**{block.title}**", "", *_table(block), ""] if block.title else [*_table(block), ""]
        case Plot() | Bars():
            name = f"{FOLDER}/{prefix}{block.name}.svg"
            if name in made:
                raise ValueError(f"two plots are called {name}")
            made[name] = standalone(_plot(block, WIDTH) if isinstance(block, Plot) else _bars(block, WIDTH))
            below = [block.below, ""] if block.below else []
            return [f"**{block.title}**", "", f"![{block.title}]({name})", "", *below]


def _details(title: str, table: Table) -> list[str]:
    return ["<details>", f"<summary>{title}</summary>", "", *_table(table), "", "</details>", ""]


def _table(table: Table) -> list[str]:
    heads = [f"{each.group}: {each.title}" if each.group else each.title for each in table.columns]
    lines = ["| " + " | ".join(map(_cell, heads)) + " |"]
    lines.append("|" + "|".join("---:" if each.number else "---" for each in table.columns) + "|")
    for row in table.rows:
        cells = []
        for at, (value, column) in enumerate(zip(row.values, table.columns, strict=True)):
            text = _cell(shown(value, column))
            cells.append(f"`{text}`" if column.kind == "code" and value else text + (" †" if at in row.remarks else ""))
        lines.append("| " + " | ".join(cells) + " |")
    remarks = dict.fromkeys(said for row in table.rows for said in row.remarks.values())
    lines += [f"\n† {each}" for each in remarks]
    return [*lines, "", table.note] if table.note else lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_STYLED = re.compile(r"^svg|^\.[fs]\d")
_SVG = "http://www.w3.org/2000/svg"


def standalone(drawing: str) -> str:
    """A drawing as a file of its own: with the colours that it needs, on its own ground."""
    sheet = files("headwater.study.report").joinpath("style.css").read_text(encoding="utf-8")
    begin, rest = sheet.index(":root"), [line for line in sheet.splitlines() if _STYLED.match(line)]
    roots = sheet[begin : sheet.index("* { box-sizing")]
    fonts = "svg { font-family: system-ui, sans-serif; background: var(--card); }"
    style = f"<style>{roots}{fonts}\n" + "\n".join(rest) + "</style>"
    opened, _, inner = drawing.partition(">")
    named = opened.replace("<svg", f'<svg xmlns="{_SVG}"', 1)
    return f"{named}>\n{style}\n{inner}\n"


# ── for a terminal ──


def text(result: Result) -> str:
    """The tables of a study, and how we stand."""
    parts: list[str] = []
    for section in result.sections:
        parts.append(f"{section.title}\n{'─' * len(section.title)}")
        parts += [plain(block) for block in section.blocks if isinstance(block, Table)]
    if result.ratios:
        parts.append(plain(_ratios(result.ratios, title="Beside others, in the same run (above 1: we are ahead)")))
    parts += [f"not run: {name}: {why}" for name, why in result.not_run.items()]
    return "\n\n".join(parts)


__all__ = ["about", "facts", "markdown", "page", "standalone", "text", "worst"]
