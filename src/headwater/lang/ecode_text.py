"""The text of an E-Code program before it is parsed: comments, brackets, type names, limits and literals.

`scan` goes over the text once. It blanks what the C parser must not see (comments, preprocessor lines) and keeps every
position; it pairs brackets, so that unbalanced ones are told at their place; and it refuses what is too long or too
deep before a parser has to recurse over it. The literal readers turn C's spellings into values.

This file knows nothing of syntax trees and programs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.errors import InterestRefused, Problem
from headwater.ir.library import round_f32
from headwater.ir.nodes import Span
from headwater.lang.source import check_text, refusal, syntax_error
from headwater.types.model import BOOL, BYTES, INTEGERS, TEXT, TIMESTAMP, U64, Scalar

MAX_TOKENS = 40_000
MAX_NESTING = 64  # of brackets; the parser takes some eight frames for each
MAX_NUMBER = 100
MAX_CHAIN = 128  # of `else if`

# Type names that C takes from a header, and ours. The parser is shown `void` instead, so it needs no typedefs.
ALIASES: dict[str, Scalar] = {"bool": BOOL, "size_t": U64, "timestamp": TIMESTAMP, "text": TEXT, "bytes": BYTES}
ALIASES |= {f"{'' if t.is_signed else 'u'}int{t.bits}_t": t for t in INTEGERS}
_SOFT = frozenset({"timestamp", "text", "bytes"})  # types only where a type can stand, ordinary names elsewhere

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f\v]+)
      | (?P<word>[A-Za-z_$][\w$]*)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)
      | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<char>'(?:[^'\\\n]|\\[^\n])*')
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<splice>\\\r?\n)
      | (?P<directive>\#(?:\\\r?\n|[^\n])*)
      | (?P<broken>/\*|"|')
      | (?P<mark>->|.)""",
    re.VERBOSE | re.DOTALL,
)
_PARTNER = {")": "(", "]": "[", "}": "{"}
_SPOKEN = {"(": "')'", "[": "']'", "{": "'}'"}
_BROKEN = {"/*": "this comment is never closed", '"': "this text is not closed on its line",
           "'": "this character is not closed on its line"}  # fmt: skip
_NOT_BLANK = re.compile(r"[^\n]")


def blank(text: str) -> str:
    """Spaces, with the line ends kept."""
    return _NOT_BLANK.sub(" ", text)


@dataclass(slots=True)
class Source:
    """A scanned program. `code` is as long as `text`, line for line."""

    text: str
    code: str = ""
    faults: list[tuple[Span, str, str | None]] = field(default_factory=list)  # place, message, hint
    balanced: bool = True
    closing: dict[int, int] = field(default_factory=dict)  # an opening bracket's offset to its partner's
    aliases: dict[int, Scalar] = field(default_factory=dict)  # where the parser is shown `void` for a type name
    starts: list[int] = field(default_factory=list)  # offset of every line

    def at(self, line: int, column: int) -> int:
        """The offset of a line and column, both from 1."""
        if line > len(self.starts):
            return len(self.text)
        return min(self.starts[max(line, 1) - 1] + max(column, 1) - 1, len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset, both from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def offset(self, problem: Problem) -> int:
        """Where a problem begins."""
        return self.at(problem.line, problem.column)

    def word(self, offset: int) -> Span:
        """The token at an offset."""
        found = _TOKEN.match(self.text, offset)
        return Span(offset, found.end() if found else offset + 1)

    def before(self, offset: int) -> str:
        """The last token that ends before an offset, or ''."""
        ahead = self.code[:offset].rstrip()
        found = re.search(r"[\w$]+$", ahead)
        return found.group() if found else ahead[-1:]

    def partner(self, bracket: str, start: int) -> int:
        """The end of the bracket that opens next after `start`."""
        return self.closing.get(self.code.find(bracket, start), start) + 1


def refused(text: str, offset: int, message: str, hint: str) -> InterestRefused:
    """Too much of something, seen at one place."""
    return refusal(text, Span(offset, offset + 1), message, hint=hint)


def scan(text: str) -> Source:
    """Blank, pair, count. Raises `InterestRefused` where the text is beyond a limit."""
    check_text(text, "an E-Code text")
    source = Source(text, starts=[0, *(m.end() for m in re.finditer("\n", text))])
    edits: list[tuple[int, int, str]] = []
    words: list[tuple[str, int, str, str]] = []  # type names that may be types: name, offset, token before, token after
    stack: list[tuple[str, int]] = []
    chains = [0]  # how many `else if` follow each other, for every open bracket
    tokens, before, held = 0, "", -1
    for found in _TOKEN.finditer(text):
        kind, token, start = found.lastgroup, found.group(), found.start()
        if kind == "blank":
            if "\r" in token:
                edits.append((start, found.end(), token.replace("\r", " ")))
            continue
        if kind == "comment" or kind == "splice":
            edits.append((start, found.end(), blank(token)))
            continue
        if kind == "directive":
            edits.append((start, found.end(), blank(token)))
            hint = "write constants in place; functions of the library need no #include"
            source.faults.append((Span(start, start + len(token.rstrip())), "preprocessor lines are not E-Code", hint))
            continue
        if kind == "broken":
            source.faults.append((Span(start, found.end()), _BROKEN[token], None))
            source.balanced = False
            return source
        tokens += 1
        if tokens > MAX_TOKENS:
            raise refused(text, start, f"the text has more than {MAX_TOKENS:,} tokens", "use parameters for tables")
        if before in (";", "}") and token != "else":
            chains[-1] = 0
        if held >= 0:
            name, offset, ahead, _ = words[held]
            words[held], held = (name, offset, ahead, token), -1
        if kind == "word":
            if token in ALIASES:
                held = len(words)
                words.append((token, start, before, ""))
            if token == "if" and before == "else":
                chains[-1] += 1
                if chains[-1] > MAX_CHAIN:
                    raise refused(text, start, f"more than {MAX_CHAIN} 'else if' in a row", "use a map parameter")
        elif kind == "number" and len(token) > MAX_NUMBER:
            raise syntax_error(text, Span(start, start + 1), f"a number of more than {MAX_NUMBER} characters")
        elif kind == "open":
            if token == "[" and before == "[":
                source.faults.append((Span(start - 1, start + 1), "attributes are not E-Code", None))
                source.balanced = False
            stack.append((token, start))
            chains.append(0)
            if len(stack) > MAX_NESTING:
                raise refused(text, start, f"brackets nest deeper than {MAX_NESTING}", "assign parts to variables")
        elif kind == "close":
            _close(source, stack, chains, token, start)
        before = token
    for token, start in stack:
        source.faults.append((Span(start, start + 1), f"this bracket is never closed: expected {_SPOKEN[token]}", None))
        source.balanced = False
    edits += _types(source, words)
    source.code = _edited(text, edits)
    return source


def _close(source: Source, stack: list[tuple[str, int]], chains: list[int], token: str, start: int) -> None:
    if stack and stack[-1][0] == _PARTNER[token]:
        source.closing[stack.pop()[1]] = start
        chains.pop()
        return
    source.balanced = False
    if not stack:
        source.faults.append((Span(start, start + 1), f"this {token!r} closes nothing", None))
        return
    opened, at = stack[-1]
    line, column = source.place(at)
    message = f"expected {_SPOKEN[opened]} for the {opened!r} of line {line}, column {column}, found {token!r}"
    source.faults.append((Span(start, start + 1), message, None))
    while stack and stack[-1][0] != _PARTNER[token]:
        stack.pop()
        chains.pop()
    if stack:
        stack.pop()
        chains.pop()


def _types(source: Source, words: list[tuple[str, int, str, str]]) -> Iterator[tuple[int, int, str]]:
    """Edits that show `void` where a name from `ALIASES` stands as a type."""
    for name, start, before, after in words:
        if before in (".", "->"):
            continue
        end = start + len(name)
        if name in _SOFT and not (after[:1].isalpha() or after[:1] in ("_", "$")):
            follows = source.text[end:].lstrip()[1:].lstrip()[:1] if (before, after) == ("(", ")") else ""
            if not (follows.isalnum() or follows in ("_", "(", '"', "'", ".")) or not follows:
                continue
        source.aliases[start] = ALIASES[name]
        yield start, end, "void".ljust(len(name))


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(edits):
        parts += (text[done:start], new)
        done = end
    parts.append(text[done:])
    return "".join(parts)


# ── literals ─────────────────────────────────────────────────────────────────────────────────────────────

_INTEGER = re.compile(
    r"(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|(0[0-7]*)|([1-9][0-9]*))([uU]?(?:ll|LL|[lL])?|(?:ll|LL|[lL])[uU])"
)
_FLOAT = re.compile(r"((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)([fFlL]?)")
_HEX_FLOAT = re.compile(r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)([fFlL]?)")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN_ESCAPES = dict(zip("ntrabfv\\'\"?", b"\n\t\r\a\b\f\v\\'\"?", strict=True))
_STRING = re.compile(r"[ \t\n\r\f\v]*(u8|[uUL])?\"((?:[^\"\\\n]|\\[^\n])*)\"")


def integer(text: str) -> tuple[int, bool] | None:
    """The value of an integer literal and whether it is marked unsigned."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    digits, base = next((d, b) for d, b in zip(found.groups(), (16, 2, 8, 10), strict=False) if d)
    return int(digits, base), "u" in found.group(5).lower()


def floating(text: str) -> float | None:
    """The value of a float literal; with the suffix f it is rounded to a float."""
    found = _FLOAT.fullmatch(text)
    try:
        value = float(found.group(1)) if found else None
        if found is None:
            found = _HEX_FLOAT.fullmatch(text)
            value = float.fromhex(found.group(1)) if found else None
    except OverflowError:
        value = float("inf")
    return round_f32(value) if value is not None and found and found.group(2).lower() == "f" else value


def character(text: str) -> int | str:
    """The value of a character literal, or what is wrong with it."""
    if not text.startswith("'"):
        return "only plain characters such as 'a'"
    value = _bytes(text[1:-1])
    if isinstance(value, str):
        return value
    if len(value) != 1:
        return "a character literal holds one ASCII character; a text is written in double quotes"
    if value[0] > 127:
        return "characters above 127 differ between machines; write the number"
    return value[0]


def string(code: str, offset: int) -> tuple[str | None, int, str]:
    """The text of adjacent string literals from `offset`, where they end, and what is wrong with them."""
    joined = bytearray()
    end, wrong = offset, ""
    while found := _STRING.match(code, end):
        end = found.end()
        value = _bytes(found.group(2))
        if found.group(1) not in (None, "u8"):
            wrong = "only plain and u8 texts"
        elif isinstance(value, str):
            wrong = value
        else:
            joined += value
    try:
        return (None if wrong else joined.decode()), end, wrong
    except UnicodeDecodeError:
        return None, end, "these bytes are not UTF-8"


def _bytes(inner: str) -> bytes | str:
    """What stands between the quotes, as UTF-8; or what is wrong with it."""
    out, done = bytearray(), 0
    for found in _ESCAPE.finditer(inner):
        out += inner[done : found.start()].encode(errors="surrogatepass")
        done = found.end()
        octal, hexa, short, long, plain = found.groups()
        if octal or hexa:
            value = int(octal, 8) if octal else int(hexa, 16)
            if value > 255:
                return f"the escape {found.group()} is more than a byte"
            out.append(value)
        elif short or long:
            value = int(short or long, 16)
            if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
                return f"the escape {found.group()} is no character"
            out += chr(value).encode()
        elif plain in _PLAIN_ESCAPES:
            out.append(_PLAIN_ESCAPES[plain])
        else:
            return f"there is no escape {found.group()}"
    return bytes(out + inner[done:].encode(errors="surrogatepass"))
