"""The words of predicate text: from characters to tokens that sqlglot's parser reads in one way only.

sqlglot's parser accepts far more than predicate text and lets much of it pass without a trace (an alias after an
operand, a missing `and` in `between`, adjacent strings). So it is given tokens of a small language: names carry a mark
that no keyword has, a word that is not ours is refused where it stands, operands and operators must alternate, brackets
must match, and what two readers could group differently needs parentheses.

This file knows nothing of fields' types or of the tree.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Container
from types import SimpleNamespace
from typing import Any, ClassVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType

from headwater.errors import InterestError
from headwater.ir.nodes import Span
from headwater.ir.notes import MAX_DEPTH, MAX_NODES
from headwater.lang.source import refusal, syntax_error, too_deep

MAX_TOKENS = 3 * MAX_NODES

T: Any = SimpleNamespace(**TokenType.__members__)  # an attribute of an enumeration is three times slower to reach

# The first character of a name's token says what it is; sqlglot has no keyword or function that begins so.
FIELD, QUOTED, FUNCTION, PARAM, TIMESTAMP, CONSTANT, BYTES = ".", '"', "(", ":", "@", "=", "'"

_KEYWORDS = {
    "==": T.EQ, "<>": T.NEQ, "!=": T.NEQ, "<=": T.LTE, ">=": T.GTE, "&&": T.AND, "||": T.OR,
    "<<": T.LT_AT, ">>": T.AT_GT,
    "AND": T.AND, "OR": T.OR, "NOT": T.NOT, "IN": T.IN, "BETWEEN": T.BETWEEN, "LIKE": T.LIKE, "IS": T.IS, "DIV": T.DIV,
    "CASE": T.CASE, "WHEN": T.WHEN, "THEN": T.THEN, "ELSE": T.ELSE, "END": T.END, "AS": T.ALIAS,
}  # fmt: skip


class _Words(Tokenizer):  # type: ignore[misc]
    """`!` and `~` take the types of two operators that bind as tightly as a sign does."""

    IDENTIFIERS: ClassVar[Any] = ['"', "`"]
    QUOTES: ClassVar[Any] = ["'"]
    STRING_ESCAPES: ClassVar[Any] = ["'"]
    HEX_STRINGS: ClassVar[Any] = [("x'", "'"), ("X'", "'")]
    COMMENTS: ClassVar[Any] = ["--", ("/*", "*/")]
    KEYWORDS: ClassVar[Any] = _KEYWORDS
    SINGLE_TOKENS: ClassVar[Any] = {**Tokenizer.SINGLE_TOKENS, "!": T.TILDE, "~": T.DPIPE_SLASH}
    NUMERIC_LITERALS: ClassVar[Any] = {}
    COMMANDS: ClassVar[Any] = set()


class _Predicate(Dialect):  # type: ignore[misc]
    """sqlglot's standard grammar over our words; indices count from 0 and `||` is never concatenation."""

    INDEX_OFFSET = 0
    DPIPE_IS_STRING_CONCAT = False
    tokenizer_class = _Words


class Engine(threading.local):
    """sqlglot's tokenizer and parser, made once a thread: both keep their state in themselves."""

    def __init__(self) -> None:
        dialect = _Predicate()
        self.tokenizer: Any = _Words(dialect)
        self.parser: Any = dialect.parser()


engine = Engine()

_STATEMENTS = (
    "SELECT", "FROM", "WHERE", "HAVING", "GROUP", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "WITH",
    "EXISTS", "OVER", "PARTITION", "DISTINCT", "INSERT", "UPDATE", "DELETE", "DROP", "CREATE", "JOIN",
    "LATERAL", "UNNEST",
)  # fmt: skip
_NOT_OURS = {
    **dict.fromkeys(_STATEMENTS, "write only the condition that an event must meet"),
    "ILIKE": "use lower(x) like '…'",
    **dict.fromkeys(
        ("RLIKE", "REGEXP", "SIMILAR", "GLOB"),
        "there are no regular expressions; use like, starts_with, ends_with or contains",
    ),
    "ESCAPE": r"like always takes \ as its escape",
    "COLLATE": "text is compared by code points; use lower(x) to ignore case",
    "INTERVAL": "use seconds(n), minutes(n), hours(n) or days(n)",
    "DATE": "write timestamp '2026-01-31'",
    "XOR": "use != between two conditions",
    "ANY": "use in",
    "ALL": "use in",
    "ISNULL": "use is null",
    "NOTNULL": "use is not null",
    **dict.fromkeys(("CURRENT_TIMESTAMP", "CURRENT_DATE", "NOW"), "meta.time is the time of the event"),
}

NOTHING = ("none", "nil", "undefined", "missing")  # what others call null
_NOT_OPERATORS = {"=>": ">=", "=<": "<=", "===": "= or ==", "!==": "!="}
_CONSTANTS = {"TRUE", "FALSE", "NULL"}
_OPERANDS = {T.VAR, T.IDENTIFIER, T.NUMBER, T.STRING, T.HEX_STRING}
_COMPARES = {T.EQ, T.NEQ, T.LT, T.LTE, T.GT, T.GTE, T.IN, T.LIKE, T.BETWEEN, T.IS}
_BITS = {T.AMP, T.PIPE, T.CARET, T.LT_AT, T.AT_GT}
_BINARY = _COMPARES | _BITS | {T.AND, T.OR, T.STAR, T.SLASH, T.MOD, T.DIV}
_PREFIX = {T.NOT, T.TILDE, T.DPIPE_SLASH}
_BEFORE_NOT = {T.AND, T.OR, T.NOT, T.L_PAREN, T.COMMA, T.WHEN, T.THEN, T.ELSE, T.CASE}
_OPEN = {T.L_PAREN: ")", T.L_BRACKET: "]", T.CASE: "end"}
_CLOSE = {T.R_PAREN: T.L_PAREN, T.R_BRACKET: T.L_BRACKET, T.END: T.CASE}


class Tokens:
    """The checked tokens of one text, and where its brackets and signs stand."""

    def __init__(self, text: str, fields: Container[str]) -> None:
        self.text = text
        self.fields = fields
        self.out: list[Any] = []
        self.prefixes: list[tuple[int, int]] = []  # where prefix operators start and end, ascending
        self.cases: list[int] = []  # where `case` starts, ascending
        self.closes: dict[int, int] = {}  # from the start of an opening bracket to the end of its closing one
        self._brackets: list[int] | None = None
        # Of the innermost open bracket: what opened it, the nesting outside, and how its current term stands.
        self._stack: list[tuple[Any, str, int, Any, Any, Any]] = []
        self._compared: Any = None  # the comparison of the term at hand: there may be only one
        self._bit: Any = None  # the bit operator of the operand at hand: others need parentheses
        self._between: Any = None  # a `between` whose `and` is still to come
        self._base = self._depth = 0
        self._read()

    # ── problems ──

    def span(self, token: Any) -> Span:
        return Span(token.start, token.end + 1)

    def word(self, token: Any) -> str:
        return self.text[token.start : token.end + 1]

    def error(self, token: Any, message: str, **more: str | None) -> InterestError:
        return syntax_error(self.text, self.span(token), message, **more)

    def _unexpected(self, token: Any, expected: str, hint: str | None = None) -> InterestError:
        return self.error(
            token, "this is not expected here", expected=expected, found=_short(self.word(token)), hint=hint
        )

    # ── reading ──

    def _scan(self) -> list[Any]:
        """The tokens of the SQL tokenizer, or what is wrong with the text, at its place."""
        text = self.text
        try:
            tokens: list[Any] = engine.tokenizer.tokenize(text)
        except TokenError:
            seen = engine.tokenizer.tokens
            start = seen[-1].end + 1 if seen else 0
            start += len(text[start:]) - len(text[start:].lstrip())
            if text.startswith("/*", start):
                raise syntax_error(text, Span(start, start + 2), "predicate text has no comments") from None
            if text[start : start + 1] in ("x", "X") and "'" in text[start + 2 :]:
                message, expected = "these bytes are not hexadecimal", "digits 0-9, a-f between the quotes"
            else:
                message, expected = "this quote is never closed", "the same quote at the end"
            raise syntax_error(text, Span(start, start + 1), message, expected=expected) from None
        if not tokens:
            if text.strip():
                self._check_gap(0, len(text))
            raise syntax_error(text, Span(0, 0), "the predicate is empty", expected="a condition, e.g. level > 0.5")
        if len(tokens) > MAX_TOKENS:
            message = f"the predicate has more than {MAX_TOKENS:,} words"
            engine.tokenizer.tokenize("")  # it would keep them all until the next text
            raise refusal(text, self.span(tokens[MAX_TOKENS]), message, hint="use set parameters")
        return tokens

    def _read(self) -> None:
        """The tokens of the predicate notation, made from those of SQL in one pass: names with dots and parameters are
        joined, what the notation does not have is refused, and depth is counted, so that no text makes the parser
        recurse without limit."""
        tokens = self._scan()
        text, out = self.text, self.out
        count, at, reached = len(tokens), 0, 0
        operand = False  # whether an operand has just ended, so that an operator must follow
        previous: Any = None  # the type of the token before
        while at < count:
            token = tokens[at]
            at += 1
            kind = token.token_type
            if token.start > reached and text[reached : token.start] != " ":
                self._check_gap(reached, token.start)
            reached = token.end + 1
            if previous is T.DOT or kind is T.COLON:
                token, at = self._joined(tokens, at - 1, previous)
                kind, reached = token.token_type, token.end + 1
            if kind in _OPERANDS:
                if operand:
                    raise self._misplaced(tokens[at - 2], token)
                if kind is T.VAR and token.text[0] != PARAM and previous is not T.DOT:
                    at = self._name(token, tokens, at)
                    reached = token.end + 1
                elif kind is not T.STRING:
                    self._mark(token)
                operand = kind is not T.VAR or token.text[0] != FUNCTION
                if operand:
                    self._depth = self._base
                out.append(token)
            elif kind in _BINARY or ((kind is T.DASH or kind is T.PLUS) and operand):
                if not operand:
                    raise self._unexpected(token, "a value", self._doubled(token))
                operand = False
                self._operator(token, kind)
                if kind is T.IS:
                    at = self._is(tokens, at)
                elif kind is T.LT_AT or kind is T.AT_GT:
                    token.token_type = T.LT if kind is T.LT_AT else T.GT
                    out.append(token)
                out.append(token)
            elif kind is T.DASH or kind is T.PLUS or kind in _PREFIX:
                operand = self._prefix(token, kind, operand, previous, tokens[at] if at < count else None)
            elif kind is T.DOT:
                if not operand:
                    raise self._unexpected(token, "a value", "a number below one begins with a zero: 0.5")
                operand = False
                out.append(token)
            elif kind in _OPEN:
                is_call = kind is T.L_PAREN and bool(out) and out[-1].text[:1] == FUNCTION and previous is T.VAR
                if operand and kind is not T.L_BRACKET:
                    raise self._unexpected(token, "an operator")
                if not operand and kind is T.L_BRACKET and previous is not T.IN:
                    raise self._unexpected(token, "a value", "a list of values may only follow in")
                role = "call" if is_call else "list" if previous is T.IN else "index" if operand else "group"
                role = "cast" if is_call and out[-1].text == "(cast" else role
                self._push(token, role)
                operand = False
                out.append(token)
            elif kind in _CLOSE:
                empty = previous is T.L_PAREN and bool(self._stack) and self._stack[-1][1] in ("call", "list")
                if not operand and not empty and not (previous is T.L_BRACKET and self._stack[-1][1] == "list"):
                    raise self._unexpected(token, "a value")
                self._pop(token, kind)
                operand = True
                out.append(token)
            elif kind is T.COMMA or kind is T.WHEN or kind is T.THEN or kind is T.ELSE or kind is T.ALIAS:
                if not operand and not (kind is T.WHEN and previous is T.CASE):
                    raise self._unexpected(token, "a value")
                self._separator(token, kind)
                operand = False
                out.append(token)
            else:
                hint = "one condition only" if kind is T.SEMICOLON else None
                raise self.error(token, f"{_short(self.word(token))} is not part of predicate text", hint=hint)
            previous = kind
        if reached < len(text):
            self._check_gap(reached, len(text))
        self._end(operand, tokens[-1])

    def _end(self, operand: bool, last: Any) -> None:
        if self._stack:
            opener = self._stack[-1][0]
            raise self.error(opener, "this is never closed", expected=_OPEN[opener.token_type], found="the end")
        if not operand:
            end = Span(last.end + 1, last.end + 1)
            raise syntax_error(self.text, end, "this is not complete", expected="a value", found="the end")
        self._end_term()

    def _check_gap(self, start: int, end: int) -> None:
        """Between two tokens there may only be white space: what the tokenizer skips besides is a comment."""
        gap = self.text[start:end]
        if not gap.isspace():
            start += len(gap) - len(gap.lstrip())
            end = start + len(gap.strip())
            hint = "to take away a negative number write - (-1)" if self.text.startswith("--", start) else None
            raise syntax_error(self.text, Span(start, end), "predicate text has no comments", hint=hint)

    def _joined(self, tokens: list[Any], at: int, previous: Any) -> tuple[Any, int]:
        """After a dot any word is a field; a colon and the word right after it are one parameter."""
        token = tokens[at]
        if previous is T.DOT:
            if token.token_type not in (T.VAR, T.IDENTIFIER) and not self.word(token).isidentifier():
                raise self._unexpected(token, "a field name")
            if at + 1 < len(tokens) and tokens[at + 1].token_type is T.L_PAREN:
                hint = f"write {self.word(token)}(…) with the value as its first argument"
                raise self.error(token, "a value has no methods", hint=hint)
            quoted = token.token_type is T.IDENTIFIER
            return self._token(T.VAR, FIELD + (token.text if quoted else self.word(token)), token, token), at + 1
        name = tokens[at + 1] if at + 1 < len(tokens) else None
        if name is None or name.start != token.end + 1 or not self.word(name).isidentifier():
            raise self._unexpected(token, "a parameter, e.g. :limit")
        return self._token(T.VAR, PARAM + self.word(name), token, name), at + 2

    def _token(self, kind: TokenType, text: str, first: Any, last: Any) -> Any:
        return Token(kind, text, first.line, first.col, first.start, last.end)

    def _name(self, token: Any, tokens: list[Any], at: int) -> int:
        """Mark a bare word: a function, a constant, a timestamp literal (with its text), or a field."""
        name, upper = token.text, token.text.upper()
        following = tokens[at] if at < len(tokens) else None
        if following is not None and following.token_type is T.L_PAREN:
            if upper in _NOT_OURS:
                raise self._not_ours(token, upper)
            token.text = FUNCTION + name.lower()
        elif upper == "TIMESTAMP" and following is not None and following.token_type is T.STRING:
            token.text, token.end = TIMESTAMP + following.text, following.end
            return at + 1
        elif upper in _CONSTANTS:
            token.text = CONSTANT + upper
        elif upper in _NOT_OURS and name not in self.fields:
            raise self._not_ours(token, upper, f'; a field of this name is written "{name}", a parameter :{name}')
        else:
            token.text = FIELD + name
        return at

    def _not_ours(self, token: Any, upper: str, more: str = "") -> InterestError:
        return self.error(token, f"{self.word(token)} is not part of predicate text", hint=_NOT_OURS[upper] + more)

    def _mark(self, token: Any) -> None:
        """Mark a quoted name or bytes; a number stays as it is, hexadecimal ones become decimal."""
        if token.token_type is T.IDENTIFIER:
            if self.text[token.start] not in '"`':
                raise self.error(token, "not a hexadecimal number", expected="digits 0-9, a-f")
            token.text = QUOTED + token.text
        elif token.token_type is T.HEX_STRING:
            if self.text[token.start] == "0":
                token.token_type = T.NUMBER
                token.text = str(int(token.text, 16)) if len(token.text) < 64 else "9" * 64
            else:
                token.token_type, token.text = T.VAR, BYTES + token.text

    def _misplaced(self, before: Any, token: Any) -> InterestError:
        upper = token.text.upper()
        if token.token_type is T.VAR and upper in _NOT_OURS:
            return self._not_ours(token, upper)
        hint = None
        if before.token_type is T.STRING and token.token_type is T.STRING:
            hint = "a quote inside text is written twice: 'it''s'"
        return self._unexpected(token, "an operator, e.g. and", hint)

    def _doubled(self, token: Any) -> str | None:
        """For operators that others write."""
        for written, ours in _NOT_OPERATORS.items():
            if self.text.endswith(written, 0, token.end + 1):
                return f"write {ours}"
        return None

    def _operator(self, token: Any, kind: Any) -> None:
        """Note a binary operator in its term; two comparisons, or two kinds of bit operator, need parentheses."""
        if kind is T.AND and self._between is not None:
            self._between = self._bit = None
        elif kind is T.AND or kind is T.OR:
            self._end_term()
        elif kind in _COMPARES:
            if self._compared is not None:
                hint = "write a < x and x < b, or x between a and b, or use parentheses"
                raise self.error(token, "comparisons cannot be chained", found=self.word(token), hint=hint)
            self._compared, self._bit = token, None
            self._between = token if kind is T.BETWEEN else None
        elif kind in _BITS:
            if self._bit not in (None, kind):
                raise self.error(token, "different bit operators side by side", hint="group them with parentheses")
            self._bit = kind

    def _end_term(self) -> None:
        if self._between is not None:
            raise self.error(self._between, "this has no and", expected="between … and …")
        self._compared = self._bit = None

    def _is(self, tokens: list[Any], at: int) -> int:
        """`is null`, `is not null` and nothing else. The parser gets to see `not` as it stands."""
        after = tokens[at].token_type is T.NOT if at < len(tokens) else False
        word = tokens[at + after] if at + after < len(tokens) else None
        if word is None or word.token_type is not T.VAR or word.text.upper() != "NULL":
            raise self._unexpected(word or tokens[-1], "null after is", _instead_of_is(word, negated=after))
        return at

    def _prefix(self, token: Any, kind: Any, operand: bool, previous: Any, following: Any) -> bool:
        """A sign or a negation. Inside a term, `not` belongs to in, like or between."""
        if operand:
            if kind is not T.NOT:
                raise self._unexpected(token, "an operator")
            if following is None or following.token_type not in (T.IN, T.LIKE, T.BETWEEN):
                raise self._unexpected(token, "in, like or between after not, or an operator before it")
            self.out.append(token)
            return True
        if kind is T.PLUS:
            if following is None or following.token_type is not T.NUMBER:
                raise self._unexpected(token, "a number after +")
            return False
        if previous is not T.IS:
            if kind is T.NOT and previous is not None and previous not in _BEFORE_NOT:
                raise self.error(token, "not inside a comparison", hint="put not … in parentheses")
            self.prefixes.append((token.start, token.end + 1))
            self._deeper(token)
        self.out.append(token)
        return False

    def _deeper(self, token: Any) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise too_deep(self.text, self.span(token))

    def _push(self, token: Any, role: str) -> None:
        if token.token_type is T.CASE:
            self.cases.append(token.start)
        self._stack.append((token, role, self._base, self._compared, self._bit, self._between))
        self._deeper(token)
        self._base = self._depth
        self._compared = self._bit = self._between = None

    def _pop(self, token: Any, kind: Any) -> None:
        if not self._stack or self._stack[-1][0].token_type is not _CLOSE[kind]:
            expected = _OPEN[self._stack[-1][0].token_type] if self._stack else "an operator or the end"
            raise self._unexpected(token, expected)
        self._end_term()
        opener, _, self._base, self._compared, self._bit, self._between = self._stack.pop()
        self._depth = self._base
        self.closes[opener.start] = token.end + 1

    def _separator(self, token: Any, kind: Any) -> None:
        role = self._stack[-1][1] if self._stack else ""
        if kind is T.COMMA:
            if role not in ("call", "list"):
                hint = "a list of values may only follow in" if role == "group" else None
                before = re.search(r"\d{1,20}$", self.text[: token.start])
                after = re.match(r"\d{1,20}", self.text[token.end + 1 :])
                if before and after:
                    hint = f"decimals are written with a point: {before[0]}.{after[0]}"
                raise self._unexpected(token, "one value", hint)
        elif kind is T.ALIAS:
            if role != "cast":
                raise self._unexpected(token, "an operator", "as belongs in cast(x as int)")
        elif not self._stack or self._stack[-1][0].token_type is not T.CASE:
            raise self._unexpected(token, "an operator", "when, then and else belong in case … end")
        self._end_term()

    # ── places ──

    def prefixed(self, start: int) -> int:
        """Where the prefix operator of an operand that begins at `start` stands; `start` itself if there is none."""
        at = bisect_left(self.prefixes, (start, 0)) - 1
        if at >= 0 and not self.text[self.prefixes[at][1] : start].strip(" \t\r\n("):
            return self.prefixes[at][0]
        return start

    def case(self, start: int) -> int:
        """Where the `case` stands whose first operand begins at `start`."""
        return self.cases[bisect_left(self.cases, start) - 1]

    def closing(self, start: int) -> int:
        """Where the first bracket that opens at or after `start` is closed."""
        if self._brackets is None:
            self._brackets = sorted(self.closes)
        return self.closes[self._brackets[bisect_left(self._brackets, start)]]


def _short(word: str) -> str:
    return word if len(word) <= 30 else word[:29] + "…"


def _instead_of_is(word: Any, *, negated: bool) -> str:
    """What to write for an `is` before something that is not null."""
    written = "" if word is None else word.text.lower()
    if written in NOTHING:
        return f"write is {'not ' * negated}null"
    if written in ("true", "false"):
        return "compare conditions with = true or = false"
    return f"is asks for null only; compare values with {'!=' if negated else '='}"
