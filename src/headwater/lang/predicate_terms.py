"""The conditions of a predicate text that cannot be read as a whole: what stands between `and` and `or`.

After a syntax error the text is cut at every `and` and `or`, brackets that open or close elsewhere are left out at both
ends, and the condition in which the error is, is left out. What is left can be looked at by itself, at its place.

This file knows nothing of types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot.errors import TokenError

from headwater.errors import Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import locate
from headwater.lang.predicate_tokens import MAX_TOKENS, T, engine

MAX_TERMS = 200
_OPEN, _CLOSE = (T.L_PAREN, T.L_BRACKET, T.CASE), (T.R_PAREN, T.R_BRACKET, T.END)


@dataclass(frozen=True, slots=True)
class Term:
    """A condition, with blanks for all of the text around it; `outermost`: within no bracket, and all are closed."""

    text: str
    outermost: bool


def terms(text: str, error: Problem) -> Iterator[Term]:
    """All but the one with the error."""
    try:
        tokens: list[Any] = engine.tokenizer.tokenize(text)
    except TokenError:  # a quote that is never closed: nobody knows where anything ends
        return
    if len(tokens) > MAX_TOKENS:
        return
    wrong = _offset(text, error)
    found, sound = _cut(tokens, len(text))
    for part, depth, end in found[:MAX_TERMS]:
        whole = not _unmatched(part)
        part = _bare(part)
        if part and not part[0].start <= wrong <= max(part[-1].end + 1, end):
            start, end = part[0].start, part[-1].end + 1
            yield Term(_blank(text[:start]) + text[start:end] + _blank(text[end:]), sound and depth == 0 and whole)


def _cut(tokens: list[Any], size: int) -> tuple[list[tuple[list[Any], int, int]], bool]:
    """The tokens between `and` and `or`, each with how deep in brackets it begins, and where the word begins that ends
    it: there a condition without an end is told of, and a comment after one. And whether brackets match."""
    found: list[tuple[list[Any], int, int]] = []
    part: list[Any] = []
    begun = 0
    depth, sound = 0, True
    between: list[int] = []  # depths at which a `between` waits for its `and`
    for token in tokens:
        kind = token.token_type
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth -= 1
            sound = sound and depth >= 0
        elif kind is T.BETWEEN:
            between.append(depth)
        elif kind is T.AND and between and between[-1] == depth:
            between.pop()
        elif kind is T.AND or kind is T.OR:
            found.append((part, begun, token.start))
            part, begun = [], depth
            continue
        part.append(token)
    found.append((part, begun, size))
    return found, sound and depth == 0


def _unmatched(part: list[Any]) -> bool:
    depth = 0
    for token in part:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if depth < 0:
            return True
    return depth != 0


def _bare(part: list[Any]) -> list[Any]:
    """Without the brackets at its ends that belong to what is around it."""
    while part and part[0].token_type is T.L_PAREN and _unmatched(part):
        part = part[1:]
    while part and part[-1].token_type is T.R_PAREN and _unmatched(part):
        part = part[:-1]
    return [] if _unmatched(part) else part


def _blank(text: str) -> str:
    return "".join(c if c == "\n" else " " for c in text)


def _offset(text: str, problem: Problem) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: problem.line - 1]) + problem.column - 1


def relocated(text: str, problem: Problem) -> Problem:
    """A problem of a term, with the line as it was written."""
    start = _offset(text, problem)
    return locate(
        text,
        Span(start, start + problem.width),
        problem.message,
        expected=problem.expected,
        found=problem.found,
        hint=problem.hint,
        about=problem.about,
    )
