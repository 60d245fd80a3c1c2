"""A pattern explained to a person, before it is installed anywhere: what was understood, its automaton as a picture,
what runs at the sources, which engine takes it and why, what an event costs and what memory it may take.

>>> from headwater.patterns.pattern import Pattern
>>> said = Pattern("a: door; b: door within 2 seconds", {"door": "who: text"}).explain()
>>> print(said.picture)
○── a ─▶(1)── ; b ─▶((2))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.durations import shown
from headwater.patterns import model
from headwater.patterns.crossing.atoms import source_interest
from headwater.patterns.crossing.bindings import bindings
from headwater.patterns.crossing.marks import marking
from headwater.patterns.description import condition
from headwater.patterns.picture import svg, text
from headwater.patterns.picture.graph import Graph, graph
from headwater.patterns.plan import Plan, plan

if TYPE_CHECKING:
    from headwater.patterns.pattern import Pattern

NOTATION = {"text": "compact text", "match_recognize": "SQL's MATCH_RECOGNIZE", "python": "Python"}
SIGNS = "`;` every later event that fits   `->` the next that fits   `,` the one right after   `(( ))` a match may end"
WIDTH = 110  # letters of a picture of text

Part = tuple[str, str]  # a title, and lines


@dataclass(frozen=True)
class Explanation:
    """`str` is a page of plain text; `svg()` is the picture for pages. `more` are parts that others add to the page."""

    pattern: Pattern
    more: tuple[Part, ...] = ()

    @cached_property
    def plan(self) -> Plan:
        """The engine, and what a row costs and is kept."""
        return plan(self.pattern.model)

    @cached_property
    def graph(self) -> Graph | None:
        return graph(self.pattern.model, self.plan.automaton)

    @property
    def picture(self) -> str:
        """The automaton as a picture of letters, or, where that is too large, as a list."""
        drawn = None if self.graph is None else text.draw(self.graph, width=WIDTH)
        return self.plan.automaton.show() if drawn is None else drawn

    def svg(self, width: int = 1180) -> str | None:
        """The automaton as SVG; None where it is too large to be looked at."""
        return None if self.graph is None else svg.draw(self.graph, width=width, label=f"Automaton of {self.pattern}")

    @property
    def memory(self) -> int:
        """Bytes at most, by its limits, beside the events themselves."""
        limits, it = self.pattern.model.limits, self.plan
        held = limits.memory if it.engine in ("shared", "linked") else limits.runs * it.per_run
        return held + limits.partitions * it.per_partition

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that the page has: a title and lines for each."""
        pattern = self.pattern
        how = NOTATION.get(pattern.notation, pattern.notation or "serial form")
        named = f"pattern over {', '.join(pattern.channels)}, in {how}, fingerprint {pattern.fingerprint.hex()}"
        said = [
            (named, pattern.text.strip() or str(pattern)),
            ("understood", pattern.description),
            ("automaton", f"{self.picture}\n\n{SIGNS}"),
            ("order", "\n".join(_order(pattern.model))),
            ("at the sources", "\n".join(_sources(pattern.model))),
            ("engine", f"{self.plan.engine}: {self.plan.why}\na row {self.plan.row}"),
            ("cost", "\n".join(self._cost())),
        ]
        if pattern.warnings:
            said.append(("warnings", "\n".join(map(str, pattern.warnings))))
        return (*said, *self.more)

    def _cost(self) -> Iterator[str]:
        cost, it, limits = self.pattern.cost, self.plan, self.pattern.model.limits
        yield (
            f"conditions: estimated {cost.estimated:,} and at worst {cost.worst:,} operations an event, of "
            f"{limits.worst:,} that are allowed"
        )
        each = "taken event" if it.engine in ("shared", "linked") else "partial match"
        yield f"memory: {it.per_partition:,} bytes a partition and {it.per_run:,} bytes a {each}; {it.limit}"
        yield f"so at most {self.memory:,} bytes beside the events; what is beyond is given up, the oldest first"

    def __str__(self) -> str:
        return "\n\n".join(_part(title, body) for title, body in self.parts)


def explain(pattern: Pattern, more: tuple[Part, ...] = ()) -> Explanation:
    """Nothing is computed before it is asked for."""
    return Explanation(pattern, more)


def _order(pattern: model.Pattern) -> Iterator[str]:
    """How events are put in line, and that the other way there is has no meaning over a log."""
    by_time = [channel.time is not None for channel in pattern.channels]
    said = "their own times" if all(by_time) else "times of publication" if not any(by_time) else "times"
    late = f", late by at most {shown(pattern.lateness)}" if any(by_time) and pattern.lateness else ""
    yield f"by {said}{late}, then source and number: the same live, over a log and on Spark"
    yield 'with order="arrival" as they come: live only, and from several sources not the same every time'


def _sources(pattern: model.Pattern) -> Iterator[str]:
    """What is asked of single events there, so that the rest never leaves."""
    width = max(len(channel.name) for channel in pattern.channels)
    bound = bindings(pattern)
    for channel in pattern.channels:
        asked = source_interest(pattern, channel.name)
        if asked is not None:
            said = condition(asked).replace("input.", "")
        elif channel.time is not None:
            said = "everything: events say their own time, and each tells how far its source has come"
        else:
            said = "everything: every event can matter"
        yield f"{channel.name.ljust(width)}  {said}"
        if marking(pattern, channel.name) is not None:
            key = "" if pattern.key is None else " and partition"
            yield f"{' ' * width}  what fits no element crosses as a mark of its time{key}, not as an event"
        if bound is not None and channel.name in bound.channels:
            slots = ", ".join(dict.fromkeys(slot.what for slot in bound.slots))
            yield f"{' ' * width}  of nodes that keep a past, later elements only with values that were bound: {slots}"
    if pattern.absent:
        yield "what is absent is asserted when every source has promised that nothing older can come" + (
            "" if pattern.patience is None else f", or, marked uncertain, after {shown(pattern.patience)} of waiting"
        )


def _part(title: str, body: str) -> str:
    return "\n".join([title, *(f"  {line}" if line else "" for line in body.splitlines())])


__all__ = ["Explanation", "Part", "explain"]
