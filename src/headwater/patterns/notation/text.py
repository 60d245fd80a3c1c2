"""The compact text of patterns, as written patterns.

    Seen(P, 42); Seen(P, *)                       templates: variables, values, * for any; later sightings of whoever
    Withdraw(z){z > 500}                          a condition in braces: predicate text
    a: hall.door(action = 'in') -> b: hall.door{who != a.who} within 2 seconds partition by door
    open: door ; without pass within 10 seconds   ; any that fits, -> the next that fits, `,` strictly adjacent
    (f: failure){3} without repair within 1 hour  {3} {2,} {2,5} + * ?, reluctant with another ?; a selection: + any

    pattern  = [whenever | once] either clause*
    either   = both ("|" both)*
    both     = sequence (("&" | "&;" | "&->" | "&,") sequence)*
    sequence = item ((";" | "->" | ",") item)*
    item     = "without" unit | repeated ("without" unit)*
    repeated = unit (("+" | "*" | "?" | "{" n ["," [m]] "}") ["?"] [strict | next | any])*
    unit     = "(" either ")" | [name ":"] channel ["(" arguments ")"] ["{" condition "}"]
    clause   = within (time | n events | :name) | partition by … | among … | time … | lateness time | patience time
             | after match (no skip | next | past last | first name | last name) | no reuse | measures … as name, …

Conditions are not read here: where one begins and ends is. After an error the text is read on at the next step, bracket
or clause, so that all problems are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from headwater.errors import InterestError, PatternError, Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import MAX_DEPTH
from headwater.lang.source import MAX_RECOVERED, NESTED, NESTED_HINT, check_text
from headwater.patterns.notation.characters import CLAUSES, NUMBER, Characters, Fault, TooDeep
from headwater.patterns.notation.clauses import Clauses
from headwater.patterns.written import (
    SELECTIONS,
    Argument,
    Atom,
    Both,
    Condition,
    Either,
    Node,
    Pattern,
    Repeat,
    Selection,
    Sequence,
    Value,
    Variable,
    Wildcard,
    Without,
)

NOTATION = "text"
UNREADABLE = ""  # the channel of an atom that could not be read: of it, nothing more is said
MAX_DIGITS = 30  # of a number in a template

_SEGMENT = r"(?:\*\*|\*|\w+(?:-(?!>)\w+)*)"
_CHANNEL = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})*")
_ROUNDS = re.compile(r"\{\s*(\d*)\s*(?:(,)\s*(\d*)\s*)?\}")
_STEPS: dict[str, Selection] = {"->": "next", ";": "any", ",": "strict"}


def parse(text: str, aliases: Mapping[str, str] | None = None) -> Pattern:
    """The pattern that a text says, or a PatternError with every problem that shows before types are known."""
    pattern, problems = read(text, aliases)
    if problems or pattern is None:
        raise PatternError(problems)
    return pattern


def read(text: str, aliases: Mapping[str, str] | None = None) -> tuple[Pattern | None, list[Problem]]:
    """As much of the pattern as could be read, with what is wrong with the rest: what can be read may be checked."""
    try:
        reader = _Reader(check_text(text, "pattern text"))
    except InterestError as error:  # it is too long, as of any notation
        raise PatternError(error.problems) from None
    pattern = None
    with suppress(TooDeep):  # nothing more is told of such a text
        pattern = reader.pattern()
    if pattern is not None and aliases:
        pattern = replace(pattern, aliases=dict(aliases))
    return pattern, sorted(dict.fromkeys(reader.problems), key=lambda problem: (problem.line, problem.column))


class _Reader(Characters):
    """The expression, by descent."""

    # ── the whole ──

    def pattern(self) -> Pattern | None:
        begin = self.takes_word("whenever", "once")
        self.blank()
        if self.at >= len(self.text):
            self.note(Span(self.at, self.at), "the pattern is empty", expected="an atom, e.g. Seen(P, 42)")
            return None
        root = self.either()
        if self.problems and len(self.text) > MAX_RECOVERED:
            return None
        clauses = Clauses(self)
        while self.at < len(self.text):
            self.blank()
            if self.at >= len(self.text):
                break
            clauses.read()
        options = clauses.options
        if begin is not None:
            options["begin"] = "each" if begin == "whenever" else "first"
        return Pattern(root, **options, text=self.text, notation=NOTATION, places=clauses.places)

    # ── the expression ──

    def chain(self, part: Callable[[], Node], *marks: str) -> tuple[list[Node], list[str], Span]:
        """Parts with marks between them."""
        self.blank()
        start = self.at
        parts, between = [part()], list[str]()
        while mark := self.takes(*marks):
            between.append(mark)
            parts.append(part())
        return parts, between, self.since(start)

    def either(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.note(self.here(), NESTED, hint=NESTED_HINT)
            raise TooDeep
        parts, _, span = self.chain(self.both, "|")
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Either(tuple(parts), span)

    def both(self) -> Node:
        parts, marks, span = self.chain(self.sequence, "&;", "&->", "&,", "&")
        if len(parts) == 1:
            return parts[0]
        selections = {_STEPS.get(mark[1:], "next") for mark in marks}
        if len(selections) > 1:
            self.note(span, "the steps of one and are of one kind", hint="put parts of it in parentheses")
        return Both(tuple(parts), selections.pop(), span)

    def sequence(self) -> Node:
        parts, marks, span = self.chain(self.item, *_STEPS)
        if len(parts) == 1 and not (isinstance(parts[0], Without) and parts[0].of is None):
            return parts[0]
        return Sequence(tuple(parts), tuple(_STEPS[mark] for mark in marks), span)

    def item(self) -> Node:
        self.blank()
        start = self.at
        name = self.name_ahead()
        try:
            if self.takes_word("without"):
                return Without(self.unit(), span=self.since(start))
            node = self.repeated()
        except Fault:
            self.skip()
            return Atom(UNREADABLE, name, span=self.since(start))
        try:
            while self.takes_word("without"):
                node = Without(self.unit(), node, self.since(start))
            self.check_end()
        except Fault:
            self.skip()
        return node

    def name_ahead(self) -> str | None:
        """The name of an atom that may turn out to be unreadable: conditions may still name it."""
        found = re.compile(r"([^\W\d]\w*)\s*:").match(self.text, self.at)
        return found[1] if found else None

    def check_end(self) -> None:
        """Whether what comes after an item is what may."""
        if self.sees("->", ";", ",", "|", "&", ")") or self.at >= len(self.text) or self.word() in CLAUSES:
            return
        word = self.word()
        close = get_close_matches(word.lower(), CLAUSES, 1, 0.7) if word else []
        hint = f"did you mean {close[0]}?" if close else "between two atoms comes ; (any), -> (next) or , (adjacent)"
        self.expected("a step, | or &, a clause, or the end", hint)

    def repeated(self) -> Node:
        self.blank()
        start = self.at
        node = self.unit()
        while True:
            rounds = self.rounds()
            if rounds is None:
                return node
            greedy = self.takes("?") is None
            word = self.word()
            selection = next((each for each in SELECTIONS if each == word), None)
            if selection is not None and not self.names_an_atom(selection):
                self.takes_word(selection)
            else:
                selection = None
            node = Repeat(node, rounds[0], rounds[1], selection or "next", greedy, self.since(start))

    def names_an_atom(self, word: str) -> bool:
        found = re.compile(r"\s*[.:({]").match(self.text, self.at + len(word))
        return found is not None

    def rounds(self) -> tuple[int, int | None] | None:
        mark = self.takes("+", "*", "?")
        if mark:
            return {"+": (1, None), "*": (0, None), "?": (0, 1)}[mark]
        if not self.sees("{"):
            return None
        found = _ROUNDS.match(self.text, self.at)
        if found is None or not (found[1] or found[3]):
            self.fail(
                "this is no number of rounds",
                expected="{3}, {2,} or {2,5}",
                found=self.text[self.at : self.at + 20],
                hint="an element has one condition, before its number of rounds: b: x{level > 1}+",
            )
        span = Span(self.at, found.end())
        if max(len(found[1] or ""), len(found[3] or "")) > 9:
            self.fail("no repetition has so many rounds", span)
        self.at = found.end()
        least = int(found[1] or 0)
        return least, (int(found[3]) if found[3] else None) if found[2] else least

    def unit(self) -> Node:
        opening = self.at if self.sees("(") else None
        if opening is None:
            return self.atom()
        opening = self.at
        self.at += 1
        node = self.either()
        if not self.takes(")"):
            if self.at >= len(self.text) or self.word() in CLAUSES:
                self.fail("this is never closed", Span(opening, opening + 1), expected=")", found=self.found())
            self.expected(")")
        return node

    # ── atoms ──

    def atom(self) -> Atom:
        """`name: channel(arguments){condition}`, of which only the channel must be there. Braces may also hold the
        rounds of a repetition, `{2,3}`: those are left to who reads repetitions."""
        self.blank()
        start = self.at
        name = self.name_ahead()
        if name is not None:
            self.takes_word()
            self.takes(":")
        self.blank()
        channel = _CHANNEL.match(self.text, self.at)
        if channel is None or channel[0] in CLAUSES or channel[0] == "without":
            self.expected("an atom: the name of a channel", "e.g. Seen(P, 42), or hall.door{action = 'in'}")
        if channel[0][0].isdigit() and "." not in channel[0]:
            self.expected("the name of a channel", "conditions stand in braces: hall.door{level > 3}")
        self.at = channel.end()
        arguments = self.arguments(channel[0]) if self.sees("(") else None
        condition = None
        if self.sees("{"):
            found = _ROUNDS.match(self.text, self.at)
            if found is None or not (found[1] or found[3]):
                condition = self.condition()
        return Atom(channel[0], name, arguments, condition, self.since(start))

    def condition(self) -> Condition:
        opening = self.at
        end = self.closing(opening, "}")
        self.at = end + 1
        return Condition(self.text[opening + 1 : end], Span(opening + 1, end))

    def arguments(self, channel: str) -> tuple[Argument, ...]:
        opening = self.at
        try:
            return self.arguments_from(opening, channel)
        except Fault:
            told = len(self.problems)
            with suppress(Fault):  # go on after them
                self.at = self.closing(opening, ")") + 1
            del self.problems[told:]
            raise

    def arguments_from(self, opening: int, channel: str) -> tuple[Argument, ...]:
        self.at = opening + 1
        found: list[Argument] = []
        if self.takes(")"):
            return ()
        while True:
            found.append(self.argument())
            if self.takes(","):
                continue
            if self.takes(")"):
                return tuple(found)
            if self.at >= len(self.text):
                self.fail("this is never closed", Span(opening, opening + 1), expected=")", found="the end")
            self.expected(") or ,", f"a template has values and variables only: write {channel}{{level > 3}}")

    def argument(self) -> Argument:
        self.blank()
        start = self.at
        named = re.compile(r"([^\W\d]\w*)\s*==?(?!=)").match(self.text, self.at)
        if named:
            self.at = named.end()
        value = self.value()
        return Argument(value, named[1] if named else None, self.since(start))

    def value(self) -> Variable | Wildcard | Value:
        self.blank()
        start = self.at
        if self.takes("*"):
            return Wildcard(self.since(start))
        if self.takes("'"):
            return Value(self.quoted(start), span=self.since(start))
        if self.takes(":"):
            name = self.takes_word()
            if name is None:
                self.expected("a parameter, e.g. :limit")
            return Value(name, True, self.since(start))
        word = self.takes_word()
        if word is not None:
            constants: dict[str, Any] = {"true": True, "false": False, "null": None}
            span = self.since(start)
            return Value(constants[word.lower()], span=span) if word.lower() in constants else Variable(word, span)
        return self.number(start)

    def number(self, start: int) -> Value:
        sign = self.takes("-", "+")
        found = NUMBER.match(self.text, self.at)
        if found is None:
            self.expected("a value, a variable or *")
        self.at = found.end()
        digits, span = found[0], self.since(start)
        if len(digits) > MAX_DIGITS:
            self.fail("this number is too long", span, expected=f"at most {MAX_DIGITS} characters")
        number: int | float = int(digits) if digits.isdecimal() else float(digits)
        return Value(-number if sign == "-" else number, span=span)

    def quoted(self, start: int) -> str:
        """After the opening quote; a quote inside is written twice."""
        parts = []
        while True:
            end = self.text.find("'", self.at)
            if end < 0:
                self.at = len(self.text)  # nobody knows where anything ends
                self.fail("this quote is never closed", Span(start, start + 1), expected="the same quote at the end")
            parts.append(self.text[self.at : end])
            self.at = end + 1
            if not self.text.startswith("'", self.at):
                return "'".join(parts)
            self.at += 1
