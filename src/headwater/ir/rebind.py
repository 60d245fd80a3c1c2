"""The same interest for another event type of a source: fields go by name.

A field that the other type lacks, or has in a form the program cannot read, is missing. A field of another width
reads the same, because reading widens; between i64 and u64 a checked cast stands in.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.ir import walk
from headwater.ir.build import inside
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Block,
    Cast,
    Const,
    CopyOut,
    Expr,
    IsMissing,
    Load,
    Missing,
    Path,
    Program,
    Reduce,
    SetOut,
    Stmt,
    Variable,
)
from headwater.ir.verify import fits
from headwater.types.model import F64, I64, U64, Array, List, Record, Type, promote


def rebind(program: Program, other: Record) -> Program:
    """The program over events of type `other`."""
    if other == program.input:
        return program
    return replace(program, input=other, body=_block(program.body, other, program.variables))


def _block(block: Block, other: Record, variables: tuple[Variable, ...]) -> Block:
    return tuple(_stmt(stmt, other, variables) for stmt in block)


def _stmt(stmt: Stmt, other: Record, variables: tuple[Variable, ...]) -> Stmt:
    if isinstance(stmt, CopyOut):
        source = walk.map_path(stmt.source, lambda expr: _expr(expr, other))
        target = walk.map_path(stmt.path, lambda expr: _expr(expr, other))
        if _stored(source, other) == stmt.stored:
            return CopyOut(target, source, stmt.stored, stmt.span)
        return SetOut(target, Missing(stmt.stored, stmt.span), stmt.stored, stmt.span)
    new = walk.map_stmt(stmt, lambda expr: _expr(expr, other), lambda inner: _block(inner, other, variables))
    match new:  # what was read narrow enough may now be wider
        case Assign(slot=slot, value=value):
            return replace(new, value=_fitted(value, variables[slot].type, variables))
        case AssignElem(slot=slot, value=value):
            return replace(new, value=_fitted(value, variables[slot].type, variables))
        case SetOut(value=value, stored=stored) if not isinstance(stored, Array | List | Record):
            return replace(new, value=_fitted(value, stored, variables))
        case _:
            return new


def _fitted(value: Expr, stored: Type, variables: tuple[Variable, ...]) -> Expr:
    return value if fits(value, stored, variables) else Cast(value, stored, promote(stored), value.span)


def _expr(expr: Expr, other: Record) -> Expr:
    return walk.rebuild(expr, lambda node: _node(node, other))


def _node(node: Expr, other: Record) -> Expr:
    """An expression over another record type: what that does not have is missing, and what it stores otherwise is
    converted."""
    match node:
        case IsMissing(a=Missing(), span=span):
            return Const(True, node.type, span)
        case Load(path=path, type=type, span=span):
            stored = _stored(path, other)
            if stored is None:
                return Missing(type, span)
            if isinstance(type, Array | List | Record):  # only ever asked whether it is there
                return Load(path, stored, stored, span) if stored.__class__ is type.__class__ else Missing(type, span)
            return _as(Load(path, stored, promote(stored), span), type)
        case Reduce(op=op, path=path, stored=expected, type=type, span=span):
            stored = _stored(path, other)
            if not isinstance(stored, Array | List) or not isinstance(expected, Array | List):
                return Missing(type, span)
            if op == "len":
                return Reduce(op, path, stored, I64, span)
            if promote(stored.element) != promote(expected.element) or _dimensions(stored) != _dimensions(expected):
                return Missing(type, span)
            return Reduce(op, path, stored, type, span)
        case _:
            return node


def _dimensions(type: Array | List) -> int:
    return len(type.shape) if isinstance(type, Array) else 1


def _as(load: Load, type: Type) -> Expr:
    """What was read, in the type the program expects."""
    if load.type == type:
        return load
    if {load.type, type} <= {I64, U64}:
        return Cast(load, type, type, load.span)
    if type == F64 and load.type in (I64, U64) and _exact(load.stored):
        return Cast(load, F64, F64, load.span)
    return Missing(type, load.span)


def _exact(stored: Type) -> bool:
    """Whether every integer of a type is a float too."""
    return getattr(stored, "bits", 64) <= 32


def _stored(path: Path, record: Record) -> Type | None:
    """What the other type has at a path, if it goes that far in the same way."""
    here: Type = record
    for step in path.steps:
        if isinstance(step, str):
            field = here.by_name.get(step) if isinstance(here, Record) else None
            if field is None:
                return None
            here = field.type
        elif isinstance(here, Array | List):
            here = inside(here)
        else:
            return None
    return here
