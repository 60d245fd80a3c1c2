"""Programs that read the context of a source: values of its process that hold between two of its events.

Such a program is written over a *wide* record: the event's fields, and `context`, a record of scalars each of which may
be missing. What runs is made of it: over the event alone, with two parameters for each value that it reads, the value
and whether it is there. Whoever has a context sets them; where nobody does, all of it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from headwater.errors import InterestError, TypeDeclarationError
from headwater.ir import walk
from headwater.ir.nodes import (
    Cond,
    CopyOut,
    Expr,
    IsMissing,
    Load,
    Missing,
    Param,
    ParamDecl,
    Program,
    Unary,
)
from headwater.ir.notes import locate
from headwater.ir.rebind import rebind
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, TIMESTAMP, U64, Field, Record, Scalar, Type, promote

FIELD = "context"
PREFIX = "context."
ANY = "context?"  # the parameter that says whether there is a context at all
_KINDS = (BOOL, I64, U64, F64, TEXT, BYTES, TIMESTAMP)
_EXAMPLES: dict[Type, Any] = {BOOL: False, I64: 0, U64: 0, F64: 0.0, TEXT: "", BYTES: b"", TIMESTAMP: 0}


def check(context: Record) -> Record:
    """A context's type, all of whose values may be missing; TypeDeclarationError if it has what a context cannot."""
    for field in context.fields:
        if not isinstance(field.type, Scalar) or promote(field.type) not in _KINDS:
            raise TypeDeclarationError(
                f"context: {field.name}: expected a number, boolean, text, bytes or timestamp, found {field.type}"
            )
    return Record("Context", tuple(replace(field, optional=True) for field in context.fields))


def wide(event: Record, context: Record) -> Record:
    """The record that programs which read a context are written over; the event has no such field."""
    return Record(event.name, (*event.fields, Field(FIELD, context, optional=True)))


def parted(record: Record) -> tuple[Record, Record] | None:
    """The event and the context of a wide record; None if it is none."""
    last = record.fields[-1]
    if last.name != FIELD or not isinstance(last.type, Record) or len(record.fields) < 2:
        return None
    return Record(record.name, record.fields[:-1]), check(last.type)


def reads(program: Program) -> dict[str, Type]:
    """Values of the context that a program over a wide record reads, and their types; "" for whether there is one."""
    found: dict[str, Type] = {}
    for expr in walk.all_expressions(program.body):
        if isinstance(expr, Load) and expr.path.steps[0] == FIELD:
            found[str(expr.path.steps[1]) if len(expr.path.steps) > 1 else ""] = expr.type
    for stmt in walk.statements(program.body):
        if isinstance(stmt, CopyOut) and stmt.source.steps[0] == FIELD:
            problem = locate(
                program.text, stmt.span, "a context is not copied as a whole", hint="set its values one by one"
            )
            raise InterestError([problem])
    return found


def bound(program: Program, event: Record) -> Program:
    """The same over the event, with parameters for what it reads of a context: `unknown` has their first values."""
    found = reads(program)
    decls = [ParamDecl(ANY, "scalar", BOOL)] if "" in found else []
    for name, type in found.items():
        if name:
            decls += [ParamDecl(PREFIX + name, "scalar", type), ParamDecl(PREFIX + name + "?", "scalar", BOOL)]

    def change(expr: Expr) -> Expr:
        match expr:
            case IsMissing(a=Load(path=path)) if path.steps == (FIELD,):
                return Unary("not", Param(ANY, BOOL), BOOL, expr.span)
            case Load(path=path, type=type, span=span) if path.steps[0] == FIELD and len(path.steps) > 1:
                name = PREFIX + str(path.steps[1])
                gone = Missing(type, span)
                return Cond(Param(name + "?", BOOL), Param(name, type, span), gone, gone, type, span)
            case _:
                return expr

    return _over(program, event, change, tuple(decls))


def fixed(program: Program, event: Record, names: Collection[str]) -> Program:
    """The same over the event, with these values of the context as parameters that are always there."""
    types = {name: type for name, type in reads(program).items() if name in names}

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.path.steps[0] == FIELD and len(expr.path.steps) > 1:
            return Param(PREFIX + str(expr.path.steps[1]), expr.type, expr.span)
        return expr

    return _over(
        program, event, change, tuple(ParamDecl(PREFIX + name, "scalar", type) for name, type in types.items())
    )


def _over(program: Program, event: Record, change: Callable[[Expr], Expr], decls: tuple[ParamDecl, ...]) -> Program:
    body = walk.map_block(program.body, lambda expr: walk.rebuild(expr, change))
    return rebind(replace(program, body=body, params=program.params + decls), event)


def unknown(program: Program) -> dict[str, Any]:
    """Values of the parameters that `bound` adds for what a program reads, where nobody has a context."""
    made: dict[str, Any] = {}
    for name, type in reads(program).items():
        made |= {PREFIX + name: _EXAMPLES[type], PREFIX + name + "?": False} if name else {ANY: False}
    return made


def known(read: Mapping[str, Type], context: Record, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same where this is the context: a value that cannot be had as the program reads it is missing."""
    made: dict[str, Any] = {}
    for name, type in read.items():
        if not name:
            made[ANY] = True
            continue
        field, value = context.by_name.get(name), values.get(name)
        there = field is not None and value is not None and _fits(field.type, type, value)
        made |= {PREFIX + name: value if there else _EXAMPLES[type], PREFIX + name + "?": there}
    return made


def _fits(stored: Type, wanted: Type, value: Any) -> bool:
    """Whether a value of one type is one of another: as for fields of sources that have types of their own."""
    found = promote(stored)
    if found == wanted:
        return True
    if {found, wanted} == {I64, U64}:
        least, greatest = wanted.range  # type: ignore[union-attr]
        return bool(least <= value <= greatest)
    return wanted == F64 and found in (I64, U64) and getattr(stored, "bits", 64) <= 32


__all__ = ["FIELD", "PREFIX", "bound", "check", "fixed", "known", "parted", "reads", "unknown", "wide"]
