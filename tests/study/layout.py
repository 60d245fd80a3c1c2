"""Questions about a report that a real browser answers: what is cut, covered, too small or too faint to be read."""

from __future__ import annotations

from typing import Any

from tests.browser import Browser

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


def ask(browser: Browser, what: str) -> Any:
    """With every table unfolded."""
    script = what.replace("LETTERS", str(LETTERS)).replace("CONTRAST", str(CONTRAST))
    return browser.run(f"{{ {HELPERS} document.querySelectorAll('details').forEach(e => e.open = true); {script} }}")
