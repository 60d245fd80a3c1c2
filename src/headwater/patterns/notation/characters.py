"""A text of patterns, character by character: marks, words, places, and what is wrong at them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from headwater.errors import Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import locate

CLAUSES = ("within", "partition", "among", "time", "lateness", "patience", "after", "no", "measures")
MAX_PROBLEMS = 100
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
QUOTES = "'\"`"
_BLANK = re.compile(r"(?:\s+|--[^\n]*)*")
_WORD = re.compile(r"[^\W\d]\w*")


class Fault(Exception):
    """A problem has been noted; reading goes on elsewhere."""


class TooDeep(Exception):
    """It nests too deeply, which has been noted; reading ends."""


@dataclass
class Characters:
    """A text that is read from its beginning on, a mark or a word at a time; problems are noted with their places."""

    text: str
    at: int = 0
    depth: int = 0
    problems: list[Problem] = field(default_factory=list)

    # ── characters ──

    def blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def sees(self, *marks: str) -> str | None:
        """Which of these marks comes next, after blanks."""
        self.blank()
        return next((mark for mark in marks if self.text.startswith(mark, self.at)), None)

    def takes(self, *marks: str) -> str | None:
        mark = self.sees(*marks)
        self.at += len(mark or "")
        return mark

    def word(self) -> str | None:
        """The word that comes next; it is not taken."""
        self.blank()
        found = _WORD.match(self.text, self.at)
        return found[0] if found else None

    def takes_word(self, *words: str) -> str | None:
        word = self.word()
        if word is None or (words and word not in words):
            return None
        self.at += len(word)
        return word

    def here(self) -> Span:
        """The word or character that comes next."""
        self.blank()
        found = _WORD.match(self.text, self.at)
        return Span(self.at, found.end() if found else min(self.at + 1, len(self.text)))

    def since(self, start: int) -> Span:
        """What has been taken since, without the blanks after it."""
        return Span(start, max(start, len(self.text[start : self.at].rstrip()) + start))

    def found(self) -> str:
        span = self.here()
        return self.text[span.start : span.end][:30] or "the end"

    # ── problems ──

    def note(self, span: Span, message: str, **more: str | None) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(locate(self.text, span, message, **more))

    def fail(self, message: str, span: Span | None = None, **more: str | None) -> NoReturn:
        self.note(span or self.here(), message, **more)
        raise Fault

    def expected(self, what: str, hint: str | None = None) -> NoReturn:
        self.fail("this is not expected here", expected=what, found=self.found(), hint=hint)

    def closing(self, opening: int, close: str) -> int:
        """Where a bracket that opens there is closed; quotes are passed over."""
        depth, at = 0, opening
        while at < len(self.text):
            character = self.text[at]
            if character in QUOTES:
                end = self.text.find(character, at + 1)
                if end < 0:
                    self.fail("this quote is never closed", Span(at, at + 1), expected="the same quote at the end")
                at = end
            elif character in "([{":
                depth += 1
            elif character in ")]}":
                depth -= 1
                if depth == 0:
                    if character != close:
                        break
                    return at
            at += 1
        return self.fail("this is never closed", Span(opening, opening + 1), expected=close)

    def skip(self) -> None:
        """After an error: to the next step, alternative, closing bracket or clause."""
        while self.at < len(self.text):
            self.blank()
            character = self.text[self.at : self.at + 1]
            if not character or character in ";,|&)" or self.text.startswith("->", self.at):
                return
            word = self.word()
            if word in CLAUSES or word == "without":
                return
            if character in "([{":
                try:
                    self.at = self.closing(self.at, {"(": ")", "[": "]", "{": "}"}[character]) + 1
                except Fault:
                    self.problems.pop()  # it has been told, or is of no account any more
                    self.at = len(self.text)
            elif character in QUOTES:
                end = self.text.find(character, self.at + 1)
                self.at = len(self.text) if end < 0 else end + 1
            else:
                self.at += len(word or character)
