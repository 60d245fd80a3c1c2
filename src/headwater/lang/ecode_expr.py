"""E-Code's expressions, types and names: from the C parser's tree to typed nodes.

Expressions have no side effects here: an assignment, `++` or a comma inside one is a problem, told at its place. The
statements are in `ecode.py`; every node is made by the builder, which types and converts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pycparser import c_ast

from headwater.ir.build import Builder
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.nodes import BinaryOp, CompareOp, Const, Expr, Span
from headwater.ir.notes import is_bad
from headwater.lang.ecode_text import Source, character, floating, integer, refused, string
from headwater.lang.ecode_types import Ast, Types, spoken
from headwater.types.model import BOOL, F64, I64, TEXT, U64, Enum, Type, walk

MAX_EXPRESSION = 180  # levels of the syntax tree; the builder's own limit is on typed nodes

RESERVED = ("input", "output", "meta")
BINARY: dict[str, BinaryOp] = {"+": "add", "-": "sub", "*": "mul", "/": "tdiv", "%": "tmod"}
BINARY |= {"&": "and", "|": "or", "^": "xor", "<<": "shl", ">>": "shr"}
_COMPARE: dict[str, CompareOp] = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_MIRROR: dict[CompareOp, CompareOp] = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_LOGIC: dict[str, Literal["and", "or"]] = {"&&": "and", "||": "or"}
NOTHING = ("None", "null", "nil", "nullptr", "undefined")  # what other languages call a missing value
_NAMED: dict[str, bool | float] = {"true": True, "false": False, "INFINITY": math.inf, "NAN": math.nan}

# C's names for functions of the library: ours, and whether the arguments become doubles.
_C_NAMES = {"fabs": ("abs", True), "fmin": ("min", True), "fmax": ("max", True), "isnan": ("is_nan", False)}
_C_NAMES |= {"labs": ("abs", False), "llabs": ("abs", False), "strlen": ("byte_length", False)}
_NO_FUNCTION = {
    "strcmp": "compare it with 0, as in strcmp(a, b) == 0, or write a == b",
    "strncmp": "use starts_with(a, b)",
    "strcasecmp": "use lower(a) == lower(b)",
    "printf": "an interest has no input or output; it keeps or rejects events",
    "malloc": "declare an array of fixed size",
    "memcpy": "assign the elements, or copy a whole field: output.field = input.field",
}


class Step(NamedTuple):
    """One step of a path: a field's name, or an index that is still syntax."""

    name: str | None
    index: Ast
    span: Span


class Expressions(Types):
    """Lowers expressions. `want` is the type that the place expects: it gives bare names of members their meaning."""

    def __init__(self, source: Source, builder: Builder) -> None:
        super().__init__(source, builder)
        self._depth = 0
        self.declaring: str | None = None  # the variable whose initial value this is: it has none yet

    # ── expressions ──

    def expr(self, node: Ast, want: Type | None = None) -> Expr:
        self._depth += 1
        if self._depth > MAX_EXPRESSION:
            raise refused(self.source.text, self.start(node), f"expressions nest deeper than {MAX_EXPRESSION}",
                          "assign parts to variables")  # fmt: skip
        try:
            return self._expr(node, want)
        finally:
            self._depth -= 1

    def _expr(self, node: Ast, want: Type | None) -> Expr:
        """An expression of C. `want`: the type it is used as, by which members of enumerations are found."""
        match node:
            case c_ast.Constant():
                return self._constant(node)
            case c_ast.ID():
                return self._name(node.name, self.span(node), want)
            case c_ast.StructRef() | c_ast.ArrayRef():
                return self._read(node)
            case c_ast.BinaryOp():
                return self._binary(node)
            case c_ast.UnaryOp():
                return self._unary(node)
            case c_ast.TernaryOp():
                return self._ternary(node, want)
            case c_ast.Cast():
                return self._cast(node)
            case c_ast.FuncCall():
                return self._call(node)
            case c_ast.Assignment():
                hint = "assign in a statement of its own"
                if node.op == "=":
                    hint += ", or compare with =="
                return self.b.problem(self.span(node), "an assignment inside an expression", hint=hint)
            case c_ast.ExprList():
                return self.b.problem(self.span(node), "the comma operator inside an expression",
                                      hint="write separate statements")  # fmt: skip
            case c_ast.InitList() | c_ast.CompoundLiteral():
                return self.b.problem(self.span(node), "a list in braces is only for declaring an array")
        return self.b.problem(self.span(node), f"{spoken(node)} is not E-Code")

    def _constant(self, node: Ast) -> Expr:
        start, value = self.start(node), str(node.value)
        span = Span(start, start + len(value))
        if value.endswith('"'):
            text, end, wrong = string(self.source.code, start)
            span = Span(start, end)
            return self.b.problem(span, wrong) if text is None else self.b.const(text, span)
        if value.endswith("'"):
            code = character(value)
            return self.b.problem(span, code) if isinstance(code, str) else self.b.const(code, span)
        if (whole := integer(value)) is not None:
            const = self.b.const(whole[0], span)
            return self.b.coerce(const, U64, span) if whole[1] and not is_bad(const) else const
        number = floating(value)
        if number is None:
            return self.b.problem(span, "this is not a number of E-Code", found=value[:40])
        return self.b.const(number, span)

    def is_loose(self, node: Ast) -> bool:
        """Whether this is a bare name that only the other side can explain: a member of an enumeration."""
        return isinstance(node, c_ast.ID) and not self.is_known(node.name)

    def is_known(self, name: str) -> bool:
        return name in RESERVED or name in _NAMED or self.b.find(name) is not None or name in self.b.params

    def is_null(self, node: Ast) -> bool:
        return isinstance(node, c_ast.ID) and node.name == "NULL" and not self.is_known("NULL")

    def _name(self, name: str, span: Span, want: Type | None) -> Expr:
        """What a name stands for, in the order in which C would look: variables, parameters, constants, members of an
        enumeration; then fields, with advice."""
        slot = self.b.find(name)
        if slot is not None:
            return self.b.var(slot, span)
        if name in self.b.params:
            return self.b.param(name, span)
        if name in _NAMED:
            return self.b.const(_NAMED[name], span)
        if isinstance(want, Enum):
            return self.b.coerce(self.b.const(name, span), want, span)
        if name in RESERVED:
            fields = {"input": self.b.input, "output": self.b.output}.get(name)
            example = fields.fields[0].name if fields and fields.fields else "time"
            return self.b.problem(span, f"{name!r} as a whole is not a value", hint=f"write {name}.{example}")
        if name in NOTHING and name not in self.b.input.by_name:
            hint = "write NULL, as in input.x == NULL, or is_missing(input.x)"
            return self.b.problem(span, f"{name} is not a value", expected="NULL for a missing value", hint=hint)
        if name == "NULL":
            return self.b.problem(span, "NULL is only for == and !=", hint="is_missing(x) tests for a missing value")
        return self.b.problem(span, f"no variable or parameter {name!r}", expected="what is declared before it is used",
                              found=name[:40], hint=self.name_hint(name))  # fmt: skip

    def name_hint(self, name: str) -> str | None:
        if name in self.b.input.by_name:
            return f"fields of the event are written input.{name}"
        for part in walk(self.b.input):
            if isinstance(part, Enum) and part.code_of(name) is not None:
                return f"{name} is a member of {part.name}: compare it with a field of that type"
        if name in FUNCTIONS or name in REDUCTIONS:
            return f"{name} is a function: write {name}(…)"
        names = [variable.name for variable in self.b.variables if self.b.find(variable.name) is not None]
        known = [*(other for other in names if other != self.declaring), *self.b.params]
        return self.b.suggest(name, known, "there are") or f"declare it first, e.g. int {name} = 0;"

    def steps(self, node: Ast) -> tuple[Ast, list[Step]]:
        """A chain of fields and indices as its root and its steps in written order."""
        chain = []
        while isinstance(node, c_ast.StructRef | c_ast.ArrayRef):
            chain.append(node)
            node = node.name
        start = end = self.start(node)
        end = self.source.word(end).end
        steps = []
        for link in reversed(chain):
            if isinstance(link, c_ast.StructRef):
                at = self.start(link.field)
                span = Span(at, at + len(link.field.name))
                if link.type == "->":
                    self.b.problem(span, "-> needs a pointer, and E-Code has none", hint="write a dot")
                steps.append(Step(link.field.name, None, span))
                end = span.end
            else:
                end = self.source.partner("[", end)
                steps.append(Step(None, link.subscript, Span(start, end)))
        return node, steps

    def _read(self, node: Ast) -> Expr:
        root, steps = self.steps(node)
        name = root.name if isinstance(root, c_ast.ID) else None
        slot = self.b.find(name) if name else None
        rest = iter(steps)
        if slot is not None and self.b.variables[slot].shape and steps[0].name is None:
            indices = []
            while steps and steps[0].name is None:
                indices.append(self.expr(steps[0].index))
                span = steps.pop(0).span
            here, rest = self.b.elem(slot, indices, span), iter(steps)
        elif slot is None and name in self.b.params and self.b.params[name].kind != "scalar":
            step = next(rest)
            here = self._lookup(name, step.index, step.span)
        elif slot is None and name in RESERVED:
            here = self._field(name, next(rest))
        else:
            here = self.expr(root)
        return self._follow(here, rest)

    def _follow(self, here: Expr, steps: Iterator[Step]) -> Expr:
        for name, index, span in steps:
            here = self.b.attribute(here, name, span) if name else self.b.index(here, self.expr(index), span)
        return here

    def _field(self, root: str, step: Step) -> Expr:
        if step.name is None:
            message, hint = f"{root!r} is a record, not an array", f"write {root}.{self._quoted(step.index) or 'field'}"
            return self.b.problem(step.span, message, expected="a dot and a field", found="an index", hint=hint)
        if root == "output":
            hint = "compute in a local variable and assign that"
            return self.b.problem(step.span, "the output can only be assigned, not read", hint=hint)
        return self.b.meta(step.name, step.span) if root == "meta" else self.b.field(step.name, step.span)

    def _quoted(self, node: Ast) -> str | None:
        """A name that was written as a text."""
        written = node.value if isinstance(node, c_ast.Constant) else ""
        return written[1:-1] if written[:1] == '"' and written[1:-1].isidentifier() else None

    def _lookup(self, name: str, key: Ast, span: Span) -> Expr:
        if key is None:
            return self.b.problem(span, f"parameter {name!r} has no fields", hint="look a map up with map[key]")
        return self.b.lookup(name, self.expr(key, self.b.params[name].type), span)

    # ── operators ──

    def _binary(self, node: Ast) -> Expr:
        start = self.start(node)
        if node.op in _LOGIC:
            args: list[Ast] = []
            here = node
            while isinstance(here, c_ast.BinaryOp) and here.op == node.op:  # long chains are deep on the left
                args.append(here.right)
                here = here.left
            parts = [self.expr(arg) for arg in (here, *reversed(args))]
            return self.b.logic(_LOGIC[node.op], parts, Span(start, parts[-1].span.end))
        if node.op in _COMPARE:
            return self._compare(_COMPARE[node.op], node.left, node.right, start)
        chain = [node]
        while isinstance(chain[-1].left, c_ast.BinaryOp) and chain[-1].left.op in BINARY:
            chain.append(chain[-1].left)
        made = self.expr(chain[-1].left)
        for each in reversed(chain):
            b = self.expr(each.right)
            made = self.b.binary(BINARY[each.op], made, b, Span(start, b.span.end))
        return made

    def _compare(self, op: CompareOp, left: Ast, right: Ast, start: int) -> Expr:
        for one, other, sense in ((left, right, op), (right, left, _MIRROR[op])):
            if self.is_null(other) and op in ("eq", "ne"):
                return self._null_test(one, op == "eq")
            if _is_call(one, "strcmp", 2) and isinstance(other, c_ast.Constant) and other.value == "0":
                a, b = (self.expr(arg) for arg in one.args.exprs)
                return self._text_compare(sense, a, b, Span(start, b.span.end))
        if self.is_loose(left) and not self.is_loose(right):
            b = self.expr(right)
            a = self.expr(left, b.type)
        else:
            a = self.expr(left)
            b = self.expr(right, a.type)
        if a.type == b.type == BOOL and op not in ("eq", "ne"):  # 0 and 1 have an order in C
            a, b = self.b.cast(a, I64, a.span), self.b.cast(b, I64, b.span)
        return self.b.compare(op, a, b, Span(start, b.span.end))

    def _null_test(self, node: Ast, is_null: bool) -> Expr:
        if _is_call(node, "strstr", 2):  # NULL where nothing was found
            there = self.expr(node)
            return self.b.unary("not", there, there.span) if is_null else there
        value = self.expr(node)
        missing = self.b.is_missing(value, value.span)
        return missing if is_null else self.b.unary("not", missing, value.span)

    def _text_compare(self, op: CompareOp, a: Expr, b: Expr, span: Span) -> Expr:
        for side in (a, b):
            if not is_bad(side) and side.type != TEXT:
                return self.b.problem(side.span, "argument of strcmp()", expected="text", found=self.b.kind(side))
        return self.b.compare(op, a, b, span)

    def _unary(self, node: Ast) -> Expr:
        """An operator with one operand; those of C that need memory or change something are problems."""
        op, at = node.op, self.operator(node)
        if op in ("++", "--", "p++", "p--"):
            hint = f"write x {op[-1]}= 1; as a statement of its own"
            return self.b.problem(self.span(node), f"{op[-2:]} inside an expression", hint=hint)
        if op in ("&", "*"):
            what, hint = ("taking an address", "use the value") if op == "&" else ("following a pointer", "index it")
            return self.b.problem(Span(at, at + 1), f"{what} is not E-Code", hint=f"there are no pointers: {hint}")
        if op not in ("-", "+", "!", "~"):  # sizeof, _Alignof
            hint = "len(array), length(text) and byte_length(text) count elements, characters and bytes"
            return self.b.problem(self.source.word(at), f"{op} is not E-Code", hint=hint)
        if op == "!" and _is_call(node.expr, "strcmp", 2):
            a, b = (self.expr(arg) for arg in node.expr.args.exprs)
            return self._text_compare("eq", a, b, Span(at, b.span.end))
        a = self.expr(node.expr)
        span = Span(at, a.span.end)
        if is_bad(a):
            return a
        if op != "+":
            names: dict[str, Literal["neg", "not", "bitnot"]] = {"-": "neg", "!": "not", "~": "bitnot"}
            return self.b.unary(names[op], a, span)
        if a.type == BOOL:
            return self.b.cast(a, I64, span)
        if a.type in (I64, U64, F64):
            return a
        return self.b.problem(span, "an operand of +", expected="a number", found=self.b.kind(a))

    def _ternary(self, node: Ast, want: Type | None) -> Expr:
        test = self.expr(node.cond)
        if self.is_loose(node.iftrue) and not isinstance(want, Enum):
            other = self.expr(node.iffalse, want)
            then = self.expr(node.iftrue, other.type)
        else:
            then = self.expr(node.iftrue, want)
            other = self.expr(node.iffalse, want if isinstance(want, Enum) else then.type)
        return self.b.cond(test, then, other, Span(self.start(node), other.span.end))

    def _cast(self, node: Ast) -> Expr:
        to, dims = self.type_of(node.to_type.type, self.span(node.to_type))
        value = self.expr(node.expr)
        span = Span(self.start(node), value.span.end)
        if to is None:
            return self.bad(span)
        if dims:
            return self.b.problem(span, "no cast to an array")
        return self.b.cast(value, to, span)

    # ── functions ──

    def _call(self, node: Ast) -> Expr:
        """A call of a library function, or of what looks like one: missing, sets and maps, times, string functions of
        C."""
        start = self.start(node)
        span = Span(start, self.source.partner("(", self.source.word(start).end))
        if not isinstance(node.name, c_ast.ID):
            return self.b.problem(span, "only functions of the library can be called, by their name")
        name = node.name.name
        args: list[Ast] = list(node.args.exprs) if node.args is not None else []
        if name in ("is_missing", "has") and len(args) == 1:
            missing = self.b.is_missing(self.expr(args[0]), span)
            return missing if name == "is_missing" else self.b.unary("not", missing, span)
        if name in ("contains", "in", "lookup") and args:
            found = self._parameter_call(name, args, span)
            if found is not None:
                return found
        if name == "timestamp" and len(args) == 1 and isinstance(args[0], c_ast.Constant):
            text = self.expr(args[0])
            return self.b.timestamp(text.value, span) if isinstance(text, Const) and isinstance(text.value, str) else (
                self.b.problem(span, "argument of timestamp()", expected='a text such as "2026-01-31T09:30:00Z"')
            )  # fmt: skip
        if name in ("is_null", "isnull", "is_none"):
            return self.b.problem(span, f"no function {name!r}", hint="did you mean 'is_missing'?")
        if name in _NO_FUNCTION:
            return self.b.problem(span, f"{name}() is not E-Code here", hint=_NO_FUNCTION[name])
        first = self.expr(args[0]) if args else None
        values = [first, *(self.expr(arg, first.type) for arg in args[1:])] if first is not None else []
        if name == "in" and len(values) > 1:
            return self.b.in_set(values[0], values[1:], span)
        if name == "strstr" and len(values) == 2:
            return self.b.call("contains", values, span)
        name, doubles = _C_NAMES.get(name, (name, False))
        if doubles:
            values = [self.b.coerce(value, F64, value.span) for value in values]
        return self.b.call(name, values, span)

    def _parameter_call(self, name: str, args: list[Ast], span: Span) -> Expr | None:
        """`contains(set, x)`, `in(set, x)`, `lookup(map, key)`; None where the name means something else."""
        first = args[0].name if isinstance(args[0], c_ast.ID) and self.b.find(args[0].name) is None else None
        if first not in self.b.params or (name != "lookup" and self.b.params[first].kind == "scalar"):
            if name != "lookup":
                return None
            kind = "the name of a map parameter, then a key"
            return self.b.problem(span, "arguments of lookup()", expected=kind, hint=f"parameters: {[*self.b.params]}")
        if len(args) != 2:
            return self.b.problem(span, f"arguments of {name}()", expected="2", found=str(len(args)))
        key = self.expr(args[1], self.b.params[first].type)
        return self.b.lookup(first, key, span) if name == "lookup" else self.b.in_param(key, first, span)


def _is_call(node: Ast, name: str, count: int) -> bool:
    return (
        isinstance(node, c_ast.FuncCall)
        and isinstance(node.name, c_ast.ID)
        and node.name.name == name
        and node.args is not None
        and len(node.args.exprs) == count
    )
