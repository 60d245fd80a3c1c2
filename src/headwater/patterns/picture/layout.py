"""Where everything of a picture goes, in whole units: letters for text, pixels for SVG.

Points stand in layers, from the beginning on; the label of an edge is a box of its own in the layer between, so that
no two ever cover each other. An edge that passes a layer has a place there, too. Between two layers there is a gutter
with a track for each bundle of lines; lines are straight and turn only there. An edge that leads back (a repetition's)
runs in a lane beside everything, its label under the layer in which it begins.

All is laid out along one direction, `along`, from the beginning to the end; `across` is the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from headwater.patterns.picture.graph import Edge, Graph

SWEEPS = 8  # over all layers, to put neighbours side by side


@dataclass(frozen=True, slots=True)
class Metrics:
    """Sizes: of a thing (along, across), and of what is between things."""

    gap: int  # between two things of a layer
    track: int  # between two tracks of a gutter
    edge: int  # from a layer to the first track, and from the last one to the next layer
    lane: int  # between two lanes


class Place(NamedTuple):
    """Of a corner of a line."""

    along: int
    across: int


@dataclass(slots=True)
class Item:
    """Something in a layer: a point, the label of an edge, or the place where an edge passes (no size)."""

    layer: int
    size: tuple[int, int]  # along, across
    point: int | None = None
    edge: Edge | None = None
    along: int = 0  # of its middle
    across: int = 0
    before: list[Item] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)

    def neighbours(self, forth: bool) -> list[Item]:
        """Those that are looked at on the way forth, or back."""
        return self.before if forth else self.after


@dataclass(slots=True)
class Line:
    """`arrow`: it ends at a point. Lines of one `bundle` may lie on each other, others only cross."""

    corners: list[Place]
    arrow: bool
    bundle: int


@dataclass(slots=True)
class Layout:
    """What a drawing needs."""

    items: list[Item]  # that are drawn
    lines: list[Line]
    size: tuple[int, int]  # along, across


def layout(graph: Graph, points: Sequence[tuple[int, int]], labels: dict[Edge, tuple[int, int]], m: Metrics) -> Layout:
    """The places of points and labels of these sizes (along, across), and the lines between them."""
    return _Layout(graph, points, labels, m).run()


class _Layout:
    def __init__(
        self, graph: Graph, points: Sequence[tuple[int, int]], labels: dict[Edge, tuple[int, int]], m: Metrics
    ) -> None:
        self.m, self.graph, self.labels = m, graph, labels
        depth, self.back = _depths(graph)
        self.layers: list[list[Item]] = [[] for _ in range(2 * max(depth.values(), default=0) + 1)]
        self.points = {
            at: self._item(2 * depth[at], points[at], point=at) for at in sorted(depth, key=lambda p: (depth[p], p))
        }
        for edge in graph.edges:
            if edge not in self.back:
                self._chain(edge)

    def _item(self, layer: int, size: tuple[int, int], *, point: int | None = None, edge: Edge | None = None) -> Item:
        made = Item(layer, size, point, edge)
        self.layers[layer].append(made)
        return made

    def _chain(self, edge: Edge) -> None:
        source, target = self.points[edge.source], self.points[edge.target]
        last = self._item(source.layer + 1, self.labels[edge], edge=edge)
        _join(source, last)
        for layer in range(source.layer + 2, target.layer):
            passing = self._item(layer, (0, 1))
            _join(last, passing)
            last = passing
        _join(last, target)

    def run(self) -> Layout:
        self._order()
        self._place_across()
        gutters = self._place_along()
        lines = [line for at in range(len(self.layers) - 1) for line in self._through(at, gutters[at])]
        items = [item for layer in self.layers for item in layer if item.point is not None or item.edge is not None]
        for number, edge in enumerate(self.back):
            item, more = self._around(edge, number, gutters)
            items.append(item)
            lines += more
        corners = [corner for line in lines for corner in line.corners]
        along = max([item.along + (item.size[0] + 1) // 2 for item in items] + [each.along + 1 for each in corners])
        across = max([item.across + (item.size[1] + 1) // 2 for item in items] + [each.across + 1 for each in corners])
        return Layout(items, lines, (along, across))

    # ── the order within layers, and where across things are ──

    def _order(self) -> None:
        """By the middle of the neighbours, forth and back."""
        for sweep in range(SWEEPS):
            forth = sweep % 2 == 0
            for layer in self.layers if forth else reversed(self.layers):
                place = {id(item): at for each in self.layers for at, item in enumerate(each)}
                wanted = {
                    id(item): _middle([place[id(n)] for n in item.neighbours(forth)], place[id(item)]) for item in layer
                }
                layer.sort(key=lambda item, wanted=wanted: wanted[id(item)])  # type: ignore[misc]

    def _place_across(self) -> None:
        for layer in self.layers:
            self._set(layer, [0.0] * len(layer))
        for sweep in range(SWEEPS):
            forth = sweep % 2 == 0
            for layer in self.layers if forth else reversed(self.layers):
                self._set(layer, [_middle([n.across for n in item.neighbours(forth)], item.across) for item in layer])
        top = min(item.across - item.size[1] // 2 for layer in self.layers for item in layer)
        for layer in self.layers:
            for item in layer:
                item.across -= top
        self.bottom = max(item.across + (item.size[1] + 1) // 2 for layer in self.layers for item in layer)

    def _set(self, layer: list[Item], wanted: list[float]) -> None:
        """As near as possible to where they want to be, in their order and apart: what would be too near moves
        together, to the middle of what it wants."""
        offsets = [0]
        for one, other in pairwise(layer):
            offsets.append(offsets[-1] + (one.size[1] + 1) // 2 + self.m.gap + other.size[1] // 2)
        groups: list[list[float]] = []
        for want, offset in zip(wanted, offsets, strict=True):
            groups.append([want - offset])
            while len(groups) > 1 and _mean(groups[-2]) >= _mean(groups[-1]):
                last = groups.pop()
                groups[-1] += last
        free = [_mean(group) for group in groups for _ in group]
        for item, place, offset in zip(layer, free, offsets, strict=True):
            item.across = round(place) + offset

    # ── where along ──

    def _place_along(self) -> list[dict[int, int]]:
        """Places of the tracks of each gutter, by the bundle: the point that its lines leave, or come to."""
        begins: dict[int, int] = {}
        for edge in self.back:
            number = self.points[edge.source].layer
            begins[number] = max(begins.get(number, 0), self.labels[edge][0])
        at, gutters = 0, []
        for number, layer in enumerate(self.layers):
            wide = max([item.size[0] for item in layer] + [begins.get(number, 0)])
            for item in layer:
                item.along = at + wide // 2
            at += wide
            order = self._tracks(number)
            gutters.append({bundle: at + self.m.edge + self.m.track * k for k, bundle in enumerate(order)})
            at += 2 * self.m.edge + self.m.track * (len(order) - 1) if order else self.m.edge
        return gutters

    def _tracks(self, number: int) -> list[int]:
        """The bundles of a gutter that turn in it, in an order in which no two lie on each other: a line that comes in
        at some height turns away before another one turns to that height."""
        turning: dict[int, tuple[set[int], set[int]]] = {}
        for one, other in self._pairs(number):
            if one.across != other.across or self._by_lane(number, one, other):
                into, out = turning.setdefault(_bundle(one, other), (set(), set()))
                into.add(one.across)
                out.add(other.across)
        for edge in self.back:
            source, target = self.points[edge.source], self.points[edge.target]
            if source.layer == number:
                turning.setdefault(id(source), (set(), set()))[0].add(source.across)
            if target.layer == number + 1:
                turning.setdefault(id(target), (set(), set()))[1].add(target.across)
        return _before(turning)

    def _pairs(self, number: int) -> list[tuple[Item, Item]]:
        """What is joined through a gutter."""
        return [(one, other) for one in self.layers[number] for other in one.after]

    def _by_lane(self, number: int, one: Item, other: Item) -> bool:
        """Whether the bundle of this line has one that goes to a lane or comes from there."""
        return any(
            (self.points[edge.source] is one and one.layer == number)
            or (self.points[edge.target] is other and other.layer == number + 1)
            for edge in self.back
        )

    # ── lines ──

    def _through(self, number: int, tracks: dict[int, int]) -> list[Line]:
        lines = []
        for one, other in self._pairs(number):
            start = Place(one.along + (one.size[0] + 1) // 2, one.across)
            end = Place(other.along - other.size[0] // 2, other.across)
            turn = tracks.get(_bundle(one, other))
            bend = (
                []
                if one.across == other.across or turn is None
                else [Place(turn, one.across), Place(turn, other.across)]
            )
            lines.append(Line([start, *bend, end], other.point is not None, _bundle(one, other)))
        return lines

    def _around(self, edge: Edge, number: int, gutters: list[dict[int, int]]) -> tuple[Item, list[Line]]:
        """Back to an earlier point, by a lane of its own."""
        source, target, size = self.points[edge.source], self.points[edge.target], self.labels[edge]
        lane = (
            self.bottom
            + self.m.lane
            + sum(self.labels[other][1] + self.m.lane for other in self.back[:number])
            + size[1] // 2
        )
        label = Item(source.layer, size, edge=edge, along=source.along, across=lane)
        down, up = gutters[source.layer][id(source)], gutters[target.layer - 1][id(target)]
        half = source.size[0]
        leaving = [Place(source.along + (half + 1) // 2, source.across), Place(down, source.across), Place(down, lane)]
        coming = [Place(up, lane), Place(up, target.across), Place(target.along - target.size[0] // 2, target.across)]
        return label, [
            Line([*leaving, Place(label.along + (size[0] + 1) // 2, lane)], False, id(source)),
            Line([Place(label.along - size[0] // 2, lane), *coming], True, id(target)),
        ]


def _depths(graph: Graph) -> tuple[dict[int, int], list[Edge]]:
    """How far each point is from the beginning by its longest way, and the edges that lead back."""
    following: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        following.setdefault(edge.source, []).append(edge)
    back: list[Edge] = []
    done: list[int] = []
    entered: set[int] = set()
    left: set[int] = set()
    stack: list[tuple[int, int]] = [(0, 0)]
    entered.add(0)
    while stack:
        point, at = stack.pop()
        edges = following.get(point, [])
        if at == len(edges):
            left.add(point)
            done.append(point)
            continue
        stack.append((point, at + 1))
        target = edges[at].target
        if target not in entered:
            entered.add(target)
            stack.append((target, 0))
        elif target not in left:
            back.append(edges[at])
    depth = dict.fromkeys(done, 0)
    for point in reversed(done):
        for edge in following.get(point, []):
            if edge not in back:
                depth[edge.target] = max(depth[edge.target], depth[point] + 1)
    return depth, back


def _before(turning: dict[int, tuple[set[int], set[int]]]) -> list[int]:
    """Those whose height others turn to come first, as far as that can be."""
    left = dict(turning)
    found: list[int] = []
    while left:
        free = next(
            (each for each, (_, out) in left.items()
             if not any(out & into for other, (into, _) in left.items() if other != each)),
            next(iter(left)),
        )  # fmt: skip
        found.append(free)
        del left[free]
    return found


def _bundle(one: Item, other: Item) -> int:
    """Lines that leave one point share a track, and so do those that come to one."""
    return id(one if one.point is not None else other)


def _join(one: Item, other: Item) -> None:
    one.after.append(other)
    other.before.append(one)


def _middle(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


__all__ = ["Item", "Layout", "Line", "Metrics", "Place", "layout"]
