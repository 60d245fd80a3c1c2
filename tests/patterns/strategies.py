"""Random patterns and streams, small enough for the oracle and odd enough to matter: ties in time, missing values, NaN,
several sources, events of no partition.

    @given(patterns(), streams())
    def test_it(pattern, events): …

What a builder cannot do yet is left out by name: `patterns(operators=("sequence",), between=False)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from headwater.errors import PatternError
from headwater.patterns import model, written
from headwater.patterns.checker.check import check

CHANNELS = {"a": "k: i64?, v: i64?, f: f64?, s: text", "b": "k: i64?, v: i64?, s: text"}
OPERATORS = ("sequence", "either", "both", "repeat", "without", "absent")
AFTER = ("no skip", "next", "past last", "first", "last")
SOURCES = ("n1", "n2")
WINDOWS = (
    written.Window(microseconds=3),
    written.Window(microseconds=100),
    written.Window(rows=4),
    written.Window(rows=9),
)
MAX_EVENTS = 8

_ALONE = ("v > 1", "v <= 2", "v is null", "s = 'x'", "s in ('x', 'y') and v >= 0", "meta.source = 'n1'")
_ALONE_A = ("f > 0.5", "is_nan(f)", "f <= 1.0")
_BETWEEN = ("v > {0}.v", "v = {0}.v", "s != {0}.s", "v + {0}.v < 4", "{0}.v is null or v >= {0}.v")
_ROUNDS = ("v > {0}.prev.v", "v >= first({0}.v)", "coalesce({0}.prev.v, 0) < 2")
_SUMS = ("count({0}) >= 2", "sum({0}.v) > 2", "max({0}.v) >= 2", "min({0}.v) = 0", "mean({0}.v) > 0.9")


# ── streams ──


@st.composite
def streams(draw: st.DrawFn, most: int = MAX_EVENTS, late: bool = False) -> list[dict[str, Any]]:
    """Events in an order of arrival; each source's numbers count on, and its times do not go back, unless `late`."""
    size = draw(st.integers(min(4, most), most)) if draw(st.integers(0, 9)) else draw(st.integers(0, most))
    clock = dict.fromkeys(SOURCES, 0)
    seq = dict.fromkeys(SOURCES, 0)
    events = []
    for _ in range(size):
        source = draw(st.sampled_from(SOURCES))
        clock[source] += draw(st.sampled_from((0, 0, 1, 1, 2, 5, *((-1, -2) if late else ()))))
        channel = draw(st.sampled_from(("a", "a", "b")))
        fields = {
            "k": draw(st.sampled_from((1, 1, 1, 2, None))),
            "v": draw(st.sampled_from((0, 1, 2, 3, None))),
            "s": draw(st.sampled_from(("x", "x", "y", "z"))),
        }
        if channel == "a":
            fields["f"] = draw(st.sampled_from((0.0, -0.0, 1.0, math.nan, None)))
        events.append(
            {"channel": channel, "source": source, "seq": seq[source], "time": clock[source], "fields": fields}
        )
        seq[source] += 1
    return events


# ── patterns ──


@st.composite
def patterns(
    draw: st.DrawFn,
    operators: Sequence[str] = OPERATORS,
    selections: Sequence[written.Selection] = written.SELECTIONS,
    after: Sequence[str] = AFTER,
    between: bool = True,
    rounds: bool = True,
    variables: bool = True,
    partitions: bool = True,
    windows: Sequence[written.Window | None] = WINDOWS,
) -> model.Pattern:
    """A checked pattern. `between`: conditions between elements; `rounds`: with the previous event, and aggregates."""
    form = draw(written_patterns(operators, selections, after, between, rounds, variables, partitions, windows))
    try:
        return check(form, CHANNELS)
    except PatternError:
        reject()


@st.composite
def written_patterns(
    draw: st.DrawFn,
    operators: Sequence[str] = OPERATORS,
    selections: Sequence[written.Selection] = written.SELECTIONS,
    after: Sequence[str] = AFTER,
    between: bool = True,
    rounds: bool = True,
    variables: bool = True,
    partitions: bool = True,
    windows: Sequence[written.Window | None] = WINDOWS,
) -> written.Pattern:
    """One as a notation would make it; most can be checked."""
    it = _Pattern(draw, operators, selections, between, rounds, variables)
    root = it.node(draw(st.integers(1, 3)), ())
    if "absent" in operators and draw(st.integers(0, 3)) == 0:
        root = written.Sequence((root, written.Without(it.atom((), negative=True))), ("any",))
    window = draw(st.sampled_from(windows))
    rule: Any = draw(st.sampled_from(after))
    element = draw(st.sampled_from(it.names)) if rule in ("first", "last") else None
    return written.Pattern(
        root,
        window,
        partition=(written.Condition("k"),) if partitions and draw(st.booleans()) else (),
        among=written.Condition("s != 'z'") if draw(st.integers(0, 3)) == 0 else None,
        begin=draw(st.sampled_from((None, None, "each", "first"))),
        after=written.After(rule, element),
        reuse=draw(st.integers(0, 4)) > 0,
        lateness=draw(st.sampled_from((0, 0, 1))),
    )


class _Pattern:
    """Grows a tree; elements are named in the order of writing."""

    def __init__(
        self,
        draw: st.DrawFn,
        operators: Sequence[str],
        selections: Sequence[written.Selection],
        between: bool,
        rounds: bool,
        variables: bool,
    ) -> None:
        self.draw, self.operators, self.selections = draw, operators, selections
        self.between, self.rounds, self.variables = between, rounds, variables
        self.names: list[str] = []
        self.summed: list[str] = []  # names of repetitions whose events can be summed up
        self.count = 0
        self.repeated: list[written.Selection] = []  # the repetitions around
        self.parallel = 0  # the `and`s around

    def selection(self, *, apart: bool = False) -> written.Selection:
        """`apart`: something may be between."""
        return self.draw(st.sampled_from([s for s in self.selections if not apart or s != "strict"] or ["any"]))

    def node(self, depth: int, before: tuple[str, ...]) -> written.Node:
        kinds = [
            kind for kind in ("sequence", "sequence", "either", "both", "repeat", "without") if kind in self.operators
        ]
        kind = self.draw(st.sampled_from(("atom", *kinds))) if depth else "atom"
        match kind:
            case "sequence":
                return self.sequence(depth, before)
            case "either":
                return written.Either((self.node(depth - 1, before), self.node(depth - 1, before)))
            case "both":
                self.parallel += 1
                parts = (self.node(depth - 1, before), self.node(depth - 1, before))
                self.parallel -= 1
                return written.Both(parts, self.selection())
            case "repeat":
                least, most = self.draw(st.sampled_from(((1, None), (1, None), (0, None), (0, 1), (2, 2), (1, 3))))
                selection = self.selection()
                self.repeated += [selection] if most != 1 else []
                part = self.node(depth - 1, before)
                self.repeated = self.repeated[:-1] if most != 1 else self.repeated
                return written.Repeat(part, least, most, selection, self.draw(st.booleans()))
            case "without" if not self.parallel:
                inner = self.sequence(depth, before)
                return written.Without(self.atom(before, negative=True), inner)
        return self.atom(before)

    def sequence(self, depth: int, before: tuple[str, ...]) -> written.Sequence:
        parts: list[written.Node] = []
        selections: list[written.Selection] = []
        for at in range(self.draw(st.integers(2, 3))):
            apart = at > 0 and not self.parallel and "without" in self.operators and self.draw(st.integers(0, 5)) == 0
            if apart:
                parts.append(written.Without(self.atom(before, negative=True)))
            start = len(self.names)
            selections += [self.selection(apart=apart)] * (len(parts) - len(selections))
            parts.append(self.node(depth - 1, before))
            before = (*before, *self.names[start:])
        return written.Sequence(tuple(parts), tuple(selections))

    def atom(self, before: tuple[str, ...], *, negative: bool = False) -> written.Atom:
        name = f"e{self.count}"
        self.count += 1
        channel = self.draw(st.sampled_from(("a", "a", "b")))
        tests = self._tests(name, channel, before, negative=negative)
        arguments = None
        if self.variables and self.draw(st.integers(0, 3)) == 0:
            field = self.draw(st.sampled_from(("s", "v", "f") if channel == "a" else ("s", "v")))
            arguments = (written.Argument(written.Variable(f"X{field}"), field),)
        condition = written.Condition(" and ".join(f"({test})" for test in tests)) if tests else None
        if not negative:
            self.names.append(name)
            if self.repeated and "any" not in self.repeated:
                self.summed.append(name)
        return replace(written.Atom(channel, name), arguments=arguments, condition=condition)

    def _tests(self, name: str, channel: str, before: tuple[str, ...], *, negative: bool) -> list[str]:
        alone = (*_ALONE, *(_ALONE_A if channel == "a" else ()))
        tests = [self.draw(st.sampled_from(alone))] if self.draw(st.booleans()) else []
        if self.between and before and self.draw(st.integers(0, 2)) == 0:
            other = self.draw(st.sampled_from(before))
            sums = _SUMS if self.rounds and other in self.summed else ()
            tests.append(self.draw(st.sampled_from((*_BETWEEN, *sums))).format(other))
        if self.rounds and self.repeated and not negative and self.draw(st.integers(0, 2)) == 0:
            sums = _SUMS if "any" not in self.repeated else ()
            tests.append(self.draw(st.sampled_from((*_ROUNDS, *sums))).format(name))
        return tests


def is_decided(pattern: model.Pattern) -> bool:
    """Whether a match is one as soon as it is complete, or time decides: else a further row may have to."""
    by_time = pattern.window is not None and pattern.window.microseconds is not None
    return by_time or (pattern.after.rule == "no skip" and pattern.reuse)
