"""E-Code: interests in a subset of C, as in ECho. `parse` turns the text into a checked program.

    if (input.level > 0.5) { return 1; }

The body of `int f(input, output)` is written with or without its braces. Returning something other than zero keeps the
event; falling off the end rejects it. docs/notations/ecode.md says what is accepted and what differs from C.

The text is scanned first (`ecode_text.py`), then parsed by pycparser, then lowered: expressions in `ecode_expr.py`,
declarations in `ecode_decl.py`, other statements here. All problems are reported at once, each at its place; what
cannot be parsed is left out to look at the rest (`ecode_recovery.py`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pycparser import c_ast
from pycparser.c_lexer import CLexer
from pycparser.c_parser import CParser, ParseError

from headwater.errors import InterestError
from headwater.ir.build import Builder
from headwater.ir.nodes import Break, Continue, Expr, ParamDecl, Program, SetOut, Span, Stmt
from headwater.ir.notes import MAX_DEPTH, is_bad, locate
from headwater.lang.ecode_decl import Declarations
from headwater.lang.ecode_expr import BINARY
from headwater.lang.ecode_recovery import NOT_C, Recovery
from headwater.lang.ecode_text import Source, refused, scan
from headwater.lang.ecode_types import Ast, spoken
from headwater.lang.source import MAX_RECOVERED
from headwater.spelling import did_you_mean
from headwater.types.model import BOOL, Enum, Record, Type

_OPERATORS = frozenset("+-*/%&|^<>=!~?:,(")
_CONDITIONS = ("if", "for", "while")
_KEYWORDS = (*_CONDITIONS, "else", "do", "return", "break", "continue", "static", "double", "unsigned")
_FOREIGN = {
    "and": "C writes && for and",
    "or": "C writes || for or",
    "not": "C writes ! for not",
    **dict.fromkeys(("string", "String", "str"), "a text is declared char * or text"),
    **dict.fromkeys(("var", "let", "auto"), "a variable is declared with its type, e.g. int x = 0;"),
}
_MANY = 100  # problems
MAX_LEFT_OUT = 10  # statements with syntax errors that are left out to look at the others
_HEAD, _TAIL = "int f(){\n", "\n}"


def parse(
    text: str,
    input: Record,
    *,
    output: Record | None = None,
    params: Iterable[ParamDecl] = (),
    builder: type[Builder] = Builder,
) -> Program:
    """A filter, or with `output` a transformation. Raises `InterestError` with every problem, or `InterestRefused`.

    `builder` decides what the text's results become: a verdict, or with `ir.value.ValueBuilder` a number."""
    source = scan(text)
    b = builder(input, output=output, params=params, text=text, notation="ecode", c_truth=True)
    for span, message, hint in source.faults:
        b.problem(span, message, hint=hint)
    if not source.balanced:
        b.finish(())
    try:
        try:
            tree = _syntax(source)
        except InterestError as error:
            raise _with_others(error, source, b) from None
        body = _Statements(source, b).block(tree)
        if not body and not b.problems:
            b.problem(Span(0, 1), "this interest does nothing", expected="a return", hint="return 1; keeps all")
        return b.finish(body)
    except RecursionError:
        raise refused(text, 0, "the text nests too deeply", "assign parts to variables") from None


def _with_others(error: InterestError, source: Source, b: Builder) -> InterestError:
    """A syntax error, and what else is wrong: the statement that it is in is left out, and the rest looked at.

    A further syntax error is added only where what was left out cannot be its cause, and no problem that may be one
    only because of that."""
    problems, recovery = list(error.problems), Recovery(source.code)
    wrong = problems[0]
    for _ in range(MAX_LEFT_OUT if len(source.text) <= MAX_RECOVERED else 0):
        if not recovery.leave_out(source.offset(wrong)):
            break
        try:
            tree = _syntax(replace(source, code=recovery.code))
        except InterestError as other:
            wrong = other.problems[0]
            if not recovery.explains(wrong):
                problems.append(wrong)
            continue
        with suppress(InterestError):  # more of them than anybody reads, or too much of something
            _Statements(source, b).block(tree)
        problems += [problem for problem in b.problems if not recovery.explains(problem)]
        break
    return InterestError(sorted(set(problems), key=lambda problem: (problem.line, problem.column)))


def check_syntax(text: str) -> None:
    """Raise an InterestError for what is wrong with a text whatever the event type is."""
    source = scan(text)
    problems = [locate(text, span, message, hint=hint) for span, message, hint in source.faults]
    if problems:
        raise InterestError(problems)
    try:
        _syntax(source)
    except RecursionError:
        raise refused(text, 0, "the text nests too deeply", "assign parts to variables") from None


# ── syntax ───────────────────────────────────────────────────────────────────────────────────────────────


class _Lexer(CLexer):  # type: ignore[misc]
    """Remembers the last token, for the errors that the parser raises without a place."""

    last: Any = None

    def token(self) -> Any:
        self.last = super().token()
        return self.last


_parsers = threading.local()  # a parser holds state while it parses; each thread has its own


def _syntax(source: Source) -> Sequence[Ast]:
    """The statements, or the one syntax error that the parser stops at."""
    parser = getattr(_parsers, "parser", None) or CParser(lexer=_Lexer)
    _parsers.parser = None  # not reused after an error
    try:
        tree = parser.parse(f"{_HEAD}{source.code}{_TAIL}")
    except RecursionError:
        raise
    except ParseError as error:
        raise InterestError([_syntax_problem(source, str(error), parser.clex)]) from None
    except Exception as error:  # what trips the parser up in its own code is a fault of the text all the same
        raise InterestError([_syntax_problem(source, f"the parser failed: {error}", parser.clex)]) from None
    _parsers.parser = parser
    if len(tree.ext) != 1 or not isinstance(tree.ext[0], c_ast.FuncDef):
        raise InterestError([locate(source.text, Span(0, 1), "expected statements only")])
    return tree.ext[0].body.block_items or ()


def _syntax_problem(source: Source, message: str, lexer: Any) -> Any:
    """What the C parser says, at the place and in words that fit E-Code: its own speak of C, and of a text that was
    wrapped."""
    found = re.match(r"\S*?:(\d+):(\d+): (.*)", message, re.DOTALL)
    if found:
        start, message = source.at(int(found.group(1)) - 1, int(found.group(2))), found.group(3)
    elif lexer.last is not None and hasattr(lexer.last, "column"):
        start = source.at(lexer.last.lineno - 1, lexer.last.column)
        message = message.lstrip(": ")
    elif lexer.last is not None and hasattr(lexer.last, "lexpos"):
        start = min(max(0, lexer.last.lexpos - len(_HEAD)), len(source.text))
    else:
        start = len(source.text)
    at_end = start >= len(source.code.rstrip())
    start = len(source.code.rstrip()) if at_end else start
    span = source.word(start) if not at_end else Span(start, start + 1)
    token = "the end of the text" if at_end else source.text[span.start : span.end][:40]
    before = source.before(start)
    operand = before[-1:].isalnum() or before[-1:] in ("_", ")", "]", '"', "'")
    expected = "an operator or ';'" if operand else "a value" if before in _OPERATORS else None
    hint = None
    wrong = _mistaken(source, start, before, token)
    if wrong is not None:
        hint = wrong
        expected = "'('" if before in _CONDITIONS else expected
    elif before == ")" and token == "{":
        hint = "functions cannot be defined in E-Code; write the statements in place"
    elif re.fullmatch(r"[A-Za-z_]\w*", before) and re.match(r"[A-Za-z_]", token) and not at_end:
        hint = f"{before!r} is no type and no keyword; is an operator or a ';' missing?"
    elif operand:
        hint = "is a ';' or an operator missing before this?"
    if message.startswith("before") or "nvalid expression" in message or "end of input" in message:
        message = NOT_C
    else:
        message, hint, expected = message[:1].lower() + message[1:], None, None
    return locate(source.text, span, message, expected=expected, found=token, hint=hint)


def _mistaken(source: Source, start: int, before: str, token: str) -> str | None:
    """A hint for words that other languages write, and for misspelt ones of C."""
    if before in _CONDITIONS:
        return f"the condition of {before!r} stands in parentheses"
    for word in (token, before):
        if word in _FOREIGN:
            return _FOREIGN[word]
    if before == ")" and token not in ("{", "the end of the text"):  # `If (x) return`: the word before the parentheses
        opening = next((at for at, end in source.closing.items() if source.code[at] == "(" and
                        not source.code[end + 1 : start].strip()), None)  # fmt: skip
        before = source.before(opening) if opening is not None else before
    return None if before in _KEYWORDS else did_you_mean(before, _KEYWORDS, alike=0.75)


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Target:
    """What is assigned to: a variable, an element of one, or a part of the output (slot is None)."""

    slot: int | None
    steps: list[Any]
    type: Type | None
    span: Span


class _Statements(Declarations):
    """Lowers statements; each method returns a list, as C's may become several or none."""

    def __init__(self, source: Source, builder: Builder) -> None:
        super().__init__(source, builder)
        self._loops = self._nesting = 0

    def block(self, nodes: Iterable[Ast]) -> list[Stmt]:
        return [stmt for node in nodes for stmt in self.stmt(node)]

    def scoped(self, node: Ast) -> list[Stmt]:
        """A statement in a scope of its own."""
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise refused(self.source.text, self.start(node), f"statements nest deeper than {MAX_DEPTH}",
                          "leave early with return, break or continue")  # fmt: skip
        self.b.push_scope()
        body = self.stmt(node) if not isinstance(node, c_ast.Compound) else self.block(node.block_items or ())
        self.b.pop_scope()
        self._nesting -= 1
        return body

    def stmt(self, node: Ast) -> list[Stmt]:
        """The statements that one of C becomes; what E-Code does not have is a problem with its place."""
        if len(self.b.problems) > _MANY:
            self.b.finish(())  # enough to read; a hostile text could have as many as it has tokens
        match node:
            case None | c_ast.EmptyStatement():
                return []
            case c_ast.Compound():
                return self.scoped(node)
            case c_ast.DeclList():
                return self.block(node.decls)
            case c_ast.Decl():
                return self.declare(node)
            case c_ast.ExprList():
                return self.block(node.exprs)
            case c_ast.Assignment():
                return self._assignment(node)
            case c_ast.UnaryOp() if node.op in ("++", "--", "p++", "p--"):
                return self._bump(node)
            case c_ast.If():
                test = self.expr(node.cond)
                then, other = self.scoped(node.iftrue), self.scoped(node.iffalse)
                return self.b.if_(test, then, other, self.span(node))
            case c_ast.For() | c_ast.While():
                return self._loop(node)
            case c_ast.DoWhile():
                return self._do_while(node)
            case c_ast.Break() | c_ast.Continue():
                return self._leave(node)
            case c_ast.Return():
                span = self.span(node)
                if node.expr is None:
                    return self.b.return_nothing(span)
                value = self.expr(node.expr)
                return self.b.return_(value, Span(span.start, max(span.end, value.span.end)))
            case c_ast.Switch() | c_ast.Goto() | c_ast.Label() | c_ast.Case() | c_ast.Default() | c_ast.Typedef():
                hint = {"Switch": "write if … else if …", "Typedef": "write the type itself"}.get(type(node).__name__)
                self.b.problem(self.span(node), f"{spoken(node)} is not E-Code",
                               hint=hint or "use loops with break and continue")  # fmt: skip
                return []
        return self._idle(node)

    def _idle(self, node: Ast) -> list[Stmt]:
        """An expression as a statement: nothing would come of it."""
        known = len(self.b.problems)
        value = self.expr(node)
        if len(self.b.problems) == known and not is_bad(value):
            compared = isinstance(node, c_ast.BinaryOp) and node.op == "=="
            hint = "to assign, write a single =" if compared else "assign the value or return it"
            self.b.problem(Span(self.start(node), value.span.end), "this statement has no effect", hint=hint)
        return []

    def _leave(self, node: Ast) -> list[Stmt]:
        span, kind = self.span(node), Break if isinstance(node, c_ast.Break) else Continue
        if not self._loops:
            self.b.problem(span, f"{kind.__name__.lower()} outside a loop")
            return []
        return [kind(span)]

    # ── loops ──

    def _loop(self, node: Ast) -> list[Stmt]:
        self.b.push_scope()
        is_for = isinstance(node, c_ast.For)
        before = self.stmt(node.init) if is_for else []
        test = self.b.const(True, self.span(node)) if node.cond is None else self.expr(node.cond)
        step = self.stmt(node.next) if is_for else []
        body = self._body(node.stmt)
        self.b.pop_scope()
        return [*before, *self.b.loop(test, body, step, self.span(node))]

    def _body(self, node: Ast) -> list[Stmt]:
        self._loops += 1
        body = self.scoped(node)
        self._loops -= 1
        return body

    def _do_while(self, node: Ast) -> list[Stmt]:
        """`do body while (test);` is a loop that asks `first || test`, so the body stands only once."""
        span = self.span(node)
        first = self.hide(BOOL, span)
        body = self._body(node.stmt)
        test = self.b.logic("or", [self.b.var(first, span), self.expr(node.cond)], span)
        body = [*self.b.assign(first, self.b.const(False, span), span), *body]
        return [*self.b.assign(first, self.b.const(True, span), span), *self.b.loop(test, body, [], span)]

    # ── assignments ──

    def _assignment(self, node: Ast) -> list[Stmt]:
        """`a = b = c` assigns from the right; what goes on to the left is what the right one then holds."""
        chain = []
        while isinstance(node, c_ast.Assignment):
            chain.append(node)
            node = node.rvalue
        stmts: list[Stmt] = []
        value: Expr | None = None
        for link in reversed(chain):
            target = self._target(link.lvalue)
            value = self.expr(node, target.type if target else None) if value is None else value
            if target is None:
                value = self.bad(value.span)
                continue
            span = Span(self.start(link), value.span.end)
            if link.op != "=":
                value = self.b.binary(BINARY[link.op[:-1]], self._held(target), value, span)
            done = self._store(target, value, span)
            stmts += done
            if link is not chain[0]:
                out = done[0] if done else None
                value = out.value if isinstance(out, SetOut) else self._held(target)
        return stmts

    def _bump(self, node: Ast) -> list[Stmt]:
        target = self._target(node.expr)
        if target is None:
            return []
        one = self.b.const(1, target.span)
        value = self.b.binary("add" if "+" in node.op else "sub", self._held(target), one, target.span)
        return self._store(target, value, target.span)

    def _held(self, target: _Target) -> Expr:
        """What a target holds now."""
        if target.slot is None:
            hint = "compute in a local variable and assign that"
            return self.b.problem(target.span, "the output can only be assigned, not read", hint=hint)
        if target.steps:
            return self.b.elem(target.slot, target.steps, target.span)
        return self.b.var(target.slot, target.span)

    def _store(self, target: _Target, value: Expr, span: Span) -> list[Stmt]:
        if target.slot is None:
            return self.b.set_out(target.steps, value, span)
        if target.steps:
            return self.b.assign_elem(target.slot, target.steps, value, span)
        return self.b.assign(target.slot, value, span)

    def _target(self, node: Ast) -> _Target | None:
        """What an assignment assigns to: a variable, an element of one, or a field of the output."""
        root, steps = self.steps(node)
        name = root.name if isinstance(root, c_ast.ID) else None
        slot = self.b.find(name) if name else None
        span = Span(self.start(node), steps[-1].span.end if steps else self.span(node).end)
        if slot is not None and all(step.name is None for step in steps):
            if slot in self.constants:
                self.b.problem(span, f"{name!r} is const and cannot be changed")
                return None
            indices = [self.expr(step.index) for step in steps]
            return _Target(slot, indices, self.b.variables[slot].type, span)
        if slot is None and name == "output" and steps:
            parts = [step.name or self.expr(step.index) for step in steps]
            return _Target(None, parts, self._member_type(parts), span)
        message, hint = "this cannot be assigned to", None
        if name in ("input", "meta"):
            message, hint = "the event cannot be changed", "set fields of output, or a local variable"
        elif name == "output":
            message, hint = "the output cannot be assigned as a whole", "assign its fields: output.x = input.x;"
        elif slot is None and name in self.b.params:
            message, hint = f"parameter {name!r} cannot be changed here", "its owner sets it; use a static variable"
        elif slot is None and name:
            message, hint = f"no variable {name!r}", self.name_hint(name)
        self.b.problem(span, message, hint=hint)
        return None

    def _member_type(self, steps: list[Any]) -> Type | None:
        """The enumeration that a field of the output has, for bare names of its members."""
        here: Any = self.b.output
        for step in steps:
            field = here.by_name.get(step) if isinstance(here, Record) and isinstance(step, str) else None
            here = field.type if field else None
        return here if isinstance(here, Enum) else None


__all__ = ["parse"]
