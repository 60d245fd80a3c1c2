"""What building an interest notes down: problems with their places, and how large and deep the program gets.

This file knows nothing of types or rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from headwater.errors import InterestRefused, Problem
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    Expr,
    Missing,
    Span,
)
from headwater.spelling import did_you_mean
from headwater.types.model import (
    Scalar,
)

MAX_NODES = 20_000
MAX_DEPTH = 100  # of operations in operations; a chain such as a * b * c counts once
MAX_LEVELS = 256  # of the tree, in which each operator of a chain is a level
MAX_TEXT = 256 * 1024

BAD = Scalar("bad")
_Node = TypeVar("_Node", bound=Expr)


def is_bad(expr: Expr) -> bool:
    """Whether a problem has been noted for this operand already."""
    return expr.type is BAD


class Notes:
    """The problems and the size of one interest under construction."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self._depths: dict[int, tuple[int, int]] = {}  # levels, and how deep it nests
        self._kept: list[object] = []  # keeps ids in _depths unique

    def problem(
        self,
        span: Span,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        about: str | None = None,
    ) -> Expr:
        """Note a problem at a place; returns a bad node to go on with."""
        self.problems.append(locate(self.text, span, message, expected=expected, found=found, hint=hint, about=about))
        return Missing(BAD, span)

    def refuse(self, span: Span, message: str, **more: str) -> InterestRefused:
        return InterestRefused([locate(self.text, span, message, **more)], "this interest is refused")

    def suggest(self, name: str, among: Iterable[str], what: str) -> str | None:
        among = list(among)
        if hint := did_you_mean(name, among):
            return hint
        return f"{what}: {', '.join(among[:12])}{' …' if len(among) > 12 else ''}" if among else None

    def keep(self, node: _Node, *children: Expr) -> _Node:
        """Count a node and its depth; the limits keep every later pass within bounds."""
        below = [self._depths.get(id(child), (0, 0)) for child in children]
        levels = 1 + max((levels for levels, _ in below), default=0)
        chained = isinstance(node, Binary) and isinstance(node.a, Binary)  # as in a * b * c
        depth = max((depth + (at > 0 or not chained) for at, (_, depth) in enumerate(below)), default=1)
        self._depths[id(node)] = levels, depth
        self._kept.append(node)
        span = getattr(node, "span", NOWHERE)
        if depth > MAX_DEPTH:
            raise self.refuse(span, f"expressions nest deeper than {MAX_DEPTH}", hint="assign parts to variables")
        if levels > MAX_LEVELS:
            hint = "put parts of it in parentheses, or assign them to variables"
            raise self.refuse(span, f"more than {MAX_LEVELS} operators in a row", hint=hint)
        if len(self._kept) > MAX_NODES:
            raise self.refuse(span, f"the interest has more than {MAX_NODES:,} parts", hint="use set parameters")
        return node


def locate(text: str, span: Span, message: str, **more: str | None) -> Problem:
    """A problem with line, column and the line's text."""
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : len(text) if line_end < 0 else line_end]
    column = start - line_start
    width = max(1, min(span.end, line_start + len(line)) - start)
    cut = max(0, column - 60) if len(line) > 160 else 0  # keep the place in view
    shown = line[cut : cut + 160]
    excerpt = "".join(c if c.isprintable() else " " for c in shown)  # nothing that would steer a terminal
    if found := more.get("found"):
        more["found"] = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)
    number = text.count("\n", 0, start) + 1
    return Problem(message, number, column + 1, excerpt, min(width, 80), caret=column - cut, **more)
