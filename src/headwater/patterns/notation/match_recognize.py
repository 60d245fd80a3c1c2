"""SQL's row patterns: `SELECT … FROM channel MATCH_RECOGNIZE (…)` as a written pattern.

    SELECT * FROM trades MATCH_RECOGNIZE (
        PARTITION BY symbol
        ORDER BY at
        MEASURES FIRST(DOWN.price) AS top, LAST(DOWN.price) AS bottom, COUNT(DOWN.*) AS days
        ONE ROW PER MATCH
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (STRT DOWN{2,} UP) WITHIN INTERVAL '1' HOUR
        DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)
    ) AS t

The text is cut into its clauses first, so that what is wrong with one of them hides nothing of the others. Every row of
the channel is a row of the pattern, and steps are strictly adjacent. `WITHIN` is an extension of Flink's, whose end is
exclusive: ours is inclusive, so the window ends a microsecond earlier, the next shorter time there is.

What is not supported is refused by its name, at its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from headwater.errors import InterestError, PatternError, Problem
from headwater.ir.nodes import Span
from headwater.lang.source import MAX_RECOVERED, check_text
from headwater.patterns.notation.sql_clauses import SUBQUERY, Clauses
from headwater.patterns.notation.sql_intervals import interval
from headwater.patterns.notation.sql_row_pattern import RowPattern, at_the_end, atoms, defined, may_be_empty
from headwater.patterns.notation.sql_terms import Elements, Terms
from headwater.patterns.notation.sql_words import Fault, Word, Words
from headwater.patterns.written import After, Condition, Measure, Node, Pattern, Window

NOTATION = "match_recognize"

MAX_COMPARED = 100  # names that one is compared with which is not among them
_Said = TypeVar("_Said")


def parse(text: str) -> Pattern:
    """The pattern that a text says, or a PatternError with every problem that shows before types are known."""
    pattern, problems = read(text)
    if problems or pattern is None:
        raise PatternError(problems)
    return pattern


def read(text: str) -> tuple[Pattern | None, list[Problem]]:
    """As much of the pattern as could be read, with what is wrong with the rest: what can be read may be checked."""
    try:
        words = Words(check_text(text, "a pattern in SQL"))
        pattern = _read_all(words)
    except PatternError:
        raise
    except InterestError as error:  # a text that is too long or too deep, as of any notation
        raise PatternError(error.problems) from None
    problems = list(words.error().problems) if words.problems else []
    return (None if problems and len(text) > MAX_RECOVERED else pattern), problems


def _read_all(words: Words) -> Pattern | None:
    try:
        return Reader(words).statement()
    except Fault:
        return None


_Partition = tuple[Condition, Word | None]  # an expression; the last word of its path if it is nothing but one


class Reader:
    """One statement. What clauses say is kept until all have been read: they refer to each other in any order."""

    def __init__(self, words: Words) -> None:
        self.words, self.cut = words, Clauses(words)

    # ── the statement around it ──

    def statement(self) -> Pattern | None:
        words = self.words
        if words.word.is_word("WITH"):
            words.problem(words.word, "WITH is not supported before a pattern", hint=SUBQUERY)
            raise Fault
        if not words.taken_words("SELECT"):
            raise words.unexpected("SELECT … FROM channel MATCH_RECOGNIZE (…)")
        self.cut.select_list()
        if not words.taken_words("FROM"):
            raise words.unexpected("FROM")
        open_ = self.cut.table_and_clauses()
        with suppress(Fault):
            self.cut.rest()
        return self._pattern(open_)

    def clause(self) -> tuple[Pattern | None, Word]:
        """`table MATCH_RECOGNIZE (…)` alone, wherever it stands; and the word that closes it."""
        open_ = self.cut.table_and_clauses()
        end = self.words.words[self.words.at - 1]
        return self._pattern(open_), end

    # ── the whole ──

    def _pattern(self, opened: Word) -> Pattern | None:
        """Read the clauses, names first: whether DEFINE and MEASURES make sense depends on the variables and
        subsets."""
        words = self.words
        root = self._root(opened)
        subsets = self._read("SUBSET", self._subsets, dict[str, tuple[str, ...]]())
        variables = frozenset(atom.name for atom in atoms(root) if atom.name) if root is not None else frozenset[str]()
        for name, members in subsets.items():
            self._check_subset(name, members, variables)
        # who there is, where conditions would name what is not known
        unclear = root is None or len(words.problems) > self.cut.refused
        ordered, time = self._time(opened)
        elements = Elements(
            variables,
            frozenset(subsets),
            _unused(variables | frozenset(subsets)),
            at_the_end(root, first=True) if root is not None else frozenset(),
            at_the_end(root, first=False) if root is not None else frozenset(),
        )
        terms = Terms(words, elements, time)
        partition = self._read("PARTITION BY", lambda end: self._partition(terms, end), list[_Partition]())
        conditions = self._read("DEFINE", lambda end: self._definitions(terms, root, end), dict[str, Condition]())
        measures = self._measures(terms, partition)
        after = self._read("AFTER MATCH SKIP", lambda end: self._after(elements), After("past last"))
        window = self._read("WITHIN", lambda end: self._window(), None)
        if root is None or unclear:
            return None
        all_of = {elements.universal: tuple(dict.fromkeys(atom.name for atom in atoms(root) if atom.name))}
        return Pattern(
            root=defined(root, conditions),
            window=window,
            partition=tuple(condition for condition, _ in partition),
            begin="each",
            after=after,
            time=ordered,
            measures=measures,
            subsets=subsets | terms.alone | (all_of if terms.universal_used else {}),
            text=words.text,
            notation=NOTATION,
            places={} if window is None else {"window": window.span},
        )

    def _read(self, name: str, read: Callable[[int], _Said], absent: _Said) -> _Said:
        """What a clause says, all of its words; `absent` if it is not there, or faulty."""
        clause = self.cut.clauses.get(name)
        if clause is None:
            return absent
        words = self.words
        words.at = clause.start
        try:
            if clause.start == clause.end:
                raise words.unexpected(f"something after {name}")
            said = read(clause.end)
            if words.at < clause.end:
                raise words.unexpected("the next clause, or ) at the end")
        except Fault:
            return absent
        return said

    def _root(self, opened: Word) -> Node | None:
        words = self.words
        if "PATTERN" not in self.cut.clauses:
            words.problem(opened, "there is no PATTERN in it", expected="PATTERN (A B …)")
            return None

        def read(end: int) -> Node | None:
            words.mark("(")
            return RowPattern(words, self.cut.channel, self.cut.named).read()

        before = len(words.problems)
        root = self._read("PATTERN", read, None)
        if root is not None and len(words.problems) == before and may_be_empty(root):
            hint = "let it take one row at least, e.g. A+ instead of A*"
            words.problem(root.span, "a pattern that can match no row at all is not supported", hint=hint)
        return root

    # ── PARTITION BY, ORDER BY ──

    def _partition(self, terms: Terms, end: int) -> list[_Partition]:
        """The expressions. One that is a path is a column of the result as well."""
        found = list[_Partition]()
        for start, stop in self.cut.listed(end):
            self.words.at = start
            try:
                condition = terms.condition(start, stop, plain=True)
            except Fault:
                continue
            if condition is not None:
                found.append((condition, self._column(start, stop)))
        self.words.at = end
        return found

    def _column(self, start: int, stop: int) -> Word | None:
        words = self.words.words[start:stop]
        path = all(word.is_mark(".") if at % 2 else word.is_name for at, word in enumerate(words))
        return words[-1] if path and len(words) % 2 else None

    def _time(self, opened: Word) -> tuple[Condition | None, str | None]:
        """By what the rows are ordered: None is the time of publication. And how a measure can name it."""
        hint = "by a field of time, or by meta.time, the time of publication"
        if "ORDER BY" not in self.cut.clauses:
            self.words.problem(opened, "there is no ORDER BY in it", expected="ORDER BY and the time", hint=hint)
            return None, None
        column = self._read("ORDER BY", lambda end: self._ordered(end, hint), None)
        if column is None:
            return None, None
        path = self.words.text[column.start : column.end]
        return (None, path) if path == "meta.time" else (Condition(path, column), path)

    def _ordered(self, end: int, hint: str) -> Span | None:
        """The place of the time in ORDER BY. Source and number may follow it, as that is the order anyhow; nothing
        else may."""
        words = self.words
        parts = self.cut.listed(end)
        found: Span | None = None
        for number, (start, stop) in enumerate(parts):
            words.at = start
            first = words.name("the time of a row")
            while words.at < stop and words.taken_mark("."):
                words.name("a name")
            span = words.span_from(first.span.start)
            self._direction()
            if words.at != stop:
                raise words.unexpected("the time of a row alone", hint)
            path = words.text[span.start : span.end]
            if number == 0:
                found = span
            elif path != (None, "meta.source", "meta.seq")[min(number, 2)] or number > 2:
                more = "rows of one time are in the order of their source and sequence number"
                words.problem(span, "ORDER BY of more than the time is not supported", expected="the time", hint=more)
                return found
        return found

    def _direction(self) -> None:
        words = self.words
        if words.word.is_word("DESC"):
            words.problem(words.word, "ORDER BY … DESC is not supported: time goes forward")
        if words.word.is_word("ASC", "DESC"):
            words.take()
        if words.word.is_word("NULLS"):
            hint = "an event without a time is in no match: leave it out"
            words.problem(words.word, "NULLS FIRST and NULLS LAST are not supported", hint=hint)
            words.take()
            if words.word.is_word("FIRST", "LAST"):
                words.take()

    # ── DEFINE, SUBSET ──

    def _definitions(self, terms: Terms, root: Node | None, end: int) -> dict[str, Condition]:
        """The conditions of DEFINE by variable. A mistake in one does not keep the others from being read."""
        words, found = self.words, dict[str, Condition]()
        seen = set[str]()
        for start, stop in self.cut.listed(end):
            words.at = start
            try:
                name = words.name("a variable")
                if not words.taken_words("AS"):
                    raise words.unexpected("AS and a condition")
                if root is not None:
                    self._known(name, terms.elements.variables, "PATTERN has no variable of this name")
                if name.text in seen:
                    words.problem(name, "this variable is defined twice", found=words.shown(name))
                seen.add(name.text)
                condition = terms.condition(words.at, stop, of=name.text)
            except Fault:
                continue
            if condition is not None:
                found[name.text] = condition
        words.at = end
        return found

    def _known(self, word: Word, names: frozenset[str], message: str) -> None:
        if word.text in names:
            return
        hint = None
        if 0 < len(names) <= MAX_COMPARED:
            close = [name for name in names if name.casefold() == word.text.casefold()]
            close = close or get_close_matches(word.text[:MAX_COMPARED], sorted(names), 1, 0.6)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(sorted(names)[:12])}"
        self.words.problem(word, message, found=self.words.shown(word), hint=hint)

    def _subsets(self, end: int) -> dict[str, tuple[str, ...]]:
        words, found = self.words, dict[str, tuple[str, ...]]()
        for start, stop in self.cut.listed(end):
            words.at = start
            name = words.name("a name for several variables")
            words.mark("=")
            words.mark("(")
            members = [words.name("a variable")]
            while words.taken_mark(","):
                members.append(words.name("a variable"))
            words.mark(")", ", or )")
            if words.at != stop:
                raise words.unexpected(", or the next clause")
            if name.text in found:
                words.problem(name, "this subset is defined twice", found=words.shown(name))
            found[name.text] = tuple(member.text for member in members)
        return found

    def _check_subset(self, name: str, members: tuple[str, ...], variables: frozenset[str]) -> None:
        clause = self.cut.clauses["SUBSET"]
        names = {word.text: word for word in reversed(self.words.words[clause.start : clause.end]) if word.is_name}
        if name in variables:
            self.words.problem(names[name], "a subset has the name of a variable", found=name[:40])
        for member in members:
            self._known(names[member], variables, "PATTERN has no variable of this name")

    # ── AFTER MATCH, WITHIN ──

    def _after(self, elements: Elements) -> After:
        words = self.words
        start = self.cut.clauses["AFTER MATCH SKIP"].word.span.start
        if words.taken_words("PAST", "LAST", "ROW"):
            return After("past last", span=words.span_from(start))
        if words.taken_words("TO", "NEXT", "ROW"):
            return After("next", span=words.span_from(start))
        if not words.taken_words("TO"):
            raise words.unexpected("PAST LAST ROW, TO NEXT ROW, TO FIRST x, TO LAST x")
        first = words.word.is_word("FIRST") and words.ahead().is_name and not _begins_clause(words)
        if first or (words.word.is_word("LAST") and words.ahead().is_name and not _begins_clause(words)):
            words.take()
        word = words.name("a variable")
        if elements.variables:
            names = elements.variables | elements.subsets
            self._known(word, names, "there is no variable of this name to skip to")
        return After("first" if first else "last", word.text, words.span_from(start))

    def _window(self) -> Window | None:
        words = self.words
        if not words.word.is_word("INTERVAL"):
            raise words.unexpected("INTERVAL, e.g. WITHIN INTERVAL '10' SECOND")
        read = interval(words)
        if read is None:
            return None
        micros, span = read
        if micros <= 0:
            words.problem(span, "within no time at all", expected="an interval above zero")
            return None
        return Window(microseconds=micros - 1, span=span)

    # ── MEASURES, and what is selected of them ──

    def _measures(self, terms: Terms, partition: list[_Partition]) -> tuple[Measure, ...] | None:
        """As SQL has it: the columns of the partition, then the measures, and of those what is selected."""
        if "MEASURES" not in self.cut.clauses and self.cut.selected is None:
            return None
        measures = [
            Measure(
                word.text, Condition(f"{terms.elements.universal}.{condition.definition}", condition.span), word.span
            )
            for condition, word in partition
            if word is not None
        ]
        measures += self._read("MEASURES", lambda end: self._computed(terms, end), [])
        by_name = dict[str, Measure]()
        for measure in measures:
            if measure.name in by_name:
                hint = "columns of PARTITION BY are part of the result: leave it out, or give it another name"
                self.words.problem(
                    measure.span, "two columns of the result have one name", found=measure.name[:40], hint=hint
                )
            by_name.setdefault(measure.name, measure)
        if self.cut.selected is not None:
            measures = self._chosen(by_name)
        prefix = f"{terms.elements.universal}."
        terms.universal_used |= any(str(measure.value.definition).startswith(prefix) for measure in measures)
        return tuple(measures)

    def _chosen(self, by_name: dict[str, Measure]) -> list[Measure]:
        chosen, names = list[Measure](), set[str]()
        for column in self.cut.selected or ():
            self._known(column.word, frozenset(by_name), "there is no measure or partition column of this name")
            if column.name in names:
                self.words.problem(column.word, "two columns of the result have one name", found=column.name[:40])
            names.add(column.name)
            if (measure := by_name.get(column.word.text)) is not None:
                chosen.append(replace(measure, name=column.name))
        return chosen

    def _computed(self, terms: Terms, end: int) -> list[Measure]:
        words, found = self.words, list[Measure]()
        for start, stop in self.cut.listed(end):
            words.at = start
            try:
                named = stop - 2 > start and words.words[stop - 2].is_word("AS") and words.words[stop - 1].is_name
                if not named:
                    words.at = max(start, stop - 1)
                    raise words.unexpected("an expression AS a name")
                name = words.words[stop - 1]
                value = terms.condition(start, stop - 2)
            except Fault:
                continue
            if value is not None:
                found.append(Measure(name.text, value, name.span))
        words.at = end
        return found


def _begins_clause(words: Words) -> bool:
    """Whether a clause follows the word at hand, so that this is the name of a variable itself."""
    return words.ahead().is_word("PATTERN") and words.ahead(2).is_mark("(")


def _unused(names: frozenset[str]) -> str:
    """A name for all variables together that none of them has."""
    name = "_"
    while name in names:
        name += "_"
    return name


__all__ = ["NOTATION", "parse"]
