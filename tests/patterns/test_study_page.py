"""Patterns in a report: a section with a table, the automaton, and the hours in which it fired."""

from __future__ import annotations

from dataclasses import replace
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
    assert "Matches over time" in page and "fewer bytes" in page and "Its matches of up" in page
    assert "hour of the day" not in page  # of a moment, it says nothing


def test_what_was_found_twice_is_compared(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        source = node.channel("x", "v: i64").source()
        for v in range(3):
            source.publish(v=v)
    found = backtest_patterns(None, tmp_path / "log", [AskedPattern(name="any", match="a: x")])
    other = replace(found, patterns=(replace(found.patterns[0], matches=2),))
    for here, chip, said in ((found, "no difference", "find the same"), (other, "differences", "find different")):
        page = render(Page(title="A study", sections=(Section("p", "P", tuple(own_patterns.blocks(found, here))),)))
        assert chip in page and said in page
