"""Conditions and measures of MATCH_RECOGNIZE, said in predicate text over elements.

Both are so near to each other that most texts stay as they are. What SQL says otherwise is replaced where it stands
and filled up with blanks, so that a place in the result is the same place in the text:

    B.price              in B's own condition    price
    LAST(A.price, 1)                             A.prev.price
    LAST(B.price, 1)     in B's own condition    B_.prev.price     (`B_` is B alone: see `_alone`)
    PREV(B.price)        in B's own condition    _.prev.price      (`_` is every row of the match so far)
    COUNT(*), COUNT(B.*)                         COUNT(_), COUNT(B)
    SUM(price)                                   SUM(_.price)
    INTERVAL '1' MINUTE                          60000000
    CLASSIFIER()         in B's own condition    'B'

What looks ahead, or at rows outside of the match, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from headwater.errors import InterestError
from headwater.ir.nodes import Span
from headwater.ir.notes import locate
from headwater.lang.predicate import check_syntax
from headwater.patterns.notation.sql_edits import Edits
from headwater.patterns.notation.sql_intervals import interval
from headwater.patterns.notation.sql_row_pattern import KEYWORDS
from headwater.patterns.notation.sql_words import Fault, Word, Words
from headwater.patterns.written import Condition

AGGREGATES = ("COUNT", "SUM", "MIN", "MAX", "AVG")
_NO_AGGREGATES = frozenset(
    ("ANY_VALUE", "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "BIT_AND", "BIT_OR", "BIT_XOR", "BOOL_AND", "BOOL_OR",
     "COLLECT", "EVERY", "FIRST_VALUE", "GROUP_CONCAT", "JSON_ARRAYAGG", "JSON_OBJECTAGG", "LAG", "LAST_VALUE", "LEAD",
     "LISTAGG", "MEDIAN", "PERCENTILE_CONT", "PERCENTILE_DISC", "RANK", "ROW_NUMBER", "SOME", "STDDEV",
     "STDDEV_POP", "STDDEV_SAMP", "STRING_AGG", "VARIANCE", "VAR_POP", "VAR_SAMP")
)  # fmt: skip
_NEXT = "conditions can only look back: say it in the condition of the later variable, with PREV"
_INSTEAD = {
    "LAG": "the row before is PREV(…)",
    "LEAD": _NEXT,
    "FIRST_VALUE": "write FIRST(…)",
    "LAST_VALUE": "write LAST(…)",
}
_BEFORE = "a row before the match is not part of it"


@dataclass(frozen=True, slots=True)
class Elements:
    """What conditions may name: variables, unions of them, and `universal`, the name of all together."""

    variables: frozenset[str]
    subsets: frozenset[str]
    universal: str
    first: frozenset[str]  # variables that can be the first row of a match
    last: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.variables or name in self.subsets


class Terms:
    """Reads expressions between two places of the words. `of` is the variable whose condition it is; None: a measure,
    or with `plain` something that names no elements at all."""

    def __init__(self, words: Words, elements: Elements, time: str | None) -> None:
        self.words = words
        self.elements = elements
        self.time = time  # how the rows are ordered, as a path; None: nothing that a measure could name
        self.universal_used = False
        self.alone = dict[str, tuple[str, ...]]()  # other names of single variables that were used
        self._of: str | None = None
        self._plain = False
        self._end = 0
        self._edits = Edits("")
        self._closed = dict[int, int]()  # where a bracket closes, by where it opens, among the words
        self._commas = dict[int, int]()  # commas right within it

    def condition(self, start: int, end: int, *, of: str | None = None, plain: bool = False) -> Condition | None:
        """What stands from one word up to another; None if something is wrong with it, which has been noted."""
        words = self.words
        if start >= end:
            raise words.unexpected("an expression")
        span = Span(words.words[start].span.start, words.words[end - 1].span.end)
        before = len(words.problems)
        self._of, self._plain, self._end, self._edits = of, plain, end, Edits(words.text)
        self._pair_brackets(start, end)
        words.at = start
        try:
            while words.at < end:
                self._word()
        except Fault:
            return None
        finally:
            words.at = end
        if len(words.problems) > before:
            return None
        condition = Condition(self._edits.apply(span, self._gaps(start, end)), span)
        return condition if self._is_sound(condition) else None

    def _is_sound(self, condition: Condition) -> bool:
        """Whether it is predicate text, whatever the fields are."""
        definition = condition.definition
        assert isinstance(definition, str)
        try:
            check_syntax(definition)
        except InterestError as error:
            for problem in error.problems:
                lines = definition.split("\n")
                offset = sum(len(line) + 1 for line in lines[: problem.line - 1]) + problem.column - 1
                start = min(condition.span.start + offset, condition.span.end)
                place = Span(start, min(start + problem.width, max(start, condition.span.end)))
                self.words.problems.append(
                    locate(self.words.text, place, problem.message, expected=problem.expected, found=problem.found,
                           hint=problem.hint)
                )  # fmt: skip
            return False
        return True

    def _gaps(self, start: int, end: int) -> list[Span]:
        words = self.words.words[start:end]
        gaps = (Span(one.span.end, other.span.start) for one, other in pairwise(words))
        return [gap for gap in gaps if gap.start < gap.end]

    def _pair_brackets(self, start: int, end: int) -> None:
        """Once for all calls: calls within calls would each look for their end again."""
        self._closed, self._commas = {}, {}
        opened = list[int]()
        for at in range(start, end):
            word = self.words.words[at]
            if word.is_mark("(", "["):
                opened.append(at)
                self._commas[at] = 0
            elif opened and word.is_mark(")", "]"):
                self._closed[opened.pop()] = at
            elif opened and word.is_mark(","):
                self._commas[opened[-1]] += 1

    # ── words ──

    def _word(self) -> None:
        """Go past one word of an expression; what our language says differently is noted as an edit, in place, so that
        the places of problems stay those of the text."""
        words = self.words
        word, following = words.word, self._ahead()
        if word.is_mark("||"):
            words.problem(words.take(), "|| is not supported: text is not joined", hint="a disjunction is written or")
        elif word.is_mark(":") and following is not None and following.kind == "name":
            words.take()
            words.take()
        elif word.kind == "name" and following is not None and following.is_mark("("):
            self._call(word)
        elif word.is_word("RUNNING", "FINAL") and following is not None and following.kind == "name":
            self._which_rows(words.take())
        elif word.is_word("INTERVAL"):
            read = interval(words)
            if read is not None:
                self._edits.replace(*read[1], str(read[0]) if read[0] >= 0 else f"({read[0]})")
        elif word.is_word("AS"):  # of a cast: a type follows
            words.take()
            if words.at < self._end:
                words.take()
        elif word.is_name and not self._is_keyword():
            self._path()
        else:
            words.take()

    def _ahead(self, count: int = 1) -> Word | None:
        at = self.words.at + count
        return self.words.words[at] if at < self._end else None

    def _is_keyword(self) -> bool:
        """Whether the word at hand is none of a name; `timestamp` is one before a text."""
        word, following = self.words.word, self._ahead()
        if word.is_word("TIMESTAMP"):
            return following is not None and following.kind == "text"
        return word.kind == "name" and word.text.upper() in KEYWORDS

    def _which_rows(self, word: Word) -> None:
        """RUNNING is all that a condition can be; for one row per match both are the same."""
        if word.is_word("FINAL") and self._of is not None:
            hint = "a condition sees the match so far: leave it out"
            self.words.problem(word, "FINAL is not supported in DEFINE", hint=hint)
        self._edits.replace(*word.span, "")

    # ── names ──

    def _path(self) -> None:
        """A name with what follows it by dots: an element's field, or one of the row at hand."""
        words = self.words
        first = words.word
        qualified = self._skip_path() > 1 and first.text in self.elements
        if self._plain:
            return
        if qualified:
            self._qualified(first)
        elif self._of is None:
            self._in_universal(first)

    def _skip_path(self) -> int:
        """Takes all names of a path; how many those are."""
        words, count = self.words, 1
        words.take()
        while words.at + 1 < self._end and words.word.is_mark(".") and words.ahead().is_name:
            words.take()
            words.take()
            count += 1
        return count

    def _qualified(self, first: Word) -> None:
        if first.text == self._of:
            dot = self.words.words[self._index(first) + 1]
            self._edits.replace(first.span.start, dot.span.end, "")
        else:
            self._plain_name(first)

    def _index(self, word: Word) -> int:
        at = self.words.at - 1
        while self.words.words[at] is not word:
            at -= 1
        return at

    def _plain_name(self, word: Word) -> None:
        """An element is never written in quotes."""
        if word.kind == "quoted":
            self._edits.replace(*word.span, word.text)

    def _in_universal(self, first: Word) -> None:
        self.universal_used = True
        self._edits.replace(first.span.start, first.span.start, f"{self.elements.universal}.")

    # ── functions ──

    def _call(self, word: Word) -> None:
        name = word.text.upper()
        if self._plain or name not in _CALLS:
            if name in _NO_AGGREGATES:
                hint = _INSTEAD.get(name, f"there are {', '.join(AGGREGATES)}, FIRST and LAST")
                self.words.problem(word, f"{name} is not supported", hint=hint)
            elif self._plain and name in _CALLS:
                self.words.problem(word, f"{name} belongs in DEFINE or MEASURES")
            self.words.take()
            self.words.take()
            return
        _CALLS[name](self, word, name)

    def _closing(self) -> int:
        """Where the call at hand ends: the place of its closing parenthesis among the words."""
        at = self._closed.get(self.words.at + 1)
        if at is not None:
            return at
        self.words.problem(self.words.ahead(), "this is never closed", expected=")")
        raise Fault

    def _no_arguments(self) -> Span:
        """Of a call without arguments: where it stands."""
        words, start = self.words, self.words.take().span.start
        words.take()
        words.mark(")", ") at once: it takes nothing")
        return words.span_from(start)

    def _look_ahead(self, word: Word, name: str) -> None:
        self.words.problem(word, f"{name} is not supported: it looks at a row that has not come yet", hint=_NEXT)
        self.words.at = self._closing() + 1

    def _match_number(self, word: Word, name: str) -> None:
        hint = "a match has an identity, made from its events"
        self.words.problem(word, "MATCH_NUMBER is not supported: matches are not counted", hint=hint)
        self._no_arguments()

    def _processing_time(self, word: Word, name: str) -> None:
        hint = "the time of the last row is MATCH_ROWTIME()"
        self.words.problem(word, f"{name} is not supported: results do not depend on when they are computed", hint=hint)
        self._no_arguments()

    def _row_time(self, word: Word, name: str) -> None:
        span = self._no_arguments()
        if self._of is not None or self.time is None:
            self.words.problem(word, f"{name} is supported in MEASURES, of rows ordered by a field")
            return
        self.universal_used = True
        self._edits.replace(*span, f"{self.elements.universal}.{self.time}")

    def _classifier(self, word: Word, name: str) -> None:
        span = self._no_arguments()
        names = sorted(self.elements.last) if self._of is None else [self._of]
        if len(names) == 1:
            self._edits.replace(*span, f"'{names[0]}'")
            return
        hint = f"the last row can be {', '.join(names)}; ask how many there are of one, e.g. COUNT({names[0]}.*)"
        self.words.problem(span, "CLASSIFIER is supported where only one variable can be the last", hint=hint)

    # ── single rows: FIRST, LAST, PREV ──

    def _arguments(self, name: str) -> tuple[Word | None, Word, int, Span]:
        """Of `LAST(B.price, 1)`: B if there is a variable, the first word of the field, the offset, and where all
        of it stands. Nothing is replaced yet."""
        words = self.words
        closing = self._closing()
        start = words.take().span.start
        words.take()
        inner = words.word
        if not inner.is_name or words.ahead().is_mark("("):
            raise self._not_a_column(inner, name)
        count = self._skip_path()
        variable = inner if count > 1 and inner.text in self.elements else None
        column = inner if variable is None else words.words[self._index(inner) + 2]
        offset = self._offset(name, closing)
        if words.at != closing:
            raise words.unexpected(", or )")
        words.take()
        return variable, column, offset, words.span_from(start)

    def _offset(self, name: str, closing: int) -> int:
        words = self.words
        if words.at == closing or not words.taken_mark(","):
            return 1 if name == "PREV" else 0
        if words.word.kind != "number" or not words.word.text.isdecimal() or len(words.word.text) > 9:
            raise words.unexpected("a whole number, how many rows back")
        return int(words.take().text)

    def _into(self, call: Span, column: Word, new: str, end: int) -> None:
        """The call becomes `new` and the column's own path; what stands behind that is blank."""
        self._edits.replace(call.start, column.span.start, new.rjust(column.span.start - call.start))
        self._edits.replace(end, call.end, "")

    def _path_end(self, column: Word, call: Span) -> int:
        """Where the path ends that begins with this word."""
        at = self._index(column)
        words = self.words.words
        while words[at + 1].is_mark(".") and words[at + 2].span.end <= call.end:
            at += 2
        return words[at].span.end

    def _universal(self) -> str:
        self.universal_used = True
        return self.elements.universal

    def _alone(self) -> str:
        """Another name for the variable at hand. In its own condition `B.prev` says nothing of the first row, where SQL
        finds nothing there, and what it finds is missing."""
        assert self._of is not None
        name = f"{self._of}_"
        while name in self.elements or name == self.elements.universal:
            name += "_"
        self.alone[name] = (self._of,)
        return name

    def _last(self, word: Word, name: str) -> None:
        variable, column, offset, call = self._arguments(name)
        end = self._path_end(column, call)
        own = self._of is not None and (variable is None or variable.text == self._of)
        element = variable.text if variable is not None else None
        if offset > 1:
            hint = "LAST(x, 1) is the row before the last"
            self.words.problem(word, f"LAST with an offset of {offset:,} is not supported", hint=hint)
        elif offset == 1:
            element = self._alone() if element is not None and own else element
            self._into(call, column, f"{element or self._universal()}.prev.", end)
        elif own:
            self._into(call, column, "", end)
        else:
            self._into(call, column, f"{element or self._universal()}.", end)

    def _first(self, word: Word, name: str) -> None:
        variable, column, offset, call = self._arguments(name)
        if offset:
            hint = "only the first row itself: FIRST(x)"
            self.words.problem(word, f"FIRST with an offset of {offset:,} is not supported", hint=hint)
            return
        end = self._path_end(column, call)
        element = variable.text if variable is not None else self._universal()
        written = self.words.text[word.span.start : word.span.end]
        self._edits.replace(call.start, column.span.start, f"{written}({element}.")
        self._edits.replace(end, call.end, ")")

    def _previous(self, word: Word, name: str) -> None:
        variable, column, offset, call = self._arguments(name)
        problem = self.words.problem
        if self._of is None:
            problem(word, "PREV is not supported in MEASURES", hint="name the row by a variable of its own in PATTERN")
        elif variable is not None and variable.text != self._of:
            other = self.words.shown(variable)
            hint = f"say it in the condition of {other}, or use LAST({other}.…, 1)"
            problem(word, f"PREV of another variable is not supported in the condition of {self._of}", hint=hint)
        elif offset > 1:
            problem(word, f"PREV of {offset:,} rows back is not supported", hint="PREV(x) is one row back")
        elif offset == 1 and self._of in self.elements.first:
            hint = f"{self._of} can be the first row of a match: begin the pattern with a variable that is always true"
            problem(word, f"PREV is not supported here: {_BEFORE}", hint=hint)
        else:
            new = f"{self._universal()}.prev." if offset else ""
            self._into(call, column, new, self._path_end(column, call))

    # ── over several rows ──

    def _aggregate(self, word: Word, name: str) -> None:
        words = self.words
        closing = self._closing()
        commas = self._commas[words.at + 1]
        if commas and name in ("MIN", "MAX"):  # of several values of one row
            words.at += 2
            return
        if commas or words.at + 2 == closing:
            words.problem(word, f"{name} takes one argument")
            raise Fault
        words.take()
        words.take()
        if words.word.is_word("DISTINCT", "ALL") and not words.ahead().is_mark(".", ")"):
            words.problem(words.word, f"{words.word.text.upper()} is not supported in an aggregate")
            raise Fault
        if self._whole_rows(name, closing):
            return
        self._over_one_element(name, closing)

    def _whole_rows(self, name: str, closing: int) -> bool:
        """COUNT(*) and COUNT(B.*), and COUNT(B), which is how it is said elsewhere."""
        words = self.words
        first = words.word
        count = closing - words.at
        if count == 1 and first.is_mark("*"):
            self._edits.replace(*first.span, self._universal())
        elif count == 1 and first.is_name and first.text in self.elements and name == "COUNT":
            self._plain_name(first)
        elif count == 3 and first.text in self.elements and words.ahead().is_mark(".") and words.ahead(2).is_mark("*"):
            self._edits.replace(first.span.start, words.ahead(2).span.end, first.text)
        else:
            return False
        if name != "COUNT":
            words.problem(first, f"{name} takes a column", found="whole rows", hint="COUNT counts rows")
        words.at = closing + 1
        return True

    def _over_one_element(self, name: str, closing: int) -> None:
        """SUM(B.price), or SUM(price), which is over all rows."""
        words = self.words
        first = words.word
        if not first.is_name or self._is_keyword():
            raise self._not_a_column(first, name)
        qualified = self._skip_path() > 1 and first.text in self.elements
        if words.at != closing:
            raise self._not_a_column(first, name)
        if qualified:
            self._plain_name(first)
        else:
            self._in_universal(first)
        words.take()

    def _not_a_column(self, word: Word, name: str) -> Fault:
        hint = f"write a column alone, e.g. {name}(B.price)"
        self.words.problem(word, f"{name} of an expression is not supported", expected="a column", hint=hint)
        return Fault()


_CALLS: dict[str, Callable[[Terms, Word, str], None]] = {
    "FIRST": Terms._first,
    "LAST": Terms._last,
    "PREV": Terms._previous,
    "NEXT": Terms._look_ahead,
    "CLASSIFIER": Terms._classifier,
    "MATCH_NUMBER": Terms._match_number,
    "MATCH_ROWTIME": Terms._row_time,
    "MATCH_PROCTIME": Terms._processing_time,
    **dict.fromkeys(AGGREGATES, Terms._aggregate),
}

__all__ = ["Elements", "Terms"]
