"""A picture as SVG: no script, light and dark by the reader's own setting, exact words in titles.

Points are circles, the last ones double; what leads from one to the next is a box that says which element takes an
event, how it follows the one before, and what is asked of it. It is drawn from left to right where that fits the width,
else downwards.
"""

from __future__ import annotations

from html import escape

from headwater.patterns.picture.graph import Edge, Graph, Label
from headwater.patterns.picture.layout import Layout, Line, Metrics, Place, layout

METRICS = Metrics(gap=16, track=12, edge=18, lane=16)
RADIUS, START, MARGIN = 13, 6, 12  # pixels: of a point, of the beginning, around everything
LETTER, LINE, PAD = 7.3, 17, 9  # pixels of a letter of 12 px and fixed width, of a line, and around a label
ASKED = 30  # letters of a condition that are shown; the title has all of it
TURN = 6  # radius of a corner
WORDS = {";": "then", "->": "then next", ",": "then at once"}
STYLE = """
.hw-pattern{--ink:#1d2329;--soft:#5b6570;--line:#8b949e;--box:#f3f1ec;--edge:#d5d2ca;--first:#176b87;--last:#16733f}
@media (prefers-color-scheme:dark){
.hw-pattern{--ink:#e6e8ea;--soft:#a6afb8;--line:#7d8791;--box:#232a31;--edge:#3a434c;--first:#63b7d3;--last:#62c88f}}
.hw-pattern text{font:12px ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--soft)}
.hw-pattern .hw-name{fill:var(--ink);font-weight:600}.hw-pattern .hw-not{fill:var(--ink)}
.hw-pattern .hw-box{fill:var(--box);stroke:var(--edge)}
.hw-pattern .hw-line{fill:none;stroke:var(--line);stroke-width:1.3}.hw-pattern .hw-head{fill:var(--line)}
.hw-pattern .hw-point{fill:none;stroke:var(--line);stroke-width:1.3}
.hw-pattern .hw-start{fill:var(--first)}.hw-pattern .hw-end{fill:none;stroke:var(--last);stroke-width:1.6}
"""


def draw(graph: Graph, *, width: int = 1180, label: str = "The automaton of a pattern") -> str:
    """An SVG element, which can stand in a page or in a file of its own. `label` is for those who do not see it."""
    lines = {edge: [line for each in edge.labels for line in _lines(each)] for edge in graph.edges}
    sizes = {edge: (_width(texts), LINE * len(texts) + PAD) for edge, texts in lines.items()}
    made = _laid_out(graph, sizes, across=False)
    flat = made.size[0] + 2 * MARGIN <= width
    if not flat:
        made = _laid_out(graph, sizes, across=True)
    return _Drawing(graph, made, lines, flat, label).text()


def _laid_out(graph: Graph, sizes: dict[Edge, tuple[int, int]], *, across: bool) -> Layout:
    points = [(2 * START, 2 * START), *[(2 * RADIUS, 2 * RADIUS)] * (graph.points - 1)]
    turned = {edge: (high, wide) if across else (wide, high) for edge, (wide, high) in sizes.items()}
    return layout(graph, points, turned, METRICS)


Shown = tuple[str, str, str]  # style, text, title


def _lines(label: Label) -> list[Shown]:
    step = WORDS.get(label.sign, "")
    found: list[Shown] = [("hw-name", f"{step} {label.element}".strip(), "")]
    if label.without:
        found.append(("hw-not", f"without {', '.join(label.without)}", ""))
    for asked in label.asked:
        found.append(("", asked if len(asked) <= ASKED else f"{asked[: ASKED - 1]}…", asked))
    return found


def _width(texts: list[Shown]) -> int:
    return round(max(len(text) for _, text, _ in texts) * LETTER) + 2 * PAD


class _Drawing:
    def __init__(self, graph: Graph, made: Layout, lines: dict[Edge, list[Shown]], flat: bool, label: str) -> None:
        self.graph, self.made, self.lines, self.flat, self.label = graph, made, lines, flat, label

    def at(self, along: int, across: int) -> tuple[int, int]:
        """On the paper."""
        return (along + MARGIN, across + MARGIN) if self.flat else (across + MARGIN, along + MARGIN)

    def text(self) -> str:
        wide, high = self.at(*self.made.size)
        wide, high = wide + MARGIN, high + MARGIN
        label = escape(self.label, quote=True)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hw-pattern" viewBox="0 0 {wide} {high}" width="{wide}" '
            f'height="{high}" style="max-width:100%;height:auto" role="img" aria-label="{label}">',
            f"<style>{STYLE}</style>",
        ]
        parts += [self._line(line) for line in self.made.lines]
        for item in self.made.items:
            x, y = self.at(item.along, item.across)
            if item.point is not None:
                parts.append(self._point(item.point, x, y))
            elif item.edge is not None:
                size = item.size if self.flat else item.size[::-1]
                parts.append(self._box(self.lines[item.edge], x - size[0] // 2, y - size[1] // 2, size))
        return "\n".join([*parts, "</svg>"])

    def _line(self, line: Line) -> str:
        """With round corners, and a head where it ends at a point."""
        corners = [self.at(*corner) for corner in _corners(line)]
        path = f"M{corners[0][0]} {corners[0][1]}"
        for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
            (x1, y1), (x2, y2) = _towards(corner, before), _towards(corner, after)
            path += f"L{x1:g} {y1:g}Q{corner[0]} {corner[1]} {x2:g} {y2:g}"
        x, y = corners[-1]
        path += f"L{x} {y}"
        head = ""
        if line.arrow:
            points = (
                f"{x},{y} {x - 8},{y - 4} {x - 8},{y + 4}" if self.flat else f"{x},{y} {x - 4},{y - 8} {x + 4},{y - 8}"
            )
            head = f'<polygon class="hw-head" points="{points}"/>'
        return f'<path class="hw-line" d="{path}"/>{head}'

    def _point(self, number: int, x: int, y: int) -> str:
        if not number:
            return f'<circle class="hw-start" cx="{x}" cy="{y}" r="{START}"><title>here it begins</title></circle>'
        ends = number in self.graph.ends
        made = f'<circle class="{"hw-end" if ends else "hw-point"}" cx="{x}" cy="{y}" r="{RADIUS}"/>'
        if ends:
            title = "<title>a match may end here</title>"
            made += f'<circle class="hw-end" cx="{x}" cy="{y}" r="{RADIUS - 3}">{title}</circle>'
        return made + f'<text x="{x}" y="{y + 4}" text-anchor="middle" style="font-size:10px">{number}</text>'

    def _box(self, lines: list[Shown], x: int, y: int, size: tuple[int, int]) -> str:
        made = f'<rect class="hw-box" x="{x}" y="{y}" width="{size[0]}" height="{size[1]}" rx="5"/>'
        for at, (style, text, title) in enumerate(lines):
            inside = f"<title>{escape(title)}</title>" if title else ""
            named = f' class="{style}"' if style else ""
            made += f'<text{named} x="{x + PAD}" y="{y + PAD + 8 + LINE * at}">{escape(text)}{inside}</text>'
        return made


def _corners(line: Line) -> list[Place]:
    """Where it turns, and its ends."""
    found = line.corners[:1]
    for before, corner, after in zip(line.corners, line.corners[1:], line.corners[2:], strict=False):
        if not (before.along == corner.along == after.along or before.across == corner.across == after.across):
            found.append(corner)
    return [*found, line.corners[-1]]


def _towards(corner: tuple[int, int], other: tuple[int, int]) -> tuple[float, float]:
    """A little before a corner."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    near = min(TURN, length / 2) / length if length else 0.0
    return corner[0] + dx * near, corner[1] + dy * near


__all__ = ["draw"]
