"""The words of a text in SQL, each with its place, and a cursor that walks over them and notes problems.

A text is cut into words once and never refused here for what it says: only a quote or a comment that does not end,
and a character that no SQL has, are problems. Comments are no words.

This file knows nothing of clauses or patterns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headwater.errors import PatternError, Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import locate
from headwater.lang.source import refusal

SPLIT = "long lists of values belong in set parameters"
Kind = Literal["name", "quoted", "text", "number", "mark", "end"]

SHOWN = 40  # characters of a word in a message
MAX_WORDS = 20_000  # of one text
MAX_PROBLEMS = 200  # of one text, that are looked for

_WORDS = re.compile(
    r"""
      (?P<blank>\s+)
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<name>[^\W\d]\w*)
    | (?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<text>'(?:[^']|'')*+')
    | (?P<quoted>"(?:[^"]|"")*+"|`(?:[^`]|``)*+`)
    | (?P<open>/\*|['"`])
    | (?P<mark><>|<=|>=|!=|==|\|\||&&|<<|>>|::|=>|[-+*/%(){}\[\]<>=!~^$|?,.;:&])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """`text` is what is meant: a quoted name without its quotes. `span` is what was written."""

    kind: Kind
    text: str
    span: Span

    def is_mark(self, *marks: str) -> bool:
        return self.kind == "mark" and self.text in marks

    def is_word(self, *words: str) -> bool:
        """Whether this is one of these keywords, in any case of letters and without quotes."""
        return self.kind == "name" and self.text.upper() in words

    @property
    def is_name(self) -> bool:
        return self.kind in ("name", "quoted")


class Fault(Exception):
    """A problem has been noted, and what was being read cannot be read to its end."""


class Words:
    """A cursor over the words of a text. The last word is the end itself, beyond which it does not go."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.words = self._cut()
        self.at = 0

    # ── from characters to words ──

    def _cut(self) -> list[Word]:
        """Cut the text into words with their places. A strange character is a problem of its own and is left out, so
        that the rest is still read."""
        text, at, words = self.text, 0, list[Word]()
        while at < len(text):
            found = _WORDS.match(text, at)
            if found is None:
                self.problem(Span(at, at + 1), "this character is no part of SQL", found=ascii(text[at]))
                at += 1
                continue
            at = found.end()
            span = Span(*found.span())
            if len(words) >= MAX_WORDS:
                raise refusal(text, span, f"a pattern in SQL has at most {MAX_WORDS:,} words", hint=SPLIT)
            match found.lastgroup:
                case "blank" | "comment":
                    continue
                case "open":
                    self._unclosed(found[0], span)
                    break
                case "quoted":
                    quote = found[0][0]
                    words.append(Word("quoted", found[0][1:-1].replace(quote * 2, quote), span))
                case "text":
                    words.append(Word("text", found[0][1:-1].replace("''", "'"), span))
                case kind:
                    words.append(Word(kind, found[0], span))  # type: ignore[arg-type] # the names of groups are kinds
        words.append(Word("end", "", Span(len(text), len(text))))
        return words

    def _unclosed(self, opened: str, span: Span) -> None:
        """The rest of the text is in there: it is not read, and nothing is said of what is missing in it."""
        what, end = ("comment", "*/") if opened == "/*" else ("quote", opened)
        self.problem(span, f"this {what} is never closed", expected=f"{end} at its end")
        raise self.error()

    # ── problems ──

    def problem(self, place: Span | Word, message: str, *, expected: str | None = None, found: str | None = None,
                hint: str | None = None) -> None:  # fmt: skip
        span = place.span if isinstance(place, Word) else place
        if len(self.problems) >= MAX_PROBLEMS:
            raise self.error()
        self.problems.append(locate(self.text, span, message, expected=expected, found=found, hint=hint))

    def unexpected(self, expected: str, hint: str | None = None) -> Fault:
        """For the word at hand; to be raised."""
        word = self.word
        self.problem(word, "this is not expected here", expected=expected, found=self.shown(word), hint=hint)
        return Fault()

    def shown(self, word: Word) -> str:
        if word.kind == "end":
            return "the end"
        written = self.text[word.span.start : word.span.end]
        return written if len(written) <= SHOWN else written[: SHOWN - 1] + "…"

    def error(self) -> PatternError:
        """All problems, in the order of their places."""
        problems = sorted(set(self.problems), key=lambda problem: (problem.line, problem.column))
        return PatternError(problems)

    # ── walking ──

    @property
    def word(self) -> Word:
        return self.words[self.at]

    def ahead(self, count: int = 1) -> Word:
        return self.words[min(self.at + count, len(self.words) - 1)]

    def take(self) -> Word:
        word = self.word
        self.at = min(self.at + 1, len(self.words) - 1)
        return word

    def taken_mark(self, mark: str) -> Word | None:
        return self.take() if self.word.is_mark(mark) else None

    def taken_words(self, *words: str) -> Word | None:
        """The first of these keywords if all of them follow, one after the other."""
        if not all(self.ahead(at).is_word(word) for at, word in enumerate(words)):
            return None
        first = self.word
        self.at += len(words)
        return first

    def mark(self, mark: str, expected: str | None = None) -> Word:
        taken = self.taken_mark(mark)
        if taken is None:
            raise self.unexpected(expected or mark)
        return taken

    def name(self, expected: str) -> Word:
        if not self.word.is_name:
            raise self.unexpected(expected)
        return self.take()

    def span_from(self, start: int) -> Span:
        """From a place to the end of what was taken last."""
        return Span(start, max(start, self.words[self.at - 1].span.end if self.at else start))


__all__ = ["Fault", "Kind", "Word", "Words"]
