"""Which numbers a parameter takes follows from its use, not from the values it begins with.

`f > :limit` that begins with 1 takes 0.5 later if `f` is a float; `u in :known` takes all of u64 if `u` is one. Where
uses differ, the type that the values have stays, or f64 where that is the only one that holds all keys asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from headwater.errors import ParameterError
from headwater.ir import walk
from headwater.ir.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Expr,
    InSet,
    Lookup,
    Missing,
    Param,
    ParamDecl,
    Program,
)
from headwater.ir.params import MapOf, SetOf
from headwater.spelling import did_you_mean
from headwater.types.model import F64, I64, U64, Type

_INTEGERS = (I64, U64)

Use = tuple[str, str, Type]  # a parameter, "key" or "value" of it, and the type that stands beside it


def is_flexible(decl: ParamDecl, value: object) -> bool:
    """Whether its type came from integers, so that another may turn out to be meant."""
    return not isinstance(value, ParamDecl) and (decl.type in _INTEGERS or decl.value in _INTEGERS)


def check_used(program: Program) -> None:
    """Raise ParameterError for a parameter that was given and that the program never reads: most likely a misspelt
    name, and in any case one whose changes would change nothing."""
    if not program.params:
        return
    used: set[str] = set()
    for expr in walk.all_expressions(program.body):
        match expr:
            case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                used.add(name)
    for decl in program.params:
        if decl.name not in used:
            hint = did_you_mean(decl.name, sorted(used)) or f"it reads {', '.join(sorted(used)) or 'none'}"
            raise ParameterError(
                f"no parameter {decl.name!r} in this interest: remove it from params=, or use it; {hint}"
            )


def by_use(program: Program, values: Mapping[str, object]) -> tuple[ParamDecl, ...]:
    """The parameters of a program that was read with those it begins with, of the types that their uses ask for."""
    found: dict[tuple[str, str], set[Type]] = {}
    for name, what, type in _uses(program):
        found.setdefault((name, what), set()).add(type)
    return tuple(_refined(decl, values.get(decl.name), found) for decl in program.params)


def _refined(decl: ParamDecl, value: object, found: Mapping[tuple[str, str], set[Type]]) -> ParamDecl:
    if not is_flexible(decl, value):
        return decl
    if decl.kind == "scalar":
        return replace(decl, type=_meant(decl.type, found.get((decl.name, "value"), set()), [value]))
    keys = _meant(decl.type, found.get((decl.name, "key"), set()), _keys(value), keys=True)
    if decl.value is None:
        return replace(decl, type=keys)
    return replace(
        decl, type=keys, value=_meant(decl.value, found.get((decl.name, "value"), set()), _map_values(value))
    )


def _meant(type: Type, uses: set[Type], values: list[Any], *, keys: bool = False) -> Type:
    if type not in _INTEGERS:
        return type
    if uses == {F64} or (keys and F64 in uses):
        return F64
    if uses == {U64} and all(value >= 0 for value in values):
        return U64
    return type


def _keys(value: object) -> list[Any]:
    match value:
        case SetOf(values=members):
            return list(members)
        case MapOf():
            return []
        case Set() | Mapping() | list() | tuple():
            return list(value)
        case _:
            return []


def _map_values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else []


def _uses(program: Program) -> Iterator[Use]:
    for stmt in walk.statements(program.body):
        for root in walk.operands(stmt):
            if (name := _name(root)) is not None:
                yield name, "value", root.type
    for expr in walk.all_expressions(program.body):
        match expr:
            case InSet(a=key, param=str(name)) | Lookup(param=name, key=key):
                yield name, "key", _before(key)
        for child in walk.children(expr):
            name = _name(child)
            beside = _beside(expr, child) if name is not None else None
            if name is not None and beside is not None:
                yield name, "value", beside


def _name(expr: Expr) -> str | None:
    """The parameter whose value this is."""
    match expr:
        case Param(name=name) | Lookup(param=name) | Cond(then=Lookup(param=name), other=Missing()):
            return name
        case _:
            return None


def _before(expr: Expr) -> Type:
    """An integer's type before it was brought to that of what stands beside it."""
    return expr.a.type if isinstance(expr, Cast) and expr.a.type in _INTEGERS and expr.to in _INTEGERS else expr.type


def _beside(parent: Expr, child: Expr) -> Type | None:
    """The type that a parameter's value is used as; None where nothing speaks for any."""
    match parent:
        case Cast(to=to):
            return to if to in (*_INTEGERS, F64) else child.type
        case Compare(a=a, b=b) | Binary(a=a, b=b):
            others: tuple[Expr, ...] = (b if a is child else a,)
        case Call(fn="coalesce" | "min" | "max", args=args):
            others = tuple(arg for arg in args if arg is not child)
        case Cond(then=then, other=other) if child is then or child is other:
            others = (other if child is then else then,)
        case _:
            return child.type
    types = {_before(other) for other in others if not isinstance(other, Const | Missing) and _name(other) is None}
    if len(types) > 1:
        return child.type
    return types.pop() if types else None
