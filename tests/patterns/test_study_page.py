"""Patterns in a report: a section with a table, the automaton, and the hours in which it fired."""

from __future__ import annotations

from pathlib import Path

from headwater import Node
from headwater.spark.backtest import AskedPattern, backtest_patterns
from headwater.study import own_patterns
from headwater.study.report.html import Page, Section, render


def test_a_section_of_a_report(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        source = node.channel("x", "v: i64").source()
        for v in range(5):
            source.publish(v=v)
    found = backtest_patterns(None, tmp_path / "log", [AskedPattern(name="up", match="a: x -> b: x{v > 1}", at="desk")])
    section = Section("patterns", "Patterns", tuple(own_patterns.blocks(found)), "Patterns")
    page = render(Page(title="A study", sections=(section,)))
    assert page.count('class="hw-pattern"') == 3 and "then next b" in page  # wide, middle and narrow
    assert "explained" not in found.to_json()
