"""Reports in a real browser: at every width, light and dark, nothing is cut, covered or too faint to be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.study.badges.page import page as badge_page
from headwater.study.own_page import page as own_page
from headwater.study.report.html import Page, Section, render
from headwater.study.report.table import Column, Row, Table
from tests.browser import Browser
from tests.study.layout import CUT, FAINT, PLOTS, ROOMY, TABLES, WIDER, WIDTHS, ask
from tests.study.results import own_result, result


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


def doom() -> Page:
    """A table that fits nowhere, and one that fits everywhere."""
    wide = tuple(Column(f"column {at}") for at in range(40))
    tables = (
        Table(name="wide", title="Wide", columns=wide, rows=(Row((123_456,) * 40),)),
        Table(name="small", title="Small", columns=wide[:2], rows=(Row((1, 2)),)),
    )
    return Page(title="Two tables", sections=(Section("two", "Two tables", tables),))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    made = {"badges": badge_page(result()), "own": own_page(own_result()), "tables": doom()}
    for name, page in made.items():
        (root / f"{name}.html").write_text(render(page), encoding="utf-8")
    return {name: root / f"{name}.html" for name in made}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["badges", "own"])
def test_nothing_is_cut_or_covered(name: str, width: int, browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages[name], width=width)
    assert ask(browser, "document.querySelector('h1').getBoundingClientRect().height") > 20, "it has letters"
    assert ask(browser, CUT) == []
    assert ask(browser, "document.documentElement.scrollWidth") == width
    assert ask(browser, PLOTS) == []
    tables = ask(browser, TABLES)
    assert len(tables) >= 7
    for each in tables:
        assert each["hint"] == each["edge"] == each["cut"], each
        assert not each["cut"] or width < ROOMY, each


@pytest.mark.parametrize("name", ["badges", "own"])
def test_all_columns_fit_where_letters_are_wider(name: str, browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages[name], width=WIDTHS[0])
    size = f"document.querySelectorAll('table').forEach(e => e.style.fontSize = '{0.9 * WIDER}rem')"
    tables = ask(browser, f"{size}; {TABLES}")
    assert [each["name"] for each in tables if each["cut"]] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_only_a_table_that_is_cut_says_to_scroll(width: int, browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["tables"], width=width)
    wide, small = ask(browser, TABLES)
    assert (wide["cut"], wide["hint"], wide["edge"]) == (True, True, True)
    assert (small["cut"], small["hint"], small["edge"]) == (False, False, False)
    # Scrolled to its end, the edge is gone, and nothing of the last column is below it.
    ask(browser, "document.querySelector('.scroll').scrollLeft = 99999")
    faded = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done("
    faded += "getComputedStyle(document.querySelector('.edge')).opacity))))"
    assert browser.run(faded) == "0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["badges", "own"])
def test_everything_can_be_read(name: str, scheme: Any, browser: Browser, pages: dict[str, Path]) -> None:
    for width in (WIDTHS[0], WIDTHS[-1]):
        browser.open(pages[name], width=width, scheme=scheme)
        assert ask(browser, FAINT) == {}
