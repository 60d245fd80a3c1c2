"""What follows the expression in a pattern's text: within, partition by, among and so on, in any order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from headwater.durations import MAX_DIGITS, UNITS, micros
from headwater.ir.nodes import Span
from headwater.patterns.notation.characters import CLAUSES, NUMBER, QUOTES, Characters, Fault
from headwater.patterns.written import (
    After,
    Condition,
    Measure,
    Window,
)

_AFTER_OPERAND = {"and", "or", "not", "in", "like", "between", "is", "div", "when", "then", "else", "as", "case"}


@dataclass
class Clauses:
    """What comes after the expression, in any order, each once."""

    reader: Characters
    options: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)

    def read(self) -> None:
        r = self.reader
        start = r.here()
        word = r.takes_word(*CLAUSES)
        try:
            if word is None:
                hint = "a pattern ends, or goes on with within, partition by, among, time, after match or measures"
                close = get_close_matches((r.word() or "").lower(), CLAUSES, 1, 0.7)
                r.expected("a clause or the end", f"did you mean {close[0]}?" if close else hint)
            name = {"no": "reuse", "within": "window"}.get(word, word)
            if name in self.options:
                r.fail(f"{word} is there twice", start, hint="leave one out")
            self.options[name] = getattr(self, f"_{word}")(start)
            self.places[name] = r.since(start.start)
        except Fault:
            r.at = max(r.at, start.start + 1)
            self.skip()

    def skip(self) -> None:
        """To the next clause."""
        r = self.reader
        while r.at < len(r.text):
            r.skip()
            if r.word() in CLAUSES or r.at >= len(r.text):
                return
            r.at += 1

    def _within(self, start: Span) -> Window:
        r = self.reader
        if r.takes(":"):
            name = r.takes_word()
            if name is None:
                r.expected("a parameter, e.g. :limit")
            return Window(parameter=name, span=r.since(start.start))
        r.blank()
        number = NUMBER.match(r.text, r.at)
        after = re.compile(r"\s*(events?|rows?)\b").match(r.text, number.end()) if number else None
        if number and after:
            if not number[0].isdecimal() or len(number[0]) > 15:
                r.expected("a whole number of events")
            r.at = after.end()
            return Window(rows=int(number[0]), span=r.since(start.start))
        return Window(microseconds=self.duration(), span=r.since(start.start))

    def duration(self) -> int:
        """A length of time in microseconds, of one unit or of several: `1 hour 30 minutes`."""
        r = self.reader
        total, seen = 0, False
        while True:
            r.blank()
            number = NUMBER.match(r.text, r.at)
            if number is None:
                if not seen:
                    r.expected("a time, e.g. 10 seconds")
                return total
            span = Span(r.at, number.end())
            r.at = number.end()
            unit = r.takes_word(*UNITS)
            if unit is None:
                close = get_close_matches(r.word() or "", UNITS, 1)
                r.expected("a unit: seconds, minutes, hours …", f"did you mean {close[0]}?" if close else None)
            if len(number[0]) > MAX_DIGITS:
                r.fail("this number is too long", span, expected=f"at most {MAX_DIGITS} digits")
            found = micros(number[0], unit) if number[0].replace(".", "", 1).isdecimal() else None
            if found is None:
                r.fail("this is no whole number of microseconds", Span(span.start, r.at))
            total, seen = total + found, True

    def _lateness(self, start: Span) -> int:
        return self.duration()

    _patience = _lateness

    def _partition(self, start: Span) -> tuple[Condition, ...]:
        if not self.reader.takes_word("by"):
            self.reader.expected("by after partition")
        return tuple(self.expressions())

    def _among(self, start: Span) -> Condition:
        return self.expression(",")[0]

    def _time(self, start: Span) -> Condition:
        return self.expression(",")[0]

    def _no(self, start: Span) -> bool:
        if not self.reader.takes_word("reuse"):
            self.reader.expected("reuse after no", "no reuse: an event of a match is in no later one")
        return False

    def _after(self, start: Span) -> After:
        r = self.reader
        if not r.takes_word("match"):
            r.expected("match after after", "e.g. after match past last")
        rules = ("no skip", "next", "past last", "first", "last")
        first = r.takes_word("no", "next", "past", "first", "last", "to")
        if first == "to":
            first = r.takes_word("next", "first", "last")
        second = {"no": "skip", "past": "last"}.get(first or "")
        if first is None or (second is not None and not r.takes_word(second)):
            r.expected(", ".join(rules[:3]) + ", first a or last a")
        element = None
        if first in ("first", "last"):
            element = r.takes_word()
            if element is None or element in CLAUSES:
                r.expected("an element to go on from")
        rule: Any = f"{first} {second}" if second else first
        return After(rule, element, r.since(start.start))

    def _measures(self, start: Span) -> tuple[Measure, ...]:
        r = self.reader
        found = []
        while True:
            condition, end = self.expression(",", "as")
            if end != "as":
                r.expected("as and the name of a field", "e.g. measures count(b) as n")
            name_at = r.here()
            name = r.takes_word()
            if name is None:
                r.expected("the name of a field")
            found.append(Measure(name, condition, Span(condition.span.start, name_at.end)))
            if not r.takes(","):
                return tuple(found)

    # ── expressions ──

    def expressions(self) -> list[Condition]:
        found = []
        while True:
            condition, end = self.expression(",")
            found.append(condition)
            if end != ",":
                return found

    def expression(self, *ends: str) -> tuple[Condition, str]:
        """Up to a comma (or `as`) outside of brackets, a clause, or the end; and which of these it was. A clause's word
        ends it only where an operator would have to come: elsewhere it is a field of that name."""
        r = self.reader
        r.blank()
        start = end = r.at
        operand = False
        while True:
            r.blank()
            character = r.text[r.at : r.at + 1]
            word = r.word()
            if not character or (character == "," and "," in ends):
                stop = character
                break
            if word is not None and operand and (word in CLAUSES or word in ends):
                stop = word if word in ends else ""
                break
            operand = self.one(character, word)
            end = r.at
        if start == end:
            r.expected("an expression")
        if stop:
            r.at += len(stop)
        return Condition(r.text[start:end], Span(start, end)), stop

    def one(self, character: str, word: str | None) -> bool:
        """Past one word, bracket or mark; whether an operand has ended with it."""
        r = self.reader
        if word is not None:
            r.at += len(word)
            before = r.text[: r.at - len(word)].rstrip()
            return word.lower() not in _AFTER_OPERAND or before.endswith(".")
        if character in "([{":
            r.at = r.closing(r.at, {"(": ")", "[": "]", "{": "}"}[character]) + 1
            return True
        if character in QUOTES:
            end = r.text.find(character, r.at + 1)
            if end < 0:
                r.fail("this quote is never closed", Span(r.at, r.at + 1), expected="the same quote at the end")
            r.at = end + 1
            return True
        number = NUMBER.match(r.text, r.at)
        r.at = number.end() if number else r.at + 1
        return number is not None
