"""Reports of performance in a real browser: those of a whole run, at two widths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.study.report.html import render
from headwater_studies.harness.page import page
from headwater_studies.harness.run import STUDIES
from tests.browser import Browser
from tests.studies.recorded import recorded
from tests.study.layout import CUT, PLOTS, ROOMY, TABLES, WIDTHS, ask


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


@pytest.mark.parametrize("width", [WIDTHS[1], WIDTHS[-1]])
@pytest.mark.parametrize("study", STUDIES)
def test_reports_of_performance_fit(study: str, width: int, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(page(recorded(study))), encoding="utf-8")
    browser.open(path, width=width)
    assert ask(browser, CUT) == [] and ask(browser, PLOTS) == []
    for each in ask(browser, TABLES):
        assert each["hint"] == each["edge"] == each["cut"] and (not each["cut"] or width < ROOMY), each
