"""Row patterns within a statement of SQL that somebody else runs: where each stands, of what table, and what it says.

SELECT d.who, count(*) FROM doors MATCH_RECOGNIZE (…) AS d WHERE d.who != 'guard' GROUP BY d.who
                            └──────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import InterestError, PatternError, Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import locate
from headwater.lang.source import check_text
from headwater.patterns.notation.match_recognize import Reader
from headwater.patterns.notation.sql_words import Fault, Word, Words
from headwater.patterns.written import Pattern

_BEFORE_A_TABLE = ("FROM", "JOIN", "LATERAL", "TABLE")


@dataclass(frozen=True, slots=True)
class RowPatternClause:
    """`span` is all that stands for the rows of the matches; `table` are the parts of the table's name, and the
    pattern knows it by them with dots between."""

    span: Span
    table: tuple[str, ...]
    pattern: Pattern

    @property
    def channel(self) -> str:
        return ".".join(self.table)


def row_patterns(text: str) -> list[RowPatternClause]:
    """Those in a statement, from left to right, or a PatternError with every problem in them."""
    try:
        words = Words(check_text(text, "a statement in SQL"))
    except PatternError:
        raise
    except InterestError as error:
        raise PatternError(error.problems) from None
    strange, words.problems = words.problems, []  # characters that are no SQL of ours: outside they are not our affair
    found = list[RowPatternClause]()
    spans = list[Span]()
    for at, word in enumerate(words.words):
        if not word.is_word("MATCH_RECOGNIZE") or not words.words[at + 1].is_mark("("):
            continue
        try:
            start, table = _table(words, at)
            words.at = start
            pattern, end = Reader(words).clause()
        except Fault:
            spans.append(word.span)
            continue
        span = Span(words.words[start].span.start, end.span.end)
        spans.append(span)
        if pattern is not None:
            found.append(RowPatternClause(span, table, pattern))
    problems = [*words.problems, *(each for each in strange if any(_within(text, each, span) for span in spans))]
    if problems:
        words.problems = problems
        raise words.error()
    return found


def _table(words: Words, at: int) -> tuple[int, tuple[str, ...]]:
    """Where the table before MATCH_RECOGNIZE begins, and its name."""
    start, name = _path(words, at)
    before = words.words[start - 1] if start else None
    if before is not None and before.is_word("AS"):
        return _path(words, start - 1)
    if before is not None and before.is_name and not before.is_word(*_BEFORE_A_TABLE):
        return _path(words, start)
    return start, name


def _path(words: Words, end: int) -> tuple[int, tuple[str, ...]]:
    """The name with dots that ends before a word."""
    at = end - 1
    if at < 0 or not words.words[at].is_name:
        found: Word = words.words[max(at, 0)]
        hint = "make a view of it first, and name that" if found.is_mark(")") else None
        words.problem(found, "the name of a table or view is expected before MATCH_RECOGNIZE",
                      expected="a name", found=words.shown(found), hint=hint)  # fmt: skip
        raise Fault
    parts = [words.words[at].text]
    while at >= 2 and words.words[at - 1].is_mark(".") and words.words[at - 2].is_name:
        at -= 2
        parts.append(words.words[at].text)
    return at, tuple(reversed(parts))


def _within(text: str, problem: Problem, span: Span) -> bool:
    first, last = (locate(text, Span(at, at), "") for at in (span.start, span.end))
    place = problem.line, problem.column
    return (first.line, first.column) <= place <= (last.line, last.column)
