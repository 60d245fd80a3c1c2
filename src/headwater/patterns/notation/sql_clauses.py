"""A statement of SQL around and within MATCH_RECOGNIZE, cut into clauses before any of them is read: what is wrong with
one then hides nothing of the others."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.ir.nodes import NOWHERE, Span
from headwater.patterns.notation.sql_words import Fault, Word, Words

_AFTERWARDS = {
    "WHERE": "put it into DEFINE, or subscribe to the matches with an interest",
    "GROUP": "compute it of the matches",
    "HAVING": "compute it of the matches",
    "ORDER": "matches come in the order of their time",
    "LIMIT": "matches have no end",
    "JOIN": "use an operator of the pattern algebra",
    "UNION": "write two patterns",
}
SUBQUERY = "name a channel, and put its conditions into DEFINE"


@dataclass(frozen=True, slots=True)
class Clause:
    """Its name, and its words: from behind the name up to the next clause."""

    name: str
    word: Word
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Column:
    """Of the SELECT list: a column of the result, and what it is to be called."""

    word: Word
    name: str


class Clauses:
    """What is selected, of which channel, and the clauses by their names. Its methods read on from the word at hand."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.selected: list[Column] | None = None  # None: all of them
        self.channel, self.named = "", NOWHERE
        self.clauses = dict[str, Clause]()
        self.refused = 0  # problems that leave all names as they are: what else is wrong can still be told

    # ── the statement around it ──

    def select_list(self) -> None:
        """What stands between SELECT and FROM."""
        words = self.words
        if words.taken_mark("*"):
            return
        columns = list[Column]()
        while True:
            columns.append(self._selected())
            if not words.taken_mark(","):
                break
        self.selected = columns

    def _selected(self) -> Column:
        words = self.words
        following = words.ahead()
        if words.word.is_word("DISTINCT", "ALL") and following.is_name and not following.is_word("FROM", "AS"):
            words.problem(words.word, f"SELECT {words.take().text.upper()} is not supported")
        word = words.name("* or the name of a measure")
        if words.taken_mark("."):
            if words.word.is_mark("*"):
                raise words.unexpected("the name of a measure", "all of them: SELECT *")
            word = words.name("the name of a measure")
        name = word
        if words.taken_words("AS"):
            name = words.name("a name")
        elif words.word.is_name and not words.word.is_word("FROM"):
            name = words.take()
        if not words.word.is_mark(",") and not words.word.is_word("FROM"):
            hint = "what is computed goes into MEASURES"
            raise words.unexpected(", or FROM: the SELECT list has names of measures only", hint)
        return Column(word, name.text)

    def table_and_clauses(self) -> Word:
        """Up to and with the closing bracket; the opening one."""
        words = self.words
        self._table()
        open_ = words.mark("(")
        end = self._closing(open_)
        self._cut_clauses(end)
        words.at = end + 1
        return open_

    def _table(self) -> None:
        words = self.words
        if words.word.is_mark("("):
            words.problem(words.word, "a subquery is not supported before MATCH_RECOGNIZE", hint=SUBQUERY)
            raise Fault
        parts = [words.name("the name of a channel")]
        while words.taken_mark("."):
            parts.append(words.name("the name of a channel"))
        self.channel = ".".join(part.text for part in parts)
        self.named = words.span_from(parts[0].span.start)
        if words.taken_words("AS"):
            words.name("a name")
        elif words.word.is_name and not words.word.is_word("MATCH_RECOGNIZE"):
            words.take()
        if words.word.is_mark(","):
            words.problem(words.word, "several tables are not supported", expected="one channel")
            raise Fault
        if not words.taken_words("MATCH_RECOGNIZE"):
            raise words.unexpected("MATCH_RECOGNIZE (…)")

    def _closing(self, opened: Word) -> int:
        words, depth = self.words, 1
        for at in range(words.at, len(words.words)):
            word = words.words[at]
            depth += word.is_mark("(") - word.is_mark(")")
            if depth == 0:
                return at
        words.problem(opened, "this is never closed", expected=")", found="the end")
        raise Fault

    def rest(self) -> None:
        """A name for the result, which nobody asks for, and nothing more."""
        words = self.words
        if words.taken_words("AS"):
            words.name("a name")
        elif words.word.is_name and words.word.text.upper() not in _AFTERWARDS:
            words.take()
        words.taken_mark(";")
        if words.word.kind == "name" and (hint := _AFTERWARDS.get(words.word.text.upper())):
            words.problem(words.word, f"{words.word.text.upper()} is not supported after MATCH_RECOGNIZE", hint=hint)
        elif words.word.kind != "end":
            raise words.unexpected("the end")

    # ── clauses ──

    def _cut_clauses(self, end: int) -> None:
        """Find where clauses begin and end before reading any: a mistake in one then hides none in the others."""
        words, depth = self.words, 0
        begun: tuple[str, Word, int] | None = None
        while words.at < end:
            word = words.word
            depth += word.is_mark("(", "[", "{") - word.is_mark(")", "]", "}")
            found = self._clause_name() if depth == 0 and word.kind == "name" else None
            if found is not None:
                name, count = found
                if begun is not None:
                    self._note_clause(*begun, words.at)
                words.at += count
                begun = name, word, words.at
            elif begun is None:
                words.problem(word, "this is not expected here", expected="a clause, e.g. PARTITION BY or PATTERN (…)",
                              found=words.shown(word))  # fmt: skip
                raise Fault
            else:
                words.take()
        if begun is not None:
            self._note_clause(*begun, end)

    def _clause_name(self) -> tuple[str, int] | None:
        """The clause that begins with the word at hand, and how many words are its name."""
        words = self.words
        word, following = words.word, words.ahead()
        upper = word.text.upper()
        if upper in ("PARTITION", "ORDER"):
            return (f"{upper} BY", 2) if following.is_word("BY") else None
        if upper == "MEASURES" or upper == "WITHIN":
            return None if following.kind == "mark" and not following.is_mark("(", "-", ":") else (upper, 1)
        if upper in ("SUBSET", "DEFINE"):
            return (upper, 1) if following.is_name else None
        if upper == "PATTERN":
            return (upper, 1) if following.is_mark("(") else None
        if upper == "AFTER":
            return ("AFTER MATCH SKIP", 3) if words.ahead(2).is_word("SKIP") and following.is_word("MATCH") else None
        if upper == "ONE":
            return ("ROWS", 4) if _are(words, "ONE", "ROW", "PER", "MATCH") else None
        if upper == "ALL":
            return ("ALL ROWS", 4) if _are(words, "ALL", "ROWS", "PER", "MATCH") else None
        if upper in ("INITIAL", "SEEK"):
            return (upper, 1) if words.ahead().is_word("PATTERN") else None
        return None

    def _note_clause(self, name: str, word: Word, start: int, end: int) -> None:
        words = self.words
        if name in ("ROWS", "ALL ROWS"):
            if name == "ALL ROWS":
                hint = "a match is one event: write ONE ROW PER MATCH, and its rows as measures"
                span = Span(word.span.start, words.words[start - 1].span.end)
                words.problem(span, "ALL ROWS PER MATCH is not supported", hint=hint)
                self.refused += 1
            elif start < end:
                word = words.words[start]
                words.problem(word, "this is not expected here", expected="a clause", found=words.shown(word))
            return
        if name in ("INITIAL", "SEEK"):
            words.problem(word, f"{name} is not supported", hint="a match may begin at every row: leave it out")
            self.refused += 1
        elif name in self.clauses:
            words.problem(word, f"{name} stands here twice", expected="one of them")
        else:
            self.clauses[name] = Clause(name, word, start, end)

    def listed(self, end: int) -> list[tuple[int, int]]:
        """What commas part, as places of words."""
        words, depth, start = self.words, 0, self.words.at
        parts = list[tuple[int, int]]()
        for at in range(start, end):
            word = words.words[at]
            depth += word.is_mark("(", "[", "{") - word.is_mark(")", "]", "}")
            if depth == 0 and word.is_mark(","):
                parts.append((start, at))
                start = at + 1
        return [*parts, (start, end)]


def _are(words: Words, *expected: str) -> bool:
    return all(words.ahead(at).is_word(word) for at, word in enumerate(expected))
