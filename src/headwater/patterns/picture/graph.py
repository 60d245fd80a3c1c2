"""What is drawn of an automaton: its points, and for each pair of them the elements that lead from one to the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.patterns import model
from headwater.patterns.automaton import Automaton
from headwater.patterns.description import condition
from headwater.patterns.written import Selection

MAX_DRAWN = 40  # points; a larger picture shows nobody anything
SIGNS: dict[Selection, str] = {"any": ";", "next": "->", "strict": ","}


@dataclass(frozen=True, slots=True)
class Label:
    """One way to go on: the element that takes an event, the step to it (empty where it begins), what may not come
    before it, and what is asked of its event: by itself, and together with those before it."""

    element: str
    sign: str = ""
    without: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        without = f" without {', '.join(self.without)}" if self.without else ""
        return f"{self.sign} {self.element}{without}".strip()


@dataclass(frozen=True, slots=True)
class Edge:
    """All ways from one point to another."""

    source: int
    target: int
    labels: tuple[Label, ...]


@dataclass(slots=True)
class Graph:
    """`ends` are the points at which an occurrence may be complete."""

    points: int
    edges: list[Edge] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)


def graph(pattern: model.Pattern, automaton: Automaton) -> Graph | None:
    """None where it is too large to be drawn. Point 0 is the beginning. What must be absent until the window ends is
    one more edge, from every point where that is all that is left to wait for."""
    count = len(automaton.points)
    if count > MAX_DRAWN:
        return None
    made = Graph(count)
    for point in automaton.points:
        between: dict[int, dict[Label, None]] = {}
        for way in point.ways:
            sign = SIGNS[way.selection] if point.number else ""
            without = tuple(automaton.names(way.forbidden)) if point.number else ()
            label = Label(automaton.elements[way.element], sign, without, _asked(pattern, way.element))
            between.setdefault(way.target, {})[label] = None
        made.edges += [Edge(point.number, target, tuple(labels)) for target, labels in between.items()]
        if point.ends:
            made.ends.add(point.number)
    if automaton.absent:
        waited = Label("the window ends", "", tuple(automaton.names(automaton.absent)))
        made.edges += [Edge(at, count, (waited,)) for at in sorted(made.ends)]
        made.points, made.ends = count + 1, {count}
    return made


def _asked(pattern: model.Pattern, at: int) -> tuple[str, ...]:
    element = pattern.elements[at]
    own = () if element.condition is None else (condition(element.condition).replace("input.", ""),)
    between = (condition(each.interest) for each in pattern.conditions if at in each.elements)
    return (*own, *(text.replace("input.", "") for text in between))


__all__ = ["MAX_DRAWN", "SIGNS", "Edge", "Graph", "Label", "graph"]
