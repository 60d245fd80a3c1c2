"""Predicate text: an SQL-like condition over one event, read by sqlglot and turned into a program.

The tree is walked by an explicit list of node classes and of their arguments: what is not on it is a problem at its
place, never passed over. docs/notations/predicate.md is the list in words.

This file does not check types (the builder does) and does not look at single words (`predicate_tokens` does).
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from sqlglot import exp
from sqlglot.errors import ParseError

from headwater.errors import InterestError, InterestRefused
from headwater.ir.build import Builder
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.nodes import BinaryOp, CompareOp, Expr, Missing, ParamDecl, Program, Span
from headwater.ir.notes import is_bad
from headwater.lang.predicate_terms import relocated, terms
from headwater.lang.predicate_tokens import (
    BYTES,
    CONSTANT,
    FIELD,
    FUNCTION,
    NOTHING,
    PARAM,
    QUOTED,
    TIMESTAMP,
    Tokens,
    engine,
)
from headwater.lang.source import MAX_RECOVERED, check_text, syntax_error, too_deep
from headwater.types.model import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    SCALARS,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Record,
    Scalar,
)
from headwater.types.model import BYTES as BYTES_TYPE
from headwater.types.model import TIMESTAMP as TIMESTAMP_TYPE

ALIASES = {
    "char_length": "length", "character_length": "length", "octet_length": "byte_length",
    "lcase": "lower", "ucase": "upper", "startswith": "starts_with", "endswith": "ends_with",
    "least": "min", "greatest": "max", "power": "pow", "ceiling": "ceil", "ln": "log", "isnan": "is_nan",
    "ifnull": "coalesce", "nvl": "coalesce",
    "array_length": "len", "array_size": "len", "cardinality": "len", "size": "len",
    "avg": "mean", "array_sum": "sum", "array_avg": "mean", "array_min": "min", "array_max": "max",
    "dayofmonth": "day", "unix_micros": "micros",
}  # fmt: skip

CAST_TYPES: dict[str, Scalar] = SCALARS | {
    "boolean": BOOL, "tinyint": I8, "smallint": I16, "int": I32, "integer": I32, "bigint": I64, "long": I64,
    "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64,
    "real": F32, "float": F32, "double": F64, "float32": F32, "float64": F64,
    "timestamp": TIMESTAMP_TYPE, "varchar": TEXT, "string": TEXT, "text": TEXT, "binary": BYTES_TYPE,
}  # fmt: skip

_BINARY: dict[type, BinaryOp] = {
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "div", exp.IntDiv: "tdiv", exp.Mod: "tmod",
    exp.BitwiseAnd: "and", exp.BitwiseOr: "or", exp.BitwiseXor: "xor",
    exp.BitwiseLeftShift: "shl", exp.BitwiseRightShift: "shr",
}  # fmt: skip
_COMPARE: dict[type, CompareOp] = {
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge"
}  # fmt: skip
_UNARY: dict[type, Any] = {exp.Neg: "neg", exp.Not: "not", exp.BitwiseNot: "not", exp.Cbrt: "bitnot"}
_NULL_TESTS: dict[type, str] = {exp.EQ: "is null", exp.NEQ: "is not null"}
_TWO = ("this", "expression")
PARSER_FRAMES = 5_000  # of Python's stack, for text that nests MAX_DEPTH deep: about 30 a level
_raising_limit = threading.Lock()
_FUNCTION_NAMES = [*FUNCTIONS, *(name for name in REDUCTIONS if name not in FUNCTIONS), "if", "cast", *ALIASES]


def parse(text: str, input: Record, *, params: Iterable[ParamDecl] = (), builder: type[Builder] = Builder) -> Program:
    """The program of a condition over events of type `input`, or an InterestError with every problem in it.

    `builder` decides what the text's result becomes: a verdict, or with `ir.value.ValueBuilder` a number."""
    text = check_text(text, "predicate text")
    b = builder(input, params=params, text=text, notation="predicate")
    try:
        tokens = Tokens(text, input.by_name)
        tree = _tree(text, tokens)
    except InterestRefused:
        raise
    except InterestError as error:
        raise _with_others(error, text, b) from None
    try:
        value = _Walker(b, tokens).expr(tree)
    except RecursionError:
        raise too_deep(text, Span(0, len(text))) from None
    return b.finish(b.return_(value, value.span))


def _with_others(error: InterestError, text: str, b: Builder) -> InterestError:
    """A syntax error, and what else is wrong: conditions between `and` and `or` that can be read by themselves are.

    `b` collects; where nobody can say how the text is meant to be grouped, only problems of types are added."""
    problems = list(error.problems)
    for term in terms(text, problems[0]) if len(text) <= MAX_RECOVERED else ():
        try:
            tokens = Tokens(term.text, b.input.by_name)
            b.condition(_Walker(b, tokens).expr(_tree(term.text, tokens)))
        except (InterestRefused, RecursionError):
            break
        except InterestError as other:
            if term.outermost:
                problems += [relocated(text, problem) for problem in other.problems]
    return InterestError(sorted({*problems, *b.problems}, key=lambda problem: (problem.line, problem.column)))


class _AnyName:
    """The fields of a type that is not known: any name may be one."""

    def __contains__(self, name: object) -> bool:
        return True


def check_syntax(text: str) -> None:
    """Raise an InterestError for what is wrong with a condition whatever the event type is."""
    text = check_text(text, "predicate text")
    _tree(text, Tokens(text, _AnyName()))


def _tree(text: str, tokens: Tokens) -> Any:
    """sqlglot's tree, or its complaint as a problem with a place."""
    try:
        trees = _trees(text, tokens)
    except ParseError as error:
        raise _syntax_error(text, tokens, error.errors[0] if error.errors else {}) from None
    except RecursionError:
        raise too_deep(text, Span(0, len(text))) from None
    if len(trees) != 1 or trees[0] is None:
        raise syntax_error(text, Span(0, len(text)), "this cannot be read", expected="one condition")
    return trees[0]


def _trees(text: str, tokens: Tokens) -> list[Any]:
    """As machine code (the extra `parser`) sqlglot's parser takes little of the stack. As Python it takes more than
    there is, for text that nests as deep as it may; and the limit is one for all threads: one at a time changes it."""
    try:
        return _parse(text, tokens)
    except RecursionError:
        pass
    with _raising_limit:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + PARSER_FRAMES)
        try:
            return _parse(text, tokens)
        finally:
            sys.setrecursionlimit(limit)


def _parse(text: str, tokens: Tokens) -> list[Any]:
    return cast(list[Any], engine.parser.parse_into(exp.Condition, tokens.out, text))


def _syntax_error(text: str, tokens: Tokens, error: dict[str, Any]) -> InterestError:
    place = (error.get("line"), error.get("col"))
    token = next((token for token in tokens.out if (token.line, token.col) == place), tokens.out[-1])
    description = str(error.get("description") or "")
    expected = None
    if description.startswith("Expect"):
        expected = description.removeprefix("Expecting ").removeprefix("Expected ").lower()
    elif description.startswith("Required argument"):
        expected = "something more here"
    return tokens.error(token, "this cannot be read", expected=expected, found=tokens.word(token)[:40])


class _Walker:
    """From sqlglot's nodes to ours."""

    def __init__(self, builder: Builder, tokens: Tokens) -> None:
        self.b = builder
        self.tokens = tokens

    def expr(self, node: Any) -> Expr:
        found = _HANDLERS.get(node.__class__)
        if found is None:
            return self.b.problem(self._place(node), f"{node.key} is not part of predicate text")
        handler, known = found
        for name, value in node.args.items():
            if name not in known and value:
                return self.b.problem(self._place(node), f"{name} of {node.key} is not part of predicate text")
        return handler(self, node)

    def _place(self, node: Any) -> Span:
        """The part of the text that a node's leaves cover."""
        metas = [n.meta for n in node.walk() if n.meta.get("start") is not None]
        if not metas:
            return Span(0, len(self.b.text))
        return Span(min(m["start"] for m in metas), max(m["end"] for m in metas) + 1)

    # ── leaves ──

    def _literal(self, node: Any) -> Expr:
        meta = node.meta
        span = Span(meta["start"], meta["end"] + 1)
        text = node.this
        if node.args["is_string"]:
            return self.b.const(text, span)
        if text.isdecimal() and len(text) <= 30:
            return self.b.const(int(text), span)
        try:
            value = float(text)
        except ValueError:
            return self.b.problem(span, "this is not a number", found=text[:40])
        if text.isdecimal() or math.isinf(value):
            return self.b.problem(span, "this number does not fit 64 bits", found=text[:40])
        return self.b.const(value, span)

    def _column(self, node: Any) -> Expr:
        args = node.args
        parts = [args["this"]]
        if len(args) > 1:
            parts = [part for part in (args.get("catalog"), args.get("db"), args.get("table")) if part] + parts
        return self._path(parts)

    def _dot(self, node: Any) -> Expr:
        base = self.expr(node.this)
        return self._attributes(base, [node.expression])

    def _path(self, parts: list[Any]) -> Expr:
        """A dotted name. The first part may be `input`, `meta`, or something that is not a field at all."""
        first = parts[0]
        meta = first.meta
        span = Span(meta["start"], meta["end"] + 1)
        mark, name = first.this[0], first.this[1:]
        if mark == FIELD and name == "meta":
            return self._meta(parts, span)
        if mark == FIELD and name == "input":
            if len(parts) == 1:
                return self.b.problem(span, "input is the whole event", expected="one of its fields, e.g. input.level")
            second = parts[1].meta
            base = self.b.field(parts[1].this[1:], Span(second["start"], second["end"] + 1))
            return self._attributes(base, parts[2:])
        base = self._leaf(mark, name, span)
        if mark == FIELD and len(parts) > 1 and parts[1].this[1:] in self.b.input.by_name:
            base = self._hinted(base, f"fields are written by themselves: {parts[1].this[1:]}")
        return self._attributes(base, parts[1:])

    def _hinted(self, made: Expr, hint: str) -> Expr:
        """What was made, with a better hint in case that just failed."""
        if is_bad(made) and self.b.problems:
            self.b.problems[-1] = replace(self.b.problems[-1], hint=hint)
        return made

    def _leaf(self, mark: str, name: str, span: Span) -> Expr:
        if mark == QUOTED and self.b.text[span.start] == '"':
            return self._hinted(self.b.field(name, span), _in_quotes(name))
        if mark in (FIELD, QUOTED):
            made = self.b.field(name, span)
            return self._hinted(made, "test for it with is_nan(x)") if name.lower() == "nan" else made
        if mark == PARAM:
            return self.b.param(name, span)
        if mark == TIMESTAMP:
            return self.b.timestamp(name, span)
        if mark == BYTES:
            try:
                return self.b.const(bytes.fromhex(name), span)
            except ValueError:
                return self.b.problem(span, "these bytes are not complete", expected="two digits for each byte")
        if mark == CONSTANT and name != "NULL":
            return self.b.const(name == "TRUE", span)
        hint = "test for a missing value with is null" if mark == CONSTANT else None
        return self.b.problem(span, "this is not a value", found=self.b.text[span.start : span.end][:40], hint=hint)

    def _meta(self, parts: list[Any], span: Span) -> Expr:
        expected = "meta.source, meta.node, meta.seq or meta.time"
        if len(parts) == 1:
            hint = "a field called meta is input.meta" if "meta" in self.b.input.by_name else None
            return self.b.problem(span, "meta is what the service knows of the event", expected=expected, hint=hint)
        span = Span(span.start, parts[1].meta["end"] + 1)
        return self._attributes(self.b.meta(parts[1].this[1:], span), parts[2:])

    def _attributes(self, base: Expr, parts: list[Any]) -> Expr:
        for part in parts:
            if not isinstance(part, exp.Identifier):
                return self.b.problem(self._place(part), "this is not expected here", expected="a field name")
            base = self.b.attribute(base, part.this[1:], Span(base.span.start, part.meta["end"] + 1))
        return base

    def _bracket(self, node: Any) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Column) and len(inner.args) == 1 and inner.this.this == FIELD + "input":
            return self._event_item(node, inner)
        keys = [self.expr(key) for key in node.expressions]
        param = self._param_name(inner)
        base = None if param else self.expr(inner)
        start, end = (inner.this.meta["start"], inner.this.meta["end"] + 1) if base is None else base.span
        span = Span(start, self.tokens.closing(end))
        if len(keys) != 1:
            return self.b.problem(span, "this cannot be read", expected="one index in brackets", found=str(len(keys)))
        return self.b.lookup(cast(str, param), keys[0], span) if base is None else self.b.index(base, keys[0], span)

    def _event_item(self, node: Any, inner: Any) -> Expr:
        """`input['level']`: the event is no list."""
        span = Span(inner.this.meta["start"], self.tokens.closing(inner.this.meta["end"] + 1))
        keys = node.expressions
        named = (
            keys[0].this if len(keys) == 1 and isinstance(keys[0], exp.Literal) and keys[0].args["is_string"] else ""
        )
        field = named if named.isidentifier() else next(iter(self.b.input.by_name), "level")
        return self.b.problem(span, "input is the event, not a list", expected="a field", found="an index",
                              hint=f"write {field}")  # fmt: skip

    def _param_name(self, node: Any) -> str | None:
        if isinstance(node, exp.Column) and len(node.args) == 1 and node.this.this[0] == PARAM:
            return cast(str, node.this.this[1:])
        return None

    # ── operators ──

    def _paren(self, node: Any) -> Expr:
        return self.expr(node.this)

    def _binary(self, node: Any) -> Expr:
        a, b = self.expr(node.this), self.expr(node.expression)
        return self.b.binary(_BINARY[node.__class__], a, b, Span(a.span.start, b.span.end))

    def _compare(self, node: Any) -> Expr:
        args = node.args
        for one, other in ((args["expression"], args["this"]), (args["this"], args["expression"])):
            if node.__class__ in _NULL_TESTS and self._is_nothing(one):
                return self._null_compared(self.expr(other), one, _NULL_TESTS[node.__class__])
        a = self.expr(args["this"])
        before = len(self.b.problems)
        b = self.expr(args["expression"])
        # What is bad may have been told elsewhere: then the last problem is another's.
        last = self.b.problems[-1] if len(self.b.problems) > before else None
        if a.type == TEXT and last is not None and last.about and "did you" not in (last.hint or ""):
            self._hinted(b, _in_quotes(last.about))
        return self.b.compare(_COMPARE[node.__class__], a, b, Span(a.span.start, b.span.end))

    def _is_nothing(self, node: Any) -> bool:
        """Whether this is null, or what other languages call so."""
        if self._is_null(node):
            return True
        bare = isinstance(node, exp.Column) and len(node.args) == 1 and node.this.this[0] == FIELD
        return bare and node.this.this[1:].lower() in NOTHING and node.this.this[1:] not in self.b.input.by_name

    def _null_compared(self, a: Expr, null: Any, test: str) -> Expr:
        if is_bad(a):
            return a
        written = self.b.text[a.span.start : a.span.end][:40]
        place = self._place(null)
        hint = f"test for a missing value with: {written} {test}"
        return self.b.problem(place, "a missing value is not compared", expected=test,
                              found=self.b.text[place.start : place.end][:40], hint=hint)  # fmt: skip

    def _logic(self, node: Any) -> Expr:
        """A chain leans to the left, as deep as it is long: it is unrolled, not descended."""
        kind = node.__class__
        operands = []
        while node.__class__ is kind:
            args = node.args
            operands.append(args["expression"])
            node = args["this"]
        exprs = [self.expr(node)]
        exprs += [self.expr(operand) for operand in reversed(operands)]
        span = Span(exprs[0].span.start, exprs[-1].span.end)
        return self.b.logic("and" if kind is exp.And else "or", exprs, span)

    def _unary(self, node: Any) -> Expr:
        a = self.expr(node.this)
        span = Span(self.tokens.prefixed(a.span.start), a.span.end)
        return self.b.unary(_UNARY[node.__class__], a, span)

    def _like(self, node: Any) -> Expr:
        a, b = self.expr(node.this), self.expr(node.expression)
        span = Span(a.span.start, b.span.end)
        matched = self.b.call("like", [a, b], span)
        return self.b.unary("not", matched, span) if node.args.get("negate") else matched

    def _between(self, node: Any) -> Expr:
        a, low, high = self.expr(node.this), self.expr(node.args["low"]), self.expr(node.args["high"])
        span = Span(a.span.start, high.span.end)
        return self.b.logic("and", [self.b.compare("ge", a, low, span), self.b.compare("le", a, high, span)], span)

    def _in(self, node: Any) -> Expr:
        a = self.expr(node.this)
        field = node.args.get("field")
        if field is None:
            values = [self.expr(value) for value in node.expressions]
            end = values[-1].span.end if values else a.span.end
            return self.b.in_set(a, values, Span(a.span.start, end))
        name = self._param_name(field)
        if name is None:
            place = self._place(field)
            hint = "write x in (1, 2), or x in :name with a set parameter"
            return self.b.problem(place, "this is not a list", expected="values in parentheses", hint=hint)
        return self.b.in_param(a, name, Span(a.span.start, field.this.meta["end"] + 1))

    def _is(self, node: Any) -> Expr:
        a = self.expr(node.this)
        if not self._is_null(node.expression):
            return self.b.problem(self._place(node.expression), "this is not expected here", expected="null after is")
        return self.b.is_missing(a, Span(a.span.start, node.expression.this.meta["end"] + 1))

    # ── conditionals, casts and functions ──

    def _case(self, node: Any) -> Expr:
        subject = self.expr(node.this) if node.this else None
        tests = [self.expr(branch.this) for branch in node.args["ifs"]]
        if subject is not None:
            tests = [self.b.compare("eq", subject, test, test.span) for test in tests]
        start = self.tokens.case((subject or tests[0]).span.start)
        span = Span(start, self.tokens.closing(start))
        default = node.args.get("default")
        results = [*(branch.args["true"] for branch in node.args["ifs"]), *([default] if default else [])]
        return self._conditional(tests, results, span)

    def _conditional(self, tests: list[Expr], nodes: list[Any], span: Span) -> Expr:
        """Results of null, and an `else` that is not there, are missing values of the others' type."""
        results = [None if self._is_null(node) else self.expr(node) for node in nodes]
        known = next((result for result in results if result is not None), None)
        if known is None:
            return self.b.problem(span, "every result is null")
        filled = [Missing(known.type, span) if result is None else result for result in results]
        value = filled[-1] if len(filled) > len(tests) else Missing(known.type, span)
        for test, result in zip(reversed(tests), reversed(filled[: len(tests)]), strict=True):
            value = self.b.cond(test, result, value, span)
        return value

    def _is_null(self, node: Any) -> bool:
        return isinstance(node, exp.Column) and len(node.args) == 1 and node.this.this == CONSTANT + "NULL"

    def _call(self, node: Any) -> Expr:
        meta = node.meta
        name_span = Span(meta["start"], meta["end"] + 1)
        written = node.this
        if not isinstance(written, str) or written[0] != FUNCTION:
            return self.b.problem(name_span, "this cannot be called", expected="a function of the library")
        span = Span(name_span.start, self.tokens.closing(name_span.end))
        written = written[1:]
        if written == "cast":
            return self._cast(node, span)
        if written == "if":
            return self._if(node, span)
        args = [self.expr(arg) for arg in node.expressions]
        return self._function(ALIASES.get(written, written), args, name_span, span)

    def _function(self, name: str, args: list[Expr], name_span: Span, span: Span) -> Expr:
        if name == "mod" and len(args) == 2:
            return self.b.binary("tmod", args[0], args[1], span)
        if name == "len" and len(args) == 1 and args[0].type in (TEXT, BYTES_TYPE):
            name = "length"
        if name not in FUNCTIONS and name not in REDUCTIONS and name not in self.b.functions:
            hint = self.b.suggest(name, [*_FUNCTION_NAMES, *self.b.functions], "there are")
            return self.b.problem(name_span, f"no function {name!r}", hint=hint)
        return self.b.call(name, args, span)

    def _if(self, node: Any, span: Span) -> Expr:
        if len(node.expressions) != 3:
            found = str(len(node.expressions))
            return self.b.problem(span, "arguments of if()", expected="if(condition, then, otherwise)", found=found)
        test, then, other = node.expressions
        return self._conditional([self.expr(test)], [then, other], span)

    def _cast(self, node: Any, span: Span) -> Expr:
        alias = node.expressions[0] if len(node.expressions) == 1 else None
        if not isinstance(alias, exp.Alias) or not isinstance(alias.args.get("alias"), exp.Identifier):
            return self.b.problem(span, "this cast cannot be read", expected="cast(x as int)")
        name = alias.args["alias"]
        type = CAST_TYPES.get(name.this[1:].lower())
        value = self.expr(alias.this)
        if type is None:
            place = Span(name.meta["start"], name.meta["end"] + 1)
            hint = self.b.suggest(name.this[1:].lower(), CAST_TYPES, "there are")
            return self.b.problem(place, f"no type {name.this[1:]!r}", hint=hint)
        return value if is_bad(value) else self.b.cast(value, type, span)


def _in_quotes(word: str) -> str:
    return f"text is written in single quotes: '{word[:40]}'"


_Handler = Callable[[_Walker, Any], Expr]
_HANDLERS: dict[type, tuple[_Handler, tuple[str, ...]]] = {
    exp.Literal: (_Walker._literal, ("this", "is_string")),
    exp.Column: (_Walker._column, ("this", "table", "db", "catalog")),
    exp.Dot: (_Walker._dot, _TWO),
    exp.Bracket: (_Walker._bracket, ("this", "expressions")),
    exp.Paren: (_Walker._paren, ("this",)),
    exp.And: (_Walker._logic, _TWO),
    exp.Or: (_Walker._logic, _TWO),
    exp.Like: (_Walker._like, ("this", "expression", "negate")),
    exp.Between: (_Walker._between, ("this", "low", "high")),
    exp.In: (_Walker._in, ("this", "expressions", "field")),
    exp.Is: (_Walker._is, _TWO),
    exp.Case: (_Walker._case, ("this", "ifs", "default")),
    exp.Anonymous: (_Walker._call, ("this", "expressions")),
    **dict.fromkeys(_BINARY, (_Walker._binary, _TWO)),
    **dict.fromkeys(_COMPARE, (_Walker._compare, _TWO)),
    **dict.fromkeys(_UNARY, (_Walker._unary, ("this",))),
}
