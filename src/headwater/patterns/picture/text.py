"""A picture of letters.

○──▶ a ──▶(1)──▶ -> b ──▶((2))
"""

from __future__ import annotations

from itertools import pairwise

from headwater.patterns.picture.graph import Edge, Graph
from headwater.patterns.picture.layout import Layout, Line, Metrics, layout

METRICS = Metrics(gap=1, track=2, edge=2, lane=1)
UP, RIGHT, DOWN, LEFT = 1, 2, 4, 8
_GLYPHS = {
    UP: "│", DOWN: "│", UP | DOWN: "│", LEFT: "─", RIGHT: "─", LEFT | RIGHT: "─",
    UP | RIGHT: "╰", RIGHT | DOWN: "╭", DOWN | LEFT: "╮", LEFT | UP: "╯",
    UP | RIGHT | DOWN: "├", RIGHT | DOWN | LEFT: "┬", DOWN | LEFT | UP: "┤", LEFT | UP | RIGHT: "┴",
    UP | RIGHT | DOWN | LEFT: "┼",
}  # fmt: skip


def draw(graph: Graph, *, width: int = 110) -> str | None:
    """Lines of at most so many letters; None where it takes more."""
    names = [_point(graph, at) for at in range(graph.points)]
    labels = {edge: f" {_label(edge)} " for edge in graph.edges}
    made = layout(graph, [(len(name), 1) for name in names], {e: (len(t), 1) for e, t in labels.items()}, METRICS)
    if made.size[0] > width:
        return None
    canvas = _Canvas(made)
    for line in made.lines:
        canvas.line(line)
    for item in made.items:
        text = names[item.point] if item.point is not None else labels[item.edge] if item.edge else ""
        canvas.text(item.across, item.along - item.size[0] // 2, text)
    return str(canvas)


def _point(graph: Graph, at: int) -> str:
    name = str(at) if at else "○"
    return f"(({name}))" if at in graph.ends else f"({name})" if at else name


def _label(edge: Edge) -> str:
    return " | ".join(map(str, edge.labels))


class _Canvas:
    def __init__(self, made: Layout) -> None:
        along, across = made.size
        self.size = along + 1, across + 1
        self.links: dict[tuple[int, int], dict[int, int]] = {}  # of a place: which sides, by the bundle of the line
        self.letters: dict[tuple[int, int], str] = {}

    def line(self, line: Line) -> None:
        """From corner to corner; the last letter before a point is an arrow."""
        corners = line.corners
        for one, other in pairwise(corners):
            if one.across == other.across:
                low, high = sorted((one.along, other.along))
                for at in range(low, high):
                    self._link(line, one.across, at, RIGHT)
                    self._link(line, one.across, at + 1, LEFT)
            else:
                low, high = sorted((one.across, other.across))
                for at in range(low, high):
                    self._link(line, at, one.along, DOWN)
                    self._link(line, at + 1, one.along, UP)
        if line.arrow:
            self.letters[corners[-1].across, corners[-1].along - 1] = "▶"

    def _link(self, line: Line, row: int, column: int, side: int) -> None:
        sides = self.links.setdefault((row, column), {})
        sides[line.bundle] = sides.get(line.bundle, 0) | side

    def text(self, row: int, column: int, text: str) -> None:
        for at, letter in enumerate(text):
            self.letters[row, column + at] = letter

    def _letter(self, row: int, column: int) -> str:
        if (row, column) in self.letters:
            return self.letters[row, column]
        sides = self.links.get((row, column), {})
        if len(sides) == 2 and set(sides.values()) == {UP | DOWN, LEFT | RIGHT}:
            return "│"  # one passes under the other: they do not meet
        found = 0
        for each in sides.values():
            found |= each
        return _GLYPHS.get(found, " ")

    def __str__(self) -> str:
        columns, rows = self.size
        lines = ("".join(self._letter(row, column) for column in range(columns)) for row in range(rows))
        return "\n".join(line.rstrip() for line in lines).strip("\n")


__all__ = ["draw"]
