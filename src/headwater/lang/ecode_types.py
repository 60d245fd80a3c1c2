"""Where the C parser's nodes stand, which types its declarations mean, and what is constant.

The ground that E-Code's expressions (`ecode_expr.py`) and statements (`ecode.py`) stand on.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from pycparser import c_ast

from headwater.ir.build import Builder
from headwater.ir.interp import evaluate
from headwater.ir.nodes import Binary, Call, Cast, Compare, Cond, Const, Expr, Logic, Span, Unary
from headwater.ir.walk import expressions
from headwater.lang.ecode_text import Source
from headwater.types.model import BOOL, F32, F64, I8, I16, I32, I64, TEXT, U8, U16, U32, U64, Enum, Scalar, Type, walk

Ast = Any  # a node of pycparser, which has no types


def _c_types() -> dict[tuple[str, ...], Scalar]:
    """Every order-free spelling of C's arithmetic types."""
    table: dict[tuple[str, ...], Scalar] = {("float",): F32, ("double",): F64, ("_Bool",): BOOL, ("char",): I8}
    table |= {("char", "signed"): I8, ("char", "unsigned"): U8}
    widths = (((), I32, U32), (("short",), I16, U16), (("long",), I64, U64), (("long", "long"), I64, U64))
    for (words, signed, unsigned), sign, base in product(widths, ((), ("signed",), ("unsigned",)), ((), ("int",))):
        if names := tuple(sorted((*words, *sign, *base))):
            table[names] = unsigned if sign == ("unsigned",) else signed
    return table


_C_TYPES = _c_types()


class Types:
    """A text and its program under construction: places and types."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source, self.b = source, builder

    # ── places ──

    def start(self, node: Ast) -> int:
        """Where a node begins. The first line that the parser sees is not the author's."""
        coord = node.coord
        return 0 if coord is None else self.source.at(coord.line - 1, coord.column or 1)

    def span(self, node: Ast) -> Span:
        """The first token of a node; enough to point at it."""
        return self.source.word(self.start(node))

    def operator(self, node: Ast) -> int:
        """Where a prefix operator stands; the parser only tells where its operand does."""
        start = self.start(node)
        found = self.source.code.rfind(node.op, 0, start + len(node.op))
        return found if found >= 0 else start

    def bad(self, span: Span) -> Expr:
        """A node that keeps quiet, where a problem has been noted already."""
        noted = self.b.problem(span, "")
        self.b.problems.pop()
        return noted

    # ── types ──

    def type_of(self, node: Ast, span: Span) -> tuple[Type | None, list[Ast]]:
        """A declared type and the sizes of its dimensions (syntax; None where it has none)."""
        dims: list[Ast] = []
        pointers = 0
        while not isinstance(node, c_ast.TypeDecl):
            match node:
                case c_ast.ArrayDecl() if not pointers:
                    dims.append(node.dim)
                case c_ast.PtrDecl():
                    pointers += 1
                case c_ast.FuncDecl():
                    hint = "write its body in place, or use a function of the library"
                    self.b.problem(span, "functions cannot be declared", hint=hint)
                    return None, dims
                case _:
                    self.b.problem(span, "pointers are not E-Code", hint="declare an array or a text")
                    return None, dims
            node = node.type
        base = self._base_type(node.type, span)
        if pointers and base is not None:
            if base == I8 and pointers == 1:
                return TEXT, dims
            self.b.problem(span, "pointers are not E-Code", found="*" * pointers, hint="only char * is known: a text")
            return None, dims
        return base, dims

    def _base_type(self, node: Ast, span: Span) -> Type | None:
        if isinstance(node, c_ast.Enum) and node.values is None:
            for part in (*walk(self.b.input), *(walk(self.b.output) if self.b.output else ())):
                if isinstance(part, Enum) and part.name == node.name:
                    return part
            self.b.problem(span, f"no enumeration {node.name!r} in the event types")
            return None
        if isinstance(node, c_ast.IdentifierType):
            names = tuple(sorted(node.names))
            if names == ("void",) and (alias := self.source.aliases.get(self.start(node))):
                return alias
            if names in _C_TYPES:
                return _C_TYPES[names]
            hint = "types are bool, char, short, int, long, their unsigned kinds, float, double, int32_t …, "
            self.b.problem(self.span(node), "this is not a type of E-Code", hint=f"{hint}timestamp and text")
            return None
        hint = "use fields of the event, or one variable for each part"
        self.b.problem(self.span(node), f"{spoken(node)} is not E-Code", hint=hint)
        return None


def is_constant(expr: Expr) -> bool:
    """Whether it is made of constants alone."""
    kinds = Const | Unary | Binary | Compare | Logic | Cond | Cast | Call
    return all(isinstance(part, kinds) for part in expressions(expr))


def fold(expr: Expr) -> Const | None:
    """The value of an expression over constants alone, as the reference interpreter has it."""
    if isinstance(expr, Const):
        return expr
    if not is_constant(expr):
        return None
    value, _ = evaluate(expr)
    return None if value is None else Const(value, expr.type, expr.span)


_SPOKEN = {"Struct": "a struct", "Union": "a union", "Enum": "an enum definition", "Typedef": "a typedef"}
_SPOKEN |= {"Goto": "goto", "Label": "a label", "Switch": "switch", "Case": "case", "Default": "default"}


def spoken(node: Ast) -> str:
    """What a construct is called, for messages."""
    kind = type(node).__name__
    return _SPOKEN.get(kind, f"this ({kind})")
