"""The automaton as a picture: nothing covers anything else, whatever the pattern; and a browser shows all of it."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given, settings

from headwater.patterns import model
from headwater.patterns.automaton import automaton
from headwater.patterns.pattern import Pattern
from headwater.patterns.picture import svg, text
from headwater.patterns.picture.graph import Graph, graph
from headwater.patterns.picture.layout import Item, Layout, layout
from tests.browser import Browser
from tests.effort import examples
from tests.patterns.strategies import patterns

CHANNELS = {"x": "who: text, level: f64", "y": "who: text", "z": "who: text"}
DRAWN = {
    "a: x; b: y within 2 seconds": """\
○── a ─▶(1)── ; b ─▶((2))""",
    "a: x -> b: x{level > b.prev.level}+ -> c: y within 1 minute": """\
○── a ─▶(1)── -> b ──┬──▶(2)───┬─ -> c ─▶((3))
                     │         │
                     ╰─ -> b ──╯""",
    "a: x, without y within 10 seconds": """\
○── a ─▶(1)── the window ends without y ─▶((2))""",
    "(f: x){3} without r: y within 1 hour": """\
○── f ─▶(1)── -> f without r ─▶(2)── -> f without r ─▶((3))""",
    "a: x; (b: y | c: z)?; d: x within 1 hour": """\
             ╭─ ; b | ; c ─▶(2)── ; d ──╮
○── a ─▶(1)──┤                          ├▶((3))
             ╰──── ; d ─────────────────╯""",
    "(a: x & b: y & c: z) within 1 hour": """\
               ╭───── -> b ─▶(4)── -> c ──╮
               │                          ├────▶((10))
   ╭─ a ─▶(1)──┤   ╭─ -> a ─▶(6)── -> c ──╯
   │           │   │
   │           ╰───│─ -> c ─▶(5)── -> b ────╮
○──┼─ b ─▶(2)──────┤                        ├──▶((11))
   │             ╭─│─ -> a ─▶(8)── -> b ────╯
   │             │ │
   ╰─ c ─▶(3)────┤ ╰─ -> c ─▶(7)── -> a ──────╮
                 │                            ├▶((12))
                 ╰─── -> b ─▶(9)── -> a ──────╯""",
}


def _graph(words: str) -> Graph:
    checked = Pattern(words, CHANNELS).model
    found = graph(checked, automaton(checked))
    assert found is not None
    return found


def test_pictures_of_text() -> None:
    assert {words: text.draw(_graph(words)) for words in DRAWN} == DRAWN


def test_what_is_too_large_is_a_list() -> None:
    said = Pattern("(f: x){60} within 1 hour", CHANNELS).explain()
    assert said.svg() is None
    assert said.picture.startswith("0\n    begins f → 1\n1\n")
    wide = Pattern("(f: x){12} within 1 hour", CHANNELS).explain()
    assert wide.picture.startswith("0\n") and wide.svg() is not None


@settings(max_examples=examples(60))
@given(patterns())
def test_nothing_covers_anything(pattern: model.Pattern) -> None:
    found = graph(pattern, automaton(pattern))
    if found is None:
        return
    for metrics, wide, high in ((text.METRICS, 9, 1), (svg.METRICS, 61, 35)):
        made = layout(found, [(3, 1)] * found.points, dict.fromkeys(found.edges, (wide, high)), metrics)
        assert [item.point for item in made.items if item.point is not None].__len__() == found.points
        assert {id(item.edge) for item in made.items if item.edge} == {id(edge) for edge in found.edges}
        assert not [pair for pair in combinations(made.items, 2) if _meet(*pair)]
        assert not _crossed(made)
    drawn = text.draw(found, width=10_000)
    assert drawn is not None and all(str(label) in drawn for edge in found.edges for label in edge.labels)
    ElementTree.fromstring(svg.draw(found))


def _box(item: Item) -> tuple[int, int, int, int]:
    low, top = item.along - item.size[0] // 2, item.across - item.size[1] // 2
    return low, top, low + item.size[0], top + item.size[1]


def _meet(one: Item, other: Item) -> bool:
    (a, b, c, d), (e, f, g, h) = _box(one), _box(other)
    return a < g and e < c and b < h and f < d


def _crossed(made: Layout) -> list[object]:
    """Lines that go through a box: between its sides, and not only along them."""
    found: list[object] = []
    for line in made.lines:
        for one, other in pairwise(line.corners):
            low, high = sorted((one.along, other.along))
            top, bottom = sorted((one.across, other.across))
            for item in made.items:
                a, b, c, d = _box(item)
                if low < c and a < high and b <= top < d if top == bottom else a <= low < c and top < d and b < bottom:
                    found.append((line, item))
    return found


FITS = """JSON.stringify([...document.querySelectorAll('svg')].map(svg => {
  const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const texts = [...svg.querySelectorAll('rect ~ text')];
  return {all: box(svg), rects: [...svg.querySelectorAll('rect')].map(box), colour: getComputedStyle(texts[0]).fill,
          texts: texts.filter(t => t.getAttribute('text-anchor') !== 'middle').map(box)};
}))"""


def test_labels_fit_their_boxes_in_a_browser_light_and_dark(tmp_path: Path) -> None:
    words = [*DRAWN, "a: x{level > 0.5 and who != 'somebody with a long name'}; b: y{who != a.who} within 1 hour"]
    page = tmp_path / "pictures.html"
    drawn = [svg.draw(_graph(each), width=width) for each in words for width in (1180, 360)]
    page.write_text(f"<!doctype html><meta charset=utf-8>{'<p>'.join(drawn)}", encoding="utf-8")
    colours = set()
    with Browser() as browser:
        for scheme in ("light", "dark"):
            browser.open(page, width=1280, scheme="light" if scheme == "light" else "dark")
            for each in json.loads(browser.run(FITS)):
                colours.add(each["colour"])
                left, top, right, bottom = each["all"]
                assert all(left <= a and top <= b and c <= right and d <= bottom for a, b, c, d in each["rects"])
                for a, b, c, d in each["texts"]:
                    assert any(e <= a and f <= b and c <= g and d <= h for e, f, g, h in each["rects"]), (a, b, c, d)
    assert len(colours) == 2
