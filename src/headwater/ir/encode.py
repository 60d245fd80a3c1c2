"""Programs as nested lists of plain values: the half of the serial form that writes (`serial.py` has the format)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headwater.errors import SerialError
from headwater.formats import INTEREST
from headwater.ir.build import inside
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Binary,
    Block,
    Break,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Continue,
    CopyOut,
    Elem,
    Expr,
    If,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    Path,
    Program,
    Reduce,
    Return,
    SetOut,
    Stmt,
    Unary,
    Var,
)
from headwater.types.model import SCALARS, Array, Enum, List, Record, Scalar, Type, canonical

VERSION = INTEREST

# Positions are part of the format: add at the end, never reorder.
SCALAR_CODES = (
    "bool",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f32",
    "f64",
    "text",
    "bytes",
    "timestamp",
)
UNARY_OPS = ("neg", "bitnot", "not")
BINARY_OPS = ("add", "sub", "mul", "div", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr")
COMPARE_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC_OPS = ("and", "or")
REDUCE_OPS = ("len", "sum", "mean", "min", "max")
META_NAMES = ("source", "node", "seq", "time")
PARAM_KINDS = ("scalar", "set", "map")
NOTATIONS = ("", "predicate", "ecode", "python")
EXPRESSIONS: tuple[type, ...] = (
    Const, Missing, Load, Var, Elem, Param, Meta, Unary, Binary, Compare, Logic, Cond, IsMissing, Cast, Call, InSet,
    Lookup, Reduce,
)  # fmt: skip
STATEMENTS: tuple[type, ...] = (Assign, AssignElem, SetOut, CopyOut, If, Loop, Break, Continue, Return)
TABLE_START = 32  # types below are scalars

_UNARY = {op: code for code, op in enumerate(UNARY_OPS)}
_BINARY = {op: code for code, op in enumerate(BINARY_OPS)}
_COMPARE = {op: code for code, op in enumerate(COMPARE_OPS)}
_LOGIC = {op: code for code, op in enumerate(LOGIC_OPS)}
_REDUCE = {op: code for code, op in enumerate(REDUCE_OPS)}
_META = {name: code for code, name in enumerate(META_NAMES)}
_SCALAR = {SCALARS[name]: code for code, name in enumerate(SCALAR_CODES)}


MAX_PARTS = 300_000  # lists within lists in one serial form: each takes many times its byte in memory
_CONTAINERS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))  # how msgpack begins an array or map

pack = msgspec.msgpack.Encoder().encode


def has_too_many_parts(data: bytes) -> bool:
    """Whether bytes may unpack to more lists than any program needs; letters beyond ASCII may count as well."""
    return len(data) > MAX_PARTS and len(data) - len(data.translate(None, _CONTAINERS)) > MAX_PARTS


class Encoder:
    """To nested lists. In the canonical form fields are named and types are spelt out."""

    def __init__(self, program: Program, *, canonical: bool = False) -> None:
        self.program, self.canonical = program, canonical
        self.table: list[Any] = []
        self.types: dict[Type, int] = {}
        self.params = {param.name: at for at, param in enumerate(program.params)}

    def type(self, type: Type) -> int | str:
        if isinstance(type, Scalar):
            return _SCALAR[type]
        if self.canonical:
            return canonical(type)
        code = self.types.get(type)
        if code is None:
            entry = self.composite(type)
            self.table.append(entry)
            code = self.types[type] = TABLE_START + len(self.table) - 1
        return code

    def composite(self, type: Type) -> list[Any]:
        match type:
            case Enum(name=name, members=members):
                return [0, name, [m for m, _ in members], [c for _, c in members]]
            case Array(element=element, shape=shape):
                return [1, self.type(element), list(shape)]
            case List(element=element):
                return [2, self.type(element)]
            case Record(name=name, fields=fields):
                return [3, name, [[f.name, self.type(f.type), f.optional] for f in fields]]
            case _:
                raise SerialError(f"no serial form for type {type}")

    def path(self, path: Path, start: Type) -> list[Any]:
        if self.canonical:
            return [step if isinstance(step, str) else self.expr(step) for step in path.steps]
        here: Type = start
        steps: list[Any] = []
        for step in path.steps:
            if isinstance(step, str):
                assert isinstance(here, Record)
                steps.append(_position(here, step))
                here = here.by_name[step].type
            else:
                assert isinstance(here, Array | List)
                steps.append(self.expr(step))
                here = inside(here)
        return steps

    def block(self, block: Block) -> list[Any]:
        return [self.stmt(stmt) for stmt in block]

    def stmt(self, stmt: Stmt) -> list[Any]:
        """A statement as a list that begins with its number; places in the text are left out."""
        match stmt:
            case Return(value=value):
                return [8, self.expr(value)]
            case Assign(slot=slot, value=value):
                return [0, slot, self.expr(value)]
            case AssignElem(slot=slot, indices=indices, value=value):
                return [1, slot, [self.expr(index) for index in indices], self.expr(value)]
            case SetOut(path=path, value=value):
                assert self.program.output is not None
                return [2, self.path(path, self.program.output), self.expr(value)]
            case CopyOut(path=path, source=source):
                assert self.program.output is not None
                return [3, self.path(path, self.program.output), self.path(source, self.program.input)]
            case If(test=test, then=then, other=other):
                return [4, self.expr(test), self.block(then), self.block(other)]
            case Loop(test=test, body=body, step=step):
                return [5, self.expr(test), self.block(body), self.block(step)]
            case Break():
                return [6]
            case Continue():
                return [7]

    def expr(self, expr: Expr) -> list[Any]:
        return _ENCODE[expr.__class__](self, expr)


def _position(record: Record, name: str) -> int:
    for at, field in enumerate(record.fields):
        if field.name == name:
            return at
    raise SerialError(f"{record.name} has no field {name!r}")


_ENCODE: dict[type, Callable[[Encoder, Any], list[Any]]] = {
    Const: lambda e, x: [0, e.type(x.type), x.value],
    Missing: lambda e, x: [1, e.type(x.type)],
    Load: lambda e, x: [2, e.path(x.path, e.program.input)],
    Var: lambda e, x: [3, x.slot],
    Elem: lambda e, x: [4, x.slot, [e.expr(index) for index in x.indices]],
    Param: lambda e, x: [5, e.params[x.name]],
    Meta: lambda e, x: [6, _META[x.name]],
    Unary: lambda e, x: [7, _UNARY[x.op], e.expr(x.a)],
    Binary: lambda e, x: [8, _BINARY[x.op], e.expr(x.a), e.expr(x.b)],
    Compare: lambda e, x: [9, _COMPARE[x.op], e.expr(x.a), e.expr(x.b)],
    Logic: lambda e, x: [10, _LOGIC[x.op], [e.expr(arg) for arg in x.args]],
    Cond: lambda e, x: [11, e.expr(x.test), e.expr(x.then), e.expr(x.other), e.expr(x.neither)],
    IsMissing: lambda e, x: [12, e.expr(x.a)],
    Cast: lambda e, x: [13, e.type(x.to), e.expr(x.a)],
    Call: lambda e, x: [14, x.fn, [e.expr(arg) for arg in x.args]],
    InSet: lambda e, x: [15, e.expr(x.a), [c.value for c in x.values], None if x.param is None else e.params[x.param]],
    Lookup: lambda e, x: [16, e.params[x.param], e.expr(x.key)],
    Reduce: lambda e, x: [17, _REDUCE[x.op], e.path(x.path, e.program.input)],
}


def key(expr: Expr, encoder: Encoder) -> bytes:
    """Bytes that are equal for equal expressions, and that give them one order on every machine."""
    return pack(encoder.expr(expr))


def binary_key(expr: Binary, a: bytes, b: bytes) -> bytes:
    """The same, given those of its operands: a list of four."""
    return b"\x94" + pack(8) + pack(_BINARY[expr.op]) + a + b
