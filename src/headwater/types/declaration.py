"""A type written on one line, for command lines and tests:

    level: f32, network: text, seen: timestamp?, kind: enum(USER, EQUIPMENT), position: {x: f64, y: f64},
    wind: f64[253, 37], samples: i16[]

`?` makes a field optional, `[n, m]` a fixed array, `[]` a list. Enumeration members may carry codes: `enum(A=1, B=5)`.
"""

from __future__ import annotations

import re

from headwater.errors import TypeDeclarationError
from headwater.spelling import did_you_mean
from headwater.types.model import SCALARS, Array, Enum, Field, List, Record, Type

_TOKEN = re.compile(r"\s*(?:(?P<word>[^\W\d]\w*)|(?P<number>-?\d+)|(?P<sign>[:,?\[\](){}=])|(?P<bad>\S))")
_ALIASES = {"int": "i64", "float": "f64", "str": "text", "string": "text", "double": "f64", "datetime": "timestamp"}


def parse_record(text: str, name: str = "Event") -> Record:
    """The record that the line declares."""
    parser = _Parser(text)
    record = parser.record(name, end="")
    parser.expect("")
    return record


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(m.lastgroup or ""), m.start(m.lastgroup or "")) for m in _TOKEN.finditer(text)]
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next
        self.at += 1
        return token

    def expect(self, wanted: str) -> None:
        if self.next != wanted:
            raise self.error(repr(wanted) if wanted else "the end")
        self.at += 1

    def error(self, expected: str, hint: str | None = None) -> TypeDeclarationError:
        column = self.tokens[self.at][1] + 1 if self.at < len(self.tokens) else len(self.text) + 1
        found = repr(self.next) if self.next else "the end"
        end = f"; {hint}" if hint else ""
        return TypeDeclarationError(f"type {self.text!r}, column {column}: expected {expected}, found {found}{end}")

    def word(self, what: str) -> str:
        if not re.fullmatch(r"[^\W\d]\w*", self.next):
            raise self.error(what)
        return self.take()

    def number(self) -> int:
        if not re.fullmatch(r"-?\d+", self.next):
            raise self.error("a number")
        return int(self.take())

    def record(self, name: str, end: str) -> Record:
        fields = [self.field()]
        while self.next == ",":
            self.take()
            if self.next == end:
                break
            fields.append(self.field())
        return Record(name, tuple(fields))

    def field(self) -> Field:
        name = self.word("a field name")
        self.expect(":")
        type = self.type(name)
        optional = self.next == "?"
        if optional:
            self.take()
        return Field(name, type, optional)

    def type(self, field: str) -> Type:
        base = self.base(field)
        while self.next == "[":
            self.take()
            shape = []
            while self.next != "]":
                shape.append(self.number())
                if self.next != "]":
                    self.expect(",")
            self.take()
            base = Array(base, tuple(shape)) if shape else List(base)
        return base

    def base(self, field: str) -> Type:
        if self.next == "{":
            self.take()
            record = self.record(field.capitalize(), end="}")
            self.expect("}")
            return record
        start = self.at
        word = self.word("a type")
        if word == "enum":
            return self.enum(field)
        scalar = SCALARS.get(_ALIASES.get(word, word))
        if scalar is None:
            self.at = start
            hint = did_you_mean(word, (*SCALARS, *_ALIASES, "enum"))
            raise self.error(f"one of {', '.join(SCALARS)}, enum(…) or {{…}}", hint)
        return scalar

    def enum(self, field: str) -> Enum:
        self.expect("(")
        members: list[tuple[str, int]] = []
        while self.next != ")":
            name = self.word("a member")
            code = len(members)
            if self.next == "=":
                self.take()
                code = self.number()
            members.append((name, code))
            if self.next != ")":
                self.expect(",")
        self.take()
        return Enum(field.capitalize(), tuple(members))
