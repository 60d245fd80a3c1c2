"""What stands in the parentheses of PATTERN: a regular expression over variables instead of characters.

    alternation = sequence ("|" sequence)*
    sequence    = (primary quantifier?)+
    primary     = variable | "(" alternation ")" | PERMUTE "(" alternation ("," alternation)+ ")"
    quantifier  = ("*" | "+" | "?" | "{" n "}" | "{" n? "," m? "}") "?"?

Everything in it is strictly adjacent. Atoms come out without conditions: those are in DEFINE, further on in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headwater.ir.nodes import Span
from headwater.ir.notes import MAX_DEPTH
from headwater.lang.source import too_deep
from headwater.patterns.notation.sql_words import Fault, Word, Words
from headwater.patterns.written import Atom, Both, Condition, Either, Node, Repeat, Selection, Sequence

MAX_ROUNDS = 1_000_000  # of a quantifier: what is meant by more is without end
MAX_PERMUTED = 5  # parts of a PERMUTE that are more than variables: each order of them is written out
MAX_WRITTEN_OUT = 2_000  # variables in all orders of a PERMUTE

KEYWORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "DIV", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "TRUE",
     "FALSE", "NULL")
)  # fmt: skip
# A variable is a name of conditions too, where these words mean something else.
RESERVED = KEYWORDS | {"META", "INPUT", "PERMUTE"}

_NO_ANCHOR = {
    "^": "a match cannot be tied to the first row of a partition: events have been before those that are seen",
    "$": "a match cannot be tied to the last row of a partition: a stream of events has none",
}


class RowPattern:
    """Reads one pattern, from behind its opening parenthesis to its closing one."""

    def __init__(self, words: Words, channel: str, named: Span) -> None:
        self.words = words
        self.channel = channel
        self.named = named
        self._depth = 0

    def read(self) -> Node:
        node = self._alternation()
        self.words.mark(")", "a variable, a quantifier, | or )")
        return node

    def _alternation(self) -> Node:
        start = self.words.word.span.start
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise too_deep(self.words.text, self.words.word.span)
        parts = [self._sequence()]
        while self.words.taken_mark("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Either(tuple(parts), self.words.span_from(start))

    def _sequence(self) -> Node:
        words, start = self.words, self.words.word.span.start
        parts, refused = list[Node](), False
        while not (words.word.is_mark(")", "|", "||", ",") or words.word.kind == "end" or self._excluded_end()):
            part = self._factor()
            if part is not None:
                parts.append(part)
            refused |= part is None
        if refused and not parts:
            return Atom(self.channel, named=self.named)
        if words.word.is_mark("||") or not parts:
            raise self._empty()
        if len(parts) == 1:
            return parts[0]
        strict: Selection = "strict"
        return Sequence(tuple(parts), (strict,) * (len(parts) - 1), words.span_from(start))

    def _empty(self) -> Fault:
        if self.words.word.kind == "end":
            return self.words.unexpected("a variable")
        hint = "an optional part is written with ?, e.g. (A | B)?"
        return self.words.unexpected("a variable: an empty pattern is not supported", hint)

    def _excluded_end(self) -> bool:
        return self.words.word.is_mark("-") and self.words.ahead().is_mark("}")

    def _factor(self) -> Node | None:
        """None where something is not supported, and has been said to be so."""
        start = self.words.word.span.start
        part = self._primary()
        return self._quantified(part, start)

    # ── what is repeated ──

    def _primary(self) -> Node | None:
        words = self.words
        word = words.word
        if word.is_mark("("):
            words.take()
            node = self._alternation()
            words.mark(")", "a variable, a quantifier, | or )")
            return node
        if word.is_word("PERMUTE") and words.ahead().is_mark("("):
            return self._permuted()
        if word.is_name:
            return self._variable(words.take())
        if word.is_mark("^", "$"):
            words.problem(words.take(), f"{word.text} is not supported", hint=_NO_ANCHOR[word.text])
            return None
        if word.is_mark("{") and words.ahead().is_mark("-"):
            return self._excluded()
        if word.is_mark("*", "+", "?", "{"):
            raise words.unexpected("a variable before the quantifier")
        raise words.unexpected("a variable, ( or PERMUTE")

    def _variable(self, word: Word) -> Atom:
        name = word.text
        if not name.isidentifier() or name.upper() in RESERVED:
            why = "is a word of conditions" if name.isidentifier() else "is not a plain word"
            shown = self.words.shown(word)
            self.words.problem(word, f"a variable cannot have this name: {shown} {why}", hint="call it another name")
        return Atom(self.channel, name, span=word.span, named=self.named)

    def _excluded(self) -> Node | None:
        words = self.words
        start = words.take().span.start
        words.take()
        hint = "with one row per match it changes nothing: leave out {- and -}"
        words.problem(Span(start, start + 2), "the exclusion {- … -} is not supported", hint=hint)
        node = self._alternation()
        if not self._excluded_end():
            raise words.unexpected("-}")
        words.take()
        words.take()
        return node

    def _permuted(self) -> Node | None:
        """PERMUTE(…): variables alone become one node, in any order; larger parts are written out in all orders, which
        is why there may not be many."""
        words, first = self.words, self.words.take()
        words.take()
        parts = [self._alternation()]
        while words.taken_mark(","):
            parts.append(self._alternation())
        words.mark(")", ", or )")
        span = words.span_from(first.span.start)
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, Atom) for part in parts):
            return Both(tuple(parts), "strict", span)
        if len(parts) > MAX_PERMUTED:
            expected = f"at most {MAX_PERMUTED} where some are more than a variable"
            words.problem(span, "too many parts of PERMUTE", expected=expected, found=str(len(parts)))
            return None
        size = _copies(len(parts)) * sum(1 for part in parts for _ in atoms(part))
        if size > MAX_WRITTEN_OUT:
            expected = f"at most {MAX_WRITTEN_OUT:,} variables in all orders together"
            words.problem(span, "this PERMUTE is too large", expected=expected, found=f"{size:,}")
            return None
        return _orders(tuple(parts), span)

    # ── how often ──

    def _quantified(self, part: Node | None, start: int) -> Node | None:
        words = self.words
        bounds = self._bounds()
        if bounds is None:
            return part
        greedy = words.taken_mark("?") is None
        span = words.span_from(start)
        if words.word.is_mark("*", "+", "?") or (words.word.is_mark("{") and not words.ahead().is_mark("-")):
            raise words.unexpected("one quantifier", "put what the first one repeats in parentheses")
        least, most = bounds
        if part is None or (least, most) == (1, 1):
            return part
        return Repeat(part, least, most, "strict", greedy, span)

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated, None without a quantifier. `{-` begins an exclusion, not a number."""
        words = self.words
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if words.taken_mark(mark):
                return bounds
        if not words.word.is_mark("{") or words.ahead().is_mark("-"):
            return None
        start = words.take().span.start
        least = self._number()
        if words.taken_mark(","):
            most = self._number()
            if least is None and most is None:
                raise words.unexpected("a number: {n}, {n,}, {n,m} or {,m}")
        elif least is None:
            raise words.unexpected("a number: {n}, {n,}, {n,m} or {,m}")
        else:
            most = least
        words.mark("}", ", or }" if most is None else "}")
        span = words.span_from(start)
        if most is not None and most < (least or 0):
            words.problem(span, "this ends before it begins", expected="{n,m} with n at most m")
        elif most == 0:
            words.problem(span, "nothing is repeated", expected="one round or more", hint="leave this part out")
        return least or 0, most

    def _number(self) -> int | None:
        word = self.words.word
        if word.kind != "number":
            return None
        self.words.take()
        if not word.text.isdecimal():
            self.words.problem(word, "this is not a whole number", found=self.words.shown(word))
        elif len(word.text.lstrip("0")) > len(str(MAX_ROUNDS)) or int(word.text) > MAX_ROUNDS:
            hint = "without an upper bound: {n,}"
            found = self.words.shown(word)
            self.words.problem(word, "this is too often", expected=f"at most {MAX_ROUNDS:,}", found=found, hint=hint)
        else:
            return int(word.text)
        return 1


def _orders(parts: tuple[Node, ...], span: Span) -> Node:
    """Every order of the parts, those that begin with the first part first, as SQL prefers them."""
    if len(parts) == 1:
        return parts[0]
    orders = list[Node]()
    for at, part in enumerate(parts):
        rest = _orders((*parts[:at], *parts[at + 1 :]), span)
        orders.append(Sequence((part, rest), ("strict",), span))
    return Either(tuple(orders), span)


def _copies(count: int) -> int:
    """How often `_orders` writes each of so many parts."""
    return 1 if count == 1 else 1 + (count - 1) * _copies(count - 1)


# ── questions about a pattern ──


def atoms(node: Node) -> Iterator[Atom]:
    """From left to right, those of one name as often as they stand there."""
    match node:
        case Atom():
            yield node
        case Repeat(part):
            yield from atoms(part)
        case Sequence(parts) | Either(parts) | Both(parts):
            for part in parts:
                yield from atoms(part)


def may_be_empty(node: Node) -> bool:
    """Whether it matches without taking any row."""
    match node:
        case Repeat(part, least):
            return least == 0 or may_be_empty(part)
        case Sequence(parts) | Both(parts):
            return all(may_be_empty(part) for part in parts)
        case Either(parts):
            return any(may_be_empty(part) for part in parts)
        case _:
            return False


def at_the_end(node: Node, *, first: bool) -> frozenset[str]:
    """The names that the first row of a match can have, or the last one."""
    match node:
        case Atom(_, name):
            return frozenset([name] if name else [])
        case Repeat(part):
            return at_the_end(part, first=first)
        case Sequence(parts):
            found = frozenset[str]()
            for part in parts if first else reversed(parts):
                found |= at_the_end(part, first=first)
                if not may_be_empty(part):
                    break
            return found
        case Either(parts) | Both(parts):
            return frozenset[str]().union(*(at_the_end(part, first=first) for part in parts))
        case _:
            return frozenset()


def defined(node: Node, conditions: Mapping[str, Condition]) -> Node:
    """The same with the conditions of its variables; one that has none is always true."""
    match node:
        case Atom(_, name):
            return replace(node, condition=conditions.get(name or ""))
        case Repeat(part):
            return replace(node, part=defined(part, conditions))
        case Sequence(parts) | Either(parts) | Both(parts):
            return replace(node, parts=tuple(defined(part, conditions) for part in parts))
        case _:
            return node


__all__ = ["KEYWORDS", "RowPattern", "at_the_end", "atoms", "defined", "may_be_empty"]
