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
from headwater_studies.harness.page import page as performance_page
from headwater_studies.harness.result import Result
from headwater_studies.harness.run import STUDIES
from tests.browser import Browser
from tests.study.results import own_result, result

RESULTS = Path(__file__).parents[2] / "docs" / "performance"
WIDTHS = (1400, 1200, 768, 390)
ROOMY = 1200  # pixels of a window from which on all columns of a study's tables fit
WIDER = 1.15  # fonts of readers' machines are wider than those of this one by up to that
CONTRAST = 4.5  # of letters to what is behind them, as WCAG AA wants it
LETTERS = 9.5  # pixels, at least, of letters in a plot

HELPERS = """
const within = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1;
const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0;
const said = (e) => (e.textContent || '').trim().slice(0, 40);
const all = (what, from = document) => [...from.querySelectorAll(what)].filter(seen);
"""

CUT = """all('body *').filter(e => !e.closest('.scroll') && !e.closest('.skip') && !e.closest('svg'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + ' ' + said(e))"""

TABLES = """all('.scroll').map(e => {
  const hint = e.querySelector('.hint'), edge = e.querySelector('.edge'), text = hint && hint.querySelector('span');
  const box = hint && hint.getBoundingClientRect(), own = e.getBoundingClientRect();
  return {
    name: e.getAttribute('aria-label'),
    cut: e.scrollWidth > e.clientWidth + 1,
    hint: !!hint && box.width > 0 && box.height > 0 && within(box, own) && text.scrollWidth <= text.clientWidth + 1,
    edge: !!edge && edge.getBoundingClientRect().width > 0 && edge.getBoundingClientRect().right <= own.right + 1,
  };
})"""

# Texts of a plot that leave it, are too small, or lie on one another.
PLOTS = """all('svg.plot').flatMap(svg => {
  const own = svg.getBoundingClientRect(), texts = all('text', svg), found = [];
  const boxes = texts.map(e => e.getBoundingClientRect());
  texts.forEach((e, at) => {
    const box = boxes[at], size = parseFloat(getComputedStyle(e).fontSize) * own.width / svg.viewBox.baseVal.width;
    if (!within(box, own) || box.top < own.top - 1 || box.bottom > own.bottom + 1) found.push('leaves: ' + said(e));
    if (size < LETTERS) found.push(size + ' px: ' + said(e));
    for (let other = 0; other < at; other++) {
      const b = boxes[other], over = Math.min(box.right, b.right) - Math.max(box.left, b.left);
      if (over > 1 && Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top) > 4)
        found.push(said(e) + ' lies on ' + said(texts[other]));
    }
  });
  if (!(svg.getAttribute('aria-label') || '').trim()) found.push('says nothing to who does not see it');
  return found.map(each => svg.getAttribute('aria-label') + ': ' + each);
})"""

FAINT = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  const own = (e) => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const found = {};
  for (const e of all('body *').filter(own)) {
    if (e.closest('.skip') || ['TITLE', 'title'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), ink = parts(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < CONTRAST) found[e.tagName + '.' + (e.className.baseVal ?? e.className)] = contrast.toFixed(2);
  }
  return found;
})()"""


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


def ask(browser: Browser, what: str) -> Any:
    """With every table unfolded."""
    script = what.replace("LETTERS", str(LETTERS)).replace("CONTRAST", str(CONTRAST))
    return browser.run(f"{{ {HELPERS} document.querySelectorAll('details').forEach(e => e.open = true); {script} }}")


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


@pytest.mark.parametrize("width", [WIDTHS[1], WIDTHS[-1]])
@pytest.mark.parametrize("study", STUDIES)
def test_reports_of_performance_fit(study: str, width: int, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(performance_page(Result.read(RESULTS / f"{study}.json"))), encoding="utf-8")
    browser.open(path, width=width)
    assert ask(browser, CUT) == [] and ask(browser, PLOTS) == []
    for each in ask(browser, TABLES):
        assert each["hint"] == each["edge"] == each["cut"] and (not each["cut"] or width < ROOMY), each


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["badges", "own"])
def test_everything_can_be_read(name: str, scheme: Any, browser: Browser, pages: dict[str, Path]) -> None:
    for width in (WIDTHS[0], WIDTHS[-1]):
        browser.open(pages[name], width=width, scheme=scheme)
        assert ask(browser, FAINT) == {}
